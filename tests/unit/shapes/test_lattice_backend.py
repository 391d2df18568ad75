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

ROWS = 2


def _cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases(None) if case.model is not None]


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _given(values: Any, first: int | None = None) -> Tensor:
    """Returns an input whose sizes are fixed, or, from the bit `first` on, dynamic ones that are these everywhere."""
    array = np.asarray(values)
    if array.dtype.kind in "iubf" and array.size <= 64 and (first is None or array.ndim < 2):
        return Tensor.of_array(array)
    dims = [Num(n) if first is None else Num(np.full(ROWS, n), 1 << (first + i)) for i, n in enumerate(array.shape)]
    return Tensor(dims, None, array.dtype)


def _differs(made: Tensor | None, expected: Any) -> str | None:
    if made is None or made.shape is None:
        return None
    sizes = [dim.value if dim.value is None else int(np.max(dim.value)) for dim in made.shape]
    if any(dim.is_known and np.ptp(dim.value) for dim in made.shape):
        return "sizes that differ where those of the inputs do not"
    if len(sizes) != expected.ndim or any(a not in (None, b) for a, b in zip(sizes, expected.shape, strict=True)):
        return f"shape {sizes}, expected {expected.shape}"
    ints = made.ints if expected.dtype.kind in "iub" else None
    if ints is not None and ints != [int(n) for n in expected.ravel()]:
        return f"values {ints}, expected {expected.ravel()}"
    return None


@pytest.mark.parametrize(("dynamic", "least"), [(False, 1_400), (True, 1_200)])
@pytest.mark.filterwarnings("ignore")
def test_every_node_test(*, dynamic: bool, least: int) -> None:
    wrong, compared = [], 0
    for case in _cases():
        inputs, outputs = case.data_sets[0]
        if not all(_is_array(value) for value in (*inputs, *outputs)):
            continue
        model = OnnxModel(case.model, Path("model.onnx"))
        named = zip(case.model.graph.input, inputs, strict=False)
        # Weights have no dynamic sizes.
        free = 1 if "conv" in case.name else 10
        values = {spec.name: _given(v, 6 * i if dynamic and i < free else None) for i, (spec, v) in enumerate(named)}
        rows = ROWS if dynamic else 1
        trial = Program(model).run(rows, {name: t.shape or [] for name, t in values.items()}, values)
        wrong += [f"{case.name}: {why}" for why in trial.opaque.values() if "malformed" in why]
        wrong += [f"{case.name}: {check.node.op} {check.evidence(0)}" for check in trial.checks]
        for value, expected in zip(case.model.graph.output, outputs, strict=False):
            said = _differs(trial.tensors.get(value.name), np.asarray(expected))
            compared += not trial.opaque
            wrong += [f"{case.name}: {said}"] if said else []
    assert wrong == []
    assert compared > least
