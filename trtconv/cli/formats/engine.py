"""What a person reads of verify and bench."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from trtconv.cli.formats.load import letter, load_blocks
from trtconv.cli.formats.proof import proof_lines
from trtconv.cli.formats.text import findings_text
from trtconv.cli.formats.wording import byte_size, count, memory_by_profile, shapes_text, table
from trtconv.core.dims import elements_of
from trtconv.core.documents.bench import BenchRatio, BenchReport, BenchRow
from trtconv.core.documents.verify import INCOMPLETE, Bisection, VerifyCase, VerifyReport
from trtconv.core.findings import Severity
from trtconv.core.text import clean, leading

_FEW = 0.01
"""Share of the elements below which a difference may come of inputs that no user would give."""
_BAR = 30
"""Width of the longest bar, in characters."""


def verify_text(document: VerifyReport) -> str:
    """Renders what `trtconv verify` found; the last line is the verdict."""
    signed = None if document.engine is None else document.engine.signed_by
    blocks = [
        "\n".join(_verify_head(document)),
        clean(f"signature of {signed} is good") if signed else "",
        _not_run(document),
        "\n".join(_case_table(document.cases)),
        "\n".join(_failures(document)),
        "\n".join(clean(f"tensors at {case.size}: {case.saved}") for case in document.cases if case.saved),
        _parsed_text(document),
        _bisect_text(document.bisect),
        _advice(document),
        verify_verdict(document),
    ]
    return "\n\n".join(block for block in blocks if block)


def _verify_head(document: VerifyReport) -> list[str]:
    engine, runtime, tolerance = document.engine, document.runtime, document.tolerance
    rows = [("model", str(document.model.path))]
    if document.against is not None:
        rows.append(("against", str(document.against.path)))
    if engine is not None:
        rows.append(("engine", f"{engine.path} ({byte_size(engine.bytes)})"))
    if runtime is not None:
        rows.append(("runtime", f"{runtime.family} {runtime.version} on {runtime.gpu}"))
    share = f", {tolerance.mismatches:.2%} of the elements beyond" if tolerance.mismatches else ""
    rows.append(
        (
            "tolerance",
            f"{document.precision}: {tolerance.relative:g} of the largest magnitude,"
            f" cosine {tolerance.cosine:g}{share}",
        )
    )
    return table(rows, "")


def _not_run(document: VerifyReport) -> str:
    if document.ran == "engine":
        return ""
    instead = (
        "What TensorRT's parser makes of the model is run layer by layer, and compared with the original."
        if document.ran == "network"
        else "The model as trtconv hands it to TensorRT is compared with the original, both on ONNX Runtime."
    )
    return clean(f"THE ENGINE WAS NOT RUN: {document.why_not_run}. {instead}")


def _case_table(cases: Sequence[VerifyCase]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("profile", "size", "shapes", "output", "max abs", "max rel", "cosine", "PSNR dB", "beyond", "")
    ]
    for case in cases:
        shapes = shapes_text(case.shapes)
        place = (str(case.profile), case.size, shapes)
        if not case.outputs:
            rows.append((*place, "-", "-", "-", "-", "-", "-", "skipped" if case.passed is None else "FAILED"))
        for output in case.outputs:
            numbers = (output.max_abs, output.max_rel)
            rows.append(
                (
                    *place,
                    clean(output.name),
                    *(_number(n, "{:.1e}") for n in numbers),
                    _number(output.cosine, "{:.7f}"),
                    _number(output.psnr, "{:.1f}"),
                    _number(output.mismatches, "{:.2%}"),
                    "ok" if output.passed else "FAILED",
                )
            )
    return table(rows, "") if len(rows) > 1 else []


def _number(number: float, form: str) -> str:
    return form.format(number) if math.isfinite(number) else ("-" if math.isnan(number) else str(number))


def _failures(document: VerifyReport) -> list[str]:
    # The verdict has the reason where nothing worse is to be said.
    lines, skipped = [], _skipped(document.cases, in_verdict=document.exit_code == INCOMPLETE)
    for case in document.cases:
        place = f"{case.size} of profile {case.profile}"
        if case in skipped:
            lines.append(clean(f"{place}: {case.skipped}"))
        lines += [clean(f"{place}, output {o.name}: {o.why}") for o in case.outputs if not o.passed]
    return lines


def _skipped(cases: Sequence[VerifyCase], in_verdict: bool) -> list[VerifyCase]:
    """Returns the cases that were skipped, without those for the reason that stands in the verdict."""
    alike: dict[str, list[VerifyCase]] = {}
    for case in cases:
        if case.skipped:
            alike.setdefault(case.skipped, []).append(case)
    verdict_case = next((case for case in cases if in_verdict and case.skipped and case.is_required), None)
    return [case for group in alike.values() if verdict_case not in group for case in group]


def _parsed_text(document: VerifyReport) -> str:
    """Says what was proven of the network that TensorRT parses, where that was asked."""
    findings = findings_text(leading(document.model.path), document.findings, verbose=True)
    return "\n".join(block for block in ("\n".join(proof_lines(document.parsed)), findings) if block)


def _bisect_text(bisect: Bisection | None) -> str:
    if bisect is None:
        return ""
    if bisect.tensor is None or bisect.node is None:
        return clean(f"bisect: {bisect.why}")
    node = bisect.node
    lines = [f"bisect: the first tensor that diverges is {bisect.tensor!r}, made by {node.op} {node.name}"]
    lines += [f"  {line}" for line in bisect.said]
    return "\n".join(clean(line) for line in lines)


def _advice(document: VerifyReport) -> str:
    """Says what to try where the inputs were random and few elements of the outputs are off."""
    failed = [case for case in document.cases if case.passed is False]
    shares = [output.mismatches for case in failed for output in case.outputs if not output.passed]
    # None is beyond the tolerance where it is the cosine that fails.
    if not 0 < max(shares, default=0) < _FEW or any(case.size == "inputs" for case in failed):
        return ""
    bisect = "" if document.bisect else "; --bisect finds the first tensor that diverges"
    return (
        "few elements are off, at inputs that were made up: --inputs FILE.npz compares at real ones;"
        f" --mismatches {10 ** math.ceil(math.log10(max(shares))):g} lets so many be off{bisect}"
    )


def verify_verdict(document: VerifyReport) -> str:
    """Returns in a line what `trtconv verify` found."""
    cases, worst = document.cases, document.worst
    what = {"engine": "the engine", "network": "the parsed network"}.get(document.ran, "the rewritten model")
    failed = sum(case.passed is False for case in cases)
    sizes = sum(bool(case.outputs) for case in cases)
    furthest = ""
    if worst is not None:
        furthest = (
            f"; largest relative error {_number(worst.max_rel, '{:.1e}')}"
            f" ({worst.output} at {worst.size} of profile {worst.profile})"
        )
    model = (document.against or document.model).path
    for fault in document.self_check or ():
        at = f"output {fault.output}: {fault.why}"
        return clean(f"NOT VERIFIED: the engine does not agree with itself ({fault.check}), {at}")
    if failed:
        return clean(
            f"NOT VERIFIED: {what} does not compute what {model} does, at {failed} of {len(cases)} sizes{furthest}"
        )
    refuted = [finding for finding in document.findings if finding.severity is Severity.ERROR]
    if refuted:
        return clean(f"NOT VERIFIED: the proof of what TensorRT parses fails ({refuted[0].code}){furthest}")
    if document.incomplete:
        return clean(f"NOT VERIFIED: not all was compared ({document.incomplete}){furthest}")
    verdict = f"{what} computes what {model} does, at {count(sizes, 'size')}{furthest}"
    return clean(f"verified: {verdict}" if document.ran == "engine" else f"{verdict}; the engine was not run")


def bench_text(document: BenchReport) -> str:
    """Renders what `trtconv bench` measured: a table, bars of latency against size, the ratios."""
    runtime = document.runtime
    head = [("runtime", f"{runtime.family} {runtime.version} on {runtime.gpu}, driver for CUDA {runtime.driver}")]
    for index, engine in enumerate(document.engines):
        name = letter(index)
        memory = byte_size(engine.activation_memory_bytes)
        loaded = byte_size(engine.weight_memory_bytes)
        head.append(
            (
                f"engine {name}",
                f"{engine.path}, {engine.layers} layers, {loaded} loaded,"
                f" {memory} to run{memory_by_profile(engine.profile_memory_bytes)}",
            )
        )
    blocks = [
        "\n".join(table(head, "")),
        "\n".join(_rows_table(document)),
        "\n".join(_bars(document)),
        "\n".join(_ratio_lines(document.ratios)),
        *load_blocks(document),
        clean(f"not all was timed: {document.incomplete}") if document.incomplete else "",
    ]
    return "\n\n".join(block for block in blocks if block)


def _rows_table(document: BenchReport) -> list[str]:
    several = len(document.engines) > 1
    rows: list[tuple[str, ...]] = [
        ("engine", "profile", "size", "shapes", "launch", "copies", "median us", "p99 us", "per second", "runs")
    ]
    for row in document.rows:
        shapes = shapes_text(row.shapes)
        numbers = [row.median_us, row.p99_us, row.throughput_per_s]
        rows.append(
            (
                letter(row.engine),
                str(row.profile),
                row.size,
                shapes,
                "graph" if row.graph else "plain",
                "with" if row.copies else "without",
                *("-" if n is None else f"{n:.1f}" for n in numbers),
                str(row.runs),
            )
        )
    return table(rows if several else [row[1:] for row in rows], "") if len(rows) > 1 else []


class RowTime(NamedTuple):
    """A row that was timed, and its median in microseconds."""

    row: BenchRow
    us: float


def quickest_way(document: BenchReport) -> list[RowTime]:
    """Returns the rows of the fastest way to run: as a graph where that goes, without copies."""
    timed = [RowTime(row, row.median_us) for row in document.rows if row.median_us is not None]
    graphs = any(timing.row.graph for timing in timed)
    return [timing for timing in timed if timing.row.graph is graphs and not timing.row.copies]


def _bars(document: BenchReport) -> list[str]:
    timed = sorted(quickest_way(document), key=lambda timing: (elements_of(timing.row.shapes), timing.row.profile))
    if len(timed) < 2:
        return []
    longest = max(us for _, us in timed)
    way = "CUDA graph" if timed[0].row.graph else "plain launches"
    cells = []
    for row, us in timed:
        shapes = shapes_text(row.shapes)
        name = f"{letter(row.engine)} " if len(document.engines) > 1 else ""
        bar = "#" * max(1, round(_BAR * us / longest))
        cells.append((f"{name}{shapes}", f"profile {row.profile}", f"{us:.1f} us", bar))
    return [f"median latency against size ({way}, without copies)", *table(cells, "  ")]


def _ratio_lines(ratios: Sequence[BenchRatio]) -> list[str]:
    if not ratios:
        return []
    rows = [("A / B", "profile", "size", "launch", "copies")]
    for ratio in ratios:
        launch, copies = "graph" if ratio.graph else "plain", "with" if ratio.copies else "without"
        rows.append((f"{ratio.ratio:.3f}", str(ratio.profile), ratio.size, launch, copies))
    return ["time of engine A over that of engine B, run in turns; below 1 A is faster", *table(rows, "  ")]
