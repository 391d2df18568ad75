"""Weights of parsed networks held to the model, and constants of rewritten models held to the file."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper

from support.float_nets import net
from trtconv.core.documents.proof import WeightCounts
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import origin as origin_room
from trtconv.runtimes.proof.bits import elements, fingerprint, leave, same_bits, stored
from trtconv.runtimes.proof.origin import Derivation, origins
from trtconv.runtimes.proof.weights import Relation, accounts, weigh
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor
from trtconv.runtimes.tensorrt.readback.types import numpy_type

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


def test_what_moved_is_looked_for_first_where_the_file_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of weights, to look through all for each that passes made would take longer than all the rest."""

    def looked(*_: object) -> None:
        raise AssertionError("all are looked through")

    monkeypatch.setattr(origin_room, "fingerprint", looked)
    assert origins(*rewritten(MOVES["grown by zeros"]))["new"] is Derivation.DERIVED
    with pytest.raises(AssertionError, match="looked through"):
        origins(*rewritten(np.abs))


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


def resident(mapping: mmap.mmap) -> int:
    """Returns how many KiB of a mapping this process holds."""
    address = np.frombuffer(mapping, np.uint8).ctypes.data
    text = Path("/proc/self/smaps").read_text()
    found = re.search(rf"^{address:x}-.*?^Rss: +(\d+) kB", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells of mappings on Linux")
def test_weights_of_a_file_are_not_held_once_they_are_weighed(tmp_path: Path) -> None:
    first, second = np.arange(1 << 18, dtype=np.float32), np.arange(10, dtype=np.float32)
    (tmp_path / "w").write_bytes(first.tobytes() + second.tobytes())
    with (tmp_path / "w").open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    values = np.frombuffer(memoryview(mapping)[: first.nbytes], np.float32)
    few = np.frombuffer(memoryview(mapping)[first.nbytes :], np.float32)
    assert same_bits(values.reshape(512, -1), first)
    held = resident(mapping)
    assert held >= first.nbytes >> 10
    leave(few)
    assert resident(mapping) == held
    leave(values.reshape(512, -1))
    assert resident(mapping) == 0
    assert same_bits(values, first)
    assert resident(mapping) > 0
    node = HEAD + "(float[1] x) => (float[1] y) { y = Add (x, x) }"
    network = ReadNetwork((), (layer(0, "CONSTANT", "w", {"weights": values}),), (), ())
    weigh(network, model_of(node), {})
    assert resident(mapping) == 0
    # Of no file.
    leave(first)
    leave(first[::2])


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


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("attribute", ["scale", "shift", "power"])
def test_what_is_folded_is_off_by_a_few_steps_of_its_type(dtype: str, attribute: str) -> None:
    """Of constants for which all of it is a power of two; a difference is as exact as what it is one of."""
    text = (
        HEAD + "(float[1,2,4] x) => (float[1,2,4] y) { [norm] y = BatchNormalization <epsilon = 0.0> (x, g, b, m, v) }"
    )
    proto = onnx.parser.parse_model(text)
    constants = {"g": [2.0, 2.0], "b": [8.0, 8.0], "m": [8.0, 8.0], "v": [4.0, 4.0]}
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.array(values, np.float32), name) for name, values in constants.items()
    )
    expected, size = {"scale": (1.0, 1.0), "shift": (0.0, 16.0), "power": (1.0, 1.0)}[attribute]
    step = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    for steps, relation in {4: Relation.DERIVED, 6: Relation.DIFFERENT}.items():
        values: Any = np.array([expected, expected + steps * step * size], numpy_type(dtype))
        made = {"norm": ReadLayer(0, "norm", "SCALE", (), (0,), {attribute: values}, onnx_node="norm")}
        assert relations(made, OnnxModel(proto, Path("m.onnx"))) == {("norm", attribute): relation}
    other = {"norm": ReadLayer(0, "norm", "SCALE", (), (0,), {"bias": values, "kernel": values[:1]}, onnx_node="norm")}
    assert set(relations(other, OnnxModel(proto, Path("m.onnx"))).values()) == {Relation.OWN}


def test_of_a_variance_of_nothing_any_scale_will_do() -> None:
    proto = onnx.parser.parse_model(
        HEAD
        + """(float[1,1,4] x) => (float[1,1,4] y)
        <float[1] g = {1}, float[1] b = {0}, float[1] m = {0}, float[1] v = {-1}>
        { [norm] y = BatchNormalization <epsilon = 0.0> (x, g, b, m, v) }"""
    )
    made = {"norm": layer(0, "SCALE", "norm", {"scale": np.array([7], np.float32)})}
    assert set(relations(made, OnnxModel(proto, Path("m.onnx"))).values()) == {Relation.DERIVED}


