"""What becomes of a piece: at which sizes it is run, when it is widened, and what is said where it is not shown."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.in_process import InProcess
from trtconv.core.documents.proof import Lack
from trtconv.core.errors import InputError
from trtconv.core.process import Lost, WorkerBug
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import pieces
from trtconv.runtimes.proof.cut import Seams
from trtconv.runtimes.proof.feeds import Shape
from trtconv.runtimes.proof.pieces import Pieces
from trtconv.runtimes.proof.result import PiecesResult
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

Layer = tuple[str, str, str, dict[str, Any]]
FLOATS = "(float[2,4] x) => (float[2,4] y)"


def layer(reads: str, kind: str, makes: str, **values: Any) -> Layer:
    return reads, kind, makes, values


def unary(reads: str, op: str, makes: str) -> Layer:
    return layer(reads, "UNARY", makes, op=op)


def prove(
    body: str,
    *layers: Layer,
    ends: str = FLOATS,
    sizes: Mapping[str, Shape] | None = None,
    shapes: Mapping[str, Shape] | None = None,
    dtypes: Mapping[str, str] | None = None,
    others: Sequence[Mapping[str, Shape]] = (),
    batch: int = 1,
    runner: InProcess | None = None,
    seconds: float = 60.0,
) -> PiecesResult:
    """Proves a network of layers, of floats of any size where nothing else is said, beside a model."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {ends} {{ {body} }}')
    model = OnnxModel(proto, Path("m.onnx"))
    given = {spec.name: tuple(n if isinstance(n, int) else -1 for n in spec.dims) for spec in model.inputs}
    names = list(dict.fromkeys([*given, *(name for made in layers for part in made[::2][:2] for name in part.split())]))
    known, types = {**given, **(shapes or {})}, dtypes or {}
    tensors = tuple(
        ReadTensor(index, name, types.get(name, "float32"), known.get(name)) for index, name in enumerate(names)
    )
    number = {tensor.name: tensor.index for tensor in tensors}
    read = tuple(
        ReadLayer(index, makes, kind, tuple(map(number.__getitem__, reads.split())), (number[makes],), values)
        for index, (reads, kind, makes, values) in enumerate(layers)
    )
    network = ReadNetwork(tensors, read, tuple(number[name] for name in given), (number["y"],))
    seams = Seams(network, model)
    made: Any = Pieces(
        network,
        model,
        seams,
        list(seams.pieces()),
        proto.SerializeToString(),
        sizes or given,
        batch,
        time.monotonic() + seconds,
        1e6,
        lambda: others,
    )
    result: PiecesResult = made.run(runner or InProcess())
    return result


def lacks(found: PiecesResult) -> list[tuple[Lack, str]]:
    return [(lack.what, lack.where) for lack in found.missing]


def differs(found: PiecesResult) -> str | None:
    return None if found.divergence is None else found.divergence.tensor


def test_pieces_are_counted_and_alike_ones_are_run_once() -> None:
    runner = InProcess()
    found = prove(
        "a = Neg (x)  b = Neg (a)  y = Abs (b)",
        unary("x", "NEG", "a"),
        unary("a", "NEG", "b"),
        unary("b", "ABS", "y"),
        runner=runner,
        shapes={"a": (2, 4), "b": (2, 4)},
    )
    assert (found.proven, found.of, found.missing, found.divergence) == (3, 3, (), None)
    assert [task.target for _, _, tasks, _ in runner.arguments for task in tasks] == ["a", "y"]


def test_rows_in_another_order_differ() -> None:
    """But those of boxes."""
    turned = {"start": (1, 0), "shape": (2, 4), "stride": (-1, 1), "mode": "STRICT_BOUNDS", "axes": None}
    assert differs(prove("y = Identity (x)", layer("x", "SLICE", "y", **turned))) == "y"


def test_the_first_piece_that_differs_is_told() -> None:
    found = prove("a = Neg (x)  y = Abs (a)", unary("x", "NEG", "a"), unary("a", "NEG", "y"))
    assert differs(found) == "y" and found.divergence is not None
    assert (found.divergence.layer, found.divergence.kind, found.divergence.shapes) == ("y", "UNARY", {"x": [2, 4]})
    assert (found.proven, found.of) == (1, 2)


@pytest.mark.parametrize(("op", "dtype", "shape"), [("NEG", "float32", (2, 5)), ("NEG", "float32", (2, 4, 1))])
def test_another_shape_than_the_model_s_is_seen(op: str, dtype: str, shape: Shape) -> None:
    assert differs(prove("y = Neg (x)", unary("x", op, "y"), shapes={"y": shape})) == "y"


