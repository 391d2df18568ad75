"""The adapter against the real surface of each TensorRT that it is for.

tests/data/tensorrt-api has the classes, members and enum values of the real Python bindings. From each a module is made
that has just these, with as much behaviour as a parse and a build need, and the adapter is run on it from end to end.
An attribute that a version does not have is an AttributeError, as it would be there.
"""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import re
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.gpu import bound_enum
from support.paths import SURFACES
from trtconv.core import codes
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.decode import decoded
from trtconv.core.dims import InputRange, ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tactics import Tactic, hexadecimal
from trtconv.core.encode import plain
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.core.options import options as declared
from trtconv.core.target import FAMILIES, Target
from trtconv.core.tensor_io import FORMATS, TensorIo
from trtconv.runtimes.tensorrt import builder_config, messages
from trtconv.runtimes.tensorrt import network as network_module
from trtconv.runtimes.tensorrt.adapter import Installed
from trtconv.runtimes.tensorrt.base import EngineBlob, ParserIssue

onnx = pytest.importorskip("onnx")

NAMES = sorted(path.stem for path in SURFACES.glob("*.json"))
FLAGS_OF_BUILDER = ("tensorrt-8.6.0",)
EXPLICIT_BATCH = ("tensorrt-8.6.0", "tensorrt-10.16.1")
VERSIONS = {"tensorrt-rtx-1.7.1": "1.7.1.116", "tensorrt-8.6.0": "8.6.0"}


SPATIAL = ("kernel_size_nd", "stride_nd", "dilation_nd", "pre_padding", "post_padding")


class Untold:
    """A member that the surface has and the fake has no behaviour for."""

    def __init__(self, owner: str, name: str) -> None:
        self.what = f"{owner}.{name}"

    def __get__(self, instance: object, owner: type) -> Untold:
        if instance is None:
            return self
        raise NotImplementedError(f"the fake has no {self.what}: teach it, the adapter now uses it")


class Fake:
    """Base of all fake classes: nothing can be set on them that the surface does not have."""

    members: frozenset[str] = frozenset()

    def __init__(self, **state: Any) -> None:
        self.__dict__["state"] = state

    def __setattr__(self, name: str, value: object) -> None:
        if name != "__class__" and name not in type(self).members:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        object.__setattr__(self, name, value)


def kept(name: str) -> property:
    """A member that returns the state of that name."""
    return property(lambda self: self.state[name])


def told(name: str) -> Any:
    """A method that returns the state of that name."""
    return lambda self: self.state[name]


Choice = tuple[int, int, str, tuple[int, ...]]


class Script:
    """What the fake TensorRT is to do, and what it saw."""

    def __init__(self) -> None:
        self.dtype = "FLOAT"
        self.sizes: tuple[int, ...] = (-1, 3, -1, -1)
        self.layers = ["DECONVOLUTION"]
        self.refused: dict[str, str] = {}
        self.complaint = ""
        self.silent = False
        self.logs: list[tuple[str, str]] = []
        self.builds = True
        self.raises: BaseException | None = None
        self.bias = types.SimpleNamespace(size=4)
        self.network_flags: list[int] = []
        self.flags: list[str] = []
        self.shapes: list[tuple[Any, ...]] = []
        self.cleared: list[str] = []
        self.typed: list[Any] = []
        self.formats: dict[str, int] = {}
        self.marked: list[str] = []
        self.config: Any = None
        self.cache: Any = None
        self.caches: list[bytes] = []
        self.measured = b"measured"
        self.meanwhile: Callable[[], object] = lambda: None
        # Layer to (implementation, tactic, type, strides) of its choices, the fastest first; profiles of the engine.
        self.choices: dict[str, list[Choice]] = {}
        self.profiles = 1
        # How many profiles the builder was given, and what it says to one.
        self.profiles_added = 0
        self.place = 0

    def refuse(self, model: bytes) -> list[dict[str, Any]]:
        """The first error, as a parser that stops there has it."""
        nodes = list(onnx.load_model_from_string(model).graph.node)
        found = [(i, node, self.refused[node.name]) for i, node in enumerate(nodes) if node.name in self.refused]
        errors = [(i, node.name, node.op_type, why) for i, node, why in found[:1]]
        errors += [(-7, "", "", self.complaint)] if self.complaint else []
        names = ("node", "node_name", "node_operator", "desc")
        return [{**dict(zip(names, error, strict=True)), "local_function_stack": []} for error in errors]


def behaviour(trt: Any, script: Script) -> dict[str, dict[str, Any]]:
    """The members that do something, by class."""
    timing = of_timing(trt, script)
    found = {**of_networks(trt, script), **of_building(trt, script), **of_parsing(trt, script), **of_tactics()}
    config = found["IBuilderConfig"] | timing["IBuilderConfig"]
    return {**found, **timing, "IBuilderConfig": config}


