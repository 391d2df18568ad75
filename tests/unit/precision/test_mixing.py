"""The search of --precision auto: it is within the tolerance, and no slower than it has to be."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from support.onnx_models import parse
from trtconv.graph.arrays import Feeds
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.preparation import name_all
from trtconv.precision import Types
from trtconv.precision.apply import recast
from trtconv.precision.measure import survey
from trtconv.precision.mixing import EngineRun, Mix, Mixer, NodeTimes, NodeTypes, Ran, parts_of
from trtconv.precision.quantize.measure import Reference
from trtconv.precision.quantize.sessions import Probe

SAMPLES = [{"x": np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)} for seed in range(2)]


@pytest.fixture(autouse=True, scope="module")
def few_objects() -> Iterator[None]:
    """The search collects garbage after each measurement, which takes long beside all that earlier tests left."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def chain(layers: int = 6, body: str = "Tanh (m{0})", **weights: float) -> OnnxModel:
    """Returns MatMuls with something behind each."""
    lines, before = [], "x"
    for number in range(layers):
        lines.append(f"m{number} = MatMul ({before}, w{number})  t{number} = {body.format(number)}")
        before = f"t{number}"
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (float[4,64] y)
        {{ {" ".join(lines)}  y = Identity ({before}) }}"""
    proto = parse(text)
    random = np.random.default_rng(0)
    for number in range(layers):
        scale = weights.get(f"w{number}", 0.1)
        values = (scale * random.standard_normal((64, 64))).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(values, f"w{number}"))
    return OnnxModel(proto, Path("m.onnx"))


def found(
    model: OnnxModel,
    tolerance: float,
    *,
    bfloat: bool = True,
    fixed: dict[str, str] | None = None,
    timed: Callable[[str], NodeTimes] | None = None,
    ran: Ran | None = None,
) -> Mix:
    told: list[tuple[int, int]] = []
    name_all(model)
    mixer = Mixer(model, SAMPLES, Types(nodes=fixed or {}), by_flags=not bfloat, tell=lambda *count: told.append(count))
    silent = timed or (lambda _: NodeTimes(why="no GPU"))
    mix = mixer.search(tolerance, "the test", silent, ran or (lambda *_: EngineRun(why="no GPU")))
    assert [number for number, _ in told] == list(range(1, len(told) + 1))
    return mix


def error_of(model: OnnxModel, mix: Mix) -> float:
    """Measures a mix as it is pinned."""
    copy = model.copy()
    recast(copy, Types(mix.precision, mix.node_precisions), None, emulated=True)
    return Reference(model, SAMPLES).error(copy)


def test_the_mix_is_within_the_tolerance_and_the_looser_the_faster() -> None:
    times = []
    for tolerance in (1e-1, 6e-4, 5.5e-4, 4e-4):
        model = chain()
        mix = found(model, tolerance)
        assert mix.error <= tolerance
        assert mix.error == pytest.approx(error_of(model, mix), rel=1e-6)
        times.append(mix.time)
    assert times == sorted(times)
    assert times[0] == pytest.approx(0.5)
    assert 0.5 < times[1] < times[-1] < 1


def test_nothing_is_changed_where_nothing_fits() -> None:
    mix = found(chain(), 0.0)
    assert (mix.precision, mix.node_precisions, mix.error) == ("as-is", {}, 0.0)
    assert mix.time == pytest.approx(1)
    assert mix.error_of_all > 0
    assert {part.type for part in mix.parts} == {"fp32"}
    assert all(part.error is not None and part.error > 0 for part in mix.parts)


def test_the_part_that_costs_most_goes_back_to_float32() -> None:
    # Two large numbers, whose difference the rounding to float16 loses.
    model = chain(4, w2=40.0, body="Tanh (m{0})")
    mix = found(model, 1.5e-3)
    assert mix.error <= 1.5e-3 < mix.error_of_all
    worst = max(mix.parts, key=lambda part: part.error or 0.0)
    assert worst.type == "fp32"
    assert "MatMul_1" in worst.nodes
    assert any(part.type == "fp16" for part in mix.parts)


def test_what_does_not_fit_float16_is_in_bfloat16_or_float32() -> None:
    for bfloat, kind in ((True, "bf16"), (False, "fp32")):
        model = chain(3, body="Relu (m{0})", w0=1e5, w1=1e-6)
        mix = found(model, 2e-2, bfloat=bfloat)
        assert mix.error <= 2e-2
        assert mix.node_precisions["MatMul"] == kind
        assert "MatMul_1" not in mix.node_precisions or mix.node_precisions["MatMul_1"] == kind
        assert error_of(model, mix) <= 2e-2


def test_what_a_gpu_says_counts_for_more_than_the_estimate() -> None:
    """Of layers that are alike those go back to float32 that are no faster in 16 bits."""
    names = ["MatMul", *(f"MatMul_{number}" for number in range(1, 6))]
    gains = dict(zip(names, (1.0, 9.0, 1.0, 9.0, 1.0, 9.0), strict=True))
    asked: list[str] = []

    def timed(precision: str) -> NodeTimes:
        asked.append(precision)
        return NodeTimes({name: (10.0, 10.0 - gain) for name, gain in gains.items()}, "a GPU")

    def lost(mix: Mix) -> float:
        return sum(gains[part.nodes[0]] for part in mix.parts if part.type == "fp32")

    mix = found(chain(), 5.5e-4, timed=timed)
    assert (mix.timed_on, mix.untimed, asked) == ("a GPU", "", ["fp16"])
    assert mix.error <= 5.5e-4
    assert lost(mix) < lost(found(chain(), 5.5e-4))
    assert mix.time == pytest.approx(1 - (sum(gains.values()) - lost(mix)) / 60)
    assert found(chain(), 1e-1, timed=timed).timed_on is None
    assert asked == ["fp16"]


class Gpu:
    """Runs the mix as the emulation does, with that many times its error.

    Args:
        model: The model as it is.
        factor: The engine's error over that of the emulation.
        floor: The error of float32, as TF32 makes it.
    """

    def __init__(self, model: OnnxModel, factor: float, floor: float = 0.0) -> None:
        self._model, self._factor, self._floor = model, factor, floor
        self.ran: list[tuple[str, int]] = []

    def __call__(self, model: OnnxModel, precision: str, types: NodeTypes) -> EngineRun:
        self.ran.append((precision, len(types)))
        copy = self._model.copy()
        recast(copy, Types(precision, types), None, emulated=True)
        exact, off = (Probe(each, each.outputs) for each in (self._model, copy))
        return EngineRun([self._output(exact.run(feeds)["y"], off.run(feeds)["y"]) for feeds in SAMPLES])

    def _output(self, exact: Any, off: Any) -> Feeds:
        return {"y": exact * (1 + self._floor) + self._factor * (off - exact)}


@pytest.mark.parametrize(("factor", "engines"), [(0.9, 1), (1.05, 2), (1.2, 2)])
def test_an_engine_that_is_beyond_the_tolerance_is_not_taken(factor: float, engines: int) -> None:
    model = chain()
    gpu = Gpu(model, factor)
    mix = found(model, 6e-4, ran=gpu)
    assert (len(gpu.ran), mix.tolerance, mix.precision) == (engines, 6e-4, "fp16")
    assert mix.engine_error == pytest.approx(factor * mix.error, rel=1e-3)
    assert mix.engine_error <= 6e-4
    assert 0.5 < mix.time < 1


def test_all_in_16_bits_is_run_too() -> None:
    """Where the emulation is within the tolerance and the engine is not, parts go back to float32."""
    model = chain()
    gpu = Gpu(model, 2.0)
    mix = found(model, 1e-3, ran=gpu)
    assert mix.error_of_all < 1e-3
    assert gpu.ran[0] == ("fp16", 0)
    assert mix.node_precisions
    assert mix.engine_error is not None
    assert mix.engine_error <= 1e-3


def test_float32_is_left_where_no_engine_is_within_the_tolerance() -> None:
    model = chain()
    gpu = Gpu(model, 1.0, floor=2e-3)
    mix = found(model, 1.95e-3, ran=gpu)
    assert (mix.precision, mix.node_precisions, mix.error) == ("as-is", {}, 0.0)
    assert mix.engine_error == pytest.approx(2e-3, rel=1e-3)
    assert [precision for precision, _ in gpu.ran] == ["fp16", "fp16", "fp16", "as-is"]


def test_values_that_are_not_finite_are_beyond_every_tolerance() -> None:
    model = chain()
    mix = found(model, 1.0, ran=lambda *_: EngineRun([{"y": np.full((4, 64), np.nan, np.float32)}] * 2))
    assert (mix.precision, mix.engine_error) == ("as-is", np.inf)


@pytest.mark.parametrize(("tolerance", "factor"), [(2e-3, 3.0), (3e-3, 5.0)])
def test_no_mix_is_run_twice(tolerance: float, factor: float) -> None:
    """What the emulation says may be far below the tolerance, where the engine is beyond it."""
    model = chain()
    gpu = Gpu(model, factor)
    mix = found(model, tolerance, ran=gpu)
    assert mix.error_of_all < tolerance / 2
    assert len(gpu.ran) == len(set(gpu.ran)) == 2
    assert (mix.precision, mix.engine_error is not None and mix.engine_error <= tolerance) == ("fp16", True)


@pytest.mark.parametrize("tolerance", [0.0, 0.01])
def test_integers_that_only_the_engine_gets_wrong_leave_float32(tolerance: float) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (int64[4,1] y)
        { [m] a = Mul (x, x)  [best] y = ArgMax <axis = 1> (a) }"""
    model = OnnxModel(parse(text), Path("m.onnx"))
    right = [{"y": np.argmax(feeds["x"] ** 2, axis=1, keepdims=True)} for feeds in SAMPLES]
    asked: list[str] = []

    def ran(_: OnnxModel, precision: str, types: NodeTypes) -> EngineRun:
        asked.append(precision)
        return EngineRun([{"y": each["y"] + (precision != "as-is")} for each in right])

    mix = found(model, tolerance, ran=ran)
    assert (asked, mix.precision, mix.engine_error) == (["fp16", "as-is"], "as-is", 0.0)


