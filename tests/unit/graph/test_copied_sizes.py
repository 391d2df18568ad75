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
