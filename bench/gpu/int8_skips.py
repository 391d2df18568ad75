"""Where the quantisers of U-Nets and decoders stand best on TensorRT 8.6: time, error and every layer of each way.

    python bench/gpu/int8_skips.py [--only TEXT] [--seconds 240] [--folder FOLDER] [--out FOLDER]   TensorRT 8.6, a GPU
    python bench/gpu/int8_skips.py --prepare [--folder FOLDER]     makes the files; onnxruntime, no TensorRT

Networks with random weights are quantised by `trtconv quantize` from 8 samples, and written in several ways that mean
the same float network:

    fp16        the float network, built in float16
    own         as quantize writes it: a skip has a scale of its own
    shared      a skip has the scale of the Concat that takes it, as its MaxPool (misread by 8.6 in one network)
    pool-apart  the same, but what MaxPool makes of a skip is quantised by a scale of its own, at a quarter of the size
    bare-pool   the same as shared, without a quantiser behind MaxPool
    split       no Concat: the convolution behind it is two, of skip and deconvolution, whose results are added
    wide-...    channels are filled up to multiples of 32 with zeros, so that a Concat's parts begin at whole vectors
    last-12     (last10) a last deconvolution of 10 channels is one of 12, and a Slice

Each is rewritten by trtconv, built by the raw builder with one timing cache for all, run on samples of another seed,
and timed, all ways of a network in turns as CUDA graphs; each layer by TensorRT's profiler. Writes
gpu-int8-skips-8.6.json after every network.

Exit status: 0 where every way but "shared" is within 3 % of what its file means; else 1.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests"), str(HERE)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from cost_networks import Writer  # noqa: E402
from onnx import numpy_helper  # noqa: E402

NAME = "gpu-int8-skips-8.6.json"
_SAMPLES, _HELD, _MEANT, _STEP = 8, 2, 0.03, 1 / 127
_LANES = 32
Row = dict[str, Any]
Tensor = tuple[str, tuple[int, ...]]
"""Name of a tensor, and the channels of the tensors that it was joined from."""


class Wide(Writer):
    """A network whose channels are filled up with zeros.

    Args:
        shape: Of the input.
        lanes: Channels are filled up to multiples of this.
        split: Whether convolutions behind a Concat are sums of convolutions.
    """

    def __init__(self, shape: Sequence[int], lanes: int = 1, split: bool = False) -> None:
        super().__init__(shape)
        self._lanes, self._split = lanes, split
        self._joined: dict[str, list[str]] = {}

    def _filled(self, channels: int) -> int:
        return -(-channels // self._lanes) * self._lanes

    def _places(self, parts: Sequence[int], fill: bool = True) -> np.ndarray[Any, Any]:
        """Returns where the channels of a tensor are among those that are filled up."""
        if not fill:
            return np.arange(sum(parts))
        starts = np.cumsum([0, *map(self._filled, parts)])
        return np.concatenate([start + np.arange(part) for start, part in zip(starts, parts, strict=False)])

    def _kernel(
        self, values: Any, outs: int, ins: Sequence[int], axes: tuple[int, int], ends: tuple[bool, bool]
    ) -> str:
        """Adds a kernel; `ends` says whether it makes an output of the network, and reads an input."""
        places = {axes[0]: self._places([outs], not ends[0]), axes[1]: self._places(ins, not ends[1])}
        sizes = {axes[0]: outs if ends[0] else self._filled(outs)}
        sizes[axes[1]] = sum(ins) if ends[1] else sum(map(self._filled, ins))
        full = np.zeros([sizes[0], sizes[1], *values.shape[2:]], np.float32)
        full[np.ix_(places[0], places[1])] = values
        return self.constant(full)

    def _bias(self, outs: int, last: bool) -> str:
        full = np.zeros(outs if last else self._filled(outs), np.float32)
        full[:outs] = 0.1 * self.random.standard_normal(outs, np.float32)
        return self.constant(full)

    def _drawn(self, *shape: int, fan: int) -> Any:
        return (self.random.standard_normal(shape, np.float32) * np.sqrt(2 / fan)).astype(np.float32)

    def convolve(self, x: Tensor, outs: int, k: int = 3, first: bool = False, last: bool = False) -> Tensor:
        """Adds a convolution that keeps sizes."""
        name, parts = x
        values, bias = self._drawn(outs, sum(parts), k, k, fan=sum(parts) * k * k), self._bias(outs, last)
        attributes = {"pads": [k // 2] * 4}
        if not (self._split and len(parts) > 1):
            kernel = self._kernel(values, outs, parts, (0, 1), (last, first))
            return self.op("Conv", name, kernel, bias, **attributes), (outs,)
        made, start = [], 0
        for source, part in zip(self._joined[name], parts, strict=True):
            kernel = self._kernel(values[:, start : start + part], outs, [part], (0, 1), (last, False))
            made.append(self.op("Conv", source, kernel, *([bias] if not made else []), **attributes))
            start += part
        return self.op("Add", *made), (outs,)

    def upsample(self, x: Tensor, outs: int, last: bool = False) -> Tensor:
        """Adds a transposed convolution that doubles sizes."""
        name, parts = x
        values, bias = self._drawn(sum(parts), outs, 2, 2, fan=sum(parts)), self._bias(outs, last)
        kernel = self._kernel(values, outs, parts, (1, 0), (last, False))
        return self.op("ConvTranspose", name, kernel, bias, strides=[2, 2]), (outs,)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        """Adds a Concat, or notes what it would take."""
        parts = (*a[1], *b[1])
        if not self._split:
            return self.op("Concat", a[0], b[0], axis=1), parts
        name = f"{a[0]}+{b[0]}"
        self._joined[name] = [a[0], b[0]]
        return name, parts

    def relu(self, x: Tensor) -> Tensor:
        """Adds a Relu."""
        return self.op("Relu", x[0]), x[1]


def unet(width: int, size: int, levels: int = 3, **how: Any) -> onnx.ModelProto:
    """A U-Net with two convolutions a level and skips that are joined."""
    w = Wide((1, 3, size, size), **how)

    def twice(x: Tensor, outs: int, first: bool = False) -> Tensor:
        return w.relu(w.convolve(w.relu(w.convolve(x, outs, first=first)), outs))

    x: Tensor = ("x", (3,))
    skips = []
    for level in range(levels - 1):
        x = twice(x, width << level, first=not level)
        skips.append(x)
        x = w.op("MaxPool", x[0], kernel_shape=[2, 2], strides=[2, 2]), x[1]
    x = twice(x, width << (levels - 1))
    for level in reversed(range(levels - 1)):
        x = twice(w.join(w.upsample(x, width << level), skips.pop()), width << level)
    return w.model(w.convolve(x, 4, 1, last=True)[0], 4)


def residual(last: int, filled: int = 0) -> onnx.ModelProto:
    """A decoder with residual blocks, whose last deconvolution makes an image of few channels.

    Args:
        last: Channels of the output.
        filled: Channels that the last deconvolution makes; those beyond are sliced off.
    """
    w = Wide((1, 128, 48, 48))
    x: Tensor = w.relu(w.convolve(("x", (128,)), 128))
    for width in (96, 64):
        y = w.convolve(w.relu(w.convolve(x, x[1][0])), x[1][0])
        x = w.relu(w.upsample((w.op("Relu", w.op("Add", x[0], y[0])), x[1]), width))
    values, bias = w._drawn(64, last, 2, 2, fan=64), 0.1 * w.random.standard_normal(last, np.float32)
    full, biases = np.zeros((64, max(last, filled), 2, 2), np.float32), np.zeros(max(last, filled), np.float32)
    full[:, :last], biases[:last] = values, bias
    y = w.op("ConvTranspose", x[0], w.constant(full), w.constant(biases), strides=[2, 2])
    if filled:
        y = w.op("Slice", y, *(w.constant(np.array([each], np.int64)) for each in (0, last, 1)))
    return w.model(y, 4)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network.

    Args:
        bases: Float networks that mean the same, by name.
        ways: For each way the base, and how the scales of its quantised file are changed ("fp16": none is).
    """

    bases: Mapping[str, Callable[[], onnx.ModelProto]]
    ways: Mapping[str, tuple[str, str]]


