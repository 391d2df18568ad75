"""Weights, and what passes changed, held to the file: what is found, and what is missing where nothing could be."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.in_process import InProcess
from trtconv.core.documents.proof import Lack
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import weighing as weighing_module
from trtconv.runtimes.proof.rewritten import Claim
from trtconv.runtimes.proof.weighing import FileSide, Weighing
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y)
    <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}> { a = Mul (x, w)  y = Add (a, v) }"""
VALUES = {"w": np.float32([1, 2, 3]), "v": np.float32([4, 5, 6])}
EXACT = Claim(True, 1e-3)
# Threads of other tests may run yet.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.fixture(scope="module")
def runner() -> Iterator[Any]:
    with InProcess() as process:
        yield process


def model_of(path: Path, text: str = TEXT, **weights: Any) -> OnnxModel:
    """Returns what passes made of a file: another text, and other values under the same names."""
    proto = onnx.parser.parse_model(text)
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(np.float32(weights[tensor.name]), tensor.name))
    return OnnxModel(onnx.shape_inference.infer_shapes(proto), path)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has tests fork whatever threads those before them have left."""
    monkeypatch.setattr(weighing_module, "can_fork", lambda: sys.platform == "linux")


def network(**weights: Any) -> ReadNetwork:
    tensors = tuple(ReadTensor(at, name, "float32", (2, 3)) for at, name in enumerate(["x", "w", "v", "a", "y"]))
    held = {name: np.float32(weights.get(name, values)) for name, values in VALUES.items()}
    constants = [
        ReadLayer(at, name, "CONSTANT", (), (at + 1,), {"weights": held[name]}, name) for at, name in enumerate("wv")
    ]
    return ReadNetwork(tensors, tuple(constants), (0,), (4,))


def test_weights_are_given_back_once_they_are_weighed(file: Path) -> None:
    read = network(w=[7, 8, 9])
    weighing = Weighing(read, model_of(file), None)
    weighing.give_back()
    assert [layer.values for layer in read.layers] == [{}, {}]
    counts, findings = weighing.finish()
    assert counts is not None and (counts.of, len(findings)) == (2, 1)


def test_weights_that_lie_in_the_parsers_own_memory_stay(file: Path) -> None:
    read = dataclasses.replace(network(), keep_alive="the parser")
    Weighing(read, model_of(file), None).give_back()
    assert [list(layer.values) for layer in read.layers] == [["weights"], ["weights"]]


@pytest.mark.parametrize("large", [0, 1 << 10])
def test_garbage_is_looked_for_where_weights_are_many(
    file: Path, runner: Any, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    collected: list[bool] = []
    monkeypatch.setattr(weighing_module, "_LARGE_BYTES", large)
    monkeypatch.setattr(weighing_module.gc, "collect", lambda: collected.append(True))
    model = model_of(file)
    weighing = Weighing(network(), model, (model, EXACT))
    weighing.compare(runner)
    weighing.finish()
    assert len(collected) == (0 if large else 2)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("changed", ["w", "v"])
def test_a_weight_that_passes_changed_under_its_name_is_found(file: Path, changed: str, apart: bool) -> None:
    model = model_of(file, TEXT, **{changed: [7, 8, 9]})
    counts, findings = Weighing(network(**{changed: [7, 8, 9]}), model, None, apart=apart).finish()
    assert counts is not None
    assert [(finding.location.tensor, "--skip" in (finding.fix or "")) for finding in findings] == [(changed, True)]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("changed", ["w", "v"])
def test_a_weight_that_was_misread_is_found(file: Path, changed: str, apart: bool) -> None:
    counts, findings = Weighing(network(**{changed: [7, 8, 9]}), model_of(file), None, apart=apart).finish()
    assert counts is not None
    (finding,) = findings
    assert repr(changed) in finding.message and "--skip" not in (finding.fix or "")


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("factor", "shape", "far"), [("1", "[1]", None), ("2", "[1]", "is off by"), ("1", "[1,1,1]", "another shape")]
)
def test_a_node_that_passes_changed_is_compared(
    file: Path, runner: Any, factor: str, shape: str, far: str | None, apart: bool
) -> None:
    text = TEXT.replace("<float[3] w", f"<float{shape} f = {{{factor}}}, float[3] w")
    text = text.replace("a = Mul (x, w)", "b = Mul (x, w)  a = Mul (b, f)")
    model = model_of(file, text)
    weighing = Weighing(network(), model, (model, EXACT), apart=apart)
    assert (weighing._apart is not None) == apart
    assert not weighing.is_defined()
    weighing.compare(runner)
    _, findings = weighing.finish()
    assert [finding.location.tensor for finding in findings] == ([] if far is None else ["a"])
    assert all(far in finding.message for finding in findings if far)
    assert weighing.missing == ()


def test_what_was_not_compared_is_missing(file: Path) -> None:
    model = model_of(file)
    early = Weighing(network(), model, (model, EXACT))
    assert early.finish()[1] == () and [lack.what for lack in early.missing] == [Lack.TIME]
    gone = Weighing(network(), model_of(file.with_name("gone.onnx")), None)
    assert gone.finish() == (None, ())
    (lack,) = gone.missing
    assert (lack.what, lack.where) == (Lack.REFERENCE, "weights") and "read again" in lack.reason


def test_what_passes_changed_is_missing_where_its_file_is_gone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise InputError("the file is gone", "")

    monkeypatch.setattr("trtconv.runtimes.proof.rewritten.compared_pieces", fails)
    model = model_of(file)
    weighing = Weighing(network(), model, (model, EXACT))
    weighing.compare(SimpleNamespace())  # type: ignore[arg-type]
    assert weighing.finish()[1] == ()
    (lack,) = weighing.missing
    assert (lack.what, lack.where) == (Lack.REFERENCE, "what passes changed") and "file is gone" in lack.reason


def test_what_cannot_be_run_is_missing(file: Path, runner: Any) -> None:
    text = TEXT.replace("a = Mul (x, w)", "a = Unheard (x, w)")
    model = model_of(file, text)
    weighing = Weighing(network(), model, (model, EXACT))
    weighing.compare(runner)
    weighing.finish()
    (lack,) = weighing.missing
    assert lack.what is Lack.PIECE and "Unheard" in lack.reason


def test_what_a_fork_shows_by_definition_is_compared_nowhere_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(file, TEXT.replace("a = Mul (x, w)", "a = Mul (w, x)"))
    weighing = Weighing(network(), model, (model, EXACT), apart=True)
    weighing._thread.wait()

    def asked(*_: object) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr("trtconv.runtimes.proof.rewritten.Differences", asked)
    assert weighing.is_defined()
    weighing.compare(SimpleNamespace())  # type: ignore[arg-type]
    counts, findings = weighing.finish()
    assert counts is not None and (counts.equal, counts.of, findings, weighing.missing) == (2, 2, (), ())
    assert weighing._pieces is not None and weighing._pieces.matches == 1


@pytest.mark.parametrize("why", ["cannot fork", "no process", "the fork fails"])
def test_without_a_fork_it_is_done_here(file: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def none(*_: object) -> None:
        raise BlockingIOError("no process more")

    if why == "cannot fork":
        monkeypatch.setattr(weighing_module, "can_fork", lambda: False)
    if why != "the fork fails":
        monkeypatch.setattr(weighing_module, "Apart", none)
    here = os.getpid()
    original = FileSide.of

    def of(model: OnnxModel) -> FileSide:
        assert os.getpid() == here, "the fork has nothing to say"
        return original(model)

    model = model_of(file, w=[7, 8, 9])
    weighing = Weighing(network(w=[7, 8, 9]), model, (model, EXACT), lambda: of(model), apart=True)
    assert weighing.is_defined()
    counts, (finding,) = weighing.finish()
    assert counts is not None and counts.of == 2 and finding.location.tensor == "w"


def test_what_is_closed_waits_for_no_fork(file: Path) -> None:
    here, goes_on = os.getpid(), threading.Event()

    def side() -> FileSide:
        if os.getpid() != here:
            goes_on.wait(60)
        raise AssertionError("nobody wants to know")

    weighing = Weighing(network(), model_of(file), None, side, apart=True)
    begun = time.monotonic()
    weighing.close()
    assert time.monotonic() - begun < 30
    assert weighing.finish() == (None, ())
