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
    "an activation that is a number": lambda: (
        [helper.make_node("GroupNorm", ["x", "w", "w"], ["y"], domain="com.microsoft", groups=1, activation=1)],
        [weight(2)],
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
    "made twice": (lambda: ([node("Abs", "x", "y"), node("Neg", "x", "y")], []), "two nodes make 'y'"),
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


def doubled(change: Callable[[onnx.ModelProto], None]) -> str:
    """Returns what is found in a right model that is changed."""
    proto = in_function([node("Abs", "x", "y")])
    assert not isinstance(examine(proto), str)
    change(proto)
    found = examine(proto)
    assert isinstance(found, str)
    return found


def chain(length: int) -> onnx.ModelProto:
    """A model with functions that call each other in a chain."""
    proto = in_function([node("Abs", "x", "y")])
    for number in range(1, length):
        caller = helper.make_node(f"F{number - 1}" if number > 1 else "F", ["x"], ["y"], domain="f", name=f"c{number}")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        proto.functions.append(helper.make_function("f", f"F{number}", ["x"], ["y"], [caller], opsets))
    return proto


def test_what_is_there_twice_is_found() -> None:
    versions = doubled(lambda m: m.opset_import.append(helper.make_opsetid("", 18)))
    assert "versions 17 and 18 of operator set ai.onnx" in versions
    assert "two functions of the same name" in doubled(lambda m: m.functions.append(m.functions[0]))
    assert "two initializers" in doubled(lambda m: m.graph.initializer.extend([weight(2), weight(2)]))
    assert "two inputs" in doubled(lambda m: m.graph.input.append(m.graph.input[0]))


def test_an_operator_set_may_be_imported_twice_in_one_version() -> None:
    proto = in_graph([node("Abs", "x", "y")])
    proto.opset_import.extend(list(proto.opset_import))
    assert not isinstance(examine(proto), str)


def test_what_has_no_name_or_one_that_is_taken_is_found() -> None:
    nameless = TensorProto(data_type=FLOAT, dims=[1], raw_data=bytes(4))
    assert "initializers of a graph has no name" in doubled(lambda m: m.graph.initializer.append(nameless))
    again = node("Neg", "x", "x")
    assert "makes 'x', which is an input or initializer" in doubled(lambda m: m.graph.node.append(again))


@pytest.mark.parametrize(("length", "fine"), [(90, True), (91, False)])
def test_functions_may_call_each_other_so_deep_and_no_deeper(length: int, fine: bool) -> None:
    found = examine(chain(length))
    assert isinstance(found, str) != fine
    assert fine or f"{length} deep" in str(found)


@WHERE
def test_output_padding_is_an_attribute_of_deconvolutions_alone(where: Callable[..., onnx.ModelProto]) -> None:
    wrong = node("MaxPool", "x", "y", kernel_shape=[1], output_padding=[1])
    assert "attribute of ConvTranspose alone" in str(examine(where([wrong])))


def test_an_auto_pad_that_is_not_text_is_found() -> None:
    proto = in_graph([node("MaxPool", "x", "y", kernel_shape=[1], auto_pad=b"\xff\xfe")])
    assert "not text" in str(examine(proto))


@pytest.mark.parametrize(
    ("domain", "op", "fine"),
    [
        *(("", "Own", True), ("ai.onnx", "Own", True), ("f", "Own", True), ("com.microsoft", "Own", False)),
        *(("f", "Abs", False), ("", "Abs", False), ("ai.onnx", "Abs", False), ("com.microsoft", "Abs", False)),
    ],
)
def test_plugins_may_have_attributes_of_any_type(domain: str, op: str, fine: bool) -> None:
    """An axis, which standard operators have as a number, is a text."""
    proto = in_graph([helper.make_node(op, ["x"], ["y"], domain=domain, name="n", axis="rows")])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = examine(proto)
    assert isinstance(found, str) != fine
    assert fine or "'axis' of the wrong type" in str(found)


@WHERE
@pytest.mark.parametrize("kind", ["tensors", "sparse_tensor", "sparse_tensors"])
def test_what_an_attribute_holds_several_of_is_looked_at(where: Callable[..., onnx.ModelProto], kind: str) -> None:
    def held(values: TensorProto) -> onnx.NodeProto:
        made = helper.make_node("Own", ["x"], ["y"], domain="f", name="own")
        indices = TensorProto(name="i", data_type=TensorProto.INT64, dims=[2], raw_data=bytes([*[0] * 8, 1, *[0] * 7]))
        sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[4])
        fields: dict[str, Any] = {
            "tensors": {"type": AttributeProto.TENSORS, "tensors": [weight(2), values]},
            "sparse_tensor": {"type": AttributeProto.SPARSE_TENSOR, "sparse_tensor": sparse},
            "sparse_tensors": {"type": AttributeProto.SPARSE_TENSORS, "sparse_tensors": [sparse]},
        }[kind]
        return with_attribute(made, name="held", **fields)

    assert not isinstance(examine(where([held(weight(2))])), str)
    assert "'w'" in str(examine(where([held(weight(2, count=1))])))


@pytest.mark.parametrize("place", ["producer_name", "key", "doc_string", "dim", "name"])
def test_text_that_is_no_text_is_found_wherever_it_stands(place: str) -> None:
    proto = in_body([node("Abs", "x", "y")])
    mark = "KEY_TO_BREAK"
    if place == "producer_name":
        proto.producer_name = mark
    elif place == "key":
        proto.metadata_props.add(key=mark, value="v")
    elif place == "doc_string":
        proto.graph.node[0].attribute[0].g.node[0].doc_string = mark
    elif place == "dim":
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = mark
    else:
        proto.graph.node[0].attribute[0].g.name = mark
    data = proto.SerializeToString().replace(mark.encode(), b"KEY_TO_BREA\xff")
    try:
        broken = onnx.ModelProto.FromString(data)
    except Exception:  # Some versions of protobuf do not even read it.
        return
    assert "not UTF-8" in str(examine(broken))


@pytest.mark.parametrize(
    ("attribute", "fine"),
    [({"axis": 1}, True), ({"axis": "x"}, False), ({"kernel_shape": 1.5}, False), ({"own": "x"}, True)],
)
def test_attributes_that_another_operator_has_are_of_its_type(attribute: dict[str, object], fine: bool) -> None:
    """TensorRT's parser looks for some of them on any operator."""
    said = examine(in_graph([helper.make_node("Relu", ["x"], ["y"], **attribute)]))
    assert isinstance(said, str) != fine
