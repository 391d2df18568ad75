"""The other forms of nodes that a builder refuses compute the same."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.convolutions import convolution
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.spelling.other_forms import OTHER_FORMS, other_forms
from trtconv.runtimes.onnxruntime import compare_models


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(["Conv", "ConvTranspose"]),
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    kernel=st.integers(1, 4),
    bias=st.booleans(),
    form=st.sampled_from(sorted(OTHER_FORMS)),
    data=st.data(),
)
def test_each_form_computes_the_same(
    op: str, rank: int, groups: int, kernel: int, bias: bool, form: str, data: st.DataObject
) -> None:
    sizes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    strides, dilations = data.draw(sizes, "strides"), data.draw(sizes, "dilations")
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank), "pads")
    before = convolution(op, rank, groups, kernel=kernel, bias=bias, strides=strides, dilations=dilations, pads=pads)
    after = before.copy()
    done = run_passes(after, other_forms({"up": form}), Target("rtx"))
    if done.edits:
        compared = compare_models(before, after)
        # Where nothing is left of the result, neither runs.
        assert compared.max_relative_error is None or compared.max_relative_error < 1e-5
    else:
        assert {"plane": rank > 1, "groups": groups == 1, "conv": op == "Conv", "means": True}[form]


def normalization(rank: int, dtype: str = "float", opset: int = 17, epsilon: str = "") -> OnnxModel:
    """Returns an InstanceNormalization between other nodes, of so many axes whose sizes are of choice."""
    scales = "2, -0.5, 1" if dtype == "float" else "2, 0, 1"
    sizes = ",".join(["n", "3", *(f"d{axis}" for axis in range(rank - 2))])
    text = f"""<ir_version: 8, opset_import: ["": {opset}]> g ({dtype}[{sizes}] x) => ({dtype}[{sizes}] y)
    <{dtype}[3] s = {{{scales}}}, {dtype}[3] b = {{{scales}}}>
    {{ a = Neg (x)  [up] i = InstanceNormalization{epsilon} (a, s, b)  y = Relu (i) }}"""
    return OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))


@settings(max_examples=20, deadline=None)
@given(
    rank=st.integers(3, 5), opset=st.sampled_from([13, 17, 18, 22]), epsilon=st.sampled_from(["", " <epsilon = 0.5>"])
)
def test_a_normalisation_by_means_computes_the_same(rank: int, opset: int, epsilon: str) -> None:
    before = normalization(rank, opset=opset, epsilon=epsilon)
    after = before.copy()
    assert len(run_passes(after, other_forms({"up": "means"}), Target("rtx")).edits) == 1
    assert not after.has(["InstanceNormalization"])
    compared = compare_models(before, after)
    assert compared.max_relative_error is not None and compared.max_relative_error < 1e-5


@pytest.mark.parametrize(("rank", "dtype"), [(4, "float16"), (2, "float")])
def test_a_normalisation_whose_squares_may_overflow_or_that_has_no_axes_is_left(rank: int, dtype: str) -> None:
    model = normalization(rank, dtype)
    assert not run_passes(model, other_forms({"up": "means"}), Target("rtx")).edits
    assert model.has(["InstanceNormalization"])
