"""Loops over sequences, step by step, beside ONNX Runtime's of the loop itself."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes, select

X = np.arange(12, dtype=np.float32).reshape(6, 2)
PIECES = """<int64[4] ends = {0, 1, 4, 6}, int64[1] one = {1}, int64 three = {3}, bool on = {1}> {
    e = SequenceEmpty ()
    s, k = Loop <body = b (int64[1] i, bool c, seq(float[]) p) => (bool d, seq(float[]) q, int64[1] w) {
        j = Add (i, one)  f = Gather (ends, i)  t = Gather (ends, j)  r = Slice (x, f, t)
        q = SequenceInsert (p, r)  d = Identity (on)  w = Sub (t, f) }> (three, on, e)
"""


def unrolled(text: str, opset: int = 17) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    """Returns a model, what the passes make of it, and why they left loops."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "acme": 1]> g (float[6,2] x) => {text}')
    model = wrap(onnx.ModelProto.FromString(proto.SerializeToString()))
    names = ["complete-iterations", "unroll-loops", "unpack-sequences", "leave-out-unread"]
    result = run_passes(model, select(PASSES, names, []), RTX)
    onnx.checker.check_model(model.proto, full_check=True)
    return proto, model.proto, [skip.reason for skip in result.skipped if skip.pass_name == "unroll-loops"]


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize(
    "text",
    [
        f"(float[n,2] y, int64[m,1] k) {PIECES} two = Constant <value_int = 2> ()  y = SequenceAt (s, two) }}",
        f"(float[n,2] y) {PIECES} a = ConcatFromSequence <axis = 0> (s)  y = Neg (a) }}",
        # A list from outside, and what is stacked; a state that stays, and nobody who asks for it.
        """(float[3,2] y, float[2] z) <int64 three = {3}, bool on = {1}, float[2] z0 = {1, 2}> {
            l = SplitToSequence <axis = 0, keepdims = 0> (x)
            u, z, y = Loop <body = b (int64 i, bool c, float[2] h, float[2] v) =>
                (bool d, float[2] k, float[2] w, float[2] o)
                { a = SequenceAt (l, i)  k = Add (h, a)  w = Identity (v)  o = Mul (h, a)  d = Identity (c) }>
                (three, , z0, z0) }""",
        # A state and a row that are one tensor, a weight of the body, and a state that it does not make.
        """(float[2] y, float[2] z, float[3,2] r) <int64 three = {3}, bool on = {1}, float[2] z0 = {1, 2}> {
            l = SplitToSequence <axis = 0, keepdims = 0> (x)
            y, z, r = Loop <body = b (int64 i, bool c, float[2] h, float[2] v) =>
                (bool c, float[2] k, float[2] w, float[2] k) <float[2] w = {3, 4}>
                { a = SequenceAt (l, i)  t = Add (h, a)  k = Mul (t, w) }> (three, on, z0, z0) }""",
        # Inside a branch of the body.
        """(float[2] y) <int64 four = {4}, bool on = {1}, float[2] z = {1, 2}, int64 odd = {2}, int64 zero = {0}> {
            l = SplitToSequence <axis = 0, keepdims = 0> (x)
            y = Loop <body = b (int64 i, bool c, float[2] h) => (bool d, float[2] g) {
                a = SequenceAt (l, i)  m = Mod (i, odd)  e = Equal (m, zero)
                g = If (e) <then_branch = t () => (float[2] r) { r = Add (h, a) },
                            else_branch = f () => (float[2] r) { k = Neg (a)  r = Mul (h, k) }>
                d = Identity (on) }> (four, on, z) }""",
    ],
    ids=["at", "joined", "stacked", "same", "branches"],
)
def test_each_step_is_what_the_loop_does(text: str, opset: int) -> None:
    proto, rewritten, skips = unrolled(text, opset)
    assert not skips
    assert not {"Loop", "SequenceInsert", "SequenceAt", "SplitToSequence"} & {
        node.op_type for node in rewritten.graph.node
    }
    for expected, got in zip(run(proto, {"x": X}), run(rewritten, {"x": X}), strict=True):
        np.testing.assert_array_equal(expected, got)


SIZED = """(float[2] y) <int64 five = {5}, bool on = {1}, float[2] z = {0, 0}, int64[1] zero = {0}, int64[1] one = {1},
    int64[1] two = {2}, int64 none = {0}, int64 unit = {1}> {
    y, w = Loop <body = b (int64 i, bool c, float[2] p, int64[1] k) => (bool d, float[2] q, int64[1] m)
        { d = Identity (c)  m = Identity (k)  s = Unsqueeze (i, zero)  e = Add (s, one)  BODY  q = Add (p, r) }>
        (five, on, z, two) }"""


@pytest.mark.parametrize(
    "body",
    [
        "t = Slice (x, s, e, zero)  r = ReduceSum <keepdims = 0> (t)",
        "t = Slice (x, zero, k, zero)  r = ReduceSum <keepdims = 0> (t)",
        "j = Add (i, unit)  t = Range (none, j, unit)  f = Cast <to = 1> (t)  r = ReduceSum <keepdims = 0> (f)",
        "t = ConstantOfShape (e)  r = ReduceSum <keepdims = 0> (t)",
        """l = Equal (i, unit)  r = If (l) <then_branch = t () => (float a)
            { u = Slice (x, zero, e, zero)  a = ReduceSum <keepdims = 0> (u) },
            else_branch = f () => (float b) { b = ReduceSum <keepdims = 0> (x) }>""",
    ],
    ids=["one", "state", "range", "fill", "branch"],
)
def test_sizes_that_change_from_step_to_step(body: str) -> None:
    proto, rewritten, skips = unrolled(SIZED.replace("BODY", body))
    assert not skips
    assert "Loop" not in {node.op_type for node in rewritten.graph.node}
    np.testing.assert_allclose(run(proto, {"x": X})[0], run(rewritten, {"x": X})[0], rtol=1e-6)


def test_a_loop_whose_sizes_stay_is_left() -> None:
    """What TensorRT runs as a loop is not written out: its steps share their kernels."""
    body = "n = Shape (p)  v = Gather (x, i)  t = Expand (v, n)  f = Slice (t, zero, one)  r = Relu (f)"
    _, rewritten, skips = unrolled(SIZED.replace("BODY", body))
    assert not skips
    assert "Loop" in {node.op_type for node in rewritten.graph.node}


ONE = """(float[n,2] y) <bool on = {1}, bool off = {0}> {
    e = SequenceEmpty ()  r = Relu (x)  n = Size (r)  m = ReduceMax <keepdims = 0> (x)  z = Cast <to = 7> (m)
    s = Loop <body = b (int64 i, bool c, seq(float[]) p) => (bool d, seq(float[]) q)
        { q = SequenceInsert (p, r)  half = Cast <to = 7> (h)  d = DOES }> (STEPS, BEGINS, e)
    y = ConcatFromSequence <axis = 0> (s) }"""


@pytest.mark.parametrize(
    ("steps", "begins", "does", "why"),
    [
        ("z", "on", "Identity (c)", "at run time"),
        ("", "on", "Identity (c)", "at run time"),
        ("three", "off", "Identity (c)", "no step"),
        ("none", "on", "Identity (c)", "no step"),
        ("three", "on", "Identity (off)", "ends it"),
        ("three", "on", "Not (c)", "ends it"),
        ("three", "on", "Cast <to = 9> (half)", "ends it"),
        ("three", "on", "acme.Cast (c)", "ends it"),
        ("many", "on", "Identity (c)", "too many"),
        ("n", "on", "Identity (c)", ""),
        ("three", "on", "Cast <to = 9> (on)", ""),
        ("most", "", "Identity (c)", ""),
    ],
)
def test_what_is_not_sure_stays_a_loop(steps: str, begins: str, does: str, why: str) -> None:
    numbers = "<float h = {0.5}, int64 three = {3}, int64 none = {0}, int64 many = {257}, int64 most = {256}, "
    text = ONE.replace("<bool on", f"{numbers}bool on", 1)
    proto, rewritten, skips = unrolled(text.replace("STEPS", steps).replace("BEGINS", begins).replace("DOES", does))
    assert [why in skip for skip in skips] == ([True] if why else []), skips
    assert ("Loop" in {node.op_type for node in rewritten.graph.node}) is bool(why)
    if not why:
        np.testing.assert_array_equal(*(run(each, {"x": X})[0] for each in (proto, rewritten)))


def test_a_loop_without_sequences_stays() -> None:
    text = """(float[6,2] y) <int64 two = {2}, bool on = {1}> { y = Loop <body = b (int64 i, bool c, float[6,2] p) =>
        (bool d, float[6,2] q) { q = Neg (p)  d = Identity (c) }> (two, on, x) }"""
    assert [node.op_type for node in unrolled(text)[1].graph.node] == ["Loop"]


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("a = ReverseSequence (p, n)  q = Identity (a)", None),
        ("a = acme.SequenceAt (p)  q = Identity (a)", None),
        (
            "s = SequenceConstruct (p)  z = SequenceAt (s, i)  a = RandomNormalLike <seed = 1.0> (z)  q = Add (a, p)",
            "draws",
        ),
    ],
)
def test_what_is_no_sequence_or_draws_numbers_stays_a_loop(inside: str, why: str | None) -> None:
    text = f"""(float[6,2] y) <int64 two = {{2}}, bool on = {{1}}, int64[2] n = {{6, 3}}> {{
        y = Loop <body = b (int64 i, bool c, float[6,2] p) => (bool d, float[6,2] q)
            {{ {inside}  d = Identity (c) }}> (two, on, x) }}"""
    _, rewritten, skips = unrolled(text)
    assert [node.op_type for node in rewritten.graph.node] == ["Loop"]
    assert ["draws" in skip for skip in skips] == ([True] if why else [])


