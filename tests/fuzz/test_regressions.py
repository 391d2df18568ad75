"""What the fuzzer found, each file made as small as it goes. All ended in a crash, a hang or exit 3 once."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from harness import Worker, commands
from onnx import AttributeProto, TensorProto, helper, numpy_helper

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or importlib.util.find_spec("tensorrt_rtx") is None,
    reason="needs Linux and tensorrt-rtx",
)

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>\n'
DECONV = "g (float[1,1,4,4] x) => (float[1,1,p,q] y) <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> "


def text(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + body)


def deconv(attributes: str = "strides = [2,2], output_padding = [1,1]") -> onnx.ModelProto:
    return text(f"{DECONV} {{ y = ConvTranspose <{attributes}> (x, w) }}")


def recursive_function() -> onnx.ModelProto:
    model = deconv()
    call = helper.make_node("f", ["a"], ["b"], domain="my")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    model.functions.append(helper.make_function("my", "f", ["a"], ["b"], [call], opsets))
    model.graph.node.insert(0, helper.make_node("f", ["x"], ["z"], domain="my"))
    return model


def cycle() -> onnx.ModelProto:
    return text("g (float[1] x) => (float[1] y) { a = Add (x, y)  y = Relu (a) }")


def cycle_behind_a_wrong_order() -> onnx.ModelProto:
    return text("g (float[1] x) => (float[1] y) { y = Relu (c)  c = Add (b, d)  d = Relu (c)  b = Relu (x) }")


def tensor_where_numbers_belong() -> onnx.ModelProto:
    model = text("g (float[1,1,4,4] x) => (float[1,1,p,q] y) <float[1,1,1,1] w = {1}> { y = Conv (x, w) }")
    value = numpy_helper.from_array(np.zeros((2, 0), np.float32))
    model.graph.node[0].attribute.append(helper.make_attribute("output_padding", value))
    return model


def output_padding_of_a_convolution() -> onnx.ModelProto:
    """TensorRT's parser reads it there too, and falls."""
    model = text("g (float[1,1,4,4] x) => (float[1,1,p,q] y) <float[1,1,1,1] w = {1}> { y = Conv (x, w) }")
    model.graph.node[0].attribute.append(helper.make_attribute("output_padding", [65536, 2, 0, -1]))
    return model


def quantizers_that_cannot_be_read() -> onnx.ModelProto:
    """The only QuantizeLinear of its group has a scale that is no number, and a Pad behind it."""
    model = text(
        "g (float[1,4] x) => (uint8[p,q] y) <float s = {0.5}, uint8 z = {0}, uint8 f = {3}, int64[4] pads = {0,0,0,1}>"
        " { q = QuantizeLinear (x, s, z)  y = Pad (q, pads, f) }"
    )
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(np.nan), "s"))
    return model


def foreign_quantizer_without_scale() -> onnx.ModelProto:
    model = text("g (float[1,4] x) => (float[1,4] y) <float s = {0.5}> { y = Identity (x) }")
    model.graph.node[0].CopyFrom(helper.make_node("DequantizeLinear", ["x"], ["y"], domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def operator_newer_than_the_opset() -> onnx.ModelProto:
    model = text("g (float[1,4] x) => (int32[p,q] y) { y = ConvInteger (x) }")
    del model.opset_import[:]
    return model


def infinite_size() -> onnx.ModelProto:
    model = text("g (float[1,1,h,w] x) => (float[1,1,p,q] y) <float[4] s = {1,1,2,2}> { y = Resize (x, , , s) }")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([1, 1, np.inf, np.nan], np.float32), "s"))
    return model


def branch_with_too_many_results() -> onnx.ModelProto:
    model = text(
        "g (float[2] x) => (float[2] y) <bool c = {1}> { y = If (c) <"
        "then_branch = t () => (float[2] a) { a = Relu (x) }, else_branch = e () => (float[2] b) { b = Neg (x) }> }"
    )
    for attribute in model.graph.node[0].attribute:
        attribute.g.output.append(attribute.g.output[0])
    return model


