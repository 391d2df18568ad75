"""What TensorRT's parser misreads in half types is written in what it reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes


def both(opset: int, text: str, **constants: Any) -> tuple[onnx.ModelProto, onnx.ModelProto, list[str]]:
    """Returns a model, what the passes make of it, and which ones edited it."""
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    rewritten = wrap(proto)
    edits = run_passes(rewritten, PASSES, RTX).edits
    return proto, rewritten.proto, [edit.pass_name for edit in edits]


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_mean_in_float16_is_taken_in_float32(count: int, seed: int) -> None:
    names = "abcd"[:count]
    inputs = ", ".join(f"float16[2,3] {name}" for name in names)
    proto, rewritten, edits = both(13, f"({inputs}) => (float16[2,3] y) {{ y = Mean ({', '.join(names)}) }}")
    assert edits == ["compute-in-float"]
    random = np.random.default_rng(seed)
    feeds = {name: random.standard_normal((2, 3)).astype(np.float16) for name in names}
    (expected,), (got,) = run(proto, feeds), run(rewritten, feeds)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "op", "edited"),
    [
        ("float16", "HardSwish", False),
        ("float", "Mean", False),
        *(("bfloat16", op, True) for op in ("GlobalLpPool", "HardSwish", "LpNormalization", "Mish", "Shrink", "Mean")),
    ],
)
def test_operators_are_computed_in_float32_where_their_type_is_lacked(dtype: str, op: str, edited: bool) -> None:
    _, rewritten, edits = both(22, f"({dtype}[1,2,4,4] x) => ({dtype}[1,2,p,q] y) {{ y = {op} (x) }}")
    assert edits == ["compute-in-float"] * edited
    ops = [node.op_type for node in rewritten.graph.node]
    assert ops == (["Cast", op, "Cast"] if edited else [op])


@pytest.mark.parametrize("dtype", ["float", "float16", "bfloat16"])
def test_a_variance_is_taken_in_float32(dtype: str) -> None:
    text = f"({dtype}[1,2,4,4] x) => ({dtype}[1,2,4,4] y) {{ y = MeanVarianceNormalization (x) }}"
    _, rewritten, edits = both(22, text)
    assert edits == ["compute-in-float"] * (dtype != "float") + ["centre-first"]
    assert [node.op_type for node in rewritten.graph.node].count("Cast") == (0 if dtype == "float" else 2)


LIMITS = {"float": np.float32, "float16": np.float16}


@given(
    st.sampled_from(sorted(LIMITS)),
    st.sampled_from([(True, False), (False, True), (False, False), (True, True)]),
    st.booleans(),
    st.floats(-3, 3, width=16),
    st.sampled_from(["", "2", "2,3"]),
)
def test_a_clip_of_one_limit_picks(
    dtype: str, ends: tuple[bool, bool], constant: bool, limit: float, dims: str
) -> None:
    low, high = "low" * ends[0], "high" * ends[1]
    kind = LIMITS[dtype]
    limits = {name: np.array(limit, kind) for name in (low, high) if name}
    shape = f"[{dims}]" if dims else ""
    fed = "".join(f", {dtype} {name}" for name in limits if not constant)
    text = f"({dtype}{shape} x{fed}) => ({dtype}{shape} y) {{ y = Clip (x, {low}, {high}) }}"
    proto, rewritten, edits = both(13, text, **(limits if constant else {}))
    left = all(ends) or (bool(low) and constant)
    assert edits == ["pick-by-one-limit"] * (not left) + ["settle-empty-names"] * (
        left and not proto.graph.node[0].input[-1]
    )
    values = np.random.default_rng(0).standard_normal([int(n) for n in dims.split(",") if n]) * 3
    feeds = {"x": np.asarray(values, kind), **({} if constant else limits)}
    for expected, got in zip(run(proto, feeds), run(rewritten, feeds), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("slots", "limit", "edits"), [("i", "inf", 0), (", i", "-inf", 0), ("i", "-inf", 1), (", i", "inf", 1)]
)
def test_a_clip_that_leaves_one_number_is_left(slots: str, limit: str, edits: int) -> None:
    text = f"(float[3] x) => (float[3] y) {{ i = Identity (limit)  y = Clip (x, {slots}) }}"
    proto, rewritten, done = both(13, text, limit=np.array(limit, np.float32))
    assert done.count("pick-by-one-limit") == edits
    x = np.array([-1, 0, 3], np.float32)
    np.testing.assert_array_equal(run(rewritten, {"x": x})[0], run(proto, {"x": x})[0])


def test_other_clips_are_left() -> None:
    assert both(13, "(int32[2] x, int32 high) => (int32[2] y) { y = Clip (x, , high) }")[2] == []
    assert both(10, "(float[2] x) => (float[2] y) { y = Clip <max = 1.0> (x) }")[2] == []
