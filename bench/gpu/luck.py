"""Deconvolutions and networks on TensorRT 8.6: raw, trtconv and the bound, and how far apart several builds are.

    python bench/gpu/luck.py [PART ...] [--seconds 280] --out FILE     needs TensorRT 8.6 and a GPU
    python bench/gpu/luck.py [PART ...] --dry-run                      makes the models and rewrites them; no TensorRT
    python bench/gpu/luck.py --again FOLDER --out FILE                 another machine: what --keep FOLDER has kept

A PART is ROWS:WAY=N,WAY=N: rows (texts in their names, joined by "|"; "layers", "networks" or "all") and how often
each is built in each way. Without parts: "layers:raw=3,bound=2,ours=4,tune=1". All builds share one start of TensorRT,
and measure anew where nothing else is said:

    raw     parser and builder alone
    bound   the same of the layer without output_padding, a row and a column less: nobody computes it faster
    ours    trtconv as it is by default; the first writes a timing cache
    cached  trtconv with the timing cache of the first of these
    best    trtconv --best-of 4
    tune    trtconv --tune
    as      trtconv --keep-tactics --best-of 4, and again with --as and --best-of 4

A layer is one transposed convolution whose output_padding exceeds its pads (float16 with float16 inputs and outputs, or
int8 with a 1x1 convolution behind). All engines of a row are timed in turns as CUDA graphs. A row says of each way
the times in microseconds, their median, and the slowest over the fastest ("spread"); "four" of ours: the spread of the
fastest of each four, as --best-of 4 would keep them. "kernels" are the tactics of trtconv's engines by layer, where
they differ; "alone" is what --tune measured of each form of a layer. FILE is written after every row; none starts
after --seconds. With --keep FOLDER the engine that --as was given goes there, with its report; --again builds each of
these with --as and --best-of 4, and compares it with that of the other machine: times in turns, bits, tactics.

Exit status: 0 where at least one row was measured and every --as has the tactics and the bits of its engine; else 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(HERE)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from cost_networks import Writer  # noqa: E402
from nets import Layer, Quant, make_layer  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

Row = dict[str, Any]
Made = tuple[onnx.ModelProto, dict[str, Any]]
_BEST = 4
_FLAGS = {"fp16": ("FP16",), "int8": ("INT8", "FP16")}
_USUAL = ("layers:raw=3,bound=2,ours=4,tune=1",)
WAYS = ("raw", "bound", "ours", "cached", "best", "tune", "as")


@dataclasses.dataclass(frozen=True)
class Case:
    """One row.

    Args:
        name: Its name.
        precision: What it is built in.
        make: Makes the model and its inputs.
        bound: Makes what nobody computes faster; None where nothing is known.
    """

    name: str
    precision: str
    make: Callable[[], Made]
    bound: Callable[[], Made] | None = None

    @property
    def file(self) -> str:
        """Its name as that of a file."""
        return self.name.replace(" ", "-")


def layer(inner: int, outer: int, size: int, batch: int = 1, **more: Any) -> Layer:
    """Returns a layer with output_padding beyond its pads of 0."""
    return Layer(size=size, batch=batch, channels=(inner, outer), pads=0, relu=True, **{"extra": 1, **more})


_LAYERS = {
    "384-192-k2": layer(384, 192, 28, 2, kernel=2),
    "96-64-k3": layer(96, 64, 40, 2),
    "48-24-k3": layer(48, 24, 160),
    "160-80-k3": layer(160, 80, 72, 4),
    "64-32-k4s3": layer(64, 32, 64, kernel=4, stride=3, extra=2),
    "3d-128-64-k3": layer(128, 64, 14, rank=3),
    "1d-512-256-k7s4": layer(512, 256, 400, 2, rank=1, kernel=7, stride=4, extra=3),
    "192-96-k6s4": layer(192, 96, 40, kernel=6, stride=4, extra=3),
    "256-256-k3": layer(256, 256, 20, 16),
    "32-16-k3": layer(32, 16, 256),
}
_INT8 = ("384-192-k2", "48-24-k3", "160-80-k3", "64-32-k4s3")


def unet() -> onnx.ModelProto:
    """A U-Net of 128x128 with skips that are joined."""
    w = Writer((1, 3, 128, 128))
    x, skips = w.down("x", 3, (32, 64, 128), 2)
    x = w.back(w.op("Relu", w.conv(x, 128, 256, 3)), 256, (32, 64, 128), skips)
    return w.model(w.conv(x, 32, 4, 1), 4)


def _up(w: Writer, x: str, ins: int, outs: int, kernel: int, stride: int, rank: int) -> str:
    attributes = {"strides": [stride] * rank, "output_padding": [stride - 1] * rank}
    return w.op("Relu", w.op("ConvTranspose", x, w.normal(ins, outs, *[kernel] * rank), w.small(outs), **attributes))


def vocoder() -> onnx.ModelProto:
    """Three transposed convolutions along one axis, 64 times as long, with convolutions between."""
    w = Writer((1, 80, 128))
    x, ins = w.op("Relu", w.conv("x", 80, 256, 7, rank=1)), 256
    for width in (128, 64, 32):
        x = _up(w, x, ins, width, 8, 4, 1)
        x, ins = w.op("Relu", w.conv(x, width, width, 7, rank=1)), width
    return w.model(w.op("Tanh", w.conv(x, 32, 1, 7, rank=1)), 3)


def superres() -> onnx.ModelProto:
    """Eight residual blocks at 96x96, and two transposed convolutions behind."""
    w = Writer((1, 3, 96, 96))
    x = w.conv("x", 3, 48, 3)
    for _ in range(8):
        x = w.op("Add", x, w.conv(w.op("Relu", w.conv(x, 48, 48, 3)), 48, 48, 3))
    x = _up(w, _up(w, x, 48, 48, 3, 2, 2), 48, 32, 3, 2, 2)
    return w.model(w.conv(x, 32, 3, 3), 4)


_NETWORKS = {"unet": unet, "vocoder": vocoder, "superres": superres}


def cases(rows: str) -> list[Case]:
    """Returns the rows that a part names."""
    layers = [_of_layer(name, "int8", each) for name, each in _LAYERS.items() if name in _INT8]
    layers += [_of_layer(name, "fp16", each) for name, each in _LAYERS.items()]
    networks = [Case(f"{name} fp16", "fp16", _of_network(make)) for name, make in _NETWORKS.items()]
    kinds = {"layers": layers, "networks": networks, "all": [*layers, *networks]}
    if rows in kinds:
        return kinds[rows]
    return [case for case in kinds["all"] if any(text in case.name for text in rows.split("|"))]


def _of_layer(name: str, precision: str, shape: Layer) -> Case:
    quantized = dataclasses.replace(shape, quant=Quant(then=32)) if precision == "int8" else shape
    bound = dataclasses.replace(quantized, extra=0)
    return Case(f"{name} {precision}", precision, *(lambda of=of: _made(of, precision) for of in (quantized, bound)))


def _of_network(make: Callable[[], onnx.ModelProto]) -> Callable[[], Made]:
    def made() -> Made:
        model = make()
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        return model, {"x": np.random.default_rng(11).standard_normal(shape).astype(np.float32)}

    return made


def _made(shape: Layer, precision: str) -> Made:
    """Returns the model of a layer and its inputs; of a float16 one all floats are."""
    sample = make_layer(shape)
    model, feeds = sample.model, dict(sample.feeds)
    if precision == "fp16":
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                half = numpy_helper.to_array(tensor).astype(np.float16)
                tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        feeds = {name: values.astype(np.float16) for name, values in feeds.items()}
    return model, feeds


class Bench:
    """TensorRT 8.6 in this process, raw and through trtconv."""

    def __init__(self) -> None:
        import tensorrt
        from trt86 import TensorRT

        self._trt = tensorrt
        self._raw = TensorRT(tensorrt)

    def __call__(self, case: Case, counts: Mapping[str, int], keep: Path | None = None) -> Row:
        """Builds a row in all ways, and times and compares the engines; `keep` gets those that --as was given."""
        with tempfile.TemporaryDirectory() as folder:
            row = _Measured(self._trt, self._raw, case, Path(folder)).row(counts)
            if keep is not None and row["again"]:
                keep.mkdir(parents=True, exist_ok=True)
                for file in ("kept 0", "kept 0.json"):
                    shutil.copy(Path(folder) / file, keep / f"{case.file}{Path(file).suffix or '.engine'}")
            return row

    def again(self, case: Case, folder: Path) -> Row:
        """Builds the engine of a row again that another machine kept in a folder."""
        with tempfile.TemporaryDirectory() as temporary:
            measured = _Measured(self._trt, self._raw, case, Path(temporary))
            return measured.again(folder / f"{case.file}.engine", folder / f"{case.file}.json")


@dataclasses.dataclass
class _Built:
    """An engine of a row."""

    way: str
    data: bytes
    seconds: float
    report: Any = None


class _Measured:
    """One row on its way."""

    def __init__(self, trt: Any, raw: Any, case: Case, folder: Path) -> None:
        self._trt, self._raw, self._case, self._folder = trt, raw, case, folder
        self._model, self._feeds = case.make()
        self._path = folder / "m.onnx"
        onnx.save(self._model, self._path)
        self._built: dict[str, _Built] = {}

    def row(self, counts: Mapping[str, int]) -> Row:
        """Returns what was found."""
        for way in WAYS:
            for number in range(counts.get(way, 0)):
                self._build(way, number)
        us = dict(zip(self._built, self._timed(self._built.values()), strict=True))
        row: Row = {"name": self._case.name, "us": us}
        row["seconds"] = {name: built.seconds for name, built in self._built.items()}
        for way in dict.fromkeys(built.way for built in self._built.values()):
            row[way] = _spread([us[name] for name, built in self._built.items() if built.way == way])
        ours = [us[name] for name, built in self._built.items() if built.way == "ours"]
        if len(ours) >= 2 * _BEST:
            row["four"] = _spread([min(ours[i : i + _BEST]) for i in range(0, len(ours) - _BEST + 1, _BEST)])
        reports = {name: built.report for name, built in self._built.items() if built.report is not None}
        row["forms"] = {name: each.forms for name, each in reports.items() if each.forms}
        row["alone"] = [dict(each.us) for report in reports.values() for each in report.tuned]
        row["tuned_network"] = [str(each.tuned_network) for each in reports.values() if each.tuned_network]
        row["best_of"] = [each.best_of.to_json() for each in reports.values() if each.best_of]
        row["kernels"] = self._kernels(reports)
        row["again"] = [self._again(name, us) for name, built in self._built.items() if built.way == "as"]
        return row

    def again(self, engine: Path, report: Path) -> Row:
        """Builds with the tactics of another machine's engine, and compares the two."""
        from trtconv.core.documents.build import BuildReport

        self._built["kept 0"] = _Built(
            "kept", engine.read_bytes(), 0.0, BuildReport.from_json(json.loads(report.read_text()))
        )
        self._trtconv("as", "as 0", keep_tactics=True, best_of=_BEST, tactics_of=report)
        us = dict(zip(self._built, self._timed(self._built.values()), strict=True))
        return {"name": self._case.name, "us": us, "again": [self._again("as 0", us)]}

    def _build(self, way: str, number: int) -> None:
        name, cache = f"{way} {number}", self._folder / "timings"
        if way in ("raw", "bound"):
            model = self._model if way == "raw" else (self._case.bound or self._case.make)()[0]
            self._raw_build(way, name, model)
        elif way == "ours":
            self._trtconv(way, name, timing_cache=None if number else cache)
        elif way == "cached":
            self._trtconv(way, name, timing_cache=cache)
        elif way == "best":
            self._trtconv(way, name, best_of=_BEST)
        elif way == "tune":
            self._trtconv(way, name, tune=True)
        else:
            self._trtconv("kept", f"kept {number}", keep_tactics=True, best_of=_BEST)
            record = self._folder / f"kept {number}.json"
            self._trtconv(way, name, keep_tactics=True, best_of=_BEST, tactics_of=record)

    def _raw_build(self, way: str, name: str, model: onnx.ModelProto) -> None:
        from trt86 import Options

        started = time.perf_counter()
        options = Options(flags=_FLAGS[self._case.precision])
        plan = self._raw.build(model.SerializeToString(), options, keep_timings=False)
        self._built[name] = _Built(way, bytes(memoryview(plan)), round(time.perf_counter() - started, 2))

    def _trtconv(self, way: str, name: str, *, keep_tactics: bool = False, **asked: Any) -> None:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions
        from trtconv.core.findings import Severity
        from trtconv.core.target import Target

        started = time.perf_counter()
        options = BuilderOptions(
            tf32=False, workspace_bytes=4 << 30, keep_tactics=keep_tactics, profiling_verbosity="detailed"
        )
        engine = self._folder / name
        given = {"target": Target("tensorrt"), "precision": self._case.precision, "prove": "none", "options": options}
        report = trtconv.build(trtconv.BuildRequest(self._path, engine=engine, force=True, **given, **asked))
        if report.exit_code:
            errors = [each.message for each in report.findings if each.severity is Severity.ERROR]
            raise RuntimeError(f"{name}: {errors}")
        self._built[name] = _Built(way, engine.read_bytes(), round(time.perf_counter() - started, 2), report)

    def _timed(self, built: Iterable[_Built]) -> list[float]:
        """Returns the microseconds of engines, all timed in turns."""
        from trt86 import race

        engines = [self._raw.engine(each.data) for each in built]
        try:
            for engine in engines:
                engine.load(self._feeds)
            found, _ = race(engines, rounds=40, budget_us=3e6, warm_up_us=2e4)
        finally:
            for engine in engines:
                engine.free()
        return [each.us for each in found]

    def _kernels(self, names: Iterable[str]) -> Row:
        """Returns the tactics of engines by layer, of the layers in which not all are alike."""
        told = {}
        for name in names:
            inspector = self._raw.engine(self._built[name].data)._engine.create_engine_inspector()
            text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
            layers = [each for each in json.loads(text, strict=False)["Layers"] if isinstance(each, dict)]
            told[name] = {
                each["Name"]: f"{each.get('TacticValue', '')} {each.get('TacticName', '')[-60:]}".strip()
                for each in layers
            }
        every = dict.fromkeys(layer for layers in told.values() for layer in layers)
        other = [layer for layer in every if len({layers.get(layer) for layers in told.values()}) > 1]
        return {layer: {name: layers.get(layer) for name, layers in told.items()} for layer in other}

    def _again(self, name: str, us: Mapping[str, float]) -> Row:
        """Compares an engine of --as with the one whose report it was given."""
        of = name.replace("as", "kept")
        outputs = [self._outputs(each) for each in (of, name)]
        report = self._built[name].report
        return {
            "of": of,
            "ratio": round(us[name] / us[of], 3),
            "equal_bits": all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*outputs, strict=True)),
            "layers": len(self._built[of].report.engine.tactics or ()),
            "other": [each.location.node for each in report.findings if each.code == "TC413"],
        }

    def _outputs(self, name: str) -> list[Any]:
        engine = self._raw.engine(self._built[name].data)
        try:
            engine.load(self._feeds)
            return list(engine.run())
        finally:
            engine.free()


