"""`trtconv diff`: what is otherwise between two engines, by their reports and what was measured of them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from trtconv.cli.formats.engine import RowTime, quickest_way
from trtconv.cli.formats.page.gather import PageSubject
from trtconv.cli.formats.wording import byte_size, count, shapes_text, table
from trtconv.core.dims import InputRange
from trtconv.core.documents.bench import BenchReport
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.diff import (
    DiffReport,
    ErrorPair,
    FindingChange,
    FindingKey,
    LatencyPair,
    LayerChange,
    NumberPair,
    OptionPair,
    ProfileChange,
    Regression,
    RewriteChange,
    RewriteKey,
    TacticChange,
)
from trtconv.core.documents.inspect import EngineInspection
from trtconv.core.documents.tactics import Tactic
from trtconv.core.findings import Severity
from trtconv.core.requests.base import Bounds
from trtconv.core.text import clean

ROUNDING = 1e-6
"""A relative error that grows by less grows by nothing: float32 sums in another order differ by as much."""

_LISTED = 20
"""Of more layers with another tactic only so many are listed."""

K = TypeVar("K", RewriteKey, FindingKey)


def compare(a: PageSubject, b: PageSubject, tolerance: float) -> DiffReport:
    """Compares two engines.

    Args:
        a: The engine as it was.
        b: The engine as it is.
        tolerance: By what part of A's value time, size, memory and errors may grow.
    """
    report = DiffReport(
        a=str(a.path),
        b=str(b.path),
        tolerance=tolerance,
        options=_pairs(_options(a.report), _options(b.report)),
        profiles=_profiles(a.report, b.report),
        rewrites=RewriteChange(*_changed(_rewrites(a.report), _rewrites(b.report))),
        findings=FindingChange(*_changed(_findings(a.report), _findings(b.report))),
        layers=_layers(a.inspect, b.inspect),
        tactics=_tactics(a.report, b.report),
        numerics=_numerics(a, b),
        latency=_latency(a.bench, b.bench),
        sizes=_sizes(a, b),
    )
    regressions = (*_lost(a.report, b.report, report), *_grown(report, 1 + tolerance))
    return dataclasses.replace(report, regressions=regressions)


def _options(report: BuildReport) -> dict[str, str]:
    """Returns what decides what an engine is, as names and values."""
    plan, runtime = report.plan.to_json(), report.runtime
    options = {"model": str(report.model.sha256), "runtime": str(runtime), "gpu": str(runtime.gpu)}
    options["trtconv"] = report.trtconv
    left_out = ("options", "dims", "values")
    options |= {name: str(value) for name, value in plan.items() if name not in left_out}
    return options | {f"options.{name}": str(value) for name, value in report.plan.options.to_json().items()}


def _pairs(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[OptionPair, ...]:
    names = dict.fromkeys([*a, *b])
    return tuple(OptionPair(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name))


def _profiles(a: BuildReport, b: BuildReport) -> ProfileChange:
    losses = (number for number, p in enumerate(a.profiles) if not any(_covers(q.inputs, p.inputs) for q in b.profiles))
    same = a.profile_records == b.profile_records
    return ProfileChange(tuple(a.dims), tuple(b.dims), same, tuple(losses))


def _covers(wide: Mapping[str, InputRange], narrow: Mapping[str, InputRange]) -> bool:
    """Whether a profile takes every shape that another one takes."""
    return wide.keys() == narrow.keys() and all(
        len(wide[name].min) == len(shapes.min)
        and all(w <= n for w, n in zip(wide[name].min, shapes.min, strict=True))
        and all(w >= n for w, n in zip(wide[name].max, shapes.max, strict=True))
        for name, shapes in narrow.items()
    )


def _rewrites(report: BuildReport) -> list[RewriteKey]:
    return [RewriteKey(edit.pass_name, edit.node, edit.what) for edit in report.edits]


def _findings(report: BuildReport) -> list[FindingKey]:
    return [FindingKey(finding.severity.value, finding.code, finding.location.node) for finding in report.findings]


def _changed(a: Sequence[K], b: Sequence[K]) -> tuple[tuple[K, ...], tuple[K, ...]]:
    """Returns what was added and what was removed."""
    before, after = Counter(a), Counter(b)
    return tuple((after - before).elements()), tuple((before - after).elements())


def _layers(a: EngineInspection | None, b: EngineInspection | None) -> LayerChange | None:
    """Returns how many layers there are in each precision; None where one of the engines was not inspected."""
    if a is None or b is None or not a.layers or not b.layers:
        return None
    before, after = (Counter(layer.precision or "unknown" for layer in layers) for layers in (a.layers, b.layers))
    names = sorted({*before, *after})
    precisions = tuple(NumberPair(name, before[name], after[name]) for name in names)
    return LayerChange(len(a.layers), len(b.layers), precisions)


def _tactics(a: BuildReport, b: BuildReport) -> tuple[TacticChange, ...] | None:
    """Returns the layers that have another tactic; None where a report does not tell of them."""
    if a.engine is None or b.engine is None or a.engine.tactics is None or b.engine.tactics is None:
        return None
    before, after = ({(t.profile, t.layer): t for t in engine.tactics or ()} for engine in (a.engine, b.engine))
    changes = []
    for profile, layer in dict.fromkeys([*before, *after]):
        old, new = before.get((profile, layer)), after.get((profile, layer))
        if old != new:
            # Of one number they differ in the layout of tensors, which is then told too.
            full = old is not None and new is not None and old.tactic == new.tactic
            changes.append(TacticChange(layer, profile, _tactic(old, full), _tactic(new, full)))
    return tuple(changes)


def _tactic(tactic: Tactic | None, full: bool) -> str | None:
    if tactic is None or not full:
        return None if tactic is None else tactic.tactic
    layouts = (f"{tensor.dtype} {list(tensor.strides)}/{tensor.components or 1}" for tensor in tactic.tensors)
    return " ".join([f"{tactic.tactic} of {tactic.implementation}", *layouts])


def _numerics(a: PageSubject, b: PageSubject) -> tuple[ErrorPair, ...]:
    """Returns the largest relative error of each output that was measured of both in the same way."""
    before, after = _errors(a), _errors(b)
    return tuple(ErrorPair(*key, before[key], error) for key, error in after.items() if key in before)


def _errors(subject: PageSubject) -> dict[tuple[str, str], float]:
    errors: dict[tuple[str, str], float] = {}
    verify, proof = subject.verify, subject.report.proof
    for case in verify.cases if verify is not None else ():
        for output in case.outputs:
            key = verify.ran if verify is not None else "", output.name
            # A result that is not finite is as far off as can be.
            error = float("inf") if math.isnan(output.max_rel) else output.max_rel
            errors[key] = max(errors.get(key, 0.0), error)
    if proof is not None and proof.max_relative_error is not None:
        errors[f"proof of the {proof.of}", "all"] = proof.max_relative_error
    return errors


def _latency(a: BenchReport | None, b: BenchReport | None) -> tuple[LatencyPair, ...]:
    if a is None or b is None:
        return ()
    before = _best(a)
    return tuple(
        LatencyPair(timing.row.size, timing.row.shapes, timing.row.graph, before[key].us, timing.us)
        for key, timing in _best(b).items()
        if key in before
    )


def _best(bench: BenchReport) -> dict[tuple[bool, str], RowTime]:
    """Returns the row of each shape: of several profiles that take it, that of the quickest."""
    rows = [timing for timing in quickest_way(bench) if timing.row.engine == 0]
    ordered = sorted(rows, key=lambda timing: -timing.us)
    best = {(timing.row.graph, str(sorted(timing.row.shapes.items()))): timing for timing in ordered}
    return dict(reversed(best.items()))


def _sizes(a: PageSubject, b: PageSubject) -> tuple[NumberPair, ...]:
    """Returns bytes of the engine's file and of what it takes, where both are known."""
    before, after = _bytes(a), _bytes(b)
    return tuple(NumberPair(name, before[name], after[name]) for name in before if name in after)


