"""What a farm costs beside its builds: a thousand tiny jobs on two workers and on one, and ten thousand planned.

    python bench/farm.py [--jobs 1000] [--planned 10000]

Writes bench/results/farm.json. The client is this process; the scheduler and the workers are processes of their own, on
loopback with TLS, and their processor time is without that of the processes that build.
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

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.farm import LocalFarm, write_project  # noqa: E402
from trtconv.core.dims import Range  # noqa: E402
from trtconv.core.requests.build import BuildRequest  # noqa: E402
from trtconv.core.requests.farm import FarmRequest  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.engine.farm.cluster import Farm  # noqa: E402
from trtconv.engine.farm.planning import plan  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--planned", type=int, default=10_000)
    options = parser.parse_args()
    found: dict[str, Any] = {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = requests_in(folder, max(options.jobs, options.planned))
        found["planned"] = planned(requests[: options.planned])
        (folder / "farm").mkdir()
        with LocalFarm(folder / "farm", "") as farm:
            for worker in ("one", "two"):
                farm.worker(worker)
            found["two_workers"] = built(farm, requests[: options.jobs])
            farm.kill("two")
            del farm.processes["two"]
            found["one_worker"] = built(farm, requests[options.jobs : options.jobs + options.jobs // 4])
    found["times"] = round(found["one_worker"]["wall_ms"] / found["two_workers"]["wall_ms"], 2)
    print(json.dumps(found, indent=2))
    (ROOT / "bench" / "results" / "farm.json").write_text(json.dumps(found, indent=2) + "\n")


def requests_in(folder: Path, number: int) -> list[BuildRequest]:
    names = [f"m{index}" for index in range(number)]
    project = write_project(folder / "project", names, "")
    bounds = {"n": Range(1, 2, 4)}
    return [BuildRequest(project / f"{name}.onnx", dims=bounds, target=Target("rtx"), prove="none") for name in names]


def planned(requests: list[BuildRequest]) -> dict[str, Any]:
    """Plans jobs that are for whoever has the GPU."""
    wall, used = time.perf_counter(), time.process_time()
    found = plan(requests, None)
    assert {each.state for each in found} == {"to-build"}
    return {
        "jobs": len(found),
        "seconds": since(wall, time.perf_counter()),
        "processor": since(used, time.process_time()),
    }


def built(farm: LocalFarm, requests: list[BuildRequest]) -> dict[str, Any]:
    """Builds; returns milliseconds a job, and the memory of each member after the first tenth and at the end."""
    members = {"client": os.getpid(), **{name: process.pid for name, process in farm.processes.items()}}
    memory = {}
    before = {name: processor(pid) for name, pid in members.items()}
    wall = time.perf_counter()
    for done, (_, result) in enumerate(Farm(FarmRequest(on=farm.address, keys=farm.keys)).run(requests), 1):
        assert result.exit_code == 0, result
        if done in (len(requests) // 10, len(requests)):
            memory[done] = {name: resident(pid) for name, pid in members.items()}
    seconds = time.perf_counter() - wall
    used = {name: processor(pid) - before[name] for name, pid in members.items()}
    workers = [name for name in members if name not in ("client", "scheduler")]
    used["workers"] = sum(used.pop(name) for name in workers)
    return {
        "jobs": len(requests),
        "wall_ms": round(seconds * 1000 / len(requests), 1),
        "processor_ms": {name: round(spent / len(requests), 1) for name, spent in used.items()},
        "mib": memory,
    }


def since(began: float, ended: float) -> float:
    return round(ended - began, 2)


def processor(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) >> 10


if __name__ == "__main__":
    main()
