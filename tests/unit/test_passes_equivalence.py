"""The passes together: whatever a ConvTranspose says, it computes the same afterwards."""

from __future__ import annotations

import dataclasses

import onnx
from hypothesis import assume, event, given
from hypothesis import strategies as st
from models import (
    BIASES,
    PLACES,
    QUANTIZED,
    RTX,
    TENSORRT_8,
    WEIGHTS,
    Array,
    Layer,
    assert_equal,
    conv_transpose,
    full_sizes,
    make,
    rewritten,
    run,
    window,
)

from trtconv.plan import Target
from trtconv.rules.base import ModelView

TARGETS = st.sampled_from([RTX, TENSORRT_8])


def ints(rank: int, low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * rank)


@st.composite
def layers(draw: st.DrawFn, negative: bool = False, **fixed: object) -> Layer:
    """Layers that ONNX gives a meaning: extra elements fewer than stride or dilation, at least one element left."""
    rank = draw(st.integers(1, 3))
    size = {1: 6, 2: 5, 3: 3}[rank]
    kernel = draw(ints(rank, 1, 5 if rank < 3 else 3))
    strides, dilations = draw(ints(rank, 1, 3)), draw(ints(rank, 1, 3))
    reach = [max(s, d) for s, d in zip(strides, dilations, strict=True)]
    extra = draw(st.one_of(st.none(), st.tuples(*(st.integers(0, r - 1) for r in reach))))
    group, channels = draw(st.sampled_from([(1, (2, 3)), (1, (3, 1)), (2, (2, 2)), (3, (1, 1)), (3, (1, 2))]))
    layer = Layer(
        sizes=draw(ints(rank, 1, size)),
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        output_padding=extra,
        auto_pad=draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
        group=group,
        channels=channels,
        bias=draw(st.sampled_from(BIASES)),
        dynamic=draw(st.booleans()),
        spelled=draw(st.booleans()),
        opset=draw(st.sampled_from([13, 17, 21])),
    )
    if layer.auto_pad == "NOTSET":
        layer = dataclasses.replace(layer, pads=draw(st.none() | ints(2 * rank, -2 if negative else 0, 2)))
    if draw(st.integers(0, 2)) == 0:
        shape = tuple(full + draw(st.integers(-3, r - 1)) for full, r in zip(full_sizes(layer), reach, strict=True))
        layer = dataclasses.replace(layer, output_shape=shape, pads=None)
        assume(min(shape) >= 1)
    layer = dataclasses.replace(layer, **fixed)  # type: ignore[arg-type]
    # At least one element is asked for, and one of them is the deconvolution's own.
    rows = zip(window(layer), full_sizes(layer), strict=True)
    assume(all(size >= 1 and begin < full and begin + size > 0 for (begin, size), full in rows))
    return layer


def prove(layer: Layer, target: Target) -> None:
    """Rewrites a layer, runs it, and compares with the definition and with the original where that runs."""
    proto, feeds = make(layer)
    model, result = rewritten(proto, target)
    got = run(model.proto, feeds)
    assert not result.skipped or layer.opset < 13
    if result.skipped:
        event("skipped")
    elif layer.place in ("main", "if") and layer.weight in ("initializer", "constant", "identity", "input", "reshape"):
        assert_equal([conv_transpose(layer)], got)
    expected = _original(layer, proto, feeds)
    event(f"ONNX Runtime is a reference: {expected is not None}")
    if expected is not None:
        assert_equal(expected, got)
    for node in ModelView(model).deconvs:
        made = node.geometry
        assert not isinstance(made, str)
        assert made.is_explicit or result.skipped
        assert target.strided_dilated_deconv or not made.is_strided_and_dilated or result.skipped


def _original(layer: Layer, proto: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array] | None:
    """Runs a model as it is, or returns None where ONNX Runtime is no reference.

    It refuses an output_padding of a stride or more, or reads beyond its buffers for one beside auto_pad and for an
    output_shape that means as much.
    """
    extra = layer.output_padding or (0,) * layer.rank
    full = full_sizes(layer)
    rows = zip(layer.output_shape or full, full, extra, layer.strides, strict=True)
    if any(max(out - most, more) >= stride for out, most, more, stride in rows):
        return None
    return run(proto, feeds)


@given(layers(), TARGETS)
def test_every_layer_computes_the_same_after_the_passes(layer: Layer, target: Target) -> None:
    prove(layer, target)


@given(layers(negative=True, output_shape=None, auto_pad="NOTSET"), TARGETS)
def test_negative_pads_add_zeros(layer: Layer, target: Target) -> None:
    prove(layer, target)


@given(layers(output_shape=None), st.sampled_from(WEIGHTS), st.sampled_from(PLACES), TARGETS)
def test_wherever_the_weight_comes_from_and_wherever_the_node_is(
    layer: Layer, weight: str, place: str, target: Target
) -> None:
    prove(dataclasses.replace(layer, weight=weight, place=place), target)


@given(layers(dynamic=True), st.sampled_from(WEIGHTS), st.sampled_from(PLACES), TARGETS)
def test_an_output_shape_chosen_for_dynamic_sizes(layer: Layer, weight: str, place: str, target: Target) -> None:
    shape = layer.output_shape or tuple(max(1, n - 1) for n in full_sizes(layer))
    prove(dataclasses.replace(layer, weight=weight, place=place, output_shape=shape, pads=None), target)


@given(
    layers(output_shape=None, opset=21),
    st.sampled_from(QUANTIZED),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([13, 17, 21]),
    st.sampled_from(PLACES),
    TARGETS,
)
def test_quantised_weights_keep_their_numbers(
    layer: Layer, weight: str, axis: int | None, opset: int, place: str, target: Target
) -> None:
    prove(dataclasses.replace(layer, weight=weight, axis=axis, opset=opset, place=place), target)


@given(layers(), st.sampled_from(WEIGHTS), TARGETS)
def test_half_precision_stays_half(layer: Layer, weight: str, target: Target) -> None:
    prove(dataclasses.replace(layer, weight=weight, dtype="float16"), target)


@given(layers(), st.sampled_from(WEIGHTS), st.sampled_from([9, 10, 11, 12, 22, 23]), TARGETS)
def test_old_and_new_opsets(layer: Layer, weight: str, opset: int, target: Target) -> None:
    prove(dataclasses.replace(layer, weight=weight, opset=opset), target)
