"""Every network of models/ through trtconv's commands on a real GPU: built, verified and timed in each precision.

    python bench/gpu/suite.py [--out FOLDER] [--minutes 7.5] [--jobs 5] [--require-gpu] [--networks unet,gan_generator]
                              [--family tensorrt|rtx]

Beside each: the raw ONNX file through a plain TensorRT script (trt86.py) with the same profile and flags, verified, and
timed in turns with trtconv's engine. Every step is a process of its own with a time limit. All builds of a network
share a timing cache, which the raw ones fill. Networks are built and verified several at a time; nothing else runs
while engines are timed.

Writes FOLDER/gpu-suite-8.6.json (default: bench/results) and prints a table. Exit status: 0 all is built, verified and
not slower than raw; 1 something is not; 4 there is no GPU, with --require-gpu (0 without). With --family rtx it can be
tried without a GPU: engines are built, and nothing is timed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from trtconv.cli.versions import versions  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

Row = dict[str, Any]
RATIO_LIMIT = 1.02
"""Time of trtconv's engine over that of the raw one, median over the networks."""
_BUILD_SECONDS, _SHORT_SECONDS = 240, 150
_TEXT = 1000

SQUARE = ("batch=1:1:2", "height=64:128:256", "width=64:128:256")
DIMS: dict[str, tuple[str, ...]] = {
    "unet": SQUARE,
    "unet3d": ("batch=1", "depth=8:16:32", "height=32:64:64", "width=32:64:64"),
    "super_resolution": SQUARE,
    "quantized_autoencoder": SQUARE,
    "gan_generator": ("batch=1:4:8",),
    "vocoder": ("batch=1", "frames=32:64:128"),
}
QUANTIZED = ("quantized_autoencoder",)
FLAGS = {"as-is": ["TF32"], "fp16": ["FP16", "TF32"], "int8": ["INT8", "FP16", "TF32"]}


class Case(NamedTuple):
    """A network in a precision."""

    network: str
    precision: str

    @property
    def model(self) -> Path:
        return ROOT / "models" / f"{self.network}.onnx"

    @property
    def name(self) -> str:
        return f"{self.network} {self.precision}"

    @property
    def flags(self) -> list[str]:
        """The builder flags that a plain script needs; Q/DQ nodes want INT8 whatever else is asked."""
        return sorted({*FLAGS[self.precision], *(["INT8"] if self.network in QUANTIZED else [])})


def cases(networks: list[str]) -> list[Case]:
    return [
        Case(network, precision)
        for network in networks
        for precision in ("as-is", "fp16", *(("int8",) if network in QUANTIZED else ()))
    ]