def test_a_layer_that_is_not_known_is_no_difference() -> None:
    found = prove("a = Neg (x)  y = Abs (a)", layer("x", "STRANGE", "a"), unary("a", "ABS", "y"))
    assert lacks(found) == [(Lack.KIND, "a")] and differs(found) is None
    assert (found.proven, found.of) == (1, 2)


@pytest.mark.parametrize(
    ("maker", "operator", "proven"),
    [
        # Results of Abs are never negative: what is done with negative ones does not matter.
        ("Abs (x)", "ABS", True),
        ("Add (x, x)", "SUM", False),
    ],
)
def test_a_piece_that_differs_on_what_never_comes_is_widened(maker: str, operator: str, proven: bool) -> None:
    first = layer("x x", "ELEMENTWISE", "a", op="SUM") if operator == "SUM" else unary("x", operator, "a")
    found = prove(f"a = {maker}  y = Identity (a)", first, unary("a", "ABS", "y"))
    assert (found.proven == found.of, differs(found)) == ((True, None) if proven else (False, "y"))


def test_what_shows_nothing_but_nan_is_not_proven() -> None:
    found = prove("s = Sub (x, x)  y = Div (s, s)", unary("x", "NEG", "y"))
    assert lacks(found) == [(Lack.REFERENCE, "y")] and found.proven == 0


@pytest.mark.parametrize(
    ("body", "inner", "told"),
    [
        # Layers that fit any size tell at any; those that may hold sizes only at those of the network.
        ("y = Neg (a)", unary("a", "ABS", "y"), "y"),
        ("y = ReduceMax <axes = [1]> (a)", layer("a", "REDUCE", "y", op="MIN", axes=2, keep_dims=True), None),
    ],
)
def test_at_sizes_that_are_guessed_no_alarm_is_raised(body: str, inner: Layer, told: str | None) -> None:
    ends = "(float[2,4] x, bool[4] c) => (float[2,m] y)"
    chosen = "r = Compress <axis = 1> (x, c)  a = Add (r, r)  "
    twice = layer("r r", "ELEMENTWISE", "a", op="SUM")
    found = prove(chosen + body, layer("x c", "STRANGE", "r"), twice, inner, ends=ends, dtypes={"c": "bool"})
    assert differs(found) == told and found.proven == 1
    assert ((Lack.SIZE, "y") in lacks(found)) == (told is None)


