"""Runs the CPU benchmarks, prints one table and writes bench/results/cpu.json.

`python bench/run.py [NAME...] [--rounds N]` runs some of them: startup, whole_build, exports, scaling, memory, many.
Ends with 1 where a ratio is beyond its limit.
"""

from __future__ import annotations

import argparse
import compileall
import dataclasses
import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from costs import BENCHMARKS
from measuring import ROOT, Comparison

from trtconv.cli.versions import versions

RESULTS = ROOT / "bench" / "results" / "cpu.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="how often each is measured, for a try")
    options = parser.parse_args()
    names = options.names or BENCHMARKS
    # As pip does when it installs: where Python may not write bytecode, each start would compile all modules anew, and
    # those of the other side not.
    compileall.compile_dir(ROOT / "trtconv", quiet=1)
    comparisons: list[Comparison] = []
    for name in names:
        for comparison in BENCHMARKS[name](*([options.rounds] if options.rounds else [])):
            comparisons.append(comparison)
            print(line(comparison), flush=True)
    if set(names) == set(BENCHMARKS) and not options.rounds:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(document(comparisons), indent=2) + "\n")
        print(f"wrote {RESULTS.relative_to(ROOT)}")
    return 0 if all(comparison.is_good for comparison in comparisons) else 1


def line(c: Comparison) -> str:
    verdict = "ok" if c.is_good else "TOO MUCH"
    values = (
        f"{c.ours:8.3f} / {c.reference:8.3f} {c.unit:<2}"
        if c.unit == "s"
        else f"{c.ours:8.0f} / {c.reference:8.0f} {c.unit}"
    )
    return f"{c.name:<68} {values} = {c.ratio:5.2f}  (limit {c.limit:.3g}, {c.method})  {verdict}"


def document(comparisons: list[Comparison]) -> dict[str, Any]:
    return {
        "date": datetime.date.today().isoformat(),
        "machine": {"cpu": cpu(), "cores": os.cpu_count(), "platform": platform.platform(terse=True)},
        "versions": {"python": platform.python_version(), **versions()},
        "comparisons": [{**dataclasses.asdict(c), "ratio": round(c.ratio, 3), "good": c.is_good} for c in comparisons],
    }


def cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open() as info:
            return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    raise SystemExit(main())
