"""Each operator in each of its forms: at every size the lattice accepts and computes what ONNX Runtime does."""

from __future__ import annotations

import re

import onnxruntime
import pytest

from support.paths import ROOT
from support.sizes import assert_exact, parse

PROGRAMS = dict(
    re.findall(r"^(\w.*):\n((?:  .*\n)+)", (ROOT / "tests/data/lattice-operators.txt").read_text("utf-8"), re.MULTILINE)
)
"""Names to models in ONNX's text format, whose dynamic sizes are h and w."""
NEWER = ("resized along an axis", "padded along some axes")
"""Those of opset 18; all others are of 17."""
LENIENT = ("mirrored", "vector by vector")
"""Those of which ONNX Runtime before 1.23 computes something at sizes that ONNX does not define."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_every_size(name: str) -> None:
    if name in LENIENT and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 23):
        pytest.skip("this ONNX Runtime computes what is not defined")
    model = parse("g " + PROGRAMS[name], f'<ir_version: 8, opset_import: ["": {18 if name in NEWER else 17}]>')
    dims = {dim for spec in model.inputs for dim in spec.dims}
    # Smaller than a window, ONNX Runtime pools into nothing.
    sizes = range(5 if name.startswith("pooled") else 1, 12)
    points = [{"h": h, "w": w} for h in sizes for w in (sizes if "w" in dims else (1,))]
    assert_exact(model, [{dim: size for dim, size in point.items() if dim in dims} for point in points])
