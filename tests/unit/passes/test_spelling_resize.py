"""Resizes that TensorRT lacks, as matrices and Gather: ONNX's own numbers, at every mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import parse, wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.graph.interpolation import Interpolation, ResizedAxis, coordinates, weights
from trtconv.passes import PASSES, run_passes

RTX, EIGHT = Target("rtx", (1, 7)), Target("tensorrt", (8, 6))
MODES = (
    "half_pixel",
    "asymmetric",
    "pytorch_half_pixel",
    "align_corners",
    "half_pixel_symmetric",
    "tf_crop_and_resize",
)


def model(shape: list[int], roi: Any, scales: Any, sizes: Any, **attrs: Any) -> Any:
    given = {"roi": roi, "scales": scales, "sizes": sizes}
    types = {"roi": np.float32, "scales": np.float32, "sizes": np.int64}
    initializers = [numpy_helper.from_array(np.array(v, types[k]), k) for k, v in given.items() if v is not None]
    names = [key if value is not None else "" for key, value in given.items()]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node("Resize", ["x", *names], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 19)])


@given(
    st.sampled_from(MODES),
    st.sampled_from(("linear", "cubic", "nearest")),
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.booleans(),
    st.sampled_from(("stretch", "not_larger", "not_smaller")),
    st.sampled_from(("sizes", "scales")),
)
def test_every_form_of_resize(
    mode: str,
    kernel: str,
    rounding: str,
    before: tuple[int, int],
    after: tuple[int, int],
    antialias: bool,
    policy: str,
    by: str,
) -> None:
    attrs: dict[str, Any] = {"coordinate_transformation_mode": mode, "mode": kernel, "axes": [3, 2]}
    attrs |= {"nearest_mode": rounding} if kernel == "nearest" else {"antialias": int(antialias)}
    sizes, scales = None, [(a + 0.01) / b for a, b in zip(after, before, strict=True)]
    if by == "sizes":
        sizes, scales, attrs = list(after), None, {**attrs, "keep_aspect_ratio_policy": policy}
    roi = [0.1, 0.2, 0.7, 0.9] if mode == "tf_crop_and_resize" else None
    for size, count, scale in zip(before, after, scales or [], strict=False):
        at = coordinates(ResizedAxis(size, count, float(np.float32(scale))), mode)
        # ONNX's reference takes the wrong neighbour where a coordinate is off an element by the last bit of a float.
        assume(not np.any((at != np.round(at)) & np.isclose(at, np.round(at), atol=1e-9)))
    proto = model([1, 2, before[1], before[0]], roi, scales, sizes, **attrs)
    x = np.random.default_rng(0).standard_normal((1, 2, before[1], before[0])).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    if not done.edits:
        return
    assert not any(True for _ in rewritten.nodes("Resize"))
    (got,) = ReferenceEvaluator(rewritten.proto).run(None, {"x": x})
    assert got.shape == expected.shape
    if kernel == "nearest":
        # What lies just between two elements is rounded by the last bit of a float.
        assert np.sum(got != expected) <= got.size / 2
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 12), st.integers(1, 12), st.booleans(), st.sampled_from(("linear", "cubic")))
def test_rows_sum_to_one(size: int, count: int, antialias: bool, mode: str) -> None:
    matrix = weights(ResizedAxis(size, count, count / size), Interpolation(mode=mode, antialias=antialias))
    assert matrix.shape == (count, size)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)


def test_what_tensorrt_has_stays() -> None:
    proto = model([1, 1, 4, 4], None, [1, 1, 2, 2], None, mode="linear")
    assert not run_passes(wrap(proto), PASSES, RTX).edits


@given(
    st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.booleans(),
)
def test_nearest_neighbours_of_tensorflow(rounding: str, sizes: tuple[int, int], is_known: bool) -> None:
    before, after = sizes
    at = (2 * np.arange(after) + 1) * before / (2 * after)
    # Between two neighbours the last bit of a float decides.
    assume(rounding in ("floor", "ceil") or not np.any(at % 1 == 0.5))
    assume(before == after or not np.any(np.isclose((at + 0.25) % 0.5, 0.25, atol=1e-6)))
    attrs = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest", "nearest_mode": rounding}
    proto = model([1, 1, 1, before if is_known else None], None, None, [1, 1, 1, after], **attrs)
    rewritten = wrap(proto)
    edits = run_passes(rewritten, PASSES, RTX).edits
    if rounding == "round_prefer_floor" or (rounding != "floor" and not is_known):
        assert not edits
        return
    (edit,) = edits
    # Beside half an element more, what lies on one lies halfway between two.
    is_even = is_known and before != after and bool(np.any(at % 1 == 0))
    assert (
        "half_pixel" in edit.what if rounding == "floor" and not is_even else "half_pixel" not in edit.what or is_even
    )
    x = np.arange(before, dtype=np.float32).reshape(1, 1, 1, -1)
    (expected,), (got,) = (session(each).run(None, {"x": x}) for each in (proto, rewritten.proto))
    np.testing.assert_array_equal(got, expected)


def test_dynamic_sizes_of_axes_that_stay_are_fine() -> None:
    text = """(float[N,C,4,6] x) => (float[N,C,2,3] y) <float[4] s = {1, 1, 0.5, 0.5}>
    { y = Resize <antialias = 1, mode = "cubic"> (x, , s) }"""
    proto = parse(f'<ir_version: 8, opset_import: ["": 18]> g {text}')
    rewritten = wrap(proto)
    assert "resize-by-matrix" in {edit.pass_name for edit in run_passes(rewritten, PASSES, EIGHT).edits}
    assert rewritten.opset == 17
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype(np.float32)
    (expected,), (got,) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (proto, rewritten.proto))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        """(float[1,1,4,4] x) => (float[1,1,8,4] y) <float[1] s = {2}>
        { y = Resize <axes = [2], mode = "linear"> (x, , s) }""",
        """(float[1,1,4,4] x) => (float[1,1,8,4] y) <int64[1] s = {8}>
        { y = Resize <axes = [2], mode = "nearest"> (x, , , s) }""",
        """(float[1,1,4,4] x) => (float[1,1,7,4] y) <int64[2] p = {1, 2}, int64[1] a = {-2}>
        { y = Pad (x, p, , a) }""",
    ],
)
def test_axes_are_written_out_for_opset_17(text: str) -> None:
    proto = parse(f'<ir_version: 8, opset_import: ["": 18]> g {text}')
    rewritten = wrap(proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, EIGHT).edits] == ["lower-opset"]
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype(np.float32)
    (expected,), (got,) = (ReferenceEvaluator(each).run(None, {"x": x}) for each in (proto, rewritten.proto))
    np.testing.assert_allclose(got, expected, rtol=1e-5)
