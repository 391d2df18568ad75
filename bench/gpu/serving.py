"""Engines of TensorRT 8.6 as servers run them: 1 to 8 contexts, two engines at once, and a trace of requests.

    python bench/gpu/serving.py [--jobs 4] [--seconds 95] [--only NAME] [--out FOLDER]     needs TensorRT 8.6 and a GPU

First the engines are built, several at a time: a classifier of one size, and a segmenter of many, three times: with one
profile, with the same profile eight times, and with --share-profiles. Then each is served alone on the GPU, as `trtconv
bench` does: --contexts 1, 2, 4 and 8 with copies and without, one of them --beside the other, and a trace of requests
(Poisson, four sizes, at 70 % of what one context manages). More contexts than an engine with one profile has room for
have to be refused with a message, or work; both are written down.

Writes FOLDER/gpu-serving-8.6.json and prints a table. Exit status: 0 contexts 1, 2, 4 and 8 were measured on both
networks, and a trace; 1 not.
"""

from __future__ import annotations

import argparse
import random
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
from images import CLASSIFIER, SEGMENTER  # noqa: E402

NAME = "gpu-serving-8.6.json"
_COUNTS = (1, 2, 4, 8)
_BUILDING_S = 60.0
"""Seconds that the engines may take, of all."""
_TRACE_S, _BUSY = 1.0, 0.7
_BOUNDS = {"n": (1, 1, 2), "h": (128, 256, 512), "w": (128, 256, 512)}
_SIZES = ((128, 128), (256, 256), (256, 256), (384, 256), (512, 512))
"""Of the trace, height and width; one is twice as frequent."""
DYNAMIC = SEGMENTER.replace("[1, 3, 256, 256] x", "[n, 3, h, w] x").replace("[1, 8, 256, 256] y", "[n, 8, h2, w2] y")
ENGINES: dict[str, tuple[str, Row]] = {
    "classifier": (CLASSIFIER, {}),
    "alone": (DYNAMIC, {"dims": _BOUNDS}),
    "repeated": (DYNAMIC, {"profiles": [_BOUNDS] * max(_COUNTS)}),
    "shared": (DYNAMIC, {"dims": _BOUNDS, "share": True}),
}
"""Engine to its network, and how it is built."""


def main() -> int:
    given = options(__doc__, len(ENGINES))
    if given.worker:
        return serve(Server)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        names = [name for name in ENGINES if given.only in (name, "")]
        tasks: list[Row] = [{"build": name, "folder": folder} for name in names]
        building = argparse.Namespace(**{**vars(given), "seconds": min(_BUILDING_S, given.seconds)})
        built = run_script(__file__, tasks, building, NAME)
        for row in built:
            print(
                f"built {row['build']}: {row.get('failed') or row.get('why') or ''} {row.get('build_s', '')}",
                flush=True,
            )
        right = [row["build"] for row in built if "build_s" in row]
        tasks = [{"serve": name, "folder": folder, "with": right} for name in right]
        alone = argparse.Namespace(**{**vars(given), "jobs": 1, "seconds": given.seconds - (time.monotonic() - begin)})
        rows = run_script(__file__, tasks, alone, NAME)
    for row in rows:
        print(f"{row['serve']}: {row.get('failed', '')}")
        for each in row.get("loads", ()):
            print(f"    {_line(each)}")
    return 0 if _is_whole(rows) else 1


def _line(each: Row) -> str:
    if "why" in each:
        return f"{each['what']:<28} {each['why']}"
    times = each["latency"]
    return (
        f"{each['what']:<28} {each['throughput_per_s']:9.1f}/s  "
        f"p50 {times['p50_us']:8.1f}  p99 {times['p99_us']:8.1f}  "
        f"{'graph' if each['graph'] else 'plain'}  {each['memory_bytes'] / 1e6:.1f} MB  {each['power_w']} W"
    )


def _is_whole(rows: list[Row]) -> bool:
    ran = {(row["serve"], each["what"]) for row in rows for each in row.get("loads", ()) if "latency" in each}
    wanted = [f"{count} contexts" for count in _COUNTS]
    dynamic = any(all((name, what) in ran for what in wanted) for name in ("repeated", "shared"))
    return dynamic and all(("classifier", what) in ran for what in wanted) and any("trace" in what for _, what in ran)


