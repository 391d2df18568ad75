"""Indices of scatters: drawn so that no place is written twice, and told where one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtconv.engine.cases import Case, make_feeds
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import compare_models, session
from trtconv.runtimes.proof.places import apart, names_twice


def model_of(body: str, *, opset: int = 18) -> OnnxModel:
    text = f'<ir_version: 8, opset_import: ["": {opset}, "TRT": 1]> g {body}'
    return OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))


def scatter(op: str, data: tuple[int, ...], indices: tuple[int, ...], axis: int = 0) -> tuple[OnnxModel, dict]:
    def spelled(shape: tuple[int, ...]) -> str:
        return f"[{','.join(map(str, shape))}]"

    depth = indices[-1]
    updates = indices[:-1] + data[depth:] if op == "ScatterND" else indices
    said = "" if op == "ScatterND" else f"<axis = {axis}>"
    model = model_of(
        f"(float{spelled(data)} d, int64{spelled(indices)} i, float{spelled(updates)} u) => (float{spelled(data)} y) "
        f"{{ y = {op} {said} (d, i, u) }}"
    )
    random = np.random.default_rng(0)
    feeds = {"d": random.random(data), "i": np.ones(indices, np.int64), "u": 1 + random.random(updates)}
    return model, {name: values if name == "i" else values.astype(np.float32) for name, values in feeds.items()}


@st.composite
def scatters(draw: st.DrawFn) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
    data = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    if draw(st.booleans()):
        depth = draw(st.integers(1, len(data)))
        return "ScatterND", data, (draw(st.integers(1, int(np.prod(data[:depth])))), depth), 0
    return "ScatterElements", data, tuple(draw(st.integers(1, n)) for n in data), draw(st.integers(-len(data), 2))


@given(scatters(), st.integers(0, 9))
def test_each_update_has_a_place_of_its_own(case: tuple, seed: int) -> None:
    op, data, indices, axis = case
    if axis >= len(data):
        return
    model, feeds = scatter(op, data, indices, axis)
    made = apart(model, feeds, seed)
    assert not names_twice(model.proto.graph.node[0], data, made["i"])
    assert made["i"].shape == indices and made["i"].dtype == np.int64
    (y,) = session(model).run(None, made)
    # Every update is there, since data are below 1 and updates above.
    assert sorted(y[y >= 1].tolist()) == sorted(made["u"].ravel().tolist())
    np.testing.assert_array_equal(made["i"], apart(model, feeds, seed)["i"])


def test_places_lie_all_over_the_data() -> None:
    model, feeds = scatter("ScatterND", (50, 2), (10, 1))
    assert {*range(50)} == {int(each) for seed in range(60) for each in apart(model, feeds, seed)["i"].ravel()}


@pytest.mark.parametrize(
    "body",
    [
        "(float[6] d, int64[4] i, float[4] u) => (float[6] y) <int64[1] a = {1}> "
        "{ r = Unsqueeze (i, a)  y = ScatterND (d, r, u) }",
        "(float[6] d, int32[4] i, float[4] u) => (float[6] y) { r = Cast <to = 7> (i)  y = ScatterElements (d, r, u) }",
        "(float[6] e, int32[4] i, float[4] u) => (float[6] y) { d = Abs (e)  y = TRT.ScatterElements (d, i, u) }",
    ],
    ids=["unsqueezed", "cast", "a plugin, onto what is computed"],
)
def test_indices_that_are_handed_on(body: str) -> None:
    model = model_of(body)
    made = apart(model, {"i": np.ones(4, np.int64), "d": np.ones(6), "e": np.ones(6), "u": np.ones(4)})
    assert len({*made["i"].tolist()}) == 4


def test_indices_whose_sizes_the_model_leaves_open_are_as_they_are_fed() -> None:
    model = model_of("(float[3,4] d, int64[n,k] i, float[n] u) => (float[3,4] y) { y = ScatterND (d, i, u) }")
    made = apart(model, {"d": np.zeros((3, 4)), "i": np.zeros((12, 2), np.int64), "u": np.ones(12)})["i"]
    assert sorted(made.tolist()) == [[row, column] for row in range(3) for column in range(4)]


@pytest.mark.parametrize(
    ("size", "nodes"),
    [
        (6, 'y = ScatterElements <reduction = "add"> (d, i, u)'),
        (3, "y = ScatterElements (d, i, u)"),
        (6, "r = Add (i, i)  y = ScatterElements (d, r, u)"),
        (6, "y = Gather (d, i)"),
        (6, "a = Constant <value = int64[1] {1}> ()  e = Unsqueeze (d, a)  y = ScatterElements (e, i, u)"),
    ],
    ids=["a sum", "more updates than places", "computed", "no scatter", "of another rank"],
)
def test_other_indices_stay_as_they_are(size: int, nodes: str) -> None:
    model = model_of(f"(float[{size}] d, int64[4] i, float[4] u) => (float[n] y) {{ {nodes} }}")
    ones = np.ones(4, np.int64)
    assert apart(model, {"i": ones, "d": np.ones(size), "u": np.ones(4)})["i"] is ones


@pytest.mark.parametrize(
    ("op", "indices", "twice"),
    [
        ("ScatterElements", [[0, 1], [1, 0]], False),
        ("ScatterElements", [[0, 1], [0, 0]], True),
        ("ScatterElements", [[0, 1], [-2, 0]], True),
        ("ScatterND", [[0, 1], [1, 0]], False),
        ("ScatterND", [[1, 1], [-1, -2]], True),
    ],
)
def test_places_that_are_named_twice(op: str, indices: list, twice: bool) -> None:
    node = onnx.helper.make_node(op, ["d", "i", "u"], ["y"])
    assert names_twice(node, (2, 3), np.array(indices)) is twice


def test_verify_compares_at_indices_that_settle_the_result() -> None:
    model, _ = scatter("ScatterND", (9, 2), (5, 1))
    shapes = {"d": (9, 2), "i": (5, 1), "u": (5, 2)}
    feeds = make_feeds(model, Case(0, "opt", shapes, seed=3), None)
    assert len({*feeds["i"].ravel().tolist()}) == 5


def test_indices_of_several_scatters_are_places_of_each() -> None:
    model = model_of(
        "(float[9,2] d, float[3,8] e, int64[4,2] i, float[4] u) => (float[9,2] y, float[3,8] z) "
        "{ z = ScatterND (e, i, u)  y = ScatterND (d, i, u) }"
    )
    feeds = {"d": np.zeros((9, 2)), "e": np.zeros((3, 8)), "u": np.ones(4)}
    given_ = {**{name: values.astype(np.float32) for name, values in feeds.items()}, "i": np.zeros((4, 2), np.int64)}
    for seed in range(20):
        made = apart(model, given_, seed)
        y, z = session(model).run(None, made)
        assert (y.sum(), z.sum()) == (4, 4)


@pytest.mark.parametrize("read", ["Gather (s, i)", "GatherND (s, i)", "GatherElements (s, i)"])
def test_indices_that_gather_from_what_is_not_known_stay(read: str) -> None:
    model = model_of(
        "(float[100,2] d, int64[3,1] i, float[3,2] u) => (float[100,2] y, float z) "
        f"{{ s = TRT.Strange (d)  y = ScatterND (d, i, u)  z = {read} }}"
    )
    indices = np.ones((3, 1), np.int64)
    assert apart(model, {"d": np.zeros((100, 2)), "u": np.ones((3, 2)), "i": indices})["i"] is indices


def test_indices_that_gather_from_what_is_known_in_part_stay() -> None:
    model = model_of(
        "(float[9,9] d, int64[3,2] i, float[3] u) => (float[9,9] y, float z) <float[n,4] s> "
        "{ s = TRT.Strange (d)  y = ScatterND (d, i, u)  z = GatherND (s, i) }"
    )
    indices = np.ones((3, 2), np.int64)
    assert apart(model, {"d": np.zeros((9, 9)), "u": np.ones(3), "i": indices})["i"] is indices


@pytest.mark.parametrize(
    "read",
    [
        "Gather <axis = 0> (b, i)",
        "Gather <axis = 1> (b, i)",
        "GatherND <batch_dims = 0> (b, i)",
        "GatherElements <axis = 0> (b, i)",
        "GatherElements <axis = 1> (b, i)",
    ],
)
def test_indices_that_gather_too_are_places_of_what_they_read(read: str) -> None:
    model = model_of(
        "(float[100,2] d, float[9,4] b, int64[3,1] i, float[3,2] u) => (float[100,2] y, float z) "
        f"{{ y = ScatterND (d, i, u)  w = {read}  z = ReduceSum <keepdims = 0> (w) }}"
    )
    feeds = {"d": np.zeros((100, 2)), "b": np.arange(36.0).reshape(9, 4), "u": np.ones((3, 2))}
    given_ = {**{name: values.astype(np.float32) for name, values in feeds.items()}, "i": np.zeros((3, 1), np.int64)}
    for seed in range(20):
        made = apart(model, given_, seed)
        y, _ = session(model).run(None, made)
        assert y.sum() == 6


def test_what_adds_or_writes_nothing_names_no_place_twice() -> None:
    twice, none = np.array([[1], [1]]), np.zeros((0, 1), np.int64)
    node, added = (onnx.helper.make_node("ScatterND", ["d", "i", "u"], ["y"], reduction=how) for how in ("none", "add"))
    assert [names_twice(node, (3,), twice), names_twice(added, (3,), twice)] == [True, False]
    assert not names_twice(node, (3,), none)


def test_what_other_indices_gather_from_leaves_the_places_of_a_scatter_alone() -> None:
    """Whether their name comes before or behind, and where nobody knows what they are."""
    model = model_of(
        "(float[30,2] d, float[5,1] b, int64[3,1] a, int64[30,1] i, int64[3,1] z, float[30,2] u) => (float[30,2] y) "
        "{ y = ScatterND (d, i, u)  v = Gather (b, a)  w = Gather (b, z)  c = Add (a, z)  t = Gather (b, c) }"
    )
    shapes = {"d": (30, 2), "b": (5, 1), "u": (30, 2)}
    feeds = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    feeds |= {name: np.zeros((count, 1), np.int64) for name, count in (("a", 3), ("i", 30), ("z", 3))}
    assert sorted(apart(model, feeds)["i"].ravel().tolist()) == list(range(30))


ALIGNED = """(float[1,1,7,7] x, float[3,4] b, int64[3] i) => (float[3,1,1,2] y)
{ y = RoiAlign <output_width = 2, sampling_ratio = 2> (x, b, i) }"""


@pytest.mark.parametrize(
    ("body", "span"),
    [
        (ALIGNED, range(1)),
        ("(float[2,3] x, int64[3] i) => (float[2,3] y) { y = Gather <axis = 1> (x, i) }", range(3)),
        ("(float[n,3] x, int32[3] i) => (float[3,3] y) { j = Cast <to = 7> (i) y = Gather (x, j) }", range(2)),
        ("(float[2,3] x, int64[3] i) => (float[2,3] y) { j = Cast <to = 1> (i) y = Add (x, j) }", range(8)),
    ],
)
def test_an_index_lies_in_what_it_chooses_from(body: str, span: range) -> None:
    model = model_of(body)
    shapes = {"x": [2, 3] if "[1," not in body else [1, 1, 7, 7], "b": [3, 4]}
    feeds = {spec.name: np.zeros(shapes.get(spec.name, [3]), np.float32) for spec in model.inputs}
    dtype = np.int32 if "int32" in body else np.int64
    made = apart(model, {**feeds, "i": np.array([1, 0, 7], dtype)})
    assert made["i"].dtype == dtype
    assert made["i"].tolist() == [value % len(span) for value in (1, 0, 7)]
    session(model).run(None, made)


LENGTHS = "(float[6,2,3] x, {}[2] i) => (float[6,2,3] y) {{ y = ReverseSequence (x, {}) }}"
TALL = "(float[300,3] x, int8[3] i) => (float[3,3] y) { j = Cast <to = 7> (i) y = Gather (x, j) }"


def test_lengths_are_steps_that_there_are() -> None:
    model = model_of(LENGTHS.format("int64", "i"))
    made = apart(model, {"x": np.zeros((6, 2, 3), np.float32), "i": np.array([0, 7], np.int64)})
    assert made["i"].tolist() == [6, 1]
    small = model_of(LENGTHS.format("uint8", "j").replace("{ y", "{ j = Cast <to = 7> (i) y"))
    made = apart(small, {"x": np.zeros((6, 2, 3), np.float32), "i": np.array([0, 250], np.uint8)})
    assert made["i"].dtype == np.uint8
    assert made["i"].tolist() == [6, 4]


def test_indices_stay_numbers_of_their_type() -> None:
    made = apart(model_of(TALL), {"x": np.zeros((300, 3), np.float32), "i": np.array([-5, 7, 127], np.int8)})
    assert made["i"].dtype == np.int8
    assert made["i"].tolist() == [123, 7, 127]


@pytest.mark.parametrize("op", ["GatherElements <axis = 7> (x, i)", "ReverseSequence <time_axis = -5> (x, j)"])
def test_axes_that_are_none_are_no_tables(op: str) -> None:
    model = model_of(f"(float[2,3] x, int64[2,3] i, int64[3] j) => (float[2,3] y) {{ y = {op} }}")
    feeds = {"x": np.zeros((2, 3), np.float32), "i": np.ones((2, 3), np.int64), "j": np.ones(3, np.int64)}
    made = apart(model, feeds)
    assert all(np.array_equal(made[name], feeds[name]) for name in feeds)


def test_a_rewrite_is_compared_where_there_is_one_image_to_take_regions_of() -> None:
    model = model_of(ALIGNED)
    result = compare_models(model, model_of(ALIGNED.replace("_ratio = 2", '_ratio = 2, mode = "avg"')))
    assert result.max_relative_error == 0
    assert not result.why
