"""What int8 is worth on TensorRT 8.6: three networks quantised by trtconv, and what its rules on int8 layers rest on.

    python bench/gpu/quantize.py [--out FOLDER] [--date DATE] [--budget SECONDS]    needs TensorRT 8.6 and a GPU
    python bench/gpu/quantize.py --prepare      only makes the models, in bench/gpu/.quantized; no TensorRT
    python bench/gpu/quantize.py --build-only   makes them, and builds (not runs) with TensorRT-RTX

Section "networks": a float16 engine of each, the int8 one that `trtconv quantize` makes, and two of ONNX Runtime's
quantiser (its defaults, made buildable by trtconv; symmetric scales per channel): error against the float network on
ONNX Runtime, and latency. Section "layers": which deconvolutions run in int8 by their channels, batch normalisation
behind one, Concat with unequal scales, a sum behind a deconvolution, 3-D behind a rectifier. Engines are built in
a process that may die without harm to the rest, and timed in one afterwards. Writes after every row
FOLDER/gpu-quantize-8.6.json (default: bench/results).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import float_nets  # noqa: E402
import recipes  # noqa: E402
from children import Children, Row, serve  # noqa: E402

from trtconv.core.target import Target  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.passes import passes_for, run_passes  # noqa: E402
from trtconv.passes.fold_batch_norm import FoldBatchNorm  # noqa: E402
from trtconv.precision.quantize.layers import find_layers  # noqa: E402
from trtconv.precision.quantize.placement import place  # noqa: E402
from trtconv.precision.quantize.sessions import Probe  # noqa: E402
from trtconv.precision.quantize.write import quantized  # noqa: E402

NAME = "gpu-quantize-8.6.json"
FOLDER = ROOT / "bench" / "gpu" / ".quantized"
TARGET = Target("tensorrt", (8, 6))
NETWORKS = {"unet2d": (4, 3, 256, 256), "residual": (4, 3, 256, 256), "last10": (4, 1, 256, 256)}
"""Network to the shape at which its engines are built and timed."""
_SAMPLES = 24
_TIME_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Job:
    """An engine.

    Args:
        name: "unet2d/int8": what shares the part before the slash is timed in turns.
        section: "networks" or "layers".
        title: What it is.
        flags: Of the builder.
        shape: Of its input.
        layer: Name of the layer whose type is asked for, or an empty string.
    """

    name: str
    section: str
    title: str
    flags: tuple[str, ...]
    shape: tuple[int, ...]
    layer: str = ""

    @property
    def group(self) -> str:
        """Engines of one group are timed in turns."""
        return self.name.partition("/")[0]

    @property
    def feeds(self) -> dict[str, Any]:
        """What it is run with."""
        return {"x": float_nets.sample(self.shape, 99)}


HALF, INT8 = ("FP16",), ("FP16", "INT8")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.serve:
        return serve(lambda: Work(options.serve).do)
    started = time.monotonic()
    # What tells most comes first: there may not be time for all.
    jobs = sorted(prepare(options.again), key=lambda job: (job.name.endswith("/ort-sym"), job.section != "networks"))
    print(f"{len(jobs)} engines, models in {FOLDER} ({time.monotonic() - started:.0f} s)", flush=True)
    if options.prepare:
        return 0
    table = Table(options, jobs)
    command = [sys.executable, __file__, "--serve", "tensorrt_rtx" if options.build_only else "tensorrt"]
    last = started + options.budget
    with tempfile.TemporaryDirectory() as plans:
        asked = [{"do": "build", "name": job.name, "plans": plans} for job in jobs]
        with Children(command, options.jobs) as children:
            children.run(asked, last - 0.15 * options.budget, last, table.built)
        groups = dict.fromkeys(job.group for job in jobs)
        races = [{"do": "time", "name": each, "names": table.ready(each), "plans": plans} for each in groups]
        # One after the other, and nothing else on the GPU.
        with Children(command, 1) as alone:
            end = time.monotonic() + _TIME_SECONDS
            alone.run([each for each in races if each["names"]], end, end, table.timed)
    table.finish(round(time.monotonic() - started))
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", metavar="FOLDER")
    parser.add_argument("--date", default=datetime.date.today().isoformat())
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="builders; on one GPU several are no faster")
    parser.add_argument("--budget", type=float, default=285, metavar="SECONDS", help="start nothing after that")
    parser.add_argument("--prepare", action="store_true", help="make the models and end")
    parser.add_argument("--again", action="store_true", help="make the models again where they are there")
    parser.add_argument("--build-only", action="store_true", help="build with TensorRT-RTX, without a GPU")
    parser.add_argument("--serve", metavar="MODULE", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


# --- Models -----------------------------------------------------------------------------------------------------------


def prepare(again: bool) -> list[Job]:
    """Makes the models, where they are not there."""
    listed = FOLDER / "jobs.json"
    if again or not listed.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        jobs = [*_networks(), *_layers()]
        listed.write_text(json.dumps([dataclasses.asdict(job) for job in jobs], indent=1))
    read = json.loads(listed.read_text())
    return [Job(**{**each, "flags": tuple(each["flags"]), "shape": tuple(each["shape"])}) for each in read]


def _path(name: str, suffix: str) -> Path:
    return FOLDER / (name.replace("/", "-") + suffix)


def _keep(job: Job, proto: onnx.ModelProto) -> Job:
    """Writes a model as trtconv hands it to TensorRT 8.6; that of a float16 engine is the float model itself."""
    model = OnnxModel(proto, _path(job.name, ".onnx"))
    if job.flags == INT8:
        model.name_nodes("ConvTranspose")
        run_passes(model, passes_for("int8", requantize=True), TARGET)
    model.proto.ir_version = 8
    onnx.save_model(model.proto, model.path)
    return job


def _static(proto: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    dims = copy.graph.input[0].type.tensor_type.shape.dim
    for dim, size in zip(dims, shape, strict=True):
        dim.Clear()
        dim.dim_value = size
    del copy.graph.value_info[:]
    copy.graph.output[0].type.tensor_type.ClearField("shape")
    return copy


def _networks() -> Iterable[Job]:
    for name, shape in NETWORKS.items():
        net = float_nets.make(name)
        samples = float_nets.samples(name, _SAMPLES)
        yield _keep(Job(f"{name}/fp16", "networks", "float16", HALF, shape), _static(net, shape))
        makers: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
            "int8": ("trtconv quantize", lambda n=net, s=samples: recipes.trtconv(n, s, target=TARGET)),
            "ort": ("ONNX Runtime's defaults, made buildable", lambda n=net, s=samples: recipes.ort_default(n, s)),
            "ort-sym": (
                "ONNX Runtime, symmetric per channel",
                lambda n=net, s=samples: recipes.ort_symmetric(n, s),
            ),
        }
        for key, (title, make) in makers.items():
            try:
                proto = make()
            except Exception as error:
                print(f"{name}/{key} cannot be made: {error}", flush=True)
                continue
            yield _keep(Job(f"{name}/{key}", "networks", title, INT8, shape), _static(proto, shape))


def _job(name: str) -> Job:
    return next(job for job in prepare(False) if job.name == name)


_CHANNELS = ((64, 64), (64, 10), (64, 3), (64, 32), (64, 6), (30, 64), (32, 16), (33, 33), (64, 1))


def _layers() -> Iterable[Job]:
    yield from _by_channels()
    yield from _pairs("norm", _norm_net(), folded=(False, True))
    yield from _pairs("concat", _concat_net(), shared=(False, True))
    yield from _pairs("add", _add_net(), branches=(False, True))
    yield from _pairs("volume", _volume_net(), shared=(True,))


def _by_channels() -> Iterable[Job]:
    for kernel, (ins, outs) in ((k, c) for k in (2, 4) for c in _CHANNELS):
        net = float_nets.Writer(8, ("height", "width"), 20)
        x = net.relu(net.conv("x", ins))
        x = net.relu(net.deconv(x, outs, kernel, 2, (kernel - 2) // 2))
        proto = net.model(net.conv(x, 16, 1))
        title = f"deconvolution k{kernel} s2, {ins} -> {outs} channels"
        for key, flags in (("fp16", HALF), ("int8", INT8)):
            name = f"channels-k{kernel}-{ins}-{outs}/{key}"
            yield _quantized(Job(name, "layers", f"{title}, {key}", flags, (4, 8, 96, 96), "/convtranspose2"), proto)


def _norm_net() -> tuple[onnx.ModelProto, tuple[int, ...], str]:
    net = float_nets.Writer(64, ("height", "width"), 21)
    x = net.relu(net.norm(net.deconv(net.relu(net.conv("x", 128)), 64, 4, 2, 1, bias=False)))
    return net.model(net.conv(x, 64, 3)), (4, 64, 64, 64), "/convtranspose2"


def _concat_net() -> tuple[onnx.ModelProto, tuple[int, ...], str]:
    net = float_nets.Writer(64, ("height", "width"), 22)
    skip = net.relu(net.conv("x", 64))
    up = net.relu(net.deconv(net.relu(net.conv(net.pool(skip), 128)), 64, 2, 2))
    return net.model(net.conv(net.concat(up, skip), 64, 3)), (4, 64, 96, 96), "/convtranspose5"


def _add_net() -> tuple[onnx.ModelProto, tuple[int, ...], str]:
    net = float_nets.Writer(64, ("height", "width"), 23)
    skip = net.relu(net.conv("x", 64))
    up = net.deconv(net.relu(net.conv(net.pool(skip), 128)), 64, 4, 2, 1)
    x = net.relu(net.node("Add", [up, skip], 64))
    return net.model(net.conv(x, 64, 3)), (4, 64, 96, 96), "/convtranspose5"


def _volume_net() -> tuple[onnx.ModelProto, tuple[int, ...], str]:
    net = float_nets.Writer(32, ("depth", "height", "width"), 24)
    x = net.relu(net.deconv(net.relu(net.conv("x", 64)), 32, 2, 2))
    return net.model(net.conv(x, 32, 3)), (1, 32, 16, 32, 32), "/convtranspose2"


def _pairs(name: str, made: tuple[onnx.ModelProto, tuple[int, ...], str], **how: tuple[bool, ...]) -> Iterable[Job]:
    proto, shape, layer = made
    ((key, values),) = how.items()
    yield _quantized(Job(f"{name}/fp16", "layers", "float16", HALF, shape, layer), proto)
    for value in values:
        title = f"int8, {key}" if value else f"int8, not {key}"
        job = Job(f"{name}/{key if value else f'not-{key}'}", "layers", title, INT8, shape, layer)
        yield _quantized(job, proto, **{key: value})


def _quantized(
    job: Job,
    proto: onnx.ModelProto,
    *,
    folded: bool = True,
    shared: bool = True,
    branches: bool = True,
) -> Job:
    """Quantises a small net, calibrated on the very input that it is run with, with one thing left out."""
    static = _static(proto, job.shape)
    if job.flags == HALF:
        return _keep(job, static)
    model = OnnxModel(static, _path(job.name, ".onnx"))
    run_passes(model, (*([FoldBatchNorm()] if folded else []), *passes_for("int8")), TARGET)
    scope = model.main
    placement = place(scope, [layer for layer in find_layers(scope) if not layer.reason])
    if not shared:
        placement = dataclasses.replace(placement, shared={name: name for name in placement.edges})
    if not branches:
        adds = set(scope.by_op.get("Add", ()))
        edges = {n: tuple(e for e in each if e[0] not in adds) for n, each in placement.edges.items()}
        edges = {n: each for n, each in edges.items() if each}
        placement = dataclasses.replace(placement, edges=edges, shared={n: placement.shared[n] for n in edges})
    values = Probe(model, placement.tensors).run(job.feeds)
    ranges = {name: float(np.abs(each).max()) for name, each in values.items()}
    return _keep(job, quantized(model, placement, ranges).proto)


# --- Processes --------------------------------------------------------------------------------------------------------


class Work:
    """What a child does.

    Args:
        backend: Name of the module: tensorrt, or tensorrt_rtx for building alone.
    """

    def __init__(self, backend: str) -> None:
        self._driver = _driver(backend)

    def do(self, task: Row) -> Row:
        """Does one task."""
        return _build(self._driver, task) if task["do"] == "build" else _race(self._driver, task)


def _driver(backend: str) -> Any:
    """Returns TensorRT, set to keep what is known of each layer in the engine."""
    from trt86 import Options, TensorRT

    class Detailed(TensorRT):
        def _configure(self, config: Any, network: Any, options: Options) -> None:
            super()._configure(config, network, options)
            if hasattr(self.trt.BuilderFlag, "TF32"):
                config.set_flag(self.trt.BuilderFlag.TF32)
            config.profiling_verbosity = self.trt.ProfilingVerbosity.DETAILED

    return Detailed(importlib.import_module(backend))


def _build(driver: Any, task: Row) -> Row:
    from trt86 import Options

    job = _job(task["name"])
    started = time.monotonic()
    plan = driver.build(_path(job.name, ".onnx").read_bytes(), Options(flags=job.flags))
    row: Row = {"version": driver.version, "build_seconds": round(time.monotonic() - started, 1)}
    data = bytes(memoryview(plan))
    (Path(task["plans"]) / _path(job.name, ".engine").name).write_bytes(data)
    if driver.trt.__name__ != "tensorrt":
        return row
    engine = driver.engine(plan)
    engine.load(job.feeds)
    (got,) = engine.run()
    meant, half = onnx.load_model(_path(job.name, ".onnx")), _path(f"{job.group}/fp16", ".onnx")
    row["layers"] = engine.layers
    if half.exists():
        row["against_float"] = _rms(recipes.outputs(onnx.load_model(half), job.feeds)[0], got)
    row["against_meant"] = _rms(recipes.outputs(meant, job.feeds)[0], got)
    row |= _types(driver.trt, engine, job.layer)
    engine.free()
    return row


def _rms(expected: Any, got: Any) -> float:
    a, b = expected.astype(np.float64), got.astype(np.float64)
    return float(np.sqrt(np.square(a - b).sum() / np.square(a).sum()))


def _types(trt: Any, engine: Any, layer: str) -> Row:
    """Returns the types in which the layers of an engine read their inputs, and that of one of them."""
    inspector = engine._engine.create_engine_inspector()
    with contextlib.suppress(Exception):
        document = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
        layers = [each for each in document["Layers"] if isinstance(each, dict)]
        kinds = [(str(each.get("Name", "")), _kind(each)) for each in layers]
        found = [kind for name, kind in kinds if layer and layer in name and "Reformat" not in name]
        counts = {kind: sum(1 for _, each in kinds if each == kind) for kind in sorted({each for _, each in kinds})}
        named = [{"name": name, "reads": kind} for name, kind in kinds]
        return {"reads": counts, "layer_reads": found[0] if found else None, "layer_list": named}
    return {"reads": None, "layer_reads": None}


def _kind(layer: Row) -> str:
    formats = [str(each.get("Format/Datatype", "")) for each in layer.get("Inputs", ()) if isinstance(each, dict)]
    text = formats[0] if formats else ""
    return next((kind for kind in ("Int8", "FP16", "FP32") if kind.lower() in text.lower()), text or "none")


def _race(driver: Any, task: Row) -> Row:
    from trt86 import race

    engines = []
    for name in task["names"]:
        engine = driver.engine((Path(task["plans"]) / _path(name, ".engine").name).read_bytes())
        engine.load(_job(name).feeds)
        engines.append(engine)
    latencies, how = race(engines)
    for engine in engines:
        engine.free()
    return {"how": how, "us": {n: dataclasses.asdict(each) for n, each in zip(task["names"], latencies, strict=True)}}


# --- Results ----------------------------------------------------------------------------------------------------------


class Table:
    """The rows, printed at the end and written as they come."""

    def __init__(self, options: argparse.Namespace, jobs: list[Job]) -> None:
        self._jobs = {job.name: job for job in jobs}
        name = NAME.replace("gpu", "rtx-only") if options.build_only else NAME
        self._path = options.out / name
        self._rows: dict[str, Row] = {
            job.name: {"name": job.name, "section": job.section, "title": job.title} for job in jobs
        }
        self._document: Row = {"date": options.date, "gpu": _gpu(), "rows": []}

    def built(self, task: Row, row: Row) -> None:
        """Takes what came of an engine."""
        self._rows[task["name"]] |= row
        print(f"  {task['name']}: {row.get('failed') or row.get('against_meant', 'built')}", flush=True)
        self._write()

    def ready(self, group: str) -> list[str]:
        """Returns the engines of a group that can be timed."""
        rows = self._rows
        return [n for n, job in self._jobs.items() if job.group == group and "against_meant" in rows[n]]

    def timed(self, task: Row, row: Row) -> None:
        """Takes the latencies of a group."""
        for name in task["names"]:
            self._rows[name] |= {"us": row["us"][name]} if "us" in row else {"not_timed": row.get("failed")}
        self._document["timing"] = row.get("how", self._document.get("timing"))
        self._write()

    def finish(self, seconds: int) -> None:
        """Prints the table."""
        self._document["seconds"] = seconds
        self._write()
        head = ("engine", "us", "to fp16", "rms to float", "rms to ONNX", "deconv reads", "layers")
        print(" | ".join(head))
        for row in self._rows.values():
            us = row.get("us", {}).get("us")
            half = self._rows.get(f"{row['name'].partition('/')[0]}/fp16", {}).get("us", {}).get("us")
            cells = [row["name"], us, round(us / half, 2) if us and half else None]
            cells += [_short(row.get("against_float")), _short(row.get("against_meant")), row.get("layer_reads")]
            cells += [row.get("failed") or row.get("layers")]
            print(" | ".join("-" if cell is None else str(cell) for cell in cells))
        print(f"wrote {self._path}")

    def _write(self) -> None:
        self._document["rows"] = list(self._rows.values())
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._document, indent=1) + "\n")


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:.2e}"


def _gpu() -> str | None:
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    with contextlib.suppress(Exception):
        return gpu_name()
    return None


if __name__ == "__main__":
    sys.exit(main())
