"""Runs choices that constants, or sizes, decide on TensorRT 8.6: as they are, and as `choose-at-run-time` writes them.

    python bench/gpu/settled_masks.py [--out FOLDER] [--only BODY ...]

Writes OUT/gpu-settled-masks-8.6.json: for each network and level of the builder whether the engine computes what ONNX
Runtime does, raw and through trtconv. Exit status: 1 where one is wrong that went through trtconv.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper, parser

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from node_suite import gpu  # noqa: E402

import trtconv  # noqa: E402
from trtconv import BuildRequest, RunRequest  # noqa: E402
from trtconv.core.builder_options import BuilderOptions  # noqa: E402

LEVELS = (0, 3, 5)
MASKS = {
    "all": np.ones((1, 1), bool),
    "none": np.zeros((1, 1), bool),
    "rows": np.array([[1], [0], [1], [1]], bool),
    "causal": np.triu(np.ones((4, 4), bool), 1),
    "heads": np.array([1, 0], bool).reshape(1, 2, 1, 1),
    "whole": np.random.default_rng(1).integers(0, 2, (3, 2, 4, 4)).astype(bool),
}
"""Of 3 batches, 2 heads, 4 queries and 4 keys."""
COMPUTED = {
    "causal-by-sizes": "m = Less (row, column)",
    "corner-by-sizes": "d = Sub (row, column)  m = Greater (d, two)",
    "all-by-sizes": "d = Add (row, column)  m = GreaterOrEqual (d, zero)",
    "none-by-sizes": "d = Add (row, column)  m = Less (d, zero)",
}
"""Of inputs whose sizes the profile alone fixes."""
_ROWS = """z = Shape (x)  q = Gather (z, two)  k = Gather (z, three)  i = Range (zero, q, one)  j = Range (zero, k, one)
row = Unsqueeze (i, last)  column = Unsqueeze (j, first)"""
BODIES = {
    "shares": "s = Softmax (x)  w = Where (m, value, s)  y = MatMul (w, v)",
    "scores": "w = Where (m, value, x)  s = Softmax (w)  y = MatMul (s, v)",
    "others": "w = Where (m, x, value)  y = MatMul (w, v)",
    "bias": "b = Where (m, value, other)  w = Add (x, b)  s = Softmax (w)  y = MatMul (s, v)",
    "guard": """b = Where (m, value, other)  a = Add (x, b)  s = Softmax (a)  r = ReduceMax <axes = [-1]> (b)
    g = Equal (r, value)  w = Where (g, other, s)  y = MatMul (w, v)""",
}
"""Attentions, the last as ONNX defines its own: rows that are masked whole are 0, not what a Softmax makes of them."""
VALUES = {"shares": "0", "scores": "-1e30", "others": "0.5", "bias": "-1e30", "guard": "-inf"}


def network(body: str, mask: str) -> onnx.ModelProto:
    """Returns a network whose mask is constant, or one that follows from sizes."""
    sizes, rows = ("3,2,4,4", "") if mask in MASKS else ("n,2,q,k", f"{_ROWS}  {COMPUTED[mask]}")
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[{sizes}] x) => (float[{sizes[:-2]},3] y)
        <float[1] value = {{{VALUES[body]}}}, float[1] other = {{0}}, int64 zero = {{0}}, int64 one = {{1}},
        int64 two = {{2}}, int64 three = {{3}}, int64[1] first = {{0}}, int64[1] last = {{1}}>
        {{ {rows} {BODIES[body]} }}"""
    )
    values = np.random.default_rng(0).normal(size=(3, 2, 4, 3)).astype(np.float32)
    masks = [numpy_helper.from_array(MASKS[mask], "m")] if mask in MASKS else []
    proto.graph.initializer.extend([*masks, numpy_helper.from_array(values, "v")])
    return proto


def verdict(path: Path, level: int, *, rewrite: bool) -> str:
    """Builds and runs; returns "right", or what is wrong."""
    engine, inputs, outputs = (path.with_suffix(ending) for ending in (".engine", ".npz", ".out.npz"))
    feed = {"x": np.random.default_rng(2).normal(size=(3, 2, 4, 4)).astype(np.float32)}
    (expected,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)
    np.savez(inputs, **feed)
    options = BuilderOptions(optimization_level=level)
    dims = {"n": 3, "q": 4, "k": 4} if "sizes" in path.stem else {}
    try:
        trtconv.build(
            BuildRequest(
                path,
                engine=engine,
                rewrite=rewrite,
                options=options,
                dims=dims,
                prove="none",
                fail_on=None,
                force=True,
            )
        )
        trtconv.run(RunRequest(engine, inputs=inputs, output=outputs))
    except trtconv.TrtconvError as error:
        return error.message
    got = np.load(outputs)["y"]
    off = ~np.isclose(got, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
    return f"{int(off.sum())} of {off.size} elements are off, the first {got[off][0]:.3g}" if off.any() else "right"


def main() -> int:
    """Runs all; returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    arguments.add_argument("--only", nargs="*", choices=BODIES, default=BODIES)
    options = arguments.parse_args()
    onnxruntime.set_default_logger_severity(3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for body in options.only:
            for mask in (*MASKS, *COMPUTED):
                path = Path(folder) / f"{body}-{mask}.onnx"
                onnx.save_model(network(body, mask), path)
                for level in LEVELS:
                    ways = {way: verdict(path, level, rewrite=way == "trtconv") for way in ("raw", "trtconv")}
                    rows.append({"network": path.stem, "level": level, **ways})
                    print(*rows[-1].values(), flush=True)
    document = {"date": datetime.date.today().isoformat(), "gpu": gpu(), "rows": rows}
    (options.out / "gpu-settled-masks-8.6.json").write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row["trtconv"] != "right" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
