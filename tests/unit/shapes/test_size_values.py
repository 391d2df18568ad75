"""Sizes that operators compute which the size lattice does not follow: what these nodes compute is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.graph.model import OnnxModel
from trtconv.runtimes import observed
from trtconv.runtimes.observed import NodeRuns
from trtconv.shapes.lattice import sizes_of
from trtconv.shapes.size_values import Answer, SizeValues
from trtconv.shapes.spread import Spread

HEIGHTS, WIDTHS = np.meshgrid(np.arange(3, 31), np.arange(2, 21), indexing="ij")
WAYS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "TopK": ("s, i = TopK (hw, k1)", np.maximum),
    "CumSum": ("a = CumSum (hw, zero)  b = Gather (a, k1)  s = Div (b, k2)", lambda h, w: (h + w) // 2),
    "ArgMin": (
        "l = Squeeze (h)  r = Range (zero, l, one)  c = Sub (r, w)  a = Abs (c)"
        "  b = ArgMin <axis = 0> (a)  s = Add (b, k1)",
        lambda h, w: np.minimum(w, h - 1) + 1,
    ),
    "ScatterElements": (
        "m = Mod (w, k2)  a = ScatterElements <axis = 0> (k45, m, h)  s = Gather (a, k1)",
        lambda h, w: np.where(w % 2 == 1, h, 5),
    ),
    "MatMul": (
        "f = Cast <to = 1> (hw)  m = MatMul (f, halves)  g = Floor (m)  s = Cast <to = 7> (g)",
        lambda h, w: (2 * h + w) // 4,
    ),
    "If": (
        "c = Less (h, w)  b = Squeeze (c)  s = If (b) <then_branch = p () => (int64[1] e) { e = Add (h, k2) },"
        " else_branch = q () => (int64[1] f) { f = Identity (w) }>",
        lambda h, w: np.where(h < w, h + 2, w),
    ),
    "NonZero": (
        "z = ConstantOfShape <value = int64[1] {1}> (h)  n = NonZero (z)"
        "  m = ReduceMax <axes = [1], keepdims = 0> (n)  s = Add (m, k1)",
        lambda h, w: h,
    ),
}
"""What makes a size of a height and a width in ways that the lattice does not follow; what that is."""


def answers(part: OnnxModel, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> list[Answer | None]:
    """Runs nodes in this process."""
    rows: list[Any] = []
    observed.answer((part.serialize(), list(feeds)), rows.append)
    return [row["shape"] and (tuple(row["shape"]), row["elements"]) for row in rows]


def model_of(way: str, reader: str = "t = Slice (v, k0, s, k0)") -> OnnxModel:
    text = f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,1,height,width] x) => (float[n] t)
        <float[60] v = {{{", ".join("1" * 60)}}}, int64[1] k0 = {{0}}, int64[1] k1 = {{1}}, int64[1] k2 = {{2}},
         int64 zero = {{0}}, int64 one = {{1}}, int64[2] k45 = {{4, 5}}, float[2,1] halves = {{0.5, 0.25}},
         int64[1] two = {{2}}, int64[1] three = {{3}}>
        {{ y = Relu (x)  d = Shape (y)  h = Gather (d, two)  w = Gather (d, three)  hw = Concat <axis = 0> (h, w)
           {way}  {reader} }}"""
    return OnnxModel(onnx.parser.parse_model(text), Path("g.onnx"))


def column(model: OnnxModel, values: SizeValues | None, name: str = "t") -> NDArray[np.int64] | None:
    profile = make_profile(model.inputs, {"height": Range(3, 11, 30), "width": Range(2, 9, 20)})
    return Spread(sizes_of(model), 10, [profile], 0, values).column(name, 0)


@pytest.mark.parametrize("name", WAYS)
def test_a_size_is_known_however_it_is_computed(name: str) -> None:
    way, truth = WAYS[name]
    model = model_of(way)
    assert column(model, None) is None, "the lattice does not follow it"
    np.testing.assert_array_equal(column(model, SizeValues(model, answers)), truth(HEIGHTS, WIDTHS).ravel())


def test_nodes_run_once_for_each_of_their_values_and_one_after_the_other() -> None:
    model = model_of(
        WAYS["TopK"][0],
        "u = Slice (v, k0, s, k0)  e = Shape (u)  j = CumSum (e, zero)  t = Slice (v, k0, j, k0)"
        "  r = Slice (v, k0, s, k0)",
    )
    counts: list[int] = []

    def compute(part: OnnxModel, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> list[Answer | None]:
        assert "Relu" not in {node.op_type for node in part.proto.graph.node}
        counts.append(len(feeds))
        return answers(part, feeds)

    np.testing.assert_array_equal(column(model, SizeValues(model, compute)), np.maximum(HEIGHTS, WIDTHS).ravel())
    assert counts == [HEIGHTS.size, 28], "all heights and widths, and the 28 sizes that come of them"


@pytest.mark.parametrize("rows", [[], [None] * 600, [((1,), [5])] * 3])
def test_what_does_not_run_everywhere_is_not_known(rows: list[Answer | None]) -> None:
    model = model_of(WAYS["TopK"][0])
    assert column(model, SizeValues(model, lambda part, feeds: rows)) is None


def test_sizes_of_values_that_follow_are_known_too() -> None:
    """An If by the sizes returns so many elements, and another number of them elsewhere."""
    way = """c = Less (h, w)  b = Squeeze (c)
        s = If (b) <then_branch = p () => (int64[m] e) { e = Concat <axis = 0> (h, w) },
                    else_branch = q () => (int64[m] f) { f = Identity (w) }>"""
    model = model_of(way, "t = Cast <to = 1> (s)")
    values = SizeValues(model, answers)
    np.testing.assert_array_equal(column(model, values, "s"), np.where(HEIGHTS < WIDTHS, 2, 1).ravel())
    np.testing.assert_array_equal(column(model, values), np.where(HEIGHTS < WIDTHS, 2, 1).ravel())


def test_what_data_decide_is_not_run() -> None:
    way = "a = ReduceMax (x)  b = Reshape (a, k1)  c = Cast <to = 7> (b)  s = Max (c, h)"
    calls: list[object] = []
    model = model_of(way)
    assert column(model, SizeValues(model, lambda *task: calls.append(task) or [])) is None
    assert not calls


def test_nodes_run_in_a_process_of_their_own() -> None:
    model = model_of(WAYS["CumSum"][0])
    with NodeRuns() as runs:
        np.testing.assert_array_equal(column(model, SizeValues(model, runs)), ((HEIGHTS + WIDTHS) // 2).ravel())


def test_nodes_that_take_constants_alone_run_once() -> None:
    way = "m = MatMul (row, halves)  a = Cast <to = 7> (m)  b = Squeeze (a)  j = Reshape (b, k1)  s = Max (j, h)"
    model = model_of(way)
    model.proto.graph.initializer.append(onnx.numpy_helper.from_array(np.full((1, 2), 16, np.float32), "row"))
    np.testing.assert_array_equal(column(model, SizeValues(model, answers)), np.maximum(HEIGHTS, 12).ravel())


def test_nodes_that_did_not_end_are_not_run_again() -> None:
    """What follows from them would take as long."""
    model = model_of("s, i = TopK (hw, k1)", "u = Slice (v, k0, s, k0)  n = Add (s, k1)  t = Slice (v, k0, n, k0)")
    calls: list[OnnxModel] = []
    column(model, SizeValues(model, lambda part, feeds: calls.append(part) or []))
    assert len(calls) == 1
