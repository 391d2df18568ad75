"""ONNX's own node tests on TensorRT 8.6: raw, through trtconv, and run by trtconv's interpreter.

    python bench/gpu/node_suite.py [--jobs 15] [--minutes 7.5] [--part 1/2] [--only GLOB|FILE ...] [--ways trtconv]
                                   [--base RESULT.json] [--out FOLDER] [--family rtx] [--cases FOLDER]

Each test is taken as it is, and with all inputs but the first as constants ("NAME+constant"), as networks have
them. For each two jobs, each done by one of a few processes that take many (a start of TensorRT 8.6 takes 9 s, and its
parser ends the process on some models):

- raw: a plain script parses, builds and runs the model. What the parser made is read back and run by trtconv's
  interpreter too, and compared with what the engine returned: this is what proves the interpreter itself.
- trtconv: `trtconv.build`, with its proof; the engine is run.

Results are compared with the suite's own outputs, case by case. What is done is kept in FOLDER/node-suite-8.6.jsonl, so
that a call that ran out of time goes on where it stopped, and parts can be done one after the other; each call writes
FOLDER/gpu-node-suite-8.6.json anew and prints a table. Delete the .jsonl to begin again. --only takes names or globs of
tests, or files of such, a line each (node_suite_again.txt: whatever was wrong, lost, crashed or is written otherwise
since); --base takes the rows of a result over for whatever is not run. With --family rtx, which needs no GPU, nothing
is run: the interpreter is compared with the suite alone. --cases takes other tests in place of ONNX's: a pickle each of
(the model's bytes, its inputs, its outputs), as ONNX Runtime runs it, and where the engine is to be for more sizes than
those of the test (min, opt, max) by dimension behind it.

Exit status: 0 whatever trtconv built is right; 1 something is not.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import fnmatch
import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(HERE)]

from children import Row, serve, work_off  # noqa: E402
from measuring import kept_rows  # noqa: E402

WAYS = ("raw", "trtconv")
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
_JOB_SECONDS = 60.0
TEXT = 300
Ranges = Mapping[str, tuple[int, int, int]]
"""Dimension to min, opt, max."""
LEVEL = 0
"""Of the builder's optimisation: which kernels run fastest is not the question."""


def main() -> int:
    """Runs what is left of the suite; returns the exit status."""
    options = _options()
    if options.worker:
        return serve(lambda: Bench(options.family))
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / f"node-suite-{options.family}.jsonl"
    rows = kept_rows(kept, "test", "way")
    with tempfile.TemporaryDirectory() as folder:
        folder = str(options.cases or folder)
        names = own_cases(options) if options.cases else dump_cases(Path(folder), globs(options.only))
        part, parts = (int(each) for each in options.part.split("/"))
        jobs = [(name, way) for name in names[part - 1 :: parts] for way in options.ways]
        left = [job for job in jobs if job not in rows]
        print(f"{len(names)} tests, {len(left)} of {len(jobs)} jobs to do", file=sys.stderr)
        tasks = [{"test": name, "way": way, "folder": folder} for name, way in left]
        command = [sys.executable, __file__, "--worker", "--family", options.family]
        limits = {"jobs": options.jobs, "seconds": _JOB_SECONDS, "minutes": options.minutes}
        for row in work_off(command, tasks, kept, _told, **limits):
            rows[row["test"], row["way"]] = row
    report = summarize(list({**_base(options.base), **rows}.values()), options.family)
    name = "gpu-node-suite-8.6.json" if options.family == "tensorrt" else "node-suite-rtx.json"
    (options.out / name).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(report))
    return 1 if report["trtconv"].get("wrong") else 0


def _told(task: Row, answer: Row) -> Row:
    """Returns the row of a job, whatever came of it."""
    if "failed" in answer:
        answer = {"verdict": answer["how"], "why": answer["failed"][:TEXT]}
    return {"test": task["test"], "way": task["way"], **answer}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--cases", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _base(result: Path | None) -> dict[tuple[str, ...], Row]:
    rows = json.loads(result.read_text(encoding="utf-8"))["rows"] if result is not None else ()
    return {(row["test"], row["way"]): row for row in rows}


def globs(only: Sequence[str]) -> list[str]:
    """Returns globs of names.

    Args:
        only: Globs, parts of names, and files of names or globs, a line each ("#": a comment). None: all.
    """
    found = [] if only else ["*"]
    for text in only:
        if Path(text).is_file():
            lines = Path(text).read_text(encoding="utf-8").splitlines()
            found += [name for line in lines if (name := line.partition("#")[0].strip())]
        else:
            found.append(text if set(text) & set("*?[") else f"*{text}*")
    return found


def chosen(names: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """Returns the names that some globs are for."""
    return [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in patterns)]


