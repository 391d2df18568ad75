"""The other forms of nodes that a builder refuses compute the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from support.convolutions import convolution
from trtconv.core.target import Target
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
        assert {"plane": rank > 1, "groups": groups == 1, "conv": op == "Conv"}[form]
