"""Networks that TensorRT 8.6 does not take whole, in parts: right beside ONNX Runtime, and what the crossing costs.

    python bench/gpu/pipelines.py [--out FOLDER] [--budget SECONDS]      needs TensorRT 8.6 and a GPU

A detector with NonMaxSuppression, a text network with NonZero, and a network with an operator in its middle that only
ONNX Runtime has (tests/support/partition_nets.py). TensorRT 8.6 takes the first two operators itself; they are left to
ONNX Runtime here (--leave), as TensorRT-RTX makes it necessary. Each is built with `build --partition`, opened with
`load_pipeline`, and run at ten sizes: the whole beside the model, and every engine beside its part, given what the
model has there. Times are those at opt, in microseconds: `engine` without copies, `copies` with those from and to
pinned memory of the host, `run` as `Pipeline.run` does it, with its allocations.
Writes FOLDER/gpu-pipelines-8.6.json after every network.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.partition_nets import BOUNDS, write  # noqa: E402
from trtconv.core.builder_options import BuilderOptions  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.requests.build import BuildRequest  # noqa: E402

NAME = "gpu-pipelines-8.6.json"
LEAVE = {"detector": ("type:NonMaxSuppression",), "packer": ("type:NonZero",), "matcher": ()}
MORE = {"packer": {"packed:0": "1:32:128"}}
"""Bounds of sizes that only values tell: what follows is then an engine too."""
TOLERANCE = 2e-2
"""That of TF32, as `verify` has it."""
RUNS = 30
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=40, metavar="SECONDS", help="begin nothing after that")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("matcher", "detector", "packer"):
            if time.monotonic() - started > options.budget:
                rows.append({"name": name, "failed": "no time was left"})
                continue
            try:
                rows.append(measured(name, Path(folder)))
            except Exception as error:
                traceback.print_exc()
                rows.append({"name": name, "failed": f"{type(error).__name__}: {error}"})
            (options.out / NAME).write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    show(rows)
    print(f"{time.monotonic() - started:.1f} s")
    return 0 if all(row.get("right") for row in rows) else 1


def measured(name: str, folder: Path) -> Row:
    """Builds, compares and times one network."""
    from trtconv.engine.pipelines import load_pipeline
    from trtconv.pipeline.partitioning import build_pipeline

    model = write(name, folder)
    dims = {dim: Range.parse(text) for dim, text in {**BOUNDS[name], **MORE.get(name, {})}.items()}
    began = time.monotonic()
    request = BuildRequest(
        model=model,
        dims=dims,
        partition=True,
        leave=LEAVE[name],
        prove="none",
        options=BuilderOptions(optimization_level=1),
    )
    report = build_pipeline(request)
    if report.pipeline is None:
        return {"name": name, "failed": "; ".join(f.message for each in report.engines for f in each.findings)}
    row: Row = {
        "name": name,
        "parts": [part.kind.value for part in report.pipeline.parts],
        "crossings": [crossing.to_json() for crossing in report.pipeline.crossings],
        "left": [f"{left.op}: {left.reason}" for left in report.pipeline.left],
        "build_s": round(time.monotonic() - began, 2),
    }
    path = Path(str(report.path))
    with load_pipeline(path) as pipeline, load_pipeline(path, engines="onnxruntime") as parts:
        row.update(compared(model, pipeline, parts))
        try:
            row["times_us"] = times(model, pipeline)
        except Exception as error:
            # What was compared is not lost with it.
            row["times_us"], row["untimed"] = [], f"{type(error).__name__}: {error}"
    return row


def compared(model: Path, pipeline: Any, parts: Any) -> Row:
    """Runs ten sizes, as `verify` does."""
    from trtconv.core.requests.engine import VerifyRequest
    from trtconv.engine.cases import make_feeds
    from trtconv.engine.pipeline_verifying import PipelineJudge, cases_of
    from trtconv.engine.runs import OnnxRuns
    from trtconv.graph.model import OnnxModel

    loaded = OnnxModel.load(model)
    request = VerifyRequest(model=model)
    judge = PipelineJudge(request, loaded, pipeline, parts, OnnxRuns(loaded))
    cases = [judge.case(case, make_feeds(loaded, case, None)) for case in cases_of(pipeline.saved, loaded, request)]

    def worst(differences: Any) -> float:
        return max((each.max_rel for each in differences if each.max_rel == each.max_rel), default=0.0)

    return {
        "sizes": len(cases),
        "right": bool(cases) and all(case.case.passed for case in cases),
        "selects_otherwise": sum(case.selects_otherwise for case in cases),
        "cut_error": max(worst(case.cut) for case in cases),
        "engine_error": max(worst(case.engines) for case in cases),
        "whole_error": max(worst(case.case.outputs) for case in cases),
        "failed_at": [f"{case.case.size}: {case.case.skipped}" for case in cases if case.case.passed is not True],
    }


def times(model: Path, pipeline: Any) -> list[Row]:
    """Times every part at opt."""
    from trtconv.core.requests.engine import VerifyRequest
    from trtconv.engine.cases import make_feeds
    from trtconv.engine.pipeline_verifying import cases_of
    from trtconv.graph.model import OnnxModel

    loaded = OnnxModel.load(model)
    opt = next(case for case in cases_of(pipeline.saved, loaded, VerifyRequest(model=model)) if case.size == "opt")
    feeds = make_feeds(loaded, opt, None)
    tensors, _ = pipeline.run_all(feeds)
    walls = [[each.seconds for each in pipeline.run_all(feeds)[1]] for _ in range(RUNS)]
    found = []
    for number, part in enumerate(pipeline.parts):
        row: Row = {"part": number + 1, "kind": part.record.kind.value}
        row["run"] = round(1e6 * statistics.median(wall[number] for wall in walls), 1)
        if part.subject is not None:
            given = {each.name: tensors[each.name] for each in part.record.inputs}
            _, profile = part.run(given)
            with part.runs.execution(profile) as execution:
                execution.feed(given)
                for key, copies in (("engine", False), ("copies", True)):
                    launch = execution.launcher(graph=False, copies=copies)
                    execution.microseconds(launch, 10)
                    row[key] = round(execution.microseconds(launch, RUNS) / RUNS, 1)
        found.append(row)
    return found


def show(rows: list[Row]) -> None:
    """Prints a table."""
    for row in rows:
        if "failed" in row:
            print(f"{row['name']:10} FAILED {row['failed']}")
            continue
        print(
            f"{row['name']:10} {'right' if row['right'] else 'WRONG'} at {row['sizes']} sizes, parts {row['parts']}, "
            f"cut {row['cut_error']:.1e}, engines {row['engine_error']:.1e}, whole {row['whole_error']:.1e}, "
            f"selects otherwise {row['selects_otherwise']}, built in {row['build_s']} s {row['failed_at'] or ''}"
        )
        if "untimed" in row:
            print(f"{'':10}   not timed: {row['untimed']}")
        for each in row["times_us"]:
            spent = "  ".join(f"{key} {each[key]}" for key in ("engine", "copies", "run") if key in each)
            print(f"{'':10}   part {each['part']} {each['kind']:6} {spent}")


if __name__ == "__main__":
    sys.exit(main())
