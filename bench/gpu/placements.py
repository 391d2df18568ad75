"""Which placements of quantisers TensorRT 8.6 reads as ONNX does: a U-Net quantised in ways that differ in one thing.

    python bench/gpu/placements.py --prepare     makes the models, bench/gpu/.quantized/placements.tar.xz; no TensorRT
    python bench/gpu/placements.py [--models FILE] [--out FOLDER] [--jobs N] [--budget SECONDS]    needs TensorRT 8.6
    python bench/gpu/placements.py --build-only  builds with TensorRT-RTX, runs nothing

The second needs numpy, tensorrt and cuda-bindings alone, and this file, children.py, trt86.py and device.py: what is
expected was computed by --prepare. Engines are built at low optimisation levels, the most telling ones first. Writes
FOLDER/gpu-placements-8.6.json after every engine, and what TensorRT says of its layers beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
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
ARCHIVE = ROOT / "bench" / "gpu" / ".quantized" / "placements.tar.xz"
NAME = "gpu-placements-8.6.json"
INT8, INT8_ALONE, HALF = ("FP16", "INT8"), ("INT8",), ("FP16",)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.serve:
        return serve(lambda: Work(options.serve).do)
    if options.prepare:
        return prepare(options.models)
    return measure(options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ARCHIVE, metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="builders; on one GPU several are no faster")
    parser.add_argument("--budget", type=float, default=70, metavar="SECONDS", help="end after that")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    parser.add_argument("--build-only", action="store_true", help="build with TensorRT-RTX, without a GPU")
    parser.add_argument("--serve", metavar="MODULE", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


# --- Engines ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Job:
    """An engine.

    Args:
        model: Of the archive: "unet2d/base".
        level: The builder's optimisation level.
        flags: Of the builder.
    """

    model: str
    level: int
    flags: tuple[str, ...] = INT8

    @property
    def name(self) -> str:
        """What it is called in the table."""
        alone = "-int8-alone" if self.flags == INT8_ALONE else ""
        return f"{self.model}@{self.level}{alone}"


def jobs(models: list[str]) -> Iterator[Job]:
    """Yields the engines to build, the most telling ones first.

    Args:
        models: Those of the archive.
    """
    yield Job("unet2d/base", 3)
    first = [name for name in models if name.startswith("unet2d/") and "until-" not in name]
    yield from (Job(name, 1) for name in first)
    yield from (Job("unet2d/base", level) for level in (0, 2))
    yield from (Job(name, 1) for name in models if name.startswith("large/"))
    yield from (Job("unet2d/base", level, INT8_ALONE) for level in (1,))
    yield from (Job(name, 1) for name in models if name.startswith(("one/", "narrow/")))
    yield from (Job(name, 1) for name in models if "until-" in name)
    yield from (Job(name, 0) for name in first if name != "unet2d/base")


_RACED = ("quantize", "ort-sym", "base", "skip-nudged", "concat-reads-float", "pool-reads-float", "nothing-shared")
"""The ways whose engines are timed, those of level 1."""


def measure(options: argparse.Namespace) -> int:
    """Builds and runs all engines, races those that are there, and prints a table."""
    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Row] = {}

    def done(task: Row, row: Row) -> None:
        for name in task["names"]:
            rows[name] = rows.get(name, {}) | row.get(name, row)
            print(f"{time.monotonic() - started:5.1f} s  {name}: {_told(rows[name])}", flush=True)
        document = {"seconds": round(time.monotonic() - started, 1), "rows": rows}
        (options.out / NAME).write_text(json.dumps(document, indent=1) + "\n")

    command = [sys.executable, __file__, "--serve", "tensorrt_rtx" if options.build_only else "tensorrt"]
    with tempfile.TemporaryDirectory() as folder, Children(command, options.jobs) as children:
        with tarfile.open(options.models) as archive:
            archive.extractall(folder)
        models = json.loads((Path(folder) / "models.json").read_text())
        given = {"folder": folder, "out": str(options.out), "do": "build"}
        tasks = [given | {"names": [job.name], "job": dataclasses.asdict(job)} for job in jobs(models)]
        last = started + options.budget
        raced = [f"unet2d/{way}@1" for way in _RACED]
        children.run(tasks, last - 20, last - 8, done)
        built = [name for name, row in rows.items() if "error" in row and name in raced]
        if built:
            children.run([given | {"do": "race", "names": built}], last, last, done)
    print("\n".join(f"{name:40} {_told(row)}" for name, row in rows.items()))
    return 0


def _told(row: Row) -> str:
    keys = ("error", "layers", "build_seconds", "us")
    return str(row.get("failed") or "  ".join(f"{key} {row[key]}" for key in keys if key in row))


class Work:
    """What a child does.

    Args:
        backend: Name of the module: tensorrt, or tensorrt_rtx for building alone.
    """

    def __init__(self, backend: str) -> None:
        from trt86 import Options, TensorRT

        class Detailed(TensorRT):
            def _configure(self, config: Any, network: Any, options: Options) -> None:
                super()._configure(config, network, options)
                config.profiling_verbosity = self.trt.ProfilingVerbosity.DETAILED

        self._driver = Detailed(importlib.import_module(backend))

    def do(self, task: Row) -> Row:
        """Does one task."""
        return self._race(task) if task["do"] == "race" else self._build(task)

    def _build(self, task: Row) -> Row:
        from trt86 import Options

        (name,), job, folder = task["names"], task["job"], Path(task["folder"])
        stem = job["model"].replace("/", "-")
        started = time.monotonic()
        level = job["level"] if self._driver.trt.__name__ == "tensorrt" else None
        options = Options(flags=tuple(job["flags"]), level=level)
        plan = self._driver.build((folder / f"{stem}.onnx").read_bytes(), options, keep_timings=False)
        row: Row = {"version": self._driver.version, "build_seconds": round(time.monotonic() - started, 1)}
        _plan(folder, name).write_bytes(bytes(memoryview(plan)))
        if level is None:
            return row
        engine = self._driver.engine(plan)
        engine.load({"x": np.load(folder / f"{stem}.x.npy").astype(np.float32)})
        (got,) = engine.run()
        row["error"] = _rms(np.load(folder / f"{stem}.y.npy"), got)
        row["layers"] = engine.layers
        row["inspected"] = self._inspect(engine, Path(task["out"]) / f"{name.replace('/', '-')}.layers.txt")
        engine.free()
        return row

    def _inspect(self, engine: Any, path: Path) -> str:
        """Writes what TensorRT says of an engine's layers, as it is; returns what went wrong, or an empty string."""
        trt = self._driver.trt
        try:
            inspector = engine._engine.create_engine_inspector()
            inspector.execution_context = engine._context
            path.write_text(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]
        return ""

    def _race(self, task: Row) -> Row:
        from trt86 import race

        folder, engines = Path(task["folder"]), []
        for name in task["names"]:
            engine = self._driver.engine(_plan(folder, name).read_bytes())
            stem = name.partition("@")[0].replace("/", "-")
            engine.load({"x": np.load(folder / f"{stem}.x.npy").astype(np.float32)})
            engines.append(engine)
        latencies, _ = race(engines, rounds=20)
        return {name: {"us": each.us} for name, each in zip(task["names"], latencies, strict=True)}


