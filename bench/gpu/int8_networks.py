"""Transformers and decoders in int8 on TensorRT 8.6: trtconv quantize beside float16 and ONNX Runtime's quantiser.

    python bench/gpu/int8_networks.py [--only NAME] [--jobs 6] [--seconds 240] [--out FOLDER]  needs TensorRT 8.6, a GPU

Networks with random weights are quantised on the processor from 12 samples, by trtconv and by ONNX Runtime (per
channel, symmetric, int8), and built by trtconv. Each engine runs on held-out samples of another seed. A row says:

    float       root of the mean square of its error against the float model, relative to the outputs'
    meant       the same against its own file on ONNX Runtime: whether TensorRT computes what the file says
    us          latency, all engines of a network in turns, CUDA graphs

Writes FOLDER/gpu-int8-8.6.json. Exit status: 0 where every engine is within 3 % of what its file means; else 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import shutil
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
from cost_networks import Writer, bert, segformer  # noqa: E402
from onnx import TensorProto  # noqa: E402

from support.session import session  # noqa: E402

NAME = "gpu-int8-8.6.json"
_SAMPLES, _HELD = 12, 3
_MEANT = 0.03
Feeds = dict[str, Any]


def vit() -> onnx.ModelProto:
    """A vision transformer, 384 wide, 6 deep, of 224x224."""
    w = Writer((1, 3, 224, 224))
    x = w.op("Add", w.tokens(w.conv("x", 3, 384, 16, 16), 384), w.normal(1, 196, 384))
    for _ in range(6):
        x = w.block(x, 384, 6)
    return w.model(w.linear(w.op("ReduceMean", w.layer_norm(x, 384), axes=[1], keepdims=0), 384, 100), 2)


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


def vit_decoder() -> onnx.ModelProto:
    """A vision transformer, 256 wide, 4 deep, whose tokens three transposed convolutions make an image of again."""
    w = Writer((1, 3, 224, 224))
    x = w.op("Add", w.tokens(w.conv("x", 3, 256, 16, 16), 256), w.normal(1, 196, 256))
    for _ in range(4):
        x = w.block(x, 256, 4)
    x, wide = w.image(w.layer_norm(x, 256), 256, 14), 256
    for width in (128, 64, 32):
        x, wide = w.op("Relu", w.up(x, wide, width)), width
    return w.model(w.conv(x, 32, 8, 3), 4)


def unet() -> onnx.ModelProto:
    """A U-Net of 256x256 with skips that are joined."""
    w = Writer((1, 3, 256, 256))
    x, ins, skips = "x", 3, []
    for width in (32, 64, 128):
        x, ins = w.op("Relu", w.conv(w.op("Relu", w.conv(x, ins, width, 3)), width, width, 3)), width
        skips.append(x)
        x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = w.op("Relu", w.conv(x, 128, 256, 3))
    for wide, width in ((256, 128), (128, 64), (64, 32)):
        x = w.op("Concat", w.up(x, wide, width), skips.pop(), axis=1)
        x = w.op("Relu", w.conv(x, 2 * width, width, 3))
    return w.model(w.conv(x, 32, 4, 1), 4)


NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "small vit": small_vit,
    "small bert": small_bert,
    "vit": vit,
    "vit-decoder": vit_decoder,
    # 384 wide, 6 deep, of 128 tokens.
    "bert": lambda: bert(128, 1000, 384, 6, 6, 9),
    "segformer-b0": segformer,
    "unet": unet,
}
PRECISIONS = {"float": "fp16", "trtconv": "int8", "not mended": "int8", "onnxruntime": "int8"}
"""Files of a network, and how each is built; "not mended" is that of trtconv with --no-mend."""


def samples(model: onnx.ModelProto, seed: int, count: int) -> list[Feeds]:
    """Returns inputs of a network."""
    random = np.random.default_rng(seed)
    value = model.graph.input[0].type.tensor_type
    shape = [dim.dim_value for dim in value.shape.dim]
    if value.elem_type == TensorProto.INT64:
        return [{"x": random.integers(0, 1000, shape)} for _ in range(count)]
    return [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def prepare(name: str, folder: Path) -> None:
    """Makes a network's files and engines."""
    if importlib.util.find_spec("sympy") is None:
        # Its shape inference alone wants that, which is not asked for here.
        stand_in = types.ModuleType("symbolic_shape_infer")
        vars(stand_in).update(SymbolicShapeInference=object, get_shape_from_type_proto=None, sympy=None)
        sys.modules |= {stand_in.__name__: stand_in, f"onnxruntime.tools.{stand_in.__name__}": stand_in}
    from onnxruntime import quantization

    import trtconv
    from trtconv.core.findings import Severity
    from trtconv.core.requests.quantize import QuantizeRequest
    from trtconv.core.target import Target
    from trtconv.pipeline.quantizing import quantize

    model = NETWORKS[name]()
    float_path = folder / "float.onnx"
    onnx.save(model, float_path)
    calibration = samples(model, 7, _SAMPLES)
    data = folder / "samples"
    data.mkdir()
    for number, feeds in enumerate(calibration):
        np.savez(data / f"{number:03}.npz", **feeds)
    target = Target("tensorrt")
    made = quantize(QuantizeRequest(float_path, folder / "trtconv.onnx", str(data), target=target, tolerance=9.0))
    print(json.dumps({"int8_share": made.int8_share}), flush=True)

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._left = iter(calibration)

        def get_next(self) -> Feeds | None:
            return next(self._left, None)

    quantization.quantize_static(
        str(float_path),
        str(folder / "onnxruntime.onnx"),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )
    shutil.copy(folder / "trtconv.onnx", folder / "not mended.onnx")
    for file, precision in PRECISIONS.items():
        path = folder / f"{file}.onnx"
        mend = file != "not mended"
        request = trtconv.BuildRequest(path, target=target, precision=precision, prove="none", mend=mend, force=True)
        started = time.perf_counter()
        report = trtconv.build(request)
        print(json.dumps({f"{file} seconds": round(time.perf_counter() - started, 1)}), flush=True)
        if report.exit_code:
            errors = [each.message[:200] for each in report.findings if each.severity is Severity.ERROR]
            print(json.dumps({f"{file} failed": errors}), flush=True)


