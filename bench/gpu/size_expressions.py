"""Sizes that a network computes of its inputs' sizes, in every use: tests for bench/gpu/node_suite.py --cases.

    python bench/gpu/size_expressions.py FOLDER
    python bench/gpu/node_suite.py --cases FOLDER --minutes 9 --out OUT

Each expression of a height and a width (a remainder, a quotient of a negative number, a rounding, a minimum) says how
far something is padded, cut, repeated, resized or counted. The engine ranges over all heights and widths, and is run at
three: what is computed of sizes is computed on the host, by other code than what layers compute. Sizes that ONNX
Runtime refuses are left out. A file is a pickle of the model's bytes, its inputs, its outputs, and the ranges.
"""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import parser

RANGES = {"height": (24, 48, 96), "width": (24, 48, 96)}
SIZES = ((24, 24), (31, 44), (96, 25))
_VIA_FLOAT = "a = Cast <to = 1> ({of})  b = {op} (a, {by})  c = {round} (b)  e = Cast <to = 7> (c)"
EXPRESSIONS = {
    "half": "e = Div (h, k2)",
    "even": "a = Div (h, k2)  e = Mul (a, k2)",
    "odd half": "a = Div (h, k2)  e = Sub (h, a)",
    "distance": "a = Sub (h, w)  b = Abs (a)  e = Add (b, k1)",
    "half distance": "a = Sub (h, w)  b = Div (a, k2)  c = Abs (b)  e = Add (c, k1)",
    "excess": "a = Sub (h, w)  e = Max (a, k1)",
    "smaller": "e = Min (h, w)",
    "larger": "e = Max (h, w)",
    "margin": "a = Sub (h, k10)  b = Div (a, k2)  e = Add (b, k1)",
    "remainder": "a = Mod (h, k8)  e = Add (a, k1)",
    "remainder as C": "a = Mod <fmod = 1> (h, k8)  e = Add (a, k1)",
    "to a multiple": "n = Neg (h)  a = Mod (n, k8)  e = Add (a, k1)",
    "to a multiple of 64": "n = Sub (k64, h)  a = Mod (n, k8)  e = Add (a, k1)",
    "remainder of a distance": "n = Sub (w, h)  a = Mod (n, k8)  e = Add (a, k1)",
    "remainder of a distance as C": "n = Sub (w, h)  a = Mod <fmod = 1> (n, k8)  e = Add (a, k10)",
    "quotient below 0": "n = Neg (h)  a = Div (n, k8)  b = Neg (a)  e = Add (b, k1)",
    "quotient of a distance": "n = Sub (w, h)  a = Div (n, k8)  e = Add (a, k10)",
    "quotient of two": "a = Mul (h, k8)  b = Div (a, w)  e = Add (b, k1)",
    "product": "a = Mul (h, w)  b = Div (a, k64)  e = Add (b, k1)",
    "of two": "a = Greater (h, w)  e = Where (a, h, w)",
    "sum": "e = Add (h, w)",
    "ceiling": _VIA_FLOAT.format(of="h", op="Div", by="f8", round="Ceil"),
    "floor below 0": _VIA_FLOAT.format(of="n", op="Div", by="f8", round="Floor").replace("e =", "d =")
    + "  g = Neg (d)  e = Add (g, k1)",
    "scaled": _VIA_FLOAT.format(of="h", op="Mul", by="f15", round="Floor"),
    "rounded": _VIA_FLOAT.format(of="h", op="Mul", by="f15", round="Round"),
    "ratio": "a = Cast <to = 1> (h)  d = Cast <to = 1> (w)  b = Div (a, d)  g = Mul (b, f8)  c = Ceil (g)  "
    "e = Cast <to = 7> (c)",
    "root": "a = Cast <to = 1> (h)  b = Sqrt (a)  c = Floor (b)  e = Cast <to = 7> (c)",
    "power": "a = Pow (h, k2)  b = Div (a, k64)  e = Add (b, k1)",
    "sign": "n = Sub (w, h)  a = Sign (n)  e = Add (a, k2)",
}
EXPRESSIONS["floor below 0"] = "n = Neg (h)  " + EXPRESSIONS["floor below 0"]
_SIZES_OF = "z = Concat <axis = 0> (ends, e, w)  "
USES = {
    "resize": _SIZES_OF + 'v = Relu (x)  y = Resize <mode = "linear"> (v, "", "", z)',
    "pad": "p = Concat <axis = 0> (none, e, k0)  v = Relu (x)  y = Pad (v, p)",
    "pad before": "p = Concat <axis = 0> (k0, k0, e, k0, none4)  v = Relu (x)  y = Pad (v, p)",
    "cut": "v = Relu (x)  y = Slice (v, k0, e, k2)",
    "cut from": "v = Relu (x)  q = Concat <axis = 2> (v, v, v, v)  y = Slice (q, e, far, k2)",
    "expand": _SIZES_OF + "m = ReduceMean <axes = [2]> (x)  y = Expand (m, z)",
    "fill": _SIZES_OF + "m = ReduceMax <axes = [2, 3]> (x)  q = ConstantOfShape (z)  y = Add (q, m)",
    "count": "s0 = Squeeze (e, k0)  r = Range (zero, s0, one)  f = Cast <to = 1> (r)  "
    "m = ReduceMax <keepdims = 0> (x)  y = Mul (f, m)",
    "fold": _SIZES_OF
    + "m = ReduceMax <axes = [2, 3]> (x)  q = Expand (m, z)  r = Mul (e, w)  t = Concat <axis = 0> (ends, r)  "
    "y = Reshape (q, t)",
    "pad and resize": "p = Concat <axis = 0> (none, e, k0)  q = Pad (x, p)  v = AveragePool <kernel_shape = [2, 2], "
    "strides = [2, 2]> (q)  t = Shape (q)  u = Slice (t, k2, k4)  z = Concat <axis = 0> (ends, u)  "
    'r = Resize <mode = "linear"> (v, "", "", z)  y = Add (r, q)',
    "value": "c2 = Cast <to = 1> (e)  m = ReduceMax <keepdims = 0> (x)  y = Mul (c2, m)",
}


