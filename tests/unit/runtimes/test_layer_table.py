"""The layers of a parsed network as a report keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.documents.layers import LayerTable, TableLayer, TableTensor
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.layer_shapes import with_inner
from trtconv.runtimes.layer_table import layer_table
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.model_shapes import known_sizes

NET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 4, h, w] x) => (float[n, 8, p, q] y)
{
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, k, b)
  r = Relu (c)
  y = Add (r, r)
}
"""


def network(tensors: Sequence[tuple[str, tuple[int, ...]]], *layers: tuple[Any, ...]) -> ReadNetwork:
    """Makes a network of (kind, inputs, outputs, values), its inputs and outputs the first and the last tensor."""
    names = [name for name, _ in tensors]
    made = tuple(
        ReadLayer(index, f"layer {index}", kind, tuple(map(names.index, taken)), tuple(map(names.index, given)), values)
        for index, (kind, taken, given, values) in enumerate(layers)
    )
    held = tuple(ReadTensor(i, name, "float32", shape) for i, (name, shape) in enumerate(tensors))
    return ReadNetwork(held, made, (0,), (len(tensors) - 1,))


def model() -> OnnxModel:
    proto = onnx.parser.parse_model(NET)
    for name, shape in (("k", (8, 4, 3, 3)), ("b", (8,))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    return OnnxModel(proto, Path("net.onnx"))


CONV = {
    "kernel_size_nd": (3, 3),
    "num_output_maps": 8,
    "num_groups": 1,
    "kernel": np.ones((8, 4, 3, 3), np.float32),
    "bias": np.ones(8, np.float32),
}
FREE = (-1, -1, -1, -1)


def conv_net() -> ReadNetwork:
    return network(
        [("x", (-1, 4, -1, -1)), ("s", (4,)), ("c", (-1, 8, -1, -1)), ("r", FREE), ("y", FREE)],
        ("SHAPE", ["x"], ["s"], {}),
        ("CONVOLUTION", ["x"], ["c"], CONV),
        ("ACTIVATION", ["c"], ["r"], {"type": "RELU"}),
        ("ELEMENTWISE", ["r", "r"], ["y"], {"op": "SUM"}),
    )


def table() -> LayerTable:
    loaded = model()
    dims = {"n": Range(1, 2, 4), "h": Range(16, 32, 64), "w": Range(16, 48, 64)}
    return layer_table(conv_net(), known_sizes(Sizes(loaded), [make_profile(loaded.inputs, dims)]))


def test_layers_have_work_bytes_and_named_sizes() -> None:
    made = table()
    conv, relu, add = made.layers
    assert made.aside == 1, "what computes sizes stands aside"
    output = made.tensors[conv.outputs[0]]
    assert output.shape is not None
    assert output.shape[:2] == ("n", 8)
    assert conv.products == (2 * 16 * 24 * 8 * 4 * 9,)
    inputs, outputs, weights = 2 * 4 * 32 * 48 * 4, 2 * 8 * 16 * 24 * 4, (8 * 4 * 9 + 8) * 4
    assert conv.moved == (inputs + outputs + weights,)
    assert relu.products == (0.0,)
    assert relu.moved == (0.0,), "it is written over what only it reads"
    assert relu.joined == conv.outputs[0]
    assert add.joined is None, "what is read twice has to be there"
    assert add.moved == (3 * outputs,)


def test_inner_tensors_are_sized_by_what_stands_around_them() -> None:
    turn = {"first_transpose": (0, 2, 1), "second_transpose": (0, 1, 2)}
    net = network(
        [("x", (-1, 6, -1)), ("i", (-1, -1, 6)), ("j", (-1, -1, 5)), ("w", (6, 5)), ("m", (-1, 1, 5)), ("y", (-1, 5))],
        ("SOFTMAX", ["x"], ["i"], {"axes": 4}),
        ("REDUCE", ["j"], ["m"], {"axes": 2, "keep_dims": True}),
        ("SHUFFLE", ["m"], ["y"], turn),
    )
    found = with_inner(net, {"x": (3, 6, 7), "j": (3, 7, 5)})
    assert found["i"] == (3, 6, 7)
    assert found["m"] == (3, 1, 5)
    assert found["y"] == (3, 5)
    assert with_inner(net, {"y": (3, 5)})["m"] == (3, 1, 5), "from behind too"
    assert "i" not in with_inner(net, {"y": (3, 5)})


@pytest.mark.parametrize(("ops", "b"), [(("NONE", "NONE"), (2, 5, 6)), (("NONE", "TRANSPOSE"), (2, 6, 5))])
def test_products_of_matrices_are_sized(ops: tuple[str, str], b: tuple[int, ...]) -> None:
    net = network(
        [("a", (-1, -1, -1)), ("b", (-1, -1, -1)), ("y", (-1, -1, -1))],
        ("MATRIX_MULTIPLY", ["a", "b"], ["y"], {"op0": ops[0], "op1": ops[1]}),
    )
    assert with_inner(net, {"a": (2, 4, 5), "b": b})["y"] == (2, 4, 6)


def test_a_table_whose_layers_name_no_tensor_is_refused() -> None:
    tensor = TableTensor("x", "float32", (1,))
    layer = TableLayer("a", "ACTIVATION", "a", (0,), (1,), (0.0,), (0.0,))
    with pytest.raises(InputError, match="does not list"):
        LayerTable((tensor,), (layer,))
    with pytest.raises(InputError, match="same profiles"):
        LayerTable((tensor, tensor), (layer, TableLayer("b", "UNARY", "b", (0,), (1,), (), ())))


def test_a_table_whose_layers_are_of_no_profile_is_refused() -> None:
    tensor = TableTensor("x", "float32", (1,))
    for products, moved in (((), ()), ((), (0.0,)), ((0.0,), (0.0, 0.0))):
        with pytest.raises(InputError, match="same profiles"):
            LayerTable((tensor,), (TableLayer("a", "ACTIVATION", "a", (0,), (0,), products, moved),))


@pytest.mark.parametrize("amount", [-1.0, 1e308, float("inf"), float("nan")])
def test_a_table_whose_layers_have_amounts_of_no_network_is_refused(amount: float) -> None:
    for products, moved in (((amount,), (0.0,)), ((0.0,), (amount,))):
        with pytest.raises(InputError, match="amounts"):
            LayerTable(
                (TableTensor("x", "float32", (1,)),),
                (TableLayer("a", "ACTIVATION", "a", (0,), (0,), products, moved),),
            )