class Server:
    """TensorRT in a child: it builds one engine, or serves one."""

    def __init__(self, family: str = "") -> None:
        from trtconv.core.target import Target

        self._target = Target(family or sys.argv[sys.argv.index("--family") + 1])

    def __call__(self, task: Row) -> Row:
        """Does what a task says."""
        from trtconv.core.errors import TrtconvError

        try:
            return self._build(task) if "build" in task else self._serve(task)
        except TrtconvError as error:
            return {"why": f"{error.message} {error.hint}"[:TEXT]}

    def _build(self, task: Row) -> Row:
        import onnx
        from refit import text_model

        import trtconv
        from trtconv.core.builder_options import BuilderOptions

        text, how = ENGINES[task["build"]]
        path = Path(task["folder"]) / f"{task['build']}.onnx"
        onnx.save(text_model(text, 86), path)
        options = BuilderOptions(optimization_level=1, tf32=False, share_profiles=how.get("share", False))
        sizes = {name: how[name] for name in ("dims", "profiles") if name in how}
        begin = time.monotonic()
        request = trtconv.BuildRequest(
            path, target=self._target, precision="fp16", prove="none", options=options, **sizes
        )
        report = trtconv.build(request)
        if report.exit_code:
            return {"why": report.findings[0].message[:TEXT]}
        return {"build_s": round(time.monotonic() - begin, 1), "bytes": report.engine.bytes if report.engine else None}

    def _serve(self, task: Row) -> Row:
        """Serves an engine in every way that is of interest for it."""
        name, folder = task["serve"], Path(task["folder"])
        engine = folder / f"{name}.engine"
        loads: list[Row] = []
        for count in (2,) if name == "alone" else _COUNTS:
            loads += measure(f"{count} contexts", engine, contexts=count)
            if name != "repeated":
                loads += measure(f"{count} contexts, no copies", engine, contexts=count, copies=False)
        if name == "shared":
            per_s = next((each["throughput_per_s"] for each in loads if "latency" in each), 0)
            trace = folder / "trace.csv"
            mean = sum(height * width for height, width in _SIZES) / len(_SIZES) / (256 * 256)
            trace.write_text(requests(per_s * _BUSY / mean), encoding="utf-8")
            for count in (1, 2, 4):
                loads += measure(f"trace, {count} contexts", engine, contexts=count, arrivals=trace)
            if "classifier" in task["with"]:
                beside = (folder / "classifier.engine",)
                loads += measure("beside the classifier", engine, contexts=2, beside=beside)
        return {"loads": loads}


def requests(per_s: float) -> str:
    """Returns a table of requests that come at random, so many a second."""
    if per_s <= 0:
        return "time,n,h,w\n0,1,256,256\n"
    generator, now, lines = random.Random(86), 0.0, ["time,n,h,w"]
    while now < _TRACE_S:
        now += generator.expovariate(per_s)
        height, width = generator.choice(_SIZES)
        lines.append(f"{now:.6f},1,{height},{width}")
    return "\n".join(lines) + "\n"


def measure(what: str, engine: Path, **asked: Any) -> list[Row]:
    """Returns what `trtconv bench` measures, in this process: the start of another takes longer than all the rest."""
    import json

    from trtconv.core.documents.bench import BenchReport
    from trtconv.core.errors import TrtconvError
    from trtconv.core.requests.bench import BenchRequest
    from trtconv.engine.benching import serve as time_engine
    from trtconv.engine.hearing import Hearing

    lasting = {} if "arrivals" in asked else {"duration": 0.5}
    try:
        with Hearing(BenchReport, None) as hearing:
            time_engine(
                BenchRequest(engine, warmup=0.2, **lasting, **asked),
                lambda event: hearing(json.loads(json.dumps(event))),
            )
    except TrtconvError as error:
        return [{"what": what, "why": f"{error.message} {error.hint}"[:TEXT]}]
    assert hearing.report is not None
    seen: dict[str, Row] = {}
    for load in hearing.report.loads:
        # Of an engine with a profile several times, all are the same.
        name = what if load.engine == 0 else f"{what}, the other"
        seen.setdefault(name, {"what": name, **load.to_json()})
    return list(seen.values())


if __name__ == "__main__":
    sys.exit(main())
