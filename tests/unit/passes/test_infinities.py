"""Infinities on TensorRT 8.6: read from constants of two elements, and the largest of them the other way round."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.budget import BudgetExceeded
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes
from trtconv.passes.spelling import infinities

EIGHT = Target("tensorrt", (8, 6))
GATHER, REDUCE = "gather-infinities", "reduce-max-by-min"
CONSTANTS = """<float low = {-inf}, float[1,1] high = {inf}, float[2] both = {-inf, inf}, float[3] row = {0, -inf, 1},
float one = {1}, float nothing = {0}, float large = {100},
int64 minus = {-1}, float[3] m0 = {1, 0, 1}, float16 half = {64512}, int64 three = {3}, bool[3] m = {1, 0, 1},
int64[2] sizes = {2, 3}, int64[1] axis = {1}>"""
"""64512 are the bits of minus infinity."""


def edits(nodes: str, target: Target = EIGHT, opset: int = 17) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]> g (float[2,3] x, bool[2,3] c) => (float[p,q] y) {CONSTANTS}
        {{ n = Not (c)  o = Cast <to = 1> (n)  {nodes} }}"""
    )
    own = wrap(proto)
    result = run_passes(own, PASSES, target)
    return proto, own.proto, [edit.pass_name for edit in result.edits if edit.pass_name in (GATHER, REDUCE)]


def compare(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    for x in ([[1, -np.inf, 3], [-np.inf] * 3], [[np.inf, 0, -5], [-1, -2, -3]]):
        for c in (True, False):
            feeds = {"x": np.array(x, np.float32), "c": np.array([[c, True, c], [c, c, c]])}
            np.testing.assert_array_equal(run(after, feeds)[0], run(before, feeds)[0])


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        ("y = Where (c, low, x)", 1),
        ("y = Where (c, x, high)", 1),
        ("y = Where (c, low, high)", 1),
        ("e = Equal (x, low)  y = Cast <to = 1> (e)", 1),
        ("e = Equal (high, x)  y = Cast <to = 1> (e)", 1),
        ("i = Identity (low)  y = Where (c, i, x)", 1),
        ("h = Cast <to = 10> (x)  w = Where (c, half, h)  y = Cast <to = 1> (w)", 1),
        ("h = Cast <to = 1> (half)  y = Where (c, h, x)", 1),
        ("a = Where (c, low, x)  e = Equal (a, low)  y = Cast <to = 1> (e)", 2),
        ("k = Neg (high)  y = Where (c, k, x)", 1),
        ("k = Sub (one, high)  e = Equal (x, k)  y = Cast <to = 1> (e)", 1),
        ("k = Expand (low, sizes)  y = Where (c, k, x)", 1),
        ("k = ConstantOfShape <value = float[1] {-inf}> (sizes)  y = Where (c, x, k)", 1),
        (
            "s = Shape (x)  k = ConstantOfShape <value = float[1] {-inf}> (s)  e = Equal (x, k)  y = Cast <to = 1> (e)",
            1,
        ),
        ("k = Where (m, low, one)  y = Where (c, k, x)", 1),
        ("k = Neg (one)  y = Where (c, k, x)", 0),
        ("k = Neg (row)  y = Where (c, k, x)", 0),
        ("y = Where (c, one, x)", 0),
        ("y = Where (c, row, x)", 0),
        ("y = Add (x, low)", 0),
        ("e = Less (x, low)  y = Cast <to = 1> (e)", 1),
        ("e = Less (high, x)  y = Cast <to = 1> (e)", 1),
        ("e = LessOrEqual (x, high)  y = Cast <to = 1> (e)", 1),
        ("k = Neg (low)  e = Greater (x, k)  y = Cast <to = 1> (e)", 1),
        ("e = GreaterOrEqual (low, x)  y = Cast <to = 1> (e)", 1),
        ("e = Less (x, one)  y = Cast <to = 1> (e)", 0),
        ("i = Cast <to = 7> (o)  e = Equal (i, three)  y = Cast <to = 1> (e)", 0),
    ],
)
def test_a_single_infinity_is_gathered(nodes: str, count: int) -> None:
    before, after, found = edits(nodes)
    assert found == [GATHER] * count
    compare(before, after)
    assert not edits(nodes, RTX)[2] and not edits(nodes, Target("tensorrt", (10, 0)))[2]


