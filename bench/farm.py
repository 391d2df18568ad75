"""A farm on this machine: two workers against one, what a job costs beside its build, and what it holds in memory.

    python bench/farm.py [--unets 20] [--jobs 1000]

Writes bench/results/farm.json. In the second measurement the workers build one engine and return it for every job, so
that all is measured but the builder: reading, hashing and sending the model, the scheduler, the checks of what comes
back, and the writing of engine and report, each with fsync.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.farm import LocalFarm  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.requests.build import BuildRequest  # noqa: E402
from trtconv.core.requests.farm import FarmRequest  # noqa: E402
from trtconv.core.selection import Selection  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.engine.farm.cluster import Farm  # noqa: E402

SIZES = {"batch": Range(1, 1, 4), "height": Range(64, 128, 512), "width": Range(64, 128, 512)}
FIXED = {name: Range(size, size, size) for name, size in (("batch", 1), ("height", 64), ("width", 64))}
CANNED = """
from trtconv.engine.farm.running import JobRunner
real, known = JobRunner.run, []
def run(self, job, fetch, unwanted=None):
    for sha, size in job.files.items():
        fetch(sha, size)
    known[:] = known or [real(self, job, fetch, unwanted)]
    document, engine = known[0]
    return {**document, "job": job.name}, engine
JobRunner.run = run
"""
"""Worker code: builds once."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unets", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1000)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    found = {"cores": os.cpu_count(), "load_before": round(load, 1), "speedup": speedup(options.unets)}
    found["small_jobs"] = small_jobs(options.jobs)
    found["load_after"] = round(os.getloadavg()[0], 1)
    print(json.dumps(found, indent=2))
    (ROOT / "bench" / "results" / "farm.json").write_text(json.dumps(found, indent=2) + "\n")


def speedup(number: int) -> dict[str, Any]:
    """Builds the same U-Nets with one worker and with two, in turns of half of them."""
    seconds = {1: 0.0, 2: 0.0}
    with tempfile.TemporaryDirectory() as name, LocalFarm(folder_in(name)) as farm:
        farm.worker("one")
        models = unets(Path(name), number)
        timed(farm, models[:1])
        halves = models[: number // 2], models[number // 2 :]
        seconds[1] += sum(timed(farm, half)[0] for half in halves[:1])
        farm.worker("two")
        timed(farm, models[:2])
        seconds[2] += sum(timed(farm, half)[0] for half in halves)
        farm.kill("two")
        seconds[1] += timed(farm, halves[1])[0]
    ratio = round(seconds[1] / seconds[2], 2)
    return {
        "unets": number,
        "one_worker_s": round(seconds[1], 1),
        "two_workers_s": round(seconds[2], 1),
        "times": ratio,
    }


def small_jobs(number: int) -> dict[str, Any]:
    """Runs jobs that cost nothing but their way."""
    with tempfile.TemporaryDirectory() as name, LocalFarm(folder_in(name)) as farm:
        farm.worker("one", code=CANNED)
        (model,) = unets(Path(name), 1)
        # Jobs that differ in what makes no other engine.
        requests = [
            BuildRequest(
                model,
                Path(name, f"{index}.engine"),
                dims=FIXED,
                target=Target("rtx"),
                prove="none",
                selection=Selection(ignore={"TC999": f"job {index}"}),
            )
            for index in range(number)
        ]
        run(farm, requests[:1])
        load, before = os.getloadavg()[0], farm_processor(farm)
        first, memory = timed_requests(farm, requests[1 : number // 10], farm_memory)
        rest, after = timed_requests(farm, requests[number // 10 :], farm_memory)
        count = number - number // 10
        used = {name: round((spent - before[name]) / (number - 1), 1) for name, spent in farm_processor(farm).items()}
        return {
            "jobs": number,
            "model_bytes": model.stat().st_size,
            "ms_per_job": round(rest / count * 1000, 1),
            "ms_per_job_of_the_first_tenth": round(first / max(1, number // 10 - 1) * 1000, 1),
            "processor_ms_per_job": used,
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "mib_after_a_tenth": memory,
            "mib_after_all": after,
        }


def folder_in(name: str) -> Path:
    folder = Path(name, "farm")
    folder.mkdir()
    return folder


def unets(folder: Path, number: int) -> list[Path]:
    """Writes U-Nets that are as good as different ones: equal ones would be one job."""
    proto = onnx.load(ROOT / "models" / "unet.onnx")
    paths = []
    for index in range(number):
        proto.doc_string = f"number {index}"
        paths.append(folder / f"m{index}.onnx")
        onnx.save(proto, paths[-1])
    return paths


def timed(farm: LocalFarm, models: list[Path]) -> tuple[float, dict[str, int]]:
    return timed_requests(
        farm, [BuildRequest(model, dims=SIZES, target=Target("rtx"), prove="none", force=True) for model in models]
    )


def timed_requests(farm: LocalFarm, requests: list[BuildRequest], look: Any = None) -> tuple[float, dict[str, int]]:
    """Returns the seconds that requests take, and what `look` sees after them."""
    started = time.perf_counter()
    run(farm, requests)
    return time.perf_counter() - started, look(farm) if look else {}


def run(farm: LocalFarm, requests: list[BuildRequest]) -> None:
    for _, result in Farm(FarmRequest(on=farm.address, keys=farm.keys)).run(requests):
        assert result.exit_code == 0, result


def farm_memory(farm: LocalFarm) -> dict[str, int]:
    """Returns MiB of memory of client, scheduler and worker."""
    return {name: resident(pid) for name, pid in members(farm).items()}


def farm_processor(farm: LocalFarm) -> dict[str, float]:
    """Returns the milliseconds of processor time that client, scheduler and worker have used, without their builds."""
    return {name: processor(pid) for name, pid in members(farm).items()}


def members(farm: LocalFarm) -> dict[str, int]:
    return {"client": os.getpid(), **{name: process.pid for name, process in farm.processes.items()}}


def processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) >> 10


if __name__ == "__main__":
    main()
