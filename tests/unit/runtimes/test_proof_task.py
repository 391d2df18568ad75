"""How closely a piece is looked at first: what its terms add up to is dear, and of few terms seldom needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.task import Look, adds, elements_read, first_look

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[1,c,8,8] x, float[2,c,2,2] k, bool b) => (y) '


@pytest.mark.parametrize(
    ("body", "shape", "look", "is_sum"),
    [
        ("y = Conv (x, w)", (2, 8, 2, 2), Look.VALUES, True),
        ("y = Conv (x, w)", (2, 11, 3, 1), Look.TERMS, True),
        ("y = Conv (x, k)", (1,), Look.TERMS, True),
        ("a = Relu (x)  y = ConvTranspose (a, w)", (2, 4, 3, 3), Look.TERMS, True),
        ("y = ReduceMean (x)", (1,), Look.TERMS, True),
        ("y = Mul (x, w)", (64,), Look.VALUES, True),
        ("y = MatMul (x, w)", (8, 64), Look.VALUES, True),
        ("y = Relu (x)", (1,), Look.VALUES, False),
        ("y = If <then_branch = t () => (u) { u = Add (x, x) }, else_branch = e () => (v) { v = Neg (x) }> (b)", (1,),
         Look.VALUES, True),
    ],
)  # fmt: skip
def test_sums_of_many_terms_are_looked_at_closer(body: str, shape: tuple[int, ...], look: Look, is_sum: bool) -> None:
    proto = onnx.parser.parse_model(f"{HEAD} {{ {body} }}")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), "w"))
    model = OnnxModel(proto, Path("m.onnx"))
    assert first_look(proto.graph.node, model.main) is look
    assert adds(proto.graph.node) is is_sum


def test_what_is_read_for_its_size_alone_counts_less() -> None:
    proto = onnx.parser.parse_model(f"{HEAD} {{ s = Shape (x)  t = Size (k)  u = Reshape (z, s)  y = Add (u, k) }}")
    shapes = {"x": (100, 100), "z": (2, 3), "k": (1,)}
    assert elements_read(proto.graph.node, shapes) == 1250 + 7
    assert elements_read(proto.graph.node[:2], shapes) == 1250
    inside = "y = If <then_branch = t () => (u) { u = Add (x, x) }, else_branch = e () => (v) { v = Neg (x) }> (b)"
    proto = onnx.parser.parse_model(f"{HEAD} {{ {inside} }}")
    assert elements_read(proto.graph.node, shapes) == 10_000
