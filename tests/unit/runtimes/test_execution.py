"""Engines run through the adapter, on a GPU that is none."""

from __future__ import annotations

import sys
import types

import numpy as np
import onnx
import pytest

from support.gpu import FakeDriver, engine_bytes, fake_tensorrt
from support.paths import SURFACES
from trtconv.core.dims import InputRange
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.runtimes.tensorrt import device
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Add (x, x) }'
)
PROFILES = [
    {"x": InputRange((1, 4), (2, 4), (3, 4))},
    {"x": InputRange((3, 4), (8, 4), (16, 4))},
]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver()
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(device, "gpu_name", lambda: "Fake GPU")
    return fake


@pytest.fixture(params=sorted(path.stem for path in SURFACES.glob("*.json")))
def engines(request: pytest.FixtureRequest, driver: FakeDriver) -> Engines:
    trt = fake_tensorrt(driver, request.param)
    return Engines("rtx" if "rtx" in request.param else "tensorrt", trt, Log(trt))


def test_an_engine_is_described_and_runs(engines: Engines, driver: FakeDriver) -> None:
    engine = engines.load(engine_bytes(MODEL, PROFILES))
    assert [(t.name, t.kind, t.dtype, t.shape) for t in engine.tensors] == [
        ("x", "input", "float32", (-1, 4)),
        ("y", "output", "float32", (-1, 4)),
    ]
    assert engine.profiles == tuple(PROFILES)
    assert (engine.layer_count, engine.memory_bytes) == (3, 1000)
    told = hasattr(engine.handle, "get_device_memory_size_for_profile_v2")
    assert engine.profile_memory_bytes == ((500, 1000) if told else ())
    assert engine.information() == {"Layers": ["layer"]}
    execution = engine.open(1)
    for size in (3, 16):
        x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
        execution.feed({"x": x})
        assert np.array_equal(execution.run()["y"], x + x)
    execution.close()
    assert driver.used == 0


def test_other_formats_are_packed_and_unpacked(engines: Engines, driver: FakeDriver) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float16[n, 3, 2, 2] x) => (float16[n, 3, 2, 2] y) { y = Neg (x) }'
    )
    profiles = [{"x": InputRange((1, 3, 2, 2), (2, 3, 2, 2), (3, 3, 2, 2))}]
    made = engine_bytes(onnx.parser.parse_model(text), profiles, formats={"x": "HWC8", "y": "CHW32"})
    engine = engines.load(made)
    assert [(t.name, t.format) for t in engine.tensors] == [("x", "hwc8"), ("y", "chw32")]
    execution = engine.open()
    x = np.arange(24, dtype=np.float16).reshape(2, 3, 2, 2)
    execution.feed({"x": x})
    assert np.array_equal(execution.run()["y"], -x)
    execution.close()
    assert driver.used == 0


def test_tensors_inside_are_shown_run_by_run(engines: Engines, driver: FakeDriver) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) {
        a = Relu (x)  b = Neg (a)  y = Add (a, b) }"""
    engine = engines.load(engine_bytes(onnx.parser.parse_model(text), PROFILES, debug=("a", "b")))
    execution = engine.open(0)
    shown = execution.watch(lambda name: name == "b")
    for size in (2, 3):
        x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
        execution.feed({"x": x})
        assert not execution.run()["y"].any()
        if hasattr(engine.handle.trt, "IDebugListener"):
            assert list(shown) == ["b"]
            assert np.array_equal(shown["b"], -np.maximum(x, 0))
        else:
            assert not shown
    execution.close()
    assert driver.used == 0


def test_tensors_that_a_run_does_not_show_are_not_those_of_the_run_before(engines: Engines) -> None:
    """As in a branch that is not taken."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { a = Relu (x) y = Neg (a) }'
    engine = engines.load(engine_bytes(onnx.parser.parse_model(text), PROFILES, debug=("a",)))
    if not hasattr(engine.handle.trt, "IDebugListener"):
        pytest.skip("this TensorRT shows none")
    execution = engine.open(0)
    shown = execution.watch(lambda name: True)
    execution.feed({"x": np.ones((2, 4), np.float32)})
    execution.run()
    assert list(shown) == ["a"]
    execution._context.set_all_tensors_debug_state(False)
    execution.run()
    assert not shown


def test_what_goes_wrong_while_tensors_are_shown_is_told(engines: Engines) -> None:
    def wanted(name: str) -> bool:
        raise EnvironmentMissing(f"no room for {name}")

    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { a = Relu (x) y = Neg (a) }'
    engine = engines.load(engine_bytes(onnx.parser.parse_model(text), PROFILES, debug=("a",)))
    execution = engine.open(0)
    execution.watch(wanted)
    execution.feed({"x": np.ones((2, 4), np.float32)})
    if not hasattr(engine.handle.trt, "IDebugListener"):
        assert (execution.run()["y"] == -1).all()
        return
    with pytest.raises(EnvironmentMissing, match="no room for a"):
        execution.run()


def test_it_is_timed_in_every_way(engines: Engines, driver: FakeDriver) -> None:
    execution = engines.load(engine_bytes(MODEL, PROFILES, us=250.0)).open(0)
    execution.feed({"x": np.ones((2, 4), np.float32)})
    for graph in (True, False):
        for copies in (True, False):
            launch = execution.launcher(graph=graph, copies=copies)
            assert launch is not None
            assert execution.microseconds(launch) == pytest.approx(250)
            assert execution.microseconds(launch, 4) == pytest.approx(1000)
    assert execution.layer_times(2) == [("layer", pytest.approx(250))]
    execution.close()
    assert driver.used == 0


