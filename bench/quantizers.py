"""Does trtconv build what the quantisers of other people write, and is what it builds what the file means?

    PYTHON bench/quantizer_files.py FOLDER --seed N            # PYTHON has the quantisers; an hour at most
    python bench/quantizers.py FOLDER [--missing]              # a second or two for a file; needs tensorrt-rtx
    python bench/quantizers.py --drawn 128 --seed N [--missing]

With --drawn the files are small layers between quantisers, drawn from all spellings that ONNX has for them
(tests/support/quantized_models.py), and constants that TensorRT takes no quantised form of. Each file is run by ONNX
Runtime without optimisations, and beside it: TensorRT-RTX's parser and builder on the file as it is, whose network is
read back and run; `trtconv.build` with its default proof; and what trtconv's passes make of it, on ONNX Runtime and as
TensorRT's parser reads that. "misread": TensorRT takes the file and computes something else, by more than 0.5 % (root
of the mean square); "wrong": trtconv builds it, and what TensorRT reads is further off than the passes may be by
docs/quantization.md. Writes bench/results/quantizers.json, or -o; its part "files" or "drawn", file by file. Exit
status: 0 none is wrong; 1 some are.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests")]

from coverage import Builder  # noqa: E402
from in_process import in_process  # noqa: E402
from proof_suite import prepared  # noqa: E402

import trtconv  # noqa: E402
from support.quantized_models import BIASES, MOVES, POINTS, SPELLINGS, Net, Quantiser, make_net  # noqa: E402
from support.session import run  # noqa: E402
from trtconv.core.errors import BuildFailed  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.runtimes.tensorrt.readback.execute import Run  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "quantizers.json"
TARGET = Target("rtx", (1, 7))
MISREAD = 0.005
ALLOWED, CHANGED = 0.02, 0.1
"""Of what trtconv builds: a step of a quantiser here and there, and where passes quantise weights anew."""
_CHANGING = ("move-channel-scales", "part-skip-scales", "requantize-symmetric")
_SIZES = {"batch": 2, "length": 24, "depth": 8}
_SIZE = 32
Feeds = dict[str, Any]
Row = dict[str, Any]


def feeds_of(model: onnx.ModelProto, seed: int) -> Feeds:
    """Returns inputs like those that the files were calibrated with."""
    generator = np.random.default_rng(seed)
    constants = {each.name for each in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        volume = len(tensor.shape.dim) == 5
        shape = [
            each.dim_value or _SIZES.get(each.dim_param, _SIZE // (2 if volume else 1)) for each in tensor.shape.dim
        ]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        drawn = generator.integers(0, 200, shape) if dtype.kind in "iu" else generator.standard_normal(shape)
        feeds[value.name] = np.asarray(drawn > 0 if dtype.kind == "b" else drawn).astype(dtype)
    return feeds


def error(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """Returns the root of the mean squared difference over that of what is expected, of the worst output."""
    worst = 0.0
    for name, value in expected.items():
        made = np.asarray(got[name], np.float64)
        real = np.asarray(value, np.float64)
        if made.shape != real.shape:
            return float("inf")
        size = float(np.sqrt(np.mean(real**2))) or 1.0
        worst = max(worst, float(np.sqrt(np.mean((made - real) ** 2))) / size)
    return worst


class Judge(Builder):
    """TensorRT-RTX beside ONNX Runtime."""

    def read_and_run(self, model: onnx.ModelProto, feeds: Feeds) -> tuple[str, Mapping[str, Any] | None]:
        """Returns why a model is refused, and what TensorRT's network comes to where every layer could be run."""
        network = self.parse(model)
        if network is None:
            return self.refusal(model)[:160] or "the parser refuses it", None
        ran = Run(network, feeds)
        got = ran.outputs()
        return "", None if ran.unproven else got

    def builds(self, feeds: Feeds) -> bool:
        """Whether TensorRT's builder takes the network that was parsed last."""
        return self._builds(self._kept[0], feeds)

    def raw(self, model: onnx.ModelProto, feeds: Feeds, expected: Mapping[str, Any]) -> Row:
        """Returns what TensorRT does with the file as it is."""
        why, got = self.read_and_run(model, feeds)
        if why or not self.builds(feeds):
            return {"raw": "refused", "raw_why": why or "the builder refuses it"}
        if got is None:
            return {"raw": "builds, not read"}
        off = error(got, expected)
        return {"raw": "misread" if off > MISREAD else "builds", "raw_error": off}

    def ours(self, path: Path, feeds: Feeds, expected: Mapping[str, Any]) -> Row:
        """Returns what trtconv does with it."""
        row = built(path)
        model = onnx.load(path)
        mended, done, _ = prepared(model, TARGET)
        passes = sorted({edit.pass_name for edit in done.edits})
        changes = any(each in _CHANGING for each in passes)
        row |= {"passes": passes, "exact": False}
        with contextlib.suppress(Exception):  # ONNX Runtime lacks some types
            names = [each.name for each in mended.graph.output]
            on_cpu = dict(zip(names, run(mended, feeds, prepacked=False), strict=True))
            row["exact"] = all(np.array_equal(on_cpu[name], expected[name], equal_nan=True) for name in expected)
        if row["trtconv"] != "built":
            return row
        why, got = self.read_and_run(mended, feeds)
        if got is None:
            return row | {"network": why or "not read"}
        off = error(got, expected)
        return row | {"error": off, "wrong": off > (CHANGED if changes else ALLOWED)}


