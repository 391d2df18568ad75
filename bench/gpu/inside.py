"""What `run --trace` shows on TensorRT 8.6, and version-compatible engines, with their lean runtime and without.

    python bench/gpu/inside.py [--jobs 3] [--seconds 60] [--out FOLDER]      needs TensorRT 8.6 and a GPU

Each row is a segmenter, built in another way, and run as `trtconv run` does; its output is compared with ONNX
Runtime's. "trace" is built with --profiling-verbosity detailed: the file has to hold layers with times, kernels and
ONNX nodes.

Writes FOLDER/gpu-inside-8.6.json and prints a table. Exit status: 0 all ran and agree; 1 not.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests")]

from children import Row, options, run_script, serve  # noqa: E402

NAME = "gpu-inside-8.6.json"
SEGMENTER = """<ir_version: 8, opset_import: ["": 17]> g (float[1, 3, 256, 256] x) => (float[1, 8, 256, 256] y)
<float[16, 3, 3, 3] w0, float[32, 16, 3, 3] w1, float[32, 8, 4, 4] w2>
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w0)
  b = Relu (a)
  c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (b, w1)
  d = Relu (c)
  y = ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]> (d, w2)
}
"""
_HALF = 3e-2
WAYS: dict[str, dict[str, Any]] = {
    "trace": {"profiling_verbosity": "detailed"},
    "version-compatible": {"version_compatible": True},
    "without lean runtime": {"version_compatible": True, "exclude_lean_runtime": True},
}


def main() -> int:
    given = options(__doc__, len(WAYS))
    if given.worker:
        return serve(Inside)
    rows = run_script(__file__, [{"way": way} for way in WAYS if given.only in (way, "")], given, NAME)
    for row in rows:
        print(f"{'' if row.get('right') else '! '}{row['way']}: {row.get('failed') or row.get('why') or row}")
    return 0 if all(row.get("right") for row in rows) else 1


class Inside:
    """TensorRT in a child."""

    def __init__(self, family: str = "") -> None:
        from trtconv.core.target import Target

        self._target = Target(family or sys.argv[sys.argv.index("--family") + 1])

    def __call__(self, task: Row) -> Row:
        """Builds in one way, runs, and compares."""
        from trtconv.core.errors import TrtconvError

        with tempfile.TemporaryDirectory() as folder:
            try:
                return self._run(task["way"], Path(folder))
            except TrtconvError as error:
                return {"why": f"{error.message} {error.hint}"[:300]}

    def _run(self, way: str, folder: Path) -> Row:
        import numpy as np
        import onnx
        from nets import run_onnx
        from refit import text_model

        import trtconv
        from trtconv.core.builder_options import BuilderOptions
        from trtconv.core.requests.engine import RunRequest
        from trtconv.engine.running import serve as run

        model, path = text_model(SEGMENTER, 86), folder / "net.onnx"
        onnx.save(model, path)
        how = BuilderOptions(optimization_level=1, tf32=False, **WAYS[way])
        request = trtconv.BuildRequest(path, target=self._target, precision="fp16", prove="none", options=how)
        report = trtconv.build(request)
        if report.exit_code:
            return {"why": report.findings[0].message[:300]}
        x = np.random.default_rng(86).standard_normal((1, 3, 256, 256)).astype(np.float32)
        np.savez(folder / "in.npz", x=x)
        asked = RunRequest(
            request.engine_path,
            inputs=folder / "in.npz",
            output=folder / "out.npz",
            trace=folder / "trace.json",
            trust=True,
        )
        run(asked, lambda told: None)
        with np.load(folder / "out.npz") as held:
            got = held["y"].astype(np.float32)
        (expected,) = run_onnx(model, {"x": x})
        error = float(np.abs(got - expected).max() / np.abs(expected).max())
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        timed = bool(events) and all(each["dur"] >= 0 for each in events) and sum(each["dur"] for each in events) > 0
        detailed = way != "trace" or any(each["args"].get("nodes") and each["args"].get("kernel") for each in events)
        return {
            "right": error <= _HALF and timed and detailed,
            "error": error,
            "bytes": report.engine.bytes if report.engine else None,
            "layers": [[each["name"][:60], each["cat"], each["dur"]] for each in events],
        }


if __name__ == "__main__":
    sys.exit(main())
