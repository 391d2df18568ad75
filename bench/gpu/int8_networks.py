"""Networks in int8 on TensorRT 8.6: float16, and int8 of trtconv, of ModelOpt and of ONNX Runtime; skips of one scale.

    python bench/gpu/int8_networks.py --make-modelopt FOLDER      ModelOpt's files, where it is installed; no GPU
    python bench/gpu/int8_networks.py [--modelopt FOLDER] [--only NAME,...] [--files NAME,...] [--jobs 2] [--level 1]
                                      [--seconds 330] [--family rtx] [--out FOLDER]

Networks with random weights are quantised on the processor from 12 samples, by trtconv ("attention": with --attention)
and by ONNX Runtime (per channel, symmetric, int8: its defaults made buildable); FOLDER holds NAME.onnx of ModelOpt.
Each is built by trtconv, at an optimisation level that keeps builds short, the same for all, and its engine runs on
held-out samples of another seed. A row says:

    float       root of the mean square of its error against the float model, relative to the outputs'
    meant       the same against its own file on ONNX Runtime: whether TensorRT computes what the file says
    us          latency, all engines of a network in turns, CUDA graphs

"skips" is a U-Net whose skips have the scale of the Concat that takes them, rewritten for TensorRT but for that; with
the skips' scale a little larger (1e-6, 1e-3, 1/127 of it); with skips that Concat reads in float; and as trtconv
mends it.

Writes FOLDER/gpu-int8-networks-8.6.json after every engine; what begins after --seconds is left out. With --family rtx,
which needs no GPU, engines are built and not run. Exit status: 0 where every engine that trtconv did not hand over
unmended is within 3 % of what its file means; else 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests"), str(HERE)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from cost_networks import Writer  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402
from quantize import by_onnxruntime, rms, save_samples  # noqa: E402

from support.session import session  # noqa: E402

NAME = "gpu-int8-networks-8.6.json"
_SAMPLES, _HELD = 12, 3
_MEANT = 0.03
_LAST = 25.0
"""Seconds that a build and a run take at most, or so: none begins later."""
Feeds = dict[str, Any]
Row = dict[str, Any]


def unet(batch: int = 1, size: int = 128) -> onnx.ModelProto:
    """A U-Net with three skips that are joined."""
    w = Writer((batch, 3, size, size))
    x, skips = w.down("x", 3, (32, 64, 128))
    x = w.back(w.op("Relu", w.conv(x, 128, 128, 3)), 128, (32, 64, 128), skips)
    return w.model(w.conv(x, 32, 4, 1), 4)


def wide_unet(width: int, size: int) -> onnx.ModelProto:
    """A U-Net of two joined skips and two convolutions a level, whose first level has so many channels."""
    w = Writer((1, 3, size, size))
    widths, wide = (width, 2 * width), 4 * width
    x, skips = w.down("x", 3, widths, 2)
    x = w.op("Relu", w.conv(w.op("Relu", w.conv(x, widths[-1], wide, 3)), wide, wide, 3))
    for outs, skip in zip(reversed(widths), reversed(skips), strict=True):
        x, wide = w.op("Concat", w.up(x, wide, outs), skip, axis=1), outs
        x = w.op("Relu", w.conv(w.op("Relu", w.conv(x, 2 * outs, outs, 3)), outs, outs, 3))
    return w.model(w.conv(x, width, 4, 1), 4)


def residual() -> onnx.ModelProto:
    """An encoder, and a decoder whose transposed convolutions are added to what the encoder had at their size."""
    w = Writer((1, 3, 128, 128))
    x, ins, skips = "x", 3, []
    for width in (32, 64, 128):
        x, ins = w.op("Relu", w.conv(x, ins, width, 3, 1 if width == 32 else 2)), width
        skips.append(x)
    x = w.op("Relu", w.conv(skips.pop(), 128, 128, 3))
    for wide, width in ((128, 64), (64, 32)):
        x = w.op("Relu", w.op("Add", w.up(x, wide, width), skips.pop()))
    return w.model(w.conv(x, 32, 4, 3), 4)


def vit_decoder() -> onnx.ModelProto:
    """A vision transformer, 192 wide, 3 deep, whose tokens two transposed convolutions make an image of again."""
    w = Writer((1, 3, 160, 160))
    x = w.op("Add", w.tokens(w.conv("x", 3, 192, 16, 16), 192), w.normal(1, 100, 192))
    for _ in range(3):
        x = w.block(x, 192, 3)
    x, wide = w.image(w.layer_norm(x, 192), 192, 10), 192
    for width in (96, 32):
        x, wide = w.op("Relu", w.up(x, wide, width)), width
    return w.model(w.conv(x, 32, 8, 3), 4)


def segformer() -> onnx.ModelProto:
    """Two stages like SegFormer's, with attention to a smaller image, and maps that are joined."""
    w = Writer((1, 3, 128, 128))
    x, ins, side, maps = "x", 3, 128, []
    for width, count, ratio, k, stride in ((32, 1, 4, 7, 4), (64, 2, 2, 3, 2)):
        side //= stride
        t = w.layer_norm(w.tokens(w.conv(x, ins, width, k, stride), width), width)
        n = w.layer_norm(t, width)
        context = w.layer_norm(w.tokens(w.conv(w.image(n, width, side), width, width, ratio, ratio), width), width)
        t = w.op("Add", t, w.attention(n, width, count, context))
        y = w.image(w.linear(w.layer_norm(t, width), width, 4 * width), 4 * width, side)
        y = w.gelu(w.tokens(w.conv(y, 4 * width, 4 * width, 3, group=4 * width), 4 * width))
        t = w.op("Add", t, w.linear(y, 4 * width, width))
        x, ins = w.image(w.layer_norm(t, width), width, side), width
        scales = w.constant(np.array([1, 1, 32 // side, 32 // side], np.float32))
        maps.append(w.op("Resize", w.conv(x, width, 64, 1), "", scales, mode="linear"))
    joined = w.op("Relu", w.conv(w.op("Concat", *maps, axis=1), 128, 64, 1))
    return w.model(w.conv(joined, 64, 12, 1), 4)


def small_vit() -> onnx.ModelProto:
    """A block of a vision transformer, 32 wide, of 32x32."""
    w = Writer((1, 3, 32, 32))
    x = w.block(w.op("Add", w.tokens(w.conv("x", 3, 32, 8, 8), 32), w.normal(1, 16, 32)), 32, 4)
    return w.model(w.linear(w.op("ReduceMean", w.layer_norm(x, 32), axes=[1], keepdims=0), 32, 10), 2)


def small_bert() -> onnx.ModelProto:
    """An attention over 12 tokens, 32 wide."""
    w = Writer((1, 12), TensorProto.INT64)
    x = w.layer_norm(w.op("Add", w.op("Gather", w.normal(1000, 32), "x"), w.normal(1, 12, 32)), 32)
    return w.model(w.linear(w.layer_norm(w.op("Add", x, w.attention(x, 32, 4)), 32), 32, 9), 3)


def vit() -> onnx.ModelProto:
    """A vision transformer, 384 wide, 6 deep, of 224x224."""
    w = Writer((1, 3, 224, 224))
    x = w.op("Add", w.tokens(w.conv("x", 3, 384, 16, 16), 384), w.normal(1, 196, 384))
    for _ in range(6):
        x = w.block(x, 384, 6)
    return w.model(w.linear(w.op("ReduceMean", w.layer_norm(x, 384), axes=[1], keepdims=0), 384, 100), 2)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "skips": lambda: unet(4, 64),
    "unet": unet,
    "residual": residual,
    "vit-decoder": vit_decoder,
    "segformer": segformer,
    "small-bert": small_bert,
    "small-vit": small_vit,
    "vit": vit,
    "unet-56-192": lambda: wide_unet(56, 192),
    "unet-64-192": lambda: wide_unet(64, 192),
    "unet-40-256": lambda: wide_unet(40, 256),
}
"""Those that say most first; the last ones are large."""
FILES = ("float", "trtconv", "attention", "modelopt", "onnxruntime")
SKIPS = ("float", "trtconv", "shared", "apart 1e-6", "apart 1e-3", "apart 1-127", "skip in float", "mended")
"""Files of a network; of "skips", "mended" is what trtconv makes of "shared"."""
_AS_IS = SKIPS[2:-1]


def samples(model: onnx.ModelProto, seed: int, count: int) -> list[Feeds]:
    """Returns inputs of a network."""
    random = np.random.default_rng(seed)
    value = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in value.shape.dim]
    if value.elem_type == TensorProto.INT64:
        return [{"x": random.integers(0, 1000, shape)} for _ in range(count)]
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def without_sympy() -> None:
    """Lets ONNX Runtime's quantiser be imported without sympy and tools that only shape inference of its own wants."""
    if importlib.util.find_spec("sympy") is None or importlib.util.find_spec("onnxruntime.tools") is None:
        tools, name = types.ModuleType("tools"), "onnxruntime.tools"
        stand_in = types.ModuleType("symbolic_shape_infer")
        vars(stand_in).update(SymbolicShapeInference=object, get_shape_from_type_proto=None, sympy=None)
        vars(tools).update(symbolic_shape_infer=stand_in, __path__=[])
        sys.modules |= {name: tools, stand_in.__name__: stand_in, f"{name}.{stand_in.__name__}": stand_in}


def prepare(name: str, folder: Path, family: str) -> None:
    """Makes a network's files."""
    model = NETWORKS[name]()
    onnx.save(model, folder / "float.onnx")
    calibration = samples(model, 7, _SAMPLES)
    data = folder / "samples"
    save_samples(data, calibration)
    from trtconv.core.requests.quantize import QuantizeRequest
    from trtconv.core.target import Target
    from trtconv.pipeline.quantizing import quantize

    target = Target(family, (8, 6) if family == "tensorrt" else (1, 7))
    request = QuantizeRequest(
        folder / "float.onnx", folder / "trtconv.onnx", str(data), target=target, tolerance=9.0, method="min-max"
    )
    shares = {"int8_share": quantize(request).int8_share}
    if any(node.op_type == "Softmax" for node in model.graph.node):
        attention = dataclasses.replace(request, output=folder / "attention.onnx", attention=True)
        shares["attention_share"] = quantize(attention).int8_share
    print(json.dumps(shares), flush=True)
    if name == "skips":
        share_skips(onnx.load(folder / "trtconv.onnx"), folder)
    else:
        without_sympy()
        by_onnxruntime(folder, "MinMax")
        (folder / "int8.onnx").rename(folder / "onnxruntime.onnx")


def share_skips(model: onnx.ModelProto, folder: Path) -> None:
    """Writes the files of "skips": the scales of the skips, and of what is pooled of them, are those of the Concats."""
    makers = {name: node for node in model.graph.node for name in node.output}
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    shared: dict[float, float] = {}
    skips: dict[tuple[str, str], str] = {}
    for node in model.graph.node:
        if node.op_type != "Concat":
            continue
        (behind,) = (each for each in model.graph.node if node.output[0] in each.input[:1])
        real = makers[node.input[1]]
        shared[float(constants[real.input[1]])] = float(constants[behind.input[1]])
        skips[node.name, node.input[1]] = makers[real.input[0]].input[0]

    def written(file: str, factor: float | None) -> None:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for each in copy.graph.initializer:
            value = numpy_helper.to_array(each)
            if value.dtype == np.float32 and value.ndim == 0 and float(value) in shared:
                scale = np.asarray(np.float32(shared[float(value)] * (factor or 1.0)))
                each.CopyFrom(numpy_helper.from_array(scale, each.name))
        for node in copy.graph.node:
            if factor is None and node.op_type == "Concat":
                node.input[1] = skips[node.name, node.input[1]]
        onnx.save(copy, folder / f"{file}.onnx")

    factors = (1.0, 1 + 1e-6, 1.001, 128 / 127, None, 1.0)
    for file, factor in zip(SKIPS[2:], factors, strict=True):
        written(file, factor)
        rewrite(folder / f"{file}.onnx", parted=file == "mended")


def rewrite(path: Path, *, parted: bool) -> None:
    """Rewrites a file as trtconv does for TensorRT 8.6, so that it says what its engine means; parts skips or not."""
    from trtconv.core.target import Target
    from trtconv.graph.model import OnnxModel
    from trtconv.passes import passes_for, run_passes

    model = OnnxModel.load(path)
    wanted = (each for each in passes_for("int8") if parted or each.name != "part-skip-scales")
    run_passes(model, tuple(wanted), Target("tensorrt", (8, 6)))
    model.save(path)


def make_modelopt(folder: Path) -> int:
    """Writes ModelOpt's files, of all operators that it quantises for TensorRT."""
    import contextlib
    import io

    from modelopt.onnx.quantization import quantize

    folder.mkdir(parents=True, exist_ok=True)
    ops = ["Conv", "ConvTranspose", "MaxPool", "Concat", "Add", "MatMul", "Gemm"]
    for name in [each for each in NETWORKS if each != "skips"]:
        model = NETWORKS[name]()
        with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stdout(io.StringIO()):
            onnx.save(model, f"{temporary}/float.onnx")
            calibration = samples(model, 7, _SAMPLES)
            joined = {key: np.concatenate([each[key] for each in calibration]) for key in calibration[0]}
            quantize(
                f"{temporary}/float.onnx",
                quantize_mode="int8",
                calibration_data=joined,
                output_path=str(folder / f"{name}.onnx"),
                op_types_to_quantize=ops,
                log_level="ERROR",
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
            )
    return 0


def build(path: Path, level: int, family: str) -> None:
    """Builds a file, and prints what became of it."""
    import trtconv
    from trtconv.core.builder_options import BuilderOptions
    from trtconv.core.findings import Severity
    from trtconv.core.target import Target

    request = trtconv.BuildRequest(
        path,
        target=Target(family),
        precision="fp16" if path.stem == "float" else "int8",
        options=BuilderOptions(optimization_level=level),
        prove="none",
        # What lacks for TensorRT is there already.
        rewrite=path.stem not in SKIPS[2:],
        fail_on=None if path.stem in SKIPS[2:] else Severity.ERROR,
        force=True,
    )
    started = time.perf_counter()
    report = trtconv.build(request)
    row: Row = {"seconds": round(time.perf_counter() - started, 1), "edits": len(report.edits)}
    if report.exit_code:
        errors = [each.message[:200] for each in report.findings if each.severity is Severity.ERROR]
        row["failed"] = errors or ["no reason told"]
    print(json.dumps(row), flush=True)


def meant(path: Path, feeds: list[Feeds]) -> list[Any]:
    """Returns what ONNX Runtime makes of a file, step by step as it is written."""
    loaded = session(path)
    return [loaded.run(None, each)[0].astype(np.float64) for each in feeds]


class Measured:
    """The engines of a network, run as they come and timed together.

    Args:
        name: The network.
        folder: Its files.
        raw: A plain TensorRT that runs engines; None where none can be run.
    """

    def __init__(self, name: str, folder: Path, raw: Any) -> None:
        self._folder, self._raw = folder, raw
        self._feeds = samples(NETWORKS[name](), 11, _HELD)
        self._wanted = meant(folder / "float.onnx", self._feeds)
        self._engines: dict[str, Any] = {}

    def run(self, file: str) -> Row:
        """Returns the errors of an engine; of a file alone where no engine can be run."""
        own = meant(self._folder / f"{file}.onnx", self._feeds)
        row: Row = {"file_float": rms(self._wanted, own)}
        if self._raw is None:
            return row
        engine = self._engines[file] = self._raw.engine((self._folder / f"{file}.engine").read_bytes())
        found = []
        for each in self._feeds:
            engine.free()
            engine.load(each)
            found.append(engine.run()[0].astype(np.float64))
        return row | {"float": rms(self._wanted, found), "meant": rms(own, found), "layers": engine.layers}

    def times(self) -> dict[str, float]:
        """Returns the latency of each engine in microseconds; they are given back."""
        from trt86 import race

        engines = list(self._engines.values())
        found = race(engines, rounds=20, budget_us=5e5)[0] if engines else []
        for engine in engines:
            engine.free()
        return {file: each.us for file, each in zip(self._engines, found, strict=True)}


class Bench:
    """The whole run.

    Args:
        options: The command line's.
        folder: Where files and engines are made.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options, self._folder = options, folder
        self._end = time.monotonic() + options.seconds
        self._raw: Any = None
        self.rows: dict[str, dict[str, Any]] = {}
        self._about: Row = {"date": str(datetime.date.today()), "level": options.level}
        if options.family == "tensorrt":
            import tensorrt
            from trt86 import TensorRT

            from trtconv.runtimes.tensorrt.gpu import gpu_name

            self._raw = TensorRT(tensorrt)
            self._about |= {"tensorrt": self._raw.version, "gpu": gpu_name()}

    def run(self, names: list[str]) -> None:
        """Makes, builds and measures networks, one after the other; files of the next are made meanwhile."""
        with concurrent.futures.ThreadPoolExecutor(self._options.jobs) as pool:
            made = {name: pool.submit(self._prepare, name) for name in names}
            for name in names:
                self.rows[name] = made[name].result()
                self._write()
                if "failed" not in self.rows[name]:
                    self._network(name, pool)

    def _prepare(self, name: str) -> Row:
        (self._folder / name).mkdir()
        row = self._child("--prepare", str(self._folder / name), "--only", name, seconds=240)
        given = self._options.modelopt / f"{name}.onnx"
        if given.is_file():
            (self._folder / name / "modelopt.onnx").write_bytes(given.read_bytes())
        return row

    def _network(self, name: str, pool: concurrent.futures.Executor) -> None:
        folder = self._folder / name
        measured = Measured(name, folder, self._raw)
        files = SKIPS if name == "skips" else self._options.files.split(",")
        files = [file for file in files if (folder / f"{file}.onnx").is_file()]
        builds = {pool.submit(self._build, folder / f"{file}.onnx"): file for file in files}
        for build in concurrent.futures.as_completed(builds):
            file = builds[build]
            row = self.rows[name][file] = build.result()
            if "failed" not in row:
                try:
                    row |= measured.run(file)
                except Exception as error:
                    row["failed"] = f"{type(error).__name__}: {error}"[:400]
            print(name, file, json.dumps(row), flush=True)
            self._write()
        for file, us in measured.times().items():
            self.rows[name][file]["us"] = us
        self._write()
        print(name, {file: row.get("us") for file, row in self.rows[name].items() if isinstance(row, dict)}, flush=True)

    def _build(self, path: Path) -> Row:
        left = self._end - time.monotonic()
        if left < _LAST:
            return {"failed": "not begun: the time was up"}
        return self._child("--build", str(path), "--level", str(self._options.level), seconds=left)

    def _child(self, *arguments: str, seconds: float) -> Row:
        """Runs this script, and returns what it printed; also where it failed or took too long."""
        command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--family", self._options.family]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return {"failed": f"out of time: {seconds:.0f} s"}
        found: Row = {}
        for line in done.stdout.splitlines():
            found |= json.loads(line) if line.startswith("{") else {}
        return found | ({"failed": done.stderr[-400:]} if done.returncode else {})

    def _write(self) -> None:
        document = self._about | {"rows": self.rows}
        (self._options.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Does what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(NETWORKS), help="networks, joined by commas")
    parser.add_argument("--files", default=",".join(FILES), help="of each network, joined by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--level", type=int, default=1, help="of the builder's optimisation")
    parser.add_argument("--seconds", type=float, default=330, help="no build begins 25 s before that")
    parser.add_argument("--family", default="tensorrt", choices=["tensorrt", "rtx"])
    parser.add_argument("--modelopt", type=Path, default=HERE / ".quantized" / "modelopt")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--make-modelopt", type=Path)
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make_modelopt is not None:
        return make_modelopt(given.make_modelopt)
    if given.prepare is not None:
        prepare(given.only, given.prepare, given.family)
        return 0
    if given.build is not None:
        build(given.build, given.level, given.family)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(given, Path(temporary))
        bench.run(given.only.split(","))
    engines = [
        row
        for rows in bench.rows.values()
        for file, row in rows.items()
        if file not in _AS_IS and file in (*FILES, *SKIPS)
    ]
    return 0 if all(row.get("meant", 1.0 if bench.rows else 0.0) < _MEANT for row in engines) else 1


if __name__ == "__main__":
    raise SystemExit(main())
