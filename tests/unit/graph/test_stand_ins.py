"""Random values in place of a model's own: what they have in common, and where constants stand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from support.onnx_models import parse
from trtconv.graph.stand_ins import Constant, Likeness, constants, resized, sizes_of, stand_in, with_stand_ins

STATISTICS, PATTERN = Likeness.STATISTICS, Likeness.PATTERN


@pytest.mark.parametrize("mean", [-300.0, 0.0, 40.0])
@pytest.mark.parametrize("deviation", [0.5, 30.0])
def test_statistics_are_about_those_of_the_values(mean: float, deviation: float) -> None:
    values = np.random.default_rng(0).normal(mean, deviation, (100, 100)).astype(np.float32)
    made = stand_in(values, STATISTICS, 1)
    assert abs(made.mean() - mean) < 0.1 * deviation + 0.05 * abs(mean)
    assert 0.8 < made.std() / deviation < 1.2
    assert values.min() < made.min() and made.max() < values.max()
    assert np.array_equal(made, stand_in(values, STATISTICS, 1)) and not np.array_equal(
        made, stand_in(values, STATISTICS, 2)
    )


@pytest.mark.parametrize("value", [3.0, -3.0, 0.0])
@pytest.mark.parametrize("likeness", [STATISTICS, PATTERN])
def test_of_one_value_everywhere_the_others_are_near_and_of_its_sign(value: float, likeness: Likeness) -> None:
    made = stand_in(np.full((4, 5), value), likeness, 0)
    assert (np.sign(made) == np.sign(value)).all() and (abs(made) >= 0.75 * 3).all() == (value != 0)
    assert (abs(made) < max(abs(value), 1e-9)).all()
    assert len(np.unique(made)) == (20 if likeness is STATISTICS and value else 1)


def test_a_pattern_keeps_zeros_signs_and_what_is_no_number_in_their_places() -> None:
    values = np.array([0.0, 1.0, -1.0, 2.0, -5.0, np.inf, -np.inf, np.nan, 0.0], np.float64)
    made = stand_in(values, PATTERN, 0)
    np.testing.assert_array_equal(np.sign(made), np.sign(values))
    np.testing.assert_array_equal(np.isinf(made), np.isinf(values))
    assert 1 < made[1] < 2 and 1 < made[3] < 2 and -5 < made[2] < -1 and -5 < made[4] < -1
    alike = stand_in(np.full(3, np.inf), PATTERN, 0)
    assert np.isinf(alike).all()
    assert np.isfinite(stand_in(np.full(3, np.nan), STATISTICS, 0)).all()


def test_texts_and_nothing_stay_and_truths_are_as_many() -> None:
    for values in (np.array(["a", "b"]), np.array([b"a"], object), np.zeros((0, 3), np.float32)):
        assert stand_in(values, STATISTICS, 0) is values
    for share in (0.0, 0.2, 1.0):
        made = stand_in(np.arange(2000) < 2000 * share, STATISTICS, 3)
        assert made.dtype == bool and abs(made.mean() - share) < 0.05
    whole = stand_in(np.arange(100, dtype=np.int32), STATISTICS, 0)
    assert whole.dtype == np.int32


TEXT = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[4] x, bool c) => (float[4] y)
    <float[4] w = {1,2,3,4}, int64[1] axis = {0}> {
    t = Constant <value = float[2] {1,2}> () u = Constant <value_floats = [1.0]> () v = Constant <value_float = 2.0> ()
    i = Constant <value_int = 3> () j = my.F <alpha = 0.5, table = [1,2], one = 7, name = "n"> (x)
    k = LeakyRelu <alpha = 0.1> (x)
    y = If (c) < then_branch = a () => (float[4] p) <float[4] inner = {5,6,7,8}> { p = Add (x, inner) },
                 else_branch = b () => (float[4] q) { q = my.G (x) }> }
    <domain: "my", opset_import: ["": 17]> G (a) => (b) { s = Constant <value = float[1] {9}> () b = Add (a, s) }"""


def test_constants_are_weights_of_all_graphs_and_numbers_that_may_be_trained() -> None:
    proto = parse(TEXT)
    values = helper.make_tensor("sparse", TensorProto.FLOAT, [1], [1.0])
    at = helper.make_tensor("at", TensorProto.INT64, [1], [0])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [5]))
    held = {constant.name: constant.values.tolist() for constant in constants(proto)}
    assert held == {
        "w": [1, 2, 3, 4],
        "axis": [0],
        "sparse": [1],
        "inner": [5, 6, 7, 8],
        "t": [1, 2],
        "u:value_floats": [1],
        "v:value_float": [2],
        "j:alpha": [0.5],
        "j:table": [1, 2],
        "j:one": [7],
        "s": [9],
    }
    dtypes = {constant.name: constant.dtype for constant in constants(proto)}
    assert (dtypes["j:alpha"], dtypes["j:table"], dtypes["axis"]) == ("float32", "int64", "int64")


@pytest.mark.parametrize("value", [2, 0.5, [1, 2, 3], [0.5, 1.5]])
def test_values_are_put_where_they_were(value: object) -> None:
    attribute = helper.make_attribute("a", value)
    constant = Constant("c", attribute)
    put = constant.values * 2
    constant.put(put)
    np.testing.assert_array_equal(Constant("c", attribute).values, put)
    kinds = {2: AttributeProto.INT, 0.5: AttributeProto.FLOAT}
    assert isinstance(value, list) or attribute.type == kinds[value]  # type: ignore[index]


def test_a_tensor_takes_values_of_another_shape() -> None:
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2, 3, 4])
    Constant("w", tensor).put(np.float32([[1, 2, 3], [4, 5, 6]]).T)
    assert (tensor.name, list(tensor.dims)) == ("w", [3, 2])
    assert Constant("w", tensor).values.tolist() == [[1, 4], [2, 5], [3, 6]]


def test_what_is_replaced_is_told_of_each_constant() -> None:
    proto = parse(TEXT)
    before = proto.SerializeToString()
    count = len(list(constants(proto)))
    for kept in range(count):
        likeness = [Likeness.KEPT if n == kept else STATISTICS for n in range(count)]
        copy = with_stand_ins(proto, likeness)
        same = [a.values.tolist() == b.values.tolist() for a, b in zip(constants(proto), constants(copy), strict=True)]
        assert same[kept] and sum(same) <= 2, "the axis 0 stays 0 in any case"
    assert proto.SerializeToString() == before
    assert with_stand_ins(proto, [Likeness.RENAMED] * count).SerializeToString() == before


def test_sizes_are_those_of_weights_and_inputs() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,6,8] x) => (float[n,6,8] y)
        <float[8] w = {1,2,3,4,5,6,7,8}> {
        s = Shape <start = 8> (x) y = Mul (x, w) }"""
    proto = parse(text)
    assert sizes_of(proto) - {0} == {6, 8}
    small = resized(proto, {8: 3})
    assert sizes_of(small) - {0} == {6, 3}
    assert Constant("w", small.graph.initializer[0]).values.tolist() == [1, 2, 3]
    assert small.graph.node[0].attribute[0].i == 3
    assert small.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert not small.graph.output[0].type.tensor_type.HasField("shape")
    assert proto.graph.output[0].type.tensor_type.HasField("shape")
    assert onnx.ModelProto.FromString(small.SerializeToString()) == small
