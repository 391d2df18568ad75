"""Runs networks with infinities on TensorRT 8.6: as they are, and through trtconv.

    python bench/gpu/infinities.py [--out FOLDER] [--only USE ...]

Each infinite constant, of one element or more, is read by each of some operators; the rest are attentions that compare
for rows that are masked whole. Writes OUT/gpu-infinities-8.6.json: for each network whether the engine computes what
ONNX Runtime does, raw and through trtconv. Exit status: 1 where one is wrong that went through trtconv.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper, parser

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from node_suite import gpu  # noqa: E402
from outputs import outputs_of  # noqa: E402

Array = NDArray[Any]

ENDLESS = float("inf")
LOW = np.float32(-ENDLESS)
INFINITE = np.array([[1, LOW, 2, 3], [LOW] * 4, [LOW, LOW, 0, 1], [5, 4, 3, 2]], np.float32).reshape(1, 1, 4, 4)
FINITE = np.abs(np.random.default_rng(0).normal(size=(1, 1, 4, 4))).astype(np.float32) + np.float32(0.1)
MASK = np.array([1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0], bool).reshape(1, 1, 4, 4)


class Network(NamedTuple):
    """A network: its inputs and output, its nodes, its constants, and what goes in."""

    inputs: str
    output: str
    nodes: str
    constants: Mapping[str, Array]
    feeds: Mapping[str, Array]

    def proto(self) -> onnx.ModelProto:
        """Returns the model."""
        model = parser.parse_model(
            f'<ir_version: 8, opset_import: ["": 17]> g ({self.inputs}) => ({self.output} y) {{ {self.nodes} }}'
        )
        read = {name for node in model.graph.node for name in node.input}
        tensors = (numpy_helper.from_array(np.asarray(self.constants[name]), name) for name in self.constants)
        model.graph.initializer.extend(tensor for tensor in tensors if tensor.name in read)
        return model


FORMS: Mapping[str, tuple[str, Mapping[str, Array]]] = {
    "scalar": ("", {"c": np.float32(LOW)}),
    "one": ("", {"c": np.float32([LOW])}),
    "four axes": ("", {"c": np.full((1, 1, 1, 1), LOW)}),
    "row": ("", {"c": np.full(4, LOW)}),
    "whole": ("", {"c": np.full((1, 1, 4, 4), LOW)}),
    "plus": ("", {"c": np.float32(ENDLESS)}),
    "half": ("c = Cast <to=1> (h)", {"h": np.float16(LOW)}),
    "negative": ("c = Neg (v)", {"v": np.float32(ENDLESS)}),
    "logarithm": ("c = Log (v)", {"v": np.float32(0)}),
    "slice": ("c = Slice (v, i, j, i)", {"v": np.float32([LOW, LOW]), "i": np.int64([0]), "j": np.int64([1])}),
    "expand": ("c = Expand (v, s)", {"v": np.float32(LOW), "s": np.int64([1, 1, 4, 4])}),
    "filled": ("c = ConstantOfShape <value = float[1] {-inf}> (s)", {"s": np.int64([1, 1, 4, 4])}),
    "lowest": ("", {"c": np.finfo(np.float32).min}),
}
"""Infinite constants, and the lowest number beside them."""
USES = {
    "where": ("y = Where (m, c, x)", FINITE),
    "where not": ("y = Where (m, x, c)", FINITE),
    "equal": ("e = Equal (x, c)  y = Cast <to=1> (e)", INFINITE),
    "equal where": ("w = Where (m, c, x)  e = Equal (w, c)  y = Cast <to=1> (e)", FINITE),
    "largest": ("w = Where (m, c, x)  y = ReduceMax <axes=[-1]> (w)", FINITE),
    "largest is": (
        "w = Where (m, c, x)  r = ReduceMax <axes=[-1]> (w)  e = Equal (r, c0)  y = Cast <to=1> (e)",
        FINITE,
    ),
    "largest of": ("a = Add (x, c)  y = ReduceMax <axes=[2,3]> (a)", FINITE),
    "softmax": ("w = Where (m, c, x)  y = Softmax (w)", FINITE),
    "add": ("y = Add (x, c)", FINITE),
    "maximum": ("y = Max (x, c)", INFINITE),
    "minimum": ("y = Min (x, c)", FINITE),
    "product": ("y = Mul (x, c)", FINITE),
    "less": ("e = Less (x, c)  y = Cast <to=1> (e)", INFINITE),
    "more": ("e = Greater (c, x)  y = Cast <to=1> (e)", INFINITE),
    "no less": ("e = GreaterOrEqual (x, c)  y = Cast <to=1> (e)", INFINITE),
    "difference": ("y = Sub (x, c)", FINITE),
    "quotient": ("y = Div (x, c)", FINITE),
    "limits": ("z = Identity (c)  y = Clip (x, z)", INFINITE),
}
SCALARS = frozenset(("scalar", "plus", "half", "negative", "lowest"))
"""Forms that a limit of a Clip may have."""
SMALLER = {"largest": "float[1,1,4,1]", "largest is": "float[1,1,4,1]", "largest of": "float[1,1,1,1]"}
GUARDS = {
    "equal": "e = Equal (r, c0)",
    "less": "e = Less (r, lowest)",
    "infinite": "e = IsInf (r)",
}
MASKS = {
    "rows": np.array([[1], [0], [1], [1]], bool),
    "causal": np.triu(np.ones((4, 4), bool), 1),
    "whole": np.random.default_rng(1).integers(0, 2, (3, 2, 4, 4)).astype(bool),
}


def networks() -> Iterator[tuple[str, str, Network]]:
    """Yields the name of a use, that of a network, and the network."""
    for use, (nodes, x) in USES.items():
        for form, (made, constants) in FORMS.items():
            if use == "limits" and form not in SCALARS:
                continue
            yield (
                use,
                f"{use}, {form}",
                Network(
                    "float[1,1,4,4] x, bool[1,1,4,4] m",
                    SMALLER.get(use, "float[1,1,4,4]"),
                    f"{made}  {nodes}",
                    {**constants, "c0": LOW},
                    {"x": x, "m": MASK},
                ),
            )
    # Whether the builder takes a long row of nothing but infinity for a single one.
    for size in (64, 512, 4096):
        shape = f"[1,1,4,{size}]"
        x = np.abs(np.random.default_rng(0).normal(size=(1, 1, 4, size))).astype(np.float32)
        mask = np.random.default_rng(1).integers(0, 2, x.shape).astype(bool)
        feeds = {"x": x, "m": mask}
        inputs, nodes = f"float{shape} x, bool{shape} m", USES["where"][0]
        yield (
            "where",
            f"where, row of {size}",
            Network(inputs, f"float{shape}", nodes, {"c": np.full(size, LOW)}, feeds),
        )
    values = np.random.default_rng(0).normal(size=(3, 2, 4, 3)).astype(np.float32)
    scores = np.random.default_rng(2).normal(size=(3, 2, 4, 4)).astype(np.float32)
    constants = {"c0": LOW, "zero": np.float32(0), "lowest": np.float32(-9e37), "v": values}
    for guard, nodes in GUARDS.items():
        for name, mask in MASKS.items():
            for kind in ("constant", "input"):
                body = f"""b = Where (m, c0, zero)  a = Add (x, b)  s = Softmax (a)  r = ReduceMax <axes=[-1]> (b)
                {nodes}  w = Where (e, zero, s)  y = MatMul (w, v)"""
                whole = np.broadcast_to(mask, scores.shape).copy()
                inputs, more, feeds = "float[3,2,4,4] x", {"m": mask}, {"x": scores}
                if kind == "input":
                    inputs, more, feeds = f"{inputs}, bool[3,2,4,4] m", {}, {"x": scores, "m": whole}
                network = Network(inputs, "float[3,2,4,3]", body, {**constants, **more}, feeds)
                yield "guard", f"guard by {guard}, mask {name}, {kind}", network


def verdict(network: Network, folder: Path, *, rewrite: bool) -> str:
    """Builds and runs; returns "right", or what is wrong."""
    proto = network.proto()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    taken = {value.name for value in session.get_inputs()}
    feeds = {name: array for name, array in network.feeds.items() if name in taken}
    (expected,) = session.run(None, feeds)
    outputs = outputs_of(proto, feeds, folder, rewrite=rewrite)
    if isinstance(outputs, str):
        return outputs
    got = outputs["y"]
    off = ~np.isclose(got, expected, rtol=1e-3, atol=1e-3, equal_nan=True)
    first = f"the first {got[off][0]:.3g} for {expected[off][0]:.3g}" if off.any() else ""
    return f"{int(off.sum())} of {off.size} elements are off, {first}" if off.any() else "right"


def main() -> int:
    """Runs all; returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    arguments.add_argument("--only", nargs="*", choices=[*USES, "guard"], default=[*USES, "guard"])
    options = arguments.parse_args()
    onnxruntime.set_default_logger_severity(3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for use, name, network in networks():
            if use in options.only:
                ways = {way: verdict(network, Path(folder), rewrite=way == "trtconv") for way in ("raw", "trtconv")}
                rows.append({"network": name, **ways})
                print(*rows[-1].values(), sep=" | ", flush=True)
    document = {"date": datetime.date.today().isoformat(), "gpu": gpu(), "rows": rows}
    (options.out / "gpu-infinities-8.6.json").write_text(json.dumps(document, indent=1) + "\n")
    return int(any(row["trtconv"] != "right" for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
