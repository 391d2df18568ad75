"""Which products of matrices in front of a GridSample, and elsewhere, TensorRT 8.6 computes wrongly; and trtconv.

    python bench/gpu/warp.py [--seconds 120] [--out FOLDER]          needs TensorRT 8.6 and a GPU

A spatial transformer takes the places at which it samples of a product of matrices. Its product is written in several
ways, at three sizes, with two ways of making places of it; built by a plain script, with TensorRT's own layers told,
and compared with ONNX Runtime. Products of two axes in front of other ends show whether it takes a GridSample. The
rows "trtconv" are those that it builds, of the first way.

Writes FOLDER/gpu-warp-8.6.json. Exit status: 0 where all that trtconv builds is right; else 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(HERE)]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from support.session import run  # noqa: E402

NAME = "gpu-warp-8.6.json"
_RIGHT = 1e-3
_SIZES = ((1, 16, 16), (2, 16, 16), (4, 12, 20))
Row = dict[str, Any]
Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], f"{op}_{output}", **attributes)


FLAT = node("Reshape", "x flat", "v")
THREE = node("Reshape", "x rows", "v")
HEADS: dict[str, Nodes] = {
    "Gemm": [FLAT, node("Gemm", "v w bias", "p", transB=1)],
    "Gemm, other way round": [FLAT, node("Gemm", "v wt bias", "p")],
    "Gemm without bias": [FLAT, node("Gemm", "v w", "p", transB=1)],
    "MatMul, Add": [FLAT, node("MatMul", "v wt", "m"), node("Add", "m bias", "p")],
    "MatMul": [FLAT, node("MatMul", "v wt", "p")],
    "MatMul of 3 by 3 axes, Add": [THREE, node("MatMul", "v w3", "m"), node("Add", "m bias", "p")],
    "MatMul of 3 by 2 axes, Add": [THREE, node("MatMul", "v wt", "m"), node("Add", "m bias", "p")],
    "MatMul of 4 by 2 axes, Add": [
        node("Reshape", "x stacks", "v"),
        node("MatMul", "v wt", "m"),
        node("Add", "m bias", "p"),
    ],
    "Conv": [
        node("Reshape", "x column", "v"),
        node("Conv", "v kernel", "c"),
        node("Reshape", "c six", "m"),
        node("Add", "m bias", "p"),
    ],
    "sum of products": [
        THREE,
        node("Mul", "v w1", "m"),
        node("ReduceSum", "m last", "s", keepdims=0),
        node("Add", "s bias", "p"),
    ],
}
SPREAD = [
    node("Reshape", "p s23", "t"),
    node("Mul", "t tenth", "a0"),
    node("Add", "a0 eye", "a1"),
    node("Transpose", "a1", "a2", perm=[0, 2, 1]),
]
SAMPLE = [node("Reshape", "places grid", "g"), node("GridSample", "x g", "y", align_corners=0)]
ENDS: dict[str, Nodes] = {
    "sums": [
        *SPREAD,
        node("Unsqueeze", "a2 one", "u"),
        node("Mul", "based u", "a3"),
        node("ReduceSum", "a3 two", "places", keepdims=0),
        *SAMPLE,
    ],
    "product": [*SPREAD, node("MatMul", "base a2", "places"), *SAMPLE],
    "no GridSample": [*SPREAD, node("MatMul", "base a2", "y")],
    "no GridSample, softmax": [*SPREAD, node("MatMul", "base a2", "b"), node("Softmax", "b", "y", axis=-1)],
    "Gather": [node("Tanh", "p", "h"), node("Gather", "table ids", "k"), node("MatMul", "h k", "y")],
}


def model_of(head: str, end: str, size: tuple[int, int, int], random: np.random.Generator) -> onnx.ModelProto:
    """Returns a network; its product has six columns, as a spatial transformer's has."""
    batch, height, width = size
    inner = 3 * height * width
    w = (random.standard_normal((6, inner)) / np.sqrt(inner)).astype(np.float32)
    rows, columns = np.meshgrid(*((np.arange(n) * 2 + 1) / n - 1 for n in (height, width)), indexing="ij")
    base = np.stack([columns, rows, np.ones_like(rows)], -1).reshape(1, height * width, 3).astype(np.float32)
    values = {
        "w": w,
        "wt": np.ascontiguousarray(w.T),
        "w3": np.ascontiguousarray(w.T)[None],
        "w1": w[None],
        "kernel": w[:, :, None, None],
        "bias": (0.1 * random.standard_normal(6)).astype(np.float32),
        "flat": np.array([batch, inner]),
        "rows": np.array([batch, 1, inner]),
        "stacks": np.array([batch, 1, 1, inner]),
        "column": np.array([batch, inner, 1, 1]),
        "six": np.array([batch, 6]),
        "last": np.array([-1]),
        "one": np.array([1]),
        "two": np.array([2]),
        "s23": np.array([batch, 2, 3]),
        "tenth": np.float32(0.1),
        "eye": np.eye(2, 3, dtype=np.float32)[None],
        "base": base,
        "based": base[..., None],
        "grid": np.array([batch, height, width, 2]),
        "table": random.standard_normal((9, 5)).astype(np.float32),
        "ids": np.array([1, 7, 7, 0, 3, 8]),
    }
    nodes = [*HEADS[head], *ENDS[end]]
    used = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items() if name in used],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    )


