"""Nodes of a newer opset, written for an older one: the same result, or the reason why there is none."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from support.onnx_models import parse, wrap
from support.session import run
from trtconv.graph.older_opset import LOWERED, lowered


def older(text: str) -> onnx.ModelProto | str:
    """Returns a model with one node as it is in the older opset, or why it has none there."""
    model = wrap(parse(text))
    (node,) = model.proto.graph.node
    changes = lowered(model.main, node, model.opset)
    if isinstance(changes, str):
        return changes
    for change in changes:
        change()
    for opset in model.proto.opset_import:
        opset.version = LOWERED
    return model.proto


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_split_into_parts_has_the_same_parts(parts: int, axis: int) -> None:
    outputs = ", ".join(f"float[a{n},b{n}] y{n}" for n in range(parts))
    names = ", ".join(f"y{n}" for n in range(parts))
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[7,10] x) => ({outputs})
        {{ {names} = Split <axis = {axis}, num_outputs = {parts}> (x) }}"""
    model = older(text)
    assert not isinstance(model, str)
    x = np.random.default_rng(0).normal(size=(7, 10)).astype(np.float32)
    expected = run(parse(text), {"x": x})
    got = run(model, {"x": x})
    assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True))


def test_a_split_of_a_size_that_is_not_known_says_so() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[n,10] x) => (float[a,10] y, float[b,10] z)
        { y, z = Split <axis = 0, num_outputs = 2> (x) }"""
    assert older(text) == "the size that it splits is not known"


@pytest.mark.parametrize("axes", ["{0}", "{1,-1}", None])
def test_a_reduction_over_axes_that_were_an_input_is_the_same(axes: str | None) -> None:
    stored = "" if axes is None else f"<int64[{axes.count(',') + 1}] axes = {axes}>"
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[2,3,4] x) => (float[a,b,c] y) {stored}
        {{ y = ReduceMax (x{"" if axes is None else ", axes"}) }}"""
    model = older(text)
    assert not isinstance(model, str)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    assert np.array_equal(run(parse(text), {"x": x})[0], run(model, {"x": x})[0])