@pytest.mark.parametrize(
    ("ends", "relation", "sources"),
    [("", Relation.DERIVED, ("g", "b", "m", "v")), (", float[1] m", Relation.OWN, ())],
)
def test_a_scale_is_of_all_four_constants(ends: str, relation: Relation, sources: tuple[str, ...]) -> None:
    held = "float[1] g = {1}, float[1] b = {0}, float[1] v = {1}" + (", float[1] m = {0}" if not ends else "")
    body = "{ [norm] y = BatchNormalization <epsilon = 0.0> (x, g, b, m, v) }"
    text = f"(float[1,1,4] x{ends}) => (float[1,1,4] y) <{held}> {body}"
    model = OnnxModel(onnx.parser.parse_model(HEAD + text), Path("m.onnx"))
    (found,) = accounts(network({"norm": layer(0, "SCALE", "norm", {"scale": np.float32([1])})}), model)
    assert (found.relation, found.sources) == (relation, sources)


CONSTANTS = (
    HEAD
    + """(float[2,3] x) => (float[2,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,9}, float[3] b = {-1,-2,-3},
    float one = {5}, int64[2] n = {2, 3}> {
    [mul] m = Gemm (x, w, b)  [add] a = Add (m, b)  [scale] s = Mul (a, one)  [shape] y = Reshape (s, n) }"""
)
W = np.arange(1, 10, dtype=np.float32)
B = np.array([-1, -2, -3], np.float32)


@pytest.mark.parametrize(
    ("kind", "name", "values", "relation", "sources"),
    [
        ("CONSTANT", "b", B, Relation.EQUAL, ("b",)),
        # Parsers number what is used again, and what a layer's name speaks of is what it must be.
        ("CONSTANT", "b_7", B, Relation.EQUAL, ("b",)),
        ("CONSTANT", "b_7", B + 1, Relation.DIFFERENT, ("b",)),
        ("CONSTANT", "b_x", B, Relation.EQUAL, ("b",)),
        ("CONSTANT", "b_x", B + 1, Relation.OWN, ()),
        # A constant that is called so, of another size, is another one.
        ("CONSTANT", "b", W, Relation.EQUAL, ("w",)),
        ("CONSTANT", "tmp_weight_b", B, Relation.EQUAL, ("b",)),
        ("CONSTANT", "one", np.float32([5]), Relation.EQUAL, ("one",)),
        ("CONSTANT", "two", np.float32([5]), Relation.OWN, ()),
        ("MATRIX", "mul", W.reshape(3, 3).T, Relation.DERIVED, ("w",)),
        ("MATRIX", "mul", np.append(W[:-1], 0), Relation.DIFFERENT, ("w",)),
        ("MATRIX", "mul", B, Relation.EQUAL, ("b",)),
        ("SUM", "add", B[::-1], Relation.DIFFERENT, ("b",)),
        ("SUM", "add", W, Relation.EQUAL, ("w",)),
        ("SUM", "nobody", B, Relation.EQUAL, ("b",)),
        ("SUM", "nobody", B[::-1], Relation.OWN, ()),
    ],
)
def test_which_constants_a_weight_is_held_to(
    kind: str, name: str, values: Array, relation: Relation, sources: tuple[str, ...]
) -> None:
    model = OnnxModel(onnx.parser.parse_model(CONSTANTS), Path("m.onnx"))
    net = network({name: ReadLayer(0, name, kind, (), (), {"weights": np.ascontiguousarray(values)}, onnx_node=name)})
    (found,) = accounts(net, model)
    assert (found.relation, found.sources) == (relation, sources)
    if relation is Relation.DIFFERENT:
        # The node that reads it, where the layer is none of a node.
        assert found.place.node == ("mul" if kind == "CONSTANT" else name)


def test_a_layer_is_of_the_node_that_makes_its_result_whatever_it_is_called() -> None:
    model = OnnxModel(onnx.parser.parse_model(CONSTANTS), Path("m.onnx"))
    tensors = (ReadTensor(0, "x", "float32", None), ReadTensor(1, "a", "float32", None))
    made = ReadLayer(0, "mul", "SUM", (0,), (1,), {"weights": W[:3]}, onnx_node="mul")
    (found,) = accounts(ReadNetwork(tensors, (made,), (0,), (1,)), model)
    assert (found.relation, found.place.node) == (Relation.DIFFERENT, "add")


