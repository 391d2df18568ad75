"""Parts cut out of a model: their inputs, sizes and constants are those of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from support.session import run
from trtconv.core.dims import InputRange, Range, ShapeProfile
from trtconv.graph.extract import Cutter
from trtconv.graph.model import OnnxModel
from trtconv.graph.order import sort

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,4] x, float[n,4] z) => (float[n,4] y, float[n,4] side) <float[4] w = {1, 2, 3, 4}> {
    [a] a = Mul (x, w)  [b] b = Add (a, z)  [side] side = Neg (b)
    [c] c = Relu (b)  [d] d = Add (c, w)  [y] y = Abs (d) }"""
PROFILES = (
    ShapeProfile({name: InputRange((1, 4), (2, 4), (8, 4)) for name in "xz"}, {"n": Range(1, 2, 8)}),
    ShapeProfile({name: InputRange((9, 4), (9, 4), (9, 4)) for name in "xz"}, {"n": Range(9, 9, 9)}),
)
A, B, SIDE, C, D, Y = range(6)


def whole() -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))


def ends(values: object) -> dict[str, list[object]]:
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values  # type: ignore[attr-defined]
    }


def test_a_part_reads_what_the_rest_makes_and_hands_on_what_the_rest_reads() -> None:
    part = Cutter(whole(), PROFILES).cut([B, C])
    assert part is not None
    assert ends(part.graph.input) == {"a": ["n", 4], "z": ["n", 4]}
    assert ends(part.graph.output) == {"b": ["n", 4], "c": ["n", 4]}
    x = {name: np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32) for name in "az"}
    b, c = run(part, x)
    np.testing.assert_array_equal(b, x["a"] + x["z"])
    np.testing.assert_array_equal(c, np.maximum(b, 0))


def test_constants_come_along() -> None:
    part = Cutter(whole(), PROFILES).cut([D])
    assert part is not None
    assert [tensor.name for tensor in part.graph.initializer] == ["w"] and list(ends(part.graph.input)) == ["c"]
    assert run(part, {"c": np.zeros((1, 4), np.float32)})[0].tolist() == [[1, 2, 3, 4]]


def test_sizes_of_the_part_are_those_of_the_profiles() -> None:
    cutter = Cutter(whole(), PROFILES)
    part = cutter.cut([C])
    assert part is not None
    assert [found["n"] for found in cutter.bounds(part)] == [Range(1, 2, 8), Range(9, 9, 9)]


def test_a_node_is_widened_step_by_step() -> None:
    cutter = Cutter(whole(), PROFILES)
    assert len(cutter) == 6
    around = list(cutter.around("c"))
    assert around[:3] == [[C], [B, C, D], [A, B, SIDE, C, D, Y]]
    assert list(cutter.around("nothing")) == [] and list(cutter.around("")) == []


def test_the_last_node_hands_on_its_result_though_nothing_reads_it() -> None:
    part = Cutter(whole(), ()).cut([Y])
    assert part is not None
    assert list(ends(part.graph.input)) == ["d"] and list(ends(part.graph.output)) == ["y"]


def test_what_has_no_known_type_cannot_be_cut_off() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
    g (float[2] x) => (float[2] y) { a = own.Op (x)  y = Abs (a) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    assert Cutter(model, ()).cut([1]) is None
    assert Cutter(model, ()).cut([0, 1]) is not None


def test_nodes_that_were_sorted_are_seen_in_their_order() -> None:
    model = whole()
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in reversed(model.proto.graph.node)]
    del model.proto.graph.node[:]
    model.proto.graph.node.extend(nodes)
    turned = OnnxModel(model.proto, model.path)
    assert turned.main.columns.names[0] == "y"
    sort(turned)
    names = list(turned.main.columns.names)
    assert names == [node.name for node in turned.proto.graph.node] and names.index("a") < names.index("b")
    onnx.checker.check_model(turned.proto)


