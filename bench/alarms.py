"""Does the default proof raise a false alarm? Over networks that TensorRT-RTX reads right once the passes ran.

    python bench/alarms.py awkward [--only NAME]
    python bench/alarms.py generated [--count 300] [--seed 0]
    python bench/alarms.py nodes [--part 1/2]

awkward: sixty small networks of which the numbers are: ties, zeros, infinities and no numbers, overflow of every type,
constants that are normalised, sums that cancel, indices at both ends, loops that never run, random numbers, divisors
that may be zero. generated: of a few blocks that people deploy (proof_networks.py). nodes: ONNX's own node tests that
coverage.py found to be right (bench/results/coverage-rtx.json). Each goes through `trtconv.check` with its default
proof: a TC402 is an alarm. What is refused by a rule, or not shown, is told as that. Writes
bench/results/alarms-KIND-rtx.json. Exit status: 0 no alarm; 1 one.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
from onnx import parser

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from in_process import in_process  # noqa: E402

import trtconv  # noqa: E402

RESULTS = ROOT / "bench" / "results"
TRUE = {
    "test_pow_types_int64_float32": "TensorRT computes powers of integers in float32: other integers from 2^24 on",
}
"""Networks that TensorRT does compute otherwise at values that the node's own test does not have, and why."""
AWKWARD = """
instance-norm-of-ones (float[1, 8, 16, 16] x) => float: o = Constant <value = float[8] {1,1,1,1,1,1,1,1}> ()
    z = Constant <value = float {0.0}> () m = Mul (x, z) y = InstanceNormalization (m, o, o)
instance-norm-far-from-zero (float[1, 8, 16, 16] x) => float: o = Constant <value = float[8] {1,1,1,1,1,1,1,1}> ()
    z = Constant <value = float {1000000.0}> () m = Add (x, z) y = InstanceNormalization (m, o, o)
layer-norm-far-from-zero: z = Constant <value = float {10000.0}> () m = Add (x, z) a = ReduceMean <keepdims = 1> (m)
    d = Sub (m, a) q = Mul (d, d) v = ReduceMean <keepdims = 1> (q) e = Constant <value = float {0.00001}> ()
    w = Add (v, e) s = Sqrt (w) y = Div (d, s)
variance-of-a-constant: z = Constant <value = float {0.0}> () c = Mul (x, z) a = ReduceMean <keepdims = 1> (c)
    d = Sub (c, a) q = Mul (d, d) v = ReduceMean <keepdims = 1> (q) s = Sqrt (v) y = Div (d, s)
log-softmax-of-large: z = Constant <value = float {100.0}> () m = Mul (x, z) y = LogSoftmax (m)
log-of-softmax: s = Softmax (x) y = Log (s)
softmax-of-huge: z = Constant <value = float {1000.0}> () m = Mul (x, z) y = Softmax (m)
softmax-of-infinities: z = Constant <value = float {0.0}> () i = Constant <value = float[1] {-1e38}> () c = Less (x, z)
    m = Where (c, i, x) y = Softmax (m)
log-sum-exp: z = Constant <value = float {50.0}> () m = Mul (x, z) y = ReduceLogSumExp (m)
exp-overflows: z = Constant <value = float {40.0}> () m = Mul (x, z) y = Exp (m)
log-of-negatives: y = Log (x)
root-of-negatives: y = Sqrt (x)
reciprocal-of-zero: r = Relu (x) y = Reciprocal (r)
zero-over-zero: r = Relu (x) y = Div (r, r)
no-number-counted: l = Log (x) n = IsNaN (l) y = Cast <to = 1> (n)
infinities-counted: r = Relu (x) i = Reciprocal (r) n = IsInf (i) y = Cast <to = 1> (n)
sign-of-zero: r = Relu (x) y = Sign (r)
round-of-halves: z = Constant <value = float {2.0}> () m = Mul (x, z) r = Round (m) d = Div (r, z) y = Round (d)
floor-of-whole-numbers: r = Round (x) f = Floor (r) c = Ceil (r) y = Sub (f, c)
zero-to-the-zero: r = Relu (x) y = Pow (r, r)
negative-to-whole-powers: p = Constant <value = float {3.0}> () y = Pow (x, p)
root-as-power: p = Constant <value = float {0.5}> () a = Abs (x) y = Pow (a, p)
cancelled-sum: z = Constant <value = float {1000000.0}> () m = Add (x, z) s = ReduceSum (m) t = ReduceSum (x)
    y = Sub (s, t)
sum-that-is-zero: n = Neg (x) c = Concat <axis = 1> (x, n) y = ReduceSum (c)
mean-of-nothing: z = Constant <value = int64[1] {0}> () s = Slice (x, z, z, z) y = ReduceSum (s)
l2-norm-of-zero: r = Relu (x) z = Constant <value = float {0.0}> () m = Mul (r, z) y = LpNormalization (m)
l1-norm: y = LpNormalization <p = 1, axis = 1> (x)
int32-sum-overflows (int32[4, 32] x) => int32: z = Constant <value = int32 {2000000000}> () m = Mul (x, z)
    y = ReduceSum (m)
int64-product-overflows (int64[4, 8] x) => int64: z = Constant <value = int64 {4611686018427387904}> () y = Mul (x, z)
integer-division (int32[4, 8] x) => int32: d = Constant <value = int32 {-3}> () y = Div (x, d)
integer-divided-by-input (int32[4, 8] x, int32[4, 8] d) => int32: y = Div (x, d)
modulo-by-input (int64[4, 8] x, int64[4, 8] d) => int64: y = Mod (x, d)
modulo-of-negatives (int64[4, 8] x) => int64: d = Constant <value = int64 {-3}> () y = Mod (x, d)
float-modulo: d = Constant <value = float {0.5}> () y = Mod <fmod = 1> (x, d)
cast-beyond-int32 (float[4, 32] x) => int32: z = Constant <value = float {100000.0}> () m = Mul (x, z)
    y = Cast <to = 6> (m)
cast-of-halves (float[4, 32] x) => int32: z = Constant <value = float {2.5}> () m = Mul (x, z) y = Cast <to = 6> (m)
cast-to-bool: r = Relu (x) b = Cast <to = 9> (r) y = Cast <to = 1> (b)
half-overflows: h = Cast <to = 10> (x) f = Constant <value = float {30000.0}> () z = Cast <to = 10> (f) m = Mul (h, z)
    y = Cast <to = 1> (m)
half-underflows: h = Cast <to = 10> (x) f = Constant <value = float {0.0001}> () z = Cast <to = 10> (f) m = Mul (h, z)
    n = Mul (m, z) y = Cast <to = 1> (n)
quantised-at-its-ends: s = Constant <value = float {0.01}> () z = Constant <value = int8 {0}> ()
    q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)
quantised-on-ties: t = Constant <value = float {2.0}> () m = Mul (x, t) r = Round (m) d = Div (r, t)
    s = Constant <value = float {1.0}> () z = Constant <value = int8 {0}> () q = QuantizeLinear (d, s, z)
    y = DequantizeLinear (q, s, z)
arg-max-of-ties (float[4, 32] x) => int64: r = Round (x) y = ArgMax <axis = 1> (r)
arg-max-last-of-ties (float[4, 32] x) => int64: r = Round (x) y = ArgMax <axis = 1, select_last_index = 1> (r)
top-k-of-ties (float[4, 32] x) => int64: r = Round (x) k = Constant <value = int64[1] {5}> () v, y = TopK (r, k)
max-of-equal (float[1, 8, 16, 16] x) => float: r = Relu (x) y = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r)
pool-of-padding (float[1, 8, 16, 16] x) => float:
    y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], count_include_pad = 1> (x)
clip-upside-down: a = Constant <value = float {1.0}> () b = Constant <value = float {-1.0}> () y = Clip (x, a, b)
hard-limits: h = HardSigmoid (x) s = HardSwish (x) y = Add (h, s)
threshold-at-zero: r = Round (x) y = ThresholdedRelu <alpha = 1.0> (r)
gather-from-both-ends: i = Constant <value = int64[4] {-32, -1, 0, 31}> () y = Gather <axis = 1> (x, i)
gather-of-arg-max: i = ArgMax <axis = 1> (x) y = GatherElements <axis = 1> (x, i)
one-hot-of-arg-max: i = ArgMax <axis = 1, keepdims = 0> (x) d = Constant <value = int64 {32}> ()
    v = Constant <value = float[2] {0.0, 1.0}> () y = OneHot (i, d, v)
cumulative-backwards: a = Constant <value = int64 {1}> () y = CumSum <reverse = 1, exclusive = 1> (x, a)
loop-that-never-runs: n = Constant <value = int64 {0}> () c = Constant <value = bool {1}> ()
    y = Loop (n, c, x) <body = b (int64 i, bool p, float[4, 32] a) => (bool q, float[4, 32] r) { q = Identity (p)
    r = Add (a, a) }>
loop-of-few: n = Constant <value = int64 {3}> () c = Constant <value = bool {1}> ()
    y = Loop (n, c, x) <body = b (int64 i, bool p, float[4, 32] a) => (bool q, float[4, 32] r) { q = Identity (p)
    h = Tanh (a) r = Add (h, a) }>
branch-on-a-value: s = ReduceSum <keepdims = 0> (x) z = Constant <value = float {0.0}> () c = Greater (s, z)
    y = If (c) <then_branch = t () => (float[4, 32] a) { a = Neg (x) }, else_branch = e () => (float[4, 32] b) {
    b = Identity (x) }>
resize-to-odd (float[1, 8, 16, 16] x) => float: s = Constant <value = int64[4] {1, 8, 23, 37}> () n = Identity (x)
    y = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (n, , , s)
nearest-on-ties (float[1, 8, 16, 16] x) => float: s = Constant <value = int64[4] {1, 8, 24, 40}> ()
    y = Resize <mode = "nearest", nearest_mode = "floor", coordinate_transformation_mode = "asymmetric"> (x, , , s)
sampled-beyond-the-border (float[1, 8, 16, 16] x, float[1, 9, 9, 2] g) => float:
    y = GridSample <mode = "linear", padding_mode = "border"> (x, g)
random-added: r = RandomNormalLike (x) z = Constant <value = float {0.0}> () m = Mul (r, z) y = Add (x, m)
"""
"""Name, inputs and type of the output y (rows of floats where none are told), and nodes of each."""
ROWS = "float[4, 32] x"
_ENTRY = re.compile(r"^(\S+?)(?: \((.*)\) => (\S+))?:\s+((?:.*\n)(?: .*\n)*)", re.MULTILINE)


