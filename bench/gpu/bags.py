"""Runs EmbeddingBag, as torch exports it (tests/data/bags), on a GPU beside ONNX Runtime's loop.

    python bench/gpu/bags.py [--out FOLDER]

Writes OUT/gpu-bags-8.6.json: for each export how many inputs it was run with and the largest difference of an output,
as a part of the output's largest magnitude; of offsets that torch takes, and apart from these of such as it refuses.
"finite" is false where one is not finite and the other is, which no such part tells.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from node_suite import gpu  # noqa: E402

import trtconv  # noqa: E402
from trtconv import BuildRequest, Range, RunRequest  # noqa: E402

BAGS = {"batch": Range(1, 3, 16), "nb": Range(2, 4, 9), "n": Range(1, 15, 64)}
RUNS = ((12, 4), (40, 9), (7, 3), (64, 7))
"""Rows and bags."""
STRANGE = ((12, 4), (40, 9), (7, 5))
"""Likewise, with offsets that are negative, beyond the rows and in no order."""


def main() -> int:
    """Runs all; returns the exit status: 1 where one differs at offsets that torch takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    out = parser.parse_args().out
    paths = sorted((ROOT / "tests/data/bags").glob("*.onnx"))
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(path, Path(folder)) for path in paths]
    versions = {"onnx": onnx.__version__, "onnxruntime": onnxruntime.__version__, "numpy": np.__version__}
    document = {"date": datetime.date.today().isoformat(), "gpu": gpu(), "versions": versions, "rows": rows}
    (out / "gpu-bags-8.6.json").write_text(json.dumps(document, indent=1) + "\n")
    return int(any(each["usual"]["error"] > 1e-3 or not each["usual"]["finite"] for each in rows))


def row(path: Path, folder: Path) -> dict[str, Any]:
    """Builds and runs an export; returns what came of it."""
    proto = onnx.load(path)
    labels = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    dims = {label: BAGS.get(label, BAGS["batch"]) for label in labels - {""}}
    engine, inputs, outputs = (folder / f"{path.stem}{ending}" for ending in (".engine", ".npz", ".out.npz"))
    report = trtconv.build(BuildRequest(path, engine=engine, dims=dims, force=True))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    errors: dict[str, list[float]] = {"usual": [], "strange": []}
    for number, feed in enumerate(feeds(proto, is_dynamo="dynamo" in path.stem)):
        try:
            (expected,) = session.run(None, feed)
        except Exception:  # ONNX Runtime takes no maximum of nothing.
            continue
        np.savez(inputs, **feed)
        trtconv.run(RunRequest(engine, inputs=inputs, output=outputs))
        kind = "usual" if number < len(RUNS) or "o" not in feed else "strange"
        errors[kind].append(difference(np.load(outputs)[proto.graph.output[0].name], expected))
    proven = report.proof is not None and report.proof.agrees
    found = {
        kind: {
            "runs": len(those),
            "finite": all(map(np.isfinite, those)),
            "error": max(filter(np.isfinite, those), default=0.0),
        }
        for kind, those in errors.items()
    }
    return {"name": path.stem, "proven": proven, **found}


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, as a part of the largest magnitude; infinite where others are not finite."""
    finite = np.isfinite(expected)
    if got.shape != expected.shape or not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return np.inf
    return float(np.abs(got - expected)[finite].max(initial=0) / max(np.abs(expected[finite]).max(initial=0), 1e-6))


def feeds(proto: onnx.ModelProto, *, is_dynamo: bool) -> Iterator[dict[str, np.ndarray]]:
    """Yields inputs; of bags without rows the newer exporter makes zero, and the older one leaves means open."""
    r = np.random.default_rng(3)
    for number, (rows, bags) in enumerate(RUNS + STRANGE):
        feed: dict[str, np.ndarray] = {}
        for value in proto.graph.input:
            dims = value.type.tensor_type.shape.dim
            is_grid = len(proto.graph.input[0].type.tensor_type.shape.dim) == 2
            sizes = [dim.dim_value or (rows if dim.dim_param == "n" and not is_grid else bags) for dim in dims]
            if value.name == "o":
                offsets = np.sort(r.choice(rows, bags, replace=is_dynamo))
                offsets[0] = 0
                offsets[-1] = rows if dims[0].dim_param == "nb" else offsets[-1]
                if number >= len(RUNS):
                    offsets = r.integers(-rows - 2, rows + 3, bags)
                feed["o"] = offsets.astype(np.int64)
            elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
                feed[value.name] = r.integers(0, 50, sizes)
            else:
                feed[value.name] = r.normal(size=sizes).astype(np.float32)
        yield feed


if __name__ == "__main__":
    raise SystemExit(main())