def _unet(width: int, size: int, levels: int, names: Sequence[str]) -> Network:
    of = functools.partial(unet, width, size, levels)
    bases = {"plain": of, "wide": functools.partial(of, lanes=_LANES), "split": functools.partial(of, split=True)}
    ways = {}
    for name in names:
        base = "wide" if name.startswith("wide-") else "split" if name == "split" else "plain"
        ways[name] = (base, "own" if base == "split" else name.removeprefix("wide-"))
    used = {base for base, _ in ways.values()}
    return Network({base: make for base, make in bases.items() if base in used}, ways)


def _decoder(last: int, filled: int) -> Network:
    bases = {"plain": lambda: residual(last), "filled": lambda: residual(last, filled)}
    ways = {"fp16": ("plain", "fp16"), "own": ("plain", "own"), f"last-{filled}": ("filled", "own")}
    return Network(bases, ways)


_ALL = ("fp16", "own", "shared", "pool-apart", "wide-own", "wide-pool-apart", "split", "bare-pool", "wide-shared")
NETWORKS: Mapping[str, Network] = {
    "unet-56-192": _unet(56, 192, 3, _ALL),
    "unet-64-192": _unet(64, 192, 3, ("fp16", "own", "pool-apart", "shared")),
    "last10": _decoder(10, 12),
    "last3": _decoder(3, 4),
    "unet-40-256": _unet(40, 256, 4, ("fp16", "own", "pool-apart", "wide-pool-apart")),
}


