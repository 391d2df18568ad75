"""The arithmetic, against what PyTorch documents and a plain idea of the operator."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given

from support.onnx_models import Layer, full_sizes, window
from support.strategies import layers
from trtconv.graph.deconv import (
    Crop,
    Geometry,
    along,
    crops,
    dilate_kernel,
    extend_kernel,
    fold,
    geometry_of,
    lengthen,
    output_sizes,
    split_begin,
    tap_counts,
    tap_cycle,
    ungroup_kernel,
)
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session


def geometry(layer: Layer) -> Geometry:
    made = geometry_of({**layer.attributes(), "kernel_shape": layer.kernel}, None)
    assert not isinstance(made, str)
    return made


@given(layers(negative=True))
def test_sizes_and_windows(layer: Layer) -> None:
    made = geometry(layer)
    assert list(made.full(layer.sizes)) == full_sizes(layer)
    assert output_sizes(made, layer.sizes) == tuple(size for _, size in window(layer))
    found = crops(made, layer.sizes)
    assert found is not None
    assert [crop.begin for crop in found] == [begin for begin, _ in window(layer)]
    assert crops(made, None) == (None if layer.output_shape else found)


@given(layers(negative=True))
def test_folding_leaves_the_window_where_it_is(layer: Layer) -> None:
    made = geometry(layer)
    found = crops(made, layer.sizes)
    assert found is not None
    folding = fold(made, found)
    assert all(c.begin >= 0 and c.end >= 0 for c in folding.crops)
    assert folding.is_needed == any(c.begin < 0 or c.end < 0 for c in found)
    kernel = tuple(lo + k + hi for lo, k, hi in zip(folding.low, made.kernel, folding.high, strict=True))
    grown = dataclasses.replace(made, kernel=kernel)
    rows = zip(grown.full(layer.sizes), folding.crops, output_sizes(made, layer.sizes), strict=True)
    assert all(full - c.begin - c.end == size for full, c, size in rows)
    # Fewer taps would not do.
    rows = zip((*folding.low, *folding.high), [c.begin for c in found] + [c.end for c in found], strict=True)
    assert all(taps * d + crop < d for (taps, crop), d in zip(rows, made.dilations * 2, strict=True) if taps)


@pytest.mark.parametrize(("extra", "size"), [(0, 4), (1, 5)])
def test_the_example_of_the_documentation(extra: int, size: int) -> None:
    made = geometry_of({"strides": [2], "pads": [1, 1], "output_padding": [extra]}, (1, 1, 2))
    assert not isinstance(made, str)
    assert output_sizes(made, [3]) == (size,)
    assert crops(made, None) == (Crop(1, 1 - extra),)


@pytest.mark.parametrize(
    ("total", "auto_pad", "begin"),
    [
        (3, "SAME_UPPER", 1),
        (3, "SAME_LOWER", 2),
        (3, "NOTSET", 2),
        (4, "SAME_UPPER", 2),
        (4, "NOTSET", 2),
        (0, "NOTSET", 0),
    ],
)
def test_the_larger_half_of_an_odd_padding(total: int, auto_pad: str, begin: int) -> None:
    assert split_begin(total, auto_pad) == begin


@pytest.mark.parametrize(
    ("extra", "strides", "dilations", "axes"),
    [
        ([1, 1], [2, 2], [1, 1], ()),
        ([2, 1], [2, 2], [1, 1], (0,)),
        ([2, 2], [2, 2], [3, 1], (1,)),
        ([1, 0], [1, 1], [1, 1], (0,)),
    ],
)
def test_excess(extra: list[int], strides: list[int], dilations: list[int], axes: tuple[int, ...]) -> None:
    made = geometry_of({"output_padding": extra, "strides": strides, "dilations": dilations}, (1, 1, 3, 3))
    assert not isinstance(made, str)
    assert made.excess_axes() == axes


@pytest.mark.parametrize(
    ("attrs", "shape", "words"),
    [
        ({}, None, "kernel size is not known"),
        ({}, (1, 1), "shape [1, 1], and no axis for a kernel"),
        ({}, (4,), "shape [4], and no axis for a kernel"),
        ({}, (), "shape [], and no axis for a kernel"),
        ({"kernel_shape": [2, 2]}, (4,), "does not match the weight's [4]"),
        ({}, (1, 1, None, 3), "kernel size is not known"),
        ({"kernel_shape": [0, 1]}, None, "sizes [0, 1], which must be at least 1"),
        ({}, (1, 1, 0, 1), "sizes [0, 1], which must be at least 1"),
        ({"kernel_shape": [3]}, (1, 1, 2), "does not match"),
        ({"pads": [1]}, (1, 1, 3), "pads has 1 entries"),
        ({"pads": [1] * 6}, (1, 1, 3, 3), "pads has 6 entries"),
        ({"dilations": [1]}, (1, 1, 3, 3), "dilations has 1 entries"),
        ({"output_padding": [1, 1, 1]}, (1, 1, 3, 3), "output_padding has 3 entries"),
        ({"strides": [0, 1]}, (1, 1, 3, 3), "at least 1"),
        ({"output_padding": [-1, 0]}, (1, 1, 3, 3), "at least 0"),
        ({"output_shape": [4]}, (1, 1, 3, 3), "output_shape has 1 entries"),
        ({"auto_pad": "same"}, (1, 1, 3, 3), "auto_pad 'same' is not one of"),
    ],
)
def test_what_makes_no_sense_has_no_geometry(
    attrs: dict[str, object], shape: tuple[int, ...] | None, words: str
) -> None:
    found = geometry_of(attrs, shape)
    assert isinstance(found, str)
    assert words in found


def test_kernels_grow_by_what_stands_for_zero() -> None:
    weights = np.arange(1, 5, dtype=np.uint8).reshape(2, 2, 1)
    fill = np.array([7, 9], np.uint8).reshape(1, 2, 1)
    grown = extend_kernel(weights, fold(_one_axis(2), (Crop(-1, -3),)), fill)
    assert grown.dtype == np.uint8
    np.testing.assert_array_equal(grown, [[[7, 1, 7, 7], [9, 2, 9, 9]], [[7, 3, 7, 7], [9, 4, 9, 9]]])
    wide = dilate_kernel(np.arange(3.0).reshape(1, 1, 3), [3], -1)
    np.testing.assert_array_equal(wide, [[[0, -1, -1, 1, -1, -1, 2]]])


def _one_axis(dilation: int) -> Geometry:
    return Geometry((1,), (1,), (dilation,), (0,), (0,), (0,))


@pytest.mark.parametrize("sizes", [None, (), (4,), (4, 4, 4)])
def test_an_output_shape_says_nothing_beside_sizes_of_another_rank(sizes: tuple[int, ...] | None) -> None:
    made = Geometry((3, 3), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0), output_shape=(8, 8))
    assert crops(made, sizes) is None
    assert crops(made, (4, 4)) is not None


SMALL = [*itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3), (1, 2, 4))]
"""Kernels, strides, dilations and sizes."""


def meeting(kernel: int, stride: int, dilation: int, size: int) -> list[int]:
    """Returns how many products meet in each element, by spreading ones."""
    full = np.zeros((size - 1) * stride + (kernel - 1) * dilation + 1, np.int64)
    for element, tap in itertools.product(range(size), range(kernel)):
        full[element * stride + tap * dilation] += 1
    return full.tolist()


@pytest.mark.parametrize(("kernel", "stride", "dilation", "size"), SMALL)
def test_products_that_meet(kernel: int, stride: int, dilation: int, size: int) -> None:
    assert list(tap_counts(kernel, stride, dilation, size)) == meeting(kernel, stride, dilation, size)
    # Far from the edges: of a longer input, from a multiple of the stride on.
    long, reach = meeting(kernel, stride, dilation, 40), -(-(kernel * dilation) // stride) * stride
    assert list(tap_cycle(kernel, stride, dilation)) == long[reach : reach + stride]


def test_kernels_of_groups_as_one() -> None:
    weights = np.arange(1, 25).reshape(4, 3, 2)
    grown = ungroup_kernel(weights, 2)
    assert grown.shape == (4, 6, 2)
    for source, made in itertools.product(range(4), range(6)):
        inside = source // 2 == made // 3
        assert np.array_equal(grown[source, made], weights[source, made % 3] if inside else [0, 0])
    assert np.array_equal(ungroup_kernel(weights, 1), weights)


@given(layers(negative=True))
def test_one_axis_is_a_node_of_its_own(layer: Layer) -> None:
    made = geometry(layer)
    for axis, size in enumerate(layer.sizes):
        alone = along(made, axis)
        assert alone.rank == 1
        assert output_sizes(alone, [size]) == output_sizes(made, layer.sizes)[axis : axis + 1]
        assert crops(alone, [size]) == (crops(made, layer.sizes) or ())[axis : axis + 1]


@given(layers(negative=True))
def test_zeros_around_the_input_leave_the_window_where_it_is(layer: Layer) -> None:
    made = geometry(layer)
    found = crops(made, layer.sizes)
    assert found is not None
    longer = lengthen(made, found)
    assert all(c.begin >= 0 and c.end >= 0 for c in longer.crops)
    sizes = [low + n + high for low, n, high in zip(longer.low, layer.sizes, longer.high, strict=True)]
    rows = zip(made.full(sizes), longer.crops, output_sizes(made, layer.sizes), strict=True)
    assert all(full - c.begin - c.end == size for full, c, size in rows)
    for before, after, zeros, stride in zip(found, longer.crops, longer.low, made.strides, strict=True):
        assert after.begin - before.begin == zeros * stride
        assert not zeros or after.begin < stride, "fewer zeros would not do"


@pytest.mark.parametrize(
    ("changes", "explicit", "both"),
    [
        ({}, True, False),
        ({"auto_pad": "VALID"}, False, False),
        ({"output_shape": (4, 4)}, False, False),
        ({"output_padding": (0, 1)}, False, False),
        ({"begin_pads": (-1, 0)}, False, False),
        ({"end_pads": (0, -1)}, False, False),
        ({"end_pads": (0, 2)}, True, False),
        ({"strides": (1, 2)}, True, False),
        ({"dilations": (2, 1)}, True, False),
        ({"strides": (1, 2), "dilations": (2, 1)}, True, True),
    ],
)
def test_kinds_of_geometries(changes: dict[str, object], explicit: bool, both: bool) -> None:
    plain = Geometry((3, 3), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0))
    made = dataclasses.replace(plain, **changes)  # type: ignore[arg-type]
    assert (made.is_explicit, made.is_strided_and_dilated) == (explicit, both)


@pytest.mark.parametrize(("asked", "axes"), [((9, 9), ()), ((10, 9), ()), ((11, 9), (0,)), ((11, 99), (0, 1))])
def test_an_output_shape_beyond_what_there_is(asked: tuple[int, int], axes: tuple[int, ...]) -> None:
    made = Geometry((3, 3), (2, 2), (1, 1), (0, 0), (0, 0), (0, 0), output_shape=asked)
    assert made.full((4, 4)) == (9, 9)
    assert made.excess_axes((4, 4)) == axes
    assert made.excess_axes() == made.excess_axes((4,)) == ()


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
@pytest.mark.parametrize("more", ["", ", output_padding = [1]", ", output_padding = [1], dilations = [2]"])
def test_inferred_shapes_are_those_that_a_run_has(mode: str, more: str) -> None:
    """Also of SAME beside an output_padding, of which ONNX's own inference makes something else."""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,1,5] x) => (float[1,1,n] y)
        <float[1,1,3] w = {{1, 2, 3}}> {{ y = ConvTranspose <auto_pad = "{mode}", strides = [2]{more}> (x, w)  }}"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    (y,) = session(model).run(None, {"x": np.ones((1, 1, 5), np.float32)})
    assert model.main.shape("y") == y.shape