def meant(path: Path, feeds: list[Feeds]) -> list[Any]:
    """Returns what ONNX Runtime makes of a file, step by step as it is written."""
    loaded = session(path)
    return [loaded.run(None, each)[0] for each in feeds]


def off(found: list[Any], wanted: list[Any]) -> float:
    """Returns how far results are from others, relative to these, root mean square."""
    a, b = (np.concatenate([each.astype(np.float64).ravel() for each in side]) for side in (found, wanted))
    return round(float(np.sqrt(((a - b) ** 2).sum() / (b**2).sum())), 5)


def measure(name: str, folder: Path, raw: Any) -> dict[str, Any]:
    """Runs and times a network's engines."""
    from trt86 import race

    feeds = samples(NETWORKS[name](), 11, _HELD)
    wanted = meant(folder / "float.onnx", feeds)
    engines, row = {}, {}
    for file in PRECISIONS:
        path = folder / f"{file}.engine"
        if not path.exists():
            continue
        engine = engines[file] = raw.engine(path.read_bytes())
        found = []
        for each in feeds:
            engine.free()
            engine.load(each)
            found.append(engine.run()[0])
        row[file] = {"float": off(found, wanted), "meant": off(found, meant(folder / f"{file}.onnx", feeds))}
    for file, time_of in zip(engines, race(list(engines.values()))[0], strict=True):
        row[file]["us"] = time_of.us
    for engine in engines.values():
        engine.free()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", choices=["", *NETWORKS])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=240, help="for making the engines")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.prepare is not None:
        prepare(given.only, given.prepare)
        return 0
    names = [given.only] if given.only else list(NETWORKS)
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / name for name in names}

        def made(name: str) -> dict[str, Any]:
            folders[name].mkdir()
            command = [sys.executable, str(Path(__file__).resolve()), "--only", name, "--prepare", str(folders[name])]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=given.seconds, check=False)
            except subprocess.TimeoutExpired as error:
                out = error.stdout or b""
                said = out.decode() if isinstance(out, bytes) else out
                return _said(said) | {"failed": "out of time"}
            return _said(done.stdout) | ({"failed": done.stderr[-400:]} if done.returncode else {})

        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            rows = dict(zip(names, pool.map(made, names), strict=True))
        import tensorrt
        from trt86 import TensorRT

        from trtconv.runtimes.tensorrt.gpu import gpu_name

        raw = TensorRT(tensorrt)
        for name in names:
            try:
                rows[name] |= {} if "failed" in rows[name] else measure(name, folders[name], raw)
            except Exception as error:
                rows[name]["failed"] = f"{type(error).__name__}: {error}"[:400]
            print(name, json.dumps(rows[name]), flush=True)
            document = {"date": str(datetime.date.today()), "tensorrt": raw.version, "gpu": gpu_name(), "rows": rows}
            (given.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    engines = [row.get(file) for row in rows.values() for file in PRECISIONS]
    return 0 if all(each is not None and each["meant"] < _MEANT for each in engines) else 1


def _said(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
