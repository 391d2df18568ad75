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
RIGHT_FROM = {
    "mirrored": (1, 25),
    "mirrored by a size": (1, 25),
    "vector by vector": (1, 26),
    "resized along the last axis to a size (opset 18)": (1, 27),
    "columns of windows (opset 18)": (1, 28),
    "columns of steps (opset 18)": (1, 28),
}
"""Those of which ONNX Runtime before that computes something at sizes that ONNX does not define, or, of axes that are
counted from the end, reads memory that nobody has written."""
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
    right_from = RIGHT_FROM.get(name, (0, 0))
    if right_from > RUNTIME:
        pytest.skip(f"ONNX Runtime before {right_from[0]}.{right_from[1]} computes it otherwise")
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


@pytest.mark.parametrize("place", [-4, -3, 0, 2, 3, 9])
def test_an_element_of_a_shape_is_there_or_is_not(place: int) -> None:
    text = f"""g (float[h,4,5] x) => (float[a] y) <int64 i = {{{place}}}>
        {{ s = Shape (x) n = Gather (s, i) t = Reshape (n, one) y = Expand (k, t) }}"""
    text = text.replace("<int64 i", "<int64[1] one = {1}, float k = {1}, int64 i")
    trial = Sizes(parse(text)).run([{"h": 3}, {"h": 6}], keep=True)
    assert not trial.opaque or not -3 <= place < 3
    assert [fault is None for fault in first_faults(trial.checks, 2)] == [-3 <= place < 3] * 2
    if -3 <= place < 3:
        assert trial.tensors["y"].shape is not None
        (length,) = trial.tensors["y"].shape
        assert np.broadcast_to(length.value, 2).tolist() == ([3, 6] if place in (0, -3) else [5, 5])


@pytest.mark.parametrize(
    ("known", "size"), [("float[1,5] z", 5), ("float[5] z", 5), ("float[1,h] z", None), ("float[1,1] z", None)]
)
@pytest.mark.parametrize("order", ["z, t", "t, z"])
def test_what_meets_an_unknown_size_has_its_own_where_that_is_not_1(known: str, size: int | None, order: str) -> None:
    text = f"g (float[h] x, {known}) => (float[a,b] y) {{ n = NonZero (x) t = Cast <to = 1> (n) y = Add ({order}) }}"
    shape = Sizes(parse(text)).run([{"h": 1}, {"h": 4}], keep=True).tensors["y"].shape
    assert shape is not None
    assert [dim.value for dim in shape] == [1, size]


@pytest.mark.parametrize(
    "product",
    ["m = Mul (u, w)", "v = Abs (u)  m = Mul (v, w)", "f = Cast <to = 1> (u)  v = Cast <to = 7> (f)  m = Mul (v, w)"],
)
def test_a_size_that_nobody_knows_is_not_taken_for_another(product: str) -> None:
    text = f"""g (float[h,w0] x) => (float[a] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}, float[1,1] k = {{1}}> {{
        s = Shape (x)  h = Gather (s, zero)  w = Gather (s, one)  c = Cast <to = 1> (h)  e = Exp (c)
        u = Cast <to = 7> (e)  d = Concat <axis = 0> (u, w)  q = Expand (k, d)  {product}  y = Reshape (q, m) }}"""
    trial = Sizes(parse(text)).run([{"h": 2, "w0": 5}, {"h": 3, "w0": 7}], keep=True)
    assert first_faults(trial.checks, 2) == [None, None]


@pytest.mark.parametrize("end", ["2147483647", "9223372036854775807", "size"])
@pytest.mark.parametrize(("start", "step", "kept"), [(0, 1, True), (1, 1, False), (0, 2, False)])
def test_a_slice_of_the_whole_keeps_the_size_that_it_is(end: str, start: int, step: int, kept: bool) -> None:
    text = f"""g (float[h,4] x) => (float[a,b] y)
        <int64[1] b = {{{start}}}, int64[1] d = {{{step}}}, int64[1] zero = {{0}}, int64[1] far = {{{end}}}> {{
        s = Shape (x) size = Gather (s, zero) y = Slice (x, b, far, zero, d) }}"""
    if end == "size":
        text = text.replace(", int64[1] far = {size}", "").replace("far", "size")
    tensors = Sizes(parse(text)).run([{"h": 4}, {"h": 6}], keep=True).tensors
    before, after = tensors["x"].shape, tensors["y"].shape
    assert before is not None and after is not None
    assert (after[0] is before[0]) == kept
    assert np.array_equal(after[0].value, [len(range(start, n, step)) for n in (4, 6)])


@pytest.mark.parametrize("order", ["x, t", "t, x"])
def test_what_is_joined_has_the_size_that_is_known(order: str) -> None:
    text = f"""g (float[h,4] x, float[8] v) => (float[a,b] y)
        {{ n = NonZero (v) f = Cast <to = 1> (n) t = Transpose (f) y = Concat <axis = 1> ({order}) }}"""
    shape = Sizes(parse(text)).run([{"h": 3}, {"h": 6}], keep=True).tensors["y"].shape
    assert shape is not None
    assert [np.broadcast_to(dim.value, 2).tolist() for dim in shape] == [[3, 6], [5, 5]]


@pytest.mark.parametrize(
    ("attributes", "largest", "padding"),
    [("", 4, 0), ("pads = [1,1], ", 2, 2), ("pads = [2,1], ", 1, 3), ("pads = [0,3], ", 1, 3)],
)
def test_a_window_that_does_not_fit_is_told_with_its_padding(attributes: str, largest: int, padding: int) -> None:
    text = f"g (float[1,1,h] x) => (float[a,b,c] y) {{ y = AveragePool <{attributes}kernel_shape = [5]> (x) }}"
    trial = Sizes(parse(text)).run([{"h": size} for size in (1, largest, largest + 1)])
    (check,) = trial.checks
    assert check.holds.tolist() == [False, False, True]
    said = check.evidence(0)
    assert "window of 5 for size 1" in said and "axis 2" in said
    assert (f"padded by {padding}" in said) == bool(padding) and ("padded" in said) == bool(padding)
