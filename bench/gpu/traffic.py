"""What requests of three kinds cost on TensorRT 8.6 in the profiles of plan-profiles: predicted, and measured.

    python bench/gpu/traffic.py [--jobs 4] [--seconds 240] [--out FOLDER]      needs TensorRT 8.6 and a GPU

First a segmenter with five profiles is timed as `trtconv bench` does, at min, opt and max of each: all that the
predictions are made from (--measured). Then for each kind of traffic three engines are built: with the planned
profiles, with the best one profile, and with --split auto; each size of the requests is timed where the dispatcher
sends it, as a CUDA graph without copies. The cost is the mean of a request, in microseconds.

Writes FOLDER/gpu-traffic-8.6.json, after every row, and prints a table. Exit status: 0 all three were measured, each
at most 10 % from its prediction; 1 not.
"""

from __future__ import annotations

import contextlib
import datetime
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

from children import Children, Row, options, serve  # noqa: E402

NAME = "gpu-traffic-8.6.json"
_SIDES = (64, 128, 256, 512)
_WITHIN = 0.1
NET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3, h, w] x) => (float[n, 8, h2, w2] y)
<float[32, 3, 3, 3] w0, float[64, 32, 3, 3] w1, float[64, 64, 3, 3] w2, float[64, 32, 4, 4] w3, float[32, 8, 4, 4] w4>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w0)
  b = Relu (a)
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, w1)
  d = Relu (c)
  e = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (d, w2)
  f = Relu (e)
  g0 = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]> (f, w3)
  i = Relu (g0)
  y = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]> (i, w4)
}
"""
TRAFFICS = {
    "one size": {(256, 256): 1000, (384, 256): 30, (512, 512): 10},
    "two sizes": {(64, 64): 1000, (60, 64): 200, (512, 512): 300, (480, 512): 50},
    "many sizes": {(h, w): 100 * 64 * 64 // h // w + 1 for h in range(64, 513, 64) for w in range(64, 513, 128)},
}
"""Kind of traffic to height and width of its requests, and how many there are."""
_WAYS = ("planned", "one", "auto")


def main() -> int:
    given = options(__doc__, len(_WAYS), seconds=240)
    if given.worker:
        return serve(Builder)
    given.out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    end = begin + given.seconds
    rows: list[Row] = []

    def done(task: Row, answer: Row) -> None:
        rows.append({**task, **answer})
        document = {"date": str(datetime.date.today()), "rows": rows, "seconds": time.monotonic() - begin}
        (given.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"{time.monotonic() - begin:5.0f} s  {told(rows[-1])}", flush=True)

    command = [sys.executable, str(Path(__file__).resolve()), "--worker", "--family", given.family]
    with tempfile.TemporaryDirectory() as folder, Children(command, given.jobs) as children:
        children.run([{"do": "time", "folder": folder}], end - 5, end, done)
        for traffic in TRAFFICS if "times" in rows[0] else ():
            tasks: list[Row] = [{"do": "build", "traffic": traffic, "way": way, "folder": folder} for way in _WAYS]
            children.run(tasks, end - 5, end, done)
            built = [row for row in rows if row.get("traffic") == traffic and "runs" in row]
            for row in built:  # One after the other: the GPU is for one alone.
                children.run([{**row, "do": "measure"}], end - 5, end, done)
    measured = [row for row in rows if "measured" in row]
    for row in measured:
        print(told(row))
    near = [row for row in measured if row["way"] == "planned" and abs(off(row)) <= _WITHIN]
    return 0 if len(near) == len(TRAFFICS) else 1


def off(row: Row) -> float:
    """Returns how far a measured cost is from its prediction, as a share of that."""
    return float(row["measured"] / row["predicted"] - 1)


def told(row: Row) -> str:
    """Returns a row as a line of text."""
    what = f"{row['do']:<7} {row.get('traffic', ''):<11} {row.get('way', ''):<8}"
    if "failed" in row or "why" in row:
        return f"{what} {row.get('failed') or row.get('why')}"
    if "measured" in row:
        costs = f"{row['measured']:.1f} us, predicted {row['predicted']:.1f} ({off(row):+.1%})"
        return f"{what} {row['profiles']} profiles: {costs}"
    return f"{what} {row.get('times') or row['engine']}"


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
            return {"why": f"{error.message} {error.hint}"[:300]}

    def _time(self, folder: Path) -> Row:
        """Times the network in profiles for some sizes, as bench does, and writes what it found."""
        import onnx
        from refit import text_model

        from trtconv.core.documents.bench import BenchReport
        from trtconv.core.requests.bench import BenchRequest
        from trtconv.engine.benching import serve as bench
        from trtconv.engine.hearing import Hearing

        onnx.save(text_model(NET, 86), folder / "net.onnx")
        least, most = _SIDES[0], _SIDES[-1]
        ranges = [{"n": 1, "h": (least, side, most), "w": (least, side, most)} for side in _SIDES]
        self._engine(folder, "times", profiles=ranges)
        with Hearing(BenchReport, None) as heard:
            bench(BenchRequest(folder / "times.engine", warmup=0.1, duration=0.1), heard)
        report = heard.report
        assert report is not None
        (folder / "bench.json").write_text(json.dumps(report.to_json()), encoding="utf-8")
        rows = [row for row in report.rows if row.graph and not row.copies]
        return {"times": [[row.profile, row.size, row.shapes["x"], row.median_us] for row in rows]}

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
            came = TRAFFICS[task["traffic"]].items()
            opts = plan.profiles[0].dims
            sides = {name: [size[at] for size, _ in came] for at, name in enumerate("hw")}
            dims = {name: (min(each), opts[name].opt, max(each)) for name, each in sides.items()}
            report = self._engine(folder, name, dims={"n": 1, **dims}, split="auto")
            runs = [[_first(report.profiles, _shapes(*size)), _shapes(*size), count] for size, count in came]
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
            timing_cache=folder / "timing.cache",
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
                execution.microseconds(launch, 1000)
                times = [execution.microseconds(launch) for _ in range(200)]
            found.append(round(statistics.median(times), 2))
        return found


def _shapes(height: int, width: int) -> Row:
    return {"x": (1, 3, height, width)}


def _first(profiles: Any, shapes: Row) -> int:
    from trtconv.engine.profiles import profile_for

    return profile_for(profiles, shapes)


if __name__ == "__main__":
    sys.exit(main())
