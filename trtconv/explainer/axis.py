"""A transposed convolution along each of its axes, in words and numbers. No ONNX, no TensorRT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtconv.core.documents.explain import Axis, Part, Sample
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry

_NAMES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
_DRAWN_CHARACTERS = 84
_SAMPLE_SIZES = (3, 4, 2, 5, 6, 7, 8, 1)
_SHOWN_CYCLE = 12


def describe_axes(geometry: Geometry, sizes: Sequence[int | None]) -> tuple[Axis, ...]:
    """Describes every spatial axis of a node.

    Args:
        sizes: Spatial input sizes, None where dynamic; may be fewer than the axes.
    """
    names = _NAMES.get(geometry.rank) or tuple(f"axis {axis + 2}" for axis in range(geometry.rank))
    lengths = [*sizes, *[None] * geometry.rank]
    return tuple(_axis(name, deconv.along(geometry, axis), lengths[axis]) for axis, name in enumerate(names))


def linear(factor: int, constant: int) -> str:
    """Returns "in", "2*in + 1" or "3*in - 2"."""
    return ("in" if factor == 1 else f"{factor}*in") + (_plus(constant) if constant else "")


def elements(count: int) -> str:
    """Returns "1 element" or "2 elements"."""
    return f"{count} element{'' if count == 1 else 's'}"


def cycle_text(taps: Sequence[int]) -> str:
    """Returns the taps of successive elements: "1, 2, 1, 2, ..."; one period at least, if it is not too long."""
    counts = list(taps) * max(1, -(-4 // len(taps)))
    return ", ".join(str(count) for count in counts[:_SHOWN_CYCLE]) + ", ..."


def _plus(number: int) -> str:
    return f" - {-number}" if number < 0 else f" + {number}"


def _axis(name: str, line: Geometry, size: int | None) -> Axis:
    """Describes a node of one axis."""
    (kernel,), (stride,), (dilation,) = line.kernel, line.strides, line.dilations
    window = _window(line, size)
    full = None if size is None else line.full((size,))[0]
    constant = (kernel - 1) * dilation + 1 - stride
    taps = deconv.tap_cycle(kernel, stride, dilation)
    turn = window.begin % stride if window else 0
    cycle = taps[turn:] + taps[:turn]
    goal = line.output_shape[0] if line.output_shape else None
    out = goal if goal is not None else full - window.begin - window.end if window and full is not None else None
    return Axis(
        name=name,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        size=size,
        full=full,
        out=out,
        full_formula=linear(stride, constant),
        out_formula=str(goal) if goal is not None else _out_formula(stride, constant, window),
        full_filled=f"{_span_filled(line, size)} = {linear(stride, constant) if full is None else full}",
        out_filled=_out_filled(line, size, window),
        begin=window.begin if window else None,
        end=window.end if window else None,
        taps=cycle,
        parts=tuple(_parts(line, size, window)),
        advice=tuple(_advice(line, window, cycle)),
        sample=_sample(line, size, window),
    )


def _window(line: Geometry, size: int | None) -> Crop | None:
    crops = deconv.crops(line, None if size is None else (size,))
    return None if crops is None else crops[0]


def _out_formula(stride: int, constant: int, window: Crop | None) -> str:
    assert window is not None
    return linear(stride, constant - window.begin - window.end)


def _span_filled(line: Geometry, size: int | None) -> str:
    count = "in" if size is None else size
    return f"({count} - 1)*{line.strides[0]} + {line.dilations[0]}*({line.kernel[0]} - 1) + 1"


def _out_filled(line: Geometry, size: int | None, window: Crop | None) -> str:
    """Fills ONNX's formula in; begin and end are the pads that count, whatever attribute they come from."""
    if window is None:
        assert line.output_shape is not None
        return f"{line.output_shape[0]}, as output_shape asks"
    extra = line.output_padding[0]
    constant = (line.kernel[0] - 1) * line.dilations[0] + 1 - line.strides[0] - window.begin - window.end
    result = linear(line.strides[0], constant) if size is None else str(line.strides[0] * size + constant)
    end = window.end + extra
    pads = "".join(f" + {-pad}" if pad < 0 else f" - {pad}" for pad in (window.begin, end))
    return f"{_span_filled(line, size)}{pads} + {extra} = {result}"


