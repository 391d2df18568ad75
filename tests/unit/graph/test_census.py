"""What a file lists is counted before anything looks at it: each kind up to its limit, and not one more."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import parse
from trtconv.core import budget
from trtconv.core.findings import Finding
from trtconv.graph.census import take_census
from trtconv.graph.dim_names import forget_meaningless, input_spec

MODEL = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[2] x, bool c, float[1] w) => (float[2] y, float[2] z) <float[1] w = {1}, float[1] v = {2}> {
    a = Add (x, w)
    y = If (c) < then_branch = p () => (float[2] e) <float[1] k = {3}> { e = Add (a, k) },
                 else_branch = q () => (float[2] f) { u = my.f <alpha = 1.0, beta = 2.0, gamma = 3> (a)  f = Neg (u) }>
    z = Mul (x, v) }
<domain: "my", opset_import: ["": 17]> f (r) => (s) { s = Exp (r) }"""
COUNTS = {"inputs": 4, "nodes": 7, "weights": 3, "tensors": 4, "attributes": 3}
"""Of the model: the initializer w is no input; both branches and the function have nodes."""
ENTRIES = {
    "nodes": 7,
    "weights": 3,
    "tensors": 4,
    # Of the main graph 3 + 2, of each branch 1.
    "ends": 7,
    # Inputs and outputs, and attributes, of Add, If, Add, f, Neg, Mul, Exp.
    "of nodes": 3 + (2 + 2) + 3 + (2 + 3) + 2 + 3 + 2,
    # Opsets, the function, with its two ends and its opset, and one metadata entry.
    "of the file": 2 + 1 + 3 + 1,
    "external": 2,
}


def counted() -> onnx.ModelProto:
    proto = parse(MODEL)
    graph = proto.graph
    del graph.value_info[:]
    graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2]))
    graph.quantization_annotation.add(tensor_name="a")
    graph.quantization_annotation.add(tensor_name="y")
    branch = graph.node[1].attribute[0].g
    del branch.value_info[:]
    branch.value_info.append(helper.make_tensor_value_info("e", TensorProto.FLOAT, [2]))
    graph.initializer[1].external_data.add(key="location", value="w.bin")
    graph.initializer[1].external_data.add(key="offset", value="0")
    proto.metadata_props.add(key="a", value="b")
    return proto


def is_refused(proto: onnx.ModelProto, **most: Any) -> bool:
    with budget.allowed(dataclasses.replace(budget.current(), **most)):
        try:
            take_census(proto)
        except budget.BudgetExceeded:
            return True
    return False


@pytest.mark.parametrize(("resource", "count"), [*COUNTS.items(), ("entries", sum(ENTRIES.values()))])
def test_each_kind_is_counted(resource: str, count: int) -> None:
    proto = counted()
    assert not is_refused(proto, **{resource: count})
    assert is_refused(proto, **{resource: count - 1})


def test_sparse_weights_are_weights() -> None:
    proto = counted()
    values = numpy_helper.from_array(numpy_helper.to_array(proto.graph.initializer[0]), "sparse")
    proto.graph.sparse_initializer.add(values=values, dims=[4])
    assert not is_refused(proto, weights=4)
    assert is_refused(proto, weights=3)


def test_a_node_of_many_ends_is_named() -> None:
    proto = parse(MODEL)
    proto.graph.node.append(helper.make_node("Sum", ["x"] * 5, ["many"], name="crowd"))
    assert not is_refused(proto, inputs=6)
    with budget.allowed(dataclasses.replace(budget.current(), inputs=5)), pytest.raises(budget.BudgetExceeded) as error:
        take_census(proto)
    (finding,) = error.value.findings
    assert isinstance(finding, Finding)
    assert finding.location.node == "crowd"


def test_metadata_of_nodes_are_entries() -> None:
    proto = counted()
    for number in range(3):
        proto.graph.node[2].metadata_props.add(key=str(number), value="v")
    entries = sum(ENTRIES.values()) + 3
    assert not is_refused(proto, entries=entries)
    assert is_refused(proto, entries=entries - 1)


@pytest.mark.parametrize("word", ["?", "-1", "None", "unk"])
def test_words_for_any_size_are_no_names(word: str) -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", word, 3, word, None, 0])
    assert input_spec(value).dims == ("n", "x:1", 3, "x:3", "x:4", 0)
    assert (input_spec(value).name, input_spec(value).dtype) == ("x", "float16")
    value.type.tensor_type.shape.dim[2].dim_value = -1
    assert input_spec(value).dims[2] == "x:2"


@pytest.mark.parametrize("where", ["x", "y", "xy"])
def test_names_that_say_nothing_are_forgotten_wherever_they_stand(where: str) -> None:
    dims = {name: ["unk", 2] if name in where else ["n", 2] for name in "xy"} | {"t": ["m", "unk"]}
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in dims.items()}
    graph = helper.make_graph([], "g", [values["x"]], [values["y"]], value_info=[values["t"]])
    forget_meaningless(graph)
    ends = {v.name: [d.dim_param for d in v.type.tensor_type.shape.dim] for v in (*graph.input, *graph.output)}
    assert ends == {name: ["" if name in where else "n", ""] for name in "xy"}
    assert [d.dim_param for d in graph.value_info[0].type.tensor_type.shape.dim] == ["m", ""]
