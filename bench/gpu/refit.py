"""Engines refitted on TensorRT 8.6: from one model to another and back, to the same bits; and weights left out.

    python bench/gpu/refit.py [--jobs 8] [--seconds 60] [--only NAME] [--out FOLDER]      needs TensorRT 8.6 and a GPU

Each network has two sets of weights, A and B. An engine is built of A with --refittable and run; refitted with B, run,
and compared with model B on ONNX Runtime; refitted with A again and run: the bits have to be the first ones. Then two
mistakes are made on purpose: a weight that changed is hidden from what TensorRT lists, which the refit has to refuse by
name; and one is kept from TensorRT behind the refit's back, which either TensorRT has to miss, or the comparison with
model B to see. "scales" changes the scales of quantisers too; whether 8.6 takes these is written down, and no failure.

Writes FOLDER/gpu-refit-8.6.json and prints a table. Exit status: 0 all is equal, and every mistake is found; 1 not.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests")]

from children import Row, options, run_script, serve  # noqa: E402

NAME = "gpu-refit-8.6.json"
_TEXT = 300
TOLERANCES = {"as-is": 1e-3, "fp16": 3e-2}
_QUANTIZED = 5e-2

CONVOLUTIONS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 8, 24, 24] x) => (float[2, 8, 24, 24] y)
<float[16, 8, 3, 3] w0, float[16] b0, float[16] gamma, float[16] beta, float[16] mean, float[16] var,
 float[8, 16, 3, 3] w1, float[8, 1, 1] c>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w0, b0)
  n = BatchNormalization (a, gamma, beta, mean, var)
  r = Relu (n)
  d = Conv <pads = [1, 1, 1, 1]> (r, w1)
  y = Add (d, c)
}
"""
MATRICES = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4, 32] x) => (float[4, 10] y)
<float[48, 32] w0, float[48] b0, float[48, 24] w1, float[24] b1, float[24, 10] w2>
{
  a = Gemm <transB = 1> (x, w0, b0)
  r = Relu (a)
  m = MatMul (r, w1)
  s = Add (m, b1)
  t = Tanh (s)
  y = MatMul (t, w2)
}
"""
UNET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 32, 32] x) => (float[1, 4, 32, 32] y)
<float[8, 4, 3, 3] w0, float[8] b0, float[8, 8, 2, 2] k0, float[8] b1, float[4, 12, 3, 3] w1, float[4] b2>
{
  a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
  r = Relu (a)
  u = ConvTranspose <strides = [2, 2]> (r, k0, b1)
  c = Concat <axis = 1> (u, x)
  y = Conv <pads = [1, 1, 1, 1]> (c, w1, b2)
}
"""
RECURRENT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[6, 2, 8] x) => (float[6, 1, 2, 12] y)
<float[1, 36, 8] w, float[1, 36, 12] r, float[1, 72] b>
{
  y = GRU <hidden_size = 12, linear_before_reset = 1> (x, w, r, b)
}
"""
TEXTS = {"convolutions": CONVOLUTIONS, "matrices": MATRICES, "unet": UNET, "unet fp16": UNET, "recurrent": RECURRENT}
NETS = (*TEXTS, "rewritten", "grouped", "quantized", "quantized integers", "scales")
OPTIONAL = ("scales",)


def main() -> int:
    """Runs everything; returns the exit status."""
    given = options(__doc__, len(NETS))
    if given.worker:
        return serve(Bench)
    started = time.monotonic()
    tasks: list[Row] = [{"net": name} for name in NETS if given.only in name]
    rows = run_script(__file__, tasks, given, NAME)
    print(table(rows))
    print(f"{time.monotonic() - started:.1f} s")
    return 0 if len(rows) == len(tasks) and all(is_right(row) for row in rows if row["net"] not in OPTIONAL) else 1


def is_right(row: Row) -> bool:
    """Whether the bits are equal, B is right, and every mistake was found."""
    stale = row.get("stale", {})
    return bool(row.get("equal_bits") and row.get("b_right") and stale.get("hidden") and stale.get("kept"))


def table(rows: Sequence[Row]) -> str:
    """Returns the rows as text."""
    lines = [
        f"{'network':20} {'weights':>8} {'B error':>8} {'equal':>6} {'hidden':>7} {'kept':>6} {'refit s':>8}  what"
    ]
    for row in sorted(rows, key=lambda each: NETS.index(each["net"])):
        stale, error = row.get("stale", {}), row.get("b_error")
        cells = (
            f"{row.get('changed', '')}/{row.get('weights', '')}",
            "" if error is None else f"{error:.1e}",
            row.get("equal_bits", ""),
            bool(stale.get("hidden")),
            bool(stale.get("kept")),
            row.get("refit_seconds", ""),
        )
        shown = [f"{cell!s:>{width}}" for cell, width in zip(cells, (8, 8, 6, 7, 6, 8), strict=True)]
        what = row.get("failed") or row.get("why") or ", ".join(row.get("passes", []))
        lines.append(f"{row['net']:20} {' '.join(shown)}  {what[:160]}")
    return "\n".join(lines)


def text_model(text: str, seed: int) -> Any:
    """Returns a model whose constants, which the text only declares, have values of a seed."""
    import numpy as np
    import onnx

    model = onnx.parser.parse_model(text)
    random = np.random.default_rng(seed)
    declared = {each.name: each for each in model.graph.value_info}
    for tensor in [*model.graph.initializer]:
        declared.pop(tensor.name, None)
    for name, value in declared.items():
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        values = random.normal(size=shape) / max(1.0, float(np.sqrt(np.prod(shape[1:] or [1]))))
        values = np.abs(values) + 0.5 if name == "var" else values
        model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    del model.graph.value_info[:]
    return model


def pair(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """Returns model A, model B and values of their inputs."""
    import numpy as np

    random = np.random.default_rng(86)
    if name in TEXTS:
        models = [text_model(TEXTS[name], seed) for seed in (1, 2)]
        feeds = {}
        for value in models[0].graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            feeds[value.name] = random.normal(size=shape).astype(np.float32)
        return models[0], models[1], feeds
    from nets import Layer, Quant, make_layer

    shared: dict[str, Any] = {"size": 12, "channels": (32, 24), "batch": 1}
    layer = {
        "rewritten": Layer(group=8, relu=True, **shared),
        "grouped": Layer(group=4, auto_pad="SAME_UPPER", **shared),
        "quantized": Layer(quant=Quant(), **shared),
        "quantized integers": Layer(quant=Quant(weights="DQ", then=8), **shared),
        "scales": Layer(quant=Quant(), **shared),
    }[name]
    sample = make_layer(layer)
    return sample.model, _changed(sample.model, scales=name == "scales"), sample.feeds


def _changed(model: Any, *, scales: bool) -> Any:
    """Returns a model with other weights and biases; the scales of quantisers and their zeros stay, unless asked."""
    import numpy as np
    from onnx import numpy_helper

    other = copy.deepcopy(model)
    random = np.random.default_rng(87)
    for tensor in other.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.name.endswith("_zero"):
            continue
        if tensor.name.endswith("_scale"):
            values = values * np.float32(0.75) if scales else values
        elif values.dtype.kind == "i":
            values = random.permuted(values.reshape(-1)).reshape(values.shape)
        else:
            values = values * random.uniform(0.3, 0.9, values.shape).astype(values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(np.array(values, order="C"), tensor.name))
    return other


class Bench:
    """TensorRT in a child."""

    def __init__(self, family: str = "") -> None:
        from trtconv.core.target import Target
        from trtconv.runtimes import tensorrt

        self._target = Target(family or sys.argv[sys.argv.index("--family") + 1])
        self._runtime = tensorrt.load(self._target)

    def __call__(self, task: Row) -> Row:
        """Builds, refits there and back, and makes mistakes."""
        from trtconv.core.errors import TrtconvError

        row: Row = {"stale": {}}
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._measure(task["net"], Path(folder), row)
            except TrtconvError as error:
                row["why"] = f"{error.message} {error.hint}"[:_TEXT]
        return row

    def _measure(self, name: str, folder: Path, row: Row) -> None:
        import numpy as np
        import onnx

        model_a, model_b, feeds = pair(name)
        paths = [folder / "a.onnx", folder / "b.onnx"]
        for path, model in zip(paths, (model_a, model_b), strict=True):
            onnx.save(model, path)
        began = time.monotonic()
        report = self._build(paths[0], "fp16" if "fp16" in name else "as-is")
        row["build_seconds"] = round(time.monotonic() - began, 2)
        if report.exit_code:
            row["why"] = report.findings[0].message[:_TEXT]
            return
        row["passes"] = sorted({edit.pass_name for edit in report.edits})
        row["in_network"] = len(report.network.weights)
        engine = paths[0].with_suffix(".engine")
        first = self._run(engine, feeds)
        began = time.monotonic()
        there = self._refit(engine, paths[1], folder / "there.engine")
        row["refit_seconds"] = round(time.monotonic() - began, 2)
        row.update(
            weights=there["before"]["weights"], changed=there["before"]["changed"], proof=there["proof"]["agrees"]
        )
        row["given"] = [f"{each['layer']} {each['role']} {each['from']}" for each in there["weights"]]
        got = self._run(folder / "there.engine", feeds)
        tolerance = (
            _QUANTIZED if "quant" in name or name == "scales" else TOLERANCES["fp16" if "fp16" in name else "as-is"]
        )
        row["b_error"] = _error(paths[1], feeds, got)
        row["b_right"] = row["b_error"] <= tolerance and any(not np.array_equal(first[each], got[each]) for each in got)
        self._refit(folder / "there.engine", paths[0], folder / "back.engine")
        back = self._run(folder / "back.engine", feeds)
        row["equal_bits"] = all(np.array_equal(first[each], back[each]) for each in first)
        row["stale"] = self._mistakes(engine, paths[1], folder, feeds, tolerance)

    def _mistakes(self, engine: Path, model: Path, folder: Path, feeds: dict[str, Any], tolerance: float) -> Row:
        """Leaves out a weight that changed: hidden from the refit, and kept from TensorRT behind its back."""
        from trtconv.core.errors import TrtconvError

        found: Row = {}
        try:
            with _without_first(listed=True):
                self._refit(engine, model, folder / "stale.engine")
        except TrtconvError as error:
            found["hidden"] = error.message[:_TEXT]
        try:
            with _without_first(listed=False):
                self._refit(engine, model, folder / "stale.engine")
            error_there = _error(model, feeds, self._run(folder / "stale.engine", feeds))
            found["kept"] = f"off by {error_there:.2g}" if error_there > tolerance else ""
        except TrtconvError as error:
            found["kept"] = error.message[:_TEXT]
        return found

    def _build(self, path: Path, precision: str) -> Any:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions

        options = BuilderOptions(optimization_level=0, refittable=True, tf32=False)
        request = trtconv.BuildRequest(path, target=self._target, precision=precision, prove="none", options=options)
        return trtconv.build(request)

    def _refit(self, engine: Path, model: Path, output: Path) -> Row:
        """Refits in this process, which has TensorRT already."""
        from trtconv.core.requests.engine import RefitRequest
        from trtconv.engine.refitting import serve as refit

        found: Any = refit(RefitRequest(engine, model, output=output), lambda _: None)
        if found["exit_code"]:
            from trtconv.core.errors import EngineFailed

            raise EngineFailed(found["findings"][0]["message"])
        return dict(found)

    def _run(self, engine: Path, feeds: dict[str, Any]) -> dict[str, Any]:
        execution = self._runtime.engines().load(engine.read_bytes()).open()
        with contextlib.closing(execution):
            execution.feed(feeds)
            return execution.run()


@contextlib.contextmanager
def _without_first(*, listed: bool) -> Iterator[None]:
    """Leaves out the largest weight: of what the engine lists, or of what TensorRT is given."""
    from trtconv.runtimes.tensorrt.refit import EngineRefitter

    listing, put = EngineRefitter.weights.fget, EngineRefitter.put
    assert listing is not None
    if listed:
        # A kernel always has other values; a constant may be one of the parser's own.
        def fewer(self: Any) -> Any:
            every = listing(self)
            kernels = [key for key in every if key[1] == "KERNEL"] or list(every)
            return tuple(key for key in every if key != kernels[0])

        with mock.patch.object(EngineRefitter, "weights", property(fewer)):
            yield
        return

    def most(self: Any, weights: Any) -> None:
        largest = max(weights, key=lambda key: (weights[key].size, key[1] == "KERNEL"))
        put(self, {key: values for key, values in weights.items() if key != largest})

    with mock.patch.object(EngineRefitter, "put", most):
        yield


def _error(model: Path, feeds: dict[str, Any], got: dict[str, Any]) -> float:
    """Returns the largest difference from the model on ONNX Runtime, as a part of the output's largest magnitude."""
    import numpy as np
    import onnx
    from nets import run_onnx

    loaded = onnx.load(model)
    names = [value.name for value in loaded.graph.output]
    worst = 0.0
    for name, expected in zip(names, run_onnx(loaded, feeds), strict=True):
        scale = float(np.abs(expected).max()) or 1.0
        worst = max(worst, float(np.abs(expected - np.asarray(got[name], np.float32)).max()) / scale)
    return worst


if __name__ == "__main__":
    sys.exit(main())
