"""What is wrong with a model is found wherever it stands: in the graph, in one inside a node, in a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from trtconv.graph.checker import examine

FLOAT = TensorProto.FLOAT
Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), name=f"n_{outputs or op}", **attrs)


def in_graph(nodes: Nodes, inits: Iterable[TensorProto] = ()) -> onnx.ModelProto:
    """The nodes make y of x."""
    x, y = (helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], list(inits))
    return helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    )


def in_body(nodes: Nodes, inits: Iterable[TensorProto] = ()) -> onnx.ModelProto:
    """They stand in a branch of an If."""
    y = helper.make_tensor_value_info("y", FLOAT, [2])
    other = helper.make_tensor_value_info("b", FLOAT, [2])
    branches = {
        "then_branch": helper.make_graph(nodes, "t", [], [y], list(inits)),
        "else_branch": helper.make_graph([node("Abs", "x", "b")], "e", [], [other]),
    }
    proto = in_graph([helper.make_node("If", ["c"], ["out"], name="if", **branches)])
    proto.graph.output[0].name = "out"
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return proto


def in_function(nodes: Nodes, inits: Iterable[TensorProto] = (), output: str = "y") -> onnx.ModelProto:
    proto = in_graph([helper.make_node("F", ["x"], ["y"], domain="f", name="call")])
    made = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in inits]
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("f", "F", ["x"], [output], [*made, *nodes], opsets, ["alpha"]))
    return proto


def in_body_of_function(nodes: Nodes, inits: Iterable[TensorProto] = ()) -> onnx.ModelProto:
    condition = [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=TensorProto.BOOL)]
    return in_function([*condition, in_body(nodes, inits).graph.node[0]], output="out")


PLACES: list[Callable[..., onnx.ModelProto]] = [in_graph, in_body, in_function, in_body_of_function]
WHERE = pytest.mark.parametrize("where", PLACES)


def weight(*dims: int, count: int | None = None) -> TensorProto:
    size = 1
    for dim in dims:
        size *= dim
    raw = bytes(4 * (size if count is None else count))
    return TensorProto(name="w", data_type=FLOAT, dims=dims, raw_data=raw)


def with_attribute(made: onnx.NodeProto, **fields: Any) -> onnx.NodeProto:
    made.attribute.append(AttributeProto(**fields))
    return made


RIGHT: dict[str, Callable[[], tuple[Nodes, list[TensorProto]]]] = {
    "one node": lambda: ([node("Abs", "x", "y")], []),
    "in any order": lambda: ([node("Neg", "t", "y"), node("Abs", "x", "t")], []),
    "an attribute": lambda: ([node("LeakyRelu", "x", "y", alpha=0.5)], []),
    "an input that is left out": lambda: (
        [helper.make_node("Clip", ["x", "", "w"], ["y"], name="clip")],
        [weight()],
    ),
    "a weight": lambda: ([node("Add", "x w", "y")], [weight(2)]),
    "a tensor of an attribute": lambda: (
        [node("Constant", "", "k", value=weight(2)), node("Add", "x k", "y")],
        [],
    ),
}


@WHERE
@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_found_right(where: Callable[..., onnx.ModelProto], name: str) -> None:
    assert not isinstance(examine(where(*RIGHT[name]())), str)


WRONG: dict[str, tuple[Callable[[], tuple[Nodes, list[TensorProto]]], str]] = {
    "reads what nothing makes": (lambda: ([node("Add", "x q", "y")], []), "reads 'q'"),
    "an output that nothing makes": (lambda: ([node("Abs", "x", "t")], []), "nothing makes the output 'y'"),
    "made twice": (lambda: ([node("Abs", "x", "y"), node("Neg", "x", "y")], []), "make the same tensor"),
    "a cycle": (lambda: ([node("Add", "x t", "y"), node("Neg", "y", "t")], []), "cycle"),
    "no operator": (lambda: ([node("", "x", "y")], []), "has no operator"),
    "no output": (lambda: ([node("Abs", "x", ""), node("Abs", "x", "y")], []), "has no output"),
    "too few inputs": (lambda: ([node("Add", "x", "y")], []), "has 1 inputs, not 2 or more"),
    "an input that must be there": (
        lambda: ([helper.make_node("Add", ["x", ""], ["y"], name="add")], []),
        "lacks an input that it must have",
    ),
    "an attribute of another type": (
        lambda: ([node("LeakyRelu", "x", "y", alpha=1)], []),
        "'alpha' of the wrong type",
    ),
    "an attribute twice": (
        lambda: ([with_attribute(node("LeakyRelu", "x", "y", alpha=0.5), name="alpha", type=1, f=0.25)], []),
        "an attribute twice",
    ),
    "a broken tensor in an attribute": (
        lambda: ([node("Constant", "", "k", value=weight(2, count=1)), node("Add", "x k", "y")], []),
        "'w'",
    ),
    "a broken weight": (lambda: ([node("Add", "x w", "y")], [weight(2, count=3)]), "'w'"),
    "lists that do not fit": (
        lambda: ([node("Transpose", "x", "y", perm=[0, 0])], []),
        "perm",
    ),
}


@WHERE
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_named(where: Callable[..., onnx.ModelProto], name: str) -> None:
    make, words = WRONG[name]
    found = examine(where(*make()))
    assert isinstance(found, str)
    assert words in found


@pytest.mark.parametrize(("where", "fine"), [(in_graph, False), (in_body, False), (in_function, True)])
def test_only_functions_have_attributes_of_their_own(where: Callable[..., onnx.ModelProto], fine: bool) -> None:
    made = with_attribute(node("LeakyRelu", "x", "y"), name="alpha", type=AttributeProto.FLOAT, ref_attr_name="alpha")
    found = examine(where([made]))
    assert isinstance(found, str) != fine


@pytest.mark.parametrize("calls", [{"F": "G", "G": "F"}, {"F": "F"}])
def test_functions_that_call_themselves_are_found(calls: dict[str, str]) -> None:
    proto = in_graph([helper.make_node("F", ["x"], ["y"], domain="f", name="call")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    for name, called in calls.items():
        inner = helper.make_node(called, ["x"], ["y"], domain="f", name="inner")
        proto.functions.append(helper.make_function("f", name, ["x"], ["y"], [inner], opsets))
    found = examine(proto)
    assert isinstance(found, str) and "calls itself" in found


@pytest.mark.parametrize("kind", ["input", "output", "value_info"])
def test_types_and_ranks_that_there_are_not_are_found(kind: str) -> None:
    for info, words in (
        (helper.make_tensor_value_info("x", 99, [2]), "unknown element type 99"),
        (helper.make_tensor_value_info("x", FLOAT, [1] * 1000), "1000 dimensions"),
    ):
        proto = in_graph([node("Abs", "x", "y")])
        values = getattr(proto.graph, kind)
        del values[:]
        info.name = "y" if kind == "output" else "x" if kind == "input" else "t"
        values.append(info)
        found = examine(proto)
        assert isinstance(found, str) and words in found
