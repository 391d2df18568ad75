"""What requests of three kinds cost on TensorRT 8.6 in the profiles of plan-profiles: predicted, and measured.

    python bench/gpu/traffic.py [--jobs 4] [--seconds 95] [--out FOLDER]      needs TensorRT 8.6 and a GPU

First a segmenter is timed at the opts of five profiles, all that the prediction is made from (--measured). Then for
each kind of traffic three engines are built: with the planned profiles, with the best one profile, and with --split
auto; each size of the requests is timed where the dispatcher sends it, as a CUDA graph without copies. The cost is the
mean of a request, in microseconds.

Writes FOLDER/gpu-traffic-8.6.json and prints a table. Exit status: 0 all three were measured, each at most 10 % from
its prediction; 1 not.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests")]

from children import Row, options, run_script, serve  # noqa: E402
from formats import TEXT  # noqa: E402
from serving import DYNAMIC  # noqa: E402

NAME = "gpu-traffic-8.6.json"
_SIDES = (128, 192, 256, 384, 512)
_WITHIN = 0.1
TRAFFICS = {
    "one size": {(256, 256): 1000, (384, 256): 30, (512, 512): 10},
    "two sizes": {(128, 128): 1000, (120, 128): 200, (512, 512): 300, (480, 512): 50},
    "many sizes": {(h, w): 100 * 128 * 128 // h // w + 1 for h in range(128, 513, 64) for w in range(128, 513, 128)},
}
"""Kind of traffic to height and width of its requests, and how many there are."""
_WAYS = ("planned", "one", "auto")


def main() -> int:
    given = options(__doc__, len(TRAFFICS) * len(_WAYS))
    if given.worker:
        return serve(Builder)
    begin = time.monotonic()

    def run(tasks: list[Row], jobs: int, seconds: float) -> list[Row]:
        left = min(seconds, given.seconds - (time.monotonic() - begin))
        return run_script(__file__, tasks, argparse.Namespace(**{**vars(given), "jobs": jobs, "seconds": left}), NAME)

    with tempfile.TemporaryDirectory() as folder:
        (timed,) = run([{"do": "time", "folder": folder}], 1, 40)
        print(f"times: {timed.get('times') or timed.get('failed') or timed.get('why')}", flush=True)
        tasks: list[Row] = [{"do": "build", "traffic": t, "way": w, "folder": folder} for t in TRAFFICS for w in _WAYS]
        built = run(tasks if "times" in timed else [], given.jobs, 60)
        ready = [{**row, "do": "measure", "folder": folder} for row in built if "runs" in row]
        rows = run(ready, 1, 95)
    lost = [row for row in built if "runs" not in row]
    document = {"times": timed, "rows": [*rows, *lost], "seconds": time.monotonic() - begin}
    (given.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    right = 0
    for row in [*rows, *lost]:
        told = f"{row['traffic']:<11} {row['way']:<8}"
        if "measured" not in row:
            print(f"{told} {row.get('failed') or row.get('why')}")
            continue
        measured, predicted = row["measured"], row["predicted"]
        off = measured / predicted - 1
        right += row["way"] == "planned" and abs(off) <= _WITHIN
        print(f"{told} {row['profiles']} profiles: {measured:.1f} us, predicted {predicted:.1f} ({off:+.1%})")
    return 0 if right == len(TRAFFICS) else 1


class Builder:
    """TensorRT in a child: it builds and times."""

    def __init__(self, family: str = "") -> None:
        from trtconv.core.target import Target
        from trtconv.runtimes import tensorrt

        self._target = Target(family or sys.argv[sys.argv.index("--family") + 1])
        self._runtime = tensorrt.load(self._target)

    def __call__(self, task: Row) -> Row:
        """Does what a task says."""
        from trtconv.core.errors import TrtconvError

        folder = Path(task["folder"])
        try:
            if task["do"] == "time":
                return self._time(folder)
            return self._build(task, folder) if task["do"] == "build" else self._measure(task, folder)
        except TrtconvError as error:
            return {"why": f"{error.message} {error.hint}"[:TEXT]}

    def _time(self, folder: Path) -> Row:
        """Times the network at some sizes, each in a profile of its own, and writes that as bench does."""
        import onnx
        from refit import text_model

        from trtconv.core.documents.bench import BenchReport, BenchRow

        onnx.save(text_model(DYNAMIC, 86), folder / "net.onnx")
        self._engine(folder, "times", profiles=[{"n": 1, "h": side, "w": side} for side in _SIDES])
        shapes = [{"x": (1, 3, side, side)} for side in _SIDES]
        times = self._us(folder / "times.engine", list(enumerate(shapes)))
        rows = [
            BenchRow(0, number, "opt", shape, True, False, 9, us)
            for number, (shape, us) in enumerate(zip(shapes, times, strict=True))
        ]
        (folder / "bench.json").write_text(json.dumps(BenchReport((), tuple(rows)).to_json()), encoding="utf-8")
        return {"times": dict(zip(map(str, _SIDES), times, strict=True))}

    def _build(self, task: Row, folder: Path) -> Row:
        """Plans, and builds an engine; returns where each size runs, and what the plan says of the cost."""
        from trtconv.core.requests.traffic import PlanProfilesRequest
        from trtconv.shapes.planning.writing import plan_profiles

        name = f"{task['traffic']} {task['way']}".replace(" ", "-")
        table = folder / f"{name}.csv"
        lines = [f"{count},1,{h},{w}" for (h, w), count in TRAFFICS[task["traffic"]].items()]
        table.write_text("\n".join(["count,n,h,w", *lines]) + "\n", encoding="utf-8")
        most = 4 if task["way"] == "planned" else 1
        plan = plan_profiles(
            PlanProfilesRequest(table, folder / "net.onnx", profiles=most, measured=(folder / "bench.json",))
        )
        runs = [[run.profile, dict(run.shapes), run.requests] for run in plan.runs]
        predicted = plan.cost.per_request
        if task["way"] == "auto":
            report = self._engine(folder, name, dims=dict(plan.profiles[0].dims), split="auto")
            runs = [[_first(report.profiles, shapes), shapes, requests] for _, shapes, requests in runs]
            predicted *= plan.cost.auto / plan.cost.planned
        else:
            report = self._engine(folder, name, profiles=[dict(each.dims) for each in plan.profiles])
        return {"runs": runs, "predicted": predicted, "profiles": len(report.profiles), "engine": f"{name}.engine"}

    def _measure(self, task: Row, folder: Path) -> Row:
        times = self._us(folder / task["engine"], [(profile, shapes) for profile, shapes, _ in task["runs"]])
        requests = [count for _, _, count in task["runs"]]
        total = sum(us * count for us, count in zip(times, requests, strict=True))
        return {"measured": round(total / sum(requests), 2), "us": times}

    def _engine(self, folder: Path, name: str, **sizes: Any) -> Any:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions

        request = trtconv.BuildRequest(
            folder / "net.onnx",
            engine=folder / f"{name}.engine",
            target=self._target,
            precision="fp16",
            prove="none",
            options=BuilderOptions(optimization_level=2, tf32=False),
            **sizes,
        )
        report = trtconv.build(request)
        if report.exit_code:
            raise RuntimeError(report.findings[0].message)
        return report

    def _us(self, path: Path, runs: list[tuple[int, Row]]) -> list[float]:
        """Returns the microseconds of an inference at each of some shapes, in the profiles that are named."""
        from trtconv.runtimes.inputs import inputs_at

        engine, found = self._runtime.engines().load(path.read_bytes()), []
        for profile, shapes in runs:
            with contextlib.closing(engine.open(profile)) as execution:
                execution.feed(inputs_at(engine.tensors, {name: tuple(shape) for name, shape in shapes.items()}, {}))
                launch = execution.launcher(graph=True, copies=False) or execution.launcher(graph=False, copies=False)
                assert launch is not None
                execution.microseconds(launch, 100)
                times = [execution.microseconds(launch, 20) / 20 for _ in range(15)]
            found.append(round(statistics.median(times), 2))
        return found


def _first(profiles: Any, shapes: Row) -> int:
    from trtconv.engine.profiles import profile_for

    return profile_for(profiles, shapes)


if __name__ == "__main__":
    sys.exit(main())