def _bytes(subject: PageSubject) -> dict[str, int]:
    engine, bench = subject.report.engine, subject.bench
    timed = bench.engines[0] if bench is not None and bench.engines else None
    sizes = {
        "engine": None if engine is None else engine.bytes,
        "weight_memory": None if timed is None else timed.weight_memory_bytes,
        "activation_memory": None if timed is None else timed.activation_memory_bytes,
    }
    return {name: size for name, size in sizes.items() if size is not None}


def _lost(a: BuildReport, b: BuildReport, report: DiffReport) -> Iterator[Regression]:
    """Yields what B does not do any more."""
    if a.engine is not None and b.engine is None:
        yield Regression("engine", "no engine was built")
    for finding in report.findings.added:
        if finding.severity == Severity.ERROR.value:
            yield Regression("findings", f"new error {finding.code} at {finding.node}")
    for number in report.profiles.lost:
        yield Regression("profiles", f"no profile takes all sizes of A's profile {number}")
    if a.proof is not None and a.proof.agrees and b.proof is not None and b.proof.agrees is False:
        yield Regression("proof", "the proof does not agree any more")


def _grown(report: DiffReport, allowed: float) -> Iterator[Regression]:
    """Yields errors, times and sizes of B that are more than `allowed` times those of A."""
    for error in report.numerics:
        if error.b > error.a * allowed + ROUNDING:
            message = f"error of {error.output} ({error.of}) from {error.a:.1e} to {error.b:.1e}"
            yield Regression("numerics", message)
    for timed in report.latency:
        if timed.b > timed.a * allowed:
            yield Regression("latency", f"{shapes_text(timed.shapes)} from {timed.a:.1f} to {timed.b:.1f} us")
    for size in report.sizes:
        if size.b > size.a * allowed:
            name = size.name.replace("_", " ")
            yield Regression("sizes", f"{name} from {byte_size(size.a)} to {byte_size(size.b)}")