class Suite:
    """Runs the cases and keeps what came of them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.deadline = time.monotonic() + 60 * options.minutes
        self.rows: dict[str, Row] = {}

    def process(self, arguments: list[str], seconds: float) -> tuple[int, str, str, float]:
        """Runs a process to its end or its limit; returns exit code, stdout, stderr and seconds."""
        limit = min(seconds, self.deadline - time.monotonic())
        if limit < 5:
            return -1, "", "no time left", 0.0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment, **pipes)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            # Its children too: a build may run in one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -1, "", f"took longer than {limit:.0f} s", limit
        return process.returncode, out, err, time.monotonic() - started

    def document(self, *arguments: str, seconds: float) -> Row:
        """Runs a command of trtconv; returns its JSON document, with `wall` and `failure`."""
        code, out, err, spent = self.process(["-m", "trtconv", *arguments, "--format", "json", "-q"], seconds)
        try:
            document: Row = json.loads(out)
        except ValueError:
            document = {"failure": (err or out)[-_TEXT:] or f"status {code}"}
        if "error" in document:
            document["failure"] = document["error"]["message"][:_TEXT]
        return {**document, "code": code, "wall": round(spent, 1)}

    def engines(self, case: Case) -> tuple[Path, Path]:
        """Returns where trtconv's engine of a case is, and the raw one."""
        stem = self.folder / case.name.replace(" ", "-")
        return stem.with_suffix(".engine"), stem.with_suffix(".raw.engine")

    def make_all(self, made: list[Case]) -> None:
        """Builds and verifies the cases of a network, one after the other: each finds what those before it measured."""
        for case in made:
            self.make(case)
            print(f"made {case.name}", file=sys.stderr, flush=True)

    def make(self, case: Case) -> None:
        """Builds and verifies a case, raw and by trtconv."""
        ours, raw = self.engines(case)
        cache = str(self.folder / f"{case.network}.cache")
        plain = [__file__, "--plain", case.network, str(raw), ",".join(case.flags), cache, self.options.family]
        code, _, err, spent = self.process(plain, _BUILD_SECONDS)
        row: Row = {"network": case.network, "precision": case.precision, "dims": list(DIMS[case.network])}
        row["raw_build"] = {"code": code, "wall": round(spent, 1), "why": err[-_TEXT:] if code else ""}
        dims = [part for bound in DIMS[case.network] for part in ("--dim", bound)]
        how = ["--precision", case.precision, "--target", self.options.family, "--timing-cache", cache]
        built = self.document("build", str(case.model), *dims, *how, "-o", str(ours), seconds=_BUILD_SECONDS)
        why = built.get("failure") or [each["message"] for each in built.get("findings", [])][:3]
        row["build"] = {"code": built["code"], "wall": built["wall"], "stages": built.get("seconds"), "why": why}
        row["verify"] = self.verify(case, ours)
        # The raw engine has no report that says what it was to compute in: it is held to the same tolerance.
        tolerance = row["verify"]["tolerance"] or {"relative": 0.05, "cosine": 0.99}
        limits = ("--tolerance", str(tolerance["relative"]), "--cosine", str(tolerance["cosine"]))
        row["raw_verify"] = None if code else self.verify(case, raw, "--trust", *limits)
        self.rows[case.name] = row

    def verify(self, case: Case, engine: Path, *more: str) -> Row:
        if not engine.exists():
            return {"verified": False, "tolerance": None, "why": "there is no engine"}
        found = self.document("verify", str(case.model), str(engine), *more, seconds=_SHORT_SECONDS)
        keys = ("verified", "ran", "why_not_run", "precision", "tolerance", "incomplete", "worst", "wall", "seconds")
        outputs = [output for each in found.get("cases", ()) for output in each["outputs"]]
        why = found.get("failure") or next((output["why"] for output in outputs if output["why"]), "")
        return {**{key: found.get(key) for key in keys}, "sizes": len(found.get("cases", ())), "why": why}

    def time(self, case: Case) -> None:
        """Times a case against the raw engine, or alone where that is refused."""
        ours, raw = self.engines(case)
        if not ours.exists():
            return
        versus = ["--vs", str(raw), "--trust"] if raw.exists() else []
        timing = ("--warmup", "0.1", "--duration", "0.2")
        found = self.document("bench", str(ours), *versus, *timing, seconds=_SHORT_SECONDS)
        row = self.rows[case.name]
        row["bench"] = {"wall": found["wall"], "why": found.get("failure") or found.get("incomplete") or ""}
        row["runtime"] = found.get("runtime")
        row["latency"] = [{**each, "engine": ("trtconv", "raw")[each["engine"]]} for each in found.get("rows", ())]
        row["ratios"] = found.get("ratios", [])
        print(f"timed {case.name}", file=sys.stderr, flush=True)


def plain(network: str, engine: str, flags: str, cache: str, family: str) -> int:
    """Builds the file as it is, as a plain script does, in a process of its own; returns the exit status."""
    import importlib

    from trt86 import Options, Refused, TensorRT

    from trtconv.core.bounds import make_profile
    from trtconv.core.dim_flags import parse_dims
    from trtconv.graph.model import OnnxModel

    case = Case(network, "as-is")
    profile = make_profile(OnnxModel.load(case.model).inputs, parse_dims(DIMS[network]))
    shapes = {name: (each.min, each.opt, each.max) for name, each in profile.inputs.items()}
    runtime, timings = TensorRT(importlib.import_module("tensorrt_rtx" if family == "rtx" else "tensorrt")), Path(cache)
    runtime.timings = timings.read_bytes() if timings.exists() else b""
    try:
        plan = runtime.build(case.model.read_bytes(), Options(tuple(flags.split(",")), profile=shapes))
    except Refused as error:
        print(error.message, file=sys.stderr)
        return 1
    Path(engine).write_bytes(bytes(memoryview(plan)))
    timings.write_bytes(runtime.timings)
    return 0


