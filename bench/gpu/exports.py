"""Networks as torch 2.13 exports them, opset 18 to 23, on TensorRT 8.6: raw and through trtconv, beside ONNX Runtime.

    python bench/gpu/exports.py --make [--models FOLDER]         writes the files: with torch and torchvision, no GPU
    python bench/gpu/exports.py [--models FOLDER] [--jobs 14] [--minutes 1] [--only GLOB ...] [--out FOLDER]
                                [--family rtx]

The networks are those of export_nets.py: small, with random weights of a fixed seed. FOLDER is bench/gpu/.exports
unless named, and holds of each file `NAME.onnx`, and `NAME.pickle` with what goes in and what ONNX Runtime makes of it.
Those of axes with names are built with a range and run at two sizes. Each is parsed, built and run by a plain script,
and by `trtconv.build` with its proof. With --family rtx, which needs no GPU, engines are built and proven, and not run.

Writes FOLDER/gpu-exports-8.6.json and prints a table. Exit status: 0 whatever trtconv built is right; 1 something is
not.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.util
import json
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(HERE)]

import node_suite  # noqa: E402

Row = dict[str, Any]
MODELS = HERE / ".exports"
WAYS = ("raw", "trtconv")


def main() -> int:
    """Makes the files or runs them; returns the exit status."""
    options = _options()
    if options.worker:
        node_suite.serve(lambda: Bench(options.family))
        return 0
    if options.make:
        return make(options.models)
    names = node_suite.chosen(
        sorted(each.stem for each in options.models.glob("*.onnx")), node_suite.globs(options.only)
    )
    jobs = [(name, way) for name in names for way in WAYS]
    pool = node_suite.Pool(Path(__file__), options, options.models)
    rows = list(pool.run(jobs, time.monotonic() + 60 * options.minutes))
    report = summarize(rows, jobs, options.family)
    options.out.mkdir(parents=True, exist_ok=True)
    name = "gpu-exports-8.6.json" if options.family == "tensorrt" else "exports-rtx.json"
    (options.out / name).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(table(report))
    return 1 if report["trtconv"].get("wrong") else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--family", choices=("tensorrt", "rtx"), default="tensorrt")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


class Bench:
    """TensorRT in a worker."""

    def __init__(self, family: str) -> None:
        self._suite = node_suite.Bench(family)
        self._family = family

    def do(self, way: str, name: str, folder: Path) -> Row:
        """Builds one network in one way, and runs it at its sizes."""
        data = (folder / f"{name}.onnx").read_bytes()
        profile, runs = pickle.loads((folder / f"{name}.pickle").read_bytes())
        return self._raw(data, profile, runs) if way == "raw" else self._trtconv(name, data, profile, runs)

    def _raw(self, data: bytes, profile: Mapping[str, Any], runs: Any) -> Row:
        from trt86 import Options, Refused

        bounds = {name: tuple(map(tuple, shapes)) for name, shapes in profile["shapes"].items()}
        try:
            plan = self._suite.plain.build(data, Options(profile=bounds, level=node_suite.LEVEL))
            return self._run(plan, runs)
        except Refused as error:
            return {"verdict": "refused", "why": error.message[: node_suite.TEXT]}

    def _trtconv(self, name: str, data: bytes, profile: Mapping[str, Any], runs: Any) -> Row:
        from trt86 import Refused

        import trtconv
        from trtconv.core.builder_options import BuilderOptions
        from trtconv.core.target import Target

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "m.onnx"
            path.write_bytes(data)
            dims = {name: trtconv.Range(*sizes) for name, sizes in profile["dims"].items()}
            # Without TF32, as `_raw` has it: what is compared is the arithmetic of float32.
            options = BuilderOptions(optimization_level=node_suite.LEVEL, tf32=False)
            request = trtconv.BuildRequest(path, dims=dims, target=Target(self._family), options=options)
            try:
                document = trtconv.build(request).to_json()
            except trtconv.TrtconvError as error:
                return {"verdict": "refused", "why": error.message[: node_suite.TEXT]}
            row = node_suite.judged(document)
            if row["exit_code"]:
                return {**row, "verdict": "refused"}
            try:
                return {**row, **self._run((Path(folder) / "m.engine").read_bytes(), runs)}
            except Refused as error:
                return {**row, "verdict": "not run", "why": error.message[: node_suite.TEXT]}

    def _run(self, plan: Any, runs: Any) -> Row:
        if self._family == "rtx":
            return {"verdict": "built", "why": "no GPU is used"}
        for feeds, expected in runs:
            verdict, why = node_suite.verdict_of(self._suite.execute(plan, feeds, expected), expected)
            if verdict != "right":
                return {"verdict": verdict, "why": why}
        return {"verdict": "right", "why": "", "sizes": len(runs)}


def make(folder: Path) -> int:
    """Writes each network as each exporter has it; returns the exit status."""
    import export_nets
    import torch
    import torchvision_operators

    if importlib.util.find_spec("torchvision") is not None:
        torchvision_operators.declare()
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, net in export_nets.NETS.items():
        for opset, way in net.ways:
            file = folder / f"{name}-{opset}-{way}.onnx"
            if file.exists():
                continue
            torch.manual_seed(7)
            try:
                write(net, opset, way, file)
                print(file.name, file.stat().st_size, flush=True)
            except Exception as error:
                failed += 1
                file.unlink(missing_ok=True)
                print(f"{file.name}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}", flush=True)
                if "-v" in sys.argv:
                    traceback.print_exc()
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{len(list(folder.glob('*.onnx')))} files, {total} bytes, {failed} not exported")
    return 1 if total > export_nets.LARGEST else 0


def write(net: Any, opset: int, way: str, file: Path) -> None:
    """Exports a network, and writes beside it what goes in and what comes out."""
    import numpy as np
    import onnx
    import torch
    import torchvision_operators

    module = net.make().eval()
    inputs = tuple(torch.randn(shape) for shape in net.shapes)
    axes = {axis: name for axis, name in enumerate(net.names) if name}
    names = [f"x{number}" for number in range(len(inputs))]
    kept: dict[str, Any] = {"input_names": names, "output_names": ["y"], "opset_version": opset}
    if way == "legacy":
        torch.onnx.export(module, inputs, str(file), dynamo=False, dynamic_axes={"x0": axes} if axes else None, **kept)
    else:
        dims = {axis: torch.export.Dim(name, min=1 if name == "batch" else 8, max=64) for axis, name in axes.items()}
        # Sizes of strided networks are multiples of their strides.
        dims = {axis: dim if axes[axis] in ("batch", "length") else 8 * dim for axis, dim in _stems(dims, axes).items()}
        shapes = {"x": dims} if axes else None
        program = torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            dynamic_shapes=shapes,
            external_data=False,
            verbose=False,
            custom_translation_table=torchvision_operators.TRANSLATIONS,
            **kept,
        )
        program.save(str(file), external_data=False)
    model = onnx.load(file)
    model.ir_version = min(model.ir_version, 10)
    onnx.save(model, file)
    if next(each.version for each in model.opset_import if each.domain == "") != opset:
        raise ValueError("it is of another opset")
    run = _reference(model)
    runs = []
    for larger in (False, True) if axes else (False,):
        random = np.random.default_rng(3)
        sized = [list(shape) for shape in net.shapes]
        for axis in axes if larger else ():
            sized[0][axis] *= 2
        feeds = {n: random.standard_normal(shape).astype(np.float32) for n, shape in zip(names, sized, strict=True)}
        outputs = zip((each.name for each in model.graph.output), run(None, feeds), strict=True)
        runs.append((feeds, dict(outputs)))
    profile = _profile(model, net.shapes[0], axes)
    file.with_suffix(".pickle").write_bytes(pickle.dumps((profile, runs)))


def _reference(model: Any) -> Any:
    """Returns what runs a model: ONNX Runtime, or ONNX's own evaluator where that has not all that is in it."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    if any(node.op_type in ("Attention", "RoiAlign") for node in model.graph.node):
        return ReferenceEvaluator(model).run
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run


