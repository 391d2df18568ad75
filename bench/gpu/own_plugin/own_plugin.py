"""Two plugins of our own on TensorRT 8.6, as a user has them: libraries built from source, several to a command.

    python bench/gpu/own_plugin/own_plugin.py --compile --headers FOLDER --libraries FOLDER       needs g++, and no GPU
    python bench/gpu/own_plugin/own_plugin.py --libraries FOLDER [--out FOLDER] [--seconds 240]   needs TensorRT 8.6

`--compile` makes the libraries of elementwise.cpp: `libShift.so` adds, `libScale.so` multiplies, and `libWrong.so` is
called Shift and multiplies. The headers are TensorRT's (its public sources, include/) and CUDA's, each folder a
`--headers`. Then every command is run as on a command line: check, build, run, verify, bench, inspect, a job in a
file; with the libraries and without, with a wrong reference, with a wrong library, and with the libraries inside the
engine. Of each the exit status, and what it has to say, are compared with what is written here.

Writes FOLDER/gpu-own-plugin-8.6.json as it goes, and prints a table. Exit status: 0 all is as written; 1 not.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NAME = "gpu-own-plugin-8.6.json"
LIBRARIES = {"Shift": ("Shift", "add.f32"), "Scale": ("Scale", "mul.f32"), "Wrong": ("Shift", "mul.f32")}
"""Library to the plugin's name and what it does."""
MODEL = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[n,3] x) => (float[n,3] y) {
  a = Abs (x)  b = my.Shift <by = 2.5> (a)  c = Neg (b)  d = my.Scale <by = 1.5> (c)  y = Add (d, x)
}"""
REFERENCE = """
import trtconv

@trtconv.reference("my::Shift")
def shift(x, by):
    return x + x.dtype.type(by)

@trtconv.reference("my::Scale")
def scale(x, by):
    return x * x.dtype.type(by)
