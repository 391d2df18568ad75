"""Where the opts of several profiles should sit: how a profile's latency depends on the distance to its opt.

    python bench/gpu/splits.py --output splits.json [--seconds 300] [--width 48] [--levels 2]

TensorRT builds every profile of an engine by itself, so a division into profiles is known once its parts are. This
builds one engine a part (a box min, opt, max, both in height and in width; fp16; the U-Net of profiles.py) and times
each at every size in its box. From these the latency of any division follows: at each size it is that of the part which
`trtconv.load_report(...).profile_for` would choose, whose opt is nearest in factors. It is compared with the fastest
part at that size, the one with just that opt among them: facts of an earlier run say that this is as fast as a static
engine (0.97 to 1.01).

So that many parts are built in little time, layers may only be computed in fp16 and all builds share a timing cache:
the figures choose a strategy and do not prove it; profiles.py does. Parts are built in order of importance until the
time is up, and an output that is there is continued. Results are written after every part.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from profiles import CLASSES, SIZES, Cuda, Engine, unet
from trt86 import Options, Refused, TensorRT

Box = tuple[int, int, int]
Latencies = dict[str, dict[str, float]]
LOW, HIGH = 64, 1024
BETWEEN = (96, 192, 320, 448, 640, 896)
"""Sizes that no strategy was made for."""
BOXES: tuple[Box, ...] = (
    (LOW, 256, HIGH),
    (256, 256, 256),
    (LOW, 512, HIGH),
    (LOW, 128, HIGH),
    (LOW, 384, HIGH),
    (LOW, 1024, HIGH),
    (LOW, 192, HIGH),
    (LOW, 64, HIGH),
    (LOW, 768, HIGH),
    (256, 256, 512),
    (256, 384, 512),
    (LOW, 96, HIGH),
    (LOW, 360, 512),
    (512, 512, 512),
    (LOW, 128, 256),
    (512, 768, 1024),
    (LOW, 320, HIGH),
    (LOW, 448, HIGH),
    (LOW, 640, HIGH),
)
STRATEGIES: dict[str, tuple[int, ...]] = {
    "1 part, opt 512": (512,),
    "2 parts": (192, 512),
    "3 parts, middle": (128, 384, 768),
    "3 parts, low": (128, 256, 512),
    "3 parts, lowest": (96, 256, 512),
    "3 parts, wide": (96, 256, 768),
    "3 parts, top": (256, 512, 1024),
    "4 parts, middle": (96, 192, 384, 768),
    "4 parts, low": (64, 128, 256, 512),
    "4 parts, top": (128, 256, 512, 1024),
    "5 parts": (64, 128, 256, 512, 1024),
    "7 parts": SIZES,
}
"""Divisions of 64 to 1024 by their opts; parts that meet and parts that all begin at 64 have the same opts."""
_HALF_LAYERS = ("CONVOLUTION", "DECONVOLUTION", "ACTIVATION", "POOLING", "CONCATENATION")


class HalfOnly(TensorRT):
    """TensorRT that is allowed fp16 kernels alone, which takes a fraction of the time to choose from."""

    def parse(self, model: bytes) -> tuple[Any, Any]:
        """Parses, and fixes the precision of every layer."""
        network, parser = super().parse(model)
        for layer in (network.get_layer(i) for i in range(network.num_layers)):
            if layer.type.name in _HALF_LAYERS and hasattr(layer, "precision"):
                layer.precision = self.trt.DataType.HALF
                layer.set_output_type(0, self.trt.DataType.HALF)
        return network, parser


class Experiment:
    """Builds parts, times them and writes down what came of it."""

    def __init__(self, arguments: argparse.Namespace, trt: Any) -> None:
        self.arguments = arguments
        self.deadline = time.monotonic() + arguments.seconds
        self.results: dict[str, Any] = {"builds": [], "latencies_us": {}}
        if arguments.output.exists():
            self.results = json.loads(arguments.output.read_text())
        self.results |= {name: getattr(arguments, name) for name in ("width", "convolutions", "levels")}
        self.results["tensorrt"] = trt.__version__
        self._trt = HalfOnly(trt)
        self._model = unet(arguments.width, arguments.convolutions, None, arguments.levels).SerializeToString()

    def build(self, box: Box, path: Path) -> float:
        """Builds the engine of one part; returns the seconds that it took."""
        shapes = tuple((1, 3, size, size) for size in box)
        options = Options(("FP16", "OBEY_PRECISION_CONSTRAINTS"), half_io=True, profile={"x": shapes})  # type: ignore[dict-item]
        started = time.monotonic()
        path.write_bytes(self._trt.build(self._model, options))
        seconds = round(time.monotonic() - started, 1)
        self.results["builds"].append({"box": box, "seconds": seconds, "engine_bytes": path.stat().st_size})
        print(f"built {_name(box)} in {seconds} s, {self.left():.0f} s left", flush=True)
        return seconds

    def left(self) -> float:
        """Returns the seconds that are left."""
        return float(self.deadline - time.monotonic())

    def save(self) -> None:
        """Writes the results, with what can be said of the strategies by now."""
        self.results["strategies"] = judge(self.results["latencies_us"])
        self.arguments.output.write_text(json.dumps(self.results, indent=1) + "\n")

    def run(self, folder: Path, cuda: Any, make_engine: Any) -> None:
        """Builds and times one part after the other while there is time."""
        slowest = 0.0
        for box in BOXES:
            if _name(box) in self.results["latencies_us"]:
                continue
            if self.left() < 1.2 * slowest + 3:
                break
            path = folder / f"{_name(box).replace(':', '_')}.engine"
            try:
                slowest = max(slowest, self.build(box, path))
            except Refused as error:
                print(f"{_name(box)}: {error.stage}: {error.message[:200]}", flush=True)
                continue
            self.results["latencies_us"][_name(box)] = _time(cuda, make_engine(path), box)
            self.save()


def _time(cuda: Any, engine: Any, box: Box, samples: int = 15) -> dict[str, float]:
    """Times one engine at every size in its box: medians, in microseconds."""
    found = {}
    for size in sorted((*SIZES, *BETWEEN)):
        if box[0] <= size <= box[2]:
            launch, graph = engine.prepare(size, 0)
            run = graph or launch
            once = max(cuda.microseconds(run, 5), 1.0)
            cuda.microseconds(run, max(3, int(20_000 / once)))  # the clock rises
            repeats = max(3, min(30, int(4000 / once)))
            found[str(size)] = round(statistics.median(cuda.microseconds(run, repeats) for _ in range(samples)), 2)
    return found


def judge(latencies: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Says what each strategy costs at each size where that is known, as a ratio to the fastest part."""
    best = {
        size: min((row[str(size)] for row in latencies.values() if str(size) in row), default=math.nan)
        for size in sorted((*SIZES, *BETWEEN))
    }
    table: dict[str, Any] = {}
    for title, opts in STRATEGIES.items():
        ratios = {}
        for size, fastest in best.items():
            nearest = min(opts, key=lambda opt: abs(math.log(opt / size)))
            latency = latencies.get(_name((LOW, nearest, HIGH)), {}).get(str(size))
            if latency is not None:
                ratios[size] = round(latency / fastest, 3)
        table[title] = {
            "ratios": ratios,
            "worst": max((ratios[size] for size in SIZES if size in ratios), default=None),
            "worst_between": max((ratios[size] for size in BETWEEN if size in ratios), default=None),
            "missing": [opt for opt in opts if _name((LOW, opt, HIGH)) not in latencies],
        }
    return table


def _name(box: Sequence[int]) -> str:
    return ":".join(map(str, box))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300, help="when to stop, counted from the start")
    parser.add_argument("--width", type=int, default=48, help="channels of the first level")
    parser.add_argument("--convolutions", type=int, default=1, help="3x3 convolutions a level")
    parser.add_argument("--levels", type=int, default=2, help="how often the size is halved")
    arguments = parser.parse_args()
    import tensorrt as trt

    experiment = Experiment(arguments, trt)
    cuda = Cuda()
    x, y = cuda.allocate(4 * 3 * HIGH * HIGH), cuda.allocate(4 * CLASSES * HIGH * HIGH)
    cuda.fill(x, np.random.default_rng(0).standard_normal(3 * HIGH * HIGH).astype(np.float16))
    with tempfile.TemporaryDirectory() as folder:
        experiment.run(Path(folder), cuda, lambda path: Engine(trt, cuda, path, (x, y)))
    for title, row in experiment.results["strategies"].items():
        print(f"{title:18} {row['worst']} {row['worst_between']} missing {row['missing']} {row['ratios']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
