"""The page's sections about what was measured: numerics, latency, layers, memory."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from trtconv.cli.formats.engine import quickest_way
from trtconv.cli.formats.inspection import first_tensor
from trtconv.cli.formats.page.charts import errors_chart, latency_chart, share_bar
from trtconv.cli.formats.page.gather import PageSubject
from trtconv.cli.formats.plot import curves
from trtconv.cli.formats.wording import byte_size, memory_by_profile, shapes_text
from trtconv.core.dims import Shape, sizes_text
from trtconv.core.documents.bench import BenchReport, GpuRuntime
from trtconv.core.documents.inspect import EngineInspection, Layer, LayerTensor
from trtconv.core.documents.memory import MemoryRecord
from trtconv.core.documents.proof import BuildProof
from trtconv.core.documents.verify import VerifyReport
from trtconv.core.frozen import frozen

PICKS = ("min", "opt", "max")
_MOST_LAYERS = 300
MOST_PRINTED = 8
"""Layers that are on paper too, which has two pages for all."""
_MOST_CASES = 200
_BYTES = {"float64": 8, "int64": 8, "float32": 4, "float": 4, "int32": 4, "float16": 2, "bfloat16": 2}


def numerics(verify: VerifyReport | None) -> dict[str, object] | None:
    """Returns what `verify` found, by output; None where it was not run."""
    if verify is None:
        return None
    errors: dict[str, list[tuple[str, float]]] = {}
    rows = []
    for case in verify.cases:
        place = f"{case.size} of profile {case.profile}"
        shapes = shapes_text(case.shapes)
        for output in case.outputs:
            errors.setdefault(output.name, []).append((f"{place}, {shapes}", output.max_rel))
            rows.append(
                {
                    "output": output.name,
                    "place": place,
                    "shapes": shapes,
                    "max_abs": _number(output.max_abs, ".1e"),
                    "max_rel": _number(output.max_rel, ".1e"),
                    "cosine": _number(output.cosine, ".7f"),
                    "psnr": _number(output.psnr, ".1f"),
                    "passed": output.passed,
                    "why": output.why,
                }
            )
    tolerance = verify.tolerance.relative
    return {
        "ran": verify.ran,
        "why_not_run": verify.why_not_run,
        "precision": verify.precision,
        "tolerance": f"{tolerance:g}",
        "chart": errors_chart(errors, tolerance) if errors and tolerance > 0 else "",
        "rows": rows[:_MOST_CASES],
        "left": max(0, len(rows) - _MOST_CASES),
        "skipped": [f"{c.size} of profile {c.profile}: {c.skipped}" for c in verify.cases if c.skipped],
    }


def compared(proof: BuildProof | None) -> list[dict[str, str]]:
    """Returns what the build's own proof found of each output at each size."""
    cases = () if proof is None else proof.compared[:_MOST_CASES]
    return [
        {
            "output": case.output,
            "size": case.size,
            "shapes": shapes_text(case.shapes),
            "error": _number(case.error, ".1e") if case.error else "0",
        }
        for case in cases
    ]


def _number(number: float, form: str) -> str:
    return format(number, form) if math.isfinite(number) else ("-" if math.isnan(number) else str(number))


@frozen
class Latency:
    """What the page shows of `bench`: a drawing, all rows, and the one at opt as its headline."""

    runtime: GpuRuntime
    way: str
    chart: Markup
    rows: Sequence[Mapping[str, object]]
    headline: str | None
    headline_place: str | None


def latency(bench: BenchReport | None) -> Latency | None:
    """Returns what `bench` measured; None where it was not run."""
    if bench is None:
        return None
    mine = tuple(row for row in bench.rows if row.engine == 0)
    one = dataclasses.replace(bench, engines=bench.engines[:1], rows=mine)
    best = quickest_way(one)
    rows = [
        {
            "profile": row.profile,
            "size": row.size,
            "shapes": shapes_text(row.shapes),
            "way": "CUDA graph" if row.graph else "plain launches",
            "copies": "with" if row.copies else "without",
            "median": _microseconds(row.median_us),
            "p99": _microseconds(row.p99_us),
            "throughput": "-" if row.throughput_per_s is None else f"{row.throughput_per_s:,.0f}",
        }
        for row in mine
    ]
    opt = next((timing for timing in best if timing.row.size == "opt"), best[0] if best else None)
    return Latency(
        bench.runtime,
        "" if not best else "as a CUDA graph" if best[0].row.graph else "with plain launches",
        latency_chart(curves(one)),
        rows,
        None if opt is None else f"{_microseconds(opt.us)} us",
        None if opt is None else f"median, {opt.row.size} of profile {opt.row.profile}",
    )