"""
_TEXT = 400
_BUILD = ("build", "m.onnx", "--target", "tensorrt", "--dim", "n=1:4:8")


@dataclasses.dataclass(frozen=True)
class Step:
    """A command.

    Args:
        what: What it shows.
        words: Its arguments; none: outputs are compared with the formula.
        code: The exit status that it has to have.
        says: What it has to say.
        absent: A file that it must not leave.
    """

    what: str
    words: tuple[str, ...]
    code: int = 0
    says: str = ""
    absent: str = ""


def main() -> int:
    """Compiles, or runs everything; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--headers", action="append", default=[])
    parser.add_argument("--libraries", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    given = parser.parse_args()
    if given.compile:
        return compiled(given.libraries.resolve(), given.headers)
    with tempfile.TemporaryDirectory() as folder:
        rows = Bench(Path(folder), given.libraries.resolve(), given.out, given.seconds).run()
    print(
        "\n".join(f"{'ok' if row['ok'] else 'NOT':4} {row['code']!s:>5}  {row['what']}  {row['said']}" for row in rows)
    )
    return 0 if all(row["ok"] for row in rows) else 1


def compiled(folder: Path, headers: Sequence[str]) -> int:
    """Makes the libraries; returns the exit status of the last compiler that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    code = 0
    for library, (name, operation) in LIBRARIES.items():
        command = ["g++", "-shared", "-fPIC", "-O1", "-w", f'-DNAME="{name}"', f'-DOPERATION="{operation}"']
        command += [*(f"-I{each}" for each in headers), str(HERE / "elementwise.cpp"), "-ldl"]
        code = subprocess.run([*command, "-o", str(folder / f"lib{library}.so")], check=False).returncode or code
    return code


class Bench:
    """A folder with a model, and what is done with it."""

    def __init__(self, folder: Path, libraries: Path, out: Path, seconds: float) -> None:
        self._folder, self._out = folder, out
        self._end = time.monotonic() + seconds
        self._rows: list[dict[str, Any]] = []
        self._own = [str(libraries / f"lib{name}.so") for name in ("Shift", "Scale")]
        self._agreed: tuple[str, ...] = ()
        self._wrong = [str(libraries / f"lib{name}.so") for name in ("Wrong", "Scale")]

    def run(self) -> list[dict[str, Any]]:
        """Runs every step; returns what came of them."""
        import numpy as np
        import onnx

        onnx.save(onnx.parser.parse_model(MODEL), self._folder / "m.onnx")
        (self._folder / "right.py").write_text(REFERENCE, encoding="utf-8")
        (self._folder / "wrong.py").write_text(REFERENCE.replace("x + x", "x - x"), encoding="utf-8")
        files = json.dumps(self._own)
        config = f'[[models]]\npath = "m.onnx"\ntargets = ["tensorrt"]\ndims = {{ n = "1:4:8" }}\nplugins = {files}\n'
        (self._folder / "job.toml").write_text(f'{config}references = ["right.py"]\n', encoding="utf-8")
        code = [*map(Path, self._own), self._folder / "right.py"]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in code]
        self._agreed = tuple(word for digest in digests for word in ("--agree", digest))
        np.savez(self._folder / "in.npz", x=np.linspace(-4, 4, 12, dtype=np.float32).reshape(4, 3))
        self._all(self._builds())
        self._all(self._uses())
        self._all([Step("job: taken in", ("collect", "with", "--config", "job.toml", *self._agreed))])
        for name in ("own", "inside"):
            self._keep(self._compared(name))
        return self._rows

    def _builds(self) -> list[Step]:
        own, wrong = _given("--plugin", self._own), _given("--plugin", self._wrong)
        right, lie = ("--reference", "right.py"), ("--reference", "wrong.py")
        inside = _given("--setPluginsToSerialize", self._own)
        required = ("--prove", "required")
        return [
            Step("check knows no such operator", ("check", "m.onnx", "--target", "tensorrt"), 1, "TC005"),
            Step("without a library no engine", (*_BUILD, "-o", "none.engine", *right), 1, "Shift", "none.engine"),
            Step("two libraries, proven and run", (*_BUILD, "-o", "own.engine", *own, *right, *required)),
            Step("as trtexec spells it", (*_BUILD, "-o", "t.engine", *_given("--staticPlugins", self._own), *right)),
            Step("a wrong reference", (*_BUILD, "-o", "lie.engine", *own, *lie), 1, "TC402", "lie.engine"),
            Step("a wrong library", (*_BUILD, "-o", "wrong.engine", *wrong, *right), 1, "TC402", "wrong.engine"),
            Step(
                "no reference is not enough", (*_BUILD, "-o", "no.engine", *own, *required), 1, "reference", "no.engine"
            ),
            Step("libraries inside the engine", (*_BUILD, "-o", "inside.engine", *inside, *right)),
            Step(
                "a job: not without agreement",
                ("plan", "--config", "job.toml", "--write", "jobs"),
                2,
                "--agree",
                "jobs",
            ),
            Step("a job in a file", ("plan", "--config", "job.toml", "--write", "agreed", *self._agreed)),
        ]

    def _uses(self) -> list[Step]:
        own, wrong = _given("--plugin", self._own), _given("--plugin", self._wrong)
        right, given = ("--reference", "right.py"), ("--inputs", "in.npz")
        jobs = sorted((self._folder / "agreed").glob("*.json"))
        again = (*_BUILD, "-o", "own.engine", *own, *right, "--prove", "required")
        run = ("run", "own.engine", *given)
        job = str(jobs[0]) if jobs else "no job"
        return [
            Step("the same build again", again, says='up_to_date": true'),
            Step("run", (*run, *own, "-o", "own.npz")),
            Step("run without them", (*run, "-o", "x.npz"), 2, "libShift.so", "x.npz"),
            Step("run with one of two", (*run, *own[:2], "-o", "x.npz"), 2, "libScale.so", "x.npz"),
            Step("run with another", (*run, *wrong, "-o", "x.npz"), 2, "libShift.so", "x.npz"),
            Step("inside: not without trust", ("run", "inside.engine", *given, "-o", "x.npz"), 2, "--trust", "x.npz"),
            Step("inside: run with trust", ("run", "inside.engine", *given, "--trust", "-o", "inside.npz")),
            Step("verify", ("verify", "m.onnx", "own.engine", *own, *right, "--require-engine")),
            Step(
                "verify against a wrong reference",
                ("verify", "m.onnx", "own.engine", *own, "--reference", "wrong.py", "--require-engine"),
                1,
            ),
            Step("bench", ("bench", "own.engine", "--duration", "1", *own)),
            Step("inspect", ("inspect", "own.engine", *own), says="Shift"),
            Step("job: not without the libraries", ("run-job", job, "without", *right), 4, "is not here"),
            Step("job: with them", ("run-job", job, "with", *own, *right)),
        ]

    def _all(self, steps: Sequence[Step]) -> None:
        with ThreadPoolExecutor(max(1, min(8, (os.cpu_count() or 2) // 2))) as pool:
            for row in pool.map(self._one, steps):
                self._keep(row)

    def _keep(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._out.mkdir(parents=True, exist_ok=True)
        document = {"date": str(datetime.date.today()), "rows": self._rows}
        (self._out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def _one(self, step: Step) -> dict[str, Any]:
        """Runs a command, in a process of its own as a user would."""
        started = time.monotonic()
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_MODULE_LOADING": "LAZY"}
        command = [sys.executable, "-m", "trtconv", *step.words, "-q", "--format", "json"]
        left = self._end - started
        try:
            ended = subprocess.run(
                command,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=max(left, 0.1),
                check=False,
            )
            code, said = ended.returncode, ended.stdout + ended.stderr
        except subprocess.TimeoutExpired:
            code, said = None, "out of time"
        left_behind = bool(step.absent) and (self._folder / step.absent).exists()
        ok = code == step.code and step.says in said and not left_behind
        row = {"what": step.what, "ok": ok, "code": code, "seconds": round(time.monotonic() - started, 1)}
        return {**row, "said": "" if ok else _gist(said).replace(str(self._folder), ".")}

    def _compared(self, name: str) -> dict[str, Any]:
        """Compares what an engine computed with the formula."""
        import numpy as np

        row: dict[str, Any] = {"what": f"{name}: the outputs are the formula's", "ok": False, "code": None, "said": ""}
        try:
            with np.load(self._folder / f"{name}.npz") as made, np.load(self._folder / "in.npz") as given:
                x = given["x"]
                error = float(np.abs(made["y"] - (x - (np.abs(x) + 2.5) * 1.5)).max())
        except (OSError, KeyError) as failure:
            return {**row, "said": str(failure)[:_TEXT].replace(str(self._folder), ".")}
        return {**row, "ok": error <= 1e-5, "error": error}


def _gist(said: str) -> str:
    """Returns the findings of a report, or else the end of what was said."""
    try:
        found = json.JSONDecoder().raw_decode(said)[0]["findings"]
    except (ValueError, KeyError, TypeError):
        found = []
    return "; ".join(f"{each['code']}: {each['message']}" for each in found)[:_TEXT] or said[-_TEXT:]


def _given(flag: str, files: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for file in files for word in (flag, file))


if __name__ == "__main__":
    sys.exit(main())