@pytest.mark.parametrize("shape", ["", "[1]", "[1,1]", "[1,1,1]"])
def test_the_result_has_its_axes(shape: str) -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[3] x, bool[3] c) => (float y) <float{shape} low = {{-inf}}>
        {{ y = Where (c, low, x) }}"""
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    own = wrap(proto)
    assert [edit.pass_name for edit in run_passes(own, PASSES, EIGHT).edits] == [GATHER]
    feeds = {"x": np.arange(3, dtype=np.float32), "c": np.array([True, False, True])}
    expected, result = run(proto, feeds)[0], run(own.proto, feeds)[0]
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("nodes", "is_written"),
    [
        ("a = Add (x, row)  y = ReduceMax <axes = [1]> (a)", True),
        ("a = Add (x, row)  t = Transpose <perm = [1,0]> (a)  y = ReduceMax <axes = [0], keepdims = 1> (t)", True),
        ("a = Add (x, row)  y = ReduceMax (a)", True),
        ("w = Where (m, row, x)  y = ReduceMax <axes = [-1]> (w)", True),
        ("f = ConstantOfShape <value = float[1] {-inf}> (sizes)  a = Mul (o, f)  y = ReduceMax <axes = [1]> (a)", True),
        ("f = Expand (low, sizes)  a = Add (x, f)  y = ReduceMax <axes = [1]> (a)", True),
        ("f = ConstantOfShape <value = float[1] {-1}> (sizes)  a = Mul (x, f)  y = ReduceMax <axes = [1]> (a)", False),
        ("f = ConstantOfShape (sizes)  a = Mul (x, f)  y = ReduceMax <axes = [1]> (a)", False),
        ("k = Sub (one, high)  a = Add (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Log (nothing)  a = Add (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Log (one)  a = Add (x, k)  y = ReduceMax <axes = [1]> (a)", False),
        ("k = Div (one, nothing)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Reciprocal (nothing)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Log (m0)  a = Add (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Sub (one, m0)  l = Log (k)  a = Add (x, l)  y = ReduceMax <axes = [1]> (a)", True),
        ("i = Identity (nothing)  k = Log (i)  a = Add (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Exp (large)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Exp (one)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", False),
        ("k = Pow (nothing, minus)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", True),
        ("k = Pow (one, minus)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", False),
        ("k = Reciprocal (one)  a = Sub (x, k)  y = ReduceMax <axes = [1]> (a)", False),
        ("k = Exp (o)  y = ReduceMax <axes = [1]> (k)", False),
        ("k = Pow (one, three)  a = Mul (o, k)  y = ReduceMax <axes = [1]> (a)", False),
        ("a = Add (x, row)  k = Ceil (a)  y = ReduceMax <axes = [1]> (k)", True),
        ("a = Add (x, row)  t = Tanh (a)  y = ReduceMax <axes = [1]> (t)", False),
        ("y = ReduceMax <axes = [1]> (x)", False),
        ("a = Add (x, row)  s = Softmax (a)  y = ReduceMax <axes = [1]> (s)", False),
        ("a = Add (x, row)  y = ReduceMin <axes = [1]> (a)", False),
        ("a = Add (x, one)  y = ReduceMax <axes = [1]> (a)", False),
    ],
)
def test_the_largest_of_infinities_is_the_least_of_their_opposites(nodes: str, is_written: bool) -> None:
    before, after, found = edits(nodes)
    assert (REDUCE in found) is is_written
    assert "ReduceMax" not in {node.op_type for node in after.graph.node} or not is_written
    compare(before, after)
    assert not edits(nodes, RTX)[2] and not edits(nodes, Target("tensorrt", (10, 0)))[2]


def test_axes_that_are_an_input_stay_one() -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[2,3] x) => (float[2] y)
        <float[3] row = {-inf, -inf, -inf}, int64[1] axis = {1}>
        { a = Add (x, row)  y = ReduceMax <keepdims = 0> (a, axis) }"""
    )
    own = wrap(proto)
    run_passes(own, [each for each in PASSES if each.name == REDUCE], EIGHT)
    assert [list(node.input[1:]) for node in own.proto.graph.node if node.op_type == "ReduceMin"] == [["axis"]]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(own.proto, {"x": x})[0], run(proto, {"x": x})[0])


