"""Each operator in each of its forms: at every size the lattice accepts and computes what ONNX Runtime does."""

from __future__ import annotations

import itertools
import re

import numpy as np
import onnxruntime
import pytest

from support.paths import ROOT
from support.sizes import assert_exact, parse
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes, Tensor, first_faults

PROGRAMS = dict(
    re.findall(r"^(\w.*):\n((?:  .*\n)+)", (ROOT / "tests/data/lattice-operators.txt").read_text("utf-8"), re.MULTILINE)
)
"""Names to models in ONNX's text format, whose dynamic sizes are h and w. A name ends with the opset where that is not
17, and with the smallest size where ONNX Runtime takes smaller ones that ONNX does not define."""
LENIENT = ("mirrored", "mirrored by a size", "vector by vector")
"""Those of which ONNX Runtime before 1.23 computes something at sizes that ONNX does not define."""
RUNTIME = tuple(map(int, onnxruntime.__version__.split(".")[:2]))


def number(name: str, what: str, otherwise: int) -> int:
    found = re.search(rf"\({what} (\d+)\)", name)
    return int(found[1]) if found else otherwise


def made(name: str, **fixed: int) -> OnnxModel:
    """Returns a model, of whose dynamic sizes some are fixed."""
    inputs, _, rest = PROGRAMS[name].partition("=>")
    for dim, size in fixed.items():
        inputs = re.sub(rf"\b{dim}\b", str(size), inputs)
    return parse(f"g {inputs}=>{rest}", f'<ir_version: 8, opset_import: ["": {number(name, "opset", 17)}]>')


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_every_size(name: str) -> None:
    if RUNTIME < (1, 23) and (name in LENIENT or number(name, "opset", 17) > 20):
        pytest.skip("this ONNX Runtime computes what is not defined, or does not know the opset")
    model = made(name)
    dims = {dim for spec in model.inputs for dim in spec.dims}
    sizes = range(number(name, "from", 1), 12)
    points = [{"h": h, "w": w} for h in sizes for w in (sizes if "w" in dims else (1,))]
    assert_exact(model, [{dim: size for dim, size in point.items() if dim in dims} for point in points])


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_are_fixed_are_as_those_that_are_not(name: str) -> None:
    """Numbers that are known are computed at once, and by other ways than those that depend on a size."""
    sizes = Sizes(made(name))
    points = [dict.fromkeys(sizes.names, n) | {"h": m} for n, m in itertools.product((1, 3, 4, 6), (2, 3, 6))]
    points = [{dim: point[dim] for dim in sizes.names} for point in points]
    trial = sizes.run(points, keep=True)
    faults = first_faults(trial.checks, len(points))
    for row, point in enumerate(points):
        alone = Sizes(made(name, **point)).run([{}], keep=True)
        assert (first_faults(alone.checks, 1)[0] is None) == (faults[row] is None), point
        for tensor in trial.tensors if faults[row] is None else ():
            assert_same(alone.tensors[tensor], trial.tensors[tensor], row)


def assert_same(alone: Tensor, among: Tensor, row: int) -> None:
    """Compares a tensor's sizes with those at one of several points, and its elements where both are known."""
    parts = [(alone.shape, among.shape)]
    if alone.data is not None and among.data is not None:
        parts.append((list(alone.data.flat), list(among.data.flat)))
    for one, other in parts:
        assert [num.value for num in one or ()] == [
            num.value[row] if isinstance(num.value, np.ndarray) else num.value for num in other or ()
        ]
