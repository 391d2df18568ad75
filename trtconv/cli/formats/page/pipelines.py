"""The page of a model in parts: the parts and what crosses, drawn, and what was left to ONNX Runtime."""

from __future__ import annotations

import contextlib

from trtconv.cli.formats.page import rendered
from trtconv.cli.formats.page.drawings import graph_drawing
from trtconv.cli.formats.wording import count, shape_text
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.pipeline import PartRecord, SavedPipeline
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside
from trtconv.explainer.changes import DrawnNode


def pipeline_page(saved: SavedPipeline) -> bytes:
    """Writes the page of a pipeline; of its engines it shows what their reports say, where they lie beside it.

    Raises:
        EnvironmentMissing: Jinja2 is not installed.
    """
    document = saved.document
    reports = [_report(saved, part) for part in document.parts]
    nodes = [_drawn(part, report) for part, report in zip(document.parts, reports, strict=True)]
    crossings = [
        {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": "?" if tensor.shape is None else shape_text(tensor.shape),
            "source": tensor.source,
            "target": tensor.target,
        }
        for tensor in document.crossings
    ]
    values: dict[str, object] = {
        "name": document.model.path,
        "drawing": graph_drawing(nodes, nodes, "new"),
        "parts": [_row(number, *pair) for number, pair in enumerate(zip(document.parts, reports, strict=True), 1)],
        "crossings": crossings,
        "left": document.left,
        "notes": document.notes,
        "runtime": str(document.runtime or ""),
        "sha256": document.model.sha256 or "",
    }
    return rendered("pipeline.html", values)


def _report(saved: SavedPipeline, part: PartRecord) -> BuildReport | None:
    if part.onnx is None:
        return None
    # An engine may have been sent without its report.
    with contextlib.suppress(InputError):
        return load_report(report_beside(saved.path.parent / part.file)).report
    return None


def _drawn(part: PartRecord, report: BuildReport | None) -> DrawnNode:
    runs = "ONNX Runtime" if part.onnx is None else "engine"
    notes = (count(part.nodes, "node"), *([_proof(report)] if part.onnx is not None else []))
    inputs, outputs = ([tensor.name for tensor in side] for side in (part.inputs, part.outputs))
    return DrawnNode(runs, part.file, tuple(inputs), tuple(outputs), notes, ())


def _proof(report: BuildReport | None) -> str:
    proof = None if report is None else report.proof
    if proof is None or proof.agrees is None:
        return "not proven"
    return "proven" if proof.agrees else "differs"


def _row(number: int, part: PartRecord, report: BuildReport | None) -> dict[str, object]:
    proof = "" if part.onnx is None else _proof(report)
    kinds = {"proven": "ok", "differs": "bad", "not proven": "warn"}
    return {
        "number": number,
        "kind": part.kind.value,
        "file": part.file,
        "nodes": part.nodes,
        "proof": proof,
        "badge": kinds.get(proof, "info"),
        "inputs": ", ".join(tensor.name for tensor in part.inputs),
        "outputs": ", ".join(tensor.name for tensor in part.outputs),
    }