def samples(network: str, seed: int, count: int) -> list[Any]:
    """Returns inputs of a network."""
    shape = [dim.dim_value for dim in NETWORKS[network].bases["plain"]().graph.input[0].type.tensor_type.shape.dim]
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


# --- Files ------------------------------------------------------------------------------------------------------------


def rescaled(model: onnx.ModelProto, how: str) -> None:
    """Changes the scales of a quantised file in place."""
    if how in ("own", "fp16"):
        return
    graph = model.graph
    scales = {each.name: each for each in graph.initializer if each.name.endswith(".scale")}
    made_by = {name: node for node in graph.node for name in node.output}
    behind = {name: node for node in graph.node if node.op_type == "QuantizeLinear" for name in node.input[:1]}

    def get(quantizer: onnx.NodeProto) -> float:
        return float(numpy_helper.to_array(scales[quantizer.input[1]]))

    def put(quantizer: onnx.NodeProto, value: float) -> None:
        tensor = scales[quantizer.input[1]]
        tensor.CopyFrom(numpy_helper.from_array(np.float32(value), tensor.name))

    for concat in [node for node in graph.node if node.op_type == "Concat"]:
        sources = [made_by[made_by[name].input[0]] for name in concat.input]
        skip = next(each for each in sources if any(_pools(graph, made_by, each)))
        result = behind[concat.output[0]]
        own, all_of = get(skip), max(get(skip), *(get(each) for each in (*sources, result)))
        for each in (*sources, result):
            put(each, all_of)
        for pool in _pools(graph, made_by, skip):
            pooled = behind[pool.output[0]]
            if how == "shared":
                put(pooled, all_of)
            elif how == "pool-apart":
                put(pooled, own if own < all_of * (1 - _STEP) else all_of * (1 - _STEP))
            else:
                _remove(graph, pooled)


def _pools(graph: onnx.GraphProto, made_by: Mapping[str, onnx.NodeProto], quantizer: onnx.NodeProto) -> list[Any]:
    """Returns the MaxPools that read what a quantiser makes."""
    pools = [node for node in graph.node if node.op_type == "MaxPool"]
    return [node for node in pools if made_by[made_by[node.input[0]].input[0]] is quantizer]


def _remove(graph: onnx.GraphProto, quantizer: onnx.NodeProto) -> None:
    """Takes out a quantiser and the DequantizeLinear behind it."""
    real = next(node for node in graph.node if node.input[:1] == quantizer.output[:1])
    for node in graph.node:
        for slot, name in enumerate(node.input):
            if name == real.output[0]:
                node.input[slot] = quantizer.input[0]
    graph.node.remove(quantizer)
    graph.node.remove(real)


def prepare(network: str, base: str, folder: Path) -> None:
    """Writes the files of the ways of one base, as TensorRT's parser is to have them, inputs and what is expected."""
    import trtconv
    from support.session import session
    from trtconv.core.requests.quantize import QuantizeRequest
    from trtconv.core.target import Target
    from trtconv.pipeline.quantizing import quantize

    folder.mkdir(parents=True, exist_ok=True)
    given, int8, data = folder / f"{base}.onnx", folder / f"{base}.int8.onnx", folder / f"{base}.samples"
    onnx.save(NETWORKS[network].bases[base](), given)
    data.mkdir(exist_ok=True)
    for number, values in enumerate(samples(network, 7, _SAMPLES)):
        np.savez(data / f"{number}.npz", x=values)
    asked = QuantizeRequest(given, int8, str(data), method="min-max", target=Target("tensorrt"), tolerance=9.0)
    share = quantize(asked).int8_share
    feeds = {f"x{i}": each for i, each in enumerate(samples(network, 11, _HELD))}
    float_results = _run(session(given), feeds, "float")
    for way, (of, how) in NETWORKS[network].ways.items():
        if of != base:
            continue
        model = onnx.load(given if how == "fp16" else int8)
        rescaled(model, how)
        path = folder / f"{way}.way.onnx"
        onnx.save(model, path)
        arrays = {**feeds, **float_results, **_run(session(path), feeds, "meant")}
        trtconv.rewrite(trtconv.RewriteRequest(path, folder / f"{way}.ready.onnx", target=Target("tensorrt", (8, 6))))
        np.savez(folder / f"{way}.npz", **arrays)
        (folder / f"{way}.json").write_text(json.dumps({} if how == "fp16" else {"int8_share": share}))


