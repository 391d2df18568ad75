"""Where the opts of several profiles should sit: how one profile's latency depends on the distance to its opt.

    python bench/gpu/splits.py --output splits.json [--minutes 3.8] [--workers 4] [--width 48] [--levels 3]

TensorRT builds every profile of an engine by itself, so a division into profiles is known once its parts are. This
builds one engine a part (a box min, opt, max, both in height and in width; fp16; the U-Net of profiles.py), and a
static engine a size, then times each at every size in its box. From these the latency of any division follows: at each
size it is that of the part which `trtconv.load_report(...).profile_for` would choose, whose opt is nearest in factors.

Builds run in `--workers` processes, since they are bound by the CPU; tactics that are timed beside another build are
a little noisy, so the figures choose a strategy and do not prove it: profiles.py does. Parts are built in order of
importance until the time is up, and an output that is there is continued. Results are written as they come.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from profiles import CLASSES, SIZES, Cuda, Engine, unet

import trtconv
from trtconv.shapes import Range

Box = tuple[int, int, int]
LOW, HIGH = 64, 1024
BETWEEN = (96, 192, 320, 448, 640, 896)
"""Sizes that no strategy was made for; their reference is the fastest part."""
BOXES: tuple[Box, ...] = (
    (256, 256, 256),
    (LOW, 256, HIGH),
    (LOW, 128, HIGH),
    (LOW, 512, HIGH),
    (LOW, 1024, HIGH),
    (384, 384, 384),
    (768, 768, 768),
    (LOW, 360, HIGH),
    (512, 512, 512),
    (128, 128, 128),
    (64, 64, 64),
    (1024, 1024, 1024),
    (LOW, 184, HIGH),
    (LOW, 728, HIGH),
    (256, 256, 512),
    (256, 360, 512),
    (256, 512, 512),
    (LOW, 64, HIGH),
    (LOW, 128, 256),
    (512, 512, 1024),
    (512, 1024, 1024),
    (LOW, 96, HIGH),
    (LOW, 192, HIGH),
    (LOW, 384, HIGH),
    (LOW, 768, HIGH),
)
STRATEGIES: dict[str, tuple[int, ...]] = {
    "1 part, opt 512": (512,),
    "3 parts, middle": (128, 360, 728),
    "3 parts, low": (128, 256, 512),
    "3 parts, top": (256, 512, 1024),
    "4 parts, middle": (96, 184, 360, 728),
    "4 parts, low": (64, 128, 256, 512),
    "4 parts, top": (128, 256, 512, 1024),
    "5 parts": (64, 128, 256, 512, 1024),
    "5 parts, thirds": (96, 192, 384, 768, 1024),
}
"""Divisions of 64 to 1024 by their opts; parts that meet and parts that all begin at 64 have the same opts."""


def build(model: str, engine: str, box: Box, precision: str, family: str) -> dict[str, Any]:
    """Builds the engine of one part; runs in a process of its own."""
    started, used = time.monotonic(), time.process_time()
    profile = {"height": Range(*box), "width": Range(*box)}
    target = trtconv.Target(family)
    report = trtconv.build(
        trtconv.BuildRequest(Path(model), Path(engine), target=target, precision=precision, profiles=(profile,))
    )
    if report.exit_code:
        raise RuntimeError(f"{box}: {[f.message for f in report.findings]}")
    return {
        "box": box,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
        "engine_bytes": Path(engine).stat().st_size,
        "gpu": report.runtime["gpu"],
        "tensorrt": report.runtime["version"],
    }


def build_all(arguments: argparse.Namespace, folder: Path, results: dict[str, Any]) -> dict[Box, Path]:
    """Builds the parts in order while there is time; what is not done by then is given up."""
    deadline = time.monotonic() + 60 * arguments.minutes
    model = folder / "unet.onnx"
    onnx.save(unet(arguments.width, arguments.convolutions, None, arguments.levels), model)
    done = {tuple(map(int, name.split(":"))) for name in results["latencies_us"]}
    waiting = [box for box in BOXES if box not in done]
    pool = ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn"))
    running: dict[Any, Box] = {}
    made: dict[Box, Path] = {}
    slowest = 0.0
    while waiting or running:
        left = deadline - time.monotonic()
        while waiting and len(running) < arguments.workers and left > slowest:
            box = waiting.pop(0)
            path = folder / f"{_name(box).replace(':', '_')}.engine"
            running[pool.submit(build, str(model), str(path), box, arguments.precision, arguments.family)] = box
        if not running or left <= 0:
            break
        finished, _ = wait(running, timeout=left, return_when=FIRST_COMPLETED)
        for future in finished:
            box = running.pop(future)
            row = future.result()
            made[box] = folder / f"{_name(box).replace(':', '_')}.engine"
            slowest = max(slowest, row["seconds"])
            results["builds"].append(row)
            print(f"built {_name(box)} in {row['seconds']} s, {deadline - time.monotonic():.0f} s left", flush=True)
    results["given_up"] = [_name(box) for box in (*running.values(), *waiting)]
    # A build cannot be interrupted; its process can.
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
        process.join()
    return made


def time_all(engines: Mapping[Box, Path], results: dict[str, Any], save: Any) -> None:
    """Times every engine at every size in its box."""
    import tensorrt as trt

    cuda = Cuda()
    x, y = cuda.allocate(4 * 3 * HIGH * HIGH), cuda.allocate(4 * CLASSES * HIGH * HIGH)
    cuda.fill(x, np.random.default_rng(0).standard_normal(3 * HIGH * HIGH).astype(np.float32))
    loaded = {box: Engine(trt, cuda, path, (x, y)) for box, path in engines.items()}
    for size in sorted((*SIZES, *BETWEEN)):
        runs = {}
        for box, engine in loaded.items():
            if box[0] <= size <= box[2]:
                launch, graph = engine.prepare(size, 0)
                runs[_name(box)] = graph or launch
        for name, latency_us in _turns(cuda, runs).items():
            results["latencies_us"].setdefault(name, {})[str(size)] = latency_us
        save()


def _turns(cuda: Cuda, runs: Mapping[str, Any], rounds: int = 15) -> dict[str, float]:
    """Times all in turns; the median of each, in microseconds."""
    once = {name: cuda.microseconds(run, 3) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs) if turn % 2 else reversed(list(runs)):
            repeats = max(3, min(20, int(3000 / once[name])))
            cuda.microseconds(runs[name], 2)
            times[name].append(cuda.microseconds(runs[name], repeats))
    return {name: round(statistics.median(values), 2) for name, values in times.items()}


def judge(latencies: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Says what each strategy costs at each size: the ratio to the static engine, or else to the fastest part."""
    table: dict[str, Any] = {}
    for title, opts in STRATEGIES.items():
        boxes = {opt: _name((LOW, opt, HIGH)) for opt in opts}
        missing = [name for name in boxes.values() if name not in latencies]
        if missing:
            table[title] = {"missing": missing}
            continue
        ratios = {}
        for size in sorted((*SIZES, *BETWEEN)):
            nearest = min(opts, key=lambda opt: abs(math.log(opt / size)))
            ratios[size] = round(latencies[boxes[nearest]][str(size)] / reference(latencies, size), 3)
        table[title] = {
            "ratios": ratios,
            "worst": max(ratios[size] for size in SIZES),
            "worst_between": max(ratios[size] for size in BETWEEN),
        }
    return table


