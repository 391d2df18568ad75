"""What the templates show of an engine, section by section, as plain values and finished drawings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.cli.formats.page.charts import share_bar, sizes_chart
from trtconv.cli.formats.page.gather import Document, PageSubject
from trtconv.cli.formats.page.measured import latency, layers, memory, numerics
from trtconv.cli.formats.page.rewrites import rewrites
from trtconv.cli.formats.wording import byte_size, count, shape_text
from trtconv.core.errors import InputError

_ORDER = ("error", "warning", "info")
_MOST_FINDINGS = 200
FOREIGN = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a report causes whose values are not those that trtconv writes."""


def view(subject: PageSubject) -> dict[str, Any]:
    """Returns everything that the page of an engine shows.

    Raises:
        InputError: A document has other values than trtconv writes.
    """
    try:
        summary = summarized(subject)
        return {
            **summary,
            "sizes": _sizes(subject.report),
            "rewrites": rewrites(subject),
            "numerics": numerics(subject.measured.get("verify")),
            "latency": latency(subject.measured.get("bench")),
            "layers": layers(subject.measured.get("inspect")),
            "memory": memory(subject.report, subject.measured),
            "stages": _stages(subject.report.get("seconds") or {}),
            "notes": [*(subject.report.get("notes") or ()), *subject.notes],
        }
    except InputError:
        raise
    except FOREIGN as error:
        raise foreign(str(subject.path), error) from error


def summarized(subject: PageSubject) -> dict[str, Any]:
    """Returns what the head of a page, and a folder's matrix, show of an engine.

    Raises:
        InputError: A document has other values than trtconv writes.
    """
    try:
        document = subject.report
        findings = sorted(document.get("findings") or (), key=lambda each: _ORDER.index(each["severity"]))
        timed = latency(subject.measured.get("bench"))
        engine = document.get("engine") or {}
        return {
            "model": Path(str(document["model"]["path"])).name,
            "engine": engine,
            "engine_name": Path(str(engine.get("path", ""))).name,
            "target": str(document["plan"]["target"]),
            "precision": str(document["plan"]["precision"]),
            "runtime": document.get("runtime") or {},
            "verdict": _verdict(document),
            "proof": proof_of(subject),
            "findings": findings[:_MOST_FINDINGS],
            "more_findings": max(0, len(findings) - _MOST_FINDINGS),
            "counts": {level: sum(f["severity"] == level for f in findings) for level in _ORDER},
            "ignored": document.get("ignored") or (),
            "size": byte_size(engine["bytes"]) if engine else "-",
            "headline": timed and timed["headline"],
            "headline_place": timed and timed["headline_place"],
            "seconds": sum((document.get("seconds") or {}).values()),
            "profiles": _profiles(document),
            "io": [{**tensor, "shape": _shape(tensor, document)} for tensor in document.get("io") or ()],
            "identity": list(_identity(document)),
        }
    except FOREIGN as error:
        raise foreign(str(subject.path), error) from error


def foreign(name: str, error: Exception) -> InputError:
    """Returns what to raise where a file of that name has other values than trtconv writes."""
    what = f"{type(error).__name__}: {error}"
    return InputError(
        f"{name}, or what lies beside it, has values that trtconv does not write ({what})",
        "Build, verify and bench again, with this version of trtconv.",
    )


def _verdict(document: Document) -> dict[str, str]:
    if document.get("exit_code"):
        return {"kind": "bad", "text": "Failed", "note": "a finding is as bad as was asked to fail"}
    if not document.get("engine"):
        return {"kind": "bad", "text": "Not built", "note": "no engine was made"}
    kept = (
        "kept: model, plan and runtime are as they were" if document.get("up_to_date") else "by TensorRT's own parser"
    )
    return {"kind": "ok", "text": "Built", "note": kept}


def proof_of(subject: PageSubject) -> dict[str, Any]:
    """Returns what is proven of an engine: by `verify`, else by the build's own proof, else by its cast.

    Returns:
        `kind` ("ok", "bad", "warn"), `text`, `note` and `rows` of details.
    """
    verify = subject.measured.get("verify")
    if verify is not None:
        return _verified(verify)
    proof = subject.report.get("proof")
    if isinstance(proof, Mapping) and proof.get("agrees") is not None:
        return _proven(proof)
    cast = subject.report.get("cast")
    error = ((cast or {}).get("verified") or {}).get("max_relative_error")
    if error is not None:
        note = f"the cast model is off by {float(error):.1e}; the engine was not run"
        return {"kind": "warn", "text": "Partly", "note": note, "rows": []}
    return {"kind": "warn", "text": "Not proven", "note": "trtconv verify compares it with its model", "rows": []}


def _error(error: Any) -> str:
    if error is None:
        return ""
    return f", largest relative error {float(error):.1e}" if float(error) else ", without any difference"


