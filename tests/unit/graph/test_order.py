"""Nodes that stand before what they read, as converters write them: shapes are known behind them all the same."""

from __future__ import annotations

from pathlib import Path

import onnx.parser
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.graph.node_order import in_order, is_in_order

HEADER = '<ir_version: 8, opset_import: ["": 17]> '
CHAIN = "g (float[2,h,4] x) => (float[a,b,c] y) {{ {} }}"
IF = """g (float[2,h,4] x, bool c) => (float[a,b,d] y) {{ {} }}"""
BRANCHES = """y = If (c) <then_branch = p () => (float[e,f,k] r) {{ {} }}, else_branch = q () => (float[i,j,l] s)
    { s = Neg (u) }>""".replace("{{ {} }}", "{ r = Relu (t)  t = Cast <to = 1> (u) }")
UNORDERED = {
    "a chain": CHAIN.format("y = Relu (t)  t = Cast <to = 1> (u)  u = Transpose <perm = [0, 2, 1]> (x)"),
    "what branches read": IF.format(f"{BRANCHES}  u = Transpose <perm = [0, 2, 1]> (x)"),
    "in a branch": IF.format(f"u = Transpose <perm = [0, 2, 1]> (x)  {BRANCHES}"),
}


def model(text: str) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(HEADER + text), Path("m.onnx"))


def is_ordered(network: OnnxModel) -> bool:
    return all(is_in_order(scope.producers, scope.columns) for scope in network.scopes)


@pytest.mark.parametrize("name", UNORDERED)
def test_shapes_are_known_behind_nodes_in_any_order(name: str) -> None:
    unordered = model(UNORDERED[name])
    before = unordered.proto.SerializeToString()
    assert not is_ordered(unordered)
    assert unordered.main.shape("y") == (2, 4, None)
    assert unordered.proto.SerializeToString() == before
    ordered = OnnxModel(onnx.ModelProto.FromString(in_order(before)), Path("m.onnx"))
    assert is_ordered(ordered)


def test_what_is_in_order_is_left() -> None:
    assert is_ordered(model(CHAIN.format("t = Relu (x)  y = Neg (t)")))