def awkward() -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Yields the awkward networks: name, and inputs, type and nodes."""
    for name, inputs, dtype, nodes in _ENTRY.findall(AWKWARD):
        yield name, (inputs or ROWS, dtype or "float", nodes)


def model_of(inputs: str, dtype: str, nodes: str) -> onnx.ModelProto:
    """Returns a network of its text; ONNX infers the shape of its output."""
    text = f'<ir_version: 9, opset_import: ["" : 20]> awkward ({inputs}) => ({dtype}[n] y) {{ {nodes} }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


def told(path: Path) -> tuple[str, str]:
    """Checks a network; returns whether it is proven, in part, refused or an alarm, and why."""
    report = trtconv.check(trtconv.CheckRequest(path))
    worst = [each for each in report.findings if each.severity.value == "error"]
    alarm = next((each for each in worst if each.code == "TC402"), None)
    if alarm is not None:
        return "alarm", alarm.message
    if worst:
        return "refused", f"{worst[0].code}: {worst[0].message}"
    if report.proof is None or report.proof.agrees is None:
        return "not shown", "" if report.proof is None else report.proof.why
    return ("in part", report.proof.missing[0].reason) if report.proof.missing else ("proven", "")


def models(options: argparse.Namespace) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields the networks of a kind, by name."""
    if options.kind == "awkward":
        yield from ((name, model_of(*how)) for name, how in awkward())
    elif options.kind == "generated":
        from proof_networks import network

        yield from ((f"seed {seed}", network(seed)) for seed in range(options.seed, options.seed + options.count))
    else:
        from proof_suite import cases

        rows = json.loads((RESULTS / "coverage-rtx.json").read_text(encoding="utf-8"))["rows"]
        left_out = {row["test"] for row in rows if row["variant"] == "as is"}
        yield from ((name, model) for name, model, _, _ in cases() if name not in left_out)