def summary(rows: list[Row]) -> Row:
    """Returns counts, and the ratios of the fastest way to run: CUDA graphs without copies."""
    best = {f"{r['network']} {r['precision']}": ratio for r in rows if (ratio := case_ratio(r)) is not None}
    return {
        "cases": len(rows),
        "built": sum(r["build"]["code"] == 0 for r in rows),
        "verified": sum(bool(r["verify"]["verified"]) and r["verify"].get("ran") == "engine" for r in rows),
        "raw_refused": [f"{r['network']} {r['precision']}" for r in rows if r["raw_build"]["code"]],
        "ratios": best,
        "median_ratio": round(statistics.median(best.values()), 4) if best else None,
    }


def case_ratio(row: Row) -> float | None:
    """Returns the median over the sizes of trtconv's time over the raw engine's."""
    found = [r["ratio"] for r in row.get("ratios", ()) if r["graph"] and not r["copies"]]
    found = found or [r["ratio"] for r in row.get("ratios", ()) if not r["copies"]]
    return round(statistics.median(found), 4) if found else None


def table(rows: list[Row]) -> str:
    """Returns the table that is printed."""
    lines = [f"{'network':32} {'built':>8} {'raw':>8} {'verified':>9} {'error':>8} {'raw':>8} {'ratio':>6}"]
    for row in rows:
        walls = [f"{row[key]['wall']} s" if row[key]["code"] == 0 else "FAILED" for key in ("build", "raw_build")]
        worst = [(row[key] or {}).get("worst") for key in ("verify", "raw_verify")]
        errors = [f"{float(each['max_rel']):.1e}" if each else "-" for each in worst]
        verified, ratio = "yes" if row["verify"]["verified"] else "NO", case_ratio(row)
        name = f"{row['network']} {row['precision']}"
        lines.append(f"{name:32} {walls[0]:>8} {walls[1]:>8} {verified:>9} {errors[0]:>8} {errors[1]:>8} {ratio!s:>6}")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--minutes", type=float, default=7.5, help="of the whole")
    parser.add_argument("--jobs", type=int, default=5, help="builds at a time")
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--networks", default=",".join(DIMS))
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--plain"]:
        return plain(*sys.argv[2:])
    options, gpu = parse(), gpu_name()
    if gpu is None and (options.require_gpu or options.family == "tensorrt"):
        print("there is no GPU here: nothing was run", file=sys.stderr)
        return 4 if options.require_gpu else 0
    networks = options.networks.split(",")
    todo = cases(networks)
    document: Row = {"date": datetime.date.today().isoformat(), "gpu": gpu, "versions": versions()}
    with tempfile.TemporaryDirectory() as name:
        suite = Suite(options, Path(name))

        def save() -> None:
            rows = [suite.rows[case.name] for case in todo if case.name in suite.rows]
            document.update(summary=summary(rows), rows=rows)
            options.out.mkdir(parents=True, exist_ok=True)
            family = "8.6" if options.family == "tensorrt" else options.family
            (options.out / f"gpu-suite-{family}.json").write_text(json.dumps(document, indent=1) + "\n")

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            made = [pool.submit(suite.make_all, cases([network])) for network in networks]
            for each in concurrent.futures.as_completed(made):
                each.result()
                save()
        for case in todo:
            suite.time(case)
            save()
    found = document["summary"]
    print(table(document["rows"]))
    print(json.dumps(found, indent=1))
    return 0 if found["built"] == found["verified"] == len(todo) and (found["median_ratio"] or 9) <= RATIO_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
