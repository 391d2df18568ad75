"""Plugins and references in checks and builds: read back, run beside the model, tried on a GPU, named in the plan."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import trtconv
from support.runtime import TENSORRT_8, FakeNetwork, FakeRuntime
from trtconv.core import config, foreign
from trtconv.core.agreement import AgreedCode, CodeFile
from trtconv.core.dims import Range
from trtconv.core.documents.proof import Lack
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.foreign import ForeignCode
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.check import CheckRequest
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.plugins.registry import find
from trtconv.runtimes import tensorrt
from trtconv.runtimes.foreign_nodes import meaning_of, write_types
from trtconv.runtimes.onnxruntime import session
from trtconv.runtimes.proof.plugin_trial import try_plugins
from trtconv.runtimes.tensorrt import plugins
from trtconv.runtimes.tensorrt.base import PluginCreator
from trtconv.runtimes.tensorrt.readback.records import PluginIdentity, PluginMeaning, ReadLayer, ReadNetwork, ReadTensor

MODEL = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[2,3] x) => (float[2,3] y) {
  a = Abs(x)
  b = my.Shift <by = 2.0> (a)
  c = Neg(b)
  d = my.Shift <by = 1.0> (c)
  y = Add(d, x)
}"""
SHIFT = """
import trtconv

@trtconv.reference("my::Shift")
def shift(x, by):
    return x + by
"""
WRONG = SHIFT.replace("x + by", "x - by")
ONE = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[2,3] x) => (float[2,3] y) { y = my.Shift <by = 2.0> (x) }"""


def write(folder: Path, text: str, name: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def save(folder: Path, text: str = ONE) -> Path:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    return folder / "m.onnx"


def agreed(path: Path) -> AgreedCode:
    return AgreedCode(path, hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_model_with_operators_of_its_own_runs_in_stages(tmp_path: Path) -> None:
    model = OnnxModel.load(save(tmp_path, MODEL))
    assert isinstance(session(model), str)
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    with foreign.using(ForeignCode(references=(agreed(write(tmp_path, SHIFT, "shift.py")),))):
        loaded = session(model)
        assert [each.name for each in loaded.get_outputs()] == ["y"]
        np.testing.assert_array_equal(loaded.run(None, {"x": x})[0], -(np.abs(x) + 2) + 1 + x)
    assert find("my", "Shift") is None


BODIES = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[4,3] x, bool c, int64 m) => (float[n,3] a, float[k,4,3] rows, float[4,3] b, float[4,3] s, float[4,3] d)
<float[3] w = {1, 2, 3}>
{
  go = Constant <value = bool {1}> ()
  h = Neg (x)
  b = If (c) <
    then_branch = t () => (float[4,3] yt) { yt = my.Shift <by = 2.0> (h) },
    else_branch = e () => (float[4,3] ye) { ye = Abs (h) }>
  a, rows = Loop (m, go, b) <body = l (int64 i, bool k, float[4,3] v) => (bool kk, float[4,3] vv, float[4,3] r) {
    kk = Identity (k)
    u = my.Shift <by = 0.5> (v)
    f = Cast <to = 1> (i)
    one = Constant <value = int64 {1}> ()
    first = Less (i, one)
    vv = If (first) <
      then_branch = t2 () => (float[4,3] p) { q = my.Shift <by = 3.0> (u)  p = Add (q, w) },
      else_branch = e2 () => (float[4,3] o) { o = Add (u, h) }>
    r = Mul (vv, f) }>
  zero = Constant <value = float[3] {0, 0, 0}> ()
  last, s = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1], body =
    sc (float[3] state, float[3] row) => (float[3] next, float[3] out) {
      z = my.Shift <by = 1.0> (row)  next = Add (state, z)  out = Identity (next) }> (zero, x)
  d = Add (a, last)
}"""