def main() -> int:
    """Checks all of them."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("kind", choices=("awkward", "generated", "nodes"))
    arguments.add_argument("--only", default="", metavar="NAME", help="networks with NAME in their name")
    arguments.add_argument("--part", default="1/1", metavar="I/N", help="every Nth, from the Ith")
    arguments.add_argument("--count", type=int, default=300)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--output", type=Path)
    options = arguments.parse_args()
    first, step = map(int, options.part.split("/"))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, in_process():
        for name, model in itertools.islice(models(options), first - 1, None, step):
            if options.only not in name:
                continue
            path = Path(folder) / "m.onnx"
            onnx.save_model(model, path)
            verdict, why = told(path)
            if verdict == "alarm" and name in TRUE:
                verdict, why = "true alarm", TRUE[name]
            rows.append({"network": name, "told": verdict, "why": why})
            if verdict != "proven" or options.kind == "awkward":
                print(f"{name:<28} {verdict:<10} {why[:150]}", flush=True)
    counts = collections.Counter(row["told"] for row in rows)
    print(dict(counts))
    kept = [row for row in rows if row["told"] != "proven"]
    output = options.output or RESULTS / f"alarms-{options.kind}-rtx.json"
    output.write_text(json.dumps({"counts": counts, "rows": kept}, indent=1) + "\n", encoding="utf-8")
    return int(counts["alarm"] > 0)


if __name__ == "__main__":
    sys.exit(main())