def dump_cases(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Writes each test in a file of its own; returns their names, those that end processes last."""
    import proof_suite

    names = []
    for name, model, inputs, outputs in proof_suite.cases():
        jobs = {name: (model, inputs)}
        constant = proof_suite.constant_inputs(model, inputs)
        if constant is not None:
            jobs[f"{name}+constant"] = (constant, inputs[:1])
        for job in chosen(jobs, patterns):
            written, given = jobs[job]
            names.append(job)
            (folder / f"{job}.pickle").write_bytes(pickle.dumps((written.SerializeToString(), given, outputs)))
    return sorted(names, key=lambda name: ("_expanded" in name, names.index(name)))


def own_cases(options: argparse.Namespace) -> list[str]:
    """Returns the names of the tests that lie in the folder of --cases."""
    return chosen(sorted(path.stem for path in options.cases.glob("*.pickle")), globs(options.only))


class Bench:
    """TensorRT in a worker."""

    def __init__(self, family: str) -> None:
        import importlib

        from trt86 import TensorRT

        self._family = family
        self._trt = importlib.import_module("tensorrt" if family == "tensorrt" else "tensorrt_rtx")
        self.plain = TensorRT(self._trt)

    def __call__(self, task: Row) -> Row:
        """Does one test in one way."""
        started = time.monotonic()
        case = pickle.loads(Path(task["folder"], f"{task['test']}.pickle").read_bytes())
        row = self.raw(*case) if task["way"] == "raw" else self.trtconv(*case)
        return {**row, "seconds": round(time.monotonic() - started, 2)}

    def raw(self, data: bytes, inputs: list[Any], outputs: list[Any], ranges: Ranges | None = None) -> Row:
        """Parses, reads back and interprets, builds and runs a model as it is."""
        import onnx
        from trt86 import Options, Refused

        from trtconv.runtimes.tensorrt.readback.execute import Run
        from trtconv.runtimes.tensorrt.readback.read import read

        model = onnx.ModelProto.FromString(data)
        feeds, expected = _named(model, inputs, outputs)
        try:
            network, parser = self.plain.parse(data)
        except Refused as error:
            return {"verdict": "refused", "why": error.message[:TEXT]}
        run = Run(read(self._trt, network), feeds)
        interpreted = run.outputs()
        unproven = "; ".join(sorted(set(run.unproven.values())))[:TEXT]
        row: Row = {"interpreted": verdict_of(interpreted, expected)[0], "unproven": unproven}
        del parser, network
        if self._family == "rtx":
            return {**row, "verdict": "not run", "why": "no GPU is used"}
        try:
            shapes = {
                name: tuple(_sized(feeds[name].shape, places, ranges or {}, pick) for pick in range(3))
                for name, places in _dynamic(model).items()
            }
            options = Options(flags=_flags(model), profile=shapes, level=LEVEL)
            executed = self.execute(self.plain.build(data, options), feeds, expected)
        except Refused as error:
            return {**row, "verdict": "refused" if error.stage != "run" else "not run", "why": error.message[:TEXT]}
        verdict, why = _judge(model, executed, expected)
        agrees, difference = verdict_of(interpreted, executed)
        row["interpreter"] = "unproven" if unproven else {"right": "agrees"}.get(agrees, "differs")
        row["difference"] = difference
        return {**row, "verdict": verdict, "why": why}

    def trtconv(self, data: bytes, inputs: list[Any], outputs: list[Any], ranges: Ranges | None = None) -> Row:
        """Builds a model as `trtconv build` does, and runs the engine."""
        import onnx
        from trt86 import Refused

        import trtconv
        from trtconv.core.builder_options import BuilderOptions
        from trtconv.core.target import Target

        model = onnx.ModelProto.FromString(data)
        feeds, expected = _named(model, inputs, outputs)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(data)
            options = BuilderOptions(optimization_level=LEVEL, tf32=False)
            try:
                dims = {
                    name: trtconv.Range(*(ranges or {}).get(name, (feeds[source].shape[axis],) * 3))
                    for source, places in _dynamic(model).items()
                    for axis, name in places.items()
                }
                request = trtconv.BuildRequest(path, target=Target(self._family), options=options, dims=dims)
                report = trtconv.build(request)
            except trtconv.TrtconvError as error:
                return {"verdict": "refused", "exit_code": error.exit_code, "why": error.message[:TEXT]}
            row = judged(report.to_json())
            if report.exit_code:
                return {**row, "verdict": "refused"}
            if self._family == "rtx":
                return {**row, "verdict": "not run", "why": "no GPU is used"}
            try:
                executed = self.execute((Path(folder) / "m.engine").read_bytes(), feeds, expected)
            except Refused as error:
                return {**row, "verdict": "not run", "why": error.message[:TEXT]}
        verdict, why = _judge(model, executed, expected)
        return {**row, "verdict": verdict, "why": why}

    def execute(self, plan: Any, feeds: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
        engine = self.plain.engine(plan)
        try:
            engine.load(feeds)
            return dict(zip(engine.outputs, engine.run(), strict=True))
        finally:
            engine.free()


def judged(document: Row) -> Row:
    """Returns what a report of `build` says of a model, and of what is wrong with it the first."""
    errors = [each for each in document["findings"] if each["severity"] == "error"]
    proof = document["proof"] or {}
    row: Row = {"exit_code": document["exit_code"], "codes": [each["code"] for each in errors]}
    row |= {"edits": len(document["edits"]), "why": errors[0]["message"][:TEXT] if errors else ""}
    return {**row, "proof": {key: proof.get(key) for key in ("agrees", "max_relative_error", "why")}}


def _dynamic(model: Any) -> dict[str, dict[int, str]]:
    """Returns inputs that have dynamic dimensions, to the names of these by axis: the sizes of the test are their only
    ones."""
    inputs = {
        value.name: {
            axis: dim.dim_param or f"{value.name}:{axis}"
            for axis, dim in enumerate(value.type.tensor_type.shape.dim)
            if not dim.HasField("dim_value")
        }
        for value in model.graph.input
    }
    return {name: places for name, places in inputs.items() if places}


def _sized(shape: tuple[int, ...], places: Mapping[int, str], ranges: Ranges, pick: int) -> tuple[int, ...]:
    """Returns the shape of an input at min (0), opt (1) or max (2) of the ranges that some of its dimensions have."""
    sizes = list(shape)
    for axis, name in places.items():
        sizes[axis] = ranges.get(name, (shape[axis],) * 3)[pick]
    return tuple(sizes)


def _named(model: Any, inputs: list[Any], outputs: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    feeds = dict(zip((value.name for value in model.graph.input), inputs, strict=True))
    return feeds, dict(zip((value.name for value in model.graph.output), outputs, strict=False))


def _flags(model: Any) -> tuple[str, ...]:
    """Returns the builder flags that 8.6 wants for the types of a model."""
    import onnx

    quantized = any("QuantizeLinear" in node.op_type for node in model.graph.node)
    tensors = [*model.graph.input, *model.graph.output]
    half = any(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16 for value in tensors)
    return (*(["INT8"] if quantized else []), *(["FP16"] if half else []))


def _judge(model: Any, got: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[str, str]:
    """Is `verdict_of`, but for models that draw random numbers, of which the suite has one draw: "random"."""
    nodes = {node.op_type for node in model.graph.node}
    return ("random", "it draws numbers") if nodes & _RANDOM else verdict_of(got, expected)


def verdict_of(got: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[str, str]:
    """Returns "right" or "wrong", and why."""
    import numpy as np
    import proof_suite

    from trtconv.runtimes.compare import compare

    for name, value in expected.items():
        if not isinstance(value, np.ndarray):
            return "right", "not a tensor"
        if name not in got:
            return "wrong", f"{name} is missing"
        narrow = value.dtype.itemsize < 4 and value.dtype.kind not in "iub"
        found = compare(name, value, got[name], proof_suite.COARSE if narrow else proof_suite.TOLERANCE)
        same = found.passed or found.why.startswith("the model itself")
        if not same and not proof_suite.same_rows(value, got[name]):
            return "wrong", f"{name}: {found.why}"[:TEXT]
    return "right", ""


def summarize(rows: list[Row], family: str) -> Row:
    """Returns counts by way and verdict, and what went wrong."""
    by_way = {way: [row for row in rows if row["way"] == way] for way in WAYS}
    counts = {way: dict(collections.Counter(row["verdict"] for row in found)) for way, found in by_way.items()}
    checked = collections.Counter(row["interpreter"] for row in by_way["raw"] if "interpreter" in row)
    # Where the engine itself is wrong against the suite, the interpreter is right to differ from one of the two.
    differs = [row for row in by_way["raw"] if row.get("interpreter") == "differs"]
    codes = collections.Counter(code for row in by_way["trtconv"] for code in row.get("codes", ()))
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": gpu(),
        "versions": {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime", "numpy")},
        "family": family,
        "tests": len({row["test"] for row in rows}),
        **counts,
        "trtconv_errors": dict(codes),
        "interpreter": dict(checked),
        "raw_wrong": [{key: row.get(key) for key in ("test", "why")} for row in by_way["raw"] if _is_wrong(row)],
        "trtconv_wrong": [
            {key: row.get(key) for key in ("test", "why", "proof")} for row in by_way["trtconv"] if _is_wrong(row)
        ],
        "interpreter_differs": [{key: row.get(key) for key in ("test", "difference", "verdict")} for row in differs],
        "rows": sorted(rows, key=lambda row: (row["test"], row["way"])),
    }


def gpu() -> str | None:
    """Returns the name of the GPU and the version of its driver; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
        return lines[0] if lines else None
    return None


def _is_wrong(row: Row) -> bool:
    return bool(row["verdict"] == "wrong")


def table(report: Row) -> str:
    """Returns the table that is printed."""
    verdicts = sorted({*report["raw"], *report["trtconv"]})
    lines = [f"{report['tests']} tests", f"{'':10}" + "".join(f"{each:>16}" for each in verdicts)]
    for way in WAYS:
        lines.append(f"{way:10}" + "".join(f"{report[way].get(each, 0):>16}" for each in verdicts))
    lines.append(f"interpreter against the executed engine: {report['interpreter']}")
    for key in ("trtconv_wrong", "interpreter_differs", "raw_wrong"):
        lines += [f"{key}:", *(f"  {row['test']}: {row.get('why') or row.get('difference')}" for row in report[key])]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