def of_networks(trt: Any, script: Script) -> dict[str, dict[str, Any]]:
    def tensor(name: str, shape: tuple[int, ...]) -> Any:
        return trt.ITensor(name=name, shape=shape, dtype=getattr(trt.DataType, script.dtype), is_shape_tensor=False)

    def x() -> Any:
        return tensor("x", script.sizes)

    def y() -> Any:
        return tensor("y", (-1, 4, -1, -1))

    def layer(kind: str) -> Any:
        return trt.ILayer(
            **dict.fromkeys(SPATIAL, (2, 2)),
            type=getattr(trt.LayerType, kind),
            name="up_1",
            metadata="[ONNX Layer: up]",
            num_inputs=1,
            num_outputs=1,
            num_groups=1,
            num_output_maps=4,
            bias=script.bias,
            padding_mode=trt.PaddingMode.EXPLICIT_ROUND_DOWN,
        )

    layer_members = {name: kept(name) for name in ("type", "name", "metadata", "num_inputs", "num_outputs")}
    layer_members |= {"get_input": lambda self, i: x(), "get_output": lambda self, i: y()}
    typed = {
        "precision": property(
            lambda self: self.state["precision"], lambda self, kind: self.state.update(precision=kind)
        ),
        "set_output_type": lambda self, i, kind: script.typed.append((self.name, i, self.precision.name, kind.name)),
    }
    return {
        "ITensor": {name: kept(name) for name in ("name", "shape", "dtype", "is_shape_tensor")}
        | {"allowed_formats": property(None, lambda self, bits: script.formats.update({self.name: bits}))},
        "ILayer": layer_members | typed,
        "IDeconvolutionLayer": layer_members
        | {name: kept(name) for name in (*SPATIAL, "num_groups", "num_output_maps", "bias", "padding_mode")},
        "INetworkDefinition": {
            "name": "",
            "num_inputs": 1,
            "num_outputs": 1,
            "num_layers": property(lambda self: len(script.layers)),
            "get_input": lambda self, i: x(),
            "get_output": lambda self, i: y(),
            "get_layer": lambda self, i: layer(script.layers[i]),
            "mark_debug": lambda self, tensor: not script.marked.append(tensor.name),
        },
    }


def of_building(trt: Any, script: Script) -> dict[str, dict[str, Any]]:
    def build(self: Any, network: Any, config: Any) -> Any:
        for severity, text in script.logs:
            self.state["logger"].log(trt.ILogger.Severity[severity], text)
        monitor = getattr(config, "progress_monitor", None)
        if monitor is not None:
            monitor.phase_start("Building engine", None, 1)
            if not monitor.step_complete("Building engine", 0):
                return None
            monitor.phase_finish("Building engine")
        if script.raises is not None:
            raise script.raises
        script.config = config
        choose(trt, script, config)
        if script.cache is not None:
            script.cache.state["data"] |= {script.measured}
        script.meanwhile()
        return trt.IHostMemory(b"engine") if script.builds else None

    def add_profile(self: Any, profile: Any) -> int:
        script.profiles_added += 1
        return script.place

    def create_network(self: Any, flags: int = 0) -> Any:
        script.network_flags.append(flags)
        return trt.INetworkDefinition()

    return {
        "Builder": {
            "__init__": lambda self, logger: Fake.__init__(self, logger=logger),
            "create_network": create_network,
            "create_builder_config": lambda self: trt.IBuilderConfig(),
            "create_optimization_profile": lambda self: trt.IOptimizationProfile(),
            "build_serialized_network": build,
        },
        "IBuilderConfig": of_options()
        | {
            "set_flag": lambda self, flag: script.flags.append(flag.name),
            "clear_flag": lambda self, flag: script.cleared.append(flag.name),
            "num_compute_capabilities": 0,
            "builder_optimization_level": 3,
            "max_aux_streams": -1,
            "hardware_compatibility_level": None,
            "profiling_verbosity": None,
            "add_optimization_profile": add_profile,
            "algorithm_selector": None,
            "progress_monitor": None,
        },
        "IOptimizationProfile": {"set_shape": lambda self, *shapes: script.shapes.append(shapes)},
        "ILogger": {"Severity": enum.Enum("Severity", ["INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"])},
        "Logger": {"INTERNAL_ERROR": 0, "__init__": lambda self, severity: Fake.__init__(self)},
        "IProgressMonitor": {},
    }


def of_options() -> dict[str, Any]:
    def set_capability(self: Any, capability: Any, index: int) -> bool:
        self.state.setdefault("capabilities", {})[index] = capability.name
        return True

    def set_pool(self: Any, pool: Any, size: int) -> None:
        self.state["pool"] = (pool.name, size)

    def set_preview(self: Any, feature: Any, enable: bool) -> None:
        self.state.setdefault("previews", {})[feature.name] = enable

    return {
        "set_memory_pool_limit": set_pool,
        "set_compute_capability": set_capability,
        "set_preview_feature": set_preview,
    }


def of_timing(trt: Any, script: Script) -> dict[str, dict[str, Any]]:
    def create_cache(self: Any, data: bytes) -> Any:
        script.caches.append(bytes(data))
        if bytes(data).startswith(b"broken"):
            raise RuntimeError("no cache")
        return trt.ITimingCache(data=set(filter(None, bytes(data).split(b","))))

    def set_cache(self: Any, cache: Any, ignore_mismatch: bool) -> bool:
        assert ignore_mismatch is False
        script.cache = cache
        return b"other" not in cache.state["data"]

    def combine(self: Any, other: Any, ignore_mismatch: bool) -> bool:
        self.state["data"] |= other.state["data"]
        return not ignore_mismatch

    def update(self: Any, key: Any, value: Any) -> bool:
        self.state.setdefault("tactics", {})[str(key)] = value.state["tactic"]
        return True

    def query(self: Any, key: Any) -> Any:
        return trt.TimingCacheValue(self.state["tactics"][str(key)], 1.0)

    def keys(self: Any) -> list[Any]:
        return [trt.TimingCacheKey.parse(text) for text in self.state.get("tactics", {})]

    def parse_key(text: str) -> Any:
        if not re.fullmatch("0x[0-9a-f]{32}", text):
            raise RuntimeError("Unexpected length of key")
        return trt.TimingCacheKey(text=text)

    setters = {"create_timing_cache": create_cache, "set_timing_cache": set_cache}
    return {
        "TimingCacheKey": {"parse": staticmethod(parse_key), "__str__": lambda self: self.state["text"]},
        "TimingCacheValue": {
            "__init__": lambda self, tactic, ms: Fake.__init__(self, tactic=tactic),
            "tacticHash": kept("tactic"),
        },
        "ITimingCache": {"combine": combine, "serialize": lambda self: b",".join(sorted(self.state["data"]))}
        | {"update": update, "query": query, "queryKeys": keys},
        "IBuilderConfig": {**setters, "get_timing_cache": lambda self: script.cache},
    }


