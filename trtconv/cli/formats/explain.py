"""What `trtconv explain` prints: a ConvTranspose in words and a drawing. Pure ASCII but for names from the model."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtconv.cli.formats.wording import count, table
from trtconv.core.documents.explain import (
    Axis,
    ExplainReport,
    Explanation,
    Layers,
    Listed,
    Parser,
    Part,
    Quantization,
    Rewrite,
    Sample,
)
from trtconv.core.findings import Finding
from trtconv.core.text import clean, leading

_WIDTH = 110
_CYCLE = 12


def explain_text(report: ExplainReport) -> str:
    """Renders a report: the explanation, or the list where no node was chosen."""
    if report.explanation is None:
        return _list_text(report)
    return "\n\n".join(block for block in _blocks(report, report.explanation) if block)


def _list_text(report: ExplainReport) -> str:
    nodes = report.deconvolutions
    if not nodes:
        return f"{leading(report.model)}: no ConvTranspose"
    rows = [("place", "name", "kernel", "stride", "pads", "output_padding", "sizes"), *(_row(node) for node in nodes)]
    head = f"{leading(report.model)}: {len(nodes)} ConvTranspose nodes; 'trtconv explain MODEL NODE' explains one"
    return "\n".join([head, "", *table(rows, "  ")])


def _row(node: Listed) -> tuple[str, ...]:
    name = clean(node.name or f"(makes {node.output})")
    if node.fault:
        return leading(node.place), name, "-", "-", "-", "-", clean(node.fault)
    pads = node.auto_pad if node.auto_pad != "NOTSET" else _comma(node.pads)
    if node.output_shape is not None:
        pads = f"output_shape {_comma(node.output_shape)}"
    extra = _comma(node.output_padding)
    return leading(node.place), name, _times(node.kernel), _times(node.strides), pads, extra, node.sizes


def _blocks(report: ExplainReport, node: Explanation) -> Iterable[str]:
    yield "\n".join(_head(report, node))
    if node.fault:
        yield "\n".join(_prose(f"no more can be said: {node.fault}", ""))
    for names, axis in alike(node.axes):
        yield "\n".join(_axis_lines(names, axis))
    if node.parts:
        yield "\n".join(["all axes", *_part_lines(node.parts)])
    yield "\n".join([f"TensorRT's parser, of the node as it is ({report.target})", *_parser_lines(node.parser)])
    yield "\n".join(["what trtconv makes of it", *_rewrite_lines(node.rewrite, node.name)])
    if node.quantization is not None:
        yield "\n".join(["quantisation", *_quantization_lines(node.quantization)])
    if node.advice:
        yield "\n".join(["advice", *(line for text in node.advice for line in _prose(text, "  - ", "    "))])


def _head(report: ExplainReport, node: Explanation) -> list[str]:
    name = f' "{node.name}"' if node.name else ""
    rows = [("attributes", _attributes(node.attributes))] if node.attributes else []
    rows.append(("input", _shape(node.input_shape)))
    rows.append(("weight", f"{_shape(node.weight)} = (C_in, C_out/group, kernel)"))
    lines = [f"{leading(report.model)}: " + clean(f"{node.place} ConvTranspose{name}, which makes {node.output}")]
    for label, value in rows:
        lines += _prose(value, f"  {label:<11} ", " " * 14)
    return lines


def alike(axes: Sequence[Axis]) -> list[tuple[list[str], Axis]]:
    """Puts axes together that differ in nothing but their names."""
    groups: list[tuple[list[str], Axis]] = []
    for axis in axes:
        same = next((names for names, other in groups if dataclasses.replace(other, name=axis.name) == axis), None)
        if same is None:
            groups.append(([axis.name], axis))
        else:
            same.append(axis.name)
    return groups


def _axis_lines(names: Sequence[str], axis: Axis) -> list[str]:
    title = f"axis {names[0]}" if len(names) == 1 else f"axes {' and '.join(names)}, alike"
    generic = "(in - 1)*stride + dilation*(kernel - 1) + 1"
    rows = [
        ("full", f"= {generic}"),
        ("", f"= {axis.full_filled}"),
        ("out", f"= {generic} - begin - end + output_padding"),
        ("", f"= {axis.out_filled}"),
        ("", f"{_crop(axis)}"),
    ]
    if axis.begin is None:
        del rows[2]
    lines = [title, *table(rows, "  ")]
    lines += ["", *_part_lines(axis.parts)]
    cycle = ", ".join(str(taps) for taps in (axis.taps * 4)[: max(4, min(len(axis.taps), _CYCLE))])
    lines += ["", f"  taps that meet in successive output elements, far from the edges: {cycle}, ..."]
    return [*lines, "", *_drawing(axis)]


def _crop(axis: Axis) -> str:
    if axis.begin is None or axis.end is None:
        return "which part of the full result that is, is known at run time"
    whole = "the full result" if not axis.begin and not axis.end else "full"
    return f"= {whole}{_less(axis.begin, 'low')}{_less(axis.end, 'high')}"


def _less(crop: int, end: str) -> str:
    if not crop:
        return ""
    return f" - {crop} at the {end} end" if crop > 0 else f" + {-crop} at the {end} end"


def _part_lines(parts: Iterable[Part]) -> list[str]:
    parts = list(parts)
    width = max(len(part.attribute) for part in parts)
    lines = []
    for part in parts:
        lines += _prose(part.meaning, f"  {part.attribute:<{width}}  ", " " * (width + 4))
    return lines


def _drawing(axis: Axis) -> list[str]:
    if axis.sample is None:
        return ["  (no drawing: the kernel is too wide for one)"]
    rows = [*stamps(axis, axis.sample), *window(axis, axis.sample)]
    width = max(len(cell) for _, cells in rows for cell in cells)
    label = max(len(name) for name, _ in rows)
    pictured = "in" if axis.size is not None and axis.size == axis.sample.size else "drawn for in"
    lines = [f"  {pictured} = {axis.sample.size}"]
    for name, cells in rows:
        lines.append(f"    {name:<{label}}  {' '.join(cell.rjust(width) for cell in cells)}".rstrip())
    return [*lines, *legend(axis)]


def _margins(axis: Axis) -> tuple[int, int]:
    """Returns how many columns lie before and behind the full result."""
    return max(0, -(axis.begin or 0)), max(0, -(axis.end or 0))


def stamps(axis: Axis, sample: Sample) -> list[tuple[str, list[str]]]:
    """Draws the full result's indices, the input with its zeros, and the kernel that each element stamps."""
    before, after = _margins(axis)
    full = len(sample.taps)
    letters = [chr(ord("a") + element) for element in range(sample.size)]
    source = ["."] * ((sample.size - 1) * axis.stride + 1)
    source[:: axis.stride] = letters
    rows = [("full", [""] * before + [str(index) for index in range(full)] + [""] * after)]
    rows.append(("input", [""] * before + source))
    for element, letter in enumerate(letters):
        cells = [""] * (before + full)
        for tap in range(axis.kernel):
            cells[before + element * axis.stride + tap * axis.dilation] = f"w{tap}"
        rows.append((f"{letter} * w", cells))
    rows.append(("taps", ["0"] * before + [str(taps) for taps in sample.taps] + ["0"] * after))
    return rows