def _spread(times: list[float]) -> Row:
    ordered = sorted(times)
    median = round(statistics.median(times), 2)
    return {"us": ordered, "median": median, "spread": round(ordered[-1] / ordered[0], 3)}


def line(row: Row) -> str:
    """Returns a row as text."""
    if "failure" in row:
        return f"{row['name']:<22} {row['failure']}"
    bound, ours = (row.get(way, {}).get("median") for way in ("bound", "ours"))
    parts = [f"{way} {row[way]['median']:.1f} x{row[way]['spread']:.2f}" for way in (*WAYS, "four") if way in row]
    if ours and "tune" in row:
        parts.append(f"tune/ours {row['tune']['median'] / ours:.2f}")
    if ours and bound:
        best = min(row[way]["us"][0] for way in ("ours", "tune") if way in row)
        parts.append(f"ours/bound {ours / bound:.2f}, best {best / bound:.2f}")
    same = [
        f"as {each['ratio']:.2f} {'equal' if each['equal_bits'] else 'OTHER'} {len(each['other'])}/{each['layers']}"
        for each in row["again"]
    ]
    return f"{row['name']:<22} {'; '.join([*parts, *same])}"


def is_same(row: Row) -> bool:
    """Whether every engine of --as has the tactics and the bits of the one whose report it was given."""
    return all(each["equal_bits"] and not each["other"] and each["layers"] for each in row.get("again", ()))


