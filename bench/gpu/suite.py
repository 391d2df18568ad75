"""Every network of models/ through trtconv on a real GPU: exported, built, verified, inspected and timed, in float32,
fp16 and int8.

    python bench/gpu/suite.py [--out FOLDER] [--minutes 7.5] [--jobs 5] [--require-gpu] [--networks unet,gan_generator]
                              [--torch-python PYTHON] [--family tensorrt|rtx] [--date DATE]
    python bench/gpu/suite.py --merge FILE FILE ... [--out FOLDER]      only joins the results of several calls

Beside each: the raw ONNX file through a plain TensorRT script (plain.py) with the same profile and flags, verified and
timed in turns with trtconv's engine; ONNX Runtime on the CPU; PyTorch, where it is there. Every step is a process of
its own with a time limit. All builds of a network share a timing cache, which the raw ones fill. Networks are built and
verified several at a time; nothing else runs while engines are timed.

Writes FOLDER/gpu-suite-8.6.json (default: bench/results) and prints a table. Exit status: 0 all is built, verified and
not slower than raw; 1 something is not; 4 there is no GPU, with --require-gpu (0 without). With --family rtx it can be
tried without a GPU: engines are built, and nothing is timed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from suite_table import Row, summary, table  # noqa: E402

from trtconv.cli.versions import versions  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

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
FLAGS = {"as-is": [], "fp16": ["FP16"], "int8": ["INT8", "FP16"]}


@dataclasses.dataclass(frozen=True)
class Case:
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
        helped = self.trtconv("build", "--help", seconds=60)[1]
        self.cached = "--timing-cache" in helped
        self.detailed = ["--profiling-verbosity", "detailed"] if "--profiling-verbosity" in helped else []

    def left(self) -> float:
        return float(self.deadline - time.monotonic())

    def process(self, arguments: list[str], seconds: float) -> tuple[int, str, str, float]:
        """Runs a process to its end or its limit; returns exit code, stdout, stderr and seconds."""
        limit = min(seconds, self.left())
        if limit < 5:
            return -1, "", "no time left", 0.0
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        started = time.monotonic()
        process = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            # Its children too: a build may run in one.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -1, "", f"took longer than {limit:.0f} s", limit
        return process.returncode, out, err, time.monotonic() - started

    def trtconv(self, *arguments: str, seconds: float) -> tuple[int, str, str, float]:
        return self.process([sys.executable, "-m", "trtconv", *arguments], seconds)

    def document(self, *arguments: str, seconds: float) -> Row:
        """Runs a command of trtconv; returns its JSON document, with `wall` and `failure`."""
        code, out, err, spent = self.trtconv(*arguments, "--format", "json", "-q", seconds=seconds)
        try:
            document: Row = json.loads(out)
        except ValueError:
            document = {"failure": (err or out)[-_TEXT:] or f"status {code}"}
        if "error" in document:
            document["failure"] = document["error"]["message"][:_TEXT]
        return {**document, "code": code, "wall": round(spent, 1)}

    def make_all(self, made: list[Case]) -> None:
        """Builds and verifies the cases of a network, one after the other: each finds what those before it measured."""
        for case in made:
            self.make(case)

    def make(self, case: Case) -> None:
        """Builds and verifies a case, raw and by trtconv."""
        row: Row = {"network": case.network, "precision": case.precision, "dims": list(DIMS[case.network])}
        self.rows[case.name] = row
        stem = self.folder / case.name.replace(" ", "-")
        ours, raw = stem.with_suffix(".engine"), stem.with_suffix(".raw.engine")
        cache = self.folder / f"{case.network}.cache"
        row["raw_build"] = self.build_raw(case, raw, cache)
        dims = [part for bound in DIMS[case.network] for part in ("--dim", bound)]
        shared = ["--timing-cache", str(cache)] if self.cached else []
        built = self.document(
            "build",
            str(case.model.relative_to(ROOT)),
            *dims,
            *("--precision", case.precision, "-o", str(ours), "--target", self.options.family, *shared, *self.detailed),
            seconds=_BUILD_SECONDS,
        )
        row["build"] = {"code": built["code"], "wall": built["wall"], "stages": built.get("seconds")}
        row["build"]["why"] = built.get("failure") or [f["message"] for f in built.get("findings", [])][:3]
        row["edits"] = len(built.get("edits", ()))
        row["verify"] = self.verify(case, ours)
        # The raw engine has no report that says what it was to compute in: it is held to the same tolerance.
        tolerance = row["verify"]["tolerance"] or {"relative": 0.05, "cosine": 0.99}
        limits = ("--tolerance", str(tolerance["relative"]), "--cosine", str(tolerance["cosine"]))
        made = row["raw_build"]["code"] == 0
        row["raw_verify"] = self.verify(case, raw, "--trust", *limits) if made else None
        if ours.exists():
            seen = self.document("inspect", str(ours), seconds=_SHORT_SECONDS)
            row["layers"] = {"summary": seen.get("summary"), "time": seen.get("time"), "why": seen.get("failure")}
            listed = seen.get("layers") or []
            row["layers"]["slowest"] = sorted(listed, key=lambda each: -(each["time_us"] or 0))[:3]
        print(f"[{self.left():5.0f} s left] made {case.name}", file=sys.stderr, flush=True)

    def build_raw(self, case: Case, engine: Path, cache: Path) -> Row:
        profiles = engine.with_suffix(".json")
        profiles.write_text(json.dumps([profile_shapes(case)]))
        arguments = [sys.executable, str(HERE / "plain.py"), str(case.model), str(engine), str(profiles)]
        arguments += ["--flags", ",".join(case.flags), "--timing-cache", str(cache), "--family", self.options.family]
        code, _, err, spent = self.process(arguments, _BUILD_SECONDS)
        return {"code": code, "wall": round(spent, 1), "why": err[-_TEXT:] if code else ""}

    def verify(self, case: Case, engine: Path, *more: str) -> Row:
        if not engine.exists():
            return {"verified": False, "tolerance": None, "why": "there is no engine"}
        found = self.document("verify", str(case.model), str(engine), *more, seconds=_SHORT_SECONDS)
        keys = ("verified", "ran", "why_not_run", "precision", "tolerance", "incomplete", "worst", "wall", "seconds")
        brief = {key: found.get(key) for key in keys}
        outputs = [output for each in found.get("cases", ()) for output in each["outputs"]]
        brief["cosine"] = min((output["cosine"] for output in outputs), default=None)
        brief["sizes"] = len(found.get("cases", ()))
        brief["why"] = found.get("failure") or next((o["why"] for o in outputs if o["why"]), "")
        return brief

    def time(self, case: Case) -> None:
        """Times a case against the raw engine, or alone where that is refused."""
        row = self.rows[case.name]
        stem = self.folder / case.name.replace(" ", "-")
        ours, raw = stem.with_suffix(".engine"), stem.with_suffix(".raw.engine")
        if not ours.exists():
            return
        versus = ["--vs", str(raw), "--trust"] if raw.exists() else []
        timing = ("--warmup", "0.1", "--duration", "0.2")
        found = self.document("bench", str(ours), *versus, *timing, seconds=_SHORT_SECONDS)
        row["bench"] = {"wall": found["wall"], "why": found.get("failure") or found.get("incomplete") or ""}
        row["runtime"] = found.get("runtime")
        row["engines"] = [{k: v for k, v in e.items() if k not in ("path", "sha256")} for e in found.get("engines", ())]
        names = ("trtconv", "raw")
        row["latency"] = [
            {**{k: v for k, v in each.items() if k != "engine"}, "engine": names[each["engine"]]}
            for each in found.get("rows", ())
        ]
        row["ratios"] = found.get("ratios", [])
        print(f"[{self.left():5.0f} s left] timed {case.name}", file=sys.stderr, flush=True)

    def export(self, network: str) -> Row:
        """Exports a network from its PyTorch recipe, where torch is there."""
        code, _, err, _ = self.process([self.options.torch_python, "-c", "import torch, onnxscript"], 60)
        if code:
            return {"exported": None, "why": err.strip().rpartition("\n")[2]}
        from trtconv.graph.model import OnnxModel

        (spec,) = OnnxModel.load(Case(network, "as-is").model).inputs
        example = profile_shapes(Case(network, "as-is"))[spec.name]["opt"]
        axes = ",".join(dim if isinstance(dim, str) else "_" for dim in spec.dims)
        arguments = [self.options.torch_python, "-m", "trtconv", "export", f"models/{network}.py:build"]
        arguments += ["-o", str(self.folder / f"{network}.exported.onnx"), "--target", self.options.family]
        arguments += ["--input", f"{spec.name}={'x'.join(map(str, example))}", "--dynamic", f"{spec.name}={axes}"]
        arguments += [part for bound in DIMS[network] for part in ("--dim", bound)]
        code, out, err, spent = self.process([*arguments, "--format", "json", "-q"], 90)
        try:
            document = json.loads(out)
        except ValueError:
            document = {}
        why = "" if code == 0 else str(document.get("error") or err or document.get("findings"))[-_TEXT:]
        proof = {key: (document.get("proof") or {}).get(key) for key in ("max_relative_error", "tolerance")}
        return {"exported": code == 0, "wall": round(spent, 1), "proof": proof, "why": why}

    def beside(self, network: str) -> Row:
        """Times a network without TensorRT, at opt."""
        shapes = {name: bounds["opt"] for name, bounds in profile_shapes(Case(network, "as-is")).items()}
        file = self.folder / f"{network}.shapes.json"
        file.write_text(json.dumps(shapes))
        found: Row = {"shapes": shapes, "export": self.export(network)}
        for python, kind, path in (
            (sys.executable, "onnxruntime", ROOT / "models" / f"{network}.onnx"),
            (self.options.torch_python, "torch", ROOT / "models" / f"{network}.py"),
        ):
            code, out, err, _ = self.process([python, str(HERE / "beside.py"), kind, str(path), str(file)], 90)
            why = err.strip().rpartition("\n")[2][-300:] or f"status {code}"
            found.update(json.loads(out) if code == 0 else {kind: why})
        return found


def profile_shapes(case: Case) -> dict[str, dict[str, list[int]]]:
    """Returns the shapes of the case's one profile."""
    from trtconv.core.bounds import make_profile
    from trtconv.core.dim_flags import parse_dims
    from trtconv.graph.model import OnnxModel

    profile = make_profile(OnnxModel.load(case.model).inputs, parse_dims(DIMS[case.network]))
    return {name: shapes.to_json() for name, shapes in profile.inputs.items()}


