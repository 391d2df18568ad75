"""What activations take: by hand on tiny networks, and against brute force on random ones."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.sizes import parse
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range, ShapeProfile
from trtconv.graph.model import OnnxModel
from trtconv.rules.sizes import TensorTooLarge
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.memory import MOST_ELEMENTS, activations, largest_that_fits
from trtconv.shapes.view import SizesView

CHAIN = """g (float[1,2,h,8] x) => (float[1,2,h,8] y) {
    a = Softmax (x)
    b = Softmax (a)
    y = Softmax (b)
}"""


def _bytes(text: str, **point: int) -> int:
    (found,) = activations(Sizes(parse(text)), [point])
    return found.bytes


def test_inputs_and_outputs_are_there_all_the_time() -> None:
    # x, y, and of the inner tensors a and b at once: 4 times 2 * h * 8 float32.
    assert _bytes(CHAIN, h=4) == 4 * 2 * 4 * 8 * 4


def test_a_skip_is_alive_until_it_is_joined() -> None:
    skip = """g (float16[n] x) => (float16[n] y) {
        a = Softmax (x)
        b = Softmax (a)
        c = Softmax (b)
        d = Softmax (c)
        y = Add (d, a)
    }"""
    # x, y, a, and two of b, c, d.
    assert _bytes(skip, n=10) == 5 * 10 * 2


@pytest.mark.parametrize(("last", "tensors"), [("b", 3), ("a", 4)], ids=["nobody else reads", "read again"])
def test_a_relu_is_written_over_its_input(last: str, tensors: int) -> None:
    text = f"g (float[n] x) => (float[n] y) {{ a = Softmax (x)  b = Relu (a)  y = Add (b, {last}) }}"
    assert _bytes(text, n=7) == tensors * 7 * 4


def test_types_count() -> None:
    assert _bytes("g (float[n] x) => (double[n] y) { a = Softmax (x)  y = Cast <to = 11> (a) }", n=3) == 3 * (4 + 4 + 8)


def test_weights_are_no_activations() -> None:
    assert _bytes("g (float[n] x) => (float[n] y) <float[1] w = {2.0}> { y = Mul (x, w) }", n=3) == 3 * (4 + 4)


def test_the_node_and_the_largest_tensor_are_named() -> None:
    text = """g (float[1,1,h,8] x) => (float[1,1,h,8] y) <int64[4] s = {1, 9, 1, 1}, int64[1] axis = {1}> {
        [tile] a = Expand (x, s)
        [sum] y = ReduceSum <keepdims = 1> (a, axis)
    }"""
    (found,) = activations(Sizes(parse(text)), [{"h": 2}])
    assert (found.largest, found.elements, found.maker.node, found.node.node) == ("a", 9 * 16, "tile", "tile")
    assert found.complete


def test_what_is_not_known_is_left_out_and_said() -> None:
    header = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
    model = parse("g (float[n] x) => (float[m] y) { y = my.Strange (x) }", header)
    (found,) = activations(Sizes(model), [{"n": 5}])
    assert (found.bytes, found.complete) == (5 * 4, False)


def test_an_element_whose_type_is_not_known_has_four_bytes() -> None:
    model = parse("g (float[n] x) => (float[n] y) { a = Softmax (x)  y = Softmax (a) }")
    sizes = Sizes(model)
    trial = sizes.run([{"n": 5}], keep=True)
    trial.tensors["a"] = dataclasses.replace(trial.tensors["a"], dtype=None)
    trial.tensors["y"] = dataclasses.replace(trial.tensors["y"], dtype=np.dtype(np.float16))
    (found,) = activations(sizes, [{"n": 5}], trial)
    assert found.bytes == 5 * (4 + 4 + 2)


@pytest.mark.parametrize(
    ("node", "tensors"),
    [
        ("b = Clip (a, l)", 3),
        ("b = Reshape (a, same)", 3),
        # Not over an input of another size, not over a second one, and not where there are two results.
        ("c = Reshape (a, half)  b = ReduceSum <keepdims = 0> (c, first)", 3),
        ("b = Softmax (a)", 4),
        ("b, m = Dropout (a)  v = Cast <to = 1> (m)", 4.25),
    ],
)
def test_what_is_written_over_its_first_input(node: str, tensors: float) -> None:
    text = f"""g (float[n] x) => (float[k] y)
        <float l = {{0}}, int64[1] same = {{-1}}, int64[2] half = {{2, -1}}, int64[1] first = {{0}}> {{
        a = Softmax (x)  {node}  y = Softmax (b) }}"""
    assert _bytes(text, n=8) == tensors * 8 * 4


def test_nothing_is_no_element() -> None:
    (found,) = activations(Sizes(parse("g () => (float[2] y) <float[2] y = {1, 2}> { }")), [{}])
    assert (found.largest, found.elements) == ("", 0)


def _profile(model: OnnxModel, **ranges: Range) -> ShapeProfile:
    return make_profile(model.inputs, ranges)


@pytest.mark.parametrize(("largest", "found"), [(2**15, 0), (2**16, 1)])
def test_tensors_beyond_32_bits_are_warned_of(largest: int, found: int) -> None:
    model = parse("g (float[1,1,h,1] x, float[1,1,1,65535] k) => (float[1,1,h,65535] y) { [big] y = Mul (x, k) }")
    findings = list(TensorTooLarge().check(SizesView(model, [_profile(model, h=Range(1, 1, largest))])))
    assert len(findings) == found == int(largest * 65535 > MOST_ELEMENTS)
    assert all(each.location.node == "big" and each.severity.value == "warning" for each in findings)


def test_the_largest_accepted_size_that_fits_is_found() -> None:
    model = parse("""g (float[1,1,h,w] x) => (float[1,1,h,w] y) {
        a = SpaceToDepth <blocksize = 4> (x)
        y = DepthToSpace <blocksize = 4> (a)
    }""")
    sizes = Sizes(model)
    lattice = sizes.lattice({"h": (4, 400), "w": (4, 400)})
    least, most = {"h": 8, "w": 8}, {"h": 400, "w": 400}
    room = 3 * 4 * 400 * 100
    assert largest_that_fits(sizes, lattice, least, most, room) == [{"h": 100}, {"w": 100}]
    assert largest_that_fits(sizes, lattice, least, most, room - 1) == [{"h": 96}, {"w": 96}]
    # Neither alone: both.
    assert largest_that_fits(sizes, lattice, least, most, 3 * 4 * 40 * 40) == [{"h": 40, "w": 40}]
    # Neither alone: the smallest of both, or nothing.
    assert largest_that_fits(sizes, lattice, least, most, 3 * 4 * 8 * 8) == [least]
    assert largest_that_fits(sizes, lattice, least, most, 3 * 4 * 8 * 8 - 1) == []


def test_tied_dimensions_go_together() -> None:
    model = parse("g (float[h] x, float[w] z) => (float[h] y) { y = Concat <axis = 0> (x, x)  v = Sum (x, z) }")
    sizes = Sizes(model)
    lattice = sizes.lattice({"h": (2, 64), "w": (2, 64)})
    assert lattice.joint
    for fitting in largest_that_fits(sizes, lattice, {"h": 2, "w": 2}, {"h": 64, "w": 64}, 200):
        assert fitting["h"] == fitting["w"] < 64


def _slow(graph: onnx.GraphProto, elements: dict[str, int]) -> int:
    """Asks of every node which tensors there are while it runs: float32 all."""
    over: dict[str, str] = {}
    given = [value.name for value in graph.input]
    outputs = [value.name for value in graph.output]
    for node in graph.node:
        (made,) = node.output
        (first, *_) = node.input
        readers = [other for other in graph.node if first in other.input]
        inner = first not in (*given, *outputs) and made not in outputs
        if (
            node.op_type == "Relu"
            and readers[-1] is node
            and inner
            and any(made in other.input for other in graph.node)
        ):
            over[made] = first
    most = sum(elements[name] for name in {*given, *outputs})
    for index in range(len(graph.node)):
        alive = set()
        for number, node in enumerate(graph.node[: index + 1]):
            (made,) = node.output
            later = [i for i, other in enumerate(graph.node) if made in other.input]
            if made not in outputs and later and number <= index <= later[-1]:
                alive.add(made)
        alive -= {over[made] for made in alive if made in over}
        most = max(most, sum(elements[name] for name in {*given, *outputs, *alive}))
    return 4 * most


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_as_brute_force_says(data: st.DataObject) -> None:
    nodes: list[onnx.NodeProto] = []
    tensors = {"x": (2, 3)}
    for index in range(data.draw(st.integers(1, 12))):
        op = data.draw(st.sampled_from(["Relu", "Softmax", "Add", "Concat"]))
        first, second = (data.draw(st.sampled_from(list(tensors))) for _ in range(2))
        name = f"t{index}"
        if op == "Concat":
            nodes.append(helper.make_node(op, [first, second], [name], axis=0))
            tensors[name] = (tensors[first][0] + tensors[second][0], 3)
        elif op == "Add" and tensors[first] == tensors[second]:
            nodes.append(helper.make_node(op, [first, second], [name]))
            tensors[name] = tensors[first]
        else:
            nodes.append(helper.make_node("Relu" if op == "Add" else op, [first], [name]))
            tensors[name] = tensors[first]
    outputs = data.draw(st.lists(st.sampled_from([n for n in tensors if n != "x"]), min_size=1, unique=True))
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    proto = helper.make_model(helper.make_graph(nodes, "g", [x], infos), opset_imports=[helper.make_opsetid("", 17)])
    (found,) = activations(Sizes(OnnxModel(proto, Path("m.onnx"))), [{"n": 2}])
    assert found.bytes == _slow(proto.graph, {name: math.prod(shape) for name, shape in tensors.items()})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_size_that_is_no_number_is_not_known(value: float) -> None:
    model = parse("g (float[1,n] x) => (float[a,b] y, int64[a,b] i) <float[1] k = {3}> { y, i = TopK (x, k) }")
    model.proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([value], np.float32), "k"))
    (found,) = activations(Sizes(OnnxModel(model.proto, Path("m.onnx"))), [{"n": 8}])
    assert (found.complete, found.largest) == (False, "x")


def test_a_condition_without_a_value_chooses_no_branch() -> None:
    text = """g (float[1,w] x) => (float[1,w] y) <bool c = {1}> { y = If (c) <
        then_branch = t () => (float[1,w] u) { u = Relu (x) },
        else_branch = e () => (float[1,w] v) { v = Neg (x) }> }"""
    model = parse(text)
    model.proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((0,), np.bool_), "c"))
    (found,) = activations(Sizes(OnnxModel(model.proto, Path("m.onnx"))), [{"w": 8}])
    assert found.sizes == {"w": 8}
