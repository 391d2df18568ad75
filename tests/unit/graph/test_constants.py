"""A constant is the same however it is spelled and wherever it stands: for rules, passes, the lattice and the cast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX
from trtconv.core import budget
from trtconv.graph.folding import evaluate
from trtconv.graph.model import OnnxModel
from trtconv.graph.walk import constant_of, reads
from trtconv.passes import PASSES, run_passes
from trtconv.precision import casting
from trtconv.precision.schemas import HALF
from trtconv.rules import run_rules
from trtconv.shapes.lattice import Sizes

SPELLINGS = {
    "initializer": 0.0,
    "value": 0.0,
    "value_float": 0.0,
    "value_floats": [0.0],
    "value_int": 0,
    "value_ints": [0],
}
"""How a number may be written, with one of the kind that it can be."""
FLOATS = ("initializer", "value", "value_float", "value_floats")
INTEGERS = ("initializer", "value", "value_int", "value_ints")
PLACES = ("main", "if", "outer", "function")
"""Where the constant and who reads it stand: together in a graph, or the constant in the graph around a branch."""
EVERYWHERE = pytest.mark.parametrize("place", PLACES)


def spell(spelling: str, values: np.ndarray) -> tuple[list[onnx.NodeProto], list[TensorProto]]:
    """Writes the constant "c": its node, or its initializer."""
    tensor = numpy_helper.from_array(values, "c")
    if spelling == "initializer":
        return [], [tensor]
    given: Any = tensor if spelling == "value" else values.reshape(-1).tolist()
    if spelling in ("value_float", "value_int"):
        given = given[0]
    return [helper.make_node("Constant", [], ["c"], **{spelling: given})], []


def build(
    place: str, spelling: str, values: np.ndarray, users: list[onnx.NodeProto], **others: np.ndarray
) -> OnnxModel:
    """Makes a model that reads the constant "c" and the input "x", and whose output is what the users call "y".

    Args:
        place: One of `PLACES`.
        spelling: One of `SPELLINGS`.
        values: Of the constant.
        users: Nodes that read it.
        **others: Further initializers of the main graph.
    """
    nodes, weights = spell(spelling, values)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", [4]), ("y", ["n"])))
    kept = [numpy_helper.from_array(array, name) for name, array in others.items()]
    functions = []
    if place == "function":
        given = ["x", *others, *(tensor.name for tensor in weights)]
        opsets = [helper.make_opsetid("", 17)]
        functions = [helper.make_function("own", "F", given, ["y"], [*nodes, *users], opsets)]
        nodes, kept = [helper.make_node("F", given, ["y"], domain="own")], kept + weights
    elif place == "main":
        nodes, kept = [*nodes, *users], kept + weights
    else:
        inner, outer = (nodes, []) if place == "if" else ([], nodes)
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in users]
        copied[-1].output[0] = result.name = "result"
        then = helper.make_graph([*inner, *copied], "then", [], [result], weights if place == "if" else [])
        same = helper.make_tensor_value_info("same", TensorProto.FLOAT, None)
        other = helper.make_graph([helper.make_node("Identity", ["x"], ["same"])], "else", [], [same])
        nodes = [*outer, helper.make_node("If", ["p"], ["y"], then_branch=then, else_branch=other)]
        kept += [numpy_helper.from_array(np.array(True), "p"), *([] if place == "if" else weights)]
    graph = helper.make_graph(nodes, "g", [x], [y], kept)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return OnnxModel(helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=8), Path("m.onnx"))


def quantised(place: str, spelling: str, through: str = "") -> OnnxModel:
    """Makes a model with a scale of 0.1, computed from the constant where that is not a float."""
    scale = "s" if through else "c"
    users = [
        helper.make_node("QuantizeLinear", ["x", scale, "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", scale, "z"], ["y"]),
    ]
    values = np.array(0.1, np.float32)
    if through:
        users.insert(0, helper.make_node(through, ["c"], ["s"], to=TensorProto.FLOAT))
        values = np.array(2, np.int64)
    # 128 is the middle of uint8, which a pass makes int8 of.
    shaped = values.reshape(1) if spelling.endswith("s") else values
    return build(place, spelling, shaped, users, z=np.full(shaped.shape, 128, np.uint8))


@pytest.mark.parametrize("spelling", FLOATS)
@EVERYWHERE
def test_rules_see_a_constant_scale(place: str, spelling: str) -> None:
    model = quantised(place, spelling)
    model.inline_functions()
    assert [finding.code for finding in run_rules(model, RTX)] == ["TC307", "TC307"]


@pytest.mark.parametrize(("spelling", "through"), [*((s, "") for s in FLOATS), *((s, "Cast") for s in INTEGERS)])
@EVERYWHERE
def test_passes_act_on_it_and_leave_nothing_to_complain_of(place: str, spelling: str, through: str) -> None:
    model = quantised(place, spelling, through)
    edits = run_passes(model, PASSES, RTX).edits
    assert "shift-uint8-to-int8" in {edit.pass_name for edit in edits}
    assert not run_rules(model, RTX)


@pytest.mark.parametrize("spelling", INTEGERS)
@EVERYWHERE
def test_the_lattice_computes_with_integers(place: str, spelling: str) -> None:
    users = [
        helper.make_node("Reshape", ["c", "flat"], ["s"]),
        helper.make_node("Reshape", ["x", "rows"], ["column"]),
        helper.make_node("Concat", ["flat", "s"], ["shape"], axis=0),
        helper.make_node("Reshape", ["column", "shape"], ["y"]),
    ]
    values = np.array([2] if spelling == "value_ints" else 2, np.int64)
    model = build(place, spelling, values, users, flat=np.array([-1]), rows=np.array([4, 1]))
    made = Sizes(model).run([{}]).tensors["y"].shape
    assert made is not None and [num.value for num in made] == [2, 2]


@pytest.mark.parametrize("spelling", FLOATS)
@EVERYWHERE
def test_the_lattice_computes_with_floats(place: str, spelling: str) -> None:
    users = [
        helper.make_node("Reshape", ["c", "flat"], ["s"]),
        helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest"),
    ]
    values = np.array([1.5] if spelling == "value_floats" else 1.5, np.float32)
    made = Sizes(build(place, spelling, values, users, flat=np.array([-1]))).run([{}]).tensors["y"].shape
    assert made is not None and [num.value for num in made] == [6]


@pytest.mark.parametrize(("value", "hot"), [(2.0, 0), (1e6, 1)])
@pytest.mark.parametrize("spelling", FLOATS)
@EVERYWHERE
def test_the_cast_stores_what_fits_and_keeps_what_does_not(place: str, spelling: str, value: float, hot: int) -> None:
    values = np.array([value] if spelling == "value_floats" else value, np.float32)
    model = build(place, spelling, values, [helper.make_node("Mul", ["x", "c"], ["y"], name="mul")])
    model.inline_functions()
    done = casting.cast(model, HALF)
    assert len(done.hot) == hot
    halves = [t for scope in model.scopes for t in scope.graph.initializer if t.data_type == TensorProto.FLOAT16]
    assert [numpy_helper.to_array(tensor).item() for tensor in halves] == [value] * (1 - hot)


@pytest.mark.parametrize("spelling", [each for each in SPELLINGS if each != "initializer"])
def test_a_node_holds_its_values_and_their_type(spelling: str) -> None:
    kind = np.int64 if "int" in spelling else np.float32
    values = np.array(SPELLINGS[spelling], kind)
    (node,), _ = spell(spelling, values)
    held = constant_of(node)
    assert held is not None
    found = numpy_helper.to_array(held)
    assert found.dtype == kind and found.shape == values.shape and found == values


def test_texts_are_held_and_sparse_tensors_and_arguments_are_not() -> None:
    texts = helper.make_node("Constant", [], ["c"], value_strings=["a", "b"])
    held = constant_of(texts)
    assert held is not None and list(held.string_data) == [b"a", b"b"] and list(held.dims) == [2]
    text = constant_of(helper.make_node("Constant", [], ["c"], value_string="a"))
    assert text is not None and list(text.string_data) == [b"a"] and not text.dims
    values = numpy_helper.from_array(np.ones(1, np.float32), "v")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), [4])
    assert constant_of(helper.make_node("Constant", [], ["c"], sparse_value=sparse)) is None
    argument = helper.make_node("Constant", [], ["c"])
    argument.attribute.add(name="value", ref_attr_name="given", type=onnx.AttributeProto.TENSOR)
    assert constant_of(argument) is None
    assert constant_of(helper.make_node("Constant", [], ["c"], domain="other", value_float=1.0)) is None


def test_what_a_node_reads_is_what_its_bodies_take_from_outside() -> None:
    model = quantised("outer", "value_float")
    (node,) = [node for node in model.proto.graph.node if node.op_type == "If"]
    assert reads(node) == {"p", "x", "c", "z"}


@pytest.mark.parametrize(("terms", "affordable"), [(999, True), (1001, False)])
def test_long_products_of_constants_are_computed_within_the_budget(terms: int, *, affordable: bool) -> None:
    """A product of two vectors has one element, and takes as many multiplications as they are long."""
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    feeds = {"a": np.ones((1, terms), np.float32), "b": np.ones((terms, 1), np.float32)}
    with budget.allowed(budget.Budget(candidates=1000)):
        found = evaluate([node], feeds, "y", [helper.make_opsetid("", 17)])
    assert (found is not None) == affordable
    assert found is None or found.tolist() == [[terms]]
