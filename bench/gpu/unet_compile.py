"""A U-Net in one dynamic TensorRT engine of trtconv beside torch.compile, in one run on one GPU.

    python3 bench/gpu/unet_compile.py --output results.json [--budget 330] [--sizes 64,256,512,1024] [--whole]
                                      [--width 48] [--levels 3] [--convolutions 2]
                                      [--env ~/trt/env.sh] [--python python3.10] [--builder-gpu 1] [--level 5]

This process needs nothing but Python with torch; TensorRT 8.6, cuda-bindings, numpy, onnx and trtconv are those of
`--python` after `--env` was sourced. The network is that of profiles.py, its weights and its input the same on both
sides, everything in fp16.

torch.compile runs with dynamic=False for each size (mode "default", channels last and plain; "max-autotune", channels
last) and with dynamic=True for all sizes. When it is done, or meanwhile on another GPU of the same kind
(--builder-gpu), trtconv builds for 64 to 1024 what `--split auto` makes. With --whole that is one engine; else it is an
engine for each profile that is timed, one after the other with one timing cache, then, where all are timed, the whole
with that cache. Where there is no time for the whole, those engines are timed, as `engine` says. With --level a static
engine of each size at that optimisation level, the largest first, is built behind and timed too, while there is time:
what one size can have at most. No two measure kernels on one GPU at a time.

Both sides are timed as CUDA graphs by events on the GPU: no launches, no Python, no copies count. They take turns, a
process each; the latency is the median over the rounds, and the ratio is torch's best way over trtconv. `errors` are
the largest difference over the largest value, to float32 in torch. The results are written after every size.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from children import Child, Row, serve  # noqa: E402

SIZES = (64, 256, 512, 1024)
WAYS = (("default", "channels_last", False), ("default", "channels_last", True), ("default", "plain", False))
"""Mode of torch.compile, layout of activations and weights, dynamic."""
AUTOTUNED = ("max-autotune", "channels_last", False)
_WARM_MS, _SAMPLE_MS, _ROUNDS = 30, 30, 11
_TIMING_SECONDS = 45


def way_name(mode: str, layout: str, dynamic: bool) -> str:
    return f"{mode} {layout}{' dynamic' if dynamic else ''}"


def sample(microseconds: Callable[[int], float]) -> float:
    """Warms up and returns the time of one run; `microseconds(n)` is that of n runs in a row."""
    once = microseconds(3) / 3
    microseconds(max(3, int(1000 * _WARM_MS / once)))
    times = max(5, int(1000 * _SAMPLE_MS / once))
    return microseconds(times) / times


# The side of TensorRT.


def trtconv_side() -> Callable[[Row], Row]:
    import numpy as np
    import onnx
    import profiles
    import tensorrt as trt
    from device import Buffer, Stream
    from onnx import TensorProto, numpy_helper

    import trtconv
    from trtconv.core.builder_options import BuilderOptions
    from trtconv.core.dims import Range
    from trtconv.graph.model import OnnxModel
    from trtconv.pipeline.outputs import asked_profiles
    from trtconv.pipeline.profiles import settle

    held: Row = {}
    runs: dict[str, tuple[Callable[[], None], Any]] = {}
    asked = {"height": Range(64, 512, 1024), "width": Range(64, 512, 1024)}

    def request(task: Row, dims: Any, split: str | None) -> Any:
        options = {"precision": "fp16", "timing_cache": Path(task["cache"]), "prove": "none"}
        target = trtconv.Target("tensorrt")
        return trtconv.BuildRequest(
            Path(task["model"]), Path(task["engine"]), target=target, dims=dims, split=split, **options
        )

    def write_model(task: Row) -> Row:
        model = profiles.unet(task["width"], task["convolutions"], None, task["levels"])
        arrays = [numpy_helper.to_array(each).astype(np.float16) for each in model.graph.initializer]
        names = [each.name for each in model.graph.initializer]
        del model.graph.initializer[:]
        model.graph.initializer.extend(map(numpy_helper.from_array, arrays, names))
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
        onnx.save(model, task["model"])
        np.savez(task["weights"], *arrays)
        loaded = OnnxModel.load(Path(task["model"]))
        whole = asked_profiles(loaded, request({**task, "engine": "x", "cache": "y"}, asked, "auto"))
        parts = settle(loaded, whole, split="auto").profiles
        return {
            "parameters": sum(each.size for each in arrays),
            "profiles": [{name: [b.min, b.opt, b.max] for name, b in part.dims.items()} for part in parts],
        }

    def build(task: Row) -> Row:
        started = time.monotonic()
        dims = {name: Range(*bound) for name, bound in task["dims"].items()} if task["dims"] else asked
        options = BuilderOptions(optimization_level=task.get("level"))
        report = trtconv.build(
            dataclasses.replace(request(task, dims, None if task["dims"] else "auto"), options=options)
        )
        if report.exit_code:
            return {"failed": str([f.message for f in report.findings])[:400]}
        return {
            "seconds": round(time.monotonic() - started, 1),
            "gpu": report.runtime.gpu,
            "version": trt.__version__,
        }

    def prepare(task: Row) -> Row:
        size = task["size"]
        stream = held.setdefault("stream", Stream())
        values = np.random.default_rng(size).standard_normal((1, 3, size, size)).astype(np.float16)
        buffers = Buffer(stream, values.nbytes), Buffer(stream, values.nbytes // 3 * profiles.CLASSES)
        buffers[0].fill(values)
        engine = profiles.Engine(trt, stream, Path(task["engine"]), buffers)
        launch, captured = engine.prepare(size, task["profile"])
        (captured or launch)()
        stream.wait()
        if task["name"] == "trtconv":
            np.save(task["result"], buffers[1].read((1, profiles.CLASSES, size, size), np.float16))
            runs.clear()
        runs[task["name"]] = captured or launch, engine
        return {"graph": captured is not None}

    def measure(task: Row) -> Row:
        return {name: sample(functools.partial(microseconds, run)) for name, (run, _) in runs.items()}

    def microseconds(run: Callable[[], None], times: int) -> float:
        return float(held["stream"].microseconds(lambda: [run() for _ in range(times)]))

    return lambda task: {"model": write_model, "build": build, "prepare": prepare, "measure": measure}[task["do"]](task)


# The side of PyTorch.


def make_unet(torch: Any, task: Row) -> Any:
    """Makes the network of profiles.unet in float32."""
    import numpy as np

    functional = torch.nn.functional
    arrays = np.load(task["weights"])

    class UNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.from_numpy(arrays[name]).float() for name in arrays.files])
            self.levels, self.convolutions = task["levels"], task["convolutions"]

        def forward(self, x: Any) -> Any:
            weights = iter(self.weights)
            skips = []
            for level in range(self.levels + 1):
                for _ in range(self.convolutions):
                    x = functional.relu(functional.conv2d(x, next(weights), padding=1))
                if level < self.levels:
                    skips.append(x)
                    x = functional.max_pool2d(x, 2)
            for skip in reversed(skips):
                x = functional.conv_transpose2d(x, next(weights), stride=2, padding=1, output_padding=1)
                x = torch.cat([x, skip], 1)
                for _ in range(self.convolutions):
                    x = functional.relu(functional.conv2d(x, next(weights), padding=1))
            return functional.conv2d(x, next(weights))

    return UNet().eval().requires_grad_(False).cuda()


class TorchSide:
    """Compiles, captures, times and compares in PyTorch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        # Each size and layout is one more compilation of the same code; beyond 8 of them it would silently run eagerly.
        for name in ("cache_size_limit", "recompile_limit", "accumulated_cache_size_limit"):
            with contextlib.suppress(AttributeError):
                setattr(torch._dynamo.config, name, 256)
        self.graphs: dict[tuple[str, int], Any] = {}
        self.dynamic: Row = {}

    def __call__(self, task: Row) -> Row:
        with self.torch.no_grad():
            return {"compile": self.compile, "compare": self.compare, "measure": self.measure}[task["do"]](task)

    def given(self, size: int, layout: str) -> Any:
        import numpy as np

        values = np.random.default_rng(size).standard_normal((1, 3, size, size)).astype(np.float16)
        return self.laid_out(self.torch.from_numpy(values).cuda(), layout)

    def laid_out(self, what: Any, layout: str) -> Any:
        return what.to(memory_format=self.torch.channels_last) if layout == "channels_last" else what

    def compile(self, task: Row) -> Row:
        torch = self.torch
        mode, layout, dynamic = task["way"]
        name, size, started = way_name(*task["way"]), task["size"], time.monotonic()
        run = self.dynamic.get(name)
        if run is None:
            run = self.laid_out(make_unet(torch, task).half(), layout)
        if mode != "eager" and name not in self.dynamic:
            # A graph is captured here, of whatever the mode compiles to: that of the mode itself copies the input too.
            chosen = {"max-autotune": "max-autotune-no-cudagraphs"}.get(mode, mode)
            run = torch.compile(run, mode=chosen, dynamic=dynamic)
        if dynamic:
            self.dynamic[name] = run
        x, stream, graph = self.given(size, layout), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                run(x)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            y = run(x)
        graph.replay()
        torch.cuda.synchronize()
        # What ran is kept: the graph refers to its kernels, weights and input.
        self.graphs[name, size] = graph, y, (run, x)
        return {"seconds": round(time.monotonic() - started, 1), "torch": torch.__version__}

    def compare(self, task: Row) -> Row:
        import numpy as np

        size = task["size"]
        wanted = make_unet(self.torch, task)(self.given(size, "plain").float()).cpu()
        found = {name: y.float().cpu() for (name, n), (_, y, _) in self.graphs.items() if n == size}
        found["trtconv"] = self.torch.from_numpy(np.load(task["result"]).astype(np.float32))
        scale = float(wanted.abs().max())
        return {"errors": {name: float(f"{float((y - wanted).abs().max()) / scale:.2e}") for name, y in found.items()}}

    def measure(self, task: Row) -> Row:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = {}
        for (name, size), (graph, *_) in self.graphs.items():

            def microseconds(count: int, graph: Any = graph) -> float:
                start.record()
                for _ in range(count):
                    graph.replay()
                end.record()
                end.synchronize()
                return float(1000 * start.elapsed_time(end))

            if size == task["size"]:
                times[name] = sample(microseconds)
        return times


