"""How `trtconv check` grows: a table of exponents, by doubling what a model has many of.

    python bench/exponents.py [NAME ...] [--rounds 3] [--proof] [-o bench/results/exponents.json]

Each row doubles one thing twice, with all else the same, and takes the least processor time of several rounds of
`check` without a TensorRT (its parser would be measured too): load, rules, passes, sizes, and the report as JSON and
text.
The exponent is the slope between the two larger ones, log2 of their ratio: 1 is linear. Ends with 1 where one is above
1.25. --proof uses TensorRT-RTX and has all processes counted, parser, builder and the default proof with them.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
from measuring import ROOT
from onnx import TensorProto, helper, numpy_helper

import trtconv
from trtconv.cli.formats.text import check_text
from trtconv.cli.process.boundary import COLLECT_EVERY
from trtconv.core.dims import Range
from trtconv.core.documents.proof import Lack
from trtconv.core.target import Target

RESULTS = ROOT / "bench" / "results" / "exponents.json"
MOST = 1.25
Row = dict[str, Any]
Shape = Sequence[int | str]


def model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    weights: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    """Returns a model of float tensors."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "bench", given, made, list(weights))
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def of_inputs(count: int) -> onnx.ModelProto:
    """As many inputs and outputs, all of one dynamic size."""
    names = [str(number) for number in range(count)]
    nodes = [helper.make_node("Relu", [f"x{name}"], [f"y{name}"], f"relu{name}") for name in names]
    return model(nodes, {f"x{name}": (1, "n0") for name in names}, [f"y{name}" for name in names])


def of_dims(count: int) -> onnx.ModelProto:
    """One input for each of as many dynamic dimensions, all of which meet in a Concat."""
    names = [str(number) for number in range(count)]
    nodes = [helper.make_node("Concat", [f"x{name}" for name in names], ["y"], "join", axis=1)]
    return model(nodes, {f"x{name}": (1, f"n{name}") for name in names}, ["y"])


def of_initializers(count: int) -> onnx.ModelProto:
    """As many constants of 16 elements, each of which is added once."""
    weights = [numpy_helper.from_array(np.full(16, 0.5, np.float32), f"w{number}") for number in range(count)]
    names = ["x", *(f"t{number}" for number in range(count))]
    nodes = [helper.make_node("Add", [names[n], f"w{n}"], [names[n + 1]], f"add{n}") for n in range(count)]
    return model(nodes, {"x": (1, 16)}, [names[-1]], weights)


def of_depth(count: int) -> onnx.ModelProto:
    """Conditions in conditions, as deep as told, a hundred nodes in each; protobuf takes no more than 25 levels."""
    name = f"t{count}"
    body = [helper.make_node("Relu", ["x"], [name], f"relu{count}")]
    for level in reversed(range(count)):
        chain = [f"m{level}", *(f"a{level}_{number}" for number in range(97))]
        more = [helper.make_node("Abs", [a], [b], f"abs_{b}") for a, b in itertools.pairwise(chain)]
        branches = []
        for side in ("then", "else"):
            inner = body if side == "then" else [helper.make_node("Neg", ["x"], [f"neg{level}"], f"n{level}")]
            last = name if side == "then" else f"neg{level}"
            result = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 16])
            branches.append(helper.make_graph(inner, side, [], [result]))
        name = f"t{level}"
        branch = helper.make_node(
            "If", [f"c{level}"], [name], f"if{level}", then_branch=branches[0], else_branch=branches[1]
        )
        sums = [helper.make_node("ReduceMax", ["x"], [f"m{level}"], f"max{level}", keepdims=0)]
        sums += more
        sums.append(helper.make_node("Greater", [chain[-1], "zero"], [f"c{level}"], f"greater{level}"))
        body = [*sums, branch]
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    return model(body, {"x": (1, 16)}, [name], [zero])