def _parts(line: Geometry, size: int | None, window: Crop | None) -> Iterator[Part]:
    stride, dilation, kernel = line.strides[0], line.dilations[0], line.kernel[0]
    if stride > 1:
        yield Part(f"stride {stride}", f"puts {_zeros(stride - 1)} between input elements")
    else:
        yield Part("stride 1", "puts nothing between input elements")
    if dilation > 1:
        span = (kernel - 1) * dilation + 1
        yield Part(f"dilation {dilation}", f"spreads the {kernel} kernel taps over {elements(span)}")
    if line.output_shape is not None:
        yield from _asked_parts(line, size, window)
    elif window is not None and line.auto_pad.startswith("SAME"):
        yield from _same_parts(line, window)
    else:
        yield from _pad_parts(line)


def _zeros(count: int) -> str:
    return f"{count} zero{'' if count == 1 else 's'}"


def _pad_parts(line: Geometry) -> Iterator[Part]:
    """Explains explicit pads or VALID, and output_padding beside them."""
    begin, end, extra = line.begin_pads[0], line.end_pads[0], line.output_padding[0]
    if line.auto_pad == "VALID":
        yield Part("auto_pad VALID", "nothing is cut; a pads attribute would not count")
        begin = end = 0
    elif begin or end:
        meaning = f"{_cut(begin)} at the low end of the full result, {_cut(end)} at the high end"
        yield Part(f"pads {begin}, {end}", meaning)
    else:
        yield Part("pads 0, 0", "nothing is cut from the full result")
    if not extra:
        return
    more = extra - max(end, 0)
    if more <= 0:
        meaning = f"takes back {extra} of the {end} that the end pad cuts: {_cut(end - extra)} at the high end"
    else:
        back = f"takes back the {end} that the end pad cuts, and " if end > 0 else "is beyond the end pad: "
        meaning = f"{back}adds {elements(more)} at the high end that no tap reaches"
    yield Part(f"output_padding {extra}", meaning)


def _cut(pad: int) -> str:
    if not pad:
        return "nothing is cut"
    if pad < 0:
        return f"{elements(-pad)} added"
    return f"{elements(pad)} cut"


def _same_parts(line: Geometry, window: Crop) -> Iterator[Part]:
    extra = line.output_padding[0]
    span = (line.kernel[0] - 1) * line.dilations[0] + 1
    total = window.begin + window.end + extra
    half = "smaller" if line.auto_pad == "SAME_UPPER" else "larger"
    if span + extra < line.strides[0]:
        meaning = "nothing is cut: the stride is longer than the kernel, so out is less than in*stride"
    else:
        meaning = (
            f"pads {window.begin}, {total - window.begin}, so that out = in*stride: {total} in all,"
            f" the {half} half at the low end"
        )
    yield Part(f"auto_pad {line.auto_pad}", meaning)
    if extra:
        meaning = f"counts before that, at the high end, where in the end {_crop_text(window.end)}"
        yield Part(f"output_padding {extra}", meaning)


def _crop_text(crop: int) -> str:
    if crop < 0:
        return f"{elements(-crop)} that no tap reaches {'is' if crop == -1 else 'are'} added"
    return f"{elements(crop)} {'is' if crop == 1 else 'are'} cut" if crop else "nothing is cut"


def _asked_parts(line: Geometry, size: int | None, window: Crop | None) -> Iterator[Part]:
    assert line.output_shape is not None
    output_size, extra = line.output_shape[0], line.output_padding[0]
    half = "smaller" if line.auto_pad == "SAME_UPPER" else "larger"
    if size is None or window is None:
        constant = (line.kernel[0] - 1) * line.dilations[0] + 1 - line.strides[0] + extra
        total = linear(line.strides[0], constant - output_size)
        meaning = (
            f"{total} elements are cut (none where that is negative), the {half} half at the low end;"
            " how many that is, only the run time knows"
        )
    else:
        meaning = (
            f"asks for {output_size} of {line.full((size,))[0]}: {_crop_text(window.begin)} at the low end and"
            f" {_crop_text(window.end)} at the high end (the {half} half of an odd cut goes to the low end)"
        )
    yield Part(f"output_shape {output_size}", meaning)
    if extra:
        yield Part(f"output_padding {extra}", "counts before the cut, at the high end")