def float_where_numbers_belong() -> onnx.ModelProto:
    model = deconv("strides = [2,2]")
    model.graph.node[0].attribute.append(helper.make_attribute("pads", 1.5))
    return model


def attribute_without_a_value() -> onnx.ModelProto:
    model = deconv()
    model.graph.node[0].attribute.append(AttributeProto(name="custom", type=AttributeProto.INTS))
    return model


def attribute_without_a_type() -> onnx.ModelProto:
    model = deconv()
    model.graph.node[0].attribute.append(AttributeProto(name="axis"))
    return model


def quantizer_without_a_scale() -> onnx.ModelProto:
    model = text("g (float[4] x) => (int8[4] y) <float s = {0.1}> { y = QuantizeLinear (x, s) }")
    del model.graph.node[0].input[1:]
    return model


def quantizer_of_a_scalar_without_zero_point() -> onnx.ModelProto:
    return text(
        "g (float[4] x) => (float[4] y) <float s = {0.1}> { q = QuantizeLinear (x, s)  y = DequantizeLinear (q, s) }"
    )


def integer_kernel_of_rank_0() -> onnx.ModelProto:
    return text("g (uint8[1,1,4,4] x) => (int32[a,b,c,d] y) <uint8 w = {3}> { y = ConvInteger (x, w) }")


def kernel_of_another_rank() -> onnx.ModelProto:
    # ONNX Runtime (1.23) aborts on it once the first node has been rewritten.
    return text(
        "g (float[1,1,4,4] x) => (float[1,1,p,q] y) "
        "<float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}, float[1,1,3] v = {1,2,3}> "
        "{ a = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w) "
        "  y = ConvTranspose <strides = [2,2], output_shape = [40,40]> (a, v) }"
    )


def more_axes_than_numpy_has() -> onnx.ModelProto:
    names = ["x", *(f"t{number}" for number in range(40)), "y"]
    body = "".join(f"{after} = Unsqueeze ({before}, axes) " for before, after in itertools.pairwise(names))
    return text(f"g (float[2] x) => (float[] y) <int64[1] axes = {{0}}> {{ {body} }}")


def unknown_input_type() -> onnx.ModelProto:
    model = deconv()
    model.graph.input[0].type.tensor_type.elem_type = 99
    return model


def enormous_input() -> onnx.ModelProto:
    model = deconv()
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_value = (1 << 63) - 1
    return model


def enormous_vector() -> onnx.ModelProto:
    # ONNX's inference with data_prop writes down every element.
    return text("g (float[2147483647] x) => (float[n] y) <float s = {2}> { a = Mul (x, s)  y = NonZero (a) }")


def enormous_weight() -> onnx.ModelProto:
    model = deconv()
    model.graph.initializer[0].dims[:] = [1 << 20, 1 << 20, 3, 3]
    return model


def negative_weight() -> onnx.ModelProto:
    model = deconv()
    model.graph.initializer[0].dims[:] = [-1, -1, 3, 3]
    return model


def weight_cut_short() -> onnx.ModelProto:
    model = deconv()
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(TensorProto(name="w", data_type=1, dims=[1, 1, 3, 3], raw_data=b"\0" * 35))
    return model


def weight_of_no_type() -> onnx.ModelProto:
    model = deconv()
    model.graph.initializer[0].data_type = 0
    return model


def node_without_output() -> onnx.ModelProto:
    model = deconv()
    model.graph.node.add(op_type="Relu", input=["x"])
    return model


def output_that_nothing_makes() -> onnx.ModelProto:
    model = deconv()
    model.graph.output[0].name = "nowhere"
    return model


def node_that_makes_an_input() -> onnx.ModelProto:
    model = deconv()
    model.graph.node.add(op_type="Relu", input=["y"], output=["x"])
    return model


def the_same_operators_twice() -> onnx.ModelProto:
    model = deconv()
    model.opset_import.append(helper.make_opsetid("", 13))
    return model


