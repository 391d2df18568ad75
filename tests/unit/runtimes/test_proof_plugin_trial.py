"""A plugin's node alone on an engine: what refutes it, and what is only not known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from support.onnx_models import RTX
from trtconv.core.errors import BuildFailed
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.plugin_trial import _Alone

BODY = "{ y = my.Twice (x) }"


def tried(dtype: str, got: Any, parsed: Any = None) -> Any:
    """Returns what is said of a node that makes ones, where an engine makes something else."""
    kind = {"float32": "float", "float16": "float16"}[dtype]
    text = f'<ir_version: 8, opset_import: ["": 17, "my": 1]> g ({kind}[2,3] x) => ({kind}[2,3] y) {BODY}'
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    closed = []

    def run() -> dict[str, Any]:
        if isinstance(got, Exception):
            raise got
        return {"y": np.asarray(got, dtype)}

    execution = SimpleNamespace(feed=lambda feeds: None, run=run, close=lambda: closed.append(True))
    parsed = parsed or SimpleNamespace(build=lambda plan: SimpleNamespace(data=b""))
    engine: Any = SimpleNamespace(parse=lambda *_: parsed, info=SimpleNamespace(target=RTX))
    loader: Any = SimpleNamespace(load=lambda *_, **__: SimpleNamespace(open=lambda: execution))
    ones = np.ones((2, 3), dtype)
    found = _Alone(model, 0, {"x": ones, "y": ones}).differs(engine, loader)
    assert bool(closed) is not isinstance(parsed, tuple)
    return found


@pytest.mark.parametrize(
    ("dtype", "off", "passes"),
    [("float32", 1e-6, True), ("float32", 2e-3, False), ("float16", 2e-3, True), ("float16", 0.5, False)],
)
def test_a_plugin_may_be_off_by_the_rounding_of_its_type(dtype: str, off: float, passes: bool) -> None:
    found = tried(dtype, np.full((2, 3), 1 + off))
    assert (found == "") is passes
    assert passes or found.code == "TC402"


def test_what_is_refused_or_does_not_run_is_not_known() -> None:
    refusal = SimpleNamespace(message="no such plugin")
    assert "no such plugin" in tried("float32", np.ones((2, 3)), (refusal,))
    assert "no memory" in tried("float32", BuildFailed("no memory"))
