"""`trtconv diff`: what is otherwise between two engines, by their reports and what was measured of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trtconv.cli.formats.engine import quickest_way
from trtconv.cli.formats.page.gather import Document, PageSubject
from trtconv.cli.formats.wording import byte_size, count, shape_text, table
from trtconv.core.encode import SCHEMA
from trtconv.core.errors import InputError
from trtconv.core.text import clean

ROUNDING = 1e-6
"""A relative error that grows by less grows by nothing: float32 sums in another order differ by as much."""
_FOREIGN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def compare(a: PageSubject, b: PageSubject, tolerance: float) -> dict[str, Any]:
    """Compares two engines.

    Args:
        a: The engine as it was.
        b: The engine as it is.
        tolerance: By what part of A's value time, size, memory and errors may grow.

    Returns:
        The document of `trtconv diff`; `exit_code` is 1 where there is a regression.

    Raises:
        InputError: A document has other values than trtconv writes.
    """
    try:
        parts = {
            "options": _pairs(_options(a.report), _options(b.report)),
            "profiles": _profiles(a.report, b.report),
            "rewrites": _rewrites(a.report, b.report),
            "findings": _findings(a.report, b.report),
            "layers": _layers(a.measured.get("inspect"), b.measured.get("inspect")),
            "numerics": _numerics(a, b),
            "latency": _latency(a.measured.get("bench"), b.measured.get("bench")),
            "sizes": _sizes(a, b),
        }
        found = [*_lost(a.report, b.report, parts), *_grown(parts, 1 + tolerance)]
    except _FOREIGN as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{a.path} or {b.path} has values that trtconv does not write ({what})",
            "Build, verify and bench again, with this version of trtconv.",
        ) from error
    head = {"schema": SCHEMA, "a": str(a.path), "b": str(b.path), "tolerance": tolerance}
    return {**head, **parts, "regressions": found, "exit_code": 1 if found else 0}


def _options(report: Document) -> dict[str, str]:
    """Returns what decides what an engine is, as names and values."""
    plan, runtime = report["plan"], report.get("runtime") or {}
    found = {"model": report["model"]["sha256"], "runtime": f"{runtime.get('family')} {runtime.get('version')}"}
    found |= {"gpu": str(runtime.get("gpu")), "trtconv": str(report.get("trtconv"))}
    left_out = ("options", "dims", "values")
    found |= {name: str(value) for name, value in plan.items() if name not in left_out}
    return found | {f"options.{name}": str(value) for name, value in (plan.get("options") or {}).items()}


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = dict.fromkeys([*a, *b])
    return [{"name": name, "a": a.get(name), "b": b.get(name)} for name in names if a.get(name) != b.get(name)]


def _profiles(a: Document, b: Document) -> dict[str, Any]:
    lost = [number for number, p in enumerate(a["profiles"]) if not any(_covers(q, p) for q in b["profiles"])]
    return {"a": a["dims"], "b": b["dims"], "same": a["profiles"] == b["profiles"], "lost": lost}


def _covers(wide: Document, narrow: Document) -> bool:
    """Whether a profile takes every shape that another one takes."""
    return wide.keys() == narrow.keys() and all(
        len(wide[name]["min"]) == len(shapes["min"])
        and all(w <= n for w, n in zip(wide[name]["min"], shapes["min"], strict=True))
        and all(w >= n for w, n in zip(wide[name]["max"], shapes["max"], strict=True))
        for name, shapes in narrow.items()
    )


def _rewrites(a: Document, b: Document) -> dict[str, Any]:
    def listed(report: Document) -> Counter[tuple[str, str, str]]:
        return Counter((e["pass"], e["node"], e["what"]) for e in report.get("edits") or ())

    return _changed(listed(a), listed(b), ("pass", "node", "what"))


def _findings(a: Document, b: Document) -> dict[str, Any]:
    def listed(report: Document) -> Counter[tuple[str, str, str]]:
        return Counter((f["severity"], f["code"], f["location"]["node"]) for f in report.get("findings") or ())

    return _changed(listed(a), listed(b), ("severity", "code", "node"))


def _changed(a: Counter[Any], b: Counter[Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        "added": [dict(zip(names, each, strict=True)) for each in (b - a).elements()],
        "removed": [dict(zip(names, each, strict=True)) for each in (a - b).elements()],
    }


def _layers(a: Document | None, b: Document | None) -> dict[str, Any] | None:
    """Returns how many layers there are in each precision; None where one of the engines was not inspected."""
    if not (a and b and a.get("layers") and b.get("layers")):
        return None
    counts = [Counter(str(layer["precision"] or "unknown") for layer in each["layers"]) for each in (a, b)]
    return {
        "a": len(a["layers"]),
        "b": len(b["layers"]),
        "precisions": [{"name": n, "a": counts[0][n], "b": counts[1][n]} for n in sorted({*counts[0], *counts[1]})],
    }


def _numerics(a: PageSubject, b: PageSubject) -> list[dict[str, Any]]:
    """Returns the largest relative error of each output that was measured of both in the same way."""
    errors = [_errors(each) for each in (a, b)]
    return [
        {"of": of, "output": output, "a": errors[0][of, output], "b": error}
        for (of, output), error in errors[1].items()
        if (of, output) in errors[0]
    ]


def _errors(subject: PageSubject) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    verify, proof = subject.measured.get("verify"), subject.report.get("proof") or {}
    for case in verify["cases"] if verify else ():
        for output in case["outputs"]:
            key = verify["ran"] if verify else "", output["name"]
            # A result that is not finite is as far off as can be.
            error = float(output["max_rel"])
            found[key] = max(found.get(key, 0.0), error if error == error else float("inf"))
    if proof.get("max_relative_error") is not None:
        found[f"proof of the {proof['of']}", "all"] = float(proof["max_relative_error"])
    return found


def _latency(a: Document | None, b: Document | None) -> list[dict[str, Any]]:
    if not (a and b):
        return []
    before, after = _best(a), _best(b)
    return [
        {"size": row["size"], "shapes": row["shapes"], "graph": row["graph"], "a": float(before[key]["median_us"]),
         "b": float(row["median_us"])}
        for key, row in after.items()
        if key in before
    ]  # fmt: skip


def _best(bench: Document) -> dict[tuple[bool, str], Document]:
    """Returns the row of each shape: of several profiles that take it, that of the quickest."""
    rows = [row for row in quickest_way(bench) if row["engine"] == 0]
    ordered = sorted(rows, key=lambda row: -float(row["median_us"]))
    best = {(row["graph"], str(sorted(row["shapes"].items()))): row for row in ordered}
    return dict(reversed(best.items()))


def _sizes(a: PageSubject, b: PageSubject) -> list[dict[str, Any]]:
    """Returns bytes of the engine's file and of what it takes, where both are known."""
    found = []
    for name in ("engine", "weight_memory", "activation_memory"):
        before, after = (_bytes(each, name) for each in (a, b))
        if before is not None and after is not None:
            found.append({"name": name, "a": before, "b": after})
    return found