def _stems(dims: dict[int, Any], axes: Mapping[int, str]) -> dict[int, Any]:
    import torch

    return {
        axis: dim if axes[axis] in ("batch", "length") else torch.export.Dim(f"{axes[axis]}8", min=1, max=64)
        for axis, dim in dims.items()
    }


def _profile(model: Any, shape: tuple[int, ...], axes: Mapping[int, str]) -> Row:
    """Returns the range of each dimension that the file names, and the shapes that a plain script needs."""
    if not axes:
        return {"dims": {}, "shapes": {}}
    small, large = ([size * factor if axis in axes else size for axis, size in enumerate(shape)] for factor in (1, 2))
    dims = {}
    for axis in axes:
        param = model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param
        factor, _, stem = param.rpartition("*")
        step = int(factor) if factor else 1
        dims[stem.strip()] = (small[axis] // step, small[axis] // step, large[axis] // step)
    return {"dims": dims, "shapes": {model.graph.input[0].name: (small, small, large)}}


def summarize(rows: list[Row], jobs: list[tuple[str, str]], family: str) -> Row:
    """Returns counts by way and verdict, and every row."""
    done = {(row["test"], row["way"]) for row in rows}
    counts = {way: dict(collections.Counter(row["verdict"] for row in rows if row["way"] == way)) for way in WAYS}
    return {
        "date": datetime.date.today().isoformat(),
        "gpu": node_suite.gpu(),
        "family": family,
        "networks": len(jobs) // len(WAYS),
        "left": [list(job) for job in jobs if job not in done],
        **counts,
        "rows": sorted(rows, key=lambda row: (row["test"], row["way"])),
    }


def table(report: Row) -> str:
    """Returns the table that is printed."""
    by_name: dict[str, Row] = collections.defaultdict(dict)
    for row in report["rows"]:
        by_name[row["test"]][row["way"]] = row
    lines = []
    for name, ways in by_name.items():
        raw, ours = (ways.get(way, {"verdict": "left"}) for way in WAYS)
        why = ours.get("why") if ours["verdict"] not in ("right", "built") else ""
        lines.append(f"{name:32}{raw['verdict']:>10}{ours['verdict']:>10}  {' '.join(str(why or '').split())[:120]}")
    lines.append(f"{report['networks']} files: raw {report['raw']}, trtconv {report['trtconv']}")
    return "\n".join([f"{'':32}{'raw':>10}{'trtconv':>10}", *lines])


if __name__ == "__main__":
    sys.exit(main())