def graphs_in_graphs() -> onnx.ModelProto:
    model = deconv()
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    del graph.input[:]
    for level in range(26):
        node = helper.make_node("If", ["c"], [f"y{level}"], then_branch=graph)
        graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info(f"y{level}", 1, None)])
    model.graph.node.extend(graph.node)
    return model


def foreign_quantizer_without_zero_point() -> onnx.ModelProto:
    """ONNX Runtime's QuantizeLinear, which gets its zero point and then ONNX's domain in the same run of the pass."""
    model = deconv()
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    scale = helper.make_tensor("s", TensorProto.FLOAT, [], [0.1])
    model.graph.initializer.append(scale)
    model.graph.node.add(op_type="QuantizeLinear", domain="com.microsoft", input=["x", "s"], output=["q"], name="q")
    model.graph.output.add(name="q")
    return model


VALID_OR_NOT = [
    *(recursive_function, cycle, cycle_behind_a_wrong_order, tensor_where_numbers_belong, float_where_numbers_belong),
    *(output_padding_of_a_convolution, branch_with_too_many_results, quantizers_that_cannot_be_read),
    *(foreign_quantizer_without_scale, infinite_size, operator_newer_than_the_opset),
    *(attribute_without_a_value, attribute_without_a_type, quantizer_without_a_scale, integer_kernel_of_rank_0),
    *(
        quantizer_of_a_scalar_without_zero_point,
        kernel_of_another_rank,
        more_axes_than_numpy_has,
        unknown_input_type,
        enormous_input,
        enormous_vector,
    ),
    *(enormous_weight, negative_weight, weight_cut_short, weight_of_no_type, node_without_output),
    *(output_that_nothing_makes, node_that_makes_an_input, the_same_operators_twice, graphs_in_graphs),
    foreign_quantizer_without_zero_point,
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as process:
        yield process


def holds(worker: Worker, path: Path, *dims: str) -> None:
    faults = [fault for command in commands(path, dims) if (fault := worker.run(path.stem, *command)) is not None]
    assert not faults, "\n\n".join(str(fault) for fault in faults)


@pytest.mark.parametrize("make", VALID_OR_NOT, ids=lambda make: make.__name__)
def test_model(worker: Worker, tmp_path: Path, make: Callable[[], onnx.ModelProto]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString())
    holds(worker, path)


@pytest.mark.parametrize("where", [b"nodename", b"tensor", b"producer", b"attribute"])
def test_text_that_is_not_utf8(worker: Worker, tmp_path: Path, where: bytes) -> None:
    model = text(
        f"{DECONV} {{ tensor = ConvTranspose <strides = [2,2], output_padding = [1,1]> (x, w)  y = Relu (tensor) }}"
    )
    model.graph.node[0].name = "nodename"
    model.producer_name = "producer"
    model.graph.node[0].attribute.append(helper.make_attribute("custom", "attribute"))
    path = tmp_path / "m.onnx"
    path.write_bytes(
        model.SerializeToString().replace(where, b"\xff\xfe" * (len(where) // 2) + b"x" * (len(where) % 2))
    )
    holds(worker, path)


def external(tmp_path: Path, **entries: str) -> Path:
    model = deconv()
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(TensorProto(name="w", data_type=1, dims=[1, 1, 3, 3], data_location=TensorProto.EXTERNAL))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "entries",
    [
        {"location": "w\0"},
        {"location": "/dev/zero"},
        {"location": "."},
        {"location": "w.data", "offset": " 1"},
        {"location": "w.data", "offset": "9" * 5000},
        {"location": "w.data", "offset": str(1 << 62)},
        {"location": "w.data", "length": "1"},
        {"location": "w.data", "length": str(1 << 40)},
    ],
    ids=str,
)
def test_external_data(worker: Worker, tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.data").write_bytes(bytes(64))
    holds(worker, external(tmp_path, **entries))


def test_hole_of_a_terabyte(worker: Worker, tmp_path: Path) -> None:
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(1 << 40)
    holds(worker, external(tmp_path, location="w.data", offset=str(1 << 39), length="36"))


def test_device_behind_a_link(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "w.data").symlink_to("/dev/zero")
    holds(worker, external(tmp_path, location="w.data"))