def diff_text(report: DiffReport) -> str:
    """Renders what `trtconv diff` found; the last line is the verdict."""
    blocks = [_block("options", [(_shortened(p.name), _shortened(p.a), _shortened(p.b)) for p in report.options])]
    if not report.profiles.same:
        rows = [(str(i), _bounds(p), "-") for i, p in enumerate(report.profiles.a)]
        rows += [(str(i), "-", _bounds(p)) for i, p in enumerate(report.profiles.b)]
        blocks.append(_block("profiles", rows))
    for title, part in (("rewrites", report.rewrites), ("findings", report.findings)):
        lines = [*(f"  + {key}" for key in part.added), *(f"  - {key}" for key in part.removed)]
        blocks.append("\n".join([title, *map(clean, lines)]) if lines else "")
    layers = report.layers
    if layers is not None:
        rows = [("all", str(layers.a), str(layers.b))]
        blocks.append(_block("layers", [*rows, *((p.name, str(p.a), str(p.b)) for p in layers.precisions)]))
    blocks.append(_tactics_block(report.tactics or ()))
    errors = [(f"{e.output} ({e.of})", f"{e.a:.1e}", f"{e.b:.1e}") for e in report.numerics]
    blocks.append(_block("largest relative error", errors))
    blocks.append(_block("latency", [_latency_row(pair) for pair in report.latency], " us, A and B, B / A"))
    sizes = [(s.name.replace("_", " "), byte_size(s.a), byte_size(s.b)) for s in report.sizes]
    blocks.append(_block("sizes", sizes))
    return "\n\n".join([*(block for block in blocks if block), *_verdict(report)])


def _tactics_block(tactics: Sequence[TacticChange]) -> str:
    """Lists layers with another tactic, the first of them where there are many."""
    rows = [(f"{t.layer} (profile {t.profile})", _shortened(t.a), _shortened(t.b)) for t in tactics[:_LISTED]]
    block = _block("tactics", [(_shortened(name), *pair) for name, *pair in rows])
    more = len(tactics) - len(rows)
    return f"{block}\n  ... and {count(more, 'layer')} more (--format json)" if more > 0 else block


def _latency_row(pair: LatencyPair) -> tuple[str, ...]:
    ratio = f"{pair.b / pair.a:.3f}" if pair.a else "-"
    return f"{pair.size} {shapes_text(pair.shapes)}", f"{pair.a:.1f}", f"{pair.b:.1f}", ratio


def _shortened(value: str | None) -> str:
    text = "-" if value is None else value
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounds(dims: Bounds) -> str:
    return ", ".join(f"{name}={bound}" for name, bound in dims.items()) or "fixed"


def _block(title: str, rows: Sequence[Sequence[str]], more: str = "") -> str:
    cells = [tuple(clean(cell) for cell in row) for row in rows]
    return "\n".join([f"{title}{more or ', A and B'}", *table(cells, "  ")]) if cells else ""


def _verdict(report: DiffReport) -> Iterator[str]:
    regressions = report.regressions
    allowed = f"beyond {report.tolerance:.1%}"
    if not regressions:
        yield f"no regression {allowed}"
        return
    yield "\n".join(
        ["regressions", *(clean(f"  {regression.what}: {regression.message}") for regression in regressions)]
    )
    yield f"{count(len(regressions), 'regression')} {allowed}"