def choose(trt: Any, script: Script, config: Any) -> None:
    """Chooses the tactics of layers, by the selector or by the editable cache, whichever the builder was given."""
    selector = getattr(config, "algorithm_selector", None)
    if "EDITABLE_TIMING_CACHE" in script.flags:
        tactics = script.cache.state.setdefault("tactics", {})
        for layer, offered in script.choices.items():
            tactics.setdefault(f"0x{int.from_bytes(layer.encode(), 'big'):032x}", offered[0][1])
    elif selector is not None:
        for _ in range(script.profiles):
            contexts, taken = [], []
            for layer, offered in script.choices.items():
                context = trt.IAlgorithmContext(name=layer, num_inputs=1, num_outputs=1)
                choices = [algorithm(trt, *each) for each in offered]
                contexts.append(context)
                taken.append(choices[selector.select_algorithms(context, choices)[0]])
            selector.report_algorithms(contexts, taken)


def algorithm(trt: Any, implementation: int, tactic: int, dtype: str, strides: tuple[int, ...]) -> Any:
    info = trt.IAlgorithmIOInfo(
        dtype=getattr(trt.DataType, dtype), strides=strides, vectorized_dim=-1, components_per_element=1
    )
    variant = trt.IAlgorithmVariant(implementation=implementation, tactic=tactic)
    return trt.IAlgorithm(algorithm_variant=variant, info=info)


def of_tactics() -> dict[str, dict[str, Any]]:
    def members(*names: str) -> dict[str, Any]:
        return {name: kept(name) for name in names}

    return {
        "IAlgorithmSelector": {},
        "IAlgorithmContext": members("name", "num_inputs", "num_outputs"),
        "IAlgorithmVariant": members("implementation", "tactic"),
        "IAlgorithmIOInfo": members("dtype", "strides", "vectorized_dim", "components_per_element"),
        "IAlgorithm": {**members("algorithm_variant"), "get_algorithm_io_info": lambda self, i: self.state["info"]},
    }


def of_parsing(trt: Any, script: Script) -> dict[str, dict[str, Any]]:
    error_members = ("desc", "node", "node_name", "node_operator", "local_function_stack")

    def parse(self: Any, model: bytes, path: str) -> bool:
        errors = self.state.setdefault("errors", script.refuse(model))
        if script.silent and not isinstance(self.state["logger"], trt.Logger):
            self.state["logger"].log(trt.ILogger.Severity["ERROR"], "the log alone knows")
        return not errors and not script.silent

    return {
        "OnnxParser": {
            "__init__": lambda self, network, logger: Fake.__init__(self, logger=logger),
            "parse": parse,
            "num_errors": property(lambda self: len(self.state["errors"])),
            "get_error": lambda self, i: trt.ParserError(**self.state["errors"][i]),
            "supports_operator": lambda self, op: True,
        },
        "ParserError": {name: told(name) for name in error_members},
    }


def fake_module(name: str, script: Script) -> Any:
    """Makes the module with the surface of that name."""
    surface = json.loads((SURFACES / f"{name}.json").read_text(encoding="utf-8"))
    trt = types.SimpleNamespace(__version__=VERSIONS.get(name, name.rpartition("-")[2] + ".9"))
    for owner, described in surface.items():
        if "enum" in described:
            setattr(trt, owner, bound_enum(owner, described["enum"]))
    told_to = behaviour(trt, script)
    for owner, described in surface.items():
        if owner == "IHostMemory":
            trt.IHostMemory = type("IHostMemory", (bytearray,), {})
        elif "members" in described:
            members = {member: Untold(owner, member) for member in described["members"]}
            does = told_to.get(owner, {})
            members |= {m: does[m] for m in does if m in members or m in ("__init__", "__str__")}
            setattr(trt, owner, type(owner, (Fake,), {**members, "members": frozenset(described["members"])}))
    return trt


@pytest.fixture
def script() -> Script:
    return Script()


def test_the_newest_version_of_each_family_has_its_surface() -> None:
    newest = [f"{facts.module.replace('_', '-')}-{max(facts.majors)}" for facts in FAMILIES.values()]
    missing = [name for name in newest if not any(SURFACES.glob(f"{name}.*.json"))]
    assert not missing, f"record these in tests/data/tensorrt-api (docs/extending.md, Add a runtime): {missing}"


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def adapter(name: str, script: Script) -> Installed:
    return Installed("rtx" if "rtx" in name else "tensorrt", fake_module(name, script))


def two_nodes() -> bytes:
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", 1, [1, 3])
    y = helper.make_tensor_value_info("y", 1, [1, 3])
    first = helper.make_node("Relu", ["x"], ["a"], name="first")
    nodes = [first, helper.make_node("Tanh", ["a"], ["y"], name="second")]
    return bytes(helper.make_model(helper.make_graph(nodes, "g", [x], [y])).SerializeToString())


def plan(precision: str = "as-is", inputs: tuple[str, ...] = ("x",)) -> BuildPlan:
    sizes = InputRange((1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 16, 16))
    return BuildPlan(Target("rtx"), (ShapeProfile(dict.fromkeys(inputs, sizes), {}),), precision=precision)


