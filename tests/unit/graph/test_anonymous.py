"""Models under other names, with other weights, and what is left of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper, numpy_helper

from trtconv.graph.anonymous import Aliases, anonymous, onnx_words, texts
from trtconv.graph.leaks import find_leaks
from trtconv.graph.model import OnnxModel
from trtconv.graph.stand_ins import Constant, Likeness, as_inputs, constants, resized, stand_in, with_stand_ins

TEXT = """<ir_version: 9, opset_import: ["": 18, "acme.vision": 2], producer_name: "acme-exporter">
    acme_net (float[acme_rows, acme_rows, 4] acme_x, bool acme_flag) => (float[p, q] acme_y)
      <float[4, 4] acme_w = {1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5, 12.5, 13.5, 14.5, 15.5, 16.5}> {
        [acme_mul] a = MatMul (acme_x, acme_w)
        b = Einsum <equation = "zkw,zkw->zk"> (a, acme_x)
        c = acme.vision.AcmeGate <acme_power = 3, acme_kind = "acme-soft"> (b)
        d = If (acme_flag) <then_branch = acme_t () => (float[p, q] acme_p) { acme_p = Relu (c) },
                            else_branch = acme_e () => (float[p, q] acme_q) { acme_q = Neg (b) }>
        e = acme.vision.AcmeScale (d)
        acme_y = Resize <mode = "linear", coordinate_transformation_mode = "asymmetric"> (e, , acme_s)
        acme_s = Constant <value = float[2] {1.0, 2.0}> ()
    }
    <domain: "acme.vision", opset_import: ["": 18]>
    AcmeScale (acme_in) => (acme_out) {
        acme_k = Constant <value_floats = [0.731, 0.113]> ()
        acme_out = Identity (acme_in)
    }"""


@pytest.fixture
def model(tmp_path: Path) -> OnnxModel:
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.node[0].doc_string = "/home/acme/train.py"
    helper.set_model_props(proto, {"acme_commit": "8f2a"})
    proto.graph.node[0].metadata_props.add(key="acme_scope", value="acme.encoder")
    return OnnxModel(proto, tmp_path / "acme-secret.onnx")


def test_no_name_is_left_and_the_graph_is_the_same(model: OnnxModel) -> None:
    aliases = Aliases(set(texts(model.proto)))
    copy = anonymous(model.proto, aliases)
    assert not [text for text in texts(copy) if "acme" in text.lower()]
    assert set(texts(copy)) & set(texts(model.proto)) <= onnx_words() | {""}
    assert [node.op_type for node in copy.graph.node if node.op_type in onnx_words()] == [
        *("MatMul", "Einsum", "If", "Resize", "Constant")
    ]
    resize = copy.graph.node[5]
    assert {a.name: a.s for a in resize.attribute} == {
        "mode": b"linear",
        "coordinate_transformation_mode": b"asymmetric",
    }
    assert copy.graph.node[1].attribute[0].s == b"abc,abc->ab"
    assert [a.i for a in copy.graph.node[2].attribute if a.type == onnx.AttributeProto.INT] == [3]
    first, second, _ = (dim.dim_param for dim in copy.graph.input[0].type.tensor_type.shape.dim)
    assert first == second == aliases.dim("acme_rows")
    # What is read is what was made, bodies and functions included.
    assert copy.graph.node[0].output[0] in copy.graph.node[1].input
    branch = copy.graph.node[3].attribute[0].g
    assert branch.node[0].input[0] == copy.graph.node[2].output[0]
    assert copy.graph.node[4].op_type == copy.functions[0].name
    np.testing.assert_array_equal(*(numpy_helper.to_array(p.graph.initializer[0]) for p in (copy, model.proto)))


def test_messages_and_expressions_speak_of_the_other_names() -> None:
    aliases = Aliases({"t0"})
    assert aliases("t", "weights") == "t1"
    assert aliases.dim("2*rows + rows") == "2*d0 + d0"
    assert aliases.dim("weights:2") == "t1:2"
    assert aliases.text("weights of weights_2 at rows") == "t1 of weights_2 at d0"


def test_every_weight_is_replaced_and_no_structure(model: OnnxModel) -> None:
    held = list(constants(model.proto))
    assert {each.values.size for each in held} == {16, 2, 1}
    likeness = [each.least for each in held]
    other = with_stand_ins(model.proto, likeness)
    for before, after in zip(held, constants(other), strict=True):
        # The one integer of an operator of its own is taken for a size.
        assert np.isin(before.values, after.values).any() == (before.values.size == 1)
        assert before.values.shape == after.values.shape
        assert before.values.dtype == after.values.dtype


@pytest.mark.parametrize(
    ("count", "largest", "stays"), [(16, 64, True), (17, 64, False), (2, 1 << 20, False), (1, (1 << 63) - 1, True)]
)
@pytest.mark.parametrize("as_lists", [True, False])
def test_integers_of_an_operator_of_its_own_are_a_table_where_they_are_many_or_large(
    count: int, largest: int, stays: bool, as_lists: bool
) -> None:
    numbers = [*range(count - 1), largest]
    parts = (
        {"first": numbers[:1], "rest": numbers[1:]}
        if as_lists and count > 1
        else dict(zip(map("a{}".format, numbers), numbers, strict=True))
    )
    node = helper.make_node("Own", ["x"], ["y"], domain="acme", **parts)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    held = list(constants(helper.make_model(helper.make_graph([node], "g", [x], [y]))))
    assert sum(each.values.size for each in held) == count
    last = next(each for each in held if largest in each.values)
    assert last.is_structure is stays


def test_large_integers_of_initializers_are_weights() -> None:
    small, large = (numpy_helper.from_array(np.array([3, number]), "w") for number in (7, 1_000_003))
    assert [Constant("w", each).is_structure for each in (small, large)] == [True, False]


@pytest.mark.parametrize("likeness", [Likeness.STATISTICS, Likeness.PATTERN])
@given(
    values=hnp.arrays(
        st.sampled_from([np.float32, np.float16, np.float64]),
        hnp.array_shapes(max_dims=3, max_side=6),
        elements=st.floats(-1000, 1000, width=16),
    ),
    seed=st.integers(0, 9),
)
def test_stand_ins_are_like_what_they_stand_for(likeness: Likeness, values: np.ndarray, seed: int) -> None:  # type: ignore[type-arg]
    made = stand_in(values, likeness, seed)
    assert (made.shape, made.dtype) == (values.shape, values.dtype)
    assert np.isfinite(made).all()
    slack = 2e-3 * (np.abs(values).max() + 1e-6)
    assert made.min() >= min(values.min(), 0.7 * values.min()) - slack
    assert made.max() <= max(values.max(), 0.7 * values.max()) + slack
    if likeness is Likeness.PATTERN:
        large = np.abs(values) > 1e-2
        np.testing.assert_array_equal(np.sign(made)[large], np.sign(values)[large])
    if values.dtype == np.float64 and likeness is Likeness.STATISTICS:
        assert not np.isin(made[made != 0], values).any()


def test_infinities_and_integers_keep_their_places() -> None:
    wide = np.array([np.nan, np.inf, 0, -2, 5], np.float32)
    made = stand_in(wide, Likeness.PATTERN, 1)
    np.testing.assert_array_equal(np.isfinite(made), np.isfinite(wide))
    table = np.arange(-60, 60, dtype=np.int8)
    drawn = stand_in(table, Likeness.STATISTICS, 1)
    assert drawn.dtype == np.int8
    assert (drawn != table).sum() > 100
    assert drawn.min() >= -60
    assert drawn.max() < 60


def test_sizes_change_everywhere_at_once() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 64, 8, 8] x) => (float[1, 64, 64] y)
        <int64[3] s = {1, 64, 64}> { c = Conv <group = 64> (x, w)  y = Reshape (c, s) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((64, 1, 3, 3), np.float32), "w"))
    small = resized(proto, {64: 4})
    assert [list(tensor.dims) for tensor in small.graph.initializer] == [[3], [4, 1, 3, 3]]
    assert numpy_helper.to_array(small.graph.initializer[0]).tolist() == [1, 4, 4]
    assert small.graph.node[0].attribute[0].i == 4
    assert small.graph.input[0].type.tensor_type.shape.dim[1].dim_value == 4
    given_weights = as_inputs(proto, 1000)
    assert [value.name for value in given_weights.graph.input] == ["x", "w"]
    assert [tensor.name for tensor in given_weights.graph.initializer] == ["s"]


WEIGHTS = np.random.default_rng(5).standard_normal((40, 30)).astype(np.float32)


def part(*, name: str = "t0", weight: bytes = b"", op: str = "Relu") -> bytes:
    values = helper.make_tensor("w0", TensorProto.UINT8, [len(weight)], weight, raw=True)
    graph = helper.make_graph([helper.make_node(op, ["x0"], [name])], "part", [], [], [values])
    return helper.make_model(graph).SerializeToString()


@pytest.mark.parametrize(
    ("data", "page", "leaked"),
    [
        (part(), "", ()),
        (part(name="encoder.3/out"), "", ("encoder.3/out",)),
        (part(name="x encoder.3/out"), "", ("encoder.3/out",)),
        (part(), "It fails at encoder.3/out.", ("encoder.3/out",)),
        (part(), "secret-model fails.", ("secret-model",)),
        (part(op="AcmeGate"), "", ("AcmeGate",)),
        (part(weight=b"abc" + WEIGHTS[17, 4:6].tobytes()), "", ("weights",)),
        (part(weight=b"abc" + WEIGHTS.astype(np.float16)[17, 4:9].tobytes()), "", ()),
        (part(weight=bytes(64)), "", ()),
    ],
)
def test_leaks_are_found(tmp_path: Path, data: bytes, page: str, leaked: tuple[str, ...]) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["encoder.3/out"]),
        helper.make_node("AcmeGate", ["x"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(np.zeros(64, np.float32), "zeros")]
    proto = helper.make_model(helper.make_graph(nodes, "g", [], [], tensors))
    found = find_leaks(OnnxModel(proto, tmp_path / "secret-model.onnx"), data, page, ())
    assert found.leaked == leaked
    assert found.weight_bytes == WEIGHTS.nbytes + 256


KINDS = [np.float32, np.float16, np.float64, np.int8, np.int32, np.int64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begin", [0, 1, 599, 1_188])
@pytest.mark.parametrize("shift", [0, 3])
def test_a_run_of_any_weights_is_found_wherever_it_is(tmp_path: Path, kind: type, begin: int, shift: int) -> None:
    values = (np.random.default_rng(1).standard_normal(1_200) * 40).astype(kind)
    proto = helper.make_model(helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "held")]))
    model = OnnxModel(proto, tmp_path / "m.onnx")
    run = values[begin : begin + 12]
    assert find_leaks(model, part(weight=bytes(shift) + run.tobytes() + b"!"), "", ()).leaked == ("held",)
    # Every second one is no run, but of eight bytes, of which one is enough; nor are others like them.
    for others in (run[::2], run[::-1], -run - 1)[2 * (kind is np.float64) :]:
        assert find_leaks(model, part(weight=bytes(shift) + others.astype(kind).tobytes()), "", ()).leaked == ()


STRUCTURE = [
    (np.arange(16), True),
    (np.arange(17), False),
    (np.array([1 << 16]), True),
    (np.array([(1 << 16) + 1]), False),
    (np.array([-(1 << 16)]), True),
    (np.array([2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]), True),
    (np.array([2**31 - 2]), False),
    (np.array([True, False]), True),
    (np.array([1, 2], np.int32), False),
    (np.array([1.0], np.float32), False),
    (np.array(["a"], object), True),
]


@pytest.mark.parametrize(("values", "stays"), STRUCTURE)
def test_what_is_structure(values: np.ndarray, stays: bool) -> None:  # type: ignore[type-arg]
    held = Constant("w", numpy_helper.from_array(values, "w"))
    assert held.is_structure == stays
    kept = Likeness.RENAMED if values.dtype.kind == "O" else Likeness.KEPT
    assert held.least == (kept if stays else Likeness.STATISTICS)


@pytest.mark.parametrize(
    ("values", "may"),
    [
        ([2.0, 0.125], False),
        ([2.0, 0.12], True),
        ([0.5] * 16, True),
        ([0.5] * 17, False),
        ([np.inf, np.nan, -1.0], True),
        ([0.333], False),
        ([1e-30], True),
    ],
)
def test_few_plain_numbers_may_stay(values: list[float], may: bool) -> None:
    assert Constant("w", numpy_helper.from_array(np.array(values, np.float32), "w")).may_stay == may


def test_weights_of_nodes_are_looked_for_too(tmp_path: Path) -> None:
    node = helper.make_node("Constant", [], ["held"], value=numpy_helper.from_array(WEIGHTS, "inner"))
    model = OnnxModel(helper.make_model(helper.make_graph([node], "g", [], [])), tmp_path / "m.onnx")
    found = find_leaks(model, part(weight=WEIGHTS[3, 4:9].tobytes()), "", ())
    assert (found.leaked, found.weight_bytes) == (("inner",), WEIGHTS.nbytes)
    assert find_leaks(model, part(), "", ()).leaked == ()


TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT16, ["rows", 4])
TYPES = {
    "tensor": TENSOR,
    "of any rank": helper.make_tensor_type_proto(TensorProto.FLOAT, None),
    "of rank 0": helper.make_tensor_type_proto(TensorProto.BOOL, []),
    "sparse": helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, ["rows", 4]),
    "sequence": helper.make_sequence_type_proto(TENSOR),
    "optional": helper.make_optional_type_proto(TENSOR),
    "nested": helper.make_optional_type_proto(helper.make_sequence_type_proto(TENSOR)),
    "map": helper.make_map_type_proto(TensorProto.STRING, TENSOR),
    "none": onnx.TypeProto(),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_are_the_same_but_for_names_of_dimensions(name: str) -> None:
    kind = TYPES[name]
    node = helper.make_node("Optional", [], ["y"], type=kind)
    graph = helper.make_graph([node], "g", [onnx.ValueInfoProto(name="x", type=kind)], [onnx.ValueInfoProto(name="y")])
    aliases = Aliases({"rows"})
    copy = anonymous(helper.make_model(graph), aliases).graph
    for found in (copy.input[0].type, copy.node[0].attribute[0].tp):
        assert str(found) == str(kind).replace("rows", aliases.dim("rows"))
    assert not copy.output[0].HasField("type")