def _bytes(subject: PageSubject, name: str) -> int | None:
    if name == "engine":
        size = (subject.report.get("engine") or {}).get("bytes")
    else:
        size = ((subject.measured.get("bench") or {}).get("engines") or [{}])[0].get(f"{name}_bytes")
    return None if size is None else int(size)


def _lost(a: Document, b: Document, parts: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yields what B does not do any more."""
    if a.get("engine") and not b.get("engine"):
        yield {"what": "engine", "message": "no engine was built"}
    for finding in parts["findings"]["added"]:
        if finding["severity"] == "error":
            yield {"what": "findings", "message": f"new error {finding['code']} at {finding['node']}"}
    for number in parts["profiles"]["lost"]:
        yield {"what": "profiles", "message": f"no profile takes all sizes of A's profile {number}"}
    if (a.get("proof") or {}).get("agrees") and (b.get("proof") or {}).get("agrees") is False:
        yield {"what": "proof", "message": "the proof does not agree any more"}


def _grown(parts: Mapping[str, Any], allowed: float) -> Iterator[dict[str, str]]:
    """Yields errors, times and sizes of B that are more than `allowed` times those of A."""
    for each in parts["numerics"]:
        if each["b"] > each["a"] * allowed + ROUNDING:
            message = f"error of {each['output']} ({each['of']}) from {each['a']:.1e} to {each['b']:.1e}"
            yield {"what": "numerics", "message": message}
    for each in parts["latency"]:
        if each["b"] > each["a"] * allowed:
            place = ", ".join(shape_text(shape) for shape in each["shapes"].values())
            yield {"what": "latency", "message": f"{place} from {each['a']:.1f} to {each['b']:.1f} us"}
    for each in parts["sizes"]:
        if each["b"] > each["a"] * allowed:
            name = each["name"].replace("_", " ")
            yield {"what": "sizes", "message": f"{name} from {byte_size(each['a'])} to {byte_size(each['b'])}"}


def diff_text(document: Document) -> str:
    """Renders the document of `trtconv diff`; the last line is the verdict."""
    blocks = [_block("options", [(_shown(p["name"]), _shown(p["a"]), _shown(p["b"])) for p in document["options"]])]
    if not document["profiles"]["same"]:
        rows = [(str(i), _bounds(p), "-") for i, p in enumerate(document["profiles"]["a"])]
        rows += [(str(i), "-", _bounds(p)) for i, p in enumerate(document["profiles"]["b"])]
        blocks.append(_block("profiles", rows))
    for part in ("rewrites", "findings"):
        lines = [f"  {sign} {' '.join(map(str, each.values()))}" for sign, key in (("+", "added"), ("-", "removed"))
                 for each in document[part][key]]  # fmt: skip
        blocks.append("\n".join([part, *map(clean, lines)]) if lines else "")
    layers = document["layers"]
    if layers:
        rows = [("all", str(layers["a"]), str(layers["b"]))]
        blocks.append(_block("layers", [*rows, *((p["name"], str(p["a"]), str(p["b"])) for p in layers["precisions"])]))
    errors = [(f"{e['output']} ({e['of']})", f"{e['a']:.1e}", f"{e['b']:.1e}") for e in document["numerics"]]
    blocks.append(_block("largest relative error", errors))
    blocks.append(_block("latency", [_latency_row(each) for each in document["latency"]], " us, A and B, B / A"))
    sizes = [(s["name"].replace("_", " "), byte_size(s["a"]), byte_size(s["b"])) for s in document["sizes"]]
    blocks.append(_block("sizes", sizes))
    return "\n\n".join([*(block for block in blocks if block), *_verdict(document)])


def _latency_row(each: Document) -> tuple[str, ...]:
    place = ", ".join(shape_text(shape) for shape in each["shapes"].values())
    ratio = f"{each['b'] / each['a']:.3f}" if each["a"] else "-"
    return f"{each['size']} {place}", f"{each['a']:.1f}", f"{each['b']:.1f}", ratio


def _shown(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _bounds(dims: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in dims.items()) or "fixed"


def _block(title: str, rows: Sequence[Sequence[str]], more: str = "") -> str:
    shown = [tuple(clean(cell) for cell in row) for row in rows]
    return "\n".join([f"{title}{more or ', A and B'}", *table(shown, "  ")]) if shown else ""


def _verdict(document: Document) -> Iterator[str]:
    found = document["regressions"]
    allowed = f"beyond {document['tolerance']:.1%}"
    if not found:
        yield f"no regression {allowed}"
        return
    yield "\n".join(["regressions", *(clean(f"  {each['what']}: {each['message']}") for each in found)])
    yield f"{count(len(found), 'regression')} {allowed}"
