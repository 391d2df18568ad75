"""What a person reads on a terminal. The fixed parts are ASCII; names from the model are escaped where needed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trtconv.cli.formats.cuts import cut_blocks
from trtconv.cli.formats.mix import mix_text
from trtconv.cli.formats.proof import proof_lines
from trtconv.cli.formats.wording import byte_size, count, memory_lines, shape_text, table
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import CheckReport, FailedRun, ParserVerdict
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.rewrite import Comparison, Edit, RewriteReport, Skip
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.findings import Finding, Ignored, Location, summarize, worst
from trtconv.core.runs_on import runs_on
from trtconv.core.text import clean, indented, leading

LISTED = 10
"""How many edits or skips of one pass are listed before the rest is only counted."""
MANY, SOME = 10, 3
"""Of more findings of one rule than the first number, only the second is listed."""


def check_text(report: CheckReport, verbose: bool = False) -> str:
    """Renders a check.

    Args:
        report: Findings in any order.
        verbose: Whether each of them is listed, however many there are of one rule.

    Returns:
        Findings by node, worst first; then the parser's verdict; the last line is the summary.
    """
    path = leading(report.model.path)
    blocks = [findings_text(path, report.findings, verbose)] if report.findings else []
    if report.ignored:
        blocks.append("\n".join(ignored_lines(report.ignored)))
    if report.unbounded:
        blocks.append(clean(f"no sizes checked: no bounds were given for {', '.join(report.unbounded)} (--dim)"))
    if report.partition is not None:
        blocks += cut_blocks(report.partition, verbose)
    memory = memory_lines(report.memory)
    lines = [*memory, _parser_line(report.parser), *proof_lines(report.proof), check_summary(report)]
    return "\n\n".join([*blocks, "\n".join(lines)])


def check_summary(report: CheckReport) -> str:
    """Returns the outcome of a check in one line."""
    no_cut = report.partition is not None and bool(report.partition.why)
    parts = ["no cut"] * no_cut + [_summary(report.findings)] * (not no_cut or bool(report.findings))
    return f"{leading(report.model.path)}: {', '.join(parts)} for {report.target}"


def run_summary(report: CheckReport) -> str:
    """Returns the outcome of a check in one line that stands by itself: it says what was not asked, too."""
    notes = ["no sizes checked"] if report.unbounded else []
    notes += ["by rules alone"] if report.parser.accepted is None else []
    notes += [clean(report.partition.why)] if report.partition is not None and report.partition.why else []
    return "; ".join([check_summary(report), *notes])


def ignored_lines(ignored: Sequence[Ignored]) -> list[str]:
    """Says which findings do not count, and why."""
    counts = Counter((entry.finding.code, entry.finding.name, entry.reason) for entry in ignored)
    lines = []
    for (code, name, reason), number in counts.items():
        lines.append(clean(f"ignored: {code} {name}" + (f" ({number})" if number > 1 else "")))
        lines += indented(f"because: {reason}", "    ") if reason else []
    return lines


def findings_text(path: str, findings: Iterable[Finding], verbose: bool = True) -> str:
    """Renders findings by node, worst first, then in the order of the graph.

    Args:
        path: The model's file as `leading` shows it, put before every place; "" for none.
        findings: In any order.
        verbose: Whether each is listed; else, of many of one rule, the first of the graph, and how many more there are.
    """
    entries, rest = (list(findings), Counter[str]()) if verbose else _first_of_many(findings)
    groups: dict[Location, list[Finding]] = {}
    for finding in entries:
        groups.setdefault(_node(finding.location), []).append(finding)
    blocks = []
    for node, members in sorted(groups.items(), key=_group_order):
        source = f" ({node.source})" if node.source else ""
        lines = [f"{path}: {clean(str(node) + source)}" if path else clean(f"at {node}{source}")]
        for finding in sorted(members, key=_finding_order):
            lines += _finding_lines(finding)
        blocks.append("\n".join(lines))
    if rest:
        blocks.append("\n".join(clean(f"... and {number} more of {rule} (--verbose)") for rule, number in rest.items()))
    return "\n\n".join(blocks)


def _first_of_many(findings: Iterable[Finding]) -> tuple[list[Finding], Counter[str]]:
    """Returns the findings to list, and how many of which rule are left out."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: _group_order((_node(finding.location), [finding]))):
        by_rule.setdefault(f"{finding.severity.value} {finding.code} {finding.name}", []).append(finding)
    entries: list[Finding] = []
    rest: Counter[str] = Counter()
    for rule, members in by_rule.items():
        some = members[:SOME] if len(members) > MANY else members
        entries += some
        if len(some) < len(members):
            rest[rule] = len(members) - len(some)
    return entries, rest


