"""What a model of a newer operator set means is not said by an onnx that does not know the set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from trtconv.graph.folding import evaluate
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import undefined_opset
from trtconv.runtimes.evaluator import evaluator
from trtconv.runtimes.proof import reference

OPSET = 20
"""Of the models; "newer" is that the installed onnx knows the one before."""
TEXT = f'<ir_version: 8, opset_import: ["": {OPSET}]> g (float[2] x, float[2] z) => (float[2] y) {{ y = Mul (x, z) }}'
FEEDS = {"x": np.array([1.0, 2.0], np.float32), "z": np.array([3.0, 4.0], np.float32)}


def model() -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))


def by_folding() -> Any:
    proto = model().proto
    return evaluate(proto.graph.node, FEEDS, "y", proto.opset_import)


def by_evaluator() -> Any:
    computes = evaluator(model(), by_reference=True)
    return computes(FEEDS)[0] if callable(computes) else None


def by_proof() -> Any:
    computes = reference.runs(model(), ())
    return dict(computes(FEEDS))["y"] if callable(computes) else None


@pytest.fixture
def _without_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime refuses sets that it does not know; then ONNX's reference implementation is asked."""
    monkeypatch.setattr(reference, "session", lambda *_, **__: "refused")


WAYS = pytest.mark.parametrize("computed", [by_folding, by_evaluator, by_proof])


@WAYS
@pytest.mark.usefixtures("_without_onnx_runtime")
@pytest.mark.parametrize("newest", [OPSET, OPSET + 1])
def test_a_set_that_is_known_is_computed(
    computed: Callable[[], Any], newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: newest)
    assert computed().tolist() == [3, 8]


@WAYS
@pytest.mark.usefixtures("_without_onnx_runtime")
def test_a_newer_set_is_not(computed: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: OPSET - 1)
    assert computed() is None


def test_the_reason_names_both_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx.defs, "onnx_opset_version", lambda: OPSET - 1)
    why = undefined_opset(model().proto.opset_import)
    assert f"opset {OPSET - 1}," in why
    assert f"opset {OPSET}:" in why
    assert reference._by_definition(model(), ["y"], {}) == why


def test_sets_of_others_do_not_count() -> None:
    assert undefined_opset([onnx.helper.make_opsetid("com.microsoft", 1000), onnx.helper.make_opsetid("", 1)]) == ""
    assert undefined_opset([]) == ""
    assert undefined_opset([onnx.helper.make_opsetid("ai.onnx", 1000)]) != ""
