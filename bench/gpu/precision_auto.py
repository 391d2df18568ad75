"""What `--precision auto` finds on TensorRT 8.6: engines in float32, float16 and the mix, their error and latency.

    python bench/gpu/precision_auto.py [--out FOLDER] [--budget SECONDS] [--size 256] [--backend tensorrt]

The U-Net and the super-resolution network of models/, and the U-Net with features that get a large offset and lose it
again, which float16 cannot hold: there a few layers make nearly all of the error. Each is built by trtconv in float32
(no TF32), float16 and the mix for every tolerance; all engines of a network run on the sample that the search measured
on, are held against ONNX Runtime (rms of the difference over that of the values), and raced in turns with CUDA graphs.
With --backend tensorrt_rtx, which needs no GPU, engines are built and not run. Writes FOLDER/gpu-precision-8.6.json
after every engine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import trtconv  # noqa: E402
from trtconv.core.builder_options import BuilderOptions  # noqa: E402

NAME = "gpu-precision-8.6.json"
NETWORKS = {"unet-offset": (3e-3, 1e-3), "unet": (1e-3, 5e-4), "super_resolution": (1e-3, 3e-4)}
"""Network to the tolerances that are asked for."""
_OFFSET = 1000.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--budget", type=float, default=240, metavar="SECONDS", help="no network begins after that")
    parser.add_argument("--size", type=int, default=256, help="height and width")
    parser.add_argument("--backend", choices=("tensorrt", "tensorrt_rtx"), default="tensorrt")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    found: dict[str, Any] = {"date": datetime.date.today().isoformat(), "size": options.size, "networks": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, tolerances in NETWORKS.items():
            if time.monotonic() - started > options.budget:
                break
            found["networks"][name] = Network(name, Path(folder), options).measure(tolerances, found)
            found["seconds"] = round(time.monotonic() - started, 1)
            (options.out / NAME).write_text(json.dumps(found, indent=1) + "\n")
    return 0


class Network:
    """A network, its sample, and its engines.

    Args:
        name: Of a network of models/, or "unet-offset".
        folder: Where models and engines go.
        options: Of the command line.
    """

    def __init__(self, name: str, folder: Path, options: argparse.Namespace) -> None:
        self._folder, self._options, self._name = folder, options, name
        self._model = folder / f"{name}.onnx"
        proto = onnx.load_model(ROOT / "models" / f"{name.removesuffix('-offset')}.onnx")
        onnx.save_model(with_offset(proto) if name.endswith("-offset") else proto, self._model)
        shape = (1, 3, options.size, options.size)
        self._sample = {proto.graph.input[0].name: np.random.default_rng(5).random(shape, np.float32)}
        self._data = folder / f"{name}.npz"
        np.savez(self._data, **self._sample)

    def measure(self, tolerances: tuple[float, ...], found: dict[str, Any]) -> dict[str, Any]:
        """Builds, runs and races its engines; returns its rows and the mixes."""
        rows = {"float32": self._build("as-is"), "float16": self._build("fp16")}
        rows |= {f"auto {tolerance:g}": self._build("auto", tolerance) for tolerance in tolerances}
        for way, row in rows.items():
            print(self._name, way, row, flush=True)
        built = [way for way, row in rows.items() if "failed" not in row]
        if self._options.backend == "tensorrt":
            self._race({way: rows[way] for way in built}, found)
        for row in rows.values():
            row.pop("engine", None)
        return rows

    def _build(self, precision: str, tolerance: float | None = None) -> dict[str, Any]:
        engine = self._folder / f"{self._name}-{precision}-{tolerance}.engine"
        sizes = {"batch": 1, "height": self._options.size, "width": self._options.size}
        auto = {"data": str(self._data), "tolerance": tolerance} if precision == "auto" else {}
        started = time.monotonic()
        try:
            report = trtconv.build(
                trtconv.BuildRequest(
                    self._model,
                    engine,
                    dims={name: trtconv.Range(n, n, n) for name, n in sizes.items()},
                    precision=precision,
                    options=BuilderOptions(tf32=False),
                    timing_cache=self._folder / "timing",
                    prove="none",
                    **auto,
                )
            )
        except trtconv.TrtconvError as error:
            return {"failed": str(error)}
        if report.exit_code:
            return {"failed": "; ".join(finding.message for finding in report.findings)}
        row: dict[str, Any] = {"engine": engine, "build_seconds": round(time.monotonic() - started, 1)}
        mix = report.to_json()["mix"]
        if mix:
            row |= {key: mix[key] for key in ("precision", "tolerance", "error", "error_of_all", "time", "timed_on")}
            row |= {"untimed": mix["untimed"], "parts": len(mix["parts"]), "float32_nodes": len(mix["node_precisions"])}
        return row

    def _race(self, rows: dict[str, dict[str, Any]], found: dict[str, Any]) -> None:
        import onnxruntime
        from trt86 import TensorRT, race

        from trtconv.runtimes.tensorrt.gpu import gpu_name

        driver = TensorRT(importlib.import_module("tensorrt"))
        found |= {"tensorrt": driver.version, "gpu": gpu_name()}
        session = onnxruntime.InferenceSession(str(self._model), providers=["CPUExecutionProvider"])
        (wanted, *_) = session.run(None, self._sample)
        engines = []
        for row in rows.values():
            engine = driver.engine(row["engine"].read_bytes())
            engine.load(self._sample)
            (got, *_) = engine.run()
            row |= {"measured_error": rms(wanted, got), "layers": engine.layers}
            engines.append(engine)
        latencies, found["timing"] = race(engines)
        for engine, row, latency in zip(engines, rows.values(), latencies, strict=True):
            engine.free()
            row |= {"us": latency.us, "low": latency.low, "high": latency.high}
            print(self._name, row, flush=True)


def with_offset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network with an offset that is added to its third convolution's result, and taken off again."""
    node = [node for node in proto.graph.node if node.op_type == "Conv"][2]
    at, (result,) = list(proto.graph.node).index(node), node.output
    node.output[0] = "before_offset"
    offset = numpy_helper.from_array(np.array(_OFFSET, np.float32), "offset")
    proto.graph.initializer.append(offset)
    proto.graph.node.insert(at + 1, helper.make_node("Add", ["before_offset", "offset"], ["with_offset"], "add_offset"))
    proto.graph.node.insert(at + 2, helper.make_node("Sub", ["with_offset", "offset"], [result], "take_offset"))
    return proto


def rms(wanted: Any, got: Any) -> float:
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    return float(f"{np.sqrt(np.square(a - b).sum() / np.square(a).sum()):.3e}")


if __name__ == "__main__":
    sys.exit(main())