@pytest.mark.parametrize(("chosen", "times"), [(True, 3), (False, 1), (True, 0)])
def test_references_run_inside_if_loop_and_scan(tmp_path: Path, chosen: bool, times: int) -> None:
    plain = re.sub(r"my\.Shift <by = ([\d.]+)> \((\w+)\)", r"Sum (\2, by\1)", BODIES)
    numbers = sorted(set(re.findall(r"by([\d.]+)\)", plain)))
    weights = "".join(f", float by{each} = {{{each}}}" for each in numbers)
    plain = re.sub(r"by(\d+)\.(\d)", r"by\1_\2", plain.replace("{1, 2, 3}>", f"{{1, 2, 3}}{weights}>"))
    given = {"x": np.arange(12, dtype=np.float32).reshape(4, 3), "c": np.array(chosen), "m": np.array(times)}
    expected = session(OnnxModel.load(save(tmp_path, plain))).run(None, given)
    code = ForeignCode(references=(agreed(write(tmp_path, SHIFT, "shift.py")),))
    with foreign.using(code):
        got = session(OnnxModel.load(save(tmp_path, BODIES))).run(None, given)
    for one, two in zip(expected, got, strict=True):
        assert one.size == two.size and (not one.size or one.shape == two.shape)
        np.testing.assert_allclose(two.reshape(one.shape), one, rtol=1e-6)


def test_a_plugin_inside_a_loop_is_not_said_to_be_run_on_the_gpu(tmp_path: Path) -> None:
    trial = try_plugins(OnnxModel.load(save(tmp_path, BODIES)), FakeRuntime(FakeNetwork()), ())
    assert len(trial.missing) == 4 and not trial.findings
    assert {each.what for each in trial.missing} == {Lack.REFERENCE}


def test_a_reference_that_raises_where_a_type_is_needed_is_named(tmp_path: Path) -> None:
    raising = SHIFT.replace("return x + by", "raise ValueError('seven')")
    code = ForeignCode(references=(agreed(write(tmp_path, raising, "shift.py")),))
    with foreign.using(code):
        model = OnnxModel.load(save(tmp_path, ONE))
        model.proto.graph.output[0].type.tensor_type.elem_type = 0
        model.proto.graph.node[0].name = "shifting"
        model.touch()
        with pytest.raises(InputError) as caught:
            write_types(model)
        for said in ("m.onnx", "shifting", "my::Shift", "seven", "shift.py"):
            assert said in caught.value.message
        write_types(OnnxModel.load(save(tmp_path, ONE)))


def test_the_user_s_reference_counts_before_the_built_in_one(tmp_path: Path) -> None:
    text = 'import trtconv\n@trtconv.reference("TRT::CropAndResizeDynamic")\ndef f(*_, **__):\n    return 7\n'
    with foreign.using(ForeignCode(references=(agreed(write(tmp_path, text, "own.py")),))):
        found = find("TRT", "CropAndResizeDynamic")
        assert found is not None and found([], {})[0] == 7
        other = find("elsewhere", "CropAndResizeDynamic")
        assert other is not None and other.file == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("x = 1", "no reference"),
        ("raise SystemExit(0)", "SystemExit"),
        ('import trtconv\n@trtconv.reference("::")\ndef f(): pass', "not the name"),
    ],
)
def test_files_that_are_no_references(tmp_path: Path, text: str, said: str) -> None:
    code = ForeignCode(references=(agreed(write(tmp_path, text, "bad.py")),))
    with foreign.using(code), pytest.raises(InputError, match=said):
        find("my", "Shift")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(0)", "end of the program"),
        ("return None", "no array of numbers"),
        ("return 'text'", "no array of numbers"),
        ("x += by; return x", "read-only"),
    ],
)
def test_a_reference_neither_ends_trtconv_nor_changes_what_others_read(tmp_path: Path, body: str, said: str) -> None:
    text = SHIFT.replace("return x + by", body)
    with foreign.using(ForeignCode(references=(agreed(write(tmp_path, text, "shift.py")),))):
        found = find("my", "Shift")
        assert found is not None
        x = np.ones((2, 3), np.float32)
        with pytest.raises((RuntimeError, TypeError, ValueError), match=said):
            found([x], {"by": 1.0})
        assert x.flags.writeable and (x == 1).all()


def network(plugin: str = "Shift") -> FakeNetwork:
    """What a TensorRT reads of `ONE`."""
    tensors = ReadTensor(0, "x", "float32", (2, 3)), ReadTensor(1, "y", "float32", (2, 3))
    layer = ReadLayer(0, "shift", "PLUGIN_V2", (0,), (1,), {"plugin": PluginIdentity(plugin, "1")})
    return FakeNetwork(
        layer_types=("PLUGIN_V2",),
        inputs=(TensorInfo("x", "input", "float32", (2, 3)),),
        outputs=(TensorInfo("y", "output", "float32", (2, 3)),),
        read=ReadNetwork(tensors, (layer,), (0,), (1,)),
    )