def _verified(verify: Document) -> dict[str, Any]:
    worst = verify["worst"]
    error = _error(worst["max_rel"] if worst else None)
    done = sum(bool(case["outputs"]) for case in verify["cases"])
    if not verify["verified"]:
        kind = "bad" if any(case["passed"] is False for case in verify["cases"]) else "warn"
        note = f"{verify['incomplete'] or 'beyond the tolerance'}{error}"
        return {"kind": kind, "text": "Not verified", "note": note, "rows": []}
    if verify["ran"] != "engine":
        note = f"the model as rewritten agrees at {count(done, 'size')}{error}; the engine was not run"
        return {"kind": "warn", "text": "Rewrite verified", "note": note, "rows": []}
    return {"kind": "ok", "text": "Verified", "note": f"the engine was run at {count(done, 'size')}{error}", "rows": []}


def _proven(proof: Document) -> dict[str, Any]:
    what = {"engine": "the engine", "network": "TensorRT's network", "rewritten": "the model as rewritten"}
    subject = what.get(str(proof.get("of")), str(proof.get("of")))
    said = _error(proof.get("max_relative_error"))
    unproven = proof.get("unproven") or ()
    missing = proof.get("missing") or ()
    rows = [(f"{each['layer']} ({each['kind']})", each["reason"]) for each in unproven[:50]]
    rows += [(f"{each['where']} ({each['what']})", each["reason"]) for each in missing[:50]]
    left = f"; {count(len(unproven), 'layer')} not proven" if unproven else ""
    pieces = proof.get("pieces") or {}
    done = f"{pieces['proven']} of {count(int(pieces['of']), 'piece')}, and " if pieces.get("of") else ""
    note = f"{subject}: {done}the whole at {count(int(proof.get('sizes') or 0), 'size')}{said}{left}"
    if not proof["agrees"]:
        return {"kind": "bad", "text": "Disagrees", "note": note, "rows": rows}
    if missing or unproven:
        return {"kind": "warn", "text": "Proven in part", "note": note, "rows": rows}
    return {"kind": "ok", "text": "Proven", "note": note, "rows": rows}


def _identity(document: Document) -> Iterator[tuple[str, str]]:
    """Yields what decides what the engine is, as names and values."""
    model, plan, runtime = document["model"], document["plan"], document.get("runtime") or {}
    yield "model", str(model["path"])
    yield "SHA-256 of the model", str(model["sha256"])
    yield "target", str(plan["target"])
    yield "precision", str(plan["precision"])
    yield "rewritten", "yes" if plan.get("rewrite", True) else "no"
    for name, value in (plan.get("options") or {}).items():
        yield f"builder: {name}", str(value)
    for name in ("requantize", "round", "split", "cast_io"):
        if plan.get(name):
            yield name.replace("_", "-"), str(plan[name])
    for name, value in (plan.get("cast_by") or {}).items():
        yield f"cast by {name}", str(value)
    yield "TensorRT", f"{runtime.get('family')} {runtime.get('version')}, {runtime.get('gpu') or 'without a GPU'}"
    yield "trtconv", str(document.get("trtconv"))
    if document.get("engine"):
        yield "SHA-256 of the engine", str(document["engine"]["sha256"])


def _profiles(document: Document) -> list[dict[str, Any]]:
    return [
        {"number": number, "input": name, **{pick: shape_text(shapes[pick]) for pick in ("min", "opt", "max")}}
        for number, profile in enumerate(document["profiles"])
        for name, shapes in profile.items()
    ]


def _shape(tensor: Document, document: Document) -> str:
    """Returns a tensor's shape, with the names of its dimensions where the report tells them."""
    named = next((each["dims"] for each in document.get("inputs") or () if each["name"] == tensor["name"]), None)
    dims = tensor["shape"] if named is None else named
    return " x ".join("?" if dim == -1 else str(dim) for dim in dims) or "scalar"


def _sizes(document: Document) -> dict[str, Any]:
    lattice = document.get("lattice") or {}
    dims = lattice.get("dims") or {}
    return {
        "chart": sizes_chart(dims, document["dims"]),
        "rows": [(name, dim["accepted"]) for name, dim in dims.items()],
        "joint": lattice.get("joint") or (),
        "imposed": _imposed(lattice.get("imposed") or ()),
        "exact": lattice.get("exact", True),
    }


def _imposed(imposed: Sequence[Document]) -> list[str]:
    return list(dict.fromkeys(str(each["text"]) for each in imposed))[:30]


def _stages(seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    longest = max(seconds.values(), default=0) or 1
    return [
        {"stage": name, "seconds": f"{value:.2f}", "bar": share_bar(value / longest)} for name, value in seconds.items()
    ]
