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
