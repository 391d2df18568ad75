"""A whole network beside its model: where they part is told, and what is off by rounding alone is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from support.in_process import InProcess
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.proof import prove, rerun, whole
from trtconv.runtimes.proof.meaning import Meaning
from trtconv.runtimes.proof.reference import Expected, Wanted
from trtconv.runtimes.proof.result import ProofResult
from trtconv.runtimes.proof.whole import Size
from trtconv.runtimes.proof.whole_run import WholeRun
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

Layer = tuple[str, str, str, Mapping[str, Any]]
CHAIN = "(float[n,4] x) => (float[n,4] y) { [first] a = Neg (x)  [second] b = Abs (a)  [third] y = Neg (b) }"
FIRST: Layer = ("x", "UNARY", "a", {"op": "NEG"})
SECOND: Layer = ("a", "UNARY", "b", {"op": "ABS"})
THIRD: Layer = ("b", "UNARY", "y", {"op": "NEG"})
SIZES = (Size("opt", {"x": (2, 4)}), Size("max", {"x": (5, 4)}))


def model_of(text: str, path: Path) -> OnnxModel:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 19]> g {text}')
    return OnnxModel(onnx.shape_inference.infer_shapes(proto), path)


@pytest.fixture
def proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProofResult]:
    """Returns what proves a network of layers beside a model, which lies in a file."""
    for module in (prove, rerun):
        monkeypatch.setattr(module, "Process", InProcess)

    def proves(
        *layers: Layer,
        text: str = CHAIN,
        given: str = "",
        inputs: str = "x",
        sizes: tuple[Size, ...] = SIZES,
        error: float = 1e-3,
        dtypes: Mapping[str, str] | None = None,
    ) -> ProofResult:
        model = model_of(text, tmp_path / "m.onnx")
        onnx.save(model.proto, model.path)
        passed = model_of(given, model.path) if given else model
        names = list(
            dict.fromkeys([*inputs.split(), *(n for layer in layers for n in (layer[0] + " " + layer[2]).split())])
        )
        number = {name: index for index, name in enumerate(names)}
        read = tuple(
            ReadLayer(i, f"l{i}", kind, tuple(number[n] for n in reads.split()), (number[makes],), values, makes)
            for i, (reads, kind, makes, values) in enumerate(layers)
        )
        tensors = tuple(ReadTensor(i, name, (dtypes or {}).get(name, "float32"), None) for name, i in number.items())
        outputs = tuple(number[name] for name in model.outputs if name in number)
        network = ReadNetwork(tensors, read, tuple(map(number.__getitem__, inputs.split())), outputs)
        meaning = Meaning(
            path=str(model.path),
            original=None,
            serialize=passed.serialize,
            makers=lambda: {name: passed.main.columns.names[i] for name, i in passed.main.producers.items()},
            parsed=passed,
            edited=None,
            tolerance=TOLERANCES["float32"],
            megabytes=1e5,
            batch=1,
            inputs=model.inputs,
            rewritten_error=error,
        )
        run = WholeRun(network, meaning, sizes, 60.0, 3)
        try:
            return run.finish(60.0)
        finally:
            run.close()

    return proves


def test_what_agrees_at_each_size(proven: Callable[..., ProofResult]) -> None:
    proof = proven(FIRST, SECOND, THIRD)
    assert (proof.agrees, proof.sizes, proof.layers, proof.error, proof.why) == (True, 2, 3, 0, "")
    assert [(each.size, each.shapes) for each in proof.compared] == [(size.name, size.shapes) for size in SIZES]


@pytest.mark.parametrize(
    ("at", "tensor", "node"),
    [(0, "a", "first"), (1, "b", "second"), (2, "y", "third")],
    ids=["first", "second", "third"],
)
def test_the_first_layer_that_differs_is_found(
    proven: Callable[..., ProofResult], at: int, tensor: str, node: str
) -> None:
    layers = [FIRST, SECOND, THIRD]
    reads, kind, makes, _ = layers[at]
    layers[at] = (reads, kind, makes, {"op": "SQRT" if at == 2 else "FLOOR"})
    proof = proven(*layers)
    assert (proof.agrees, proof.sizes) == (False, 1) and proof.divergence is not None
    found = proof.divergence
    assert (found.tensor, found.node, found.layer, found.kind) == (tensor, node, f"l{at}", "UNARY")
    assert found.shapes == {"x": [2, 4]} and not found.by_passes


def test_a_layer_that_is_not_known_is_gone_around(proven: Callable[..., ProofResult]) -> None:
    strange: Layer = ("a", "STRANGE", "b", {})
    proof = proven(FIRST, strange, THIRD)
    assert (proof.agrees, proof.sizes, proof.layers) == (True, 2, 2)
    assert [(layer.layer, layer.kind) for layer in proof.unproven] == [("l1", "STRANGE")]
    wrong = proven(FIRST, strange, (*THIRD[:3], {"op": "ABS"}))
    assert wrong.divergence is not None and wrong.divergence.tensor == "y"
    # Inside the network alone there is nothing to go on from.
    nothing = proven(("x", "STRANGE", "y", {}))
    assert (nothing.agrees, nothing.sizes) == (None, 0) and nothing.why


def test_a_tensor_inside_that_became_an_input_is_told(proven: Callable[..., ProofResult]) -> None:
    proof = proven(THIRD, inputs="x b")
    assert proof.agrees is False and proof.divergence is not None
    assert (proof.divergence.tensor, proof.divergence.kind) == ("b", "INPUT")


STEPS = """(float[2,4] x) => (float[2,4] y) <float half = {0.5}, float tenth = {0.1}> {
    a = Mul (x, tenth)  b = Floor (a)  y = Mul (b, half) }"""


def constant(value: float, name: str, rank: int = 2) -> Layer:
    return "", "CONSTANT", name, {"weights": np.array([value], np.float32), "shape": (1,) * rank}


def steps(tenth: float) -> tuple[Layer, ...]:
    """Returns the layers of `STEPS`, with another number for its tenth."""
    return (
        constant(tenth, "t"),
        constant(0.5, "h"),
        ("x t", "ELEMENTWISE", "a", {"op": "PROD"}),
        ("a", "UNARY", "b", {"op": "FLOOR"}),
        ("b h", "ELEMENTWISE", "y", {"op": "PROD"}),
    )


@pytest.mark.parametrize(("tenth", "agrees"), [(0.1, True), (0.1 * (1 + 1e-6), True), (0.2, False)])
def test_rounding_that_falls_to_the_other_side_of_a_step_is_no_difference(
    proven: Callable[..., ProofResult], tenth: float, agrees: bool
) -> None:
    layers = steps(tenth)
    x = np.full((2, 4), 10.0, np.float32)
    x[0, 0] = np.float32(np.nextafter(np.float32(10), np.float32(0)))
    proof = proven(*layers, text=STEPS, sizes=(Size("opt", {"x": (2, 4)}, {"x": x}),))
    assert proof.agrees is agrees
    if not agrees:
        assert proof.divergence is not None and proof.divergence.tensor == "a"


@pytest.mark.parametrize(("scale", "agrees"), [("1.0001", True), ("1.01", False)])
def test_what_the_passes_changed_is_told_apart_from_what_was_misread(
    proven: Callable[..., ProofResult], scale: str, agrees: bool
) -> None:
    given = CHAIN.replace("{ [first]", f"<float s = {{{scale}}}> {{ [first]").replace(
        "y = Neg (b)", "c = Neg (b)  y = Mul (c, s)"
    )
    layers = (FIRST, SECOND, ("b", "UNARY", "c", {"op": "NEG"}), constant(float(scale), "s"))
    proof = proven(*layers, ("c s", "ELEMENTWISE", "y", {"op": "PROD"}), given=given)
    assert proof.agrees is agrees
    if agrees:
        assert proof.error == pytest.approx(1e-4, rel=0.1)
        assert proof.worst is not None and proof.worst.output == "y"
    else:
        assert proof.divergence is not None
        assert (proof.divergence.tensor, proof.divergence.by_passes, proof.divergence.layer) == ("y", True, "")


def test_passes_are_not_judged_where_numbers_are_drawn(proven: Callable[..., ProofResult]) -> None:
    given = CHAIN.replace("{ [first]", "<float s = {3}> { [first]").replace(
        "y = Neg (b)", "r = RandomNormalLike (x)  y = Mul (b, s)"
    )
    layers = (FIRST, SECOND, constant(3, "s"), ("b s", "ELEMENTWISE", "y", {"op": "PROD"}))
    assert proven(*layers, given=given).agrees is True


def test_passes_are_not_judged_by_runs_on_other_inputs(proven: Callable[..., ProofResult]) -> None:
    given = "(float16[n,4] x) => (float[n,4] y) <float s = {3}> { h = Cast <to = 1> (x)  b = Abs (h)  y = Mul (b, s) }"
    layers = (("x", "UNARY", "b", {"op": "ABS"}), constant(3, "s"), ("b s", "ELEMENTWISE", "y", {"op": "PROD"}))
    proof = proven(*layers, given=given)
    assert proof.divergence is None or not proof.divergence.by_passes


def test_an_input_that_the_passes_left_out_is_no_other_input(proven: Callable[..., ProofResult]) -> None:
    text = CHAIN.replace("(float[n,4] x)", "(float[n,4] x, float[n,4] z)")
    sizes = (Size("opt", {"x": (2, 4), "z": (2, 4)}),)
    assert proven(FIRST, SECOND, THIRD, text=text, given=CHAIN, sizes=sizes).agrees is True


def test_what_cannot_be_looked_for_is_found_at_the_output_alone(proven: Callable[..., ProofResult]) -> None:
    """The model that the parser was given does not run here, so that no tensor inside is known."""
    given = "(float[n,4] x) => (float[n,4] y) <int64[1] bad = {7}> { [last] y = Reshape (x, bad) }"
    lost = proven(FIRST, SECOND, (*THIRD[:3], {"op": "ABS"}), given=given)
    assert lost.agrees is False and lost.divergence is not None and lost.why
    assert (lost.divergence.tensor, lost.divergence.node, lost.divergence.layer) == ("y", "last", "")
    nothing = proven(FIRST, SECOND, ("b", "STRANGE", "y", {}), given=given)
    assert (nothing.agrees, nothing.sizes, nothing.divergence) == (None, 0, None) and nothing.why


@pytest.mark.parametrize(("tenth", "agrees"), [(0.1 * (1 + 1e-6), True), (0.2, False)])
def test_what_takes_too_much_memory_at_once_is_run_in_groups(
    proven: Callable[..., ProofResult], monkeypatch: pytest.MonkeyPatch, tenth: float, agrees: bool
) -> None:
    """Without the tensors inside, a value that falls to the other side of a step would be a difference."""
    goals: list[tuple[str, ...]] = []

    def run_once(goal: Wanted, *others: Any) -> Expected:
        goals.append(tuple(goal.inner))
        return Expected(why="bad_alloc") if len(goal.inner) > 2 else once(goal, *others)

    once = rerun._run_once
    monkeypatch.setattr(rerun, "_run_once", run_once)
    monkeypatch.setattr(rerun, "_GROUP_SHARE", 2.5 * 4 / 1e11)
    layers = steps(tenth)
    x = np.full((2, 4), np.float32(np.nextafter(np.float32(10), np.float32(0))), np.float32)
    proof = proven(*layers, text=STEPS, sizes=(Size("opt", {"x": (2, 4)}, {"x": x}),))
    assert proof.agrees is agrees
    assert goals[1:] == [tuple(goals[0][at : at + 2]) for at in (0, 2, 4)] and len(goals[0]) == 6
    if not agrees:
        assert proof.divergence is not None and proof.divergence.tensor == "a"


def test_groups_of_tensors_take_a_part_of_the_memory_each() -> None:
    shapes = ((2, 4), (-1, 4), None, (1 << 20,), (3,))
    tensors = tuple(ReadTensor(i, "abcde"[i], "float32", shape) for i, shape in enumerate(shapes))
    network = ReadNetwork(tensors, (), (), ())
    # An eighth: 40 elements; the second is taken for one of the batch, or as wide as the widest input.
    assert rerun.groups_of(network, {"x": (8, 2)}, 40 * 8 * 4e-6) == (("a", "b"), ("c",), ("d",), ("e",))
    assert rerun.groups_of(network, {"x": (7, 9)}, 40 * 8 * 4e-6) == (("a", "b", "c"), ("d",), ("e",))
    many = ReadNetwork(tuple(ReadTensor(i, str(i), "float32", (1,)) for i in range(17)), (), (), ())
    assert len(rerun.groups_of(many, {}, 16e-6)) == 0


def test_a_model_that_does_not_run_says_why(proven: Callable[..., ProofResult]) -> None:
    text = "(float[n,4] x) => (float[n,4] y) <int64[1] bad = {7}> { y = Reshape (x, bad) }"
    proof = proven(("x", "SHUFFLE", "y", {}), text=text)
    assert (proof.agrees, proof.sizes) == (None, 0) and "Reshape" in proof.why


def test_integers_that_decide_sizes_are_tried_until_results_have_the_shape_that_is_stated(
    proven: Callable[..., ProofResult],
) -> None:
    text = "(float[2,4] x, int64[1] axis) => (float[2,1] y) { y = ReduceMax (x, axis) }"
    reduce: Layer = ("x", "REDUCE", "y", {"op": "MAX", "axes": 2, "keep_dims": True})
    sizes = (Size("opt", {"x": (2, 4), "axis": (1,)}),)
    for axes, agrees in ((2, True), (1, False)):
        layers = (("x", "REDUCE", "y", {**reduce[3], "axes": axes}),)
        proof = proven(*layers, text=text, inputs="x axis", sizes=sizes, dtypes={"axis": "int64"})
        assert proof.agrees is agrees


def test_a_group_is_run_until_the_model_takes_one(proven: Callable[..., ProofResult]) -> None:
    text = "(float[n,4] x) => (float[2,4] y) <int64[2] s = {2, 4}> { y = Reshape (x, s) }"
    layer: Layer = (
        "x",
        "SHUFFLE",
        "y",
        {"first_transpose": (0, 1), "second_transpose": (0, 1), "reshape_dims": (2, 4), "zero_is_placeholder": False},
    )
    sizes = tuple(Size(f"{n}", {"x": (n, 4)}, group="one") for n in (3, 2, 2))
    proof = proven(layer, text=text, sizes=sizes)
    assert (proof.agrees, proof.sizes) == (True, 1)
    assert [each.size for each in proof.compared] == ["2"]


def test_values_that_overflow_show_nothing(proven: Callable[..., ProofResult]) -> None:
    """Where the model is infinite, a network that makes NaN of it is neither right nor wrong."""
    text = "(float[1] x) => (float[1] y) <float z = {0}> { a = Exp (x)  y = Add (a, z) }"
    layers = (("x", "UNARY", "a", {"op": "EXP"}), constant(0, "z", 1), ("a z", "ELEMENTWISE", "y", {"op": "PROD"}))
    for x, agrees in ((100.0, None), (1.0, False)):
        size = Size("opt", {"x": (1,)}, {"x": np.array([x], np.float32)})
        proof = proven(*layers, text=text, sizes=(size,))
        assert proof.agrees is agrees, proof


def test_a_step_of_a_quantiser_is_no_change_by_passes() -> None:
    def returned(value: float) -> Any:
        return SimpleNamespace(feeds={}, tensors={"y": np.float32([1, value])})

    meaning: Any = SimpleNamespace(parsed=SimpleNamespace(has=lambda ops: False), steps=lambda: {"y": 0.5})
    errors = [whole._rewritten_error(meaning, returned(2), returned(value), False) for value in (2.5, 3)]
    assert errors == [(0.0, "y"), (0.5, "y")]