def test_an_engine_that_cannot_be_captured_has_no_graph(engines: Engines, driver: FakeDriver) -> None:
    driver.captures = False
    execution = engines.load(engine_bytes(MODEL, PROFILES)).open()
    execution.feed({"x": np.ones((2, 4), np.float32)})
    assert execution.launcher(graph=True, copies=False) is None
    assert execution.launcher(graph=False, copies=False) is not None


def test_shapes_outside_the_profile_are_refused(engines: Engines) -> None:
    execution = engines.load(engine_bytes(MODEL, PROFILES)).open(0)
    with pytest.raises(EngineFailed, match="take the inputs"):
        execution.feed({"x": np.ones((4, 4), np.float32)})


def test_types_are_converted_within_their_kind(engines: Engines) -> None:
    execution = engines.load(engine_bytes(MODEL, PROFILES)).open(0)
    execution.feed({"x": np.ones((2, 4), np.float64)})
    assert execution.run()["y"].dtype == np.float32
    with pytest.raises(InputError, match="float32"):
        execution.feed({"x": np.ones((2, 4), np.int64)})
    with pytest.raises(InputError, match="no values"):
        execution.feed({})


def test_bytes_that_are_no_engine(engines: Engines) -> None:
    with pytest.raises(EngineFailed, match="Version tag does not match") as caught:
        engines.load(b"something else")
    assert "Build it again" in caught.value.hint


def test_too_little_memory(engines: Engines, driver: FakeDriver) -> None:
    engine = engines.load(engine_bytes(MODEL, PROFILES, memory=10_000))
    driver.total = 5_000
    with pytest.raises(EnvironmentMissing, match="10000 bytes of GPU memory, 5000 are free"):
        engine.open()
    driver.total = 20_000
    execution = engine.open()
    driver.total = 300
    with pytest.raises(EnvironmentMissing, match="memory does not suffice"):
        execution.feed({"x": np.ones((2, 4), np.float32)})


def test_an_error_of_cuda_fails_the_engine(engines: Engines, driver: FakeDriver) -> None:
    execution = engines.load(engine_bytes(MODEL, PROFILES)).open()
    execution.feed({"x": np.ones((2, 4), np.float32)})
    driver.failing["cuStreamSynchronize"] = 700
    with pytest.raises(EngineFailed, match="run the engine"):
        execution.run()


def test_no_gpu_and_no_binding(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    trt = fake_tensorrt(driver)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(EnvironmentMissing, match="CUDA binding") as caught:
        Engines("tensorrt", trt, Log(trt))
    assert "pip install cuda-bindings" in caught.value.hint
    monkeypatch.setattr(device, "gpu_name", lambda: None)
    with pytest.raises(EnvironmentMissing, match="no GPU"):
        Engines("tensorrt", trt, Log(trt))


def test_a_runtime_cache_is_kept_where_there_is_one(driver: FakeDriver) -> None:
    trt = fake_tensorrt(driver)
    execution = Engines("tensorrt", trt, Log(trt)).load(engine_bytes(MODEL, PROFILES)).open(0, b"")
    assert execution.runtime_cache() is None


def test_outputs_whose_shape_shows_when_they_are_there(engines: Engines, driver: FakeDriver) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (int64[2, k] y) { y = NonZero (x) }'
    )
    if not hasattr(engines._trt.DataType, "INT64"):
        model.graph.node.add(op_type="Cast", input=["y"], output=["z"]).attribute.append(
            onnx.helper.make_attribute("to", 6)
        )
        model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.INT32, [2, "k"]))
    name = model.graph.output[0].name
    execution = engines.load(engine_bytes(model, PROFILES, late=(name,))).open()
    for x in (np.eye(2, 4), np.ones((3, 4)), np.eye(1, 4)):
        execution.feed({"x": x.astype(np.float32)})
        assert np.array_equal(execution.run()[name], np.stack(np.nonzero(x)))
        assert execution.launcher(graph=True, copies=False) is None
    execution.close()
    assert driver.used == 0


def test_inputs_that_hold_a_shape_are_read_from_the_host(engines: Engines, driver: FakeDriver) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x, int32[2] s) => (float[p, q] y)
        { t = Cast <to = 7> (s)  y = Reshape (x, t) }"""
    )
    profile = {**PROFILES[0], "s": InputRange((2,), (2,), (2,))}
    execution = engines.load(engine_bytes(model, [profile], on_host=("s",))).open()
    execution.feed({"x": np.ones((2, 4), np.float32), "s": np.array([8, 1], np.int64)})
    assert execution.run()["y"].shape == (8, 1)


def test_a_runtime_that_can_tell_says_that_the_machine_is_the_reason(driver: FakeDriver) -> None:
    trt = fake_tensorrt(driver, "tensorrt-rtx-1.7.1")
    engines = Engines("rtx", trt, Log(trt))
    with pytest.raises(EnvironmentMissing, match=r"unsupported cc; it is for another GPU"):
        engines.load(b"FOREIGN:2")
    # Neither of the two that are about the engine.
    with pytest.raises(EngineFailed, match="Version tag"):
        engines.load(b"FOREIGN:32")


def test_code_for_the_host_is_allowed_only_where_it_is_asked_for(engines: Engines) -> None:
    engines.load(engine_bytes(MODEL, PROFILES))
    assert not engines._runtime.engine_host_code_allowed
    engines.load(engine_bytes(MODEL, PROFILES), host_code=True)
    assert engines._runtime.engine_host_code_allowed