@pytest.mark.parametrize(
    ("origin", "values", "counts"),
    [
        (Derivation.FILE, B, (1, 0, 1)),
        (Derivation.DERIVED, B, (0, 1, 1)),
        (Derivation.COMPUTED, B, (0, 0, 1)),
        (Derivation.CHANGED, B, (0, 0, 1)),
        (None, B, (0, 0, 1)),
        (Derivation.FILE, B + 1, (0, 0, 1)),
        # The parser's own: single numbers and integers are for what computes with them to show.
        (Derivation.FILE, np.float32([3]), (0, 0, 0)),
        (Derivation.FILE, np.array([7, 7, 7]), (0, 0, 0)),
        (Derivation.FILE, np.float32([3, 3]), (0, 0, 1)),
    ],
)
def test_weights_are_counted_by_where_their_constants_come_from(
    origin: Derivation | None, values: Array, counts: tuple[int, int, int]
) -> None:
    model = OnnxModel(onnx.parser.parse_model(CONSTANTS), Path("m.onnx"))
    net = network({"x": ReadLayer(0, "x", "SUM", (), (), {"weights": values, "bias": np.empty(0), "scale": None})})
    found = weigh(net, model, {} if origin is None else {"b": origin})
    assert (found.equal, found.derived, found.of, found.different) == (*counts, ())


def changed(text: str, **constants: Any) -> tuple[OnnxModel, OnnxModel]:
    """Returns a model with further constants, and the same without its nodes but the last, which reads "new"."""
    file = onnx.parser.parse_model(HEAD + text)
    new = constants.pop("new")
    file.graph.initializer.extend(numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items())
    given = onnx.ModelProto()
    given.CopyFrom(file)
    del given.graph.node[:-1], given.graph.initializer[:]
    given.graph.node[0].input[1] = "new"
    given.graph.initializer.append(numpy_helper.from_array(np.asarray(new), "new"))
    return OnnxModel(file, Path("m.onnx")), OnnxModel(given, Path("m.onnx"))


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, -3])
def test_what_a_dequantizer_makes_of_codes_is_folded_by_its_definition(axis: int | None, zero: bool) -> None:
    codes = np.random.default_rng(0).integers(-128, 128, (2, 3, 4)).astype(np.int8)
    count, at = (1, 0) if axis is None else (codes.shape[axis], axis)
    shape = [count if i == at % 3 else 1 for i in range(3)]
    scale = np.linspace(0.1, 0.7, count).astype(np.float32)
    zeros = np.arange(1, count + 1).astype(np.int8)
    points = zeros.reshape(shape).astype(np.int32) if zero else 0
    new = (codes.astype(np.int32) - points).astype(np.float32) * scale.reshape(shape)
    said = "" if axis is None else f"<axis = {axis}>"
    given = {"c": codes, "s": scale if axis is not None else scale[0], "z": zeros if axis is not None else zeros[0]}
    text = (
        f"(float[2,3,4] x) => (float[2,3,4] y) {{ w = DequantizeLinear {said} (c, s{', z' * zero})  y = Mul (x, w) }}"
    )
    assert origins(*changed(text, **given, new=new))["new"] is Derivation.DERIVED
    wrong = new.copy()
    wrong[1, 2, 3] += scale[-1]
    assert origins(*changed(text, **given, new=wrong))["new"] is Derivation.COMPUTED


@pytest.mark.parametrize(
    "nodes",
    [
        "w = DequantizeLinear <axis = 2> (c, s)",
        "w = DequantizeLinear <axis = -3> (c, s)",
        "w = DequantizeLinear <axis = 1> (c, s)",
        "w = DequantizeLinear (c, nothing)",
        "w = DequantizeLinear <axis = 0> (c, s, z)",
        "w = Reshape (s, s)",
        "w = Add (p, nothing)",
    ],
)
def test_what_a_node_refuses_is_folded_to_nothing(nodes: str) -> None:
    """Only what dequantises in another way than it says gives these values, or nothing does."""
    codes, scale = np.int8([[2, 4, 6], [8, 10, 12]]), np.float32([0.5, 2])
    new = codes * scale[:, None]
    text = f"(float[2,3] x, int8[2] z) => (float[2,3] y) {{ {nodes}  y = Mul (x, w) }}"
    held = {"c": codes, "s": scale, "p": np.float32([1, 2]), "nothing": np.zeros(0, np.float32)}
    assert origins(*changed(text, **held, new=new))["new"] is Derivation.COMPUTED
    assert (
        origins(*changed(text.replace(nodes, "w = DequantizeLinear <axis = 0> (c, s)"), **held, new=new))["new"]
        is Derivation.DERIVED
    )


