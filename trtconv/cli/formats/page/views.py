"""What the templates show of an engine, section by section, as plain values and finished drawings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trtconv.cli.formats.page.charts import share_bar, sizes_chart
from trtconv.cli.formats.page.gather import PageSubject
from trtconv.cli.formats.page.measured import PICKS, compared, latency, layers, memory, numerics
from trtconv.cli.formats.page.network import network
from trtconv.cli.formats.page.quantization import quantization
from trtconv.cli.formats.page.rewrites import rewrites
from trtconv.cli.formats.wording import byte_size, count, dims_text, shape_text
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.lattice import LatticeRecord
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.documents.verify import VerifyReport
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen

_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_MOST_FINDINGS = 200


def view(subject: PageSubject, gpu: str | None = None) -> dict[str, object]:
    """Returns everything that the page of an engine shows; `gpu` is what times are estimated for."""
    return {
        **summarized(subject),
        "sizes": _sizes(subject.report),
        "rewrites": rewrites(subject),
        "numerics": numerics(subject.verify),
        "compared": compared(subject.report.proof),
        "quantization": quantization(subject.quantize),
        "network": network(subject.report, gpu),
        "latency": latency(subject.bench),
        "layers": layers(subject.inspect),
        "memory": memory(subject),
        "stages": _stages(subject.report.seconds),
        "said": [*subject.report.notes, *subject.notes],
    }


def model_name(subject: PageSubject) -> str:
    """Returns the name of the model's file."""
    return Path(subject.report.model.path).name


def summarized(subject: PageSubject) -> dict[str, object]:
    """Returns what the head of a page, and a folder's matrix, show of an engine."""
    report = subject.report
    findings = sorted(report.findings, key=lambda finding: _ORDER.index(finding.severity))
    timed = latency(subject.bench)
    return {
        "model": model_name(subject),
        "engine_name": "" if report.engine is None else Path(report.engine.path).name,
        "target": str(report.plan.target),
        "precision": report.plan.precision,
        "runtime": report.runtime,
        "verdict": verdict(report),
        "proof": proof_of(subject),
        "findings": [finding.to_json() for finding in findings[:_MOST_FINDINGS]],
        "more_findings": max(0, len(findings) - _MOST_FINDINGS),
        "counts": {level.value: sum(finding.severity is level for finding in findings) for level in _ORDER},
        "ignored": report.ignored,
        "size": "-" if report.engine is None else byte_size(report.engine.bytes),
        "headline": None if timed is None else timed.headline,
        "headline_place": None if timed is None else timed.headline_place,
        "seconds": sum(report.seconds.values()),
        "profiles": _profiles(report),
        "io": [
            {**tensor.to_json(), "dtype": tensor.type_text, "shape": _shape(tensor, report)} for tensor in report.io
        ],
        "notes": subject.notes,
        "identity": list(_identity(report)),
        "since": list(_since(report)),
    }


@frozen
class Badge:
    """A verdict on the page.

    Args:
        kind: "ok", "bad" or "warn".
        text: In a word or two.
        note: In a sentence.
        rows: Details.
    """

    kind: str
    text: str
    note: str
    rows: tuple[tuple[str, str], ...] = ()


def verdict(report: BuildReport) -> Badge:
    """Returns what became of a build."""
    if report.exit_code:
        return Badge("bad", "Failed", "a finding is as bad as was asked to fail")
    if report.engine is None:
        return Badge("bad", "Not built", "no engine was made")
    note = "kept: model, plan and runtime are as they were" if report.up_to_date else "by TensorRT's own parser"
    note += f"; built again, since {report.rebuilt}" if report.rebuilt else ""
    return Badge("ok", "Built", note)