def reference(latencies: Mapping[str, Mapping[str, float]], size: int) -> float:
    """Returns what a latency is compared with, in microseconds."""
    static = latencies.get(_name((size, size, size)), {}).get(str(size))
    return static or min(row[str(size)] for row in latencies.values() if str(size) in row)


def _name(box: Sequence[int]) -> str:
    return ":".join(map(str, box))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.4, help="for building; timing takes some 20 s more")
    parser.add_argument("--workers", type=int, default=4, help="builds at a time")
    parser.add_argument("--width", type=int, default=48, help="channels of the first level")
    parser.add_argument("--convolutions", type=int, default=1, help="3x3 convolutions a level")
    parser.add_argument("--levels", type=int, default=3, help="how often the size is halved")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--family", default="tensorrt", help="rtx builds here without a GPU, and then cannot be timed")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"builds": [], "latencies_us": {}}
    if arguments.output.exists():
        results = json.loads(arguments.output.read_text())
    settings = {name: getattr(arguments, name) for name in ("width", "convolutions", "levels", "precision", "workers")}
    results.setdefault("runs", []).append(settings)

    def save() -> None:
        results["strategies"] = judge(results["latencies_us"])
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as folder:
        engines = build_all(arguments, Path(folder), results)
        save()
        time_all(engines, results, save)
    for title, row in results["strategies"].items():
        print(f"{title:20}", row.get("worst", "-"), row.get("worst_between", "-"), row.get("ratios", row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