def built(path: Path) -> Row:
    """Builds a file with trtconv; returns what became of it."""
    model = onnx.load(path, load_external_data=False)
    constants = {each.name for each in model.graph.initializer}
    tensors = [each.type.tensor_type for each in model.graph.input if each.name not in constants]
    free = {dim.dim_param for tensor in tensors for dim in tensor.shape.dim if dim.dim_param}
    sizes = {name: _SIZES.get(name, _SIZE) for name in free}
    dims = {name: trtconv.Range(size, size, 2 * size) for name, size in sizes.items()}
    with tempfile.TemporaryDirectory() as folder:
        request = trtconv.BuildRequest(path, Path(folder) / "net.engine", dims, target=TARGET)
        try:
            report = trtconv.build(request)
        except (trtconv.InputError, BuildFailed) as refused:
            return {"trtconv": "refused", "why": [refused.message[:160]], "codes": []}
    errors = [each for each in report.findings if each.severity is trtconv.Severity.ERROR]
    found = {"codes": sorted({each.code for each in report.findings}), "proof": _proof(report)}
    if report.exit_code:
        return found | {"trtconv": "refused", "why": [f"{each.code}: {each.message[:160]}" for each in errors]}
    return found | {"trtconv": "built"}


def _proof(report: trtconv.BuildReport) -> str:
    if report.proof is None:
        return "none"
    if report.proof.agrees and not report.proof.missing and not report.proof.unproven:
        return "proven"
    return "proven in part" if report.proof.agrees else "not proven"


def drawn(count: int, seed: int) -> Iterator[tuple[str, onnx.ModelProto, Feeds]]:
    """Yields name, model and inputs: two thirds layers, one third constants."""
    chance = random.Random(seed)
    for number in range(count):
        make = constant_net if number % 3 == 2 else layer_net
        name, model, feeds = make(chance)
        yield f"{number:03d}-{name}", model, feeds


