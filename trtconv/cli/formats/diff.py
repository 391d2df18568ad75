"""`trtconv diff`: what is otherwise between two engines, by their reports and what was measured of them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from trtconv.cli.formats.engine import Timed, quickest_way
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
    found = (*_lost(a.report, b.report, report), *_grown(report, 1 + tolerance))
    return dataclasses.replace(report, regressions=found)


def _options(report: BuildReport) -> dict[str, str]:
    """Returns what decides what an engine is, as names and values."""
    plan, runtime = report.plan.to_json(), report.runtime
    found = {"model": str(report.model.sha256), "runtime": str(runtime), "gpu": str(runtime.gpu)}
    found["trtconv"] = report.trtconv
    left_out = ("options", "dims", "values")
    found |= {name: str(value) for name, value in plan.items() if name not in left_out}
    return found | {f"options.{name}": str(value) for name, value in report.plan.options.to_json().items()}


def _pairs(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[OptionPair, ...]:
    names = dict.fromkeys([*a, *b])
    return tuple(OptionPair(name, a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name))


def _profiles(a: BuildReport, b: BuildReport) -> ProfileChange:
    lost = (number for number, p in enumerate(a.profiles) if not any(_covers(q.inputs, p.inputs) for q in b.profiles))
    same = a.profile_records == b.profile_records
    return ProfileChange(tuple(a.dims), tuple(b.dims), same, tuple(lost))


def _covers(wide: Mapping[str, InputRange], narrow: Mapping[str, InputRange]) -> bool:
    """Whether a profile takes every shape that another one takes."""
    return wide.keys() == narrow.keys() and all(
        len(wide[name].min) == len(shapes.min)
        and all(w <= n for w, n in zip(wide[name].min, shapes.min, strict=True))
        and all(w >= n for w, n in zip(wide[name].max, shapes.max, strict=True))
        for name, shapes in narrow.items()
    )


def _rewrites(report: BuildReport) -> list[RewriteKey]:
    return [RewriteKey(each.pass_name, each.node, each.what) for each in report.edits]


def _findings(report: BuildReport) -> list[FindingKey]:
    return [FindingKey(each.severity.value, each.code, each.location.node) for each in report.findings]


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
    found = []
    for profile, layer in dict.fromkeys([*before, *after]):
        old, new = before.get((profile, layer)), after.get((profile, layer))
        if old != new:
            # Of one number they differ in the layout of tensors, which is then told too.
            full = old is not None and new is not None and old.tactic == new.tactic
            found.append(TacticChange(layer, profile, _tactic(old, full), _tactic(new, full)))
    return tuple(found)


def _tactic(tactic: Tactic | None, full: bool) -> str | None:
    if tactic is None or not full:
        return None if tactic is None else tactic.tactic
    layouts = (f"{each.dtype} {list(each.strides)}/{each.components or 1}" for each in tactic.tensors)
    return " ".join([f"{tactic.tactic} of {tactic.implementation}", *layouts])


def _numerics(a: PageSubject, b: PageSubject) -> tuple[ErrorPair, ...]:
    """Returns the largest relative error of each output that was measured of both in the same way."""
    before, after = _errors(a), _errors(b)
    return tuple(ErrorPair(*key, before[key], error) for key, error in after.items() if key in before)


def _errors(subject: PageSubject) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    verify, proof = subject.verify, subject.report.proof
    for case in verify.cases if verify is not None else ():
        for output in case.outputs:
            key = verify.ran if verify is not None else "", output.name
            # A result that is not finite is as far off as can be.
            error = float("inf") if math.isnan(output.max_rel) else output.max_rel
            found[key] = max(found.get(key, 0.0), error)
    if proof is not None and proof.max_relative_error is not None:
        found[f"proof of the {proof.of}", "all"] = proof.max_relative_error
    return found


def _latency(a: BenchReport | None, b: BenchReport | None) -> tuple[LatencyPair, ...]:
    if a is None or b is None:
        return ()
    before = _best(a)
    return tuple(
        LatencyPair(each.row.size, each.row.shapes, each.row.graph, before[key].us, each.us)
        for key, each in _best(b).items()
        if key in before
    )


def _best(bench: BenchReport) -> dict[tuple[bool, str], Timed]:
    """Returns the row of each shape: of several profiles that take it, that of the quickest."""
    rows = [each for each in quickest_way(bench) if each.row.engine == 0]
    ordered = sorted(rows, key=lambda each: -each.us)
    best = {(each.row.graph, str(sorted(each.row.shapes.items()))): each for each in ordered}
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
    for each in report.numerics:
        if each.b > each.a * allowed + ROUNDING:
            message = f"error of {each.output} ({each.of}) from {each.a:.1e} to {each.b:.1e}"
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
    blocks = [_block("options", [(_shown(p.name), _shown(p.a), _shown(p.b)) for p in report.options])]
    if not report.profiles.same:
        rows = [(str(i), _bounds(p), "-") for i, p in enumerate(report.profiles.a)]
        rows += [(str(i), "-", _bounds(p)) for i, p in enumerate(report.profiles.b)]
        blocks.append(_block("profiles", rows))
    for title, part in (("rewrites", report.rewrites), ("findings", report.findings)):
        lines = [*(f"  + {each}" for each in part.added), *(f"  - {each}" for each in part.removed)]
        blocks.append("\n".join([title, *map(clean, lines)]) if lines else "")
    layers = report.layers
    if layers is not None:
        rows = [("all", str(layers.a), str(layers.b))]
        blocks.append(_block("layers", [*rows, *((p.name, str(p.a), str(p.b)) for p in layers.precisions)]))
    blocks.append(_tactics_block(report.tactics or ()))
    errors = [(f"{e.output} ({e.of})", f"{e.a:.1e}", f"{e.b:.1e}") for e in report.numerics]
    blocks.append(_block("largest relative error", errors))
    blocks.append(_block("latency", [_latency_row(each) for each in report.latency], " us, A and B, B / A"))
    sizes = [(s.name.replace("_", " "), byte_size(s.a), byte_size(s.b)) for s in report.sizes]
    blocks.append(_block("sizes", sizes))
    return "\n\n".join([*(block for block in blocks if block), *_verdict(report)])


def _tactics_block(tactics: Sequence[TacticChange]) -> str:
    """Lists layers with another tactic, the first of them where there are many."""
    rows = [(f"{t.layer} (profile {t.profile})", _shown(t.a), _shown(t.b)) for t in tactics[:_LISTED]]
    block = _block("tactics", [(_shown(name), *pair) for name, *pair in rows])
    more = len(tactics) - len(rows)
    return f"{block}\n  ... and {count(more, 'layer')} more (--format json)" if more > 0 else block


def _latency_row(each: LatencyPair) -> tuple[str, ...]:
    ratio = f"{each.b / each.a:.3f}" if each.a else "-"
    return f"{each.size} {shapes_text(each.shapes)}", f"{each.a:.1f}", f"{each.b:.1f}", ratio


def _shown(value: str | None) -> str:
    text = "-" if value is None else value
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounds(dims: Bounds) -> str:
    return ", ".join(f"{name}={bound}" for name, bound in dims.items()) or "fixed"


def _block(title: str, rows: Sequence[Sequence[str]], more: str = "") -> str:
    shown = [tuple(clean(cell) for cell in row) for row in rows]
    return "\n".join([f"{title}{more or ', A and B'}", *table(shown, "  ")]) if shown else ""


def _verdict(report: DiffReport) -> Iterator[str]:
    found = report.regressions
    allowed = f"beyond {report.tolerance:.1%}"
    if not found:
        yield f"no regression {allowed}"
        return
    yield "\n".join(["regressions", *(clean(f"  {each.what}: {each.message}") for each in found)])
    yield f"{count(len(found), 'regression')} {allowed}"
