"""What is the fastest way to return output beyond the end of a transposed convolution? Measures three against raw.

    python bench/gpu/remedies.py [--out FOLDER] [--date DATE] [--budget SECONDS]      needs TensorRT 8.6 and a GPU

The remedies: the kernel extended by zero taps, zeros padded on behind the deconvolution (before the bias), and one
more zero element at the end of the input, so that a pad crops what is too much. Which one wins depends on whether the
extended kernel reaches more input elements per output element, which is what `trtconv.graph.deconv` decides by. Writes
FOLDER/gpu-remedies-8.6.json (default: bench/results).
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from deconv import driver  # noqa: E402
from nets import Layer, Quant, make_layer, run_onnx  # noqa: E402
from trt86 import Options, Refused, TensorRT, race  # noqa: E402

from trtconv.runtimes.compare import relative_error  # noqa: E402
from trtconv.runtimes.tensorrt.gpu import gpu_name  # noqa: E402

NAME = "gpu-remedies-8.6.json"
PRECISIONS = {"fp32": (), "tf32": ("TF32",), "fp16": ("TF32", "FP16")}
INT8 = {"int8": ("TF32", "FP16", "INT8")}
Row = dict[str, Any]

LAYERS = {
    "k2": Layer(kernel=2, pads=0, extra=1),
    "k2-512-256": Layer(kernel=2, pads=0, extra=1, size=32, batch=4, channels=(512, 256), relu=True),
    "k4-uneven": Layer(kernel=4, pads=(2, 0), extra=1),
    "k3-dilation-2": Layer(dilation=2, pads=0, extra=1),
    "k3-depthwise": Layer(pads=0, extra=1, channels=(48, 48), group=48),
    "k3": Layer(pads=0, extra=1),
    "k3-256-128": Layer(pads=0, extra=1, size=64, batch=4, channels=(256, 128), relu=True),
    "k2-128-64": Layer(kernel=2, pads=0, extra=1, size=64, batch=4, channels=(128, 64), relu=True),
    "k3-s3": Layer(kernel=3, stride=3, pads=0, extra=1),
    "k4-128-64": Layer(kernel=4, pads=(1, 0), extra=1, size=64, batch=4, channels=(128, 64), relu=True),
    "k3-groups-2": Layer(pads=0, extra=1, group=2),
    "k2-3d": Layer(rank=3, kernel=2, pads=0, extra=1, size=12, channels=(32, 24)),
    "k4-1d": Layer(rank=1, kernel=4, pads=(1, 0), extra=1, size=512, batch=4),
    "k3-1d": Layer(rank=1, pads=0, extra=1, size=512, batch=4),
}
QUANTIZED = ("k2-512-256", "k3-256-128", "k4-128-64", "k2", "k4-uneven")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--budget", type=float, default=400, metavar="SECONDS")
    parser.add_argument("--dry-run", action="store_true", help="only compares the remedies on ONNX Runtime")
    options = parser.parse_args()
    started, rows = time.perf_counter(), []
    trt = None if options.dry_run else TensorRT(importlib.import_module("tensorrt"))
    for name, layer, precision, flags in jobs():
        if time.perf_counter() - started > options.budget:
            print("out of time", flush=True)
            break
        row = measure(trt, layer, flags)
        rows.append({"layer": name, "precision": precision, **row})
        ratios = {key: value.get("ratio") or value.get("refused") for key, value in row.items()}
        print(f"{time.perf_counter() - started:6.1f} s  {name:<14} {precision}  {ratios}", flush=True)
    if trt is not None:
        document = {
            "date": options.date,
            "gpu": gpu_name(),
            "driver": driver(),
            "tensorrt": trt.version,
            "method": "median GPU time of an inference, in turns with the raw model's engine; ratio to it",
            "rows": rows,
        }
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def jobs() -> list[tuple[str, Layer, str, tuple[str, ...]]]:
    floats = [(name, layer, p, flags) for name, layer in LAYERS.items() for p, flags in PRECISIONS.items()]
    quant = Quant(then=64)
    ints = [
        (n, dataclasses.replace(LAYERS[n], quant=quant, relu=False), p, f) for n in QUANTIZED for p, f in INT8.items()
    ]
    return floats[:18] + ints[:3] + floats[18:] + ints[3:]


def measure(trt: TensorRT | None, layer: Layer, flags: tuple[str, ...]) -> Row:
    """Builds the raw model and each remedy, and times them in turns."""
    sample = make_layer(layer)
    models = {"raw": sample.model, **remedies(sample.model, layer)}
    expected = run_onnx(sample.model, sample.feeds)[0]
    row: Row = {}
    for name, model in models.items():
        error = relative_error(expected, run_onnx(model, sample.feeds)[0])
        assert error < 1e-5, (name, error)
    if trt is None:
        return row
    engines = {}
    for name, model in models.items():
        try:
            engine = trt.engine(trt.build(model.SerializeToString(), Options(flags)))
            engine.load(sample.feeds)
            row[name] = {"error": relative_error(expected, engine.run()[0].astype(np.float32))}
            engines[name] = engine
        except Refused as error:
            row[name] = {"refused": f"{error.stage}: {error.message}"[:200]}
    latencies, _ = race(list(engines.values()), rounds=40)
    for (name, engine), latency in zip(engines.items(), latencies, strict=True):
        row[name] |= {"us": latency.us, "ratio": round(latency.us / latencies[0].us, 4)}
        engine.free()
    return row


def remedies(model: onnx.ModelProto, layer: Layer) -> dict[str, onnx.ModelProto]:
    """Returns the model with each remedy in place of output_padding beyond the end pad."""
    return {"kernel": in_kernel(model, layer), "input": before(model, layer), "behind": behind(model, layer)}


def _begin_end(layer: Layer) -> tuple[int, int]:
    begin, end = (layer.pads, layer.pads) if isinstance(layer.pads, int) else layer.pads or (0, 0)
    return begin, end - layer.extra


def _copy(model: onnx.ModelProto, layer: Layer, pads: tuple[int, int]) -> tuple[onnx.ModelProto, onnx.NodeProto]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = next(each for each in copy.graph.node if each.op_type == "ConvTranspose")
    kept = [a for a in node.attribute if a.name not in ("output_padding", "pads")]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.append(helper.make_attribute("pads", [pads[0]] * layer.rank + [pads[1]] * layer.rank))
    return copy, node


def in_kernel(model: onnx.ModelProto, layer: Layer) -> onnx.ModelProto:
    begin, end = _begin_end(layer)
    copy, node = _copy(model, layer, (begin, 0))
    more = -(end // layer.dilation)
    next(a for a in node.attribute if a.name == "kernel_shape").ints[:] = [layer.kernel + more] * layer.rank
    next(a for a in node.attribute if a.name == "pads").ints[layer.rank :] = [end + more * layer.dilation] * layer.rank
    weight = next(t for t in copy.graph.initializer if t.name == "w")
    values = numpy_helper.to_array(weight)
    weight.CopyFrom(numpy_helper.from_array(np.pad(values, [(0, 0)] * 2 + [(0, more)] * layer.rank), "w"))
    return copy


def before(model: onnx.ModelProto, layer: Layer) -> onnx.ModelProto:
    begin, end = _begin_end(layer)
    copy, node = _copy(model, layer, (begin, end + layer.stride))
    tensor, node.input[0] = node.input[0], "x_padded"
    _pad(copy, tensor, "x_padded", [0] * (layer.rank + 4) + [1] * layer.rank)
    _sort(copy)
    return copy


def behind(model: onnx.ModelProto, layer: Layer) -> onnx.ModelProto:
    begin, end = _begin_end(layer)
    copy, node = _copy(model, layer, (begin, 0))
    result, bias = node.output[0], node.input[2]
    node.output[0] = "full"
    del node.input[2]
    values = next(numpy_helper.to_array(t) for t in copy.graph.initializer if t.name == bias)
    wide = numpy_helper.from_array(values.reshape([-1] + [1] * layer.rank), "wide_bias")
    copy.graph.initializer.append(wide)
    _pad(copy, "full", "padded", [0] * (layer.rank + 4) + [-end] * layer.rank)
    copy.graph.node.append(helper.make_node("Add", ["padded", "wide_bias"], [result], name="bias/node"))
    _sort(copy)
    return copy


def _pad(model: onnx.ModelProto, tensor: str, padded: str, pads: list[int]) -> None:
    name = f"{padded}.pads"
    model.graph.initializer.append(numpy_helper.from_array(np.array(pads, np.int64), name))
    model.graph.node.append(helper.make_node("Pad", [tensor, name], [padded], name=f"{padded}/node"))


def _sort(model: onnx.ModelProto) -> None:
    known = {t.name for t in model.graph.initializer} | {i.name for i in model.graph.input}
    left, done = list(model.graph.node), []
    while left:
        ready = next(node for node in left if all(not name or name in known for name in node.input))
        left.remove(ready)
        done.append(ready)
        known.update(ready.output)
    del model.graph.node[:]
    model.graph.node.extend(done)


if __name__ == "__main__":
    raise SystemExit(main())
