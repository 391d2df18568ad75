"""What several profiles cost to build, and what makes them cheaper. TensorRT 8.6 on a GPU, which it wants for itself.

    python bench/gpu/profile_costs.py --output results.json [--budget 120] [--reference bench/results/...json]
                                      [--width 48] [--levels 2] [--convolutions 1]

The U-Net of profiles.py, fp16, 64 to 1024, by a plain TensorRT script, one build after the other in one process:

    one             one profile, opt 512
    auto, lower     the four profiles of `--split auto` at optimization level 2, with the timing cache of `one`
    auto, taken     the four, with the cache of `one` and of the smallest opt alone: between the two only the tactics
                    are timed that one of them took for the layer (--selector: IAlgorithmSelector, TensorRT 8 and 10)
    one, lower      one profile at optimization level 2, with no cache
    one, sources    one profile without tactics of cuDNN, cuBLAS and those that are compiled, with no cache
    auto, all lower the four at optimization level 2, with no cache
    auto            the four, with the timing cache of `one`

as many as there is time for; then all are timed in turns as CUDA graphs at seven sizes. `ratio` is to the fastest at
that size, of an earlier run that `--reference` names too. The results are written after every build and every size.

Builds in processes at the same time (as this script made them before, bench/results/gpu-profile-costs-8.6.json) take as
long as one after the other, and longer: they take turns on the GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import profiles
from device import Buffer, Stream

from trtconv.runtimes.tensorrt.gpu import gpu_name

SIZES = (64, 128, 256, 384, 512, 768, 1024)
ONE = (64, 512, 1024)
AUTO = ((64, 64, 92), (64, 128, 180), (64, 256, 364), ONE)
"""As `--split auto` divides 64:512:1024 in two dimensions for sizes that are multiples of 4."""
SMALLEST = "smallest alone"
_TIMING_SECONDS = 20
Bounds = Sequence[tuple[int, int, int]]


def make_selector(trt: Any) -> Any:
    """Makes an IAlgorithmSelector that notes which tactics layers take, and offers no others once it is `closed`."""

    class Selector(trt.IAlgorithmSelector):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IAlgorithmSelector.__init__(self)
            self.closed = False
            self.taken: dict[tuple[str, Any], set[tuple[int, int]]] = {}
            self.counts = {"asked": 0, "offered": 0, "kept": 0}

        def select_algorithms(self, context: Any, choices: Any) -> list[int]:
            every = list(range(len(choices)))
            layer, opt = _layer(context), _opt(context)
            known = self.taken.get((layer, opt), set()) | self.taken.get((layer, None), set())
            kept = [n for n in every if _tactic(choices[n]) in known] if self.closed else []
            for what, number in (("asked", 1), ("offered", len(every)), ("kept", len(kept or every))):
                self.counts[what] += number
            return kept or every

        def report_algorithms(self, contexts: Any, choices: Any) -> None:
            for context, choice in zip(contexts, choices, strict=True):
                for opt in (_opt(context), None):
                    self.taken.setdefault((_layer(context), opt), set()).add(_tactic(choice))

    return Selector()


def _layer(context: Any) -> str:
    return re.sub(r" \[profile \d+\]", "", context.name)


def _opt(context: Any) -> Any:
    return tuple(tuple(context.get_shape(n)[1]) for n in range(context.num_inputs) if len(context.get_shape(n)) == 3)


def _tactic(algorithm: Any) -> tuple[int, int]:
    variant = algorithm.algorithm_variant
    return variant.implementation, variant.tactic


class Bench:
    """Builds engines, and times them."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.end = time.monotonic() + options.budget
        import tensorrt as trt

        self.trt = trt
        self.options = options
        self.folder = folder
        self.logger = trt.Logger(trt.Logger.ERROR)
        self.builder = trt.Builder(self.logger)
        self.built: dict[str, tuple[Path, Bounds]] = {}
        self.caches: dict[str, bytes] = {}
        self.selector = make_selector(trt)
        self.results: dict[str, Any] = {name: getattr(options, name) for name in ("width", "levels", "convolutions")}
        self.results |= {"date": datetime.date.today().isoformat(), "tensorrt": trt.__version__}
        self.results["gpu"] = gpu_name()
        self.results |= {"start": round(options.budget - self.left(), 1), "builds": {}, "latencies": []}

    def left(self) -> float:
        return self.end - time.monotonic()

    def save(self) -> None:
        self.options.output.write_text(json.dumps(self.results, indent=2) + "\n")

    def build(
        self,
        name: str,
        bounds: Bounds,
        needs: float,
        cache: str = "",
        level: int = 3,
        few: bool = False,
        noted: bool = False,
    ) -> None:
        """Builds one engine, unless it is likely to take longer than there is time.

        Args:
            name: What it is called.
            bounds: Its profiles.
            needs: Seconds that it may take.
            cache: Whose timing cache it begins with.
            level: The optimization level.
            few: Whether only tactics of TensorRT's own kernels are tried.
            noted: Whether the selector of tactics is asked.
        """
        if self.left() < needs + _TIMING_SECONDS:
            print(f"{self.left():4.0f} s left: too few for {name}", flush=True)
            return
        trt, builder = self.trt, self.builder
        model = profiles.unet(self.options.width, self.options.convolutions, None, self.options.levels)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
        parser = trt.OnnxParser(network, self.logger)
        if not parser.parse(model.SerializeToString()):
            raise SystemExit(parser.get_error(0).desc())
        config = builder.create_builder_config()
        config.set_flag(trt.BuilderFlag.FP16)
        config.builder_optimization_level = level
        if few:
            config.set_tactic_sources(1 << int(trt.TacticSource.EDGE_MASK_CONVOLUTIONS))
        if noted:
            self.selector.counts = dict.fromkeys(self.selector.counts, 0)
            config.algorithm_selector = self.selector
        for sizes in bounds:
            profile = builder.create_optimization_profile()
            profile.set_shape("x", *((1, 3, size, size) for size in sizes))
            config.add_optimization_profile(profile)
        config.set_timing_cache(config.create_timing_cache(self.caches.get(cache, b"")), False)
        started = time.monotonic()
        plan = builder.build_serialized_network(network, config)
        row: dict[str, Any] = {
            "seconds": round(time.monotonic() - started, 2),
            "level": level,
            "cache_of": cache or None,
            "tactics": dict(self.selector.counts) if noted else None,
        }
        if plan is None:
            row["failed"] = "the builder refused"
        else:
            path = self.folder / f"{name}.engine"
            path.write_bytes(bytes(plan))
            self.built[name] = path, bounds
            self.caches[name] = bytes(memoryview(config.get_timing_cache().serialize()))
            row["engine_bytes"] = path.stat().st_size
        self.results["builds"][name] = row
        print(f"{self.left():4.0f} s left, {name}: {row}", flush=True)
        self.save()

    def build_all(self) -> None:
        self.build("one", [ONE], 30)
        one = self.results["builds"]["one"]["seconds"]
        if self.options.selector:
            self.build("one, noted", [ONE], one, "one", noted=True)
            self.build(SMALLEST, AUTO[:1], one, "one", noted=True)
            self.selector.closed = True
            self.build("auto, taken", AUTO, 2 * one, SMALLEST, noted=True)
        self.build("auto, lower", AUTO, 2 * one, "one", level=2)
        self.build("one, lower", [ONE], one, level=2)
        self.build("one, sources", [ONE], one, few=True)
        lower = self.results["builds"].get("one, lower", {}).get("seconds", one)
        self.build("auto, all lower", AUTO, 4.5 * lower, level=2)
        self.build("auto", AUTO, 3.5 * one, "one")

    def time_all(self) -> None:
        known = json.loads(self.options.reference.read_text())["latencies"] if self.options.reference else []
        before = {row["size"]: min(row["us"].values()) for row in known}
        stream = Stream()
        x, y = (Buffer(stream, 4 * channels * 1024 * 1024) for channels in (3, profiles.CLASSES))
        x.fill(np.random.default_rng(0).standard_normal(3 * 1024 * 1024).astype(np.float32))
        loaded = {name: profiles.Engine(self.trt, stream, path, (x, y)) for name, (path, _) in self.built.items()}
        for size in SIZES:
            runs: dict[str, Any] = {}
            for name, (_, bounds) in self.built.items():
                if size > bounds[-1][2]:
                    continue
                fitting = [n for n, (low, _, high) in enumerate(bounds) if low <= size <= high]
                launch, graph = loaded[name].prepare(size, min(fitting, key=lambda n: abs(bounds[n][1] - size)))
                runs[name] = graph or launch
            us = profiles.turns(stream, runs, rounds=15)
            best = min(*us.values(), before.get(size, float("inf")))
            row = {"size": size, "us": us, "ratio": {name: round(each / best, 3) for name, each in us.items()}}
            self.results["latencies"].append(row)
            print(size, row["us"], row["ratio"], flush=True)
            self.save()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of the whole")
    parser.add_argument("--reference", type=Path, help="results of an earlier run on the same GPU")
    parser.add_argument("--width", type=int, default=48, help="channels of the first level")
    parser.add_argument("--levels", type=int, default=2, help="how often the size is halved")
    parser.add_argument("--convolutions", type=int, default=1, help="3x3 convolutions a level")
    parser.add_argument("--selector", action="store_true", help="measure `auto, taken` too")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(parser.parse_args(), Path(folder))
        bench.build_all()
        bench.time_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