def build(adapter: Installed, precision: str = "as-is", **kwargs: Any) -> EngineBlob:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    return network.build(plan(precision), **kwargs)


def test_a_model_is_parsed_read_and_built(adapter: Installed, script: Script) -> None:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    assert network.layer_types == ("DECONVOLUTION",)
    (layer,) = network.deconvolutions
    assert (layer.onnx_node, layer.name, layer.kernel, layer.has_bias) == ("up", "up_1", (2, 2), True)
    assert [t.dtype for t in network.inputs] == ["float32"]
    assert network.outputs[0].shape == (-1, 4, -1, -1)
    assert network.shape_inputs == ()
    blob = network.build(plan())
    assert bytes(blob.data) == b"engine"
    assert script.shapes == [("x", (1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 16, 16))]
    assert script.flags == []


def test_capabilities_are_those_of_the_surface(name: str, adapter: Installed) -> None:
    capabilities = adapter.info.capabilities
    assert capabilities.builder_precision_flags == (name in FLAGS_OF_BUILDER)
    assert capabilities.explicit_batch_flag == (name in EXPLICIT_BATCH)
    assert capabilities.timing_cache == ("rtx" not in name)
    assert capabilities.progress_monitor == (name != "tensorrt-8.6.0")
    assert capabilities.parser_node_names == (name != "tensorrt-8.6.0")
    assert capabilities.builds_without_gpu == ("rtx" in name)
    assert capabilities.algorithm_selector == (name == EIGHT)
    assert capabilities.editable_timing_cache == (name in (TEN, ELEVEN))


def test_a_refusal_that_only_the_log_explains_is_explained(adapter: Installed, script: Script) -> None:
    script.silent = True
    issues = adapter.parse(two_nodes(), Path("model.onnx"))
    assert isinstance(issues, tuple)
    assert [issue.message for issue in issues] == ["the log alone knows"]


def test_networks_have_an_explicit_batch_where_that_must_be_said(name: str, adapter: Installed, script: Script) -> None:
    adapter.parse(two_nodes(), Path("model.onnx"))
    known = fake_module(name, script).NetworkDefinitionCreationFlag
    wanted = {"tensorrt-8.6.0": ["EXPLICIT_BATCH"], "tensorrt-10.16.1": ["EXPLICIT_BATCH", "STRONGLY_TYPED"]}
    assert script.network_flags[0] == sum(1 << int(getattr(known, flag)) for flag in wanted.get(name, []))


@pytest.mark.parametrize(("precision", "flags"), [("fp16", ["FP16"]), ("int8", ["INT8", "FP16"])])
def test_precision_is_a_builder_flag_or_refused(
    name: str, adapter: Installed, script: Script, precision: str, flags: list[str]
) -> None:
    if name in FLAGS_OF_BUILDER:
        build(adapter, precision)
        assert script.flags == flags
    else:
        with pytest.raises(EnvironmentMissing, match=precision) as caught:
            build(adapter, precision)
        assert "Convert" in caught.value.hint


def test_bf16_is_no_builder_flag(adapter: Installed) -> None:
    # Only versions that are typed strongly have it, and there the graph says it.
    with pytest.raises(EnvironmentMissing):
        build(adapter, "bf16")


def test_the_types_of_the_graph_are_allowed_to_the_builder(name: str, adapter: Installed, script: Script) -> None:
    script.dtype = "HALF"
    script.layers = ["QUANTIZE", "DEQUANTIZE", "DECONVOLUTION"]
    fresh = Installed("tensorrt", fake_module(name, script))
    build(fresh)
    assert script.flags == (["INT8", "FP16"] if name in FLAGS_OF_BUILDER else [])


def test_every_refused_node_is_named_though_the_parser_stops_at_the_first(adapter: Installed, script: Script) -> None:
    script.refused = {"first": "Invalid Node - first\nno", "second": "not me either In validate at /_src/x.cpp:1"}
    issues = adapter.parse(two_nodes(), Path("model.onnx"))
    assert issues == (ParserIssue(0, "first", "Relu", "no"), ParserIssue(1, "second", "Tanh", "not me either"))


def test_a_refusal_of_no_node_is_passed_on(adapter: Installed, script: Script) -> None:
    script.complaint = "bad input"
    assert adapter.parse(two_nodes(), Path("model.onnx")) == (ParserIssue(-1, "", "", "bad input"),)


def test_a_refused_build_says_why(adapter: Installed, script: Script) -> None:
    script.builds = False
    script.logs = [("ERROR", "cannot"), ("ERROR", "cannot"), ("INFO", "hello"), ("VERBOSE", "chatter")]
    with pytest.raises(BuildFailed) as caught:
        build(adapter)
    assert [(f.code, f.message) for f in caught.value.findings] == [("TC403", "cannot")]  # type: ignore[attr-defined]


@pytest.mark.parametrize("limit", [1 << 30, None])
def test_memory_that_the_builder_lacks_is_the_machines_where_that_is_limited(
    adapter: Installed, script: Script, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "address_space", lambda: limit)
    script.builds = False
    script.logs = [("ERROR", "Unexpected Internal Error: Unexpected exception std::bad_alloc")]
    with pytest.raises(EnvironmentMissing if limit else BuildFailed) as caught:
        build(adapter)
    assert ("narrower ranges" in caught.value.hint) == (limit is None)


def test_a_thread_that_the_system_does_not_start_is_the_machines(adapter: Installed, script: Script) -> None:
    script.builds = False
    script.logs = [("ERROR", "std::system_error: Resource temporarily unavailable")]
    with pytest.raises(EnvironmentMissing):
        build(adapter)