def test_a_part_takes_the_sizes_at_each_end_of_each_profile() -> None:
    """Sizes that are the same at all of them are numbers; axes with the same sizes have one name."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n,4] x, float[m,4] z) => (float[p,4] y) <float[2,4] w = {1,2,3,4,5,6,7,8}> {
        a = Concat <axis = 0> (x, w) b = Transpose <perm = [1,0]> (a) c = Concat <axis = 0> (x, z) d = Abs (c)
        e = Neg (w) k = MatMul (c, b) y = Neg (k) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    profile = ShapeProfile(
        {"x": InputRange((1, 4), (2, 4), (8, 4)), "z": InputRange((3, 4), (4, 4), (4, 4))},
        {"n": Range(1, 2, 8), "m": Range(3, 4, 4)},
    )
    cutter = Cutter(model, [profile])
    parts = {index: cutter.cut([index]) for index in range(7)}
    inputs = {index: ends(part.graph.input) for index, part in parts.items() if part is not None}
    assert inputs[0] == {"x": ["n", 4]}
    assert inputs[2] == {"x": ["n", 4], "z": ["m", 4]}
    assert inputs[4] == {}
    (a,), (c,) = inputs[1].values(), inputs[3].values()
    assert (a[1], c[1]) == (4, 4) and len({a[0], c[0], "n", "m"}) == 4
    assert inputs[5] == {"c": c, "b": [4, a[0]]}
    part = parts[5]
    assert part is not None
    assert cutter.bounds(part) == ({a[0]: Range(3, 4, 10), c[0]: Range(4, 6, 12)},)
    assert ends(part.graph.output) == {"k": [c[0], a[0]]}


def test_sparse_constants_and_functions_come_along() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[5] x) => (float[5] y, float[5] z) {
        a = my.F (x) y = Add (a, s) z = Neg (x) }
    <domain: "my", opset_import: ["": 17]> F (p) => (q) { q = Abs (p) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.name, proto.ir_version = "", 3
    values = onnx.helper.make_tensor("s", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    at = onnx.helper.make_tensor("at", onnx.TensorProto.INT64, [2], [0, 3])
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, at, [5]))
    part = Cutter(OnnxModel(proto, Path("m.onnx")), ()).cut([0, 1])
    assert part is not None
    assert [sparse.values.name for sparse in part.graph.sparse_initializer] == ["s"]
    assert (len(part.functions), part.graph.name, part.ir_version) == (1, "part", 4)
    assert list(ends(part.graph.input)) == ["x"] and list(ends(part.graph.output)) == ["y"]


def test_results_of_unknown_shapes_have_types_and_inputs_none() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[n,4] x, float[k] v) => (float[a] y) {
        a = NonZero (x) b = Cast <to = 1> (a) c = my.F (x) d = Neg (b) y = Neg (c) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    profile = ShapeProfile(
        {"x": InputRange((1, 4), (2, 4), (8, 4)), "v": InputRange((1,), (1,), (1,))},
        {"n": Range(1, 2, 8), "k": Range(1, 1, 1)},
    )
    cutter = Cutter(model, [profile])
    part = cutter.cut([0, 1])
    assert part is not None
    kind = part.graph.output[0].type.tensor_type
    assert (kind.elem_type, kind.HasField("shape")) == (onnx.TensorProto.FLOAT, False)
    own = cutter.cut([2])
    assert own is not None and not own.graph.output[0].HasField("type")
    assert cutter.cut([3]) is None and cutter.cut([4]) is None
    # Without profiles, what inference knows is told.
    plain = Cutter(model, ()).cut([3])
    assert plain is not None and ends(plain.graph.input)["b"][0] == 2


def test_weights_of_four_bits_keep_no_shape_from_being_known() -> None:
    text = """<ir_version: 10, opset_import: ["": 17]> g (float[n,4] x, int4[2] q) => (float[n,4] y) <float s = {0.5}> {
        d = DequantizeLinear (w, s) e = DequantizeLinear (q, s) a = Mul (x, d) y = Neg (a) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.helper.make_tensor("w", onnx.TensorProto.INT4, [4], [1, 2, 3, 4]))
    profile = ShapeProfile(
        {"x": InputRange((1, 4), (2, 4), (8, 4)), "q": InputRange((2,), (2,), (2,))}, {"n": Range(1, 2, 8)}
    )
    model = OnnxModel(proto, Path("m.onnx"))
    cutter = Cutter(model, [profile])
    part = cutter.cut([3])
    assert part is not None and ends(part.graph.input) == {"a": ["n", 4]}
    whole = cutter.cut([0, 2])
    assert whole is not None and [tensor.data_type for tensor in whole.graph.initializer][1] == onnx.TensorProto.INT4
    assert model.proto.graph.initializer[1].data_type == onnx.TensorProto.INT4
