"""Runs every way to spell a transposed convolution on TensorRT 8.6: the raw model against trtconv's rewrite.

    python bench/gpu/deconv.py [--only TEXT] [--part I/N] [--out FOLDER] [--date DATE]   needs TensorRT 8.6 and a GPU
    python bench/gpu/deconv.py --dry-run               makes the models, runs passes and ONNX Runtime; no TensorRT
    python bench/gpu/deconv.py --build-only            the same, and builds (not runs) with TensorRT-RTX

First every case is checked for its numbers, in several processes; then those cases where both engines are right and
differ are timed, one at a time, with nothing else on the GPU. Each engine is built in a process that may die without
harm to the rest. The results are written after every case to FOLDER/gpu-deconv-8.6.json (default: bench/results).
Ends with 1 where a rewritten model is not right, or not fast enough.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from cases import EXACT, HALF, NETWORK, ROUNDED, Case, all_cases  # noqa: E402
from children import Children, serve  # noqa: E402
from judge import Bench, Row, describe  # noqa: E402

from trtconv.cli.versions import versions  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

NAME = "gpu-deconv-8.6.json"
CASE_SECONDS, TIMING_SECONDS = 420, 240
_ALONE = ("speed", "networks")


def main(arguments: list[str] | None = None) -> int:
    if sys.argv[1:2] == ["--worker"]:
        return serve(lambda: worker(sys.argv[2], int(sys.argv[3])))
    options = parse(arguments)
    backend = "none" if options.dry_run else "rtx" if options.build_only else "tensorrt"
    cases = selected(options.only, options.part)
    table = Table(cases, options, backend)
    if options.merge:
        merge(options.merge, table.path)
        print(f"wrote {table.path}")
        return 0
    print(f"{len(cases)} cases on {backend}, {options.jobs} processes", flush=True)
    with children(backend, options.jobs) as several:
        several.run([{"name": "", "method": "versions"}], table.has_versions)
        several.run([{"name": name, "method": "examine"} for name in cases], table.examined, CASE_SECONDS)
    if backend == "tensorrt" and not options.no_timing:
        table.time(options.budget)
    table.finish()
    print(f"wrote {table.path}")
    return 0 if all(row["ok"] for row in table.rows) else 1


def children(backend: str, count: int) -> Children:
    """Starts processes that examine cases."""
    threads = max(1, (os.cpu_count() or 1) // count)
    return Children([sys.executable, __file__, "--worker", backend, str(threads)], count)


def worker(backend: str, threads: int) -> Callable[[Row], Row]:
    """Returns what does a task in such a process."""
    bench, cases = Bench(backend, threads), all_cases()
    return lambda task: getattr(bench, task["method"])(*([cases[task["name"]]] if task["name"] else []))


def result_of(answer: Row) -> Row:
    """Returns what came of a task; "failure" where nothing did."""
    return {"failure": answer["failed"]} if "failed" in answer else answer


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with TEXT in their name or section")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th case, from the I-th")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--jobs", type=int, default=max(1, min(12, (os.cpu_count() or 1) - 2)), metavar="N")
    parser.add_argument("--budget", type=float, default=520, metavar="SECONDS", help="start no timing after that")
    parser.add_argument("--no-timing", action="store_true", help="numbers only")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="only join the results of several parts")
    parser.add_argument("--dry-run", action="store_true", help="no TensorRT at all")
    parser.add_argument("--build-only", action="store_true", help="build with TensorRT-RTX, without a GPU")
    return parser.parse_args(arguments)


def selected(only: str, part: str) -> dict[str, Case]:
    """Returns the cases that `--only` and `--part` leave."""
    index, count = (int(number) for number in part.split("/"))
    chosen = [case for case in all_cases().values() if only in case.name or only == case.section]
    return {case.name: case for case in chosen[index - 1 :: count]}


class Table:
    """The rows, printed and written as they come."""

    def __init__(self, cases: dict[str, Case], options: argparse.Namespace, backend: str) -> None:
        self.cases = cases
        self.backend = backend
        self._started = time.perf_counter()
        self._rows: dict[str, Row] = {}
        self.document = heading(options, backend)
        name = NAME if backend == "tensorrt" else NAME.replace("gpu", f"{backend}-only")
        part = options.part.replace("/", "-of-")
        self.path = options.out / (name if part == "1-of-1" else name.replace(".json", f"-part-{part}.json"))
        self.path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def rows(self) -> list[Row]:
        """The rows so far, in the order of the cases."""
        return [self._rows[name] for name in self.cases if name in self._rows]

    def has_versions(self, task: Row, answer: Row) -> None:
        """Takes the versions that only such a process knows."""
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        self.document["versions"] |= answer

    def examined(self, task: Row, answer: Row) -> None:
        """Takes the result of a case."""
        case = self.cases[task["name"]]
        row = {**describe(case), **result_of(answer)}
        row["checks"] = checks(row, case, self.backend)
        row["ok"] = all(check["ok"] for check in row["checks"])
        self._keep(row)

    def time(self, budget: float) -> None:
        """Times what is worth it, in one process, until the budget is spent."""
        names = [name for name, row in self._rows.items() if worth_timing(row)]
        names.sort(key=lambda name: (self.cases[name].section not in _ALONE, list(self.cases).index(name)))
        print(f"timing {len(names)} cases", flush=True)
        with children(self.backend, 1) as one:
            for name in names:
                if self.seconds > budget:
                    print(f"out of time: {name} and what follows is not timed", flush=True)
                    return
                one.run([{"name": name, "method": "time"}], self.timed, TIMING_SECONDS)

    def timed(self, task: Row, answer: Row) -> None:
        """Takes the latencies of a case."""
        row = self._rows[task["name"]]
        row["latency"] = result_of(answer)
        row["checks"] = checks(row, self.cases[row["name"]], self.backend)
        row["ok"] = all(check["ok"] for check in row["checks"])
        self._keep(row)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self._started

    def _keep(self, row: Row) -> None:
        self._rows[row["name"]] = row
        print(f"{self.seconds:6.1f} s  {line(row)}", flush=True)
        self.finish()

    def finish(self) -> None:
        """Writes what there is."""
        write(self.path, {**self.document, "seconds": round(self.seconds, 1)}, self.rows)


def write(path: Path, document: Row, rows: list[Row]) -> None:
    """Writes a document, a row a line, whole or not at all."""
    counts = {"rows": len(rows), "ok": sum(row["ok"] for row in rows)}
    head = json.dumps({**document, **counts, "cases": None}, indent=1).removesuffix("null\n}")
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{head}[\n{body}\n ]\n}}\n", encoding="utf-8")
    fresh.replace(path)


def heading(options: argparse.Namespace, backend: str) -> Row:
    """Returns what the document says besides the rows."""
    return {
        "date": options.date,
        "backend": backend,
        "gpu": gpu_name(),
        "driver": driver(),
        "platform": platform.platform(terse=True),
        "versions": {"python": platform.python_version(), **versions()},
        "limits": {"float32": EXACT, "int8": ROUNDED, "float16": HALF, "int8 networks": NETWORK, "latency": 1.05},
        "method": (
            "relative error: largest difference over the largest magnitude of ONNX Runtime's result (CPU, graph"
            " optimisations off). Whole int8 networks may differ by as much as ONNX Runtime's own result does when"
            " the inputs change by a hundred-thousandth (worst of ten tries; their row's limit). TF32 is off; fp16"
            " and int8 by builder flags."
            " Latency: median GPU time of an inference"
            " at the best size of its profile, by CUDA events around recorded CUDA graphs, after warm-up, raw and"
            " rewritten engine in turns, built one after the other with one timing cache; where the ratio is beyond"
            " its limit both are built and timed again, up to twice, without cache, and the best of each counts."
        ),
    }


def driver() -> str | None:
    """Returns the version of the NVIDIA driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return said.split()[0] if said.split() else None