# The process that asks both.


class Asked:
    """A child with the tasks that it is still to do, and what came of them."""

    def __init__(self, command: list[str]) -> None:
        self.child = Child(command)
        self.queue: list[Row] = []
        self.done: list[tuple[Row, Row]] = []
        self.dead = False

    @property
    def busy(self) -> bool:
        return not self.dead and bool(self.child.task or self.queue)

    def step(self, wait: float) -> None:
        """Gives it its next task, or takes an answer that came."""
        if self.child.task is None and self.queue:
            self.child.ask(self.queue.pop(0))
        if self.child.task is not None and select.select([self.child.pipe], [], [], wait)[0]:
            line = self.child.pipe.readline()
            task, self.child.task = self.child.task, None
            self.dead = not line
            self.done.append((task, json.loads(line) if line else {"failed": "the process died"}))

    def ask(self, task: Row, seconds: float = 60) -> Row:
        """Has one thing done, and waits for it."""
        self.queue.append(task)
        until = time.monotonic() + seconds
        while self.busy and time.monotonic() < until:
            self.step(0.2)
        return self.done[-1][1] if self.done and self.done[-1][0] is task else {"failed": "took too long"}


class Bench:
    """Has the engine built and the networks compiled at the same time, then both timed in turns."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.begin = time.monotonic()
        self.shape = {name: getattr(options, name) for name in ("width", "levels", "convolutions")}
        self.files = {
            "model": str(folder / "unet.onnx"),
            "weights": str(folder / "unet.npz"),
            "cache": str(folder / "t.cache"),
        }
        self.results: Row = {
            "date": datetime.date.today().isoformat(),
            **self.shape,
            "builds": {},
            "compiled": {},
            "sizes": [],
        }

    def spent(self) -> float:
        return time.monotonic() - self.begin

    def save(self) -> None:
        self.options.output.write_text(json.dumps(self.results, indent=2) + "\n")

    def trt(self, gpu: str | None = None) -> Asked:
        script = 'set -a; . "$0"; exec "$@"'
        command = [] if gpu is None else ["env", f"CUDA_VISIBLE_DEVICES={gpu}"]
        command += [self.options.python, str(HERE / "unet_compile.py"), "--side", "trtconv"]
        return Asked(["bash", "-c", script, str(self.options.env), *command] if self.options.env else command)

    def torch(self) -> Asked:
        return Asked([sys.executable, str(HERE / "unet_compile.py"), "--side", "torch"])

    def say(self, *what: object) -> None:
        print(f"{self.spent():5.0f} s", *what, flush=True)

    def run(self) -> int:
        main = self.trt(self.options.builder_gpu)
        made = main.ask({"do": "model", **self.shape, **self.files}, 90)
        if "failed" in made:
            raise SystemExit(f"no model: {made}")
        self.results |= made
        self.say("model", made["parameters"], "parameters,", len(made["profiles"]), "profiles")
        torches = self.start_torch()
        engines = self.build(main, torches)
        self.time(main, torches, engines)
        for each in (main, *torches):
            each.child.end()
        return 0

    def start_torch(self) -> list[Asked]:
        """Starts what compiles: what is quick in one process, what takes long in another."""
        quick, slow = self.torch(), self.torch()
        task, sizes = {"do": "compile", **self.shape, **self.files}, self.options.sizes
        ways = (("eager", "channels_last", False), *WAYS)
        quick.queue = [{**task, "way": way, "size": size} for way in ways for size in sizes]
        slow.queue = [{**task, "way": AUTOTUNED, "size": size} for size in sizes]
        return [quick, slow]

    def number_of(self, size: int) -> int:
        """Returns the profile that a size is run with: of those that hold it the one whose opt is nearest."""
        parts = self.results["profiles"]
        fitting = [n for n, part in enumerate(parts) if all(low <= size <= high for low, _, high in part.values())]
        return min(fitting, key=lambda n: abs(parts[n]["height"][1] - size))

    def build(self, main: Asked, torches: list[Asked]) -> dict[int, str]:
        """Compiles and builds: the profiles that are timed, then all. Returns the file of each profile."""
        parts, task = self.results["profiles"], {"do": "build", **self.files}
        single = {n: str(self.folder / f"{n}.engine") for n in map(self.number_of, self.options.sizes)}
        whole = str(self.folder / "auto.engine")
        if not self.options.whole:
            main.queue = [{**task, "engine": path, "dims": parts[n]} for n, path in single.items()]
        if set(single) == set(range(len(parts))) or self.options.whole:
            main.queue.append({**task, "engine": whole, "dims": None})
        if self.options.level:
            for size in sorted(self.options.sizes, reverse=True):
                engine, bound = str(self.folder / f"{self.static(size)}.engine"), [size] * 3
                dims = {"height": bound, "width": bound}
                main.queue.append({**task, "engine": engine, "dims": dims, "level": self.options.level})
        asked = len(main.done)
        apart = self.options.builder_gpu is not None
        for each in torches:
            self.wait([each, main] if apart else [each])
        self.wait([main])
        for way, answer in (done for each in torches for done in each.done):
            self.results["compiled"][f"{way_name(*way['way'])} {way['size']}"] = answer
        for built, answer in main.done[asked:]:
            self.results["builds"][Path(built["engine"]).stem] = answer
        self.say("compiled", self.results["compiled"], "built", self.results["builds"])
        if apart:
            main.child.end()
            main.dead = True
        built = "seconds" in self.results["builds"].get("auto", {})
        self.results["engine"] = (
            "one, --split auto" if built else "one for each profile of --split auto, a cache shared"
        )
        return dict.fromkeys(single, whole) if built else single

    def static(self, size: int) -> str:
        """Returns the name of the engine of one size alone."""
        return f"trtconv static {size} level {self.options.level}"

    def wait(self, asked: list[Asked]) -> None:
        """Lets processes do what they were asked, until the first has, or there is no time left."""
        while asked[0].busy and self.spent() < self.options.budget - _TIMING_SECONDS:
            for each in asked:
                each.step(0.1)

    def time(self, main: Asked, torches: list[Asked], engines: dict[int, str]) -> None:
        if main.child.task is not None or main.dead:
            main.child.end()
            main = self.trt()
        main.queue = []
        for each in torches:
            if each.child.task is not None:
                each.child.end()
                each.dead = True
            each.queue = []
        alive = [each for each in torches if not each.dead]
        gone = [each for each in torches if each.dead]
        self.say(len(gone), "processes of torch did not finish")
        for size in self.options.sizes:
            with contextlib.suppress(KeyError):
                self.time_size(size, main, alive, engines)
            self.save()
        main.child.end()

    def time_size(self, size: int, main: Asked, torches: list[Asked], engines: dict[int, str]) -> None:
        number = self.number_of(size)
        whole = self.results["engine"] == "one, --split auto"
        result = str(self.folder / f"{size}.npy")
        row: Row = {"size": size, "profile": number}
        task = {"do": "prepare", "size": size, "result": result}
        prepared = main.ask({**task, "name": "trtconv", "engine": engines[number], "profile": number if whole else 0})
        if "failed" in prepared:
            self.results["sizes"].append({**row, **prepared})
            return
        row |= prepared | {"errors": {}}
        name = self.static(size)
        if "seconds" in self.results["builds"].get(name, {}):
            main.ask({**task, "name": name, "engine": str(self.folder / f"{name}.engine"), "profile": 0})
        times: dict[str, list[float]] = {}
        turns = [main, *torches]
        for turn in range(_ROUNDS):
            for each in turns[turn % len(turns) :] + turns[: turn % len(turns)]:
                for name, us in each.ask({"do": "measure", "size": size}).items():
                    times.setdefault(name, []).append(us)
            if self.spent() > self.options.budget - 5:
                break
        for each in torches:
            row["errors"] |= each.ask(
                {"do": "compare", "size": size, "result": result, **self.shape, **self.files}
            ).get("errors", {})
        row["us"] = {n: round(statistics.median(v), 2) for n, v in times.items() if n != "failed"}
        row["spread"] = {n: round((max(v) - min(v)) / min(v), 3) for n, v in times.items() if n != "failed"}
        row["rounds"] = turn + 1
        ours = row["us"].get("trtconv")
        theirs = [us for name, us in row["us"].items() if not name.startswith(("trtconv", "eager"))]
        best = min(theirs, default=None)
        row["ratio"] = round(best / ours, 3) if best and ours else None
        self.results["sizes"].append(row)
        self.say(size, "ratio", row["ratio"], row["us"], row["errors"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--budget", type=float, default=330.0, help="seconds, the start of all processes included")
    parser.add_argument("--width", type=int, default=48, help="channels of the first level")
    parser.add_argument("--levels", type=int, default=3, help="how often the size is halved")
    parser.add_argument("--convolutions", type=int, default=2, help="3x3 convolutions a level")
    parser.add_argument("--env", type=Path, help="file that is sourced before the Python with TensorRT starts")
    parser.add_argument("--python", default="python3.10", help="Python with TensorRT")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=list(SIZES))
    parser.add_argument(
        "--builder-gpu", metavar="INDEX", help="of CUDA: builds there, while torch compiles on the first"
    )
    parser.add_argument("--whole", action="store_true", help="build all profiles in one, and none by itself")
    parser.add_argument("--level", type=int, help="build a static engine of each size at that optimisation level too")
    parser.add_argument("--side", choices=("trtconv", "torch"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return serve({"trtconv": trtconv_side, "torch": TorchSide}[options.side])
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "3")
    options.env = options.env and options.env.expanduser()
    with tempfile.TemporaryDirectory() as folder:
        return Bench(options, Path(folder)).run()


if __name__ == "__main__":
    sys.exit(main())