def proof_of(subject: PageSubject) -> Badge:
    """Returns what is proven of an engine: what `verify` found of it, and what the build's own proof did."""
    build = _build_badge(subject.report)
    if subject.verify is None:
        return build or Badge("warn", "Not proven", "trtconv verify compares it with its model")
    run = _verified(subject.verify)
    if build is None:
        return run
    if subject.verify.ran == "engine" and run.kind != "warn":
        return dataclasses.replace(run, rows=build.rows)
    # Without a GPU verify shows no more than the build did, and takes nothing of it away.
    kind = max(build.kind, run.kind if not subject.verify.verified else build.kind, key=_KINDS.index)
    note = f"by the build: {build.note}; by verify: {run.note}"
    return Badge(kind, f"{build.text}, {run.text.lower()}", note, build.rows)


def is_proven(subject: PageSubject) -> bool:
    """Whether all of an engine was shown, by its build or by `verify`, and nothing speaks against it."""
    badges = _build_badge(subject.report), None if subject.verify is None else _verified(subject.verify)
    kinds = {badge.kind for badge in badges if badge is not None}
    return "ok" in kinds and "bad" not in kinds


_KINDS = ("ok", "warn", "bad")


def _build_badge(report: BuildReport) -> Badge | None:
    """Returns what a build proved: by its proof, else by its cast; None: nothing."""
    proof, cast = report.proof, report.cast
    if proof is not None and proof.agrees is not None:
        return _proven(proof)
    error = None if cast is None else cast.verified.max_relative_error
    if error is not None:
        return Badge("warn", "Partly", f"the cast model is off by {error:.1e}; the engine was not run")
    return None


def _error(error: float | None) -> str:
    if error is None:
        return ""
    return f", largest relative error {error:.1e}" if error else ", without any difference"


def _verified(verify: VerifyReport) -> Badge:
    error = _error(verify.worst.max_rel if verify.worst else None)
    sizes = count(sum(bool(case.outputs) for case in verify.cases), "size")
    if not verify.verified:
        kind = "bad" if any(case.passed is False for case in verify.cases) else "warn"
        return Badge(kind, "Not verified", f"{verify.incomplete or 'beyond the tolerance'}{error}")
    if verify.ran == "network":
        note = f"what TensorRT parsed agrees with the model at {sizes}{error}; the engine was not run"
        return Badge("warn", "Network verified", note)
    if verify.ran != "engine":
        note = f"the model as rewritten agrees at {sizes}{error}; the engine was not run"
        return Badge("warn", "Rewrite verified", note)
    return Badge("ok", "Verified", f"the engine was run at {sizes}{error}")


def _proven(proof: BuildProof) -> Badge:
    what = {"engine": "the engine", "network": "TensorRT's network", "rewritten": "the model as rewritten"}
    rows = (
        *((f"{layer.layer} ({layer.kind})", layer.reason) for layer in proof.unproven[:50]),
        *((f"{gap.where} ({gap.what.value})", gap.reason) for gap in proof.missing[:50]),
    )
    rest = f"; {count(len(proof.unproven), 'layer')} not proven" if proof.unproven else ""
    summary = f"{count(proof.sizes, 'size')}{_error(proof.max_relative_error)}{rest}"
    pieces = f"{proof.pieces.proven} of {count(proof.pieces.of, 'piece')}" if proof.pieces.of else ""
    pieces += f", {proof.pieces.defined} by definition" if proof.pieces.defined else ""
    whole = f"the whole at {summary}" if proof.sizes or not pieces else ""
    note = f"{what.get(proof.of, proof.of)}: {', and '.join(filter(None, (pieces, whole)))}"
    if not proof.agrees:
        return Badge("bad", "Disagrees", note, rows)
    if proof.missing or proof.unproven:
        return Badge("warn", "Proven in part", note, rows)
    return Badge("ok", "Proven", note, rows)


