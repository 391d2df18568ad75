"""Pieces on ONNX Runtime: what is computed of each kind of inputs, of magnitudes, and of what is moved a little."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from trtconv.runtimes.proof.feeds import InputKind, Role, Source, make
from trtconv.runtimes.proof.models import Models, load
from trtconv.runtimes.proof.task import Look, Task
from trtconv.runtimes.proof.tolerance import PERTURBATION

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def task(*sources: Source, shape: tuple[int, ...] = (2, 4), **changes: Any) -> Task:
    plain = Task(
        number=3,
        nodes=(0,),
        sources=sources or (Source("x", "float32"),),
        target="y",
        shapes={source.name: shape for source in sources or (Source("x", "float32"),)},
        limits=(1.0,),
        largest=30.0,
        kinds=(InputKind.ORDINARY,),
        eps=2.0**-23,
        narrow=False,
    )
    return dataclasses.replace(plain, **changes)


def answers(folder: Path, body: str, *tasks: Task) -> list[dict[str, Any]]:
    """Returns what is told of pieces, each with its arrays under "arrays"."""
    told: list[Any] = []
    proto = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + body))
    Models()((str(folder / "m.onnx"), proto.SerializeToString(), tasks, str(folder)), told.append)
    assert [event["event"] for event in told] == ["begin", "piece"] * len(tasks)
    assert [event["number"] for event in told] == [each.number for each in tasks for _ in range(2)]
    return [{**event, "arrays": load(event)} for event in told[1::2]]


def fed(each: Task, kind: InputKind = InputKind.ORDINARY, calm: int = 0) -> dict[str, NDArray[Any]]:
    return make(each.sources, each.shapes, kind, each.limits, each.largest, calm)


def test_each_kind_has_its_result(tmp_path: Path) -> None:
    piece = task(kinds=(InputKind.ORDINARY, InputKind.NEGATIVE))
    (answer,) = answers(tmp_path, "(float[2,4] x) => (float[2,4] y) { y = Relu (x) }", piece)
    assert answer["calm"] == {"0": 0, "3": 0} and not answer["why"]
    assert answer["arrays"].keys() == {"value 0", "value 3"}
    for kind in piece.kinds:
        np.testing.assert_array_equal(answer["arrays"][f"value {kind}"], np.maximum(fed(piece, kind)["x"], 0))


def test_files_of_old_versions_are_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_proof_models.HEAD", HEAD.replace("8", "3"))
    (answer,) = answers(tmp_path, "(float[2,4] x) => (float[2,4] y) <float w = {3}> { y = Mul (x, w) }", task())
    assert answer["calm"] == {"0": 0} and not answer["why"]


def test_sizes_may_be_parts_of_the_shape_of_a_source(tmp_path: Path) -> None:
    body = """(float[1,1,2,4] x) => (float[1,1,2,4] y)
    <float[1,1,1,1] w = {3}, int64[1] all = {-1}, int64[2] front = {1, 1}> {
        h = Shape <start = 2, end = 3> (x)  i = Squeeze (h)  j = Reshape (i, all)
        v = Shape <start = 3, end = 4> (x)  s = Concat <axis = 0> (front, j, v)
        y = Resize <mode = "linear"> (w, , , s) }"""
    piece = task(nodes=tuple(range(6)), shape=(1, 1, 2, 4))
    (answer,) = answers(tmp_path, body, piece)
    assert not answer["why"]
    np.testing.assert_array_equal(answer["arrays"]["value 0"], np.full((1, 1, 2, 4), 3, np.float32))


def test_a_kind_that_it_does_not_take_leaves_the_others(tmp_path: Path) -> None:
    body = """(float[2,4] x) => (float[2,4] y) <float[1] row = {7}>
    { i = Cast <to = 7> (x)  y = Gather (row, i) }"""
    piece = task(nodes=(0, 1), kinds=(InputKind.LARGE, InputKind.ZEROS))
    (answer,) = answers(tmp_path, body, piece)
    assert answer["arrays"].keys() == {"value 5"} and (answer["arrays"]["value 5"] == 7).all()


def test_of_a_sum_the_magnitudes_are_summed(tmp_path: Path) -> None:
    body = """(float[2,4] x, float[2,4] z) => (float[2,3] y)
    <float[4,3] w = {-1,2,-3, 4,-5,6, -7,8,-9, 1,-1,1}> { d = Sub (x, z)  y = MatMul (d, w) }"""
    piece = task(Source("x", "float32"), Source("z", "float32"), nodes=(0, 1), look=Look.TERMS)
    (answer,) = answers(tmp_path, body, piece)
    w = np.array([[-1, 2, -3], [4, -5, 6], [-7, 8, -9], [1, -1, 1]], np.float32)
    feeds = fed(piece)
    np.testing.assert_allclose(answer["arrays"]["value 0"], (feeds["x"] - feeds["z"]) @ w, rtol=1e-5, atol=1e-5)
    terms = (np.abs(feeds["x"]) + np.abs(feeds["z"])) @ np.abs(w)
    np.testing.assert_allclose(answer["arrays"]["terms 0"], terms, rtol=1e-5)


def test_gains_of_gemm_and_constants_of_nodes_are_magnitudes_too(tmp_path: Path) -> None:
    body = """(float[2,4] x) => (float[2,4] y) <float[4,4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}>
    { c = Constant <value = float[4] {-1, -2, -3, -4}> ()  y = Gemm <alpha = -2.0, beta = -0.5> (x, w, c) }"""
    (answer,) = answers(tmp_path, body, piece := task(nodes=(0, 1), look=Look.TERMS))
    terms = 2 * np.abs(fed(piece)["x"]) + np.array([0.5, 1, 1.5, 2], np.float32)
    np.testing.assert_allclose(answer["arrays"]["terms 0"], terms, rtol=1e-5)


def test_what_variance_is_subtracted_keeps_it(tmp_path: Path) -> None:
    body = """(float[2,4] x) => (float[2,4] y)
    <float[4] s = {-1,1,1,1}, float[4] b = {0,-3,0,0}, float[4] m = {1,1,1,1}, float[4] v = {4,4,4,4}>
    { y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v) }"""
    (answer,) = answers(tmp_path, body, piece := task(look=Look.TERMS))
    terms = (np.abs(fed(piece)["x"]) + 1) / 2 + np.array([0, 3, 0, 0], np.float32)
    np.testing.assert_allclose(answer["arrays"]["terms 0"], terms, rtol=1e-5)


def test_terms_are_computed_where_they_are_asked_for(tmp_path: Path) -> None:
    body = "(float[2,4] x) => (float[2,4] y) <float w = {3}> { y = Mul (x, w) }"
    looks = [task(look=look) for look in Look]
    found = [sorted(name.split()[0] for name in answer["arrays"]) for answer in answers(tmp_path, body, *looks)]
    assert found == [["value"], ["terms", "value"], ["beside"] * 2 + ["moved"] * 4 + ["terms", "value"]]


def test_a_closer_look_is_at_the_inputs_of_the_first(tmp_path: Path) -> None:
    body = "(float[2,4] x, int64[2] s) => (float[2,4] y) { y = Reshape (x, s) }"
    sources = Source("x", "float32"), Source("s", "int64", Role.SIZES)
    piece = task(*sources, shapes={"x": (2, 4), "s": (2,)}, result=(2, 4))
    (first,) = answers(tmp_path, body, piece)
    calm = first["calm"]["0"]
    (again,) = answers(tmp_path, body, dataclasses.replace(piece, calms={InputKind.ORDINARY: calm}))
    assert again["calm"] == {"0": calm}
    (none,) = answers(tmp_path, body, dataclasses.replace(piece, calms={InputKind.ORDINARY: 0}))
    assert none["calm"] == {}


def test_what_moves_values_has_no_terms(tmp_path: Path) -> None:
    (answer,) = answers(tmp_path, "(float[2,4] x) => (float[4,2] y) { y = Transpose (x) }", task(look=Look.TERMS))
    assert answer["arrays"].keys() == {"value 0"}


def test_closely_a_piece_is_moved_a_little_and_very_little(tmp_path: Path) -> None:
    body = "(float[2,4] x) => (float[2,4] y) <float w = {3}> { y = Mul (x, w) }"
    (answer,) = answers(tmp_path, body, piece := task(look=Look.MOVED))
    value, arrays = 3 * fed(piece)["x"], answer["arrays"]
    moves = ["0", "1", "weights 0", "weights 1"]
    assert arrays.keys() == {"value 0", "terms 0", *(f"moved 0 {n}" for n in moves), "beside 0 0", "beside 0 1"}
    for number in moves:
        np.testing.assert_allclose(np.abs(arrays[f"moved 0 {number}"] / value - 1), PERTURBATION, rtol=1e-3)
    for number in range(2):
        np.testing.assert_allclose(np.abs(arrays[f"beside 0 {number}"] / value - 1), 4 * piece.eps, atol=2.0**-23)
    # The weights are moved too, each of them as a whole here.
    assert len({float((arrays[f"moved 0 {n}"] / value).std()) < 1e-6 for n in moves[2:]}) == 1


def test_each_value_is_moved_to_both_sides_with_and_against_others(tmp_path: Path) -> None:
    body = "(float[2,4] x, float[2,4] z) => (float[2,4] y) { y = Div (x, z) }"
    piece = task(Source("x", "float32"), Source("z", "float32"), look=Look.MOVED)
    (answer,) = answers(tmp_path, body, piece)
    value, arrays = answer["arrays"]["value 0"], answer["arrays"]
    ratios = np.stack([arrays[f"moved 0 {number}"] / value - 1 for number in range(4)]) / PERTURBATION
    # Two moves leave the quotient of each element, one makes it larger and one smaller.
    expected = np.broadcast_to(np.array([-2, 0, 0, 2]).reshape(4, 1, 1), ratios.shape)
    np.testing.assert_allclose(np.sort(ratios, axis=0), expected, atol=0.01)


@pytest.mark.parametrize(
    ("nodes", "rounds"),
    [
        ("l = Less (x, c)  y = Cast <to = 1> (l)", False),
        ("k = Clip (x, c)  r = Round (k)  y = Neg (r)", False),
        ("d = Div (x, c)  y = Floor (d)", True),
    ],
)
def test_only_what_rounds_has_a_border_that_rounding_may_cross(nodes: str, rounds: bool, tmp_path: Path) -> None:
    body = f"(float[2,4] x) => (float[2,4] y) <float c = {{0.5}}> {{ {nodes} }}"
    piece = task(nodes=tuple(range(len(nodes.split("  ")))), look=Look.MOVED)
    (answer,) = answers(tmp_path, body, piece)
    assert any(name.startswith("beside") for name in answer["arrays"]) is rounds


def test_the_terms_of_a_remainder_are_as_large_as_what_is_divided(tmp_path: Path) -> None:
    body = "(float[2,4] x) => (float[2,4] y) <float c = {0.25}> { y = Mod <fmod = 1> (x, c) }"
    (answer,) = answers(tmp_path, body, piece := task(look=Look.TERMS))
    np.testing.assert_array_equal(answer["arrays"]["terms 0"], np.maximum(np.abs(fed(piece)["x"]), 0.25))


def test_a_type_that_numpy_lacks_is_handed_over_in_a_wider_one(tmp_path: Path) -> None:
    body = "(bfloat16[2,4] x) => (bfloat16[2,4] y) { f = Cast <to = 1> (x)  n = Neg (f)  y = Cast <to = 16> (n) }"
    piece = task(Source("x", "bfloat16"), nodes=(0, 1, 2), narrow=True)
    (answer,) = answers(tmp_path, body, piece)
    assert answer["arrays"]["value 0"].dtype == np.float32
    np.testing.assert_array_equal(answer["arrays"]["value 0"], -fed(piece)["x"].astype(np.float32))


def test_integers_become_calmer_until_the_piece_takes_them(tmp_path: Path) -> None:
    body = "(float[2,4] x, int64[2,4] z) => (float[2,4] y) { y = GatherElements <axis = 0> (x, z) }"
    wild = task(Source("x", "float32"), Source("z", "int64"))
    (answer,) = answers(tmp_path, body, wild)
    assert answer["calm"] == {"0": 1}
    assert set(fed(wild, calm=1)["z"].ravel().tolist()) <= {0, 1}


def test_sizes_are_tried_until_the_result_has_the_shape_that_is_known(tmp_path: Path) -> None:
    body = "(float[2,4] x, int64[2] z) => (float[a,b] y) { y = Tile (x, z) }"
    sizes = Source("z", "int64", Role.SIZES)
    piece = task(Source("x", "float32"), sizes, shapes={"x": (2, 4), "z": (2,)}, result=(4, 12))
    assert piece.sizing and not task().sizing
    (answer,) = answers(tmp_path, body, piece)
    assert answer["arrays"]["value 0"].shape == (4, 12) and answer["calm"]["0"] > 2
    (none,) = answers(tmp_path, body, dataclasses.replace(piece, result=(2, 401)))
    assert none["arrays"] == {} and "shape that it is known to have" in none["why"]


@pytest.mark.parametrize(
    ("body", "piece", "why"),
    [
        ("(float[2,4] x) => (float[2,4] y) { a = Neg (x)  y = Abs (a) }", task(nodes=(1,)), "'a', which nothing makes"),
        ("(float[2,4] x) => (float[2,4] y) <float[3] w = {1,2,3}> { y = Add (x, w) }", task(), ""),
        ("(float[2,4] x) => (string[2,4] y) { y = Cast <to = 8> (x) }", task(), "not a tensor of numbers"),
        ("(float[2,4] x) => (float[2,4] y) { y = Nothing (x) }", task(), "ONNX Runtime does not load the model"),
    ],
)
def test_what_cannot_be_run_says_why_and_does_not_stop_the_others(
    tmp_path: Path, body: str, piece: Task, why: str
) -> None:
    answer, again = answers(tmp_path, body, piece, dataclasses.replace(piece, number=9))
    assert answer["arrays"] == {} and answer["calm"] == {} and answer["why"]
    assert why in answer["why"] and again["why"] == answer["why"]