@pytest.mark.parametrize(
    ("text", "new"),
    [
        # Through several nodes, whichever of them are made of constants.
        ("a = Add (p, q)  b = Mul (a, q)  y = Mul (x, b)", [12.0, 21.0]),
        ("t = Neg (x)  a = Add (p, q)  y = Mul (t, a)", [4.0, 7.0]),
        ("c = Constant <value = float[2] {8, 9}> ()  y = Mul (x, c)", [9.0, 8.0]),
    ],
)
def test_constants_that_follow_from_others_are_derived(text: str, new: list[float]) -> None:
    known = {"p": np.float32([1, 4]), "q": np.float32([3, 3])}
    body = f"(float[2] x) => (float[2] y) {{ {text} }}"
    assert origins(*changed(body, **known, new=np.float32(new)))["new"] is Derivation.DERIVED
    assert origins(*changed(body, **known, new=np.float32(new) + 1))["new"] is Derivation.COMPUTED


def test_codes_are_dequantized_along_the_second_axis_where_none_is_said() -> None:
    codes, scale = np.arange(24, dtype=np.int8).reshape(2, 3, 4), np.float32([0.5, 2, 3])
    text = "(float[2,3,4] x) => (float[2,3,4] y) { w = DequantizeLinear (c, s)  y = Mul (x, w) }"
    assert origins(*changed(text, c=codes, s=scale, new=codes * scale[:, None]))["new"] is Derivation.DERIVED


def test_the_same_bytes_in_another_type_are_another_constant() -> None:
    codes = np.arange(1, 3, dtype=np.int32)
    text = "(KIND[2] x) => (KIND[2] y) { y = Mul (x, w) }"
    file, given = (
        OnnxModel(onnx.parser.parse_model(HEAD + text.replace("KIND", kind)), Path("m.onnx"))
        for kind in ("int32", "float")
    )
    for model, values in ((file, codes), (given, codes.view(np.float32))):
        model.proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    file, given = (OnnxModel(model.proto, model.path) for model in (file, given))
    assert origins(file, given) == {"w": Derivation.CHANGED}


VALUES = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("other", "same"),
    [(VALUES.copy(), True), (VALUES + 1, False), (VALUES[:5], False), (np.append(VALUES, 1), False)],
)
def test_parts_are_compared_with_arrays_and_parts(other: Array, same: bool) -> None:
    def parts(values: Array, at: int) -> Iterator[Array]:
        return iter([values[:at], values[at:]])

    assert same_bits(VALUES, other) is same
    assert same_bits(parts(VALUES, 2), other) is same
    assert same_bits(VALUES, parts(other, 4)) is same
    assert same_bits(parts(VALUES, 2), parts(other, 4)) is same


def test_nothing_is_nothing_in_parts() -> None:
    assert same_bits(np.zeros(0), iter(())) and same_bits(np.zeros(0), np.zeros((0, 2)))
    assert not same_bits(VALUES, iter(()))


@pytest.mark.parametrize(
    ("own", "other", "derived"),
    [
        ("int32", "float32", True),
        ("float32", "float16", True),
        ("int8", "int64", True),
        ("bool", "float32", True),
        ("float32", "int32", False),
    ],
)
def test_constants_that_are_cast_are_derived(own: str, other: str, derived: bool) -> None:
    text = "(float[2] x) => (float[2] y) { y = Mul (x, p) }"
    found = origins(*changed(text, p=np.array([0, 1], own), new=np.array([1, 0], other)))["new"]
    assert found is (Derivation.DERIVED if derived else Derivation.COMPUTED)


def test_a_text_is_derived_from_nothing() -> None:
    text = "(float[2] x) => (float[2] y) { y = Mul (x, p) }"
    assert origins(*changed(text, p=np.array(["a"], object), new=np.array(["a"], object)))["new"] is Derivation.COMPUTED


def test_codes_and_scales_that_mean_the_same_are_derived() -> None:
    text = (
        "(float[2] x) => (float[2] y) <int8[2] c = {C}, float s = {S}> { w = DequantizeLinear (c, s)  y = Mul (x, w) }"
    )

    def model(codes: str, scale: str, by: str = "") -> OnnxModel:
        named = text.replace("C", codes).replace("S", scale).replace("int8[2] c", f"int8[2] c{by}")
        named = named.replace("float s", f"float s{by}").replace("(c, s)", f"(c{by}, s{by})")
        return OnnxModel(onnx.parser.parse_model(HEAD + named), Path("m.onnx"))

    file = model("4, -6", "0.5")
    assert set(origins(file, model("8, -12", "0.25", "new")).values()) == {Derivation.DERIVED}
    assert set(origins(file, model("8, -14", "0.25", "new")).values()) == {Derivation.COMPUTED}