def _node(place: Location) -> Location:
    """The place without its tensor: what findings are grouped by."""
    if place.index is None and not place.node:
        return place
    return dataclasses.replace(place, tensor="")


def _group_order(group: tuple[Location, list[Finding]]) -> tuple[object, ...]:
    node, members = group
    severity = worst(members)
    rank = severity.rank if severity else 0
    return (-rank, node.graph, -1 if node.index is None else node.index, node.node, node.tensor)


def _finding_order(finding: Finding) -> tuple[object, ...]:
    return (-finding.severity.rank, finding.code, finding.location.tensor, finding.message)


def _finding_lines(finding: Finding) -> list[str]:
    tensor = finding.location.tensor if finding.location.index is not None or finding.location.node else ""
    at = f" (tensor {tensor})" if tensor else ""
    first, *rest = indented(
        finding.message, "    ", f"  {finding.severity.value} {clean(f'{finding.code} {finding.name}')}: "
    )
    lines = [first + clean(at), *rest]
    if finding.fix:
        lines += indented(f"fix: {finding.fix}", "    ")
    if finding.mended_by:
        lines.append(clean(f"    mended by trtconv build and rewrite ({finding.mended_by})"))
    return lines


def _summary(findings: Sequence[Finding]) -> str:
    counts = summarize(findings)
    parts = [count(counts[key], key[:-1]) for key in ("errors", "warnings", "infos") if counts[key]]
    return ", ".join(parts) or "nothing to report"


def _parser_line(parser: ParserVerdict) -> str:
    if parser.accepted is None:
        why = parser.why or "that TensorRT is not installed here"
        return clean(f"parser: not asked, by rules alone: {why}")
    builds = {None: "", True: " and builds it", False: " and does not build it"}[parser.built]
    name = clean(f"{parser.runtime} {parser.version}")
    return f"parser: {name} {'accepts' if parser.accepted else 'refuses'} the model{builds}"


def build_text(report: BuildReport, verbose: bool = False) -> str:
    """Renders a build; the last line says what became of it.

    Args:
        report: What happened.
        verbose: Whether each finding is listed, however many there are of one rule.
    """
    signed = clean(f"signed by key {report.signed_by}") if report.signed_by else ""
    if report.up_to_date:
        return "\n".join(line for line in (signed, _verdict(report)) if line)
    mended = [] if verbose else [finding for finding in report.findings if finding.mended_by]
    findings = [finding for finding in report.findings if verbose or not finding.mended_by]
    blocks = [
        "\n".join(_head(report)),
        *("\n".join(lines) for lines in _profiles(report.plan.profiles)),
        "\n".join(clean(note) for note in report.notes),
        _changes("edit", report.edits),
        _changes("skip", report.skipped),
        findings_text(leading(report.model.path), findings, verbose),
        "\n".join(_mended_lines(mended)),
        "\n".join(ignored_lines(report.ignored)),
        mix_text(report.mix) if report.mix else "",
        "\n".join([*_io(report.io), *([clean(f"  {report.images}")] if report.images else [])]),
        _seconds(report.seconds),
        "\n".join(proof_lines(report.proof)),
        _where(report),
        signed,
        _verdict(report) + _again(report),
    ]
    return "\n\n".join(block for block in blocks if block)


