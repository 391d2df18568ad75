"""Shapes and small values agree with every node test of the ONNX backend suite that the lattice knows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice.number import Num
from trtconv.shapes.lattice.program import Program
from trtconv.shapes.lattice.tensor import Tensor


def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases(None) if case.model is not None]


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _given(values: Any) -> Tensor:
    array = np.asarray(values)
    if array.dtype.kind in "iubf" and array.size <= 64:
        return Tensor.of_array(array)
    return Tensor([Num(n) for n in array.shape], None, array.dtype)


def _differs(made: Tensor | None, expected: Any) -> str | None:
    if made is None or made.shape is None:
        return None
    sizes = [dim.value for dim in made.shape]
    if len(sizes) != expected.ndim or any(a not in (None, b) for a, b in zip(sizes, expected.shape, strict=True)):
        return f"shape {sizes}, expected {expected.shape}"
    ints = made.ints if expected.dtype.kind in "iub" else None
    if ints is not None and ints != [int(n) for n in expected.ravel()]:
        return f"values {ints}, expected {expected.ravel()}"
    return None


@pytest.mark.filterwarnings("ignore")
def test_every_node_test() -> None:
    wrong, compared = [], 0
    for case in _cases():
        inputs, outputs = case.data_sets[0]
        if not all(_is_array(value) for value in (*inputs, *outputs)):
            continue
        model = OnnxModel(case.model, Path("model.onnx"))
        values = {spec.name: _given(v) for spec, v in zip(case.model.graph.input, inputs, strict=False)}
        trial = Program(model).run(1, {name: t.shape or [] for name, t in values.items()}, values)
        wrong += [f"{case.name}: {check.node.op} {check.evidence(0)}" for check in trial.checks]
        for value, expected in zip(case.model.graph.output, outputs, strict=False):
            said = _differs(trial.tensors.get(value.name), np.asarray(expected))
            compared += not trial.opaque
            wrong += [f"{case.name}: {said}"] if said else []
    assert wrong == []
    assert compared > 1000
