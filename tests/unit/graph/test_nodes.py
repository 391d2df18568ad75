"""What is read out of protobuf once stays true while a graph is edited."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from support.onnx_models import RTX, parse
from trtconv.graph.editor import Field, close_all
from trtconv.graph.model import OnnxModel
from trtconv.graph.nodes import Columns
from trtconv.passes import PASSES, run_passes

READ = ("names", "ops", "domains", "inputs", "outputs", "attributes")


def chain(length: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], f"n{i}") for i in range(length)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("t0", 1, [2])], [value(f"t{length}", 1, [2])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def assert_true(model: OnnxModel) -> None:
    """Holds everything that is remembered to what the protobuf says."""
    fresh = OnnxModel(model.proto, model.path)
    assert len(model.scopes) == len(fresh.scopes)
    for mine, theirs in zip(model.scopes, fresh.scopes, strict=True):
        assert mine.graph is theirs.graph
        assert mine.columns.nodes == list(mine.graph.node)
        for part in READ:
            assert getattr(mine.columns, part) == getattr(theirs.columns, part)
        for derived in ("initializers", "producers", "by_op"):
            assert getattr(mine, derived) == getattr(theirs, derived)
    # An empty count is one that is no longer there.
    assert +Counter({k: v for k, v in model.whole.uses.items() if k}) == Counter(
        {k: v for k, v in fresh.whole.uses.items() if k}
    )


@given(st.dictionaries(st.integers(0, 11), st.integers(0, 3), max_size=12), st.data())
def test_columns_follow_any_replacement(made: dict[int, int], data: st.DataObject) -> None:
    nodes = list(chain(12).graph.node)
    columns = Columns(nodes)
    after: list[onnx.NodeProto] = []
    for index, node in enumerate(nodes):
        new = [helper.make_node("Abs", [f"a{index}_{n}"], [f"b{index}_{n}"]) for n in range(made.get(index, 1))]
        after += new if index in made else [node]
    columns.replace(made, after)
    wanted = Columns(after)
    assert columns.nodes == after
    for part in READ:
        assert getattr(columns, part) == getattr(wanted, part)


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 3), min_size=1, max_size=10))
def test_a_model_stays_true_when_nodes_become_several(made: dict[int, int]) -> None:
    model = OnnxModel(chain(10), Path("m.onnx"))
    _ = model.whole.uses
    field = Field(model, model.main, {"Relu"}, lambda index: index in made)
    for node in list(field.candidates):
        number = made[int(node.name[1:])]
        output, tensor, nodes = node.outputs[0], node.inputs[0], [node]
        node.outputs.clear()
        for step in range(number):
            nodes.append(field.node("Neg", f"{node.name}/{step}", [tensor], output if step == number - 1 else "mid"))
            tensor = nodes[-1].outputs[0]
        field.replace(node, nodes[1:])
    assert field.close()
    assert len(model.proto.graph.node) == 10 + sum(made.values()) - len(made)
    onnx.checker.check_model(model.proto)
    assert_true(model)


def test_graphs_inside_a_graph_are_edited_together_and_stay_where_they_are() -> None:
    body = "float[1,1,8,8] {out} ) {{ {out} = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, {w}) }}"
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,4,4] x, bool c) => (float[1,1,p,q] y)
        <float[1,1,2,2] w = {1,2,3,4}, float[1,1,2,2] v = {1,2,3,4}> {
            a = If (c) <then_branch = t () => (THEN, else_branch = e () => (ELSE>
            b = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w)
            y = Add (a, b) }"""
    then, other = body.format(out="p", w="v"), body.format(out="q", w="v")
    proto = parse(text.replace("THEN", then).replace("ELSE", other))
    model = OnnxModel(proto, Path("m.onnx"))
    before = [scope.graph for scope in model.scopes]
    assert len(run_passes(model, PASSES, RTX).edits) == 3
    assert all(mine.graph is old for mine, old in zip(model.scopes, before, strict=True))
    # The last use of both weights, one of them from inside the branches, went.
    assert not {tensor.name for tensor in proto.graph.initializer} & {"w", "v"}
    assert_true(model)
    assert not close_all([Field(model, scope, {"ConvTranspose"}) for scope in model.scopes])


def test_types_of_codes_that_other_nodes_make_now_are_forgotten() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
        <float s = {0.5}, int8 z = {0}, uint8 u = {0}, int8[2] q, int8[2] kept, float[2] d> {
        q = QuantizeLinear (x, s, z)  kept = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)  e = DequantizeLinear (kept, s, z)  y = Add (d, e) }"""
    model = OnnxModel(parse(text), Path("m.onnx"))
    field = Field(model, model.main, {"QuantizeLinear", "DequantizeLinear"}, lambda index: index in (0, 2))
    for node in list(field.candidates):
        field.replace(node, [node])
    assert field.close()
    assert sorted(value.name for value in model.proto.graph.value_info) == ["d", "kept"]


@pytest.mark.parametrize(
    ("attribute", "opened"),
    [
        ({"auto_pad": "VALID"}, True),
        ({"auto_pad": b"\xff\xfe"}, False),
        ({"strides": [1, 1]}, True),
        ({"group": 1}, True),
        ({"other": np.zeros(2, np.float32)}, False),
    ],
)
def test_nodes_are_opened_where_nothing_of_them_is_lost(attribute: dict[str, Any], opened: bool) -> None:
    values = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in attribute.items()}
    proto = chain(1)
    proto.graph.node.append(helper.make_node("Conv", ["t0", "t1"], ["c"], "conv", **values))
    model = OnnxModel(proto, Path("m.onnx"))
    field = Field(model, model.main, {"Conv", "Relu"})
    assert [node.op for node in field.candidates] == (["Relu", "Conv"] if opened else ["Relu"])


def test_a_list_without_entries_is_not_opened() -> None:
    proto = chain(1)
    proto.graph.node.append(helper.make_node("Conv", ["t0", "t1"], ["c"], "conv"))
    proto.graph.node[1].attribute.add(name="strides", type=onnx.AttributeProto.INTS)
    model = OnnxModel(proto, Path("m.onnx"))
    assert [node.op for node in Field(model, model.main, {"Conv", "Relu"}).candidates] == ["Relu"]