def window(axis: Axis, sample: Sample) -> list[tuple[str, list[str]]]:
    """Draws which columns are returned, and under which index."""
    if axis.begin is None or axis.end is None:
        return []
    before, after = _margins(axis)
    full = len(sample.taps)
    cells = []
    for column in range(-before, full + after):
        is_inside = axis.begin <= column < full - axis.end
        added = "+" if column < 0 or column >= full else ""
        cells.append(f"{added}{column - axis.begin}" if is_inside else "x")
    return [("out", cells)]


def legend(axis: Axis) -> list[str]:
    """Says what the letters and signs of a drawing mean, in one line."""
    signs = []
    if axis.stride > 1:
        signs.append(". zero between input elements")
    signs.append("w0.. kernel taps")
    if (axis.begin or 0) > 0 or (axis.end or 0) > 0:
        signs.append("x cut")
    if (axis.begin or 0) < 0 or (axis.end or 0) < 0:
        signs.append("+ added, bias only")
    return [f"    ({'; '.join(signs)})"]


def _parser_lines(parser: Parser) -> list[str]:
    lines = []
    for finding in parser.findings:
        lines += _prose(_finding_text(finding), "  ", "    ")
    if not parser.findings:
        lines += _prose(parser.expected, "  ", "    ")
    if parser.layers is None:
        return lines + _prose(f"not asked: {parser.why_not}", "  ", "    ")
    return lines + _layer_lines(parser.layers)


