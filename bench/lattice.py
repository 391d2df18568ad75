"""How long the size lattice takes, and what it adds to a build.

    python bench/lattice.py [--output FILE.json]

1. A network of 10,000 nodes (convolutions, poolings, upsamplings, skips by Concat) at 4,096 sizes of both height and
   width: below 2 s.
2. `trtconv build` of every model of models/ with a dynamic height or length: the share of the stage "sizes", at most
   10 %. The runtime is TensorRT-RTX, no GPU needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import trtconv
from trtconv.cli.versions import versions
from trtconv.core.dims import Range
from trtconv.graph.model import OnnxModel
from trtconv.shapes.lattice import Sizes

MODELS = Path(__file__).resolve().parents[1] / "models"
SPATIAL = Range(64, 128, 256)


def network(nodes: int) -> OnnxModel:
    """Makes a chain of U-Nets, each three levels deep, with about this many nodes."""
    weights = [numpy_helper.from_array(np.zeros((4, 4, 3, 3), np.float32), "w")]
    weights += [numpy_helper.from_array(np.zeros((4, 8, 1, 1), np.float32), "v")]
    weights += [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s")]
    made: list[onnx.NodeProto] = []
    current = "x"

    def add(op: str, inputs: list[str], **attrs: object) -> str:
        name = f"t{len(made)}"
        made.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    while len(made) < nodes:
        skips = []
        for _ in range(3):
            current = add("Relu", [add("Conv", [current, "w"], pads=[1, 1, 1, 1])])
            skips.append(current)
            current = add("MaxPool", [current], kernel_shape=[2, 2], strides=[2, 2])
        for skip in reversed(skips):
            current = add("Resize", [current, "", "s"], mode="nearest")
            current = add("Relu", [add("Conv", [add("Concat", [current, skip], axis=1), "v"])])
    made.append(helper.make_node("Identity", [current], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, "height", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, "height", "width"])
    graph = helper.make_graph(made, "g", [x], [y], weights)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), Path("net.onnx"))


def time_lattice(nodes: int, sizes: int) -> dict[str, object]:
    model = network(nodes)
    started = time.perf_counter()
    lattice = Sizes(model).lattice({"batch": (1, 4), "height": (1, sizes), "width": (1, sizes)})
    seconds = time.perf_counter() - started
    assert lattice.dims["height"].step == 8, "three poolings ask for multiples of 8"
    return {"nodes": len(model.proto.graph.node), "sizes": sizes, "seconds": round(seconds, 3)}


def time_builds() -> list[dict[str, object]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(MODELS.glob("*.onnx")):
            model = OnnxModel.load(path)
            names = Sizes(model).names
            dims = {n: Range(1, 1, 4) if n == "batch" else SPATIAL for n in names}
            best: tuple[float, float] | None = None
            for _ in range(3):
                request = trtconv.BuildRequest(
                    path, Path(folder) / "m.engine", dims, target=trtconv.Target("rtx"), force=True
                )
                report = trtconv.build(request)
                assert report.exit_code == 0, report.findings
                found = sum(report.seconds.values()), report.seconds["sizes"]
                best = found if best is None or found < best else best
            assert best is not None
            rows.append(
                {"model": path.stem, "build_seconds": best[0], "sizes_seconds": best[1], "share": best[1] / best[0]}
            )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path)
    output = parser.parse_args().output
    lattice = [time_lattice(nodes, sizes) for nodes, sizes in ((100, 4096), (1000, 4096), (10_000, 4096))]
    for row in lattice:
        print(f"{row['nodes']:>6} nodes x {row['sizes']} sizes: {row['seconds']:.2f} s")
    builds = time_builds()
    for row in builds:
        sizes, whole = row["sizes_seconds"], row["build_seconds"]
        print(f"{row['model']:>24}: sizes {sizes:.4f} s of {whole:.3f} s, {row['share']:.1%}")
    if output is not None:
        told = {
            "date": datetime.date.today().isoformat(),
            "versions": {"python": platform.python_version(), **versions()},
        }
        output.write_text(json.dumps({**told, "lattice": lattice, "builds": builds}, indent=2) + "\n")
    fast = float(str(lattice[-1]["seconds"])) < 2 and all(float(str(row["share"])) <= 0.1 for row in builds)
    return 0 if fast else 1


if __name__ == "__main__":
    sys.exit(main())
