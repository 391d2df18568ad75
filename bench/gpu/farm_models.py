"""The networks of models/, built by a worker of a farm, verified and timed there; needs a GPU and TensorRT 8.6.

    python bench/gpu/farm_models.py [--target tensorrt-8.6@h100] [--level 1] [--out FOLDER] [--then verify,bench]

The target is TensorRT 8.6 on the GPU at hand, where none is named.

A scheduler, a worker and a client, each a process of its own, talk over TLS. The client builds fp16 engines, has verify
and bench run where they were built, asks again (nothing may be built), and builds one of them a third way, from a job
that is a file. Writes FOLDER/gpu-farm-8.6.json. With --target rtx, which needs no GPU, give --then verify.

Exit status: 0 every engine was built and verified; 1 something was not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from suite import DIMS, QUANTIZED  # noqa: E402

from support.farm import LocalFarm  # noqa: E402
from trtconv.core.gpus import gpu_labels  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

NAME = "gpu-farm-8.6.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", metavar="RUNTIME[@GPU]")
    parser.add_argument("--level", type=int, default=1, help="of the builder's optimisation")
    parser.add_argument("--then", default="verify,bench")
    parser.add_argument("--networks", default=",".join(DIMS), metavar="NAME,...")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    options = parser.parse_args()
    options.target = options.target or f"tensorrt-8.6@{gpu_labels(gpu_name())[-1]}"
    with tempfile.TemporaryDirectory() as name:
        found = measure(Path(name), options)
    print(json.dumps(found, indent=2))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / NAME).write_text(json.dumps(found, indent=2) + "\n")
    good = all(row["outcome"] == "ok" for row in found["engines"]) and found["second_run"]["to_build"] == 0
    return 0 if good and found["job_file"]["exit_codes"] == [0, 0, 0] else 1


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Builds all there is, and returns what is to be kept."""
    (folder / "farm").mkdir()
    project = write_project(folder / "project", options)
    with LocalFarm(folder / "farm") as farm:
        farm.begin("worker")
        offers = farm.wait_for("worker")
        begun = time.monotonic()
        built = call(project, "build", *farm.flags, "--then", options.then)
        wall = time.monotonic() - begun
        again = call(project, "plan", *farm.flags, "--then", options.then)
    return {
        "date": datetime.date.today().isoformat(),
        "worker": offers.split(" to tls://")[0].removeprefix("worker offers "),
        "runtime": built["runs"][0].get("runtime"),
        "optimization_level": options.level,
        "wall_s": round(wall, 1),
        "summary": built["summary"],
        "engines": [row(project, run) for run in built["runs"]],
        "second_run": {"to_build": sum(job["state"] != "up-to-date" for job in again["jobs"])},
        "job_file": job_file(project, options.networks.split(",")[-1]),
    }


def write_project(project: Path, options: argparse.Namespace) -> Path:
    """Writes a trtconv.toml for the networks, beside copies of them."""
    project.mkdir()
    lines = [f'targets = ["{options.target}"]']
    if not options.target.startswith("rtx"):
        lines.append(f"options = {{ optimization-level = {options.level} }}")
    for network in options.networks.split(","):
        dims = DIMS[network]
        shutil.copy(ROOT / "models" / f"{network}.onnx", project)
        bounds = ", ".join('{} = "{}"'.format(*dim.split("=")) for dim in dims)
        precision = "int8" if network in QUANTIZED else "fp16"
        lines += ["", "[[models]]", f'path = "{network}.onnx"', f"dims = {{ {bounds} }}", f'precision = "{precision}"']
    (project / "trtconv.toml").write_text("\n".join(lines) + "\n")
    return project


def row(project: Path, run: dict[str, Any]) -> dict[str, Any]:
    """What is kept of one engine: who built it, what verify and bench said there."""
    engine = project / run.get("engine", {}).get("path", "none")
    return {
        "model": run["model"]["path"] if isinstance(run.get("model"), dict) else run.get("model"),
        "target": run.get("target"),
        "worker": run.get("worker"),
        "outcome": "ok" if run.get("exit_code") == 0 else "failed",
        "why": [finding["message"] for finding in run.get("findings", []) if finding["severity"] == "error"],
        "error": run.get("error"),
        "seconds": run.get("seconds"),
        "engine_bytes": engine.stat().st_size if engine.is_file() else None,
        "verify": part(engine, "verify", ("verified", "ran", "tolerance", "worst", "incomplete")),
        "bench": part(engine, "bench", ("rows",)),
    }


def part(engine: Path, what: str, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The parts of ENGINE.verify.json or ENGINE.bench.json that a table needs."""
    path = engine.with_name(f"{engine.name}.{what}.json")
    if not path.is_file():
        return None
    document = json.loads(path.read_text())
    return {key: document[key] for key in keys if key in document}


def job_file(project: Path, network: str) -> dict[str, Any]:
    """Builds a network from a job that is a file, as on a machine that no scheduler knows."""
    for path in project.glob(f"{network}*.engine*"):
        path.unlink()
    codes = [run(project, "plan", "--write", "jobs").returncode]
    jobs = list((project / "jobs").glob("*.json"))
    codes.append(run(project, "run-job", str(jobs[0]), "out").returncode)
    codes.append(run(project, "collect", "out").returncode)
    return {"jobs": len(jobs), "exit_codes": codes, "engines": len(list(project.glob("*.engine")))}


def call(project: Path, *arguments: str) -> dict[str, Any]:
    """Runs a command and returns its document."""
    ended = run(project, *arguments)
    try:
        found: dict[str, Any] = json.loads(ended.stdout)
    except ValueError:
        sys.exit(f"{arguments[0]} ended with {ended.returncode}: {ended.stderr}")
    if "error" in found:
        sys.exit(f"{arguments[0]} ended with {ended.returncode}: {found['error']}")
    return found


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of trtconv in the folder."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    return subprocess.run(
        [sys.executable, "-m", "trtconv", *arguments, "--format", "json", "-q"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
