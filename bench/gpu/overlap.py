"""Long 1-D transposed convolutions on TensorRT 8.6: as they are, and as two exact rewrites; needs a GPU.

    python bench/gpu/overlap.py --prepare [--models FILE]         makes the models; no TensorRT
    python bench/gpu/overlap.py [--models FILE] [--out FOLDER] [--jobs N] [--budget SECONDS]

Inverse short-time Fourier transforms and vocoders end in such a deconvolution: kernel 512 to 2048, stride a quarter of
it, one or two output channels. The ways, for a kernel of m strides:

- raw: ConvTranspose.
- overlap-add: MatMul of the frames with the kernel, then m shifted blocks added.
- blocks: the same sums as a Conv over m frames whose output channels are the samples of one stride, then Transpose and
  Reshape.

Each geometry's engines are built one after the other, and raced in turns, with CUDA graphs. Writes
FOLDER/gpu-overlap-8.6.json.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import itertools
import json
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from children import Children, Row, serve

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

ARCHIVE = ROOT / "bench" / "gpu" / ".quantized" / "overlap.tar.xz"
NAME = "gpu-overlap-8.6.json"
GEOMETRIES = ((1026, 1, 1024, 256, 400), (2050, 1, 2048, 512, 200), (514, 2, 512, 128, 800), (64, 1, 1024, 256, 400))
"""Input channels, output channels, kernel, stride, frames."""
WAYS = ("overlap-add", "blocks", "raw")
TYPES = {"float16": ("FP16",), "float32": ()}
_BUILD_SECONDS = 100
"""What a build may take, the start of TensorRT included."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=ARCHIVE, metavar="FILE")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    # Builds at the same time share the GPU: they slow each other down as much as they save.
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--budget", type=float, default=60, metavar="SECONDS", help="end after that")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(lambda: Work().do)
    return prepare(options.models) if options.prepare else measure(options)


def stem(geometry: tuple[int, ...], way: str) -> str:
    return "-".join((way, *map(str, geometry)))


def measure(options: argparse.Namespace) -> int:
    """Builds all engines, races those of each geometry and type, and prints a table."""
    started = time.monotonic()
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    options.out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, Row] = {}

    def done(task: Row, row: Row) -> None:
        for name in task["names"]:
            rows[name] = rows.get(name, {}) | row.get(name, row)
            print(f"{time.monotonic() - started:5.1f} s  {name:45} {rows[name]}", flush=True)
        document = {"date": datetime.date.today().isoformat(), "gpu": gpu_name(), "rows": rows}
        (options.out / NAME).write_text(json.dumps(document, indent=1) + "\n")

    with (
        tempfile.TemporaryDirectory() as folder,
        Children([sys.executable, __file__, "--serve"], options.jobs) as children,
    ):
        with tarfile.open(options.models) as archive:
            archive.extractall(folder)
        last = started + options.budget
        for kind, geometry in itertools.product(TYPES, GEOMETRIES):
            names = [f"{stem(geometry, way)}@{kind}" for way in WAYS]
            for name in names:
                end = min(last - 4, time.monotonic() + _BUILD_SECONDS)
                children.run([{"folder": folder, "do": "build", "names": [name]}], last - 8, end, done)
            built = [name for name in names if "failed" not in rows[name]]
            if built:
                children.run([{"folder": folder, "do": "race", "names": built}], last, last, done)
    return 0


class Work:
    """What a child does."""

    def __init__(self) -> None:
        from trt86 import TensorRT

        self._driver = TensorRT(importlib.import_module("tensorrt"))

    def do(self, task: Row) -> Row:
        """Does one task."""
        return self._race(task) if task["do"] == "race" else self._build(task)

    def _build(self, task: Row) -> Row:
        from trt86 import Options

        (name,), folder = task["names"], Path(task["folder"])
        started = time.monotonic()
        model, kind = name.split("@")
        options = Options(flags=TYPES[kind], half_io=kind == "float16")
        plan = self._driver.build((folder / f"{model}.onnx").read_bytes(), options, keep_timings=False)
        (folder / f"{name}.engine").write_bytes(bytes(memoryview(plan)))
        return {"version": self._driver.version, "build_seconds": round(time.monotonic() - started, 1)}

    def _race(self, task: Row) -> Row:
        from trt86 import race

        folder, engines, rows = Path(task["folder"]), [], {}
        for name in task["names"]:
            engine = self._driver.engine((folder / f"{name}.engine").read_bytes())
            model, kind = name.split("@")
            geometry = tuple(map(int, model.split("-")[-5:]))
            dtype = np.float16 if kind == "float16" else np.float32
            engine.load({"x": feed(geometry).astype(dtype)})
            (got,) = engine.run()
            engines.append(engine)
            rows[name] = {"error": rms(expected(geometry), got), "layers": engine.layers}
        latencies, _ = race(engines, rounds=20)
        return {name: rows[name] | {"us": each.us} for name, each in zip(task["names"], latencies, strict=True)}