@pytest.mark.parametrize("beyond", [0, 1])
def test_own_sizes_are_tried_last_and_where_they_are_not_too_much(beyond: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where smaller ones show nothing: first with the size that a constant has, then without."""
    whole = 3 * 512 * 400
    monkeypatch.setattr(pieces, "_MOST_ELEMENTS", whole - beyond)
    ones = ",".join(["1"] * 512)
    ends = f"(float[1,3,512,400] x) => (float[1,3,512,400] y) <float[512,1] c = {{{ones}}}>"
    runner = InProcess()
    found = prove("s = Sub (x, x)  d = Div (s, s)  y = Mul (d, c)", unary("x", "NEG", "y"), ends=ends, runner=runner)
    assert (Lack.REFERENCE, "y") in lacks(found)
    elements = [math.prod(task.shapes["x"]) for _, _, tasks, _ in runner.arguments for task in tasks]
    assert [count == whole for count in elements] == [False, False, True][: 3 - beyond]


def test_a_piece_that_differs_where_it_was_made_smaller_is_run_at_its_own_sizes() -> None:
    body = "y = Slice (x, from, to)"
    ends = "(float[1,2,128,96] x) => (float[1,2,64,96] y) <int64[4] from = {0,0,0,0}, int64[4] to = {1,2,64,96}>"
    for count, told in ((64, None), (63, "y")):
        values = {"start": (0,) * 4, "shape": (1, 2, count, 96), "stride": (1,) * 4, "mode": "STRICT_BOUNDS"}
        found = prove(body, layer("x", "SLICE", "y", **values), ends=ends)
        assert differs(found) == told and found.proven == (told is None)


@pytest.mark.parametrize(
    ("shape", "whole"),
    [(None, False), ((1, 2, 128, 96), False), ((1, 2, -1, 96), False), ((1, 2, 128, 48), True), ((1, 2, 12288), True)],
)
def test_what_the_network_gives_another_shape_is_run_at_its_own_sizes(
    shape: tuple[int, ...] | None, whole: bool
) -> None:
    runner = InProcess()
    own = (1, 2, 128, 96)
    ends = "(float[1,2,128,96] x) => (float[1,2,128,96] y)"
    known = {} if shape is None else {"y": shape}
    prove("y = Neg (x)", unary("x", "NEG", "y"), ends=ends, sizes={"x": own, "y": own}, shapes=known, runner=runner)
    assert [task.shapes["x"] == own for _, _, tasks, _ in runner.arguments for task in tasks][:1] == [whole]


def test_of_much_inputs_of_one_kind_must_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_MOST_OF_ALL_KINDS", 20_000)
    runner = InProcess()
    ends = "(float[1,2,128,96] x) => (float[1,2,128,96] y)"
    prove("y = Abs (x)", unary("x", "ABS", "y"), ends=ends, runner=runner)
    tasks = [task for _, _, tasks, _ in runner.arguments for task in tasks]
    few = [math.prod(task.shapes["x"]) <= 20_000 for task in tasks]
    assert few[0] and [len(task.kinds) > 1 for task in tasks] == few


def test_a_piece_that_shows_nothing_at_its_own_sizes_is_not_begun_again() -> None:
    body = "n = Size (x)  few = Less (n, most)  v = Where (few, x, none)  y = ReduceMax <axes = [1]> (v)"
    ends = "(float[128,200] x) => (float[128,1] y) <int64 most = {2000}, float none = {nan}>"
    runner = InProcess()
    found = prove(body, layer("x", "REDUCE", "y", op="MIN", axes=2, keep_dims=True), ends=ends, runner=runner)
    assert lacks(found) == [(Lack.REFERENCE, "y")] and differs(found) is None
    assert [task.shapes["x"] for _, _, tasks, _ in runner.arguments for task in tasks] == [
        (128, 8),
        (128, 8),
        (128, 200),
    ]


@pytest.mark.parametrize(
    ("axes", "batch", "told"), [(2, 1, None), (2, 4, None), (3, 1, None), (3, 4, "y"), (3, 2, "y")]
)
def test_a_free_first_axis_is_run_at_more_than_one(axes: int, batch: int, told: str | None) -> None:
    found = prove(
        "y = ReduceMax <axes = [1]> (x)",
        layer("x", "REDUCE", "y", op="MAX", axes=axes, keep_dims=True),
        ends="(float[n,4] x) => (float[n,1] y)",
        sizes={"x": (1, 4)},
        batch=batch,
    )
    assert differs(found) == told


@pytest.mark.parametrize(("others", "told"), [((), None), (({"x": (2, 4)},), None), (({"x": (3, 4)},), "y")])
def test_what_moves_elements_is_run_at_further_sizes(others: tuple[dict[str, Shape], ...], told: str | None) -> None:
    values = {"start": (0, 0), "shape": (2, 4), "stride": (1, 1), "mode": "CLAMP"}
    found = prove(
        "y = Identity (x)",
        layer("x", "SLICE", "y", **values),
        ends="(float[n,4] x) => (float[n,4] y)",
        sizes={"x": (2, 4)},
        others=others,
    )
    assert differs(found) == told and found.of == 1


def test_without_time_every_piece_is_left_open() -> None:
    found = prove("a = Neg (x)  y = Abs (a)", unary("x", "NEG", "a"), unary("a", "NEG", "y"), seconds=-1.0)
    assert lacks(found) == [(Lack.TIME, "a"), (Lack.TIME, "y")]
    assert (found.proven, found.of) == (0, 2)


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        # Of a crash the piece that was under way is given up; the others are tried again, to no avail here.
        (Lost("signal 11"), [(Lack.REFERENCE, "a"), (Lack.REFERENCE, "y")]),
        (WorkerBug("Traceback\nValueError: no"), [(Lack.REFERENCE, "a"), (Lack.REFERENCE, "y")]),
        (InputError("it is gone"), [(Lack.REFERENCE, "a"), (Lack.REFERENCE, "y")]),
    ],
)
def test_a_process_that_fails_proves_nothing(error: Exception, missing: list[tuple[Lack, str]]) -> None:
    found = prove(
        "a = Neg (x)  y = Abs (a)", unary("x", "NEG", "a"), unary("a", "ABS", "y"), runner=InProcess(error=error)
    )
    assert lacks(found) == missing and found.proven == 0


@pytest.mark.parametrize(("op", "told"), [("NEG", None), ("ABS", "y")])
def test_a_branch_is_proven_where_inputs_lead_to_it(op: str, told: str | None) -> None:
    ends = "(float[2,4] x, bool c) => (float[2,4] y)"
    body = """y = If (c) <then_branch = a () => (float[2,4] p) { p = Neg (x) },
                          else_branch = b () => (float[2,4] q) { q = Abs (x) }>"""
    found = prove(
        body,
        unary("x", "NEG", "p"),
        unary("x", "ABS" if op == "NEG" else "NEG", "q"),
        layer("c", "CONDITION", "d", conditional=0),
        layer("p q", "CONDITIONAL_OUTPUT", "y", conditional=0),
        ends=ends,
        dtypes={"c": "bool", "d": "bool"},
        shapes={"c": ()},
    )
    assert differs(found) == told and lacks(found) == []


@pytest.mark.parametrize(("decides", "lack"), [("c", []), ("n", [(Lack.BRANCH, "y")])])
def test_a_branch_that_no_inputs_lead_to_is_told(decides: str, lack: list[tuple[Lack, str]]) -> None:
    """The number of elements decides, which is the same at all inputs."""
    ends = "(float[2,4] x, bool c) => (float[2,4] y)" + (" <int64 eight = {8}>" if decides == "n" else "")
    body = """y = If (%s) <then_branch = a () => (float[2,4] p) { p = Neg (x) },
                          else_branch = b () => (float[2,4] q) { q = Abs (x) }>"""
    size = "s = Size (x)  n = Equal (s, eight)  " if decides == "n" else ""
    always = [] if decides == "c" else [layer("", "CONSTANT", "n", weights=np.array([True]), shape=())]
    found = prove(
        size + body % decides,
        unary("x", "NEG", "p"),
        unary("x", "ABS", "q"),
        *always,
        layer(decides, "CONDITION", "d", conditional=0),
        layer("p q", "CONDITIONAL_OUTPUT", "y", conditional=0),
        ends=ends,
        dtypes={"c": "bool", "d": "bool", "n": "bool"},
        shapes={"c": (), "n": ()},
    )
    assert differs(found) is None and lacks(found) == lack


INTEGERS, ONES = "(int32[2,4] x) => (int32[2,4] y)", {"k": (1, 1), "m": (2, 4), "y": (2, 4)}
THREES = layer("", "CONSTANT", "k", weights=np.array([[3]], np.float32), shape=(1, 1))
INT_THREES = layer("", "CONSTANT", "k", weights=np.array([[3]], np.int32), shape=(1, 1))
PRODUCT = layer("x k", "ELEMENTWISE", "m", op="PROD")


@pytest.mark.parametrize(
    ("ends", "threes", "last", "dtypes"),
    [
        # Of integers no kind that tells sums of floats apart has negative ones.
        (INTEGERS, INT_THREES, unary("m", "ABS", "y"), dict.fromkeys("kmy", "int32")),
        # A threshold may lie where no sum of the usual inputs comes.
        (FLOATS, THREES, layer("m", "ACTIVATION", "y", type="CLIP", alpha=-5000.0, beta=5000.0), {}),
    ],
    ids=["integers", "a far threshold"],
)
def test_a_layer_behind_a_product_is_seen(ends: str, threes: Layer, last: Layer, dtypes: dict[str, str]) -> None:
    kind = "int32" if dtypes else "float"
    model = f"c = Constant <value = {kind}[1,1] {{3}}> ()  y = Mul (x, c)"
    assert differs(prove(model, threes, PRODUCT, last, ends=ends, shapes=ONES, dtypes=dtypes)) == "y"
    right = prove(model, threes, layer("x k", "ELEMENTWISE", "y", op="PROD"), ends=ends, shapes=ONES, dtypes=dtypes)
    assert (right.proven, right.of) == (1, 1)


@pytest.mark.parametrize("name", ["x", "img", "e", "gate"])
def test_the_sign_of_a_single_result_is_seen_whatever_the_input_is_called(name: str) -> None:
    mean = layer(name, "REDUCE", "m", axes=12, keep_dims=True, op="AVG")
    ends, shapes = f"(float[1,1,8,8] {name}) => (float[1,1,1,1] y)", {"m": (1, 1, 1, 1), "y": (1, 1, 1, 1)}
    found = prove(f"y = GlobalAveragePool ({name})", mean, unary("m", "ABS", "y"), ends=ends, shapes=shapes)
    assert differs(found) == "y"


def test_a_boolean_that_is_moved_is_not_always_true() -> None:
    constant = layer("", "CONSTANT", "y", weights=np.array([True]), shape=(1,))
    ends = "(bool[1] x) => (bool[1] y)"
    found = prove("s = Shape (x)  y = Reshape (x, s)", constant, ends=ends, shapes={"y": (1,)}, dtypes={"y": "bool"})
    assert differs(found) == "y"


@pytest.mark.parametrize(("one", "other"), [(3, 290), (104, 358), (0, 399)])
def test_of_many_inputs_no_two_may_be_exchanged(one: int, other: int) -> None:
    names = [f"x{number}" for number in range(400)]
    order = list(names)
    order[one], order[other] = order[other], order[one]
    ends = f"({', '.join(f'float[4] {name}' for name in names)}) => (float[1600] y)"
    joined = layer(" ".join(order), "CONCATENATION", "y", axis=0)
    model = f"y = Concat <axis = 0> ({', '.join(names)})"
    assert differs(prove(model, joined, ends=ends, shapes={"y": (1600,)})) == "y"
