"""How far apart several builds of one layer are on TensorRT 8.6: raw, trtconv, --best-of, --tune, and --as again.

    python bench/gpu/luck.py [--only TEXT] [--builds 8] [--raw 4] [--bests 1] [--seconds 280] --out FILE
                                                                       needs TensorRT 8.6 and a GPU
    python bench/gpu/luck.py --dry-run                                 makes the models and rewrites them; no TensorRT

Each row is one transposed convolution (float16 with float16 inputs and outputs, or int8 with a 1x1 convolution
behind). It is built several times raw (parser and builder alone) and by trtconv without a timing cache, so that every
build measures anew; by `--best-of 4`; once by `--tune`; and the slowest and the fastest of trtconv's builds once more
by `--as`, from their reports. All engines of a row are then timed in turns as CUDA graphs, in one process, and run on
the same numbers. A row says:

    raw, trtconv, best-of   the slowest over the fastest of the builds, and their medians in microseconds
    tune                    its time over the median of trtconv's builds
    as                      time over that of the engine that was built again; layers that TC413 names; equal bits
    differ                  layers whose tactics differ between the slowest and the fastest build
    loads                   these two, each loaded four times: how far apart one plan is from itself

Rows come in the order in which luck matters most; none starts after --seconds. FILE is written after every row.
Exit status: 0 where at least one row was measured, every --as has the tactics and the bits of its engine; else 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE)]

import onnx  # noqa: E402
from nets import Layer, Quant, make_layer  # noqa: E402

Row = dict[str, Any]
_BEST = 4
_LOADS = 4
_THEN = Quant(then=32)
_FLAGS = {"fp16": ("FP16",), "int8": ("INT8", "FP16")}


@dataclasses.dataclass(frozen=True)
class Case:
    """One layer in one type."""

    name: str
    precision: str
    layer: Layer


def layer(inner: int, outer: int, size: int, batch: int = 1, **more: Any) -> Layer:
    """Returns a layer with output_padding beyond its pads of 0."""
    return Layer(size=size, batch=batch, channels=(inner, outer), pads=0, relu=True, **{"extra": 1, **more})


_LAYERS = {
    "384-192-k2": layer(384, 192, 28, 2, kernel=2),
    "96-64-k3": layer(96, 64, 40, 2),
    "48-24-k3": layer(48, 24, 160),
    "160-80-k3": layer(160, 80, 72, 4),
    "64-32-k4s3": layer(64, 32, 64, kernel=4, stride=3, extra=2),
    "32-16-k3": layer(32, 16, 256),
    "192-96-k6s4": layer(192, 96, 40, kernel=6, stride=4, extra=3),
    "1d-512-256-k7s4": layer(512, 256, 400, 2, rank=1, kernel=7, stride=4, extra=3),
    "3d-128-64-k3": layer(128, 64, 14, rank=3),
    "256-256-k3": layer(256, 256, 20, 16),
}
_INT8 = ("384-192-k2", "48-24-k3", "160-80-k3", "64-32-k4s3")
_ORDER = ("384-192-k2 int8", "96-64-k3 fp16", "384-192-k2 fp16", "48-24-k3 fp16", "48-24-k3 int8")
"""Rows in which builds were found to differ, and that which --tune made slower."""


def cases() -> list[Case]:
    """Returns all rows, those first where luck matters most."""
    made = [Case(f"{name} fp16", "fp16", each) for name, each in _LAYERS.items()]
    made += [Case(f"{name} int8", "int8", dataclasses.replace(_LAYERS[name], quant=_THEN)) for name in _INT8]
    return sorted(made, key=lambda case: _ORDER.index(case.name) if case.name in _ORDER else len(_ORDER))


def sample_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Returns the model of a row and its inputs; of a float16 one all floats are."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    sample = make_layer(case.layer)
    model, feeds = sample.model, dict(sample.feeds)
    if case.precision == "fp16":
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                half = numpy_helper.to_array(tensor).astype(np.float16)
                tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
        feeds = {name: values.astype(np.float16) for name, values in feeds.items()}
    return model, feeds


@dataclasses.dataclass(frozen=True)
class Builds:
    """How often a row is built by trtconv, raw, and by --best-of."""

    ours: int
    raw: int
    bests: int


class Bench:
    """TensorRT 8.6 in this process, raw and through trtconv.

    Args:
        builds: How often each way builds a row.
    """

    def __init__(self, builds: Builds) -> None:
        import tensorrt
        from trt86 import TensorRT

        self._raw = TensorRT(tensorrt)
        self._builds = builds

    def __call__(self, case: Case) -> Row:
        """Builds a row in all ways, and times and compares the engines."""
        with tempfile.TemporaryDirectory() as folder:
            return _Measured(self._raw, case, Path(folder), self._builds).row()


class _Measured:
    """One row on its way."""

    def __init__(self, raw: Any, case: Case, folder: Path, builds: Builds) -> None:
        self._raw, self._case, self._folder, self._builds = raw, case, folder, builds
        self._path = folder / "m.onnx"
        self._model, self._feeds = sample_of(case)
        onnx.save(self._model, self._path)
        self._engines: dict[str, bytes] = {}
        self._reports: dict[str, Any] = {}
        self._seconds: dict[str, float] = {}

    def row(self) -> Row:
        """Returns what was found."""
        ours = [self._trtconv(f"trtconv {i}") for i in range(self._builds.ours)]
        # Twice the same but for what asks for tactics: what it costs is told.
        self._trtconv("silent", keep_tactics=False)
        raw = [self._raw_build(f"raw {i}") for i in range(self._builds.raw)]
        bests = [self._trtconv(f"best {i}", best_of=_BEST) for i in range(self._builds.bests)]
        tuned = [self._trtconv("tune", tune=True)]
        first = self._all_timed()
        ends = {end: choose(ours, key=first.__getitem__) for end, choose in (("slow", max), ("fast", min))}
        again = {end: self._trtconv(f"as {end}", tactics_of=self._folder / f"{of}.json") for end, of in ends.items()}
        us = self._all_timed()
        row: Row = {"name": self._case.name, "us": us, "seconds": self._seconds}
        row |= {
            way: _spread([us[name] for name in of]) for way, of in (("raw", raw), ("trtconv", ours), ("best", bests))
        }
        row["tune"] = round(us[tuned[0]] / row["trtconv"]["median"], 3)
        row["forms"] = {name: dict(self._reports[name].forms) for name in (ours[0], *tuned)}
        row["best_of"] = [self._reports[name].best_of.to_json() for name in bests]
        row["differ"] = _differ(self._reports[ends["slow"]], self._reports[ends["fast"]])
        row["as"] = {end: self._again(ends[end], name, us) for end, name in again.items()}
        row["loads"] = self._loads(ends)
        return row

    def _raw_build(self, name: str) -> str:
        from trt86 import Options

        started = time.perf_counter()
        plan = self._raw.build(
            self._model.SerializeToString(), Options(flags=_FLAGS[self._case.precision]), keep_timings=False
        )
        self._keep(name, bytes(memoryview(plan)), started)
        return name

    def _trtconv(self, name: str, keep_tactics: bool = True, **asked: Any) -> str:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions
        from trtconv.core.target import Target

        started = time.perf_counter()
        options = BuilderOptions(tf32=False, workspace_bytes=4 << 30, keep_tactics=keep_tactics)
        request = trtconv.BuildRequest(
            self._path,
            engine=self._folder / name,
            target=Target("tensorrt"),
            precision=self._case.precision,
            prove="none",
            options=options,
            force=True,
            **asked,
        )
        report = trtconv.build(request)
        if report.exit_code:
            raise RuntimeError(f"{name}: {report.findings[0].message}")
        self._reports[name] = report
        self._keep(name, (self._folder / name).read_bytes(), started)
        return name

    def _keep(self, name: str, data: bytes, started: float) -> None:
        self._engines[name] = data
        self._seconds[name] = round(time.perf_counter() - started, 2)

    def _timed(self, names: Iterable[str]) -> list[float]:
        """Returns the microseconds of engines, each loaded for itself and all timed in turns."""
        from trt86 import race

        engines = [self._raw.engine(self._engines[name]) for name in names]
        try:
            for engine in engines:
                engine.load(self._feeds)
            found, _ = race(engines, rounds=40, budget_us=3e6, warm_up_us=2e4)
        finally:
            for engine in engines:
                engine.free()
        return [each.us for each in found]

    def _all_timed(self) -> dict[str, float]:
        """Returns the microseconds of all engines so far."""
        return dict(zip(self._engines, self._timed(self._engines), strict=True))

    def _loads(self, ends: dict[str, str]) -> Row:
        """Times the slowest and the fastest build, each loaded several times: what their places in memory do."""
        times = self._timed([*ends.values()] * _LOADS)
        of = {end: times[place :: len(ends)] for place, end in enumerate(ends)}
        return {end: _spread(each) | {"in turn": each} for end, each in of.items()}

    def _again(self, of: str, name: str, us: dict[str, float]) -> Row:
        """Compares an engine that was built with --as with the one whose report was taken."""
        import numpy as np

        outputs = [self._outputs(each) for each in (of, name)]
        equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*outputs, strict=True))
        other = [each.location.node for each in self._reports[name].findings if each.code == "TC413"]
        known = len(self._reports[of].engine.tactics or ())
        return {
            "of": of,
            "ratio": round(us[name] / us[of], 3),
            "equal_bits": equal,
            "layers": known,
            "other": other,
            "differ": _differ(self._reports[of], self._reports[name]),
        }

    def _outputs(self, name: str) -> list[Any]:
        engine = self._raw.engine(self._engines[name])
        try:
            engine.load(self._feeds)
            return list(engine.run())
        finally:
            engine.free()


def _spread(times: list[float]) -> Row:
    ordered = sorted(times)
    median = round(statistics.median(times), 2)
    return {"us": ordered, "median": median, "spread": round(ordered[-1] / ordered[0], 3)}


def _differ(a: Any, b: Any) -> Row:
    """Returns the layers whose tactics differ between two reports."""
    before, after = ({each.layer: each for each in report.engine.tactics or ()} for report in (a, b))
    names = [name for name in dict.fromkeys([*before, *after]) if before.get(name) != after.get(name)]
    return {name: [_shown(tactics.get(name)) for tactics in (before, after)] for name in names}


def _shown(tactic: Any) -> str | None:
    if tactic is None:
        return None
    layouts = " ".join(f"{t.dtype}{list(t.strides)}/{t.components}" for t in tactic.tensors)
    return f"{tactic.implementation} {tactic.tactic} {layouts}"


def line(row: Row) -> str:
    """Returns a row as text."""
    if "failure" in row:
        return f"{row['name']:<22} {row['failure']}"
    spreads = " ".join(f"{row[way]['median']:7.1f} {row[way]['spread']:5.2f}" for way in ("raw", "trtconv", "best"))
    again = " ".join(
        f"{each['ratio']:5.2f} {'equal' if each['equal_bits'] else 'OTHER'} {len(each['other'])}/{each['layers']}"
        for each in row["as"].values()
    )
    loads = " ".join(f"{each['median']:.1f} {each['spread']:.2f}" for each in row["loads"].values())
    return f"{row['name']:<22} {spreads} {row['tune']:6.2f}  {again}  {len(row['differ'])}  {loads}"


def is_same(row: Row) -> bool:
    """Whether every engine of --as is the one whose report it was given."""
    return "failure" not in row and all(
        each["equal_bits"] and not each["other"] and each["layers"] for each in row["as"].values()
    )


def rewrite(case: Case) -> str:
    """Makes the model of a row and rewrites it; returns what was changed."""
    import trtconv
    from trtconv.core.target import Target

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(sample_of(case)[0], path)
        request = trtconv.RewriteRequest(path, path.with_suffix(".new.onnx"), target=Target("tensorrt", (8, 6)))
        return "; ".join(edit.what for edit in trtconv.rewrite(request).edits)


def main(arguments: list[str] | None = None, make: Callable[..., Any] = Bench) -> int:
    """Measures the rows; `make` makes what measures one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with TEXT in their name")
    parser.add_argument("--builds", type=int, default=8, metavar="N", help="builds by trtconv, 2 or more")
    parser.add_argument("--raw", type=int, default=4, metavar="N", help="raw builds")
    parser.add_argument("--bests", type=int, default=1, metavar="N", help=f"builds by --best-of {_BEST}")
    parser.add_argument("--seconds", type=float, default=280, metavar="S", help="start no row after that")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    chosen = [case for case in cases() if given.only in case.name]
    if given.dry_run:
        for case in chosen:
            print(f"{case.name:<22} {rewrite(case)}", flush=True)
        return 0
    started = time.perf_counter()
    spent = lambda: time.perf_counter() - started  # noqa: E731
    bench, rows = make(Builds(given.builds, given.raw, given.bests)), []
    print(
        f"{'':<22} raw: us, spread; trtconv; --best-of {_BEST}; tune / trtconv; --as slow, fast; differ; loads",
        flush=True,
    )
    for case in chosen:
        if spent() > given.seconds:
            print(f"{case.name}: out of time", flush=True)
            continue
        try:
            rows.append(bench(case))
        except Exception as error:
            rows.append({"name": case.name, "failure": f"{type(error).__name__}: {error}"[:400]})
        print(f"{line(rows[-1])}  ({spent():.0f} s)", flush=True)
        if given.out is not None:
            document = {"builds": given.builds, "seconds": round(spent(), 1), "gpu": _gpu(), "rows": rows}
            given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0 if rows and all(is_same(row) for row in rows) else 1


def _gpu() -> str | None:
    from trtconv.runtimes.tensorrt.gpu import gpu_name

    return gpu_name()


if __name__ == "__main__":
    raise SystemExit(main())
