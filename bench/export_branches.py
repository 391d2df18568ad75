"""`trtconv export` on generated modules with a branch, by every way of Python and by sizes, values or neither.

    python bench/export_branches.py [--modules 100] [--seed 0] [-o bench/results/export_branches.json]

Each is exported with height and width from 8 to 40; what is written is held to PyTorch on ONNX Runtime at sizes of both
sides of its branch, with zeros, large values, NaN, and masks that are all true and all false. Ends with 1 where a file
is wrong at a size of its rule, or a refusal does not name the line that decides.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.branch_modules import Outcome, Source, outcome, sources

ROOT = Path(__file__).resolve().parents[1]


def _outcome(source: Source, folder: Path, name: str) -> tuple[str, Outcome | None, str]:
    try:
        found = outcome(source, folder, name)
    except Exception:
        return "raised", None, traceback.format_exc(limit=-3)
    return found.verdict.name, found, found.why


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "export_branches.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    rest, seen, begun = [], set(), time.process_time()

    with tempfile.TemporaryDirectory() as folder:

        @seed(args.seed)
        @settings(
            max_examples=args.modules,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(sources())
        def export(source: Source) -> None:
            if source.text in seen:
                return
            seen.add(source.text)
            verdict, found, why = _outcome(source, Path(folder), f"net_{len(seen)}")
            counts[source.by.value][verdict] += 1
            if found is None or not found.good:
                rest.append({"by": source.by.value, "verdict": verdict, "why": why, "branch": source.branch})
                print(f"{verdict} ({source.by.value}): {why}\n{source.branch}", flush=True)

        export()
    seconds = round(time.process_time() - begun, 1)
    result = {"modules": len(seen), "seed": args.seed, "counts": counts, "processor_seconds": seconds, "others": rest}
    args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("modules", "counts", "processor_seconds")}))
    sys.exit(any(each["verdict"] in ("WRONG", "UNNAMED", "raised") for each in rest))


if __name__ == "__main__":
    main()