def test_warnings_come_with_the_engine(adapter: Installed, script: Script) -> None:
    script.logs = [("WARNING", "slow"), ("INFO", "hello")]
    assert build(adapter).warnings == ("slow",)


@pytest.mark.parametrize("error", [MemoryError("std::bad_alloc"), RuntimeError("broken"), TypeError("null")])
def test_an_exception_of_the_builder_is_a_failed_build(adapter: Installed, script: Script, error: Exception) -> None:
    script.raises = error
    with pytest.raises(BuildFailed) as caught:
        build(adapter)
    assert caught.value.__cause__ is error
    assert "TC403" in [f.code for f in caught.value.findings]  # type: ignore[attr-defined]


def test_a_monitor_that_says_no_cancels(name: str, adapter: Installed) -> None:
    if name == "tensorrt-8.6.0":
        assert build(adapter, monitor=lambda *_: False).data
    else:
        with pytest.raises(BuildFailed, match="cancelled"):
            build(adapter, monitor=lambda *_: False)


def test_a_monitor_that_raises_raises_from_build(name: str, adapter: Installed) -> None:
    def monitor(*_: object) -> bool:
        raise KeyboardInterrupt

    if name != "tensorrt-8.6.0":
        with pytest.raises(KeyboardInterrupt):
            build(adapter, monitor=monitor)


def test_a_profile_without_a_dynamic_input_is_refused(adapter: Installed) -> None:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    with pytest.raises(InputError, match="'x'"):
        network.build(plan(inputs=("other",)))


def test_a_layer_without_a_bias_has_none(name: str, script: Script) -> None:
    script.bias = None  # type: ignore[assignment]
    network = Installed("tensorrt", fake_module(name, script)).parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    assert not network.deconvolutions[0].has_bias


def test_the_fake_has_only_what_the_surface_has(name: str, script: Script) -> None:
    trt = fake_module(name, script)
    with pytest.raises(AttributeError):
        trt.IBuilderConfig().no_such_thing = 1
    with pytest.raises(AttributeError):
        trt.Builder(None).no_such_thing  # noqa: B018
    assert hasattr(trt.BuilderFlag, "FP16") == (name in EXPLICIT_BATCH)
    assert hasattr(trt, "IProgressMonitor") == (name != "tensorrt-8.6.0")


RTX = "tensorrt-rtx-1.7.1"
TEN, ELEVEN = "tensorrt-10.16.1", "tensorrt-11.4.0"
EIGHT = "tensorrt-8.6.0"


def build_with(adapter: Installed, options: BuilderOptions, cache: Path | None = None) -> EngineBlob:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    return network.build(dataclasses.replace(plan(), options=options, timing_cache=cache))


@pytest.mark.parametrize("layers", [["CONVOLUTION"], ["CONVOLUTION", "NMS"]])
def test_what_counts_boxes_has_a_profile_on_tensorrt_8(
    name: str, adapter: Installed, script: Script, layers: list[str]
) -> None:
    script.layers, script.sizes = layers, (1, 3, 8, 8)
    build(adapter)
    assert script.profiles_added == int("NMS" in layers and name == EIGHT)


@pytest.mark.parametrize("name", [EIGHT])
def test_a_profile_that_tensorrt_does_not_take_fails_the_build(adapter: Installed, script: Script) -> None:
    script.layers, script.sizes, script.place = ["NMS"], (1, 3, 8, 8), -1
    with pytest.raises(BuildFailed):
        build(adapter)


def test_contexts_share_profiles_where_that_has_to_be_said(name: str, adapter: Installed, script: Script) -> None:
    build_with(adapter, BuilderOptions(share_profiles=True))
    known = name in (EIGHT, TEN)
    assert script.config.state == ({"previews": {"PROFILE_SHARING_0806": True}} if known else {})


def test_options_are_set_on_every_version(adapter: Installed, script: Script) -> None:
    options = BuilderOptions(
        workspace_bytes=1 << 30,
        optimization_level=5,
        sparsity=True,
        tf32=False,
        profiling_verbosity="detailed",
        max_aux_streams=0,
    )
    build_with(adapter, options)
    assert (script.flags, script.cleared) == (["SPARSE_WEIGHTS"], ["TF32"])
    config = script.config
    assert config.state["pool"] == ("WORKSPACE", 1 << 30)
    assert (config.builder_optimization_level, config.profiling_verbosity.name) == (5, "DETAILED")
    assert config.max_aux_streams == 0


def test_tensors_are_marked_where_they_can_be_shown(name: str, adapter: Installed, script: Script) -> None:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)

    def built(*names: str) -> EngineBlob:
        return network.build(dataclasses.replace(plan(), options=BuilderOptions(debug_tensors=names)))

    if name == "tensorrt-8.6.0":
        with pytest.raises(BuildFailed, match="has no --debug-tensor"):
            built("y")
        return
    (finding,) = built("y", "elsewhere").findings
    assert script.marked == ["y"]
    assert (finding.code, "no tensor 'elsewhere'" in finding.message) == ("TC405", True)
    assert built("y").findings == ()


def test_formats_are_set_on_every_version(name: str, adapter: Installed, script: Script) -> None:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    io = {"x": TensorIo("fp32", "chw32"), "y": TensorIo("fp32")}
    network.build(dataclasses.replace(plan(), options=BuilderOptions(direct_io=True), io=io))
    formats = fake_module(name, script).TensorFormat
    assert (script.formats, script.flags) == ({"x": 1 << int(formats.CHW32)}, ["DIRECT_IO"])
    for form in FORMATS.values():
        assert hasattr(formats, form)


