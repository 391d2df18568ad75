"""On TensorRT 8.6 a Where that no run decides is folded, or has a condition of run time; its result is the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import PASSES, PassResult, run_passes
from trtconv.passes.spelling import settled_masks

EIGHT = Target("tensorrt", (8, 6))
NAME = "choose-at-run-time"
CONSTANTS = """<bool[3] m = {1, 0, 1}, bool[1,1] all = {1}, bool none = {0}, float z = {0}, float[1] minus = {-1e30},
float[2,1] column = {7, -8}, int64 two = {2}>"""
CHOSEN = {
    "y = Where (m, z, x)": 1,
    "y = Where (m, x, minus)": 1,
    "y = Where (all, column, x)": 1,
    "y = Where (none, x, z)": 1,
    "n = Not (m)  y = Where (n, column, x)": 1,
    "s = Shape (x)  n = Greater (s, two)  f = Cast <to = 1> (n)  k = ReduceMin <keepdims = 0> (f) "
    "u = Cast <to = 9> (k)  y = Where (u, z, x)": 1,
    "t = Softmax (x)  a = Where (m, z, t)  y = Where (m, x, a)": 1,
    "w = Where (m, column, z)  y = Add (w, x)": 1,
}
"""Nodes, to how many of them are edited."""
LEFT = (
    "c = Greater (x, z)  y = Where (c, z, x)",
    "c = Greater (x, z)  d = And (c, m)  y = Where (d, z, minus)",
    "p = Exp (x)  q = Abs (x)  y = Where (m, p, q)",
    "k = Cast <to = 7> (x)  l = Where (m, two, k)  y = Cast <to = 1> (l)",
)


def model(nodes: str, first: str = "2") -> onnx.ModelProto:
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[{first},3] x) => (float[{first},3] y) {CONSTANTS}
        {{ {nodes} }}"""
    )


def rewritten(proto: onnx.ModelProto, target: Target = EIGHT) -> tuple[onnx.ModelProto, PassResult]:
    own = wrap(proto)
    result = run_passes(own, PASSES, target)
    return own.proto, result


def edits_of(result: PassResult) -> list[str]:
    return [edit.pass_name for edit in result.edits]


@pytest.mark.parametrize("first", ["2", "n"])
@pytest.mark.parametrize("nodes", CHOSEN)
def test_what_is_chosen_stays_the_same(nodes: str, first: str) -> None:
    proto = model(nodes, first)
    after, result = rewritten(proto)
    assert edits_of(result).count(NAME) == CHOSEN[nodes]
    # Whatever the first element is, by which the condition is made one of run time.
    for start in (-3.0, 0.0, np.nan, np.inf, -np.inf):
        x = np.array([[start, 2, -3], [4, np.nan, np.inf]], np.float32)
        (expected,), (got,) = run(proto, {"x": x}), run(after, {"x": x})
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("nodes", CHOSEN)
def test_nothing_settled_decides_what_is_chosen_between_a_value_that_is_and_one_that_is_not(nodes: str) -> None:
    """Every condition that is left depends on the input: the builder cannot work it out."""
    after, _ = rewritten(model(nodes))
    makers = {name: node for node in after.graph.node for name in node.output}

    def depends(name: str) -> bool:
        if name == "x" or name not in makers:
            return name == "x"
        return makers[name].op_type != "Shape" and any(depends(source) for source in makers[name].input)

    choices = [node for node in after.graph.node if node.op_type == "Where"]
    assert all(depends(node.input[0]) for node in choices if not all(map(depends, node.input[1:])))


OF_SIZES = """s = Shape (x)  n = Greater (s, two)  f = Cast <to = 1> (n)  k = ReduceMin <keepdims = 0> (f)
u = Cast <to = 9> (k)  y = Where (u, z, x)"""


@pytest.mark.parametrize(
    ("nodes", "joined"),
    [("y = Where (m, z, x)", "And"), (OF_SIZES, "And"), ("y = Where (none, x, z)", "Xor")],
)
def test_a_mask_that_is_false_is_joined_by_what_it_does_not_settle(nodes: str, joined: str) -> None:
    """And of false is false, whatever the run says; executed on 8.6.0, that was folded as the mask itself is."""
    after, _ = rewritten(model(nodes, "n"))
    makers = {name: node for node in after.graph.node for name in node.output}
    (choice,) = (node for node in after.graph.node if node.op_type == "Where")
    assert makers[choice.input[0]].op_type == joined


@pytest.mark.parametrize("nodes", LEFT)
def test_others_are_left(nodes: str) -> None:
    assert NAME not in edits_of(rewritten(model(nodes))[1])


def test_other_targets_have_no_need_of_it() -> None:
    for target in (RTX, Target("tensorrt", (10, 0))):
        assert NAME not in edits_of(rewritten(model("y = Where (m, z, x)"), target)[1])


