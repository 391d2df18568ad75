"""Models in parts, as text."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.cuts import crossings_text, left_text
from trtconv.cli.formats.engine import verify_text
from trtconv.cli.formats.text import findings_text
from trtconv.cli.formats.wording import count, shapes_text, table
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.pipeline import PartRecord, PipelineDocument, PipelineReport
from trtconv.core.documents.pipeline_verify import PipelineCase, PipelineVerifyReport
from trtconv.core.documents.verify import Difference, Verdict
from trtconv.core.text import clean, leading


def pipeline_text(report: PipelineReport, verbose: bool = False) -> str:
    """Renders what `build --partition` did.

    Args:
        report: The report.
        verbose: Whether all nodes that were left are listed.
    """
    findings = [(None, report.findings), *((engine, engine.findings) for engine in report.engines)]
    blocks = [
        findings_text(leading(engine.model.path) if engine else "", own, verbose) for engine, own in findings if own
    ]
    if report.pipeline is None:
        return "\n\n".join([*blocks, "no pipeline: an engine failed, and to leave nodes out does not help"])
    if report.path is None and report.exit_code:
        return "\n\n".join([*blocks, clean("the manifest is left as it was: an engine failed")])
    verb = "kept" if report.up_to_date else "wrote"
    engines = sum(part.onnx is not None for part in report.pipeline.parts)
    counts = f"{count(engines, 'engine')}, {count(len(report.pipeline.parts) - engines, 'part')} on ONNX Runtime"
    last = f"{verb} {leading(report.path or '')}: {counts}"
    return "\n\n".join([*document_blocks(report.pipeline, report.engines, verbose), *blocks, last])


def document_blocks(
    document: PipelineDocument, engines: Sequence[BuildReport] = (), verbose: bool = False
) -> list[str]:
    """Returns the blocks of a text about a pipeline: parts, what crosses, and what was left.

    Args:
        document: The pipeline.
        engines: The reports of its engines, in order.
        verbose: Whether all nodes that were left are listed.
    """
    head = [("model", document.model.path)]
    if document.runtime is not None:
        head.append(
            ("runtime", f"{document.runtime}" + (f" on {document.runtime.gpu}" if document.runtime.gpu else ""))
        )
    blocks = ["\n".join(table(head, "")), parts_text(document.parts, engines)]
    if document.crossings:
        blocks.append(crossings_text(document.crossings))
    if document.left:
        blocks.append(left_text(document.left, verbose))
    return [*blocks, *(["\n".join(clean(f"note: {note}") for note in document.notes)] if document.notes else [])]


def parts_text(parts: Sequence[PartRecord], engines: Sequence[BuildReport] = ()) -> str:
    """Returns a table of parts, with what was proven of their engines."""
    reports = iter(engines)
    rows = []
    for number, part in enumerate(parts, 1):
        report = next(reports, None) if part.onnx is not None else None
        rows.append((str(number), part.kind.value, count(part.nodes, "node"), part.file, _proven(report)))
    return "\n".join(["parts", *table(rows, "  ")])


def _proven(report: BuildReport | None) -> str:
    if report is None or report.proof is None:
        return ""
    if report.proof.agrees is None:
        return "not proven"
    return ("proven" if not report.proof.missing else "proven in part") if report.proof.agrees else "differs"


def verified_text(report: PipelineVerifyReport) -> str:
    """Renders what `verify` found of a model in parts; the last line is the verdict."""
    head = [("model", report.model.path), ("pipeline", report.pipeline.path)]
    if report.runtime is not None:
        head.append(("runtime", f"{report.runtime} on {report.runtime.gpu}"))
    rows: list[tuple[str, ...]] = [("profile", "size", "shapes", "parts", "engines", "whole", "")]
    rows += [_case(result, report.ran == "engines") for result in report.cases]
    blocks = ["\n".join(table(head, ""))]
    if report.why_not_run is not None:
        blocks.append(
            clean(
                f"THE ENGINES WERE NOT RUN: {report.why_not_run}. The parts of the model are run on ONNX Runtime, one "
                "after the other, and what TensorRT's parser makes of each engine's part beside it."
            )
        )
    blocks.append("largest relative errors\n" + "\n".join(table(rows, "")))
    blocks += [verify_text(engine) for engine in report.engines]
    blocks += ["\n".join(failed)] if (failed := _failures(report.cases)) else []
    return "\n\n".join([*blocks, verified_verdict(report)])


def _case(result: PipelineCase, ran: bool) -> tuple[str, ...]:
    case = result.case
    place = str(case.profile), case.size, shapes_text(case.shapes)
    verdict = "skipped" if case.passed is None else "" if case.passed else "FAILED"
    if result.selects_otherwise:
        verdict = "selects otherwise after a rounding of an engine; each part is right"
    whole = _worst(case.outputs) if ran else "-"
    return (*place, _worst(result.cut), _worst(result.engines), whole, verdict)


def _worst(differences: Sequence[Difference]) -> str:
    errors = [difference.max_rel for difference in differences if difference.max_rel == difference.max_rel]
    if any(difference.verdict is Verdict.SHAPE for difference in differences):
        return "shape"
    return f"{max(errors):.1e}" if errors else "-"


def _failures(cases: Sequence[PipelineCase]) -> list[str]:
    lines = []
    for result in cases:
        case = result.case
        if case.passed is True:
            continue
        reasons = [
            f"{what} {d.name}: {d.why}" for what, differences in _compared(result) for d in differences if not d.passed
        ]
        lines += [clean(f"{case.size} of profile {case.profile}: {why}") for why in reasons or [case.skipped or ""]]
    return lines


def _compared(result: PipelineCase) -> tuple[tuple[str, Sequence[Difference]], ...]:
    return ("cut", result.cut), ("engine", result.engines), ("whole", result.case.outputs)


def verified_verdict(report: PipelineVerifyReport) -> str:
    """Returns in a line what `trtconv verify` found of a model in parts."""
    sizes = count(sum(result.case.passed is not None for result in report.cases), "size")
    path = leading(report.pipeline.path)
    if report.exit_code == 0:
        what = "engines and parts" if report.ran == "engines" else "the cut and what TensorRT parsed"
        return f"{path}: {what} compute what the model means, at {sizes}"
    return f"{path}: FAILED" if report.exit_code == 1 else f"{path}: not all could be compared"
