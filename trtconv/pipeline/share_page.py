"""The page about a part that is shared: how it fails, what shows it, what is in it, and a text for an issue."""

from __future__ import annotations

import hashlib
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path

import onnx

from trtconv.core.codes import BUILDER_REFUSED, PARSER_REFUSED, PROFILE_INCONSISTENT
from trtconv.core.dims import InputSpec, times
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.reduce import Failure
from trtconv.core.documents.share import ShareCommands, ShareReport
from trtconv.core.options import command_line
from trtconv.core.reading import DOCUMENT_BYTES, read_plain
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.version import __version__

_BY_TENSORRT = (
    *(code.code for code in (PARSER_REFUSED, BUILDER_REFUSED, PROFILE_INCONSISTENT)),
    "crash",
    "timeout",
    "memory",
)
"""Failures that NVIDIA's own tools show as they are; others show where results are compared."""
_TOOLS = {"rtx": ("tensorrt_rtx", "POLYGRAPHY_USE_TENSORRT_RTX=1 "), "tensorrt": ("trtexec", "")}
"""Family to the tool that comes with it, and what Polygraphy is told with."""
_PRODUCTS = {"rtx": "TensorRT-RTX", "tensorrt": "TensorRT"}
_ATTRIBUTES = 8
"""So many numbers of an attribute are shown."""


def commands(
    request: BuildRequest, inputs: Sequence[InputSpec], failure: Failure, runtime: RuntimeIdentity, alone: bool
) -> ShareCommands:
    """Returns what shows a failure, each as one line for a shell, run where the part is.

    Args:
        request: How the part is built.
        inputs: Those of the part.
        failure: How it fails.
        runtime: The TensorRT.
        alone: Whether it fails so without trtconv's rewrites.
    """
    path = request.model.name
    ours = shlex.join(["trtconv", "build", path, *command_line(request, ReduceRequest)])
    if not alone:
        return ShareCommands(ours)
    tool, environment = _TOOLS[runtime.family]
    shapes = [_shapes(inputs, request, pick) for pick in ("min", "opt", "max")]
    if failure.code not in _BY_TENSORRT:
        compared = [
            "polygraphy",
            "run",
            path,
            "--trt",
            "--onnxrt",
            *_polygraphy(shapes),
            "--atol",
            "1e-3",
            "--rtol",
            "1e-3",
        ]
        return ShareCommands(ours, "", environment + shlex.join(compared))
    sizes = [
        f"--{pick}Shapes={','.join(shape)}" for pick, shape in zip(("min", "opt", "max"), shapes, strict=True) if shape
    ]
    converted = ["polygraphy", "convert", path, "-o", "part.engine", *_polygraphy(shapes)]
    return ShareCommands(ours, shlex.join([tool, f"--onnx={path}", *sizes]), environment + shlex.join(converted))


def _shapes(inputs: Sequence[InputSpec], request: BuildRequest, pick: str) -> list[str]:
    """Returns the shape of every dynamic input, as trtexec has it: "x:1x3x64x64"; of several profiles the first's."""
    bounds = {**request.dims, **(request.profiles[0] if request.profiles else {})}

    def size(dim: str | int) -> str:
        bound = bounds.get(dim) if isinstance(dim, str) else None
        return str(dim if bound is None else getattr(bound, pick))

    dynamic = (spec for spec in inputs if any(isinstance(dim, str) for dim in spec.dims))
    return [f"{spec.name}:{'x'.join(map(size, spec.dims))}" for spec in dynamic]


def _polygraphy(shapes: Sequence[Sequence[str]]) -> list[str]:
    words: list[str] = []
    for pick, shape in zip(("min", "opt", "max"), shapes, strict=True):
        if shape:
            pairs = (text.split(":") for text in shape)
            words += [f"--trt-{pick}-shapes", *(f"{name}:[{sizes.replace('x', ',')}]" for name, sizes in pairs)]
    return words


def is_page(path: Path) -> bool:
    """Whether a file is a page as trtconv wrote it, which it may replace."""
    try:
        text, _, end = read_plain(path, DOCUMENT_BYTES).decode("utf-8", "replace").rpartition("<!-- ")
    except OSError:
        return False
    return f"<!-- {end}" == _ending(text)


def _ending(text: str) -> str:
    return f"<!-- trtconv {hashlib.sha256(text.encode()).hexdigest()} -->\n"


