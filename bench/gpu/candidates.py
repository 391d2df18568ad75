"""How to return output beyond the end of a deconvolution: every exact way that could be fast, on TensorRT 8.6.

    python bench/gpu/candidates.py --prepare      makes the models, bench/gpu/.quantized/candidates.tar.xz; no TensorRT
    python bench/gpu/candidates.py [--models FILE] [--out FOLDER] [--jobs N] [--budget SECONDS]     needs TensorRT 8.6

The second needs numpy, tensorrt and cuda-bindings alone, and this file, children.py, trt86.py and device.py. Layer
by layer the engines are built and raced in turns, with CUDA graphs; the fastest are then built and raced again.

bound: the same deconvolution without output_padding. In float16 the layer is a deconvolution and a Relu; in int8 it
stands between quantisers, and an int8 1x1 convolution follows. Writes FOLDER/gpu-candidates-8.6.json after every race.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from children import Children, Row, serve

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "bench" / "gpu" / ".quantized" / "candidates.tar.xz"
NAME = "gpu-candidates-8.6.json"
FLAGS = {"fp16": ("TF32", "FP16"), "int8": ("TF32", "FP16", "INT8")}
_AGAIN, _WRONG = 3, 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ARCHIVE, metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    # Builds at the same time share the GPU: they slow each other down as much as they save.
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--budget", type=float, default=150, metavar="SECONDS", help="end after that")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    parser.add_argument("--build-only", action="store_true", help="build with TensorRT-RTX, without a GPU")
    parser.add_argument("--serve", metavar="MODULE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(lambda: Work(options.serve).do)
    if options.prepare:
        from candidate_models import prepare

        return prepare(options.models)
    return measure(options)


def measure(options: argparse.Namespace) -> int:
    """Builds all engines, races those of each layer, builds and races the best again, and prints a table."""
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    document: Row = {"seconds": 0.0, "rows": []}

    def write() -> None:
        document["seconds"] = round(time.monotonic() - started, 1)
        (options.out / NAME).write_text(json.dumps(document, indent=1) + "\n")

    backend = "tensorrt_rtx" if options.build_only else "tensorrt"
    command = [sys.executable, __file__, "--serve", backend]
    with tempfile.TemporaryDirectory() as folder, Children(command, options.jobs) as children:
        with tarfile.open(options.models) as archive:
            archive.extractall(folder)
        rows: list[Row] = json.loads((Path(folder) / "rows.json").read_text())
        document["rows"] = rows
        given = {"folder": folder}
        found = {name: row["ways"][way] for row in rows for way, name in _names(row)}

        def done(task: Row, answer: Row) -> None:
            for name in task["names"]:
                found[name].update(answer.get(name, answer))
            document.setdefault("about", {}).update(answer.get("about", {}))
            print(f"{time.monotonic() - started:5.1f} s  {task['do']} {task['names'][0]}: {_told(answer)}", flush=True)
            write()

        last = started + options.budget
        for row in rows:
            builds = [_task(given, row, "build", [name]) for _, name in _names(row)]
            children.run(builds, last - 12, last - 6, done)
            names = [name for way, name in _names(row) if "failed" not in row["ways"][way]]
            if names and not options.build_only:
                children.run([_task(given, row, "race", names)], last, last, done)
                names = [f"{row['name']}.{way}" for way in best(row)]
                children.run([_task(given, row, "again", names)], last - 8, last, done)
    print(*(table(row) for row in rows), sep="\n")
    return 0


def _task(given: Row, row: Row, do: str, names: list[str]) -> Row:
    return given | {"do": do, "kind": row["kind"], "shape": row["shape"], "names": names}


def best(row: Row) -> list[str]:
    """Returns bound and the fastest ways of a row, of those that are right."""
    timed = {way: each["us"] for way, each in row["ways"].items() if each.get("error", 1) < _WRONG}
    timed.pop("raw", None)
    ranked = sorted((way for way in timed if way != "bound"), key=timed.__getitem__)
    ranked = [*(way for way in ranked if way == "kernel"), *(way for way in ranked if way != "kernel")]
    return ["bound", *ranked[: _AGAIN + 1]] if "bound" in timed or ranked else []


def table(row: Row) -> str:
    """Returns the times of a row, and their ratios to the bound."""
    bound = row["ways"]["bound"]
    lines = [f"\n{row['name']}"]
    for way, each in sorted(row["ways"].items(), key=lambda item: item[1].get("us", 1e9)):
        if "us" not in each:
            lines.append(f"  {way:22} {each.get('failed', '-')[:90]}")
            continue
        ratio = each["us"] / bound.get("us", np.nan)
        again = (
            f"  again {each['again']:7.1f} {each['again'] / bound.get('again', np.nan):5.2f}" if "again" in each else ""
        )
        wrong = f"  WRONG {each['error']}" if way != "bound" and each["error"] > _WRONG else ""
        lines.append(f"  {way:22} {each['us']:7.1f} {ratio:5.2f}{again}  {each['layers']} layers{wrong}")
    return "\n".join(lines)


def _names(row: Row) -> Iterator[tuple[str, str]]:
    return ((way, f"{row['name']}.{way}") for way in row["ways"])


def _told(answer: Row) -> str:
    rows = [each for name, each in answer.items() if name != "about" and isinstance(each, dict)]
    return str(answer.get("failed") or answer.get("build_seconds") or f"{len(rows)} timed")


class Work:
    """What a child does.

    Args:
        backend: Name of the module: tensorrt, or tensorrt_rtx for building alone.
    """

    def __init__(self, backend: str) -> None:
        from trt86 import TensorRT

        self._driver = TensorRT(importlib.import_module(backend))

    def do(self, task: Row) -> Row:
        """Does one task."""
        folder, names, flags = Path(task["folder"]), task["names"], FLAGS[task["kind"]]
        if task["do"] == "build":
            return self._build(folder, names[0], flags, keep=True)
        if task["do"] == "again":
            for name in names:
                self._build(folder, name, flags, keep=False)
            rows = self._race(folder, names, task["shape"])
            return {name: {"again": row["us"]} for name, row in rows.items() if "us" in row}
        return self._race(folder, names, task["shape"])

    def _build(self, folder: Path, name: str, flags: tuple[str, ...], *, keep: bool) -> Row:
        from trt86 import Options

        started = time.monotonic()
        plan = self._driver.build((folder / f"{name}.onnx").read_bytes(), Options(flags), keep_timings=keep)
        (folder / f"{name}.engine").write_bytes(bytes(memoryview(plan)))
        return {"build_seconds": round(time.monotonic() - started, 1)}

    def _race(self, folder: Path, names: list[str], shape: list[int]) -> Row:
        from trt86 import race

        engines: dict[str, Any] = {}
        rows: Row = {}
        wanted = None
        for name in names:
            try:
                engine = self._driver.engine((folder / f"{name}.engine").read_bytes())
                engine.load({"x": feed(shape)})
                (got,) = engine.run()
            except Exception as error:
                rows[name] = {"failed": f"{type(error).__name__}: {error}"[:200]}
                continue
            wanted = got if wanted is None else wanted
            engines[name] = engine
            rows[name] = {"error": rms(wanted, got), "layers": engine.layers}
        latencies, how = race(list(engines.values()), rounds=30, warm_up_us=20_000)
        for (name, engine), each in zip(engines.items(), latencies, strict=True):
            engine.free()
            rows[name] |= {"us": each.us, "low": each.low, "high": each.high}
        return rows | {"about": {"tensorrt": self._driver.version, "race": how}}


def feed(shape: list[int]) -> Any:
    """Returns the input: multiples of 1/16, with which float32 makes no rounding error here."""
    return (np.random.default_rng(7).integers(-120, 121, shape) / 16).astype(np.float32)


def rms(wanted: Any, got: Any) -> float:
    """Returns how far two arrays are apart, root mean square."""
    if wanted.shape != got.shape:
        return 1.0
    return round(float(np.linalg.norm((wanted - got).ravel()) / np.linalg.norm(wanted.ravel())), 5)


if __name__ == "__main__":
    sys.exit(main())