def _mended_lines(findings: Sequence[Finding]) -> list[str]:
    """Says in a line for each rule what was found and mended: the edits say how."""
    counts = Counter((f.code, f.name, f.mended_by) for f in findings)
    lines = [clean(f"  {code} {name} ({number}), by {by}") for (code, name, by), number in counts.items()]
    return ["mended (each by itself: --verbose)", *lines] if lines else []


def _head(report: BuildReport) -> list[str]:
    runtime = report.runtime
    gpu = f"on {runtime.gpu}" if runtime.gpu else "without a GPU"
    rewrite = "" if report.plan.rewrite else ", not rewritten"
    rows = [
        ("model", report.model.path),
        ("runtime", f"{runtime} {gpu}"),
        ("target", f"{report.plan.target}, precision {report.plan.precision}{rewrite}"),
    ]
    options = report.plan.options.to_json()
    if options:
        pairs = (f"{name.replace('_', '-')} {_plain(value)}" for name, value in options.items())
        rows.append(("options", ", ".join(pairs)))
    return table(rows, "")


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _profiles(profiles: Sequence[ShapeProfile]) -> list[list[str]]:
    """One table a profile. Inputs that are the same in all of them are shown with each: the tables stand alone."""
    blocks = []
    for index, profile in enumerate(profiles):
        title = "profile" if len(profiles) == 1 else f"profile {index}"
        rows = [("input", "min", "opt", "max")]
        for name, shapes in profile.inputs.items():
            rows.append((clean(name), shape_text(shapes.min), shape_text(shapes.opt), shape_text(shapes.max)))
        blocks.append([title, *table(rows, "  ")])
    return blocks


_CHANGED = {"edit": "rewritten", "skip": "left alone"}


def _changes(noun: str, changes: Sequence[Edit] | Sequence[Skip]) -> str:
    """Lists edits or skips by pass, the first `LISTED` of each."""
    if not changes:
        return ""
    by_pass: dict[str, list[str]] = {}
    for change in changes:
        what = change.what if isinstance(change, Edit) else change.reason
        by_pass.setdefault(change.pass_name, []).append(f"{change.node or '(unnamed)'}: {what}")
    lines = [f"{_CHANGED[noun]}, {count(len(changes), noun)}"]
    for name, members in by_pass.items():
        lines.append(clean(f"  {name} ({len(members)})"))
        lines += [clean(f"    {member}") for member in members[:LISTED]]
        if len(members) > LISTED:
            lines.append(f"    ... and {len(members) - LISTED} more")
    return "\n".join(lines)


def _io(tensors: Sequence[TensorInfo]) -> list[str]:
    rows = [(t.kind, clean(t.name), t.type_text, shape_text(t.shape)) for t in tensors]
    return ["engine", *table(rows, "  ")] if rows else []


def _seconds(seconds: Mapping[str, float]) -> str:
    stages = ", ".join(f"{stage} {value:.2f}" for stage, value in seconds.items())
    return f"seconds: {stages}" if stages else ""


_REBUILD = "; --force builds it again"


def _verdict(report: BuildReport) -> str:
    if report.engine is None:
        return f"{leading(report.model.path)}: no engine, {_summary(report.findings)}"
    engine = f"{leading(report.engine.path)} ({byte_size(report.engine.bytes)})"
    if report.up_to_date:
        return f"{engine} is up to date{_REBUILD}"
    total = "" if not report.seconds else f" in {report.seconds.get('total', sum(report.seconds.values())):.1f} s"
    summary = f"; {_summary(report.findings)}" if report.findings else ""
    return f"built {engine}{total}{summary}"


def _again(report: BuildReport) -> str:
    return clean(f"; built again, since {report.rebuilt}") if report.rebuilt and report.engine is not None else ""


def _where(report: BuildReport) -> str:
    """Says where the engine runs, which is the first thing that its user has to know."""
    if report.engine is None:
        return ""
    requirements = runs_on(report.runtime, report.plan.options)
    return "\n".join(table([("runs with", requirements.loader), ("runs on", requirements.cards)], ""))