def test_defaults_leave_the_config_alone(adapter: Installed, script: Script) -> None:
    build_with(adapter, BuilderOptions())
    assert (script.flags, script.cleared, script.caches, script.config.state) == ([], [], [], {})


@pytest.mark.parametrize(
    ("options", "flags", "has"),
    [
        (BuilderOptions(version_compatible=True), ["VERSION_COMPATIBLE"], {EIGHT, TEN, ELEVEN}),
        (BuilderOptions(strip_weights=True), ["STRIP_PLAN", "REFIT_IDENTICAL"], {TEN, ELEVEN, RTX}),
        (BuilderOptions(strip_weights=True, refittable=True), ["STRIP_PLAN", "REFIT"], {TEN, ELEVEN, RTX}),
        (BuilderOptions(refittable=True), ["REFIT"], {EIGHT, TEN, ELEVEN, RTX}),
        (BuilderOptions(weight_streaming=True), ["WEIGHT_STREAMING"], {TEN, ELEVEN, RTX}),
        (BuilderOptions(tf32=True), ["TF32"], {EIGHT, TEN, ELEVEN, RTX}),
        (BuilderOptions(hardware="ampere+"), [], {EIGHT, TEN, ELEVEN}),
        (BuilderOptions(hardware="same-compute-capability"), [], {TEN, ELEVEN}),
        (BuilderOptions(compute_capabilities=("7.5",)), [], {RTX}),
    ],
)
def test_what_a_version_lacks_is_a_finding_that_names_one_that_has_it(
    name: str,
    adapter: Installed,
    script: Script,
    monkeypatch: pytest.MonkeyPatch,
    options: BuilderOptions,
    flags: list[str],
    has: set[str],
) -> None:
    monkeypatch.setattr(network_module, "gpu_name", lambda: "NVIDIA RTX")
    if name in has:
        build_with(adapter, options)
        assert script.flags == flags
        return
    with pytest.raises(BuildFailed) as caught:
        build_with(adapter, options)
    (finding,) = caught.value.findings
    assert finding.code == "TC405"  # type: ignore[attr-defined]
    assert "TensorRT" in finding.fix  # type: ignore[attr-defined]
    assert script.config is None


TEXTS = {"workspace_bytes": 1 << 30, "debug_tensors": ("y",), "compute_capabilities": ("8.9",)}
"""A value of each builder option whose declaration does not say which it takes."""
ALONG = {"exclude_lean_runtime": {"version_compatible": True}}
"""What an option has no effect without."""


def values(field: str) -> list[Any]:
    """Returns values of a builder option, all but its default."""
    option = dict(declared(BuilderOptions))[field]
    (flag,) = option.flags
    if field in TEXTS:
        return [TEXTS[field]]
    if isinstance(flag.takes, tuple):
        return [word for word in flag.takes if word != option.default]
    numbers = [number for number in (flag.least, flag.most) if number is not None]
    found = [value for value in (True, False) if value != option.default] if flag.takes is bool else numbers
    assert found, f"name a value of {field} in TEXTS of {Path(__file__).name}"
    return found


def seen(name: str, options: dict[str, Any], cache: Path) -> Any:
    """Returns what a version saw of a build with options; None where it refuses them in words."""
    script = Script()
    adapter = Installed("rtx" if "rtx" in name else "tensorrt", fake_module(name, script))
    cache.write_bytes(b"timings")
    try:
        build_with(adapter, BuilderOptions(**options), cache)
    except BuildFailed as failed:
        assert {finding.code for finding in failed.findings} == {"TC405"}, failed  # type: ignore[attr-defined]
        return None
    except AttributeError as lacking:
        pytest.fail(f"{name}: {lacking}; give {[*options]} a row in _OPTIONS of runtimes/tensorrt/builder_config.py")
    config = {key: value for key, value in vars(script.config).items() if key != "progress_monitor"}
    return script.flags, script.cleared, script.marked, config


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(BuilderOptions)])
def test_every_option_reaches_the_builder_or_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, field: str
) -> None:
    monkeypatch.setattr(network_module, "gpu_name", lambda: "NVIDIA RTX")
    along, cache = ALONG.get(field, {}), tmp_path / "t.timing"
    for value in values(field):
        built = {name: seen(name, {**along, field: value}, cache) for name in NAMES}
        assert any(saw is not None and saw != seen(name, along, cache) for name, saw in built.items()), (
            f"{field}={value!r} changes nothing in the builder's config: set it in runtimes/tensorrt/builder_config.py"
        )


TIMED = BuilderOptions(error_on_timing_cache_miss=True)


def test_only_tensorrt_10_and_newer_take_all_timings_from_the_cache(
    name: str, adapter: Installed, script: Script, tmp_path: Path
) -> None:
    (tmp_path / "a.timing").write_bytes(b"cache")
    if name in {EIGHT, RTX}:
        with pytest.raises(BuildFailed, match="--error-on-timing-cache-miss"):
            build_with(adapter, TIMED, tmp_path / "a.timing")
        return
    build_with(adapter, TIMED, tmp_path / "a.timing")
    assert script.flags == ["ERROR_ON_TIMING_CACHE_MISS"]
    # What is tried and thrown away is measured all the same.
    script.flags.clear()
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    network.build(dataclasses.replace(plan(), options=TIMED, trial=True))
    assert script.flags == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "there is none"),
        ({"timing_cache": Path("gone.timing")}, "gone.timing is not there"),
        ({"tactics": (Tactic("a", "b"),)}, "--as and --keep-tactics"),
        ({"options": dataclasses.replace(TIMED, keep_tactics=True)}, "--as and --keep-tactics"),
    ],
)
def test_timings_come_from_a_cache_that_is_there(script: Script, changes: dict[str, Any], said: str) -> None:
    network = Installed("tensorrt", fake_module(TEN, script)).parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    with pytest.raises(InputError, match=said):
        network.build(dataclasses.replace(plan(), **{"options": TIMED, **changes}))
    assert script.config is None


