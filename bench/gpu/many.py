"""Six models in one command, one after the other and beside each other: what it costs TensorRT 8.6, and its engines.

    python bench/gpu/many.py [--level 1] [--family tensorrt] [--out FILE]     needs TensorRT 8.6 and a GPU

`trtconv build` of a configuration, in float16, with a timing cache of its own: one process, which starts TensorRT once,
as by default, and --jobs 6. A row has the seconds of both commands, and the microseconds of each engine, the two of a
model in turns as CUDA graphs. "builder" is what making the first builder of a process takes, and the second.

Exit status: 0 everything was built; else 1. --family rtx tries all but what runs, without a GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402

MODELS = {
    "unet": "batch = 1, height = 256, width = 256",
    "gan_generator": "batch = 1",
    "super_resolution": "batch = 1, height = 128, width = 128",
    "vocoder": "batch = 1, frames = 128",
    "unet3d": "batch = 1, depth = 32, height = 32, width = 32",
    "quantized_autoencoder": "batch = 1, height = 128, width = 128",
}


def command(folder: Path, *arguments: str, **environment: str) -> float:
    """Runs trtconv; returns the seconds that it took."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "trtconv", *arguments, "-q"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = round(time.perf_counter() - started, 2)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return seconds


def builders() -> list[float]:
    """Returns the seconds that the first builder of this process takes, and the second."""
    import tensorrt

    logger, seconds = tensorrt.Logger(tensorrt.Logger.ERROR), []
    for _ in range(2):
        started = time.perf_counter()
        tensorrt.Builder(logger)
        seconds.append(round(time.perf_counter() - started, 3))
    return seconds


def configure(folder: Path, family: str, level: int) -> None:
    """Writes the configuration of the six models."""
    folder.mkdir()
    rows = [
        f'[[models]]\npath = "{ROOT}/models/{name}.onnx"\nengine = "{name}.engine"\ndims = {{ {dims} }}\n'
        for name, dims in MODELS.items()
    ]
    rest = "" if family == "rtx" else f'precision = "fp16"\noptions = {{ optimization-level = {level} }}\n'
    (folder / "trtconv.toml").write_text(f'targets = ["{family}"]\n{rest}' + "".join(rows))


def many(folder: Path, family: str, level: int) -> dict[str, Any]:
    """Returns what the six models take in one process and in six, and the engines' times."""
    ways: dict[str, tuple[str, ...]] = {"one": (), "six": ("--jobs", "6")}
    seconds = {}
    for way, flags in ways.items():
        configure(folder / way, family, level)
        seconds[way] = command(folder / way, "build", *flags, XDG_CACHE_HOME=str(folder / way / "cache"))
    row: dict[str, Any] = {"seconds": seconds}
    if family != "rtx":
        row["us"] = {name: timed([folder / way / f"{name}.engine" for way in ways], name) for name in MODELS}
    return row


def timed(engines: list[Path], name: str) -> list[float]:
    """Returns the microseconds of engines of a model."""
    import tensorrt
    from trt86 import TensorRT, race

    raw = TensorRT(tensorrt)
    sizes = dict(part.split(" = ") for part in MODELS[name].split(", "))
    feeds = {}
    for value in onnx.load(ROOT / "models" / f"{name}.onnx", load_external_data=False).graph.input:
        shape = [int(sizes[d.dim_param]) if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    loaded = [raw.engine(path.read_bytes()) for path in engines]
    for engine in loaded:
        engine.load(feeds)
    times = [each.us for each in race(loaded, rounds=20, budget_us=1e6)[0]]
    for engine in loaded:
        engine.free()
    return times


def main() -> int:
    """Measures both; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=int, default=1, help="of the builder's optimisation")
    parser.add_argument("--family", default="tensorrt", choices=["tensorrt", "rtx"])
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    about = {"date": str(datetime.date.today()), "gpu": gpu_name(), "cores": os.cpu_count(), "level": options.level}
    with tempfile.TemporaryDirectory() as temporary:
        row = about | many(Path(temporary), options.family, options.level)
    if options.family != "rtx":
        row["builder"] = builders()
    print(json.dumps(row), flush=True)
    if options.out:
        options.out.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