def _plan(folder: Path, name: str) -> Path:
    return folder / (name.replace("/", "-") + ".engine")


def _rms(expected: Any, got: Any) -> float:
    a, b = expected.astype(np.float64), got.astype(np.float64)
    return round(float(np.sqrt(np.square(a - b).sum() / np.square(a).sum())), 5)


# --- Models -----------------------------------------------------------------------------------------------------------


def prepare(path: Path) -> int:
    """Makes the models, their inputs and what ONNX Runtime computes of them, in one archive."""
    sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
    import onnx
    import recipes
    from float_nets import sample
    from variants import archive

    path.parent.mkdir(parents=True, exist_ok=True)
    names = []
    with tempfile.TemporaryDirectory() as folder:
        for name, shape, proto in archive():
            stem = str(Path(folder) / name.replace("/", "-"))
            x = sample(shape, 99).astype(np.float16)
            (y,) = recipes.outputs(proto, {"x": x.astype(np.float32)})
            np.save(f"{stem}.x.npy", x)
            np.save(f"{stem}.y.npy", y.astype(np.float16))
            onnx.save_model(proto, f"{stem}.onnx")
            names.append(name)
        (Path(folder) / "models.json").write_text(json.dumps(names))
        with tarfile.open(path, "w:xz") as packed:
            for each in sorted(Path(folder).iterdir()):
                packed.add(each, each.name)
    print(f"{len(names)} models in {path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
