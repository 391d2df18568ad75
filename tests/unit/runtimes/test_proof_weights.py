"""Weights of parsed networks held to the model, and constants of rewritten models held to the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from support.float_nets import net
from trtconv.core.documents.proof import WeightCounts
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.bits import elements, same_bits, stored
from trtconv.runtimes.proof.origin import Derivation, origins
from trtconv.runtimes.proof.weights import Relation, accounts, weigh
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

Array = NDArray[Any]

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
NET = (
    HEAD
    + """(float[1,4,8,8] x) => (float[1,6,8,8] y) {
    [first] a = Conv <pads = [1,1,1,1]> (x, w_6_4_3_3, b_6)  [second] c = Conv <pads = [1,1,1,1]> (a, w_6_6_3_3)
    [norm] d = BatchNormalization (c, p_6, b_6a, b_6b, p_6b)  [scaled] y = Mul (d, w_1_6_1_1) }"""
)


def model_of(text: str = NET) -> OnnxModel:
    return OnnxModel(net(text), Path("m.onnx"))


def parsed(model: OnnxModel) -> dict[str, ReadLayer]:
    """Returns the layers that hold the weights of NET, as a parser that does nothing wrong makes them."""
    values = {tensor.name: numpy_helper.to_array(tensor).reshape(-1) for tensor in model.proto.graph.initializer}
    scale = values["p_6"].astype(np.float64) / np.sqrt(values["p_6b"].astype(np.float64) + 1e-5)
    shift = values["b_6a"] - values["b_6b"] * scale
    return {
        "first": layer(0, "CONVOLUTION", "first", {"kernel": values["w_6_4_3_3"], "bias": values["b_6"]}),
        "second": layer(1, "CONVOLUTION", "second", {"kernel": values["w_6_6_3_3"], "bias": np.empty(0, np.float32)}),
        "norm": layer(
            2, "SCALE", "norm", {"scale": scale.astype(np.float32), "shift": shift.astype(np.float32), "power": None}
        ),
        "scaled": layer(3, "CONSTANT", "w_1_6_1_1", {"weights": values["w_1_6_1_1"]}),
    }


OUTPUTS = ("a", "c", "d", "w_1_6_1_1_output")


def layer(index: int, kind: str, name: str, values: dict[str, Any]) -> ReadLayer:
    return ReadLayer(index, name, kind, (), (index,), values, onnx_node=name)


def network(layers: dict[str, ReadLayer]) -> ReadNetwork:
    tensors = tuple(ReadTensor(i, name, "float32", None) for i, name in enumerate(OUTPUTS))
    return ReadNetwork(tensors, tuple(layers.values()), (), ())


def relations(layers: dict[str, ReadLayer], model: OnnxModel) -> dict[tuple[str, str], Relation]:
    return {
        (each.weight.layer.onnx_node, each.weight.attribute): each.relation for each in accounts(network(layers), model)
    }


def test_what_a_parser_hands_on_is_equal_and_what_it_folds_is_derived() -> None:
    model = model_of()
    found = relations(parsed(model), model)
    assert found == {
        ("first", "kernel"): Relation.EQUAL,
        ("first", "bias"): Relation.EQUAL,
        ("second", "kernel"): Relation.EQUAL,
        ("norm", "scale"): Relation.DERIVED,
        ("norm", "shift"): Relation.DERIVED,
        ("w_1_6_1_1", "weights"): Relation.EQUAL,
    }
    told = weigh(network(parsed(model)), model, origins(model, model)).counts
    assert told == WeightCounts(equal=4, derived=2, of=6)


def one_bit(values: Array) -> Array:
    changed = values.copy()
    changed.view(np.uint32)[values.size // 2] ^= 1
    return changed


@pytest.mark.parametrize(
    ("place", "attribute", "change"),
    [
        ("first", "kernel", one_bit),
        ("first", "kernel", lambda values: values[::-1].copy()),
        ("first", "bias", lambda values: np.roll(values, 1)),
        ("scaled", "weights", one_bit),
        ("norm", "scale", lambda values: values * np.float32(1.00001)),
        ("norm", "shift", lambda values: values + np.float32(1e-4)),
    ],
)
def test_a_changed_weight_is_a_difference(place: str, attribute: str, change: Callable[[Array], Array]) -> None:
    model = model_of()
    layers = parsed(model)
    layers[place].values[attribute] = change(layers[place].values[attribute])  # type: ignore[index]
    (wrong,) = [each for each in accounts(network(layers), model) if each.relation is Relation.DIFFERENT]
    assert wrong.weight.attribute == attribute
    assert wrong.place.node == place
    assert weigh(network(layers), model, origins(model, model)).different == (wrong,)


def test_the_kernel_of_another_node_is_a_difference() -> None:
    model = model_of(NET.replace("float[1,4,8,8]", "float[1,6,8,8]").replace("w_6_4_3_3", "w_6_6_3_3a"))
    values = {tensor.name: numpy_helper.to_array(tensor).reshape(-1) for tensor in model.proto.graph.initializer}
    exchanged = {
        "first": layer(0, "CONVOLUTION", "first", {"kernel": values["w_6_6_3_3"]}),
        "second": layer(1, "CONVOLUTION", "second", {"kernel": values["w_6_6_3_3a"]}),
    }
    assert set(relations(exchanged, model).values()) == {Relation.DIFFERENT}


def test_a_weight_in_another_type_is_the_same() -> None:
    proto = net(NET)
    tensor = next(each for each in proto.graph.initializer if each.name == "w_6_6_3_3")
    values = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float64), tensor.name))
    model = OnnxModel(proto, Path("m.onnx"))
    layers = {"second": layer(1, "CONVOLUTION", "second", {"kernel": values.reshape(-1)})}
    assert set(relations(layers, model).values()) == {Relation.EQUAL}


def rewritten(change: Callable[[Array], Array], name: str = "new") -> tuple[OnnxModel, OnnxModel]:
    """Returns a model, and one whose first kernel became another, of that name."""
    file = model_of()
    given = file.copy()
    tensor = next(each for each in given.proto.graph.initializer if each.name == "w_6_4_3_3")
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(change(numpy_helper.to_array(tensor))), name))
    given.proto.graph.node[0].input[1] = name
    return file, OnnxModel(given.proto, given.path)


MOVES: dict[str, Callable[[Array], Array]] = {
    "grown by zeros": lambda w: np.pad(w, ((0, 0), (0, 0), (0, 1), (0, 1))),
    "turned": lambda w: w.transpose(1, 0, 2, 3)[:, :, ::-1],
    "copied": lambda w: w,
    "cast": lambda w: w.astype(np.float64),
}


@pytest.mark.parametrize("change", MOVES.values(), ids=MOVES)
def test_what_passes_move_is_derived(change: Callable[[Array], Array]) -> None:
    file, given = rewritten(change)
    assert origins(file, given)["new"] is Derivation.DERIVED


@pytest.mark.parametrize("change", [lambda w: w * np.float32(1.015), lambda w: np.where(w == w.max(), 0, w), np.abs])
def test_what_no_move_makes_is_not(change: Callable[[Array], Array]) -> None:
    assert origins(*rewritten(change))["new"] is Derivation.COMPUTED


def test_a_constant_that_changed_under_its_name_is_told() -> None:
    file, given = rewritten(lambda w: w * np.float32(1.5), "w_6_4_3_3")
    found = origins(file, given)
    assert found.pop("w_6_4_3_3") is Derivation.CHANGED
    assert set(found.values()) == {Derivation.FILE}


def test_what_is_folded_is_what_the_definition_makes_of_the_file() -> None:
    text = HEAD + "(float[2,6] x) => (float[2,6] y) { s = Mul (w_6, w_6a)  y = Mul (x, s) }"
    file = model_of(text)
    values = {each.name: numpy_helper.to_array(each) for each in file.proto.graph.initializer}
    product = values["w_6"] * values["w_6a"]
    for made, expected in ((product, Derivation.DERIVED), (product * np.float32(1.001), Derivation.COMPUTED)):
        proto = onnx.ModelProto()
        proto.CopyFrom(file.proto)
        proto.graph.initializer.append(numpy_helper.from_array(made, "folded"))
        del proto.graph.node[0]
        proto.graph.node[0].input[1] = "folded"
        assert origins(file, OnnxModel(proto, file.path))["folded"] is expected


def test_bits_and_not_values_are_compared() -> None:
    assert not same_bits(np.array([0.0], np.float32), np.array([-0.0], np.float32))
    nan = np.array([np.nan], np.float32)
    assert same_bits(nan, nan.copy())
    assert not same_bits(np.zeros(2, np.float32), np.zeros(3, np.float32))
    assert elements(np.array([3.0, 0.0, -0.0, 1.0])).size == 2


@pytest.mark.parametrize("size", [1, 5, (1 << 18) + 3])
@pytest.mark.parametrize("changed", [None, 0, -1])
def test_weights_in_a_file_are_compared_in_parts_of_any_size(tmp_path: Path, size: int, changed: int | None) -> None:
    values = np.arange(size, dtype=np.float32)
    (tmp_path / "w").write_bytes(bytes(16) + values.tobytes())
    tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[size])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": "w", "offset": "16", "length": str(4 * size)}.items():
        tensor.external_data.add(key=key, value=value)
    model = OnnxModel(onnx.ModelProto(), tmp_path / "m.onnx")
    other = values.copy()
    if changed is not None:
        other[changed] += 1
    equal = changed is None
    assert same_bits(other, stored(model, tensor)) is equal
    assert same_bits(np.array_split(other, 3), stored(model, tensor)) is equal
    assert same_bits(other.astype(np.float64), stored(model, tensor)) is equal
    assert not same_bits(np.append(other, 0), stored(model, tensor))
    assert not same_bits(other[:-1], stored(model, tensor))
