"""Engines of TensorRT 8.6 with inputs and outputs in other types and formats, executed and timed.

    python bench/gpu/formats.py [--jobs 8] [--seconds 60] [--only NAME] [--out FOLDER]      needs TensorRT 8.6 and a GPU

Each row is a network built with --io, and the same without. Both are run on the same numbers; the results have to agree
within float16's rounding (of int8 codes: one step), and with the model on ONNX Runtime. The time is that of the GPU for
one inference in a CUDA graph, inputs and outputs in its memory as they are asked for: what a format saves, or costs.
With "direct" TensorRT may not copy into other formats at the boundary; a refusal is written down, and is no failure.

Writes FOLDER/gpu-formats-8.6.json and prints a table. Exit status: 0 at least five formats ran and all agree; 1 not.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests")]

from children import Row, options, run_script, serve  # noqa: E402

NAME = "gpu-formats-8.6.json"
TEXT = 300
_LEAST = 5
HALF = 3e-2
CODES = 5e-2

FLOAT = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4, 16, 96, 96] x) => (float[4, 32, 48, 48] y)
<float[32, 16, 3, 3] w0, float[32] b0, float[32, 32, 3, 3] w1>
{
  a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0, b0)
  r = Relu (a)
  y = Conv <pads = [1, 1, 1, 1]> (r, w1)
}
"""
IMAGE = FLOAT.replace("float[4, 16, 96, 96] x", "float[4, 3, 96, 96] x").replace("[32, 16, 3, 3]", "[32, 3, 3, 3]")
VOLUME = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 8, 16, 32, 32] x) => (float[1, 8, 16, 32, 32] y)
<float[8, 8, 3, 3, 3] w0>
{
  a = Conv <pads = [1, 1, 1, 1, 1, 1]> (x, w0)
  y = Relu (a)
}
"""
QUANTIZED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[4, 32, 48, 48] x) => (float[4, 32, 48, 48] y)
<float scale = {0.03125}, float out = {0.0625}, int8 zero = {0}, float ws = {0.005}, float[32, 32, 3, 3] w0>
{
  q = QuantizeLinear (x, scale, zero)
  d = DequantizeLinear (q, scale, zero)
  wq = QuantizeLinear (w0, ws, zero)
  wd = DequantizeLinear (wq, ws, zero)
  a = Conv <pads = [1, 1, 1, 1]> (d, wd)
  r = Relu (a)
  p = QuantizeLinear (r, out, zero)
  y = DequantizeLinear (p, out, zero)
}
"""
TEXTS = {"float": FLOAT, "image": IMAGE, "volume": VOLUME, "quantized": QUANTIZED}
ROWS: tuple[tuple[str, str, str, str], ...] = (
    ("float", "fp16", "fp16:chw", "fp16:chw"),
    ("float", "fp16", "fp16:chw2", "fp16:chw2"),
    ("float", "fp16", "fp16:hwc8", "fp16:hwc8"),
    ("float", "fp16", "fp16:chw16", "fp16:chw16"),
    ("float", "fp16", "fp16:chw32", "fp16:chw"),
    ("float", "as-is", "fp32:chw32", "fp32:chw32"),
    ("image", "fp16", "fp32:hwc", "fp32:chw"),
    ("image", "fp16", "uint8:chw", "fp16:chw"),
    ("image", "fp16", "uint8:hwc", "fp16:chw"),
    ("volume", "fp16", "fp16:dhwc8", "fp16:dhwc8"),
    ("volume", "fp16", "fp16:cdhw32", "fp16:chw"),
    ("quantized", "int8", "int8:chw", "int8:chw"),
    ("quantized", "int8", "int8:chw4", "int8:chw4"),
    ("quantized", "int8", "int8:chw32", "int8:chw32"),
)
"""Network, precision, and what its input and its output are to be."""


def main() -> int:
    given = options(__doc__, len(ROWS))
    if given.worker:
        return serve(Bench)
    tasks: list[Row] = [
        {"net": net, "precision": precision, "input": one, "output": other, "direct": direct}
        for net, precision, one, other in ROWS
        for direct in (False, True)
        if given.only in (net, "")
    ]
    rows = run_script(__file__, tasks, given, NAME)
    for row in sorted(rows, key=lambda row: (row["net"], row["input"], row["direct"])):
        told = (
            row.get("failed")
            or row.get("why")
            or f"error {row['error']:.1e}, {row['us']:.1f} us for {row['plain_us']:.1f}"
        )
        what = f"{row['net']} {row['input']} -> {row['output']}{' direct' if row['direct'] else ''}"
        print(f"{'' if row.get('right') else '! '}{what}: {told}")
    ran = [row for row in rows if "us" in row]
    formats = {text.partition(":")[2] for row in ran for text in (row["input"], row["output"])} - {"chw"}
    print(f"{len(ran)} of {len(rows)} ran, formats {', '.join(sorted(formats))}")
    return 0 if len(formats) >= _LEAST and all(row["right"] for row in ran) and not given.only else 1