def _layer_lines(layers: Layers) -> list[str]:
    intro = f"asked {layers.runtime}, which"
    if layers.refused:
        return _prose(f"{intro} refuses it: {layers.refused}", "  ", "    ")
    layer = layers.deconvolution
    bias = "bias inside" if layer.get("has_bias") else "no bias inside"
    what = (
        f"kernel {_times(layer.get('kernel', ()))}, stride {_times(layer.get('stride', ()))}, {_padding(layer)}, {bias}"
    )
    others = "nothing else"
    if layers.others:
        others = f"{count(len(layers.others), 'more layer')}: {', '.join(layers.others)}"
    lines = _prose(f"{intro} makes a deconvolution of {what}; and {others}", "  ", "    ")
    for difference in layers.differences:
        lines += _prose(f"WRONG: {difference}", "  ", "    ")
    return lines if layers.differences else [*lines, "  that computes what the node means"]


def _padding(layer: Mapping[str, Any]) -> str:
    if str(layer.get("padding_mode", "")).startswith("SAME"):
        return f"padding {layer['padding_mode']}"
    return f"pre padding {_comma(layer.get('pre_padding', ()))}, post padding {_comma(layer.get('post_padding', ()))}"


def _rewrite_lines(rewrite: Rewrite, name: str) -> list[str]:
    lines = []
    for edit in rewrite.edits:
        whose = "" if edit.node == name or not name else f" of {edit.node}"
        lines += _prose(f"{edit.pass_name}{whose}: {edit.what}", "  ", "    ")
    for skip in rewrite.skipped:
        lines += _prose(f"{skip.pass_name} left {skip.node} alone: {skip.reason}", "  ", "    ")
    if rewrite.edits and rewrite.attributes:
        lines += _prose(_attributes(rewrite.attributes), "  node    ", " " * 10)
        lines += _prose(_shape(rewrite.weight), "  weight  ", " " * 10)
    if rewrite.behind:
        lines += _prose(", ".join(rewrite.behind), "  behind  ", " " * 10)
    for number, why in enumerate(rewrite.why):
        lines += _prose(why, "  why     " if number == 0 else " " * 10, " " * 10)
    for finding in rewrite.findings:
        lines += _prose(f"left: {_finding_text(finding)}", "  ", "    ")
    if rewrite.layers is not None and rewrite.edits:
        lines += _layer_lines(rewrite.layers)
    return lines or ["  nothing"]


def _quantization_lines(quantization: Quantization) -> list[str]:
    rows = [
        ("weight", f"{quantization.layout}: {quantization.weight}"),
        ("input", quantization.input),
        ("output", quantization.output),
    ]
    verdict = "yes, by all that is known of the target" if quantization.int8 else f"no: {quantization.why_not}"
    lines = []
    for label, value in (*rows, ("int8", verdict)):
        lines += _prose(value, f"  {label:<7} ", " " * 10)
    for finding in quantization.findings:
        if finding.code != "TC311":
            lines += _prose(_finding_text(finding), "  ", "    ")
    return lines


def _finding_text(finding: Finding) -> str:
    return f"{finding.severity.value} {finding.code} {finding.name}: {finding.message}"


def _attributes(attributes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in attributes.items())


def _shape(shape: Sequence[int | None] | None) -> str:
    if shape is None:
        return "(shape not known)"
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


def _times(sizes: Iterable[int]) -> str:
    return "x".join(str(size) for size in sizes)


def _comma(sizes: Iterable[int]) -> str:
    return ",".join(str(size) for size in sizes)


def _prose(text: str, first: str, later: str | None = None) -> list[str]:
    """Wraps a text, its line breaks taken for spaces."""
    return textwrap.wrap(
        clean(" ".join(text.split())),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=first if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]