def test_constants_of_the_same_name_are_held_to_each_other(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.float32([1, 2, 1, 2]).tobytes())

    def outside(offset: int) -> onnx.TensorProto:
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in {"location": "w", "offset": str(offset), "length": "8"}.items():
            tensor.external_data.add(key=key, value=value)
        return tensor

    def held(tensor: onnx.TensorProto) -> OnnxModel:
        proto = onnx.parser.parse_model(HEAD + "(float[2] x) => (float[2] y) { y = Mul (x, w) }")
        proto.graph.initializer.append(tensor)
        return OnnxModel(proto, tmp_path / "m.onnx")

    def inside(*values: float, dtype: type = np.float32) -> onnx.TensorProto:
        return numpy_helper.from_array(np.array(values, dtype), "w")

    for file, given, origin in (
        (outside(0), outside(0), Derivation.FILE),
        # The same values at another place count as others: they are not read.
        (outside(0), outside(8), Derivation.CHANGED),
        (outside(0), inside(1, 2), Derivation.FILE),
        (outside(0), inside(1, 3), Derivation.CHANGED),
        (inside(1, 2), inside(1, 2), Derivation.FILE),
        (inside(1, 2), inside(2, 1), Derivation.CHANGED),
        (inside(1, 2), inside(1, 2, dtype=np.float64), Derivation.DERIVED),
        (inside(1, 2), inside(1, 3, dtype=np.float64), Derivation.CHANGED),
        (inside(1, 2), inside(1, 2, 3), Derivation.CHANGED),
    ):
        assert origins(held(file), held(given)) == {"w": origin}


@hypothesis.given(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 3), max_size=5))
def test_fingerprints_are_equal_where_elements_are(left: list[int], right: list[int]) -> None:
    one, other = np.array(left, np.float32), np.array(right, np.float32)
    alike = np.array_equal(elements(one), elements(other))
    # Of so few and small numbers count, sum and squares tell all apart.
    assert (
        (fingerprint(one) == fingerprint(other)) == alike == (sorted(filter(None, left)) == sorted(filter(None, right)))
    )


def test_constants_with_one_fingerprint_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin_room, "fingerprint", lambda values: (0, 0, 0))
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)
    <float[2] v = {1, 2}, float[2] w = {3, 4}> { a = Add (x, v)  y = Add (a, w) }"""
    file, rewritten = (OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")) for _ in range(2))
    for name, values in (("moved", [4, 3]), ("other", [1, 3])):
        tensor = numpy_helper.from_array(np.array(values, np.float32), name)
        rewritten.proto.graph.initializer.append(tensor)
    rewritten.touch()
    found = origins(file, rewritten)
    assert (found["moved"], found["other"]) == (Derivation.DERIVED, Derivation.COMPUTED)


def test_texts_are_no_source_of_numbers() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y, string[1] z)
    <string[1] t = {"a"}> { y = Identity (x)  z = Identity (t) }"""
    file, rewritten = (OnnxModel(onnx.parser.parse_model(text), Path("m.onnx")) for _ in range(2))
    rewritten.proto.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "new"))
    rewritten.touch()
    assert origins(file, rewritten) == {"t": Derivation.FILE, "new": Derivation.COMPUTED}
    rewritten.main.initializers["t"].string_data[0] = b"b"
    assert origins(file, rewritten)["t"] is Derivation.CHANGED


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_kernel_and_bias_of_one_size_are_told_apart(op: str) -> None:
    """Of a depthwise layer of one tap both are as many numbers."""
    text = (
        HEAD
        + f"""(float[1,3,8] x) => (float[1,3,8] y) <float[3,1,1] k = {{1, 2, 3}}, float[3] b = {{4, 5, 6}}>
        {{ [one] a = {op} <group = 3> (x, k, b)  [two] y = {op} <group = 3> (a, k) }}"""
    )
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    kernel, bias = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    kind = {"Conv": "CONVOLUTION", "ConvTranspose": "DECONVOLUTION"}[op]
    right = {"one": layer(0, kind, "one", {"kernel": kernel, "bias": bias})}
    assert set(relations(right, model).values()) == {Relation.EQUAL}
    exchanged = {"one": layer(0, kind, "one", {"kernel": bias, "bias": kernel})}
    assert set(relations(exchanged, model).values()) == {Relation.DIFFERENT}
    # What a parser makes where a node has no bias is no kernel that was changed.
    made = {"two": layer(1, kind, "two", {"kernel": kernel, "bias": np.zeros(3, np.float32)})}
    assert list(relations(made, model).values()) == [Relation.EQUAL, Relation.OWN]