def test_a_choice_between_constants_is_folded() -> None:
    after, result = rewritten(model("w = Where (m, column, z)  y = Add (w, x)"))
    assert NAME in edits_of(result) and "Where" not in {node.op_type for node in after.graph.node}
    arrays = [numpy_helper.to_array(tensor) for tensor in after.graph.initializer]
    assert any(np.array_equal(array, [[7, 0, 7], [-8, 0, -8]]) for array in arrays)


@pytest.mark.parametrize("first", ["2", "n"])
@pytest.mark.parametrize(
    ("nodes", "choices"),
    [
        ("y = Where (none, z, x)", 0),
        ("y = Where (all, x, z)", 0),
        # A value of more rows, or a mask of more, makes the result larger than what is chosen.
        ("y = Where (none, column, x)", None),
        ("y = Where (all, z, x)", 1),
        ("y = Where (m, z, x)", 1),
    ],
)
def test_a_mask_that_is_the_same_everywhere_chooses_one_value(nodes: str, choices: int | None, first: str) -> None:
    after, result = rewritten(model(nodes, first))
    assert NAME in edits_of(result)
    expected = int(first == "n") if choices is None else choices
    assert [node.op_type for node in after.graph.node].count("Where") == expected


def test_what_is_chosen_is_as_large_as_the_result() -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,3] x) => (float[2,3] y)
        <bool[2,1] m = {1, 1}, float z = {0}> { y = Where (m, x, z) }"""
    )
    x = np.array([[1, 2, 3]], np.float32)
    np.testing.assert_array_equal(run(rewritten(proto)[0], {"x": x})[0], run(proto, {"x": x})[0])


def test_a_mask_outside_a_branch_counts_as_settled_in_it() -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x, bool b) => (float[2,3] y) {CONSTANTS}
        {{
          y = If (b) <
            then_branch = t () => (float[2,3] u) {{ u = Where (m, z, x) }},
            else_branch = e () => (float[2,3] v) {{ n = Not (b)  v = Where (n, z, x) }}
          >
        }}"""
    )
    after, result = rewritten(proto)
    assert edits_of(result).count(NAME) == 1
    for b in (True, False):
        feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(b)}
        np.testing.assert_array_equal(run(after, feeds)[0], run(proto, feeds)[0])


@pytest.mark.parametrize("carried", ["a", "m"])
def test_what_a_loop_carries_is_not_settled(carried: str) -> None:
    """Even by the name of a constant around it, which ONNX does not allow and no parser refuses."""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x, bool[3] c, int64 n, bool b) => (float[l,2,3] y)
        {CONSTANTS}
        {{ o, y = Loop (n, b, c) < body = t (int64 i, bool d, bool[3] {carried}) => (bool e, bool[3] f, float[2,3] r) {{
            e = Identity (d)  f = Not ({carried})  r = Where ({carried}, z, x) }} > }}"""
    )
    assert NAME not in edits_of(rewritten(proto)[1])


def test_a_choice_of_one_number_is_left() -> None:
    proto = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float x) => (float y) <bool m = {1}, float z = {0}>
        { y = Where (m, z, x) }"""
    )
    assert NAME not in edits_of(rewritten(proto)[1])


@pytest.mark.parametrize(
    ("made", "rank"), [("w = Where (n, zero, one)", "p"), ("m = Reshape (n, square)  w = Where (m, zero, one)", "p,q")]
)
def test_what_follows_from_free_sizes_stays_so(made: str, rank: str) -> None:
    """A builder that is to know the sizes of a Resize takes no factors from the values of an input."""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[a,b,c,d] x) => (float[{rank}] w)
        <int64[4] eight = {{8, 8, 8, 8}}, float zero = {{0.5}}, float[1] one = {{2}}, int64[2] square = {{2, 2}}>
        {{ s = Shape (x)  n = Greater (s, eight)  {made} }}"""
    )
    assert NAME not in edits_of(rewritten(proto)[1])


def test_a_mask_far_behind_the_input_counts_too() -> None:
    steps = "  ".join(f"r{step + 1} = Relu (r{step})" for step in range(1100))
    proto = model(f"r0 = Abs (x)  {steps}  y = Where (m, z, r1100)")
    after, result = rewritten(proto)
    assert edits_of(result).count(NAME) == 1
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(after, {"x": x})[0], run(proto, {"x": x})[0])
    assert NAME not in edits_of(run_passes(wrap(after), PASSES, EIGHT))


def test_a_mask_that_constants_make_is_written_as_what_it_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The builder is not asked to make it, but for a large one."""
    for most, is_constant in ((3, True), (2, False)):
        monkeypatch.setattr(settled_masks, "_MOST_OF_MASK", most)
        after, result = rewritten(model("n = Not (m)  y = Where (n, column, x)"))
        assert edits_of(result) == [NAME]
        (mask,) = (node.input[0] for node in after.graph.node if node.op_type == "And")
        assert (mask in {tensor.name for tensor in after.graph.initializer}) is is_constant