def page_of(report: ShareReport, part: onnx.ModelProto) -> str:
    """Returns the page, in Markdown, with the text for an issue; its last line says what it was when it was written.

    Args:
        report: What was made; its path is not told, only the file's name.
        part: The part.
    """
    title = _title(report)
    text = "\n".join(
        [
            *(f"# {title}", "", *_what_happens(report), ""),
            *("## How to see it", "", "```sh", *_lines(report), "```", ""),
            *("## What is in it", "", *_nodes(part), "", *_inputs(part), "", *_constants(report), ""),
            *("## What is not in it", "", *_absent(report), ""),
            *("## Text for an issue", "", "```text", *_issue(report, part), "```", ""),
        ]
    )
    return text + _ending(text)


def _title(report: ShareReport) -> str:
    failure = report.failure
    how = {"crash": "ends the process", "timeout": "takes too long", "memory": "takes too much memory"}.get(
        failure.code, f"fails ({failure.name})"
    )
    operators = f" on {failure.op}" if failure.op else ""
    return f"{_PRODUCTS[report.runtime.family]} {report.runtime.version} {how}{operators}"


def _what_happens(report: ShareReport) -> list[str]:
    return ["```text", f"{report.failure.code} {report.failure.name}", *report.failure.message.splitlines(), "```"]


def _lines(report: ShareReport) -> list[str]:
    lines = report.commands
    return [line for line in (lines.tool, lines.polygraphy, lines.own) if line]


def _nodes(part: onnx.ModelProto) -> list[str]:
    rows = ["| node | operator | attributes |", "|---|---|---|"]
    for node in part.graph.node:
        text = ", ".join(
            f"{attribute.name}={_short(onnx.helper.get_attribute_value(attribute))}" for attribute in node.attribute
        )
        rows.append(f"| {node.name} | {node.op_type} | {text} |")
    return rows


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, list) and all(isinstance(element, (int, float, bytes)) for element in value):
        return f"[{', '.join(map(_short, value[:_ATTRIBUTES]))}{', ...' * (len(value) > _ATTRIBUTES)}]"
    return "(a constant or a graph)"


def _inputs(part: onnx.ModelProto) -> list[str]:
    rows = ["| input | type | shape |", "|---|---|---|"]
    for value in part.graph.input:
        kind = value.type.tensor_type
        dims = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
        name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
        rows.append(f"| {value.name} | {name} | {' x '.join(map(str, dims)) or 'scalar'} |")
    return rows


def _constants(report: ShareReport) -> list[str]:
    if not report.constants:
        return ["No constants."]
    rows = ["| constant | type | shape | values |", "|---|---|---|---|"]
    return rows + [f"| {c.name} | {c.dtype} | {times(c.shape) or 'scalar'} | {c.values} |" for c in report.constants]


def _absent(report: ShareReport) -> list[str]:
    checks = report.checks
    return [
        f"- {report.nodes_before - report.nodes:,} of the model's {report.nodes_before:,} nodes.",
        "- Names of tensors, nodes, dimensions, functions and own operators; documentation, metadata, producer.",
        "- Weights: what is called random above was drawn anew; what is as it was is integers that say shapes and axes,"
        " at most 16 each, or round numbers.",
        f"- Looked for in the part and in this page: {checks.names:,} names and texts, {checks.weight_bytes:,} bytes of"
        " weights. Not one is there.",
        "",
        "What is left of the model: the operators above in their order, their attributes, and sizes.",
    ]


def _issue(report: ShareReport, part: onnx.ModelProto) -> list[str]:
    product = _PRODUCTS[report.runtime.family]
    operators = " -> ".join(dict.fromkeys(node.op_type for node in part.graph.node))
    opsets = ", ".join(f"{opset.domain or 'ai.onnx'} {opset.version}" for opset in part.opset_import)
    gpu = report.runtime.gpu or "none"
    return [
        f"Title: {_title(report)}",
        "",
        f"Description: the attached ONNX file ({report.nodes} node(s): {operators}; {report.output.bytes} bytes)"
        " was cut out of a larger model; names and weights were replaced.",
        f"{report.failure.message.splitlines()[0] if report.failure.message else report.failure.name}",
        "",
        f"Environment: {product} {report.runtime.version}, GPU {gpu}, {platform.system()} {platform.machine()},"
        f" opset {opsets}, trtconv {__version__}",
        "",
        "Steps to reproduce:",
        *(f"  {line}" for line in _lines(report)),
        "",
        "Expected: an engine that computes what the file means, or a message that says why there is none.",
    ]