def worth_timing(row: Row) -> bool:
    """Whether a ratio means something: both engines are right, and not the same."""
    sides = [row.get(side, {}).get("verdict") for side in ("raw", "rewritten")]
    return sides == ["right", "right"] and bool(row["edits"]) and row["max_ratio"] is not None


def checks(row: Row, case: Case, backend: str) -> list[Row]:
    """Returns what the row was held to, and whether it holds."""
    if "failure" in row:
        return [_check("examined", row["failure"], "no failure", False)]
    if case.refused_by:
        return [_check("refused by trtconv", row["findings"], case.refused_by, row["refused"])]
    found = []
    if case.against == "original" and "rewrite_error" in row:
        error = row["rewrite_error"]
        found.append(_check("rewrite on ONNX Runtime", error, case.limit, error is not None and error <= case.limit))
    if "rewritten" in row and (backend == "tensorrt" or case.target.startswith(backend)):
        verdict = row["rewritten"]["verdict"]
        found.append(_check("rewritten engine", verdict, "right", verdict in ("right", "builds")))
        audit = row["rewritten"]["audit"]
        found.append(_check("audit of the rewritten network", audit, [], audit == []))
    latency = row.get("latency", {})
    if "failure" in latency:
        found.append(_check("timed", latency["failure"], "no failure", False))
    if "ratio" in latency:
        ratio = latency["ratio"]
        found.append(_check("latency, rewritten / raw", ratio, row["max_ratio"], ratio <= row["max_ratio"]))
    return found


def _check(what: str, value: Any, limit: Any, ok: bool) -> Row:
    return {"what": what, "value": value, "limit": limit, "ok": bool(ok)}


def line(row: Row) -> str:
    """Returns a row as text."""
    failed = [check["what"] for check in row["checks"] if not check["ok"]]
    text = f"{row['name']:<44} raw {_verdict(row, 'raw'):<24} rewritten {_verdict(row, 'rewritten'):<24}"
    latency = row.get("latency", {})
    if "ratio" in latency:
        text += f" {latency['raw']:8.1f} -> {latency['rewritten']:8.1f} us = {latency['ratio']:.2f}"
    return f"{text} {'ok' if row['ok'] else 'FAILED: ' + ', '.join(failed)}"


def _verdict(row: Row, side: str) -> str:
    if "failure" in row:
        return str(row["failure"])[:60]
    if side not in row:
        return _error(row.get("rewrite_error")) if side == "rewritten" else "-"
    found = row[side]
    return str(found["verdict"]) + (f" {_error(found['error'])}" if "error" in found else "")


def _error(error: float | None) -> str:
    return "not finite" if error is None else f"{error:.1e}"


def merge(paths: Iterable[Path], into: Path) -> None:
    """Joins the documents of several parts, in the order of the cases."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    rows = {row["name"]: row for document in documents for row in document["cases"]}
    seconds = round(sum(document["seconds"] or 0.0 for document in documents), 1)
    # The last part was made by the newest script.
    head = {key: value for key, value in documents[-1].items() if key != "cases"}
    write(into, {**head, "seconds": seconds}, [rows[name] for name in all_cases() if name in rows])


if __name__ == "__main__":
    raise SystemExit(main())