def driver_version() -> str | None:
    """Returns the version of the GPU's driver, as the kernel module tells it."""
    with contextlib.suppress(OSError):
        words = Path("/proc/driver/nvidia/version").read_text().split()
        return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), None)
    return None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--minutes", type=float, default=7.5, help="of the whole")
    parser.add_argument("--jobs", type=int, default=5, help="builds at a time")
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--networks", default=",".join(DIMS))
    parser.add_argument("--torch-python", default=sys.executable, help="a Python with torch for CUDA")
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="only join the results of several calls")
    return parser.parse_args()


def merged(paths: list[Path]) -> Row:
    """Returns the results of several calls, on the same machine and day, as one."""
    parts = [json.loads(path.read_text()) for path in paths]
    whole: Row = {**parts[0], "beside": {}}
    for key in ("date", "gpu", "driver", "versions"):
        if any(part[key] != whole[key] for part in parts):
            raise SystemExit(f"{key} differs: {[part[key] for part in parts]}")
    whole["rows"] = [row for part in parts for row in part["rows"]]
    for part in parts:
        whole["beside"].update(part["beside"])
    whole["seconds"] = sum(part["seconds"] for part in parts)
    whole["summary"] = summary(whole["rows"])
    return whole


def result_path(options: argparse.Namespace) -> Path:
    name: str = "8.6" if options.family == "tensorrt" else options.family
    return Path(options.out) / f"gpu-suite-{name}.json"