def _run(session: Any, feeds: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {f"{name}{key[1:]}": session.run(None, {"x": values})[0] for key, values in feeds.items()}


# --- Engines ----------------------------------------------------------------------------------------------------------


def off(found: list[Any], wanted: list[Any]) -> float:
    """Returns how far results are from others, relative to these, root mean square."""
    a, b = (np.concatenate([each.astype(np.float64).ravel() for each in side]) for side in (found, wanted))
    return round(float(np.sqrt(((a - b) ** 2).sum() / (b**2).sum())), 5)


def measured(trt: Any, maker: Any, network: str, folder: Path, late: Callable[[], bool]) -> Row:
    """Builds, runs and times the ways of a network, as long as there is time."""
    from engine_layers import layer_times, layers_of
    from trt86 import Options, race

    engines, rows = {}, Row()
    for way in NETWORKS[network].ways:
        if late():
            rows[way] = {"failed": "out of time"}
            continue
        place = folder / network
        started = time.perf_counter()
        try:
            options = Options(flags=("FP16",) if way == "fp16" else ("INT8", "FP16"))
            plan = maker.build((place / f"{way}.ready.onnx").read_bytes(), options)
            arrays = np.load(place / f"{way}.npz")
            engine = maker.engine(plan)
            found = []
            for number in range(_HELD):
                engine.load({"x": arrays[f"x{number}"]})
                found.append(engine.run()[0])
        except Exception as error:
            rows[way] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            continue
        errors = {to: off(found, [arrays[f"{to}{number}"] for number in range(_HELD)]) for to in ("float", "meant")}
        seconds = {"seconds": round(time.perf_counter() - started, 1)}
        rows[way] = {**json.loads((place / f"{way}.json").read_text()), **errors, **seconds}
        engines[way] = engine
        print(f"  {network} {way} {rows[way]}", flush=True)
    times = race(list(engines.values()))[0] if engines else []
    for way, latency in zip(engines, times, strict=True):
        rows[way]["us"] = latency.us
    for way, engine in engines.items():
        spent = layer_times(trt, engine)
        rows[way]["layers"] = [{**each, "us": spent.get(each["name"])} for each in layers_of(trt, engine)]
        engine.free()
    return rows


def shown(network: str, rows: Row) -> str:
    """Returns the ways of a network as text, with the layers that only copy or quantise."""
    lines = [network]
    base = rows.get("fp16", {}).get("us")
    for way, row in rows.items():
        if "us" not in row:
            lines.append(f"  {way:<16} {row.get('failed')}")
            continue
        ratio = f"{row['us'] / base:5.2f}" if base else "     "
        lines.append(f"  {way:<16} {row['us']:7.1f} us {ratio}  float {row['float']:.4f} meant {row['meant']:.4f}")
        lines += [
            f"      {each['us']} us {each['kind']} {each['name'][:70]} {each['shapes']} {each['formats']}"
            for each in row["layers"]
            if each["kind"] in ("Reformat", "NoOp", "Concat", "Padding", "Slice")
        ]
    return "\n".join(lines)


def main() -> int:
    """Makes the files that are not there, and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="networks with TEXT in their name")
    parser.add_argument("--seconds", type=float, default=240, metavar="S", help="start no build after that")
    parser.add_argument("--jobs", type=int, default=8, metavar="N", help="processes that make files")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="where files are, or go")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--prepare", action="store_true", help="only make the files")
    given = parser.parse_args()
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    started = time.perf_counter()
    names = [name for name in NETWORKS if given.only in name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        lacking = [
            (name, base)
            for name in names
            for base in NETWORKS[name].bases
            if not all(
                (folder / name / f"{w}.json").exists() for w, (of, _) in NETWORKS[name].ways.items() if of == base
            )
        ]
        with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
            made = {each: pool.submit(prepare, *each, folder / each[0]) for each in lacking}
            for each, done in made.items():
                if done.exception() is not None:
                    print(f"{each} not made: {done.exception()}", flush=True)
        print(f"{time.perf_counter() - started:.1f} s for {len(lacking)} files", flush=True)
        if given.prepare:
            return 0
        return _measure(names, folder, given.out, started, given.seconds)


def _measure(names: Sequence[str], folder: Path, out: Path, started: float, seconds: float) -> int:
    import tensorrt
    from engine_layers import telling

    from trtconv.runtimes.tensorrt.gpu import gpu_name

    maker, rows = telling(tensorrt), Row()
    for name in names:
        rows[name] = measured(tensorrt, maker, name, folder, lambda: time.perf_counter() - started > seconds)
        print(f"{time.perf_counter() - started:.1f} s  {shown(name, rows[name])}", flush=True)
        heading = {"date": str(datetime.date.today()), "tensorrt": maker.version, "gpu": gpu_name()}
        (out / NAME).write_text(json.dumps({**heading, "rows": rows}, indent=1) + "\n")
    built = {way: row for ways in rows.values() for way, row in ways.items() if "meant" in row}
    return 0 if built and all(row["meant"] < _MEANT for way, row in built.items() if "shared" not in way) else 1


if __name__ == "__main__":
    raise SystemExit(main())
