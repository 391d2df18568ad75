"""Sizes that a model takes from copies of its constants, as torch's older exporter writes what several layers share."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.graph.model import OnnxModel

HEAD = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,8,8] x, float[96] k, float[2,3,4,4] v, bool c) => (float[a,b,d,e] y)"""
MAIN = "{ to = Identity (sizes) w = Reshape (k, to) y = Conv (x, w) }"
INSIDE = """{ y = If (c) <
    then_branch = g1 () => (float[i,j,k,l] t) { to = Identity (sizes) w = Reshape (k, to) t = Conv (x, w) },
    else_branch = g2 () => (float[i,j,k,l] e) { e = Conv (x, v) }> }"""


def shapes(sizes: list[int], body: str, position: int = 0) -> dict[str, tuple[int | None, ...]]:
    values = ", ".join(map(str, sizes))
    model = onnx.parser.parse_model(f"{HEAD} <int64[{len(sizes)}] sizes = {{{values}}}> {body}")
    before = model.SerializeToString()
    scopes = OnnxModel(model, Path("m.onnx")).scopes
    known = dict(scopes[position].shapes)
    assert model.SerializeToString() == before, "what was asked for sizes is as it was"
    return known


@pytest.mark.parametrize(("body", "position"), [(MAIN, 0), (INSIDE, 1)])
def test_they_are_known(body: str, position: int) -> None:
    assert shapes([2, 3, 4, 4], body, position)["w"] == (2, 3, 4, 4)


def test_long_constants_are_no_sizes() -> None:
    assert set(shapes([1] * 65, MAIN).get("w", ())) <= {None}


def test_what_a_body_takes_is_not_the_constant_of_that_name() -> None:
    body = """{ y = Loop (two, on, x) <body = b (int64 i, bool c, float[a,b,d,e] sizes) => (bool g, float[j,k,l,m] o) {
        g = Identity (c) t = Identity (sizes) o = Relu (t) }> }"""
    text = HEAD.replace("float[2,3,4,4] v, bool c", "int64 two, bool on") + f" <int64[4] sizes = {{1, 1, 3, 8}}> {body}"
    scopes = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")).scopes
    assert scopes[0].initializer("sizes") is not None and scopes[0].constant("sizes") is not None
    assert scopes[1].initializer("sizes") is None and scopes[1].constant("sizes") is None
    assert scopes[1].shapes.get("t") != (4,)
