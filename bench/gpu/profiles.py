"""How much a range of sizes costs, and what dividing it into profiles gives back. TensorRT 8.6 on a GPU.

    python bench/gpu/profiles.py --output results.json [--minutes 7] [--width 48] [--levels 2] [--convolutions 1]

A U-Net with ConvTranspose decoder, fp16, from 64 to 1024 in both dimensions, built by trtconv three ways:

    auto       --split auto
    static     one engine for each size, from a model with just that size
    one        one profile with the asked optimum (512)

and timed at 64, 128, 256, 384, 512, 768 and 1024. Each latency is the median over rounds in which all engines of a size
take turns; `graph_us` is of a captured CUDA graph (GPU time without launch costs), `launch_us` of plain launches. The
ratio is to the static engine. The results are written after every engine, so that a run that is cut short leaves what
it has. Needs tensorrt 8.6, cuda-bindings, numpy, onnx and trtconv; no torch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from device import Buffer, Stream
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import trtconv
from trtconv.core.dims import Range

SIZES = (64, 128, 256, 384, 512, 768, 1024)
FIRST = (256, 384, 128, 64, 768, 512, 1024)
"""Static engines are built in this order, while there is time."""
ASKED = Range(64, 512, 1024)
CLASSES = 4


def unet(width: int, convolutions: int, size: int | None, levels: int = 3) -> onnx.ModelProto:
    """Makes the network, for one size or for any multiple of 2 to the power of `levels`."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op: str, inputs: list[str], **attrs: Any) -> str:
        name = f"{op}_{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def weight(*shape: int) -> str:
        scale = (2 / (shape[1] * shape[2] * shape[3])) ** 0.5
        values = (random.standard_normal(shape) * scale).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{len(weights)}"))
        return weights[-1].name

    def convolve(tensor: str, before: int, after: int) -> str:
        for number in range(convolutions):
            kernel = weight(after, before if number == 0 else after, 3, 3)
            tensor = add("Relu", [add("Conv", [tensor, kernel], pads=[1, 1, 1, 1])])
        return tensor

    tensor, before, skips = "x", 3, []
    for level in range(levels):
        tensor = convolve(tensor, before, width << level)
        before = width << level
        skips.append(tensor)
        tensor = add("MaxPool", [tensor], kernel_shape=[2, 2], strides=[2, 2])
    tensor = convolve(tensor, before, width << levels)
    before = width << levels
    for level in reversed(range(levels)):
        after = width << level
        attrs = {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
        tensor = add("ConvTranspose", [tensor, weight(before, after, 3, 3)], **attrs)
        tensor = convolve(add("Concat", [tensor, skips[level]], axis=1), 2 * after, after)
        before = after
    nodes.append(helper.make_node("Conv", [tensor, weight(CLASSES, before, 1, 1)], ["y"], "head"))
    dims: list[Any] = [1, 3, size or "height", size or "width"]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CLASSES, *dims[2:]])
    graph = helper.make_graph(nodes, "unet", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Engine:
    """A built engine, ready to be timed at a size with a profile."""

    def __init__(self, trt: Any, stream: Stream, path: Path, buffers: tuple[Buffer, Buffer]) -> None:
        self.stream = stream
        self.runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self.engine = self.runtime.deserialize_cuda_engine(path.read_bytes())
        self.context = self.engine.create_execution_context()
        self.buffers = buffers

    def prepare(self, size: int, profile: int) -> tuple[Any, Any]:
        """Returns two ways to run it: by launches, and by a CUDA graph (None where it cannot be captured)."""
        handle = self.stream.handle
        self.context.set_optimization_profile_async(profile, handle)
        self.stream.wait()
        if not self.context.set_input_shape("x", (1, 3, size, size)):
            raise RuntimeError(f"size {size} is refused by profile {profile}")
        for name, buffer in zip("xy", self.buffers, strict=True):
            self.context.set_tensor_address(name, buffer.pointer)

        def launch() -> None:
            if not self.context.execute_async_v3(handle):
                raise RuntimeError("execute_async_v3 failed")

        for _ in range(3):
            launch()
        self.stream.wait()
        try:
            return launch, self.stream.capture(launch).launch
        except RuntimeError:
            return launch, None


class Bench:
    """Builds, times and writes down."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        import tensorrt as trt

        self.trt = trt
        self.arguments = arguments
        self.folder = folder
        self.deadline = time.monotonic() + 60 * arguments.minutes
        self.results: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            "tensorrt": trt.__version__,
            "trtconv": trtconv.__version__,
            "width": arguments.width,
            "levels": arguments.levels,
            "convolutions": arguments.convolutions,
            "builds": {},
            "latencies": [],
            "skipped": [],
        }
        self.slowest = 0.0

    def save(self) -> None:
        self.arguments.output.write_text(json.dumps(self.results, indent=2) + "\n")

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def build(self, name: str, size: int | None = None, **options: Any) -> Path | None:
        """Builds one engine with trtconv, unless there is hardly time left."""
        if self.left() < 1.1 * self.slowest + 20:
            self.results["skipped"].append(name)
            return None
        model = self.folder / f"{size or 'any'}.onnx"
        onnx.save(unet(self.arguments.width, self.arguments.convolutions, size, self.arguments.levels), model)
        engine = self.folder / f"{name}.engine"
        started = time.monotonic()
        request = trtconv.BuildRequest(
            model,
            engine,
            target=trtconv.Target("tensorrt"),
            precision=self.arguments.precision,
            prove="none",
            **options,
        )
        report = trtconv.build(request)
        seconds = time.monotonic() - started
        if report.exit_code:
            raise SystemExit(f"{name}: {[f.message for f in report.findings]}")
        self.slowest = max(self.slowest, seconds / len(report.plan.profiles))
        self.results["gpu"] = report.runtime.gpu
        self.results["builds"][name] = {
            "seconds": round(seconds, 1),
            "engine_bytes": engine.stat().st_size,
            "profiles": [profile.to_json() for profile in report.plan.profiles],
        }
        print(f"built {name} in {seconds:.0f} s, {self.left():.0f} s left", flush=True)
        self.save()
        return engine

    def build_all(self) -> dict[str, Path]:
        asked = {"height": ASKED, "width": ASKED}
        made = {"auto": self.build("auto", dims=asked, split="auto")}
        for size in FIRST:
            made[f"static {size}"] = self.build(f"static_{size}", size)
        made["one"] = self.build("one", dims=asked)
        return {name: path for name, path in made.items() if path is not None}

    def time_all(self, engines: dict[str, Path]) -> None:
        stream = Stream()
        x, y = (Buffer(stream, 4 * channels * 1024 * 1024) for channels in (3, CLASSES))
        x.fill(np.random.default_rng(0).standard_normal(3 * 1024 * 1024).astype(np.float32))
        loaded = {name: Engine(self.trt, stream, path, (x, y)) for name, path in engines.items()}
        reports = {name: trtconv.load_report(f"{path}.json") for name, path in engines.items()}
        for size in SIZES:
            names = [name for name in loaded if not name.startswith("static") or name == f"static {size}"]
            profiles = {name: reports[name].profile_for({"x": (1, 3, size, size)}) for name in names}
            runs = {name: loaded[name].prepare(size, profiles[name]) for name in names}
            row: dict[str, Any] = {"size": size, "profiles": profiles}
            for kind, position in (("launch_us", 0), ("graph_us", 1)):
                row[kind] = turns(stream, {n: run[position] for n, run in runs.items() if run[position]})
                static = row[kind].get(f"static {size}")
                row[kind.replace("us", "ratio")] = (
                    {n: round(t / static, 3) for n, t in row[kind].items()} if static else {}
                )
            self.results["latencies"].append(row)
            print(size, row["graph_us"] or row["launch_us"], row["graph_ratio"] or row["launch_ratio"], flush=True)
            self.save()


def _mean(stream: Stream, work: Callable[[], None], times: int) -> float:
    """Returns the GPU's time for one call of `work`, averaged over some in a row, in microseconds."""

    def repeat() -> None:
        for _ in range(times):
            work()

    return stream.microseconds(repeat) / times


def turns(stream: Stream, runs: dict[str, Any], rounds: int = 21) -> dict[str, float]:
    """Times all in turns; the median of each, in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        # The order changes from round to round, so that none always follows the same other.
        names = list(runs)[number % max(1, len(runs)) :] + list(runs)[: number % max(1, len(runs))]
        for name in names:
            _mean(stream, runs[name], 3)
            times[name].append(_mean(stream, runs[name], 20))
    return {name: round(statistics.median(values), 2) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--width", type=int, default=48, help="channels of the first level")
    parser.add_argument("--levels", type=int, default=2, help="how often the size is halved")
    parser.add_argument("--convolutions", type=int, default=1, help="3x3 convolutions a level")
    parser.add_argument("--precision", default="fp16")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        bench.time_all(bench.build_all())
    ratios = [row["graph_ratio"].get("auto") or row["launch_ratio"].get("auto") for row in bench.results["latencies"]]
    known = [ratio for ratio in ratios if ratio]
    bench.results["worst_ratio_of_auto"] = max(known, default=None)
    bench.save()
    print(f"auto against static: worst {max(known, default=float('nan')):.2f} of {len(known)} sizes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
