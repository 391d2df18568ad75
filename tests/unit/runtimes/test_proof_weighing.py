"""Weights, and what passes changed, held to the file: what is found, and what is missing where nothing could be."""

from __future__ import annotations

import dataclasses
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
from trtconv.runtimes.proof.weighing import Weighing
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y)
    <float[3] w = {1, 2, 3}, float[3] v = {4, 5, 6}> { a = Mul (x, w)  y = Add (a, v) }"""
VALUES = {"w": np.float32([1, 2, 3]), "v": np.float32([4, 5, 6])}
EXACT = Claim(True, 1e-3)


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


@pytest.mark.parametrize("changed", ["w", "v"])
def test_a_weight_that_passes_changed_under_its_name_is_found(file: Path, changed: str) -> None:
    model = model_of(file, **{changed: [7, 8, 9]})
    counts, findings = Weighing(network(**{changed: [7, 8, 9]}), model, None).finish()
    assert counts is not None
    assert [(finding.location.tensor, "--skip" in (finding.fix or "")) for finding in findings] == [(changed, True)]


@pytest.mark.parametrize("changed", ["w", "v"])
def test_a_weight_that_was_misread_is_found(file: Path, changed: str) -> None:
    counts, findings = Weighing(network(**{changed: [7, 8, 9]}), model_of(file), None).finish()
    assert counts is not None
    (finding,) = findings
    assert repr(changed) in finding.message and "--skip" not in (finding.fix or "")


@pytest.mark.parametrize(
    ("factor", "shape", "far"), [("1", "[1]", None), ("2", "[1]", "is off by"), ("1", "[1,1,1]", "another shape")]
)
def test_a_node_that_passes_changed_is_compared(
    file: Path, runner: Any, factor: str, shape: str, far: str | None
) -> None:
    text = TEXT.replace("<float[3] w", f"<float{shape} f = {{{factor}}}, float[3] w")
    text = text.replace("a = Mul (x, w)", "b = Mul (x, w)  a = Mul (b, f)")
    model = model_of(file, text)
    weighing = Weighing(network(), model, (model, EXACT))
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