def _advice(line: Geometry, window: Crop | None, cycle: Sequence[int]) -> Iterator[str]:
    stride, kernel, dilation = line.strides[0], line.kernel[0], line.dilations[0]
    empty = cycle.count(0)
    if empty:
        why = "the kernel is shorter than the stride" if dilation == 1 else "the taps miss them"
        yield (
            f"gaps: {empty} of every {stride} output elements {'gets' if empty == 1 else 'get'} no tap and"
            f" {'holds' if empty == 1 else 'hold'} only the bias ({why})"
        )
    elif min(cycle) != max(cycle):
        divides = f"stride {stride} does not divide kernel {kernel}"
        why = divides if kernel % stride else f"dilation {dilation} and stride {stride} have a common factor"
        yield f"checkerboard: {why}, so output elements get {cycle_text(cycle)} taps in turn, also for a constant input"
    if min(cycle) != max(cycle):
        yield _even_kernel(line, window)
    if window is not None and window.end < 0:
        rows = "the last output element holds" if window.end == -1 else f"the last {-window.end} output elements hold"
        yield f"{rows} only the bias: output_padding or output_shape asks for more than the taps reach"


def _even_kernel(line: Geometry, window: Crop | None) -> str:
    """Returns how to get as many taps everywhere at the same output size."""
    stride, kernel = line.strides[0], line.kernel[0]
    if line.dilations[0] > 1:
        return f"dilation 1 with a kernel that is a multiple of {stride}, or a Resize and a Conv, has no such pattern"
    longer = -(-kernel // stride) * stride
    total = None if window is None or line.output_shape else window.begin + window.end + longer - kernel
    pads = "" if total is None or total < 0 else f" and pads {total // 2}, {total - total // 2} (output_padding 0)"
    size = " at the same output size" if pads else ""
    return (
        f"a kernel of {longer}{pads} gives every element {_taps(longer // stride)}{size}; a Resize and a Conv have no"
        " such pattern either. Both have to be trained anew"
    )


def _taps(count: int) -> str:
    return f"{count} tap{'' if count == 1 else 's'}"


def _sample(line: Geometry, size: int | None, window: Crop | None) -> Sample | None:
    """Chooses an input size that shows both edges and fits a terminal."""
    kernel, stride, dilation = line.kernel[0], line.strides[0], line.dilations[0]
    sizes = (size, *_SAMPLE_SIZES) if size is not None and 1 <= size <= 4 else _SAMPLE_SIZES
    cell = len(f"w{kernel - 1}") + 1
    crop = window or Crop(0, 0)
    for count in sizes:
        full = line.full((count,))[0]
        columns = full + max(0, -crop.begin) + max(0, -crop.end)
        if columns * cell <= _DRAWN_CHARACTERS and full - crop.begin - crop.end >= 1:
            return Sample(count, deconv.tap_counts(kernel, stride, dilation, count))
    return None


def describe_node(geometry: Geometry, weight: Sequence[int | None] | None, has_bias: bool) -> tuple[Part, ...]:
    """Explains what concerns all axes: group and bias."""
    ins, outs = (weight[0], weight[1]) if weight is not None and len(weight) > 1 else (None, None)
    group = geometry.group
    parts = []
    if group > 1:
        share = "a share" if ins is None else str(ins // group)
        note = "" if outs is None else f"; the weight's {outs} outputs a group make {outs * group} output channels"
        meaning = f"each output channel sees {share} of the {ins or '?'} input channels{note}"
        parts.append(Part(f"group {group}", meaning))
    if has_bias:
        parts.append(Part("bias", "is added to every output element, also to those that no tap reaches"))
    else:
        parts.append(Part("no bias", "output elements that no tap reaches are 0"))
    return tuple(parts)


def joint_advice(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Says what uneven axes do together."""
    uneven = [axis for axis in axes if min(axis.taps) != max(axis.taps)]
    if len(uneven) < 2:
        return ()
    least = most = 1
    for axis in axes:
        least, most = least * min(axis.taps), most * max(axis.taps)
    return (f"over all axes together, output elements get between {least} and {_taps(most)}",)