def _microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def layers(inspect: EngineInspection | None) -> dict[str, object] | None:
    """Returns what `inspect` read of the layers; None where it was not run, or did not load the engine."""
    if inspect is None or not inspect.layers:
        return None
    records = inspect.layers
    timed = [layer.time_us or 0.0 for layer in records]
    total, longest = sum(timed), max(timed)
    longest_first = sorted(range(len(records)), key=lambda index: -timed[index])
    indices, printed = sorted(longest_first[:_MOST_LAYERS]), set(longest_first[:MOST_PRINTED])
    rows = [
        {
            "name": records[index].name,
            "type": records[index].type or "-",
            "precision": records[index].precision or "-",
            "output": first_tensor(records[index].outputs),
            "format": _format(records[index].outputs),
            "time": f"{timed[index]:,.1f}" if longest else "-",
            "bar": share_bar(timed[index] / longest, _colour(records[index].precision)) if longest else "",
            "printed": index in printed,
        }
        for index in indices
    ]
    return {
        "details": inspect.details,
        "rows": rows,
        "count": len(records),
        "left": len(records) - len(rows),
        "total": f"{total:,.1f}" if total else None,
        "why": None if inspect.time is None else inspect.time.why,
        "kinds": _kinds(records, timed, total),
    }


def _kinds(records: Sequence[Layer], timed: Sequence[float], total: float) -> list[dict[str, object]]:
    """Returns how many layers there are of each type and precision, and what share of the time is theirs."""
    numbers: Counter[tuple[str, str]] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for layer, time in zip(records, timed, strict=True):
        kind = layer.type or "-", layer.precision or "-"
        numbers[kind] += 1
        times[kind] += time  # type: ignore[assignment]
    kinds = sorted(numbers, key=lambda kind: (-times[kind], -numbers[kind], kind))
    return [
        {
            "type": kind[0],
            "precision": kind[1],
            "layers": numbers[kind],
            "time": f"{times[kind]:,.1f}" if total else "-",
            "bar": share_bar(times[kind] / total, _colour(kind[1])) if total else "",
        }
        for kind in kinds[:12]
    ]


def _colour(precision: str | None) -> str:
    name = (precision or "").lower()
    places = {"int8": "c2", "fp8": "c5", "half": "c1", "fp16": "c1", "float16": "c1", "bf16": "c4", "bfloat16": "c4"}
    return next((place for key, place in places.items() if key in name), "c0")


def _format(tensors: Sequence[LayerTensor]) -> str:
    return tensors[0].format or "-" if tensors else "-"


def memory(subject: PageSubject) -> dict[str, object]:
    """Returns what the engine takes: its file, its weights and activations, the inputs of each profile."""
    engine, inspect = subject.report.engine, subject.inspect
    rows = [("engine file", byte_size(engine.bytes))] if engine is not None else []
    timed = subject.bench.engines[0] if subject.bench is not None and subject.bench.engines else None
    if timed is not None and timed.weight_memory_bytes is not None:
        rows.append(("GPU memory that loading takes", byte_size(timed.weight_memory_bytes)))
    source = timed if timed is not None and timed.activation_memory_bytes else inspect
    if source is not None and source.activation_memory_bytes is not None:
        memory = byte_size(source.activation_memory_bytes) + memory_by_profile(source.profile_memory_bytes)
        rows.append(("GPU memory for activations, largest profile", memory))
    if subject.report.memory is not None:
        rows += _activations(subject.report.memory, several=len(subject.report.profiles) > 1)
    types = {tensor.name: tensor.dtype for tensor in subject.report.io}
    profiles = [
        [
            _inputs_size({name: getattr(bounds, pick) for name, bounds in profile.inputs.items()}, types)
            for pick in PICKS
        ]
        for profile in subject.report.profiles
    ]
    return {"rows": rows, "profiles": profiles}


def _activations(memory: MemoryRecord, *, several: bool) -> Iterator[tuple[str, str]]:
    """Yields what activations take at max of each profile, by shapes alone."""
    for number, profile in enumerate(memory.profiles):
        sizes = sizes_text(profile.sizes)
        place = f"at max of profile {number}" if several else "at max"
        size = byte_size(profile.bytes) if profile.complete else f"at least {byte_size(profile.bytes)}"
        yield f"activations {place}, estimated from shapes", f"{size}{f' ({sizes})' if sizes else ''}"


def _inputs_size(shapes: Mapping[str, Shape], types: Mapping[str, str]) -> str:
    return byte_size(sum(math.prod(shape) * _BYTES.get(types.get(name, ""), 1) for name, shape in shapes.items()))