def rewritten(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    own = wrap(proto)
    return proto, own.proto, [edit.pass_name for edit in run_passes(own, PASSES, EIGHT).edits]


@pytest.mark.parametrize(
    ("shape", "mask", "count"),
    [
        ("[1,100,100]", "[2,100,100]", 1),
        ("[1,100,100]", "[2,1,100]", 0),
        ("[3,1,1]", "[1,2,2]", 1),
    ],
)
def test_what_is_filled_is_written_small(shape: str, mask: str, count: int) -> None:
    """Its axes are those of others, or few; else it is left as it is."""
    sizes = shape[1:-1].split(",")
    proto, after, found = rewritten(
        f"""g (float[1,1,1] x, bool{mask} c) => (float[p,q,r] y) <int64[3] s = {{{",".join(sizes)}}}>
        {{ k = ConstantOfShape <value = float[1] {{-inf}}> (s)  y = Where (c, k, x) }}"""
    )
    assert found.count(GATHER) == count
    assert after.ByteSize() < 1000
    random = np.random.default_rng(0)
    c = random.integers(0, 2, [int(size) for size in mask[1:-1].split(",")]).astype(bool)
    feeds = {"x": np.ones((1, 1, 1), np.float32), "c": c}
    np.testing.assert_array_equal(run(after, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("outer", ["k = Neg (high)", "k = Identity (low)"])
def test_a_branch_reads_what_is_around_it(outer: str) -> None:
    text = f"""g (float[2,3] x, bool[2,3] c, bool b) => (float[2,3] y) <float high = {{inf}}, float low = {{-inf}}> {{
      {outer}
      y = If (b) < then_branch = t () => (float[2,3] u) {{ u = Where (c, k, x) }},
                   else_branch = e () => (float[2,1] v) {{ w = Add (x, k)  v = ReduceMax <axes = [1]> (w) }} >
    }}"""
    proto, after, found = rewritten(text)
    assert found.count(GATHER) == 1 and found.count(REDUCE) == 1
    for b in (True, False):
        feeds = {"x": np.ones((2, 3), np.float32), "c": np.eye(2, 3, dtype=bool), "b": np.array(b)}
        np.testing.assert_array_equal(run(after, feeds)[0], run(proto, feeds)[0])


def test_many_reductions_take_no_longer_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an infinity reaches one of them is found out for all of them together."""
    looked: list[str] = []
    is_infinite = infinities._is_infinite
    monkeypatch.setattr(infinities, "_is_infinite", lambda scope, name: looked.append(name) or is_infinite(scope, name))
    count = 50
    nodes = "  ".join(f"r{i} = ReduceMax <axes = [1]> (a{i})  a{i + 1} = Add (a{i}, w)" for i in range(count))
    _, _, found = rewritten(f"g (float[2,3] a0) => (float[2,3] a{count}) <float[3] w = {{1, 2, 3}}> {{ {nodes} }}")
    assert REDUCE not in found
    assert len(looked) < 20 * count


@pytest.mark.parametrize(("op", "inputs"), [("Div", "one"), ("Log", "one, one, one"), ("Softmax", "low")])
def test_an_operator_of_a_domain_of_somebody_else_is_none_of_these(op: str, inputs: str) -> None:
    parameters = ", ".join(f"p{index}" for index in range(len(inputs.split(","))))
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[2,3] x) => (float[2,1] y) <float one = {{1}}, float low = {{-inf}}>
        {{ k = own.{op} ({inputs})  a = Add (x, k)  y = ReduceMax <axes = [1]> (a) }}
        <domain: "own", opset_import: ["": 17]> {op} ({parameters}) => (r) {{ r = Identity (p0) }}"""
    )
    found = [edit.pass_name for edit in run_passes(wrap(proto), PASSES, EIGHT).edits]
    assert found == [REDUCE] * (inputs == "low")


@pytest.mark.parametrize("shapes", ["float[4000,1] a, float[1,4000] b", "float[2] a, float[3] b"])
def test_what_constants_make_is_not_computed_where_it_is_large_or_does_not_fit(shapes: str) -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[4000,4000] x, {shapes}) => (float[p,q] y)
        {{ k = Div (a, b)  s = Sub (x, k)  y = ReduceMax <axes = [1]> (s) }}"""
    )
    for value in list(proto.graph.input)[1:]:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        proto.graph.initializer.append(numpy_helper.from_array(np.ones(dims, np.float32), value.name))
    del proto.graph.input[1:]
    tracemalloc.start()
    try:
        assert infinities._makes_infinity(wrap(proto).main, "Div", ["a", "b"])
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_what_is_compared_is_computed_only_where_it_may_be_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    resolved = infinities.resolved
    monkeypatch.setattr(
        infinities, "resolved", lambda scope, name, opsets: names.append(name) or resolved(scope, name, opsets)
    )
    nodes = "f = Expand (one, sizes)  e = Less (x, f)  h = Expand (low, sizes)  g = Less (x, h)  r = And (e, g)"
    assert (edits(f"{nodes}  y = Cast <to = 1> (r)")[2], names) == ([GATHER], ["h"])


def test_what_is_too_large_to_compute_is_left_to_who_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BudgetExceeded("too large")

    monkeypatch.setattr(infinities, "resolved", refuse)
    assert edits("k = Expand (low, sizes)  y = Where (c, k, x)")[2] == []


def test_bodies_do_not_look_at_the_graph_around_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    makes = infinities._makes_infinity
    monkeypatch.setattr(
        infinities, "_makes_infinity", lambda scope, op, inputs: looked.append(op) or makes(scope, op, inputs)
    )
    ifs = "  ".join(
        f"i{i} = If (c) <then_branch = t{i} () => (float[2,1] r{i}) {{ r{i} = ReduceMax <axes = [1]> (a) }},"
        f" else_branch = e{i} () => (float[2,1] s{i}) {{ s{i} = ReduceMax <axes = [1]> (x) }}>"
        for i in range(20)
    )
    _, _, found = rewritten(
        f"""g (float[2,3] x, bool c) => (float[2,1] i19) <float n = {{0}}> {{ k = Log (n)  a = Add (x, k)  {ifs} }}"""
    )
    assert found.count(REDUCE) == 20
    assert len(looked) < 5