def layer_net(chance: random.Random) -> tuple[str, onnx.ModelProto, Feeds]:
    """Returns a layer between quantisers."""
    op = chance.choice(["Conv", "ConvTranspose", "ConvTranspose", "Gemm", "MatMul"])
    rank = chance.choice([1, 2, 2, 3]) if op.startswith("Conv") else 0
    kind = chance.choice(list(POINTS))
    activation = Quantiser(kind, chance.choice(POINTS[kind]), spelling=chance.choice(SPELLINGS[:2]))
    other = chance.choice(["int8", "int8", "int8", "uint8"])
    axis = chance.choice([None, None, 0, 1])
    weight = Quantiser(other, 128 if other == "uint8" else 0, axis, spelling=chance.choice(SPELLINGS[:2]))
    net = Net(
        op=op,
        kernel=(chance.choice([2, 3]),) * rank,
        attrs=(("strides", [2] * rank),) if rank and chance.random() < 0.5 else (),
        group=chance.choice([1, 1, 2]) if rank else 1,
        channels=chance.choice([(2, 3), (4, 4), (8, 8)]),
        activation=chance.choice([activation, activation, None]),
        weight=weight,
        float_weight=chance.random() < 0.25,
        bias=chance.choice(BIASES) if op != "MatMul" else "none",
        moves=tuple(chance.sample(MOVES, chance.choice([0, 0, 1, 2]))) if rank else (),
        requantized=chance.random() < 0.4,
        opset=21 if kind.endswith("16") or chance.random() < 0.3 else chance.choice([13, 17]),
    )
    model, feeds = make_net(net)
    told = f"{op}{rank or ''}-{kind}-{other}{'' if axis is None else f'-axis{axis}'}"
    return told, model, feeds


