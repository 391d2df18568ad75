"""Loops and Scans get what a parser wants of them, and compute what they did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes

HEADER = '<ir_version: 8, opset_import: ["": 17]> '
SCAN = """g (float[n,2] x, float[n,2] w) => (float[n,2] y, float[n,2] z) {
    y, z = Scan <num_scan_inputs = 2, scan_input_directions = [0, 1], body = b (float[2] r, float[2] s)
    => (float[2] p, float[2] q) { p = Sub (r, s)  q = Relu (r) }> (x, w) }"""
LOOP = """g (float[2] x) => (float[2] y, float[m,2] z) <int64 most = {3}> {
    y, z = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u)
    { d = CONDITION  t = Add (s, s)  u = Neg (s) }> (most, , x) }"""


def graph(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


GOING_ON = ("Identity (c)", "Cast <to = 9> (c)", "Constant <value = bool {1}> ()")


@pytest.mark.parametrize("text", [SCAN, *(LOOP.replace("CONDITION", condition) for condition in GOING_ON)])
def test_iterations_have_conditions_and_states(text: str) -> None:
    proto = graph(text)
    rewritten = wrap(proto)
    (edit,) = run_passes(rewritten, PASSES, RTX).edits
    assert edit.pass_name == "complete-iterations"
    shapes = {value.name: len(value.type.tensor_type.shape.dim) for value in proto.graph.input}
    feeds = {
        name: np.random.default_rng(0).standard_normal((4, 2)[-rank:]).astype(np.float32)
        for name, rank in shapes.items()
    }
    for expected, got in zip(run(proto, feeds), run(rewritten.proto, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_condition_that_a_body_computes_is_not_guessed() -> None:
    """ONNX ignores it where the loop begins without one, and ONNX Runtime heeds it."""
    proto = graph(LOOP.replace("CONDITION", "Not (c)"))
    result = run_passes(wrap(proto), PASSES, RTX)
    assert not result.edits
    assert "both ways" in result.skipped[0].reason


BEGUN = """g (int64 most, bool go, float[2] x) => (float[2] y, float[2] z) {
    y = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Identity (c)  INSIDE }> (most, go, x)
    z = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) { d = Not (c)  t = Neg (s) }> (most, go, y)
}"""
INNER = "t = Loop <body = n (int64 j, bool e, float[2] u) => (bool f, float[2] v) { f = Identity (e)  v = Add (u, u) }>"
INSIDE = ("t = Add (s, s)", f"{INNER} (most, c, s)", f"{INNER} (most, go, s)")


@pytest.mark.parametrize(("inside", "edits"), list(zip(INSIDE, (2, 2, 3), strict=True)))
@pytest.mark.parametrize("go", [True, False])
def test_a_loop_begins_with_a_copy_of_what_is_an_input(inside: str, edits: int, go: bool) -> None:
    proto = graph(BEGUN.replace("INSIDE", inside))
    rewritten = wrap(proto)
    assert [e.pass_name for e in run_passes(rewritten, PASSES, RTX).edits] == ["complete-iterations"] * edits
    feeds = {"most": np.array(2), "go": np.array(go), "x": np.array([1, -3], np.float32)}
    for expected, got in zip(run(proto, feeds), run(rewritten.proto, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_loops_inside_loops_are_all_given_a_condition() -> None:
    inside = INSIDE[1].replace("(most, c, s)", "(most, , s)")
    proto = graph(LOOP.replace("CONDITION", "Identity (c)").replace("t = Add (s, s)", inside))
    rewritten = wrap(proto)
    assert len(run_passes(rewritten, PASSES, RTX).edits) == 2
    feeds = {"x": np.array([1, -3], np.float32)}
    for expected, got in zip(run(proto, feeds), run(rewritten.proto, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_condition_that_a_node_makes_is_left() -> None:
    text = (
        BEGUN.replace("INSIDE", INSIDE[0]).replace(") {", ") { go = Not (stop) ", 1).replace("bool go", "bool stop", 1)
    )
    assert not run_passes(wrap(graph(text)), PASSES, RTX).edits


LISTS = """g (float[4,2] x, int64 most, bool go) => (float[m,1,2] y) {
    begin = Not (go)
    y = Loop <body = b (int64[1] i, bool c) => (bool d, float[1,2] t) { d = Identity (c)  t = Gather (x, i) }>
        (most, begin)
}"""


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        (LISTS, 1),
        # Of a name that the copy might take, in the body of another, and with a condition to be written too.
        (LISTS.replace("x", "number").replace("(most, begin)", "(most, go)"), 1),
        (
            LISTS.replace("t = Gather (x, i)", f"s = Gather (x, i)  {INNER} (most, c, s)").replace(
                "int64 j", "int64[1] j"
            ),
            2,
        ),
    ],
    ids=["counts", "begins too", "inner"],
)
@pytest.mark.parametrize("go", [True, False])
def test_a_number_of_the_iteration_that_is_a_list_is_made_of_a_scalar(text: str, edits: int, go: bool) -> None:
    proto = graph(text.replace("bool e, float[2] u", "bool e, float[1,2] u").replace("float[2] v", "float[1,2] v"))
    rewritten = wrap(proto)
    assert [e.pass_name for e in run_passes(rewritten, PASSES, RTX).edits] == ["complete-iterations"] * edits
    loops = [scope.columns.nodes[index] for scope in rewritten.scopes for index in scope.positions("Loop")]
    assert all(not loop.attribute[0].g.input[0].type.tensor_type.shape.dim for loop in loops)
    data = proto.graph.input[0].name
    feeds = {data: np.arange(8, dtype=np.float32).reshape(4, 2), "most": np.array(3), "go": np.array(go)}
    for expected, got in zip(run(proto, feeds), run(rewritten.proto, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)


COUNTS = """g (float[2] x) => (float[2] h, float[m,2] z)
    <bool go = {{1}}, {kind} start = {{{start}}}, {kind} limit = {{{limit}}}> {{
    n, k, h, z = Loop <body = b (int64 i, bool c, {kind} p, {kind} most, float[2] s) =>
        (bool d, {kind} q, {kind} same, float[2] t, float[2] u)
      <{kind} step = {{{step}}}> {{
        same = Identity (most)  q = Add (p, step)  t = Add (s, s)  u = Neg (s)
        {condition}
      }}> ({trips}, go, start, limit, x)
}}"""
CONDITIONS = {
    "before the step": "d = Less (p, most)",
    "behind it, in floats": "e = Cast <to = 1> (q)  f = Cast <to = 1> (most)  d = LessOrEqual (e, f)",
    "with the iteration": "a = Less (q, most)  r = Cast <to = 7> (most)  e = Less (i, r)  d = And (a, e)",
    "not greater": "e = Greater (q, most)  d = Not (e)",
    "the largest of three": """r = Cast <to = 7> (most)  twelve = Constant <value = int64 {12}> ()  e = Max (r, r, i)
        d = Less (e, twelve)""",
    "a constant of the body": "six = Constant <value = int64 {6}> ()  d = Less (i, six)",
}


@given(
    st.sampled_from(sorted(CONDITIONS)),
    st.sampled_from(["int32", "int64"]),
    st.integers(-3, 3),
    st.integers(1, 3),
    st.integers(-4, 9),
)
def test_a_condition_that_counts_says_the_trip_count(how: str, kind: str, start: int, step: int, limit: int) -> None:
    text = COUNTS.format(kind=kind, start=start, step=step, limit=limit, condition=CONDITIONS[how], trips="")
    proto = graph(text)
    rewritten = wrap(proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["complete-iterations"]
    feeds = {"x": np.array([1, -3], np.float32)}
    expected, got = run(proto, feeds), run(rewritten.proto, feeds)
    for before, after in zip(expected, got, strict=True):
        np.testing.assert_array_equal(after, before)
    (loop,) = (node for node in rewritten.proto.graph.node if node.op_type == "Loop")
    (count,) = (t for t in rewritten.proto.graph.initializer if t.name == loop.input[0])
    assert onnx.numpy_helper.to_array(count) == len(expected[1])


@pytest.mark.parametrize(
    "condition",
    ["e = ReduceMax <keepdims = 0> (s)  w = Cast <to = 1> (most)  d = Less (e, w)", "d = Less (p, p)  e = Less (p, q)"],
    ids=["of what is computed", "ends at once"],
)
def test_a_condition_that_hangs_on_values_says_nothing(condition: str) -> None:
    proto = graph(COUNTS.format(kind="int64", start=0, step=1, limit=5, condition=condition, trips=""))
    edits = run_passes(wrap(proto), PASSES, RTX).edits
    # One that is never true is gone through once.
    assert [edit.what for edit in edits] == (
        ["its condition ends it after 1 times, written as its trip count"] if "(p, p)" in condition else []
    )


def test_a_count_that_nobody_waits_for_is_left() -> None:
    condition = "d = Less (p, most)"
    endless = graph(COUNTS.format(kind="int64", start=0, step=0, limit=5, condition=condition, trips=""))
    assert not run_passes(wrap(endless), PASSES, RTX).edits
    stated = graph(COUNTS.format(kind="int64", start=0, step=1, limit=5, condition=condition, trips="limit"))
    assert not run_passes(wrap(stated), PASSES, RTX).edits


def test_constants_in_a_file_of_their_own_are_read_beside_the_model(tmp_path: Path) -> None:
    text = COUNTS.format(kind="int64", start=0, step=1, limit=5, condition="d = Less (q, most)", trips="")
    proto = graph(text)
    (body,) = (a.g for node in proto.graph.node for a in node.attribute if a.name == "body")
    (tensor,) = body.initializer
    (tmp_path / "w.bin").write_bytes(tensor.raw_data or np.array([1], np.int64).tobytes())
    tensor.ClearField("raw_data")
    tensor.ClearField("int64_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    onnx.save(proto, tmp_path / "m.onnx")
    (edit,) = run_passes(OnnxModel.load(tmp_path / "m.onnx"), PASSES, RTX).edits
    assert "after 5 times" in edit.what
