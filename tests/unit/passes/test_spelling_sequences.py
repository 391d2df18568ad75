"""Sequences of tensors, as torch's older exporter writes unbind, stack, chunk and vstack."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes


def both(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Returns a model, and what the passes make of it."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    rewritten = wrap(proto)
    run_passes(rewritten, PASSES, RTX)
    return proto, rewritten.proto


def has_sequences(proto: onnx.ModelProto) -> bool:
    return any("Sequence" in node.op_type for node in proto.graph.node)


SPLITS = {
    "each": ("s = SplitToSequence <axis = 1> (x)", 6),
    "each, squeezed": ("s = SplitToSequence <axis = 1, keepdims = 0> (x)", 6),
    "one, squeezed": ("s = SplitToSequence <axis = 1, keepdims = 0> (x, one)", 6),
    "four": ("four = Constant <value_int = 4> ()  s = SplitToSequence <axis = -1> (x, four)", 2),
    "parts": ("p = Constant <value_ints = [1, 3, 2]> ()  s = SplitToSequence <axis = 1> (x, p)", 3),
    "more": ("t = SplitToSequence <axis = 1> (x)  c = Relu (x)  n = SequenceInsert (t, c)  s = SequenceErase (n)", 6),
    "built": ("e = SequenceEmpty ()  t = SequenceInsert (e, x)  r = Relu (x)  s = SequenceInsert (t, r, z)", 2),
    "before the last": ("m = Neg (one)  t = SequenceConstruct (x, x)  r = Relu (x)  s = SequenceInsert (t, r, m)", 3),
    "listed": ("r = Relu (x)  t = SequenceConstruct (x, r, x)  s = Identity (t)", 3),
}


@given(st.sampled_from(sorted(SPLITS)), st.data())
def test_what_is_taken_out_is_what_was_put_in(name: str, data: st.DataObject) -> None:
    body, count = SPLITS[name]
    at = data.draw(st.integers(-count, count - 1))
    take = data.draw(
        st.sampled_from(
            (
                "y = SequenceAt (s, at)",
                "y = ConcatFromSequence <axis = 1> (s)",
                "y = ConcatFromSequence <axis = -1, new_axis = 1> (s)",
                "y = ConcatFromSequence <axis = 0, new_axis = 1> (s)",
                "y = SequenceLength (s)",
            )
        )
    )
    # Stacked are tensors of one shape.
    uneven = name in ("four", "parts") or (name == "more" and "Concat" in take)
    if (uneven and "new_axis" in take) or ("squeezed" in name and "axis = 1>" in take):
        take = "y = SequenceLength (s)"
    kind = "int64" if "Length" in take else "float[]"
    text = (
        f"(float[2,6] x) => ({kind} y) <int64 at = {{{at}}}, int64 z = {{0}}, int64 one = {{1}}> {{ {body}  {take} }}"
    )
    proto, rewritten = both(text)
    if kind != "int64":
        for each in (proto, rewritten):
            each.graph.output[0].type.tensor_type.ClearField("shape")
    assert not has_sequences(rewritten)
    x = np.arange(-6, 6, dtype=np.float32).reshape(2, 6)
    if len(rewritten.graph.input) and "Length" not in take:
        (expected,), (got,) = run(proto, {"x": x}), run(rewritten, {"x": x})
        np.testing.assert_array_equal(got, expected)
    else:
        assert int(run(rewritten, {"x": x})[0]) == count


@pytest.mark.parametrize(
    "body",
    [
        # As many as an input says, or as a dynamic axis is long.
        "s = SplitToSequence <axis = 1> (x, n)  y = SequenceAt (s, z)",
        "s = SplitToSequence <axis = 0> (x)  y = SequenceAt (s, z)",
        "s = SplitToSequence <axis = 1> (x)  y = SequenceAt (s, n)",
        # There are only six.
        "s = SplitToSequence <axis = 1> (x)  y = SequenceAt (s, far)",
    ],
)
def test_what_only_the_run_knows_is_left(body: str) -> None:
    text = f"(float[m,6] x, int64 n) => (float[p,q] y) <int64 z = {{0}}, int64 far = {{6}}> {{ {body} }}"
    assert has_sequences(both(text)[1])


def test_of_a_long_sequence_each_takes_what_it_wants() -> None:
    parts = "  ".join(f"y{i} = SequenceAt (s, n{i})" for i in range(0, 300, 3))
    numbers = ", ".join(f"int64 n{i} = {{{i}}}" for i in range(0, 300, 3))
    outputs = ", ".join(f"float[4] y{i}" for i in range(0, 300, 3))
    _, rewritten = both(
        f"(float[300,4] x) => ({outputs}) <int64 one = {{1}}, {numbers}>"
        f" {{ s = SplitToSequence <axis = 0, keepdims = 0> (x, one)  {parts} }}"
    )
    assert not has_sequences(rewritten) and len(rewritten.graph.node) <= 4 * 100
    x = np.arange(1200, dtype=np.float32).reshape(300, 4)
    np.testing.assert_array_equal(np.stack(run(rewritten, {"x": x})), x[::3])


def test_a_sequence_of_many_steps() -> None:
    steps = "  ".join(f"s{i + 1} = SequenceInsert (s{i}, x)" for i in range(1500))
    body = f"s0 = SequenceEmpty ()  {steps}  y = ConcatFromSequence <axis = 0, new_axis = 1> (s1500)"
    _, rewritten = both(f"(float[2] x) => (float[p,q] y) {{ {body} }}")
    assert not has_sequences(rewritten)
    assert run(rewritten, {"x": np.ones(2, np.float32)})[0].shape == (1500, 2)


@pytest.mark.parametrize("take", ["y = ConcatFromSequence <axis = 0> (s)", "y = SequenceAt (s, at)"])
def test_a_sequence_of_nothing_is_left(take: str) -> None:
    text = f"(float[2] x) => (float[p] y) <int64 at = {{0}}> {{ s = SequenceEmpty ()  {take} }}"
    assert has_sequences(both(text)[1])