def _identity(report: BuildReport) -> Iterator[tuple[str, str]]:
    """Yields what decides what the engine is, as names and values."""
    plan = report.plan
    yield "model", report.model.path
    yield "SHA-256 of the model", str(report.model.sha256)
    yield "target", str(plan.target)
    yield "precision", plan.precision
    yield "rewritten", "yes" if plan.rewrite else "no"
    for name, value in plan.options.to_json().items():
        yield f"builder: {name}", str(value)
    settings = {"requantize": plan.requantize, "round": plan.rounded, "split": plan.split}
    for name, value in {**settings, "cast-io": plan.cast_interface}.items():
        if value:
            yield name, str(value)
    for name, version in plan.cast_by.items():
        yield f"cast by {name}", version
    yield "TensorRT", f"{report.runtime}, {report.runtime.gpu or 'without a GPU'}"
    yield "trtconv", report.trtconv
    if report.engine is not None:
        yield "SHA-256 of the engine", str(report.engine.sha256)


def _since(report: BuildReport) -> Iterator[str]:
    """Yields what is otherwise than in the build before, in words; nothing where there was none."""
    old, new = report.previous, report.summary
    if old is None or new is None:
        return
    if report.rebuilt and report.engine is not None:
        yield f"built again, since {report.rebuilt}"
    if old.engine_bytes != new.engine_bytes:
        yield f"the engine has {byte_size(new.engine_bytes)}, {new.engine_bytes - old.engine_bytes:+,} bytes"
    elif old.engine_sha256 == new.engine_sha256:
        yield "the engine is the same, byte for byte"
    counts = (("layers", old.layers, new.layers), ("changes by passes", old.edits, new.edits))
    for what, before, now in counts:
        if before is not None and now is not None and before != now:
            yield f"{now} {what}, and there were {before}"
    if old.dims != new.dims:
        yield f"sizes: {_bounds(new.dims)}; before: {_bounds(old.dims)}"
    added = [code for code in new.findings if code not in old.findings]
    absent = [code for code in old.findings if code not in new.findings]
    if added or absent:
        parts = [f"{', '.join(codes)} {what}" for what, codes in (("came", added), ("went", absent)) if codes]
        yield f"findings: {'; '.join(parts)}"
    if old.error is not None and new.error is not None and old.error != new.error:
        yield f"largest error {new.error:.1e}, and was {old.error:.1e}"


def _bounds(profiles: Sequence[Mapping[str, Range]]) -> str:
    texts = [", ".join(f"{name} {bound.short}" for name, bound in profile.items()) for profile in profiles]
    return " | ".join(text or "fixed" for text in texts) or "fixed"


def _profiles(report: BuildReport) -> list[dict[str, object]]:
    return [
        {"number": number, "input": name, **{pick: shape_text(getattr(shapes, pick)) for pick in PICKS}}
        for number, profile in enumerate(report.profiles)
        for name, shapes in profile.inputs.items()
    ]


def _shape(tensor: TensorInfo, report: BuildReport) -> str:
    """Returns a tensor's shape, with the names of its dimensions where the report tells them."""
    shapes = {} if report.layers is None else {entry.name: entry.shape for entry in report.layers.tensors}
    by_name = {entry.name: entry.dims for entry in report.inputs}
    dims = by_name.get(tensor.name) or shapes.get(tensor.name) or tensor.shape
    return dims_text(dims)


def _sizes(report: BuildReport) -> dict[str, object]:
    lattice = report.lattice or LatticeRecord()
    return {
        "chart": sizes_chart(lattice.dims, report.dims),
        "rows": [(name, dim.accepted) for name, dim in lattice.dims.items()],
        "joint": lattice.joint,
        "imposed": list(dict.fromkeys(demand.text for demand in lattice.imposed))[:30],
        "exact": lattice.exact,
    }


def _stages(seconds: Mapping[str, float]) -> list[dict[str, object]]:
    """Returns what the stages took; those under a hundredth of the whole together."""
    least = sum(seconds.values()) / 100
    rows = {name: value for name, value in seconds.items() if value >= least}
    rest = sum(seconds.values()) - sum(rows.values())
    rows |= {"all else": rest} if len(rows) < len(seconds) else {}
    longest = max(rows.values(), default=0) or 1
    return [
        {"stage": name, "seconds": f"{value:.2f}", "bar": share_bar(value / longest)} for name, value in rows.items()
    ]