class OnGpu:
    """A GPU on which the plugin adds 2."""

    def load(self, data: bytes, *, host_code: bool = False) -> OnGpu:
        return self

    def open(self) -> OnGpu:
        return self

    def feed(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def run(self) -> dict[str, Any]:
        return {"y": self._values["x"] + 2}

    def close(self) -> None:
        pass


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Builds `ONE` for a full TensorRT that has the plugin, with a GPU or without, and a reference or none."""

    def run(reference: str = "", *, gpu: bool = False, plugin: str = "Shift", **asked: Any) -> Any:
        def engines() -> OnGpu:
            if not gpu:
                raise EnvironmentMissing("there is no GPU")
            return OnGpu()

        runtime = FakeRuntime(network(plugin), family="tensorrt", version="8.6.0", capabilities=TENSORRT_8)
        monkeypatch.setattr(runtime, "engines", engines, raising=False)
        monkeypatch.setattr(tensorrt, "load", lambda target: runtime)
        named = CodeFile.named([write(tmp_path, reference, "shift.py")] if reference else [])
        code = {"extend" if "owner" in reference else "references": named}
        library = write(tmp_path, "a library", "libshift.so")
        files = CodeFile.named([library])
        return trtconv.build(BuildRequest(save(tmp_path), plugins=files, force=True, **code, **asked))

    return run


def test_without_a_gpu_the_place_of_a_plugin_is_shown_and_not_its_code(build: Any) -> None:
    report = build(SHIFT)
    assert report.exit_code == 0 and report.proof.agrees is True
    assert [each.what for each in report.proof.missing] == [Lack.REFERENCE]


def test_a_plugin_that_computes_what_its_reference_says_is_shown_on_the_gpu(build: Any) -> None:
    report = build(SHIFT, gpu=True)
    assert report.exit_code == 0 and not report.proof.missing


def test_a_mistake_in_a_reference_fails_the_build_where_there_is_a_gpu(build: Any) -> None:
    report = build(WRONG, gpu=True)
    assert report.exit_code == 1 and report.engine is None
    assert [each.code for each in report.findings if each.severity.value == "error"] == ["TC402"]


@pytest.mark.parametrize(("text", "agrees"), [(SHIFT, True), (WRONG, False)])
def test_a_reference_in_an_extension_is_one(build: Any, text: str, agrees: bool) -> None:
    report = build(f'owner = "ACME"\n{text}', gpu=True)
    assert report.exit_code == (0 if agrees else 1) and not report.proof.missing
    assert report.proof.agrees is True
    assert ["TC402" for each in report.findings if each.code == "TC402"] == ([] if agrees else ["TC402"])


def test_without_a_reference_nothing_is_shown(build: Any) -> None:
    report = build(gpu=True)
    assert report.exit_code == 0 and report.proof.agrees is None
    assert any("reference" in each.reason for each in report.proof.missing)
    assert build(gpu=True, prove="required").exit_code == 1


@pytest.mark.parametrize(("fields", "named"), [(("by",), False), (("to",), True)])
def test_an_attribute_that_the_installed_plugin_passes_over_is_named(
    build: Any, monkeypatch: pytest.MonkeyPatch, fields: tuple[str, ...], named: bool
) -> None:
    creator = PluginCreator("Shift", "1", "", fields)
    monkeypatch.setattr(FakeRuntime, "creators", lambda self: (creator,))
    missing = build(gpu=True).proof.missing
    assert any("no field 'by'" in each.reason for each in missing) is named


TWO = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[n,3] x) => (float[n,3] y) {
  a = Abs (x)  b = my.Shift <by = 2.5> (a)  c = Neg (b)  d = my.Scale <by = 1.5> (c)  y = Add (d, x)
}"""
BOTH = f"""{SHIFT}
@trtconv.reference("my::Scale")
def scale(x, by):
    return x * x.dtype.type(by)
"""


def network_of_two() -> FakeNetwork:
    """What a TensorRT reads of `TWO`."""
    tensors = tuple(ReadTensor(index, name, "float32", (-1, 3)) for index, name in enumerate("xabcdy"))
    layers = (
        ReadLayer(0, "abs", "UNARY", (0,), (1,), {"op": "ABS"}),
        ReadLayer(1, "shift", "PLUGIN_V2", (1,), (2,), {"plugin": PluginIdentity("Shift", "1")}),
        ReadLayer(2, "neg", "UNARY", (2,), (3,), {"op": "NEG"}),
        ReadLayer(3, "scale", "PLUGIN_V2", (3,), (4,), {"plugin": PluginIdentity("Scale", "1")}),
        ReadLayer(4, "add", "ELEMENTWISE", (4, 0), (5,), {"op": "SUM"}),
    )
    x, y = TensorInfo("x", "input", "float32", (-1, 3)), TensorInfo("y", "output", "float32", (-1, 3))
    kinds = tuple(layer.kind for layer in layers)
    return FakeNetwork(layer_types=kinds, inputs=(x,), outputs=(y,), read=ReadNetwork(tensors, layers, (0,), (5,)))


class OnGpuOfTwo(OnGpu):
    """A GPU that has both plugins."""

    def run(self) -> dict[str, Any]:
        ((name, values),) = self._values.items()
        return {"b": values + np.float32(2.5)} if name == "a" else {"d": values * np.float32(1.5)}


def test_nothing_is_missing_of_a_network_with_two_plugins_and_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime(network_of_two(), family="tensorrt", version="8.6.0", capabilities=TENSORRT_8)
    monkeypatch.setattr(runtime, "engines", OnGpuOfTwo, raising=False)
    monkeypatch.setattr(tensorrt, "load", lambda target: runtime)
    references = CodeFile.named([write(tmp_path, BOTH, "both.py")])
    asked: dict[str, Any] = {"dims": {"n": Range(1, 4, 8)}, "references": references, "prove": "required"}
    libraries = CodeFile.named([write(tmp_path, name, f"lib{name}.so") for name in ("shift", "scale")])
    report = trtconv.build(BuildRequest(save(tmp_path, TWO), plugins=libraries, **asked))
    assert report.exit_code == 0 and report.proof.agrees and not report.proof.missing
    assert [each.file for each in report.plan.plugins] == ["libshift.so", "libscale.so"]


SCATTER = """<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
g (float[6,2] d, int32[5,1] i, float[5,2] u) => (float[6,2] y) { NODES }"""


class Scattering(OnGpu):
    """A GPU on which the first update of a place stays."""

    runs = 0

    def run(self) -> dict[str, Any]:
        Scattering.runs += 1
        data, indices, updates = (self._values[name] for name in ("d", "r", "u"))
        found = data.copy()
        found[indices[::-1, 0]] = updates[::-1]
        return {"y": found}


@pytest.mark.parametrize(
    ("made", "is_open"), [("Identity (i)", False), ("Sub (i, i)", True)], ids=["from outside", "all the same"]
)
def test_a_scatter_is_judged_where_one_result_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str, is_open: bool
) -> None:
    runtime = FakeRuntime(network("ScatterND"), family="tensorrt", version="8.6.0", capabilities=TENSORRT_8)
    monkeypatch.setattr(runtime, "engines", Scattering, raising=False)
    monkeypatch.setattr(Scattering, "runs", 0)
    model = OnnxModel.load(save(tmp_path, SCATTER.replace("NODES", f"r = {made}  y = TRT.ScatterND (d, r, u)")))
    trial = try_plugins(model, runtime, ())
    assert not trial.findings
    assert [each.reason for each in trial.missing] == (
        ["its indices name a place twice, and which of the updates stays there is left open"] if is_open else []
    )
    assert Scattering.runs == (0 if is_open else 1)