def through_trtconv(model: onnx.ModelProto) -> bytes | str:
    """Returns the engine that trtconv builds, or what it says against the network."""
    import trtconv

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(model, path)
        request = trtconv.BuildRequest(path, target=trtconv.Target("tensorrt"))
        report = trtconv.build(request)
        return report.findings[0].message if report.exit_code else request.engine_path.read_bytes()


def rows(raw: Any) -> Iterator[Row]:
    """Yields every row, as it was measured."""
    from trt86 import Options

    random = np.random.default_rng(0)
    for size in _SIZES:
        for end in ENDS:
            for head in HEADS:
                model = model_of(head, end, size, random)
                feeds = {"x": random.standard_normal((size[0], 3, *size[1:])).astype(np.float32)}
                ways: dict[str, Callable[[], Any]] = {
                    "raw": lambda model=model: raw.build(model.SerializeToString(), Options(), keep_timings=False)
                }
                if head in ("Gemm", "MatMul, Add"):
                    ways["trtconv"] = lambda model=model: through_trtconv(model)
                for way, build in ways.items():
                    row: Row = {"way": way, "product": head, "end": end, "size": "x".join(map(str, size))}
                    yield row | _measured(raw, build, model, feeds)


def _measured(raw: Any, build: Callable[[], Any], model: onnx.ModelProto, feeds: dict[str, Any]) -> Row:
    try:
        plan = build()
        if isinstance(plan, str):
            return {"verdict": "refused", "why": plan[:200]}
        engine = raw.engine(plan)
        engine.load(feeds)
        found, right = engine.run()[0], run(model, feeds)[0]
        layers = _layers(raw, engine)
        engine.free()
        off = float(np.abs(found.astype(np.float64) - right).max() / np.abs(right).max())
        return {"verdict": "right" if off < _RIGHT else "wrong", "off": repr(round(off, 6)), "layers": layers}
    except Exception as error:
        return {"verdict": "failed", "why": f"{type(error).__name__}: {error}"[:200]}


def _layers(raw: Any, engine: Any) -> list[str]:
    inspector = engine._engine.create_engine_inspector()
    text = inspector.get_engine_information(raw.trt.LayerInformationFormat.JSON)
    return [str(each)[:80] for each in json.loads(text)["Layers"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="no row begins after that")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    given = parser.parse_args()
    import tensorrt
    from trt86 import TensorRT

    from trtconv.runtimes.tensorrt.gpu import gpu_name

    raw, began, done = TensorRT(tensorrt), time.monotonic(), list[Row]()
    for row in rows(raw):
        done.append(row)
        print(f"{row['way']:<8} {row['product']:<28} {row['end']:<24} {row['size']:<8} {row['verdict']}", flush=True)
        document = {
            "date": str(datetime.date.today()),
            "tensorrt": raw.version,
            "gpu": gpu_name(),
            "seconds": round(time.monotonic() - began, 1),
            "rows": done,
        }
        (given.out / NAME).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        if time.monotonic() - began > given.seconds:
            print("out of time")
            break
    ours = [row["verdict"] for row in done if row["way"] == "trtconv"]
    return 0 if ours and set(ours) == {"right"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