def rewrite(case: Case) -> str:
    """Makes the models of a row and rewrites the first; returns what was changed."""
    import trtconv
    from trtconv.core.target import Target

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(case.make()[0], path)
        request = trtconv.RewriteRequest(path, path.with_suffix(".new.onnx"), target=Target("tensorrt", (8, 6)))
        return "; ".join(edit.what for edit in trtconv.rewrite(request).edits)


def read_part(text: str) -> tuple[list[Case], dict[str, int]]:
    """Reads a part of the command line."""
    rows, _, ways = text.partition(":")
    counts = {way: int(number) for way, _, number in (each.partition("=") for each in ways.split(","))}
    unknown = counts.keys() - set(WAYS)
    if unknown or not cases(rows):
        raise SystemExit(f"{text}: no such {'way' if unknown else 'row'}")
    return cases(rows), counts


def main(arguments: list[str] | None = None, make: Callable[[], Any] = Bench) -> int:
    """Measures the rows; `make` makes what measures one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=_USUAL, metavar="PART")
    parser.add_argument("--seconds", type=float, default=280, metavar="S", help="start no row after that")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="put the engines there that --as was given")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="build these again, on another machine")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    tasks = [(case, counts) for rows, counts in map(read_part, given.parts) for case in rows]
    if given.again is not None:
        tasks = [(case, {}) for case in cases("all") if (given.again / f"{case.file}.engine").is_file()]
    if given.dry_run:
        for case, counts in tasks:
            print(f"{case.name:<22} {counts} {rewrite(case)}", flush=True)
        return 0
    # Kernels that no engine uses are not loaded: a start takes a fraction of the time.
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    started = time.perf_counter()
    bench, rows = make(), []
    for case, counts in tasks:
        spent = time.perf_counter() - started
        if spent > given.seconds:
            print(f"{case.name}: out of time", flush=True)
            continue
        try:
            rows.append(bench(case, counts, given.keep) if given.again is None else bench.again(case, given.again))
        except Exception as error:
            rows.append({"name": case.name, "failure": f"{type(error).__name__}: {error}"[:400]})
        print(f"{time.perf_counter() - started:6.1f} s  {line(rows[-1])}", flush=True)
        if given.out:
            document = {"parts": list(given.parts), "seconds": round(time.perf_counter() - started, 1), **_gpu()}
            given.out.write_text(json.dumps({**document, "rows": rows}, indent=1) + "\n")
    measured = [row for row in rows if "failure" not in row]
    return 0 if measured and all(map(is_same, measured)) else 1


def _gpu() -> Row:
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    return {"gpu": gpu_name()}


if __name__ == "__main__":
    raise SystemExit(main())
