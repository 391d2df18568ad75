"""Shapes of what ONNX Runtime's operators compute, which ONNX's inference does not know."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from trtconv.graph.model import OnnxModel

MICROSOFT = "com.microsoft"
Shape = tuple[int | None, ...]


def model(nodes: str, inputs: str = "float[2,3] x, float[3] g, float[1,3,8,8] i, float[4,3,3,3] w") -> OnnxModel:
    head = f'<ir_version: 8, opset_import: ["": 17, "{MICROSOFT}": 1]> m ({inputs}) => (float[a,b] y) '
    return OnnxModel(onnx.parser.parse_model(f"{head} {{ {nodes} }}"), Path("m.onnx"))


def shapes(nodes: str, position: int = 0) -> dict[str, Shape]:
    return dict(model(nodes).scopes[position].shapes)


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding"])
def test_results_like_the_first_input(op: str) -> None:
    assert shapes(f"t = {MICROSOFT}.{op} (x, g) y = Relu (t)")["t"] == (2, 3)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_and_the_norm_but_no_statistics(op: str) -> None:
    nodes = f"t, mean, variance, s = {MICROSOFT}.{op} (x, x, g, g) u = Relu (mean) y = Add (t, s)"
    known = shapes(nodes)
    assert (known["t"], known["s"]) == ((2, 3), (2, 3))
    assert not {"mean", "variance", "u"} & {name for name, shape in known.items() if shape}


def test_a_norm_that_stands_in_the_domain_of_onnx() -> None:
    assert shapes("t = SimplifiedLayerNormalization <axis = -1> (x, g) y = Relu (t)")["t"] == (2, 3)


def test_what_follows_a_convolution_or_a_product_leaves_its_shape() -> None:
    attributes = 'strides = [2, 2], activation = "Clip", activation_params = [0.0, 1.0]'
    nodes = f"t = {MICROSOFT}.FusedConv <{attributes}> (i, w, b, z) u = Relu (t) y = Identity (x)"
    assert shapes(nodes)["t"] == shapes(nodes)["u"] == (1, 4, 3, 3)
    assert shapes(f'y = {MICROSOFT}.FusedGemm <activation = "Relu", transB = 1> (x, x)')["y"] == (2, 2)


def test_a_long_chain_is_known_to_its_end() -> None:
    chain = "t0 = Relu (x) " + " ".join(f"t{n} = {MICROSOFT}.QuickGelu (t{n - 1})" for n in range(1, 30))
    assert shapes(f"{chain} y = Relu (t29)")["t29"] == (2, 3)


def test_other_operators_of_these_names_are_left() -> None:
    proto = model(f"t = {MICROSOFT}.QuickGelu (x) y = Relu (t)").proto
    proto.graph.node[0].domain = "some.other"
    assert not OnnxModel(proto, Path("m.onnx")).scopes[0].shapes.get("t")


def test_inside_a_branch_beside_copies_of_sizes() -> None:
    """Nodes that take the place of one are more than one: what is found by its position is found before."""
    branch = (
        f"t, , , s = {MICROSOFT}.SkipLayerNormalization (x, x, g, g) "
        "to = Identity (sizes) u = Reshape (s, to) v = Add (t, s)"
    )
    inputs = "float[2,3] x, float[3] g, bool c"
    head = f'<ir_version: 8, opset_import: ["": 17, "{MICROSOFT}": 1]> m ({inputs}) => (float[a,b] y)'
    branches = (
        f"then_branch = p () => (float[e,f] u) {{ {branch} }}, else_branch = q () => (float[e,f] r) {{ r = Relu (x) }}"
    )
    outer = f"o, , , k = {MICROSOFT}.SkipLayerNormalization (x, x, g, g) y = If (c) <{branches}>"
    text = f"{head} <int64[2] sizes = {{3, 2}}> {{ {outer} }}"
    scopes = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")).scopes
    assert [scopes[1].shapes[name] for name in "tsuv"] == [(2, 3), (2, 3), (3, 2), (2, 3)]


def test_a_node_with_a_graph_inside_keeps_its_place() -> None:
    body = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    )
    proto = model(f"t = {MICROSOFT}.QuickGelu (x) u = Relu (t) y = Reshape (u, g)").proto
    proto.graph.node[0].attribute.append(helper.make_attribute("strange", body))
    scopes = OnnxModel(proto, Path("m.onnx")).scopes
    assert len(scopes) == 2
    assert scopes[0].shapes["x"] == (2, 3)