class Bench:
    """TensorRT in a child."""

    def __init__(self, family: str = "") -> None:
        from trtconv.core.target import Target
        from trtconv.runtimes import tensorrt

        self._target = Target(family or sys.argv[sys.argv.index("--family") + 1])
        self._runtime = tensorrt.load(self._target)

    def __call__(self, task: Row) -> Row:
        """Builds with and without what is asked for, runs both on the same values, and times both."""
        from trtconv.core.errors import TrtconvError

        row: Row = {}
        with tempfile.TemporaryDirectory() as folder:
            try:
                self._measure(task, Path(folder), row)
            except TrtconvError as error:
                row["why"] = f"{error.message} {error.hint}"[:TEXT]
        return row

    def _measure(self, task: Row, folder: Path, row: Row) -> None:
        import numpy as np
        import onnx
        from nets import run_onnx
        from refit import text_model

        from trtconv.core.tensor_io import TensorIo

        path = folder / "m.onnx"
        model = text_model(TEXTS[task["net"]], 86)
        onnx.save(model, path)
        asked = {"x": TensorIo.parse(task["input"]), "y": TensorIo.parse(task["output"])}
        report = self._build(path, folder / "io.engine", task, asked)
        if report.exit_code:
            row["why"] = report.findings[0].message[:TEXT]
            return
        self._build(path, folder / "plain.engine", task, {})
        told = {each.name: each for each in report.io}
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        numbers, given = values(shape, told["x"])
        got, row["us"], forms = self._run(folder / "io.engine", given)
        row["in_engine"] = forms
        plain, row["plain_us"], _ = self._run(folder / "plain.engine", numbers)
        got = got.astype(np.float32) * (told["y"].scale or 1.0)
        (expected,) = run_onnx(model, {"x": numbers})
        largest = float(np.abs(expected).max())
        row["error"] = float(np.abs(got - expected).max()) / largest
        row["plain_error"] = float(np.abs(plain - expected).max()) / largest
        limit = CODES if task["net"] == "quantized" else HALF
        row["as_asked"] = {name: io.format for name, io in asked.items()} == {n: forms[n] or "chw" for n in asked}
        row["right"] = row["error"] <= limit and row["as_asked"]

    def _build(self, model: Path, engine: Path, task: Row, io: Any) -> Any:
        import trtconv
        from trtconv.core.builder_options import BuilderOptions

        options = BuilderOptions(optimization_level=2, tf32=False, direct_io=bool(task["direct"] and io))
        request = trtconv.BuildRequest(
            model,
            engine=engine,
            target=self._target,
            precision=task["precision"],
            io=io,
            prove="none",
            options=options,
        )
        return trtconv.build(request)

    def _run(self, engine: Path, x: Any) -> tuple[Any, float, dict[str, str | None]]:
        """Returns the output, the microseconds of an inference, and the formats that the engine tells."""
        loaded = self._runtime.engines().load(engine.read_bytes())
        with contextlib.closing(loaded.open()) as execution:
            execution.feed({"x": x})
            output = execution.run()["y"]
            launch = execution.launcher(graph=True, copies=False)
            times = [] if launch is None else [execution.microseconds(launch, 50) / 50 for _ in range(9)]
        return output, sorted(times)[len(times) // 2] if times else 0.0, {t.name: t.format for t in loaded.tensors}


def values(shape: list[int], told: Any) -> tuple[Any, Any]:
    """Returns random numbers, and the same as the engine takes them: bytes, codes, or other floats."""
    import numpy as np

    random = np.random.default_rng(86)
    if told.dtype == "uint8":
        given = random.integers(0, 256, shape).astype(np.uint8)
        return given.astype(np.float32), given
    numbers = random.normal(size=shape).astype(np.float32)
    if told.scale is None:
        return numbers.astype(told.dtype).astype(np.float32), numbers.astype(told.dtype)
    codes = np.clip(np.rint(numbers / told.scale), -128, 127).astype(np.int8)
    return codes.astype(np.float32) * np.float32(told.scale), codes


if __name__ == "__main__":
    sys.exit(main())