_CONSTANTS = {
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int4": np.dtype(ml_dtypes.int4),
    "uint4": np.dtype(ml_dtypes.uint4),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
}
_CODES = {"int8": (-127, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}


def constant_net(chance: random.Random) -> tuple[str, onnx.ModelProto, Feeds]:
    """Returns a layer whose weight is a constant in any spelling; or an exponent without axes."""
    kind = chance.choice(list(_CONSTANTS))
    generator = np.random.default_rng(chance.randrange(2**31))
    op = chance.choice(["MatMul", "Conv", "ConvTranspose", "Pow"])
    shape = {"MatMul": (32, 16), "Conv": (16, 32, 3, 3), "ConvTranspose": (32, 16, 3, 3), "Pow": ()}[op]
    codes = _CODES.get(kind)
    values = generator.integers(*codes, shape) if codes else 8 * generator.standard_normal(shape)
    way = "tensor" if op == "Pow" else chance.choice(["tensor", "channels", "blocks"])
    axis = {"MatMul": 1, "Conv": 0, "ConvTranspose": 1, "Pow": 0}[op]
    block = {"MatMul": 0, "Conv": 1, "ConvTranspose": 0}.get(op, 0)
    sizes: tuple[int, ...] = {"tensor": (), "channels": shape[axis : axis + 1]}.get(way, ())
    if way == "blocks":
        sizes = tuple(size // 16 if each == block else size for each, size in enumerate(shape))
    scale = np.asarray(generator.uniform(0.005, 0.02, sizes), np.float32)
    if way == "channels" and chance.random() < 0.4:
        scale[:2] = 0
    middle = codes is not None and chance.random() < 0.5
    zero = np.full(sizes, (codes[0] + codes[1]) // 2 if middle and codes else 0).astype(_CONSTANTS[kind])
    if op == "Pow":
        values, scale = np.asarray(2 if codes else 2.0), np.asarray(1, np.float32)
        zero = np.zeros((), _CONSTANTS[kind])
    turned = op != "Pow" and way != "blocks" and codes is not None and "4" not in kind and chance.random() < 0.3
    constant = np.asarray(values).astype(_CONSTANTS[kind])
    nodes, name = [], "w"
    if turned:
        order = [1, 0, *range(2, len(shape))]
        constant = np.ascontiguousarray(constant.transpose(order))
        nodes, name = [helper.make_node("Transpose", ["w"], ["turned"], perm=order)], "turned"
    where = {} if way == "tensor" else {"axis": block if way == "blocks" else axis}
    where |= {"block_size": 16} if way == "blocks" else {}
    nodes.append(helper.make_node("DequantizeLinear", [name, "scale", "zero"], ["v"], name="dq", **where))
    nodes.append(helper.make_node(op, ["x", "v"], ["y"], name="layer"))
    held = [numpy_helper.from_array(each, n) for each, n in ((constant, "w"), (scale, "scale"), (zero, "zero"))]
    size = (4, 32) if op in ("MatMul", "Pow") else (1, 32, 8, 8)
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, size)]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = generator.standard_normal(size).astype(np.float32)
    return f"{op}-{kind}-{way}{'-turned' if turned else ''}{'-zero' if middle else ''}", model, {"x": x}


def reference(model: onnx.ModelProto, feeds: Feeds) -> Mapping[str, Any]:
    """Returns what a model means: by ONNX Runtime, by ONNX's own evaluator where that lacks a type."""
    names = [each.name for each in model.graph.output]
    try:
        found = run(model, feeds, prepacked=False)
    except Exception:  # ONNX Runtime lacks some types
        from onnx.reference import ReferenceEvaluator

        found = ReferenceEvaluator(model).run(None, feeds)
    return dict(zip(names, found, strict=True))


def judged(judge: Judge, path: Path, feeds: Feeds | None, seed: int) -> Row:
    """Returns the row of a file."""
    model = onnx.load(path)
    feeds = feeds_of(model, seed) if feeds is None else feeds
    try:
        expected = reference(model, feeds)
    except Exception as lacking:  # operators of a tool's own
        return {"reference": type(lacking).__name__, **judge.raw(model, feeds, {}), **built(path)}
    return {**judge.raw(model, feeds, expected), **judge.ours(path, feeds, expected)}


def table(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Returns tool to counts."""
    found: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, row in rows.items():
        tool = name.partition("__")[2].rpartition("-")[0] or name.partition("-")[2].partition("-")[0]
        for each in (tool, "all"):
            counts = found[each]
            counts["files"] += 1
            counts["raw builds"] += row["raw"] != "refused"
            counts["raw misread"] += row["raw"] == "misread"
            counts["trtconv builds"] += row["trtconv"] == "built"
            counts["proven"] += row.get("proof") == "proven" and row["trtconv"] == "built"
            counts["bit exact"] += bool(row.get("exact")) and row["trtconv"] == "built"
            counts["wrong"] += bool(row.get("wrong"))
    return {tool: dict(counts) for tool, counts in sorted(found.items())}


def main() -> int:
    """Prints a line a file and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--missing", action="store_true", help="only what is not in the output file")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    document = json.loads(args.output.read_text()) if args.output.exists() else {}
    part = "drawn" if args.drawn else "files"
    rows: dict[str, Row] = document.get(part, {}).get("rows", {}) if args.missing else {}
    judge = Judge()
    with tempfile.TemporaryDirectory() as folder, in_process():
        found: Iterator[tuple[Path, Feeds | None]]
        if args.drawn:
            found = ((_saved(Path(folder), name, model), feeds) for name, model, feeds in drawn(args.drawn, args.seed))
        else:
            found = zip(sorted(args.folder.glob("*.onnx")), itertools.repeat(None))
        for path, feeds in found:
            if args.only in path.stem and path.stem not in rows:
                rows[path.stem] = row = judged(judge, path, feeds, args.seed)
                sys.stdout.write(f"{path.stem}: {json.dumps(row)}\n")
                sys.stdout.flush()
                document[part] = {"seed": args.seed, "rtx": judge.version, "table": table(rows), "rows": rows}
                args.output.write_text(json.dumps(document, indent=1) + "\n")
    for tool, counts in table(rows).items():
        sys.stdout.write(f"{tool}: {counts}\n")
    return 1 if any(row.get("wrong") for row in rows.values()) else 0


def _saved(folder: Path, name: str, model: onnx.ModelProto) -> Path:
    onnx.save(model, folder / f"{name}.onnx")
    return folder / f"{name}.onnx"


if __name__ == "__main__":
    sys.exit(main())