def of_profiles(_: int) -> onnx.ModelProto:
    """Convolutions at dynamic sizes, whatever the number of profiles."""
    random = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for number in range(50):
        weights.append(numpy_helper.from_array(random.random((2, 2, 3, 3), np.float32), f"w{number}"))
        nodes.append(helper.make_node("Conv", [name, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1] * 4))
        name = f"c{number}"
    return model(nodes, {"x": (1, 2, "height", "width")}, [name], weights)


def of_nodes(count: int) -> onnx.ModelProto:
    """A chain, of whose nodes a hundredth are transposed convolutions to be rewritten."""
    return networks.chain(count // 100, 98)


def of_deconvolutions(count: int) -> onnx.ModelProto:
    """A chain, of whose nodes half are rewritten."""
    return networks.chain(count // 2)


ROWS: Mapping[str, tuple[Callable[[int], onnx.ModelProto], tuple[int, int, int]]] = {
    "nodes": (of_nodes, (5_000, 10_000, 20_000)),
    "deconvolutions": (of_deconvolutions, (1_000, 2_000, 4_000)),
    "inputs": (of_inputs, (500, 1_000, 2_000)),
    "dimensions": (of_dims, (100, 200, 400)),
    "initializers": (of_initializers, (5_000, 10_000, 20_000)),
    "depth": (of_depth, (6, 12, 24)),
    "profiles": (of_profiles, (16, 32, 64)),
    "models": (lambda _: of_nodes(300), (8, 16, 32)),
}


def requests(name: str, count: int, path: Path, proof: bool) -> list[trtconv.CheckRequest]:
    """Returns what is asked for a row."""
    target = Target("rtx") if proof else Target("tensorrt", (8, 6))
    given: dict[str, Any] = {"target": target, "prove": "quick" if proof else "none", "fail_on": None}
    if name in ("inputs", "dimensions"):
        given["dims"] = {f"n{number}": Range(1, 4, 16) for number in range(count if name == "dimensions" else 1)}
    if name == "profiles":
        sizes = [Range(8 * n, 8 * n, 8 * n) for n in range(1, count + 1)]
        given["profiles"] = tuple({"height": size, "width": size} for size in sizes)
    return [trtconv.CheckRequest(path, **given)] * (count if name == "models" else 1)


def seconds(asked: Sequence[trtconv.CheckRequest]) -> float:
    """Returns the processor seconds of checks, those of their processes with them."""
    gc.collect()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.process_time()
    for request in asked:
        report = trtconv.check(request)
        late = [] if report.proof is None else [each for each in report.proof.missing if each.what is Lack.TIME]
        if late:
            # What there was no time for would look like what takes none.
            raise SystemExit(f"{request.model}: not all is proven: {late[0]}")
        json.dumps(report.to_json())
        check_text(report)
    spent, after = time.process_time() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent + after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime


def measure(name: str, rounds: int, proof: bool) -> Row:
    """Returns how one row grows."""
    make, counts = ROWS[name]
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            path = Path(folder) / f"{count}.onnx"
            onnx.save(make(count), path)
            asked = requests(name, count, path, proof)
            spent.append(min(seconds(asked) for _ in range(rounds)))
    exponents = [math.log2(after / before) for before, after in itertools.pairwise(spent)]
    return {
        "name": name,
        "counts": list(counts),
        "seconds": [round(each, 3) for each in spent],
        "exponents": [round(each, 2) for each in exponents],
        "good": exponents[-1] <= MOST,
    }


def main() -> int:
    """Measures the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--proof", action="store_true", help="with TensorRT-RTX and the default proof")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    # As the command does.
    gc.set_threshold(COLLECT_EVERY)
    rows = []
    for name in given.names or ROWS:
        rows.append(measure(name, given.rounds, given.proof))
        row = rows[-1]
        times = "  ".join(f"{count}: {spent:.2f} s" for count, spent in zip(row["counts"], row["seconds"], strict=True))
        print(f"{name:<16} {times}   exponents {row['exponents']}  {'ok' if row['good'] else 'TOO MUCH'}", flush=True)
    output = given.output or (RESULTS if not given.names and not given.proof else None)
    if output is not None:
        output.write_text(json.dumps({"rounds": given.rounds, "proof": given.proof, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