def test_another_plugin_than_the_node_s_is_not_proven(build: Any) -> None:
    report = build(SHIFT, plugin="Shifty")
    assert report.proof.agrees is None and report.proof.unproven[0].kind == "PLUGIN_V2"


def test_a_plugin_that_calls_itself_otherwise_than_its_creator_has_the_reference_of_the_node() -> None:
    model = OnnxModel(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
            g (float[1,9,4] b, float[1,9,2] s) => (int32[n,3] y) { y = TRT.EfficientNMS_ONNX_TRT (b, s) }"""
        ),
        Path("m.onnx"),
    )
    meaning = meaning_of(model, "y", PluginIdentity("EfficientNMS_TRT", "1", ""))
    assert isinstance(meaning, PluginMeaning)
    assert meaning.compute is find("TRT", "EfficientNMS_ONNX_TRT")
    assert isinstance(meaning_of(model, "y", PluginIdentity("BatchedNMS_TRT", "1", "")), str)


def test_the_plan_names_code_by_its_hash(build: Any) -> None:
    plan = build(SHIFT).to_json()["plan"]
    assert plan["plugins"] == [{"file": "libshift.so", "sha256": hashlib.sha256(b"a library").hexdigest()}]
    assert plan["references"] == [{"file": "shift.py", "sha256": hashlib.sha256(SHIFT.encode()).hexdigest()}]


SPY = 'import pathlib\npathlib.Path({0!r}).write_text("was run")\n' + SHIFT


@pytest.mark.parametrize(
    "setting",
    [
        'references = ["spy.py"]',
        'references = ["../spy.py", "spy.py"]',
        'plugins = ["libspy.so"]',
        'plugins-to-serialize = ["libspy.so"]',
        'plugins = ["/proc/self/exe"]',
        'references = ["spy.py"]\nplugins = ["libspy.so"]',
    ],
)
def test_nothing_that_a_hostile_configuration_names_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    trace = tmp_path / "trace"
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder in (tmp_path, inner):
        write(folder, SPY.format(str(trace)), "spy.py")
        write(folder, "\x7fELF", "libspy.so")
    model = save(inner)
    write(inner, f'[[models]]\npath = "m.onnx"\n{setting}\n', "trtconv.toml")
    (entry,) = config.load(inner / "trtconv.toml").entries
    monkeypatch.setattr(tensorrt, "load", lambda target: pytest.fail("TensorRT was asked for"))
    assert entry.build is not None
    with pytest.raises(InputError, match="names code") as refused:
        trtconv.build(entry.build)
    assert "--agree" in refused.value.hint
    if "serialize" not in setting:
        with pytest.raises(InputError, match="names code"):
            trtconv.check(entry.check)
    assert not trace.exists() and model.exists()
    # Agreement to another file is none.
    with pytest.raises(InputError, match="names code"):
        trtconv.build(dataclasses.replace(entry.build, agree=("0" * 64,)))


def test_references_tell_types_and_shapes(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
    g (float[n,9,4] b, float[n,9,3] s) => (count, other) {
      count, boxes, scores, kinds = TRT.EfficientNMS_TRT
        <score_threshold=0.1, iou_threshold=0.5, max_output_boxes=5, background_class=-1, score_activation=0,
         box_coding=0> (b, s)
      other = Abs(scores)
    }"""
    model = OnnxModel.load(save(tmp_path, text))
    write_types(model)
    kinds = [value.type.tensor_type.elem_type for value in model.proto.graph.output]
    assert kinds == [onnx.TensorProto.INT32, onnx.TensorProto.FLOAT]
    assert model.main.shape("boxes") == (None, 5, 4) and model.main.shape("other") == (None, 5)


class Registry:
    """TensorRT's registry: takes libraries, and says which."""

    def __init__(self, takes: bool) -> None:
        self.loaded: list[str] = []
        self._takes = takes
        field = SimpleNamespace(name="by")
        self.plugin_creator_list = [
            SimpleNamespace(name="Shift", plugin_version="1", plugin_namespace="", field_names=[field])
        ]

    def load_library(self, path: str) -> object | None:
        self.loaded.append(path)
        return object() if self._takes else None


class FakeLog:
    """A logger that hears nothing."""

    logger = None

    def session(self) -> FakeLog:
        return self

    def __enter__(self) -> Any:
        return SimpleNamespace(records=[])

    def __exit__(self, *_: object) -> None:
        pass


def module(registry: Registry, *, full: bool = True) -> Any:
    names = {"add_plugin_v2": None} if full else {}
    return SimpleNamespace(
        __version__="8.6.0",
        INetworkDefinition=SimpleNamespace(**names),
        get_plugin_registry=lambda: registry,
        init_libnvinfer_plugins=lambda *_: True,
    )


@pytest.fixture
def any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets TensorRT be asked about files that are no libraries."""
    monkeypatch.setattr(plugins, "broken", lambda path: "")


@pytest.mark.usefixtures("any_library")
def test_several_libraries_are_loaded_each_once(tmp_path: Path) -> None:
    one, two = (agreed(write(tmp_path, name, f"lib{name}.so")) for name in ("one", "two"))
    files = CodeFile.named([one.path, two.path, one.path])
    asked = BuildRequest(tmp_path / "m.onnx", plugins=files, serialized_plugins=files[1:])
    registry = Registry(takes=True)
    with foreign.using(ForeignCode.of(asked)):
        plugins.prepare("tensorrt", module(registry), FakeLog())  # type: ignore[arg-type]
    assert registry.loaded == [str(one.path), str(two.path)]


@pytest.mark.usefixtures("any_library")
def test_a_library_is_loaded_once_and_only_as_it_was_agreed_to(tmp_path: Path) -> None:
    library = agreed(write(tmp_path, "a library of mine", "libmine.so"))
    registry = Registry(takes=True)
    with foreign.using(ForeignCode(plugins=(library,))):
        for _ in range(2):
            plugins.prepare("tensorrt", module(registry), FakeLog())  # type: ignore[arg-type]
        assert registry.loaded == [str(library.path)]
    library.path.write_text("another one")
    changed = dataclasses.replace(library, sha256="0" * 64)
    with foreign.using(ForeignCode(plugins=(changed,))), pytest.raises(InputError, match="changed"):
        plugins.prepare("tensorrt", module(registry), FakeLog())  # type: ignore[arg-type]
    assert [each.name for each in plugins.creators(module(registry))] == ["Shift"]
    assert next(plugins.creators(module(registry))).fields == ("by",)


def test_fields_are_not_asked_of_plugins_that_have_none() -> None:
    registry = Registry(takes=True)

    class Internal:
        name, plugin_version, plugin_namespace = "CaskConvShaderWeightsTransformerPlugin", "1", ""

        @property
        def field_names(self) -> None:
            pytest.fail("TensorRT 8.6 writes an error")

    registry.plugin_creator_list.append(Internal())  # type: ignore[arg-type]
    assert [each.fields for each in plugins.creators(module(registry))] == [(), ("by",)]


@pytest.mark.usefixtures("any_library")
def test_what_does_not_load_is_told(tmp_path: Path) -> None:
    code = ForeignCode(plugins=(agreed(write(tmp_path, "no library", "libnone.so")),))
    with foreign.using(code), pytest.raises(InputError, match=r"libnone\.so does not load: it exports neither"):
        plugins.prepare("tensorrt", module(Registry(takes=False)), FakeLog())  # type: ignore[arg-type]
    with foreign.using(code), pytest.raises(EnvironmentMissing, match="no plugins"):
        plugins.prepare("rtx", module(Registry(takes=True), full=False), FakeLog())  # type: ignore[arg-type]


def findings(folder: Path, node: str, target: str) -> list[str]:
    text = f"""<ir_version: 8, opset_import: ["": 17, "TRT": 1]>
    g (float[1,9,4] b, float[1,9,3] s) => (int32[1,1] n, float[1,5,4] y, float[1,5] v, int32[1,5] k)
    {{ n, y, v, k = {node} (b, s) }}"""
    request = CheckRequest(save(folder, text), target=Target.parse(target), prove="none")
    return [each.message for each in trtconv.check(request).findings if each.code == "TC005"]


REQUIRED = "score_threshold=0.1, iou_threshold=0.5, max_output_boxes=5, background_class=-1, score_activation=0"


@pytest.mark.parametrize(
    ("node", "target", "said"),
    [
        (f"TRT.EfficientNMS_TRT <{REQUIRED}, box_coding=0>", "tensorrt-10.13", ""),
        (f"EfficientNMS_TRT <{REQUIRED}, box_coding=0, plugin_version='1'>".replace("'", '"'), "tensorrt-8.6", ""),
        (f"TRT.EfficientNMS_TRT <{REQUIRED}>", "tensorrt-10.13", "needs the attribute box_coding"),
        (f"TRT.EfficientNMS_TRT <{REQUIRED}, box_coding=0, iou=1>", "tensorrt-8.6", "has no field iou"),
        ("TRT.EfficientNMS_ONNX_TRT", "tensorrt-11", "has no plugin"),
        (f"TRT.EfficientNMS_TRT <{REQUIRED}, box_coding=0>", "rtx-1.7", "takes no plugins"),
        ("TRT.ScatterND", "tensorrt-8.6", ""),
        ("TRT.Swirl", "tensorrt-10", "neither an operator of ONNX nor a plugin"),
        ("TRT.ROIAlign_TRT", "tensorrt-10", "takes 3 inputs, and is given 2"),
    ],
)
def test_check_knows_the_standard_plugins_without_any(tmp_path: Path, node: str, target: str, said: str) -> None:
    found = findings(tmp_path, node, target)
    assert (not found) if not said else (len(found) == 1 and said in found[0])
