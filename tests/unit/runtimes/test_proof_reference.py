"""The model in a process of its own: what fails there is told, what is too much is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from support.in_process import InProcess
from trtconv.core.errors import InputError
from trtconv.core.process import Lost, WorkerBug
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import reference
from trtconv.runtimes.proof.reference import Expected, Wanted, expect, has_shape, serve, stated_shapes, stated_sizes
from trtconv.runtimes.proof.rewritten import Claim, Differences, compared_pieces


class Failing:
    """A process that answers once, if at all, and fails then."""

    def __init__(self, error: Exception, answers: int = 0) -> None:
        self.error, self.answers, self.calls = error, answers, 0

    def call(self, argument: Any, seconds: float, hear: Any) -> None:
        self.calls += 1
        for number in range(self.answers):
            hear({"event": "run", "number": number, "feeds": {}, "tensors": {}, "why": ""})
        raise self.error


def saved(folder: Path, text: str) -> Wanted:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    onnx.save(proto, folder / "m.onnx")
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in proto.graph.input}
    return Wanted(str(folder / "m.onnx"), None, (shapes, shapes))


def ran(runner: Any, goal: Wanted, folder: Path) -> list[Expected]:
    results: list[Expected] = []
    expect(runner, goal, folder, 60, results, [])
    return results


FAILURES = [
    (Lost("signal 11"), "signal 11"),
    (Lost("it took longer than 60 s", "time"), "60 s"),
    (WorkerBug("Traceback\n  line\nValueError: odd"), "ValueError: odd"),
    (InputError("it is gone"), "it is gone"),
]


@pytest.mark.parametrize(("error", "why"), FAILURES)
def test_a_process_that_fails_says_why_after_a_second_attempt(error: Exception, why: str, tmp_path: Path) -> None:
    goal = saved(tmp_path, "(float[2] x) => (float[2] y) { y = Neg (x) }")
    failing = Failing(error)
    (result,) = ran(failing, goal, tmp_path)
    assert why in result.why and "Traceback" not in result.why and failing.calls == 2


@pytest.mark.parametrize(("error", "calls"), [(Lost("late", "time"), 1), (Lost("signal 11"), 2)])
def test_what_was_run_before_time_was_up_counts(error: Exception, calls: int, tmp_path: Path) -> None:
    goal = saved(tmp_path, "(float[2] x) => (float[2] y) { y = Neg (x) }")
    failing = Failing(error, answers=1)
    assert [result.why for result in ran(failing, goal, tmp_path)] == [""] and failing.calls == calls


@pytest.mark.parametrize(("error", "why"), FAILURES)
def test_pieces_that_passes_changed_are_missing_where_the_process_fails(error: Exception, why: str) -> None:
    bodies = "y = Abs (x)", "n = Neg (x)  y = Max (x, n)"
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y)'
    file, given = (OnnxModel(onnx.parser.parse_model(f"{text} {{ {body} }}"), Path("m.onnx")) for body in bodies)
    found = compared_pieces(Differences(file, given), Claim(True, 5e-2), Failing(error))  # type: ignore[arg-type]
    assert found.changed is None and found.matches == 0
    assert list(found.missing) == ["y"]
    assert why in found.missing["y"] and "Traceback" not in found.missing["y"]


@pytest.mark.parametrize(("seconds", "runs"), [(0.0, 1), (60.0, 2)])
def test_the_first_run_is_made_however_little_time_there_is(seconds: float, runs: int, tmp_path: Path) -> None:
    told: list[Any] = []
    serve((saved(tmp_path, "(float[2] x) => (float[2] y) { y = Neg (x) }"), str(tmp_path), seconds), told.append)
    assert [event["event"] for event in told] == ["loaded", *["run"] * runs]


@pytest.mark.parametrize(("most", "names"), [(32, {"y"}), (160, {"y", "z"}), (175, {"y", "z"}), (176, {"y", "z", "w"})])
def test_tensors_are_kept_up_to_a_size_and_texts_never(
    most: int, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "MOST_BYTES", most)
    text = """(float[8] x) => (float[8] y, string[8] t, float[32] z, float[4] w)
        <int64[1] n = {4}, int64[1] o = {0}, int64[1] e = {4}>
        { y = Neg (x)  t = Cast <to = 8> (x)  z = Tile (x, n)  w = Slice (x, o, e) }"""
    goal = saved(tmp_path, text)
    with InProcess() as runner:
        first, second = ran(runner, goal, tmp_path)
        assert set(first.tensors) == set(second.tensors) == names and set(first.feeds) == {"x"}
        np.testing.assert_array_equal(first.tensors["y"], -first.feeds["x"])
        assert not np.array_equal(first.feeds["x"], second.feeds["x"])


@pytest.mark.parametrize(
    ("known", "fits"),
    [(None, True), ((2, 3), True), ((-1, 3), True), ((2, -1), True), ((3, 3), False), ((2,), False), ((), False)],
)
def test_a_result_has_the_sizes_that_are_known(known: tuple[int, ...] | None, fits: bool) -> None:
    assert has_shape(np.zeros((2, 3)), known) is fits


def test_what_a_model_states_of_its_tensors() -> None:
    text = "(float[n,7] x) => (float[n,7,0] y, float[3] z, float w)"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text} {{ y = Odd (x) }}')
    proto.graph.output[2].type.tensor_type.ClearField("shape")
    model = OnnxModel(proto, Path("m.onnx"))
    assert stated_shapes(model) == {"y": (-1, 7, 0), "z": (3,)}
    assert stated_sizes(model) == {0, 3, 7}