def test_a_refusal_tells_that_a_timing_may_be_missing(script: Script, tmp_path: Path) -> None:
    (tmp_path / "a.timing").write_bytes(b"cache")
    finding = codes.BUILDER_REFUSED.finding("no", fix="Change it.")
    timed = dataclasses.replace(plan(), options=TIMED)
    (told,) = builder_config.refused(timed, (finding,))
    assert told.fix.startswith("Change it. Where the timing cache lacks something")
    assert builder_config.refused(plan(), (finding,)) == (finding,)
    assert builder_config.refused(dataclasses.replace(timed, trial=True), (finding,)) == (finding,)


def test_compute_capabilities_are_set_in_order(script: Script) -> None:
    adapter = Installed("rtx", fake_module(RTX, script))
    blob = build_with(adapter, BuilderOptions(compute_capabilities=("12.0", "7.5"), tf32=True))
    assert script.config.num_compute_capabilities == 2
    assert script.config.state["capabilities"] == {0: "SM120", 1: "SM75"}
    assert [(f.code, f.severity.value) for f in blob.findings] == [("TC406", "warning"), ("TC406", "warning")]


def test_an_unknown_compute_capability_lists_the_known_ones(script: Script) -> None:
    adapter = Installed("rtx", fake_module(RTX, script))
    with pytest.raises(BuildFailed) as caught:
        build_with(adapter, BuilderOptions(compute_capabilities=("9.0",)))
    (finding,) = caught.value.findings
    assert "7.5, 8.0, 8.6, 8.9, 12.0, 12.1" in finding.fix  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("dtype", "capability", "refused"),
    [
        ("BF16", "7.5", True),
        ("BF16", "8.6", False),
        ("FP8", "8.6", True),
        ("FP8", "8.9", False),
        ("HALF", "7.5", False),
    ],
)
def test_a_gpu_that_lacks_a_type_is_refused(script: Script, dtype: str, capability: str, refused: bool) -> None:
    script.dtype = dtype
    adapter = Installed("rtx", fake_module(RTX, script))
    options = BuilderOptions(compute_capabilities=(capability,))
    if not refused:
        assert build_with(adapter, options).findings == ()
        return
    with pytest.raises(BuildFailed) as caught:
        build_with(adapter, options)
    assert [f.code for f in caught.value.findings] == ["TC406"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [BuilderOptions(refittable=True), BuilderOptions(strip_weights=True)])
def test_rtx_refits_only_where_there_is_a_gpu(
    script: Script, monkeypatch: pytest.MonkeyPatch, options: BuilderOptions
) -> None:
    monkeypatch.setattr(network_module, "gpu_name", lambda: None)
    with pytest.raises(EnvironmentMissing, match="GPU"):
        build_with(Installed("rtx", fake_module(RTX, script)), options)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_process_that_ends_with_its_result_keeps_the_last_network(script: Script, keeps: bool) -> None:
    adapter = Installed("rtx", fake_module(RTX, script), keeps)
    first, second = (weakref.ref(adapter.parse(two_nodes(), Path("model.onnx"))) for _ in range(2))
    gc.collect()
    assert first() is None
    assert (second() is not None) == keeps


@pytest.fixture(params=[EIGHT, TEN, ELEVEN])
def caching(request: pytest.FixtureRequest, script: Script) -> Installed:
    """A TensorRT that has a timing cache."""
    return Installed("tensorrt", fake_module(request.param, script))


@pytest.mark.parametrize("name", ["tensorrt-8.6.0"])
def test_single_nodes_are_computed_in_types_of_their_own(adapter: Installed, script: Script) -> None:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    network.build(dataclasses.replace(plan("as-is"), node_precisions={"up": "fp16", "other": "fp32"}))
    assert script.typed == [("up_1", 0, "HALF", "HALF")]
    assert script.flags == ["FP16", "OBEY_PRECISION_CONSTRAINTS"]
    script.typed.clear()
    script.dtype = "INT32"
    network.build(dataclasses.replace(plan("fp16"), node_precisions={"up": "fp32"}))
    assert script.typed == []


