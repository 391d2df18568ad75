"""The sizes of a model are read once, and a network of which nothing is free is run once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes, first_faults, sizes_of
from trtconv.shapes.lattice.program import Program
from trtconv.shapes.model_shapes import model_shapes

STATIC = "(float[2,6] x) => (y) { a = Relu (x)  y = Add (a, w) }"


def model(body: str, columns: int = 6) -> OnnxModel:
    text = f'<ir_version: 8, opset_import: ["": 17]> g {body}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, columns), np.float32), "w"))
    return OnnxModel(proto, Path("m.onnx"))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many candidates each run of a program has."""
    rows: list[int] = []

    def run(self: Program, count: int, *arguments: Any, **options: Any) -> Any:
        rows.append(count)
        return original(self, count, *arguments, **options)

    original = Program.run
    monkeypatch.setattr(Program, "run", run)
    return rows


def test_a_network_of_which_nothing_is_free_is_run_once(runs: list[int]) -> None:
    sizes = Sizes(model(STATIC))
    for count in (1, 3):
        trial = sizes.run([{}] * count, keep=True)
        assert (trial.rows, first_faults(trial.checks, count)) == (count, [None] * count)
        assert [shapes["y"] for shapes in model_shapes(sizes, [{}] * count)] == [(2, 6)] * count
    assert sizes.lattice({}).dims == {}
    assert runs == [1]


def test_a_fault_of_it_is_one_of_every_candidate(runs: list[int]) -> None:
    sizes = Sizes(model(STATIC, columns=5))
    trial = sizes.run([{}] * 3, keep=True)
    faults = first_faults(trial.checks, 3)
    assert [fault.evidence(row) for row, fault in enumerate(faults) if fault] == ["meets sizes 6 and 5 at axis 1"] * 3
    assert runs == [1]


def test_what_revises_inputs_is_asked_each_time(runs: list[int]) -> None:
    sizes, asked = Sizes(model(STATIC)), list[int]()
    for _ in range(2):
        sizes.run([{}], revise=lambda index, node, tensors: asked.append(index) or {})  # type: ignore[func-returns-value]
    assert asked == [0, 1] * 2 and runs == [1, 1]


def test_free_sizes_are_run_as_asked(runs: list[int]) -> None:
    sizes = Sizes(model("(float[2,n] x) => (y) { y = Relu (x) }"))
    assert [shapes["y"] for shapes in model_shapes(sizes, [{"n": 4}, {"n": 7}])] == [(2, 4), (2, 7)]
    assert runs == [2]


def test_sizes_are_read_anew_where_the_model_changes() -> None:
    one = model(STATIC)
    first = sizes_of(one)
    assert sizes_of(one) is first
    one.proto.graph.node[1].input[0] = "x"
    one.touch()
    second = sizes_of(one)
    assert second is not first
    one.forget_shapes()
    assert sizes_of(one) is not second
