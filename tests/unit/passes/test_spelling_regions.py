"""RoiAlign and DeformConv, written as products and samples: ONNX's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from support.onnx_models import wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX, EIGHT = Target("rtx", (1, 7)), Target("tensorrt", (8, 6))


def model(op: str, feeds: dict[str, Any], opset: int, shapes: dict[str, Any], **attrs: Any) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shapes.get(name, value.shape))
        for name, value in feeds.items()
    ]
    names = [name if name in feeds else "" for name in ("x", "w", "move", "bias", "mask")] if "w" in feeds else [*feeds]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        inputs,
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", opset)])


@given(
    st.sampled_from((11, 16, 22)),
    st.sampled_from(("half_pixel", "output_half_pixel")),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from((1.0, 0.5, 0.3)),
    st.booleans(),
)
def test_regions(
    opset: int, mode: str, bins: tuple[int, int], samples: int, batch: int, scale: float, dynamic: bool
) -> None:
    random = np.random.default_rng(3)
    begin = random.uniform(-6, 12, (4, 2))
    rois = np.concatenate([begin, begin + random.uniform(-2, 14, (4, 2))], 1).astype(np.float32)
    x = random.standard_normal((batch, 2, 5, 7)).astype(np.float32)
    feeds = {"x": x, "rois": rois, "at": random.integers(0, batch, 4)}
    sizes = {"x": ["n", 2, "h", "w"], "rois": ["r", 4], "at": ["r"]} if dynamic else {}
    attrs: dict[str, Any] = {"output_height": bins[0], "output_width": bins[1], "sampling_ratio": samples}
    attrs |= {"spatial_scale": scale} | ({"coordinate_transformation_mode": mode} if opset >= 16 else {})
    proto = model("RoiAlign", feeds, opset, sizes, **attrs)
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    assert "regions-by-matrix" in {edit.pass_name for edit in done.edits}
    # ONNX Runtime knows no later version than that of opset 16, which means the same.
    proto.opset_import[0].version = min(opset, 16)
    (want,) = session(proto, sized=False).run(None, feeds)
    (got,) = session(rewritten.proto, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "why"), [({"sampling_ratio": 0}, "samples"), ({"mode": "max", "sampling_ratio": 2}, "max")]
)
def test_regions_that_cannot_be_written_are_left(attrs: dict[str, Any], why: str) -> None:
    feeds = {"x": np.zeros((1, 1, 4, 4), np.float32), "rois": np.zeros((1, 4), np.float32), "at": np.zeros(1, np.int64)}
    done = run_passes(wrap(model("RoiAlign", feeds, 16, {}, **attrs)), PASSES, EIGHT)
    assert any(why in skip.reason for skip in done.skipped)


def check_moved_taps(proto: onnx.ModelProto, feeds: dict[str, Any]) -> None:
    """A DeformConv is written otherwise, and means what the reference computes."""
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, RTX)
    assert "deform-by-samples" in {edit.pass_name for edit in done.edits}
    (want,) = ReferenceEvaluator(proto).run(None, feeds)
    (got,) = session(rewritten.proto, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# ONNX's reference of DeformConv is a Python loop over all taps.
@settings(max_examples=25)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from((1, 2)),
    st.sampled_from((1, 2)),
    st.booleans(),
    st.booleans(),
    st.sampled_from((19, 22)),
)
def test_moved_taps(
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int],
    dilations: tuple[int, int],
    group: int,
    offset_group: int,
    masked: bool,
    biased: bool,
    opset: int,
) -> None:
    random = np.random.default_rng(5)
    sizes = [
        (size + 2 * pad - (k - 1) * dilation - 1) // stride + 1
        for size, pad, k, dilation, stride in zip((5, 6), pads, kernel, dilations, strides, strict=True)
    ]
    taps = kernel[0] * kernel[1] * offset_group
    feeds = {"x": random.standard_normal((2, 4, 5, 6)), "w": random.standard_normal((2, 4 // group, *kernel))}
    feeds["move"] = random.uniform(-3, 3, (2, 2 * taps, *sizes))
    feeds |= {"bias": random.standard_normal(2)} if biased else {}
    feeds |= {"mask": random.uniform(0, 1, (2, taps, *sizes))} if masked else {}
    feeds = {name: value.astype(np.float32) for name, value in feeds.items()}
    attrs = {"strides": strides, "pads": [*pads, *pads], "dilations": dilations, "kernel_shape": kernel}
    batches = {name: ["n", *feeds[name].shape[1:]] for name in ("x", "move", "mask") if name in feeds}
    proto = model("DeformConv", feeds, opset, batches, group=group, offset_group=offset_group, **attrs)
    check_moved_taps(proto, feeds)


def test_moved_taps_without_attributes() -> None:
    random = np.random.default_rng(6)
    sizes = {"x": (1, 2, 5, 6), "w": (2, 2, 3, 2), "move": (1, 12, 3, 5)}
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    proto = model("DeformConv", feeds, 19, {})
    check_moved_taps(proto, feeds)
