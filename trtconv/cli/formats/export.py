"""What a person reads after an export."""

from __future__ import annotations

import math

from trtconv.cli.formats.text import build_text, check_text
from trtconv.cli.formats.wording import byte_size, shape_text, table
from trtconv.core.documents.export import ConvertReport, ExportReport, Proof
from trtconv.core.text import clean


def export_text(report: ExportReport) -> str:
    """Renders an export; the last lines, one a file, say what became of it."""
    files = (*report.parts.values(), report, *report.sides)
    blocks = [
        *(block for name, part in report.parts.items() for block in (clean(f"part {name}"), *_blocks(part))),
        "all parts together" if report.parts else "",
        *(block for side in (report, *report.sides) for block in _blocks(side)),
        "seconds: " + ", ".join(f"{stage} {value:.2f}" for stage, value in report.seconds.items()),
        "\n".join([*map(_verdict, files), *([clean(f"wrote {report.pipeline}")] if report.pipeline else [])]),
    ]
    return "\n\n".join(block for block in blocks if block)


def _blocks(report: ExportReport) -> list[str]:
    """Renders what there is to say of one file."""
    return [
        "\n".join(_interface(report)),
        "\n".join(_sizes(report)),
        "\n".join(_attempts(report)),
        "\n".join(clean(f"note: {note}") for note in report.notes),
        "\n".join(_proof(report.proof)),
        "" if report.check is None else check_text(report.check),
    ]


def convert_text(report: ConvertReport) -> str:
    """Renders an export and the build of its engine."""
    builds = [] if report.build is None else [report.build, *report.sides]
    return "\n\n".join([export_text(report.export), *map(build_text, builds)])


def _interface(report: ExportReport) -> list[str]:
    rows = [
        (kind, clean(name), clean(f"({', '.join(map(str, dims))})"))
        for kind, tensors in (("input", report.inputs), ("output", report.outputs))
        for name, dims in tensors.items()
    ]
    return table(rows, "")


def _sizes(report: ExportReport) -> list[str]:
    lines = [clean(rule.sentence()) for rule in report.sizes]
    return [*lines, *(clean(f"together: {text}") for text in report.joint)]


def _attempts(report: ExportReport) -> list[str]:
    """Says which exporter was used, and why no other."""
    failed = [a for a in report.attempts if not a.used]
    return [clean(f"exporter {a.exporter}: {a.outcome}") for a in failed]


def _proof(proof: Proof) -> list[str]:
    if not proof.runs:
        return [clean(f"not compared with PyTorch: {proof.why}")]
    wide = ", in float32, since it has no kernels for the file's types" if proof.widened else ""
    lines = [f"PyTorch against ONNX Runtime{wide}, tolerance {proof.tolerance:.0e}"]
    for run in proof.runs:
        shapes = ", ".join(f"{name} {shape_text(shape)}" for name, shape in run.inputs.items())
        error = run.max_relative_error
        good = error is None or error <= proof.tolerance
        value = run.why or ("not finite" if error is None or math.isinf(error) else f"relative error {error:.1e}")
        lines.append(clean(f"  {shapes}: {value}{'' if good else '  FAILED'}"))
    return lines


def _verdict(report: ExportReport) -> str:
    if report.output is None:
        return clean(f"{report.spec}: not written, the file would differ from PyTorch")
    path, size = clean(str(report.output.path)), byte_size(report.output.bytes)
    return f"wrote {path} ({size}): opset {report.opset}, IR version {report.ir_version}, by {report.exporter}"