def model_of(expression: str, use: str) -> onnx.ModelProto:
    """Returns the model of an expression in a use."""
    numbers = ", ".join(f"int64[1] k{n} = {{{n}}}" for n in (0, 1, 2, 4, 8, 10, 64))
    rank = {"count": "p0", "value": "p0", "fold": "p0, p1, p2"}.get(use, "p0, p1, p2, p3")
    return parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1, 3, height, width] x) => (float[{rank}] y)
        <{numbers}, int64[1] k3 = {{3}}, int64[1] far = {{100000}}, int64[2] ends = {{1, 3}}, int64 zero = {{0}},
         int64 one = {{1}}, int64[6] none = {{0, 0, 0, 0, 0, 0}}, int64[4] none4 = {{0, 0, 0, 0}},
         float f8 = {{8}}, float f15 = {{1.5}}>
        {{ s = Shape (x)  h = Gather (s, k2)  w = Gather (s, k3)  {EXPRESSIONS[expression]}  {USES[use]} }}""")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the tests; returns the exit status."""
    (folder,) = map(Path, sys.argv[1:] if arguments is None else arguments)
    folder.mkdir(parents=True, exist_ok=True)
    # Each model has constants that others need.
    onnxruntime.set_default_logger_severity(3)
    random = np.random.default_rng(0)
    for expression, use in itertools.product(EXPRESSIONS, USES):
        data = model_of(expression, use).SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        for height, width in SIZES:
            inputs = [random.standard_normal((1, 3, height, width)).astype(np.float32)]
            try:
                outputs = session.run(None, {"x": inputs[0]})
            except Exception as error:
                print(f"{expression}, {use}, {height}x{width}: {str(error).splitlines()[0]}")
                continue
            name = f"{expression}, {use}, {height}x{width}".replace(" ", "_").replace(",", "")
            (folder / f"{name}.pickle").write_bytes(pickle.dumps((data, inputs, outputs, RANGES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