def tell(document: Row) -> bool:
    """Prints the results; returns whether all is well."""
    found = document["summary"]
    print(table(document["rows"]))
    print(json.dumps(found, indent=1))
    return bool(found["built"] == found["verified"] == found["cases"] and (found["median_ratio"] or 9.0) <= RATIO_LIMIT)


def main() -> int:
    options = parse()
    if options.merge:
        document = merged(options.merge)
        result_path(options).write_text(json.dumps(document, indent=1) + "\n")
        return 0 if tell(document) else 1
    gpu = gpu_name()
    if gpu is None and (options.require_gpu or options.family == "tensorrt"):
        print("there is no GPU here: nothing was run", file=sys.stderr)
        return 4 if options.require_gpu else 0
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        suite = Suite(options, Path(name))
        networks = options.networks.split(",")
        todo = cases(networks)
        document = {
            "date": options.date,
            "gpu": gpu,
            "driver": driver_version(),
            "platform": platform.platform(),
            "versions": {"python": platform.python_version(), **versions()},
            "method": (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].partition("\n\nWrites")[0],
            "timing_cache_shared": suite.cached,
        }

        def save(beside: Row) -> None:
            rows = [suite.rows[case.name] for case in todo if "raw_verify" in suite.rows.get(case.name, ())]
            document.update(
                seconds=round(time.monotonic() - started, 1), summary=summary(rows), rows=rows, beside=beside
            )
            options.out.mkdir(parents=True, exist_ok=True)
            result_path(options).write_text(json.dumps(document, indent=1) + "\n")

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            made = [pool.submit(suite.make_all, cases([network])) for network in networks]
            for each in concurrent.futures.as_completed(made):
                each.result()
                save({})
        for case in todo:
            suite.time(case)
            save({})
        save({network: suite.beside(network) for network in networks})
    return 0 if tell(document) and len(document["rows"]) == len(todo) else 1


if __name__ == "__main__":
    sys.exit(main())
