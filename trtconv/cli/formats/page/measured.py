"""The page's sections about what was measured: numerics, latency, layers, memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.cli.formats.engine import quickest_way
from trtconv.cli.formats.page.charts import errors_chart, latency_chart, share_bar
from trtconv.cli.formats.plot import curves
from trtconv.cli.formats.wording import byte_size, memory_by_profile, shape_text

Document = Mapping[str, Any]

_MOST_LAYERS = 300
_MOST_CASES = 200
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "float": 4, "int32": 4, "float16": 2, "bfloat16": 2}


def numerics(verify: Document | None) -> dict[str, Any] | None:
    """Returns what `verify` found, by output; None where it was not run."""
    if verify is None:
        return None
    errors: dict[str, list[tuple[str, float]]] = {}
    rows = []
    for case in verify["cases"]:
        place = f"{case['size']} of profile {case['profile']}"
        shapes = ", ".join(shape_text(shape) for shape in case["shapes"].values())
        for output in case["outputs"]:
            errors.setdefault(output["name"], []).append((f"{place}, {shapes}", float(output["max_rel"])))
            rows.append(
                {
                    "output": output["name"],
                    "place": place,
                    "shapes": shapes,
                    "max_abs": _number(output["max_abs"], ".1e"),
                    "max_rel": _number(output["max_rel"], ".1e"),
                    "cosine": _number(output["cosine"], ".7f"),
                    "psnr": _number(output["psnr"], ".1f"),
                    "passed": output["passed"],
                    "why": output["why"],
                }
            )
    tolerance = float(verify["tolerance"]["relative"])
    return {
        "ran": verify["ran"],
        "why_not_run": verify["why_not_run"],
        "precision": verify["precision"],
        "tolerance": f"{tolerance:g}",
        "chart": errors_chart(errors, tolerance) if errors and tolerance > 0 else "",
        "rows": rows[:_MOST_CASES],
        "left": max(0, len(rows) - _MOST_CASES),
        "skipped": [f"{c['size']} of profile {c['profile']}: {c['skipped']}" for c in verify["cases"] if c["skipped"]],
    }


def _number(value: Any, form: str) -> str:
    number = float(value)
    return format(number, form) if math.isfinite(number) else ("-" if math.isnan(number) else str(number))


def latency(bench: Document | None) -> dict[str, Any] | None:
    """Returns what `bench` measured; None where it was not run."""
    if bench is None:
        return None
    one = {**bench, "engines": bench["engines"][:1], "rows": [row for row in bench["rows"] if row["engine"] == 0]}
    best = quickest_way(one)
    rows = [
        {
            "profile": row["profile"],
            "size": row["size"],
            "shapes": ", ".join(shape_text(shape) for shape in row["shapes"].values()),
            "way": "CUDA graph" if row["graph"] else "plain launches",
            "copies": "with" if row["copies"] else "without",
            "median": _microseconds(row["median_us"]),
            "p99": _microseconds(row["p99_us"]),
            "throughput": "-" if row["throughput_per_s"] is None else f"{row['throughput_per_s']:,.0f}",
        }
        for row in one["rows"]
    ]
    opt = next((row for row in best if row["size"] == "opt"), best[0] if best else None)
    return {
        "runtime": bench["runtime"],
        "way": "" if not best else "as a CUDA graph" if best[0]["graph"] else "with plain launches",
        "chart": latency_chart(curves(one)),
        "rows": rows,
        "headline": None if opt is None else f"{_microseconds(opt['median_us'])} us",
        "headline_place": None if opt is None else f"median, {opt['size']} of profile {opt['profile']}",
    }


def _microseconds(value: Any) -> str:
    return "-" if value is None else f"{float(value):,.1f}"


def layers(inspect: Document | None) -> dict[str, Any] | None:
    """Returns what `inspect` read of the layers; None where it was not run, or did not load the engine."""
    if inspect is None or not inspect.get("layers"):
        return None
    listed = inspect["layers"]
    timed = [float(layer["time_us"] or 0) for layer in listed]
    total, longest = sum(timed), max(timed)
    shown = sorted(sorted(range(len(listed)), key=lambda index: -timed[index])[:_MOST_LAYERS])
    rows = [
        {
            "name": listed[index]["name"],
            "type": listed[index]["type"] or "-",
            "precision": listed[index]["precision"] or "-",
            "output": _tensor(listed[index]["outputs"]),
            "format": _format(listed[index]["outputs"]),
            "time": f"{timed[index]:,.1f}" if longest else "-",
            "bar": share_bar(timed[index] / longest, _colour(listed[index]["precision"])) if longest else "",
        }
        for index in shown
    ]
    return {
        "details": inspect["details"],
        "rows": rows,
        "count": len(listed),
        "left": len(listed) - len(rows),
        "total": f"{total:,.1f}" if total else None,
        "why": (inspect.get("time") or {}).get("why"),
        "kinds": _kinds(listed, timed, total),
    }


def _kinds(listed: Sequence[Document], timed: Sequence[float], total: float) -> list[dict[str, Any]]:
    """Returns how many layers there are of each type and precision, and what share of the time is theirs."""
    numbers: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for layer, time in zip(listed, timed, strict=True):
        kind = layer["type"] or "-", layer["precision"] or "-"
        numbers[kind] += 1
        times[kind] += time  # type: ignore[assignment]
    found = sorted(numbers, key=lambda kind: (-times[kind], -numbers[kind], kind))
    return [
        {
            "type": kind[0],
            "precision": kind[1],
            "layers": numbers[kind],
            "time": f"{times[kind]:,.1f}" if total else "-",
            "bar": share_bar(times[kind] / total, _colour(kind[1])) if total else "",
        }
        for kind in found[:12]
    ]


def _colour(precision: str | None) -> str:
    name = (precision or "").lower()
    places = {"int8": "c2", "fp8": "c5", "half": "c1", "fp16": "c1", "float16": "c1", "bf16": "c4", "bfloat16": "c4"}
    return next((place for key, place in places.items() if key in name), "c0")


def _tensor(tensors: Sequence[Document]) -> str:
    if not tensors:
        return "-"
    shape = tensors[0]["shape"]
    return f"{tensors[0]['dtype'] or '?'} {shape_text(shape) if shape is not None else ''}".strip()


def _format(tensors: Sequence[Document]) -> str:
    return str(tensors[0].get("format") or "-") if tensors else "-"


def memory(report: Document, measured: Mapping[str, Document]) -> dict[str, Any]:
    """Returns what the engine takes: its file, its weights and activations, the inputs of each profile."""
    engine = report.get("engine") or {}
    rows = [("engine file", byte_size(engine["bytes"]))] if engine.get("bytes") is not None else []
    timed = (measured.get("bench") or {}).get("engines") or [{}]
    if timed[0].get("weight_memory_bytes") is not None:
        rows.append(("GPU memory that loading takes", byte_size(timed[0]["weight_memory_bytes"])))
    told = timed[0] if timed[0].get("activation_memory_bytes") else measured.get("inspect") or {}
    if told.get("activation_memory_bytes") is not None:
        memory = byte_size(told["activation_memory_bytes"]) + memory_by_profile(told)
        rows.append(("GPU memory for activations, largest profile", memory))
    types = {tensor["name"]: tensor["dtype"] for tensor in report.get("io") or ()}
    profiles = [
        [_inputs_size(profile, types, pick) for pick in ("min", "opt", "max")] for profile in report["profiles"]
    ]
    return {"rows": rows, "profiles": profiles}


def _inputs_size(profile: Document, types: Mapping[str, str], pick: str) -> str:
    return byte_size(
        sum(math.prod(shapes[pick]) * _BYTES.get(types.get(name, ""), 1) for name, shapes in profile.items())
    )