def test_loops_inside_loops_go_first() -> None:
    text = """(float[6,2] y) <int64 two = {2}, bool on = {1}> {
        y = Loop <body = b (int64 i, bool c, float[6,2] p) => (bool d, float[6,2] q) {
            n = Neg (p)  s = SequenceConstruct (p, n)  d = Identity (c)
            q = Loop <body = e (int64 j, bool f, float[6,2] r) => (bool g, float[6,2] o)
                { t = SequenceAt (s, j)  o = Sub (t, r)  g = Identity (f) }> (two, on, p) }> (two, on, x) }"""
    proto, rewritten, skips = unrolled(text)
    assert not skips and "Loop" not in {node.op_type for node in rewritten.graph.node}
    np.testing.assert_array_equal(*(run(each, {"x": X})[0] for each in (proto, rewritten)))


def test_weights_of_a_body_are_there_once() -> None:
    text = """(float[2] y) <int64 many = {100}, bool on = {1}, float[2] z = {1, 2}> {
        l = SplitToSequence <axis = 0, keepdims = 0> (x)  one = Constant <value_int = 1> ()
        y = Loop <body = b (int64 i, bool c, float[2] h) => (bool c, float[2] k) <float[2] w = {3, 4}>
            { a = SequenceAt (l, one)  k = Max (h, a, w) }> (many, on, z) }"""
    _, rewritten, _ = unrolled(text)
    assert sum(list(tensor.dims) == [2] and tensor.name.endswith("w") for tensor in rewritten.graph.initializer) == 1
