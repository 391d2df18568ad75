"""GridSample, written as Gathers: ONNX's own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from support.onnx_models import wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes

RTX, EIGHT, TEN = Target("rtx", (1, 7)), Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))


def model(feeds: dict[str, Any], opset: int, *, dynamic: bool = False, **attrs: Any) -> Any:
    """Returns a model of one GridSample."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(value.dtype),
            [f"{name}{axis}" if dynamic and axis != value.ndim - 1 else size for axis, size in enumerate(value.shape)]
            if name == "at"
            else [
                ("n" if axis == 0 else f"{name}{axis}") if dynamic else size for axis, size in enumerate(value.shape)
            ],
        )
        for name, value in feeds.items()
    ]
    nodes = [helper.make_node("GridSample", ["x", "at"], ["y"], **attrs)]
    made = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(feeds["x"].dtype), None)
    graph = helper.make_graph(nodes, "g", inputs, [made])
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", opset)])


def written(proto: onnx.ModelProto, target: Target) -> tuple[onnx.ModelProto, bool]:
    """Returns what the passes make of a model, and whether they wrote its GridSample."""
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, target)
    return rewritten.proto, "sample-by-gather" in {edit.pass_name for edit in done.edits}


@settings(max_examples=30)
@given(
    st.sampled_from(("nearest", "linear")),
    st.sampled_from(("zeros", "border", "reflection")),
    st.booleans(),
    st.lists(st.integers(1, 5), min_size=3, max_size=3),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 99),
)
def test_volumes(
    mode: str, padding: str, corners: bool, sides: list[int], batch: int, dynamic: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    at = random.uniform(-2.5, 2.5, (batch, 2, 3, 2, 3)).astype(np.float32)
    feeds = {"x": random.standard_normal((batch, 2, *sides)).astype(np.float32), "at": at}
    proto = model(feeds, 20, dynamic=dynamic, mode=mode, padding_mode=padding, align_corners=int(corners))
    rewritten, did = written(proto, EIGHT)
    assert did
    (want,) = session(proto, sized=False).run(None, feeds)
    (got,) = session(rewritten, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_images_are_left() -> None:
    feeds = {"x": np.zeros((1, 2, 5, 4), np.float32), "at": np.zeros((1, 3, 4, 2), np.float32)}
    for target in (RTX, EIGHT, TEN):
        assert not written(model(feeds, 16), target)[1]


@pytest.mark.parametrize("target", [RTX, TEN])
def test_volumes_stay_where_they_are_taken(target: Target) -> None:
    feeds = {"x": np.zeros((1, 2, 5, 4, 3), np.float32), "at": np.zeros((1, 3, 4, 2, 3), np.float32)}
    assert not written(model(feeds, 20), target)[1]


def test_half_precision() -> None:
    random = np.random.default_rng(5)
    at = random.uniform(-1, 1, (1, 2, 2, 2, 3)).astype(np.float16)
    feeds = {"x": random.standard_normal((1, 2, 3, 4, 5)).astype(np.float16), "at": at}
    rewritten, did = written(model(feeds, 20, mode="linear"), EIGHT)
    assert did
    (got,) = session(rewritten, sized=False).run(None, feeds)
    assert got.dtype == np.float16
    wide = {name: value.astype(np.float32) for name, value in feeds.items()}
    (want,) = session(model(wide, 20, mode="linear"), sized=False).run(None, wide)
    np.testing.assert_allclose(got, want, atol=5e-3)


@pytest.mark.parametrize(
    ("dtype", "mode", "count", "why"),
    [
        ("float32", "cubic", 3, "cubic"),
        ("uint8", "nearest", 3, "uint8"),
        ("float32", "linear", 2, "2 coordinates for 3 axes"),
        ("float32", "linear", 4, "4 coordinates for 3 axes"),
    ],
)
def test_samples_that_cannot_be_written_are_left(dtype: str, mode: str, count: int, why: str) -> None:
    feeds = {"x": np.zeros((1, 1, 2, 2, 2), dtype), "at": np.zeros((1, 1, 1, 1, count), np.float32)}
    done = run_passes(wrap(model(feeds, 20, mode=mode)), PASSES, EIGHT)
    assert any(why in skip.reason for skip in done.skipped)


@pytest.mark.parametrize("rank", [3, 4, 6])
def test_a_grid_of_another_rank_is_left(rank: int) -> None:
    at = np.zeros((1,) * (rank - 1) + (3,), np.float32)
    proto = model({"x": np.zeros((1, 1, 2, 2, 2), np.float32), "at": at}, 20, mode="linear")
    passes = [each for each in PASSES if each.name == "sample-by-gather"]
    done = run_passes(wrap(proto), passes, EIGHT)
    assert not done.edits
    assert [skip.reason for skip in done.skipped] == ["its grid has other axes than its input"]