def rms(wanted: Any, got: Any) -> float:
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    return round(float(np.sqrt(np.square(a - b).sum() / np.square(a).sum())), 6)


# --- Models -----------------------------------------------------------------------------------------------------------


def feed(geometry: tuple[int, ...]) -> Any:
    """Returns the input, (1, channels, frames)."""
    return np.random.default_rng(7).standard_normal((1, geometry[0], geometry[4])).astype(np.float16)


def weights(geometry: tuple[int, ...]) -> Any:
    """Returns the kernel, (inputs, outputs, length)."""
    channels, outputs, kernel, _, _ = geometry
    values = np.random.default_rng(8).standard_normal((channels, outputs, kernel)) / np.sqrt(channels)
    return values.astype(np.float16).astype(np.float32)


def expected(geometry: tuple[int, ...]) -> Any:
    """Returns the output by the definition, (1, outputs, (frames - 1) * stride + kernel)."""
    _, outputs, kernel, stride, frames = geometry
    products = np.einsum("ct,cok->otk", feed(geometry)[0].astype(np.float64), weights(geometry).astype(np.float64))
    result = np.zeros((1, outputs, (frames - 1) * stride + kernel))
    for frame in range(frames):
        result[0, :, frame * stride : frame * stride + kernel] += products[:, frame]
    return result


def prepare(path: Path) -> int:
    """Writes the models in one archive."""
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(path, "w:xz") as packed:
        for geometry in GEOMETRIES:
            for way in WAYS:
                file = Path(folder) / f"{stem(geometry, way)}.onnx"
                onnx.save_model(model(geometry, way), file)
                packed.add(file, file.name)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def model(geometry: tuple[int, ...], way: str) -> Any:
    """Returns one way of computing a deconvolution."""
    from onnx import TensorProto, helper, numpy_helper

    channels, outputs, kernel, stride, frames = geometry
    blocks, length, w = kernel // stride, (frames - 1) * stride + kernel, weights(geometry)
    held: dict[str, Any] = {}
    if way == "raw":
        held["w"] = w
        nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[stride])]
    elif way == "blocks":
        # y[o, t * stride + s] is the sum over b of w[:, o, b * stride + s] . x[:, t - b].
        split = w.reshape(channels, outputs, blocks, stride)[:, :, ::-1]
        held["w"] = np.ascontiguousarray(split.transpose(1, 3, 0, 2).reshape(outputs * stride, channels, blocks))
        held["split"], held["join"] = np.array([1, outputs, stride, -1]), np.array([1, outputs, length])
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[blocks - 1, blocks - 1]),
            helper.make_node("Reshape", ["c", "split"], ["s"]),
            helper.make_node("Transpose", ["s"], ["t"], perm=[0, 1, 3, 2]),
            helper.make_node("Reshape", ["t", "join"], ["y"]),
        ]
    else:
        held["w"] = np.ascontiguousarray(w.transpose(1, 0, 2).reshape(outputs, channels, kernel))[None]
        held["split"] = np.array([1, outputs, frames, blocks, stride])
        held["join"], held["axis"] = np.array([1, outputs, length]), np.array([1])
        nodes = [
            helper.make_node("Transpose", ["x"], ["f"], perm=[0, 2, 1]),
            helper.make_node("Unsqueeze", ["f", "axis"], ["u"]),
            helper.make_node("MatMul", ["u", "w"], ["p"]),
            helper.make_node("Reshape", ["p", "split"], ["s"]),
            helper.make_node("Split", ["s"], [f"b{i}" for i in range(blocks)], axis=3),
        ]
        total = ""
        held["frame"] = np.array([1, outputs, frames, stride])
        for i in range(blocks):
            held[f"pads{i}"] = np.array([0, 0, i, 0, 0, 0, blocks - 1 - i, 0])
            nodes.append(helper.make_node("Reshape", [f"b{i}", "frame"], [f"r{i}"]))
            nodes.append(helper.make_node("Pad", [f"r{i}", f"pads{i}"], [f"q{i}"]))
            if total:
                nodes.append(helper.make_node("Add", [total, f"q{i}"], [f"a{i}"]))
            total = f"a{i}" if total else f"q{i}"
        nodes.append(helper.make_node("Reshape", [total, "join"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, frames])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs, length])],
        [numpy_helper.from_array(value, name) for name, value in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


if __name__ == "__main__":
    sys.exit(main())