def test_a_timing_cache_is_read_and_written(caching: Installed, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.timing"
    assert build_with(caching, BuilderOptions(), path).findings == ()
    assert path.read_bytes() == b"measured"
    script.measured = b"more"
    build_with(caching, BuilderOptions(), path)
    assert path.read_bytes() == b"measured,more"
    assert [each.name for each in path.parent.iterdir()] == ["t.timing"]


def test_what_a_trial_measures_is_thrown_away(caching: Installed, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "t.timing"
    path.write_bytes(b"old")
    network = caching.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    network.build(dataclasses.replace(plan(), timing_cache=path, trial=True))
    assert script.cache.state["data"] == {b"old", b"measured"}
    assert path.read_bytes() == b"old"


def test_what_another_build_wrote_meanwhile_is_kept(caching: Installed, script: Script, tmp_path: Path) -> None:
    path = tmp_path / "t.timing"
    path.write_bytes(b"old")
    script.meanwhile = lambda: path.write_bytes(b"old,theirs")
    build_with(caching, BuilderOptions(), path)
    assert path.read_bytes() == b"measured,old,theirs"


@pytest.mark.parametrize("content", [b"broken", b"other"])
def test_a_cache_that_does_not_fit_is_replaced(
    caching: Installed, script: Script, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "t.timing"
    path.write_bytes(content)
    build_with(caching, BuilderOptions(), path)
    assert b"measured" in path.read_bytes()
    assert script.cache.state["data"] >= {b"measured"}


def test_a_cache_that_cannot_be_written_is_told(caching: Installed, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    blob = build_with(caching, BuilderOptions(), tmp_path / "file" / "t.timing")
    assert [(f.code, f.severity.value) for f in blob.findings] == [("TC407", "info")]
    assert bytes(blob.data) == b"engine"


SMALL, LARGE, OTHER = (-5, 1000, "HALF", (64, 8)), (-5, -1001, "HALF", (64, 8)), (-5, 1000, "HALF", (64, 1))
"""Three tactics of a layer: the last has the number of the first, and another layout."""


def built_as(adapter: Installed, tactics: tuple[Tactic, ...] = (), **options: Any) -> EngineBlob:
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    return network.build(dataclasses.replace(plan(), tactics=tactics, options=BuilderOptions(**options)))


@pytest.mark.parametrize("name", [EIGHT])
@pytest.mark.parametrize("profiles", [1, 2])
def test_layers_get_the_tactics_of_another_build(adapter: Installed, script: Script, profiles: int) -> None:
    script.profiles = profiles
    script.choices = {"up": [LARGE, SMALL, OTHER], "copy": [SMALL]}
    first = built_as(adapter, keep_tactics=True).tactics
    assert first is not None
    assert [(t.layer, t.tactic, t.profile) for t in first] == [
        (layer, tactic, profile)
        for profile in range(profiles)
        for layer, tactic in (("up", f"0x{2**64 - 1001:x}"), ("copy", "0x3e8"))
    ]
    assert decoded(tuple[Tactic, ...], plain(first)) == first
    # Another is the fastest this time, and two are alike but for their layout.
    script.choices = {"up": [OTHER, SMALL, LARGE], "copy": [SMALL]}
    assert built_as(adapter, keep_tactics=True).tactics != first
    again = built_as(adapter, first)
    assert (again.tactics, again.findings) == (first, ())


@pytest.mark.parametrize("name", [EIGHT])
def test_layers_that_do_not_get_their_tactics_are_named(adapter: Installed, script: Script) -> None:
    script.choices = {"up": [SMALL, LARGE], "gone": [SMALL], "copy": [SMALL]}
    first = built_as(adapter, keep_tactics=True).tactics
    assert first is not None
    script.choices = {"up": [OTHER, LARGE], "copy": [SMALL], "fresh": [LARGE]}
    blob = built_as(adapter, first)
    assert [(f.code, f.severity.value, f.location.node) for f in blob.findings] == [
        ("TC413", "warning", name) for name in ("up", "fresh", "gone")
    ]
    assert bytes(blob.data) == b"engine"


@pytest.mark.parametrize("name", [EIGHT])
def test_what_goes_wrong_in_a_callback_leaves_the_engine_as_it_is(adapter: Installed, script: Script) -> None:
    script.choices = {"up": [SMALL]}
    script.choices["up"][0] = (1, None, "HALF", ())  # type: ignore[assignment]
    blob = built_as(adapter, keep_tactics=True)
    assert (bytes(blob.data), blob.tactics) == (b"engine", None)
    assert [f.code for f in blob.findings] == ["TC413"]


@pytest.mark.parametrize("name", [EIGHT])
def test_tactics_are_not_kept_where_nobody_wants_them(adapter: Installed, script: Script) -> None:
    script.choices = {"up": [SMALL]}
    assert built_as(adapter).tactics is None
    kept = BuilderOptions(keep_tactics=True)
    network = adapter.parse(two_nodes(), Path("model.onnx"))
    assert not isinstance(network, tuple)
    assert network.build(dataclasses.replace(plan(), options=kept, trial=True)).tactics is None


@pytest.mark.parametrize("name", [EIGHT])
def test_level_0_finds_no_kernels_with_a_selector(adapter: Installed, script: Script) -> None:
    script.choices = {"up": [SMALL]}
    first = built_as(adapter, keep_tactics=True, optimization_level=1).tactics
    assert first is not None
    assert bytes(built_as(adapter, optimization_level=0).data) == b"engine"
    with pytest.raises(BuildFailed, match="level 0"):
        built_as(adapter, keep_tactics=True, optimization_level=0)
    with pytest.raises(BuildFailed, match="level 0"):
        built_as(adapter, first, optimization_level=0)


@pytest.mark.parametrize("name", [TEN, ELEVEN])
def test_an_editable_timing_cache_takes_tactics(adapter: Installed, script: Script) -> None:
    script.choices = {"up": [SMALL], "side": [LARGE]}
    assert built_as(adapter).tactics is None
    assert "EDITABLE_TIMING_CACHE" not in script.flags
    first = built_as(adapter, keep_tactics=True).tactics
    assert first is not None
    assert [t.tactic for t in first] == ["0x3e8", hexadecimal(-1001)]
    script.choices = {"up": [LARGE], "side": [SMALL], "new": [SMALL]}
    stranger = Tactic("no key", "0x1")
    again = built_as(adapter, (*first, stranger))
    assert again.tactics is not None
    assert set(first) < set(again.tactics)
    fresh = f"0x{int.from_bytes(b'new', 'big'):032x}"
    assert [f.location.node for f in again.findings] == [fresh, "no key"]


@pytest.mark.parametrize("name", [RTX])
def test_rtx_has_no_tactics_to_keep(adapter: Installed) -> None:
    assert built_as(adapter).tactics is None
    with pytest.raises(BuildFailed, match="--keep-tactics"):
        built_as(adapter, keep_tactics=True)