def runs_text(results: Sequence[CheckReport | BuildReport | FailedRun], verbose: bool = False) -> str:
    """Renders several checks or builds: what was found, then a line for each of them, then the counts."""
    runs = Counter(_place(result)[0] for result in results)
    details = []
    for result in results:
        path, target = _place(result)
        details += _details(result, leading(path) + (f" for {clean(target)}" if runs[path] > 1 else ""), verbose)
    lines = []
    for result in results:
        lines.append(run_row(result))
        if isinstance(result, FailedRun) and result.hint:
            lines += indented(f"hint: {result.hint}", "        ")
    good = sum(result.exit_code == 0 for result in results)
    return "\n\n".join([*details, "\n".join([*lines, f"{good} of {count(len(results), 'run')} ok"])])


def _place(result: CheckReport | BuildReport | FailedRun) -> tuple[str, str]:
    """Returns a run's model and target."""
    if isinstance(result, FailedRun):
        return result.model, result.target
    return result.model.path, str(result.target if isinstance(result, CheckReport) else result.plan.target)


def _details(result: CheckReport | BuildReport | FailedRun, path: str, verbose: bool) -> list[str]:
    if isinstance(result, BuildReport) and result.up_to_date:
        return []
    # What build mends may still have failed the run; an info never does.
    own = [f for f in result.findings if verbose or not f.mended_by or (result.exit_code and f.severity.rank)]
    blocks = [findings_text(path, own, verbose)] if own else []
    ignored = [] if isinstance(result, FailedRun) else ignored_lines(result.ignored)
    return [*blocks, *(["\n".join([path, *(f"  {line}" for line in ignored)])] if ignored else [])]


def run_row(result: CheckReport | BuildReport | FailedRun) -> str:
    """Returns what came of one of several runs, in a line."""
    mark = "ok      " if not result.exit_code else "cannot  " if result.exit_code == 4 else "FAILED  "
    if isinstance(result, FailedRun):
        # Most messages begin with the path themselves.
        first, *rest = result.message.splitlines() or [""]
        # What a colon announces is the rest.
        listed = ", ".join(" ".join(line.split()) for line in rest)
        whole = f"{first} {listed}" if first.endswith(":") else first
        message = whole.removeprefix(result.model).removeprefix(":").strip()
        where = f" (on {result.worker})" if result.worker else ""
        return f"{mark}{leading(result.model)} for {clean(f'{result.target}: {message}{where}')}"
    if isinstance(result, CheckReport):
        return mark + run_summary(result)
    where = clean(f", on {result.worker}") if result.worker else ""
    verdict = _verdict(result).removesuffix(_REBUILD)
    return f"{mark}{verdict} for {result.plan.target}{_proof_words(result.proof)}{where}{_again(result)}"


def _proof_words(proof: BuildProof | None) -> str:
    """Says in a row what the proof came to; nothing where there was none."""
    if proof is None:
        return ""
    if proof.agrees is None:
        return ", not proven"
    return (", proven in part" if proof.missing else ", proven") if proof.agrees else ", proven wrong"


def rewrite_text(report: RewriteReport) -> str:
    """Renders a rewrite; the last line says what was written."""
    edits = count(len(report.edits), "edit") if report.edits else "no edits"
    if report.output:
        verdict = f"wrote {clean(report.output.path)} ({byte_size(report.output.bytes)}): {edits}"
    else:
        verdict = f"wrote nothing: the rewritten model does not compute what {clean(report.model.path)} does"
    blocks = [_changes("edit", report.edits), _changes("skip", report.skipped), _verified(report.verified), verdict]
    return "\n\n".join(block for block in blocks if block)


def _verified(verified: Comparison) -> str:
    largest = verified.max_relative_error
    if largest is None:
        return clean(f"not compared: {verified.why or 'no reason given'}")
    text = f"compared on ONNX Runtime: largest relative error {largest:.2g}"
    if verified.alone is None:
        return text
    at = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in verified.inputs.items())
    alone = count(len(verified.alone), "other size")
    return clean(f"{text} at {at}, which was baked into the original; the rewritten model also runs at {alone}")