def test_types_that_are_given_stay() -> None:
    mix = found(chain(), 1e-1, fixed={"MatMul_1": "fp32"})
    assert mix.node_precisions == {"MatMul_1": "fp32"}
    assert [part.type for part in mix.parts if "MatMul_1" in part.nodes] == ["mixed"]


def test_types_that_are_given_stay_where_no_mix_suffices() -> None:
    """They have an error of their own then, which is told."""
    for given, kinds in (({"MatMul_1": "fp16"}, {"fp32", "mixed"}), ({"MatMul_1": "fp32"}, {"fp32"})):
        model = chain()
        mix = found(model, 0.0, fixed=given)
        assert (mix.precision, mix.node_precisions) == ("as-is", given)
        assert {part.type for part in mix.parts} == kinds
        assert mix.error == pytest.approx(error_of(model, mix), rel=1e-6)
        assert (mix.error > 0) == ("fp16" in given.values())


def test_many_layers_are_weighed_together() -> None:
    model = chain(40)
    mix = found(model, 1.0)
    assert len(mix.parts) == 24
    assert sum(part.time for part in mix.parts) == pytest.approx(1)
    assert len([name for part in mix.parts for name in part.nodes]) == 81


def test_time_goes_by_operations_and_bytes() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1,64,32,32] x) => (float[1,64,64,64] y)
        { a = ConvTranspose <strides=[2,2], pads=[1,1,1,1]> (x, v)  y = Conv <pads=[1,1,1,1]> (a, w) }"""
    proto = parse(text)
    for name, kernel in (("v", 4), ("w", 3)):
        values = np.ones((64, 64, kernel, kernel), np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(values, name))
    model = OnnxModel(proto, Path("m.onnx"))
    ranges = survey(model, [{"x": np.ones((1, 64, 32, 32), np.float32)}])
    small, large = 64 * 32 * 32, 64 * 64 * 64
    assert ranges.elements == {"x": small, "a": large, "y": large}
    # The first moves more bytes than it computes, the second the other way round.
    moved, computed = 4 * (small + large + 64 * 64 * 16), 2 * large * 64 * 9 / 100
    shares = [part.time for part in parts_of(model, ranges)]
    assert shares == pytest.approx([moved / (moved + computed), computed / (moved + computed)])


def test_a_network_that_is_quantised_throughout_stays_in_int8() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4,64] x) => (float[4,64] y)
        <float s = {0.1}, int8 z = {0}>
        { q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }"""
    mix = found(OnnxModel(parse(text), Path("m.onnx")), 0.0)
    assert (mix.precision, mix.node_precisions, mix.error, mix.parts) == ("int8", {}, 0.0, ())
