"""What a person reads of engines under load."""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.cli.formats.wording import byte_size, count, shapes_text, table
from trtconv.core.documents.bench import BenchReport
from trtconv.core.documents.load import BenchLoad, Latencies
from trtconv.core.text import clean

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_SIZES = 20


def letter(index: int) -> str:
    """Returns what an engine is called where there are several: "A", "B", and by their number the 27th and later."""
    return _LETTERS[index] if index < len(_LETTERS) else str(index + 1)


def load_blocks(document: BenchReport) -> list[str]:
    """Returns the paragraphs about engines under load; none where there was no load."""
    if not document.loads:
        return []
    several = len(document.engines) > 1
    return [
        "\n".join(_summary(document.loads, several)),
        "\n".join(table([_HEAD, *(row for load in document.loads for row in _latencies(load))], "")),
        *("\n".join(_sizes(load)) for load in document.loads if len(load.sizes) > 1),
    ]


_HEAD = ("engine", "shapes", "microseconds", "p50", "p90", "p95", "p99", "max", "mean")


def _summary(loads: Sequence[BenchLoad], several: bool) -> list[str]:
    lines = []
    for load in loads:
        offered = "" if load.offered_per_s is None else f" of {load.offered_per_s:.1f} that came"
        power = "" if load.power_w is None else f", {load.power_w:.0f} W of the GPU"
        ways = ("CUDA graphs" if load.graph else "plain launches", "with copies" if load.copies else "without copies")
        name = f"{letter(load.engine)}: " if several else ""
        lines.append(
            clean(
                f"{name}{load.throughput_per_s:.1f} requests a second{offered}, "
                f"{load.requests} in {load.seconds:.1f} s, {count(load.contexts, 'context')} at {_shapes(load)} "
                f"({', '.join(ways)}); "
                f"{byte_size(load.memory_bytes)} of contexts{power}"
            )
        )
    return lines


def _shapes(load: BenchLoad) -> str:
    return shapes_text(load.sizes[0].shapes) if len(load.sizes) == 1 else count(len(load.sizes), "size")


def _latencies(load: BenchLoad) -> list[tuple[str, ...]]:
    times = [("latency", load.latency)]
    if load.arrivals is not None:
        times.append(("of it waiting", load.queue))
    return [(letter(load.engine), _shapes(load), what, *_numbers(latency)) for what, latency in times]


def _numbers(times: Latencies) -> list[str]:
    values = (times.p50_us, times.p90_us, times.p95_us, times.p99_us, times.max_us, times.mean_us)
    return [f"{us:.1f}" for us in values]


def _sizes(load: BenchLoad) -> list[str]:
    """Lists the sizes of requests, the most frequent first."""
    ordered = sorted(load.sizes, key=lambda size: -size.requests)
    rows = [("shapes", "profile", "requests", "median us from launch")]
    for size in ordered[:_MOST_SIZES]:
        median = "-" if size.median_us is None else f"{size.median_us:.1f}"
        rows.append((shapes_text(size.shapes), str(size.profile), str(size.requests), median))
    more = len(ordered) - _MOST_SIZES
    return [*table(rows, ""), *([f"and {count(more, 'other size')}"] if more > 0 else [])]
