"""The networks that `bench/mutants.py` changes: small ones, of all kinds of layer that TensorRT's parser makes."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import networks  # noqa: E402
import proof_networks  # noqa: E402

from trtconv.core.frozen import frozen  # noqa: E402

_RANDOM_NETWORKS = 10
_TEXTS = """
pools 17 (float[n,4,h,w] x) => (float[n,4,p,q] a, float[n,4,r,s] b, float[n,4,t,u] c, float[n,4,1,1] d) {
    r0 = Conv <pads = [1,1,1,1]> (x, w_4_4_3_3, b_4)
    a = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1], count_include_pad = 1> (r0)
    b = MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (r0)
    c = AveragePool <kernel_shape = [2,3], strides = [1,2], pads = [0,1,0,1]> (r0)
    d = GlobalMaxPool (c) }

activations 17 (float[n,6] x) => (float[n,6] a, float[n,6] b, float[n,6] c, float[n,6] d, float[n,6] e, float[n,6] f,
    float[n,6] g, float[n,6] h, float[n,6] i, float[n,6] j) {
    y = Gemm (x, w_6_6, b_6)
    a = Relu (y)  b = LeakyRelu <alpha = 0.2> (y)  c = Sigmoid (y)  d = Tanh (y)  e = Elu <alpha = 0.7> (y)
    f = Selu (y)  g = Softplus (y)  h = Softsign (y)  i = HardSigmoid <alpha = 0.3> (y)
    j = ThresholdedRelu <alpha = 0.4> (y) }

limits 17 (float[n,6,h] x) => (float[n,6,h] a, float[n,6,h] b, float[n,6,h] c) <float six = {6}, float zero = {0},
    float low = {-0.5}, float high = {0.75}> {
    y = Conv <pads = [1,1]> (x, w_6_6_3, b_6)
    a = Clip (y, zero, six)  b = Clip (y, low, high)  s = PRelu (y, p_6_1)  c = Mul (s, b) }

unary 17 (float[n,5] x) => (float[n,5] a, float[n,5] b, float[n,5] c, float[n,5] d, float[n,5] e, float[n,5] f,
    float[n,5] g, float[n,5] h) {
    m = Abs (x)  p = Add (m, p_5)
    a = Exp (x)  b = Log (p)  c = Sqrt (p)  d = Reciprocal (p)  e = Sin (x)  f0 = Floor (x)  f = Neg (f0)
    g0 = Ceil (x)  g1 = Erf (x)  g = Add (g0, g1)  h0 = Sign (x)  h1 = Round (x)  h = Sub (h0, h1) }

reduce 17 (float[n,3,h,w] x) => (float[n,3,1,w] a, float[n,h,w] b, float[n,3,h,1] c, float[n,3,1,1] d,
    float[n,1,h,w] e, float[n,3] f) <int64[1] last = {3}> {
    a = ReduceMean <axes = [2]> (x)  b = ReduceMax <axes = [1], keepdims = 0> (x)  c = ReduceSum (x, last)
    d = ReduceL2 <axes = [2, 3]> (x)  e = ReduceMin <axes = [1]> (x)  f0 = ReduceProd <axes = [3]> (x)
    f = ReduceL1 <axes = [2, 3], keepdims = 0> (f0) }

products 17 (float[n,4,5] x, float[n,5,4] z) => (float[n,4,4] a, float[n,4,6] b, float[n,5] c, float[n,4,4] d) {
    a = MatMul (x, z)  b = MatMul (x, w_5_6)  m = ReduceMean <axes = [1], keepdims = 0> (x)
    c = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (m, w_5_5, b_5)
    t = Transpose <perm = [0, 2, 1]> (z)  d = Einsum <equation = "bij,bkj->bik"> (x, t) }

gathers 17 (int64[n,t] ids, float[n,4,5] x) => (float[n,t,6] a, float[n,3,5] b, float[n,4,2] c, float[n,2] d)
    <int64[3] places = {0, 3, 1}, int64[1,4,2] spots = {0, 4, 1, 3, 2, 2, 3, 0}, int64[1,1,1] one = {1},
    int64[2,2] corner = {0, 1, 3, 4}> {
    a = Gather (w_9_6, ids)  b = Gather <axis = 1> (x, places)
    n0 = Shape <end = 1> (x)  rest = Constant <value_ints = [4, 2]> ()  shape = Concat <axis = 0> (n0, rest)
    e = Expand (spots, shape)  c = GatherElements <axis = 2> (x, e)
    r = ReduceSum <keepdims = 0> (x, zero_axis)  d0 = GatherND (r, corner)  d1 = Unsqueeze (d0, zero_axis)
    f = ReduceMean <axes = [1], keepdims = 0> (x)  two = Constant <value_ints = [0, 4]> ()
    g = Gather <axis = 1> (f, two)  d = Add (g, d1) }

scatters 17 (float[4,5] x) => (float[4,5] a, float[4,5] b)
    <int64[2,1] rows = {1, 3}, int64[2,5] at = {0, 1, 2, 3, 0, 3, 2, 1, 0, 1}> {
    a = ScatterND (x, rows, w_2_5)  n = Neg (x)  b = ScatterElements <axis = 0> (n, at, w_2_5a) }

resizes 18 (float[n,3,h,w] x) => (float[n,3,p,q] a, float[n,3,r,s] b, float[n,3,t,u] c, float[n,3,v,z] d)
    <float[4] two = {1, 1, 2, 2}, float[4] some = {1, 1, 1.5, 2.5}> {
    y = Conv (x, w_3_3_1_1, b_3)
    a = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (y, "", two)
    b = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
    (y, "", two)
    c = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (y, "", some)
    d = Resize <mode = "cubic", coordinate_transformation_mode = "half_pixel", cubic_coeff_a = -0.5> (y, "", two)
    }

sampled 16 (float[n,3,h,w] x, float[n,6,7,2] g) => (float[n,3,6,7] a, float[n,3,6,7] b, float[n,3,6,7] c) {
    a = GridSample <align_corners = 1> (x, g)
    b = GridSample <mode = "nearest", padding_mode = "border"> (x, g)
    c = GridSample <padding_mode = "reflection"> (x, g) }

slices 17 (float[n,6,h,w] x) => (float[n,2,h,w] a, float[n,3,p,q] b, float[n,6,r,s] c, float[n,6,t,u] d)
    <int64[1] one = {1}, int64[1] three = {3}, int64[3] starts = {0, 1, -1}, int64[3] ends = {6, 100, -100},
    int64[3] axes = {1, 2, 3}, int64[3] steps = {2, 2, -1}, int64[8] pads = {0, 0, 1, 2, 0, 0, 2, 1}> {
    a = Slice (x, one, three, one)  b = Slice (x, starts, ends, axes, steps)
    c = Pad <mode = "reflect"> (x, pads)  d = Pad <mode = "edge"> (x, pads) }

padded 17 (float[n,4,h,w] x) => (float[n,4,p,q] a, float[n,2,h,w] b)
    <int64[8] pads = {0, 0, 1, 2, 0, 0, 2, 1}, float value = {0.5}> {
    a = Pad (x, pads, value)  l, r = Split <axis = 1> (x)  s = Sigmoid (l)  b = Mul (s, r) }

shuffles 17 (float[n,8,h,w] x) => (float[n,2,p,q] a, float[n,8,h,w] b, float[n,w,8,h] c, float[n,2,r,s] d) {
    a = DepthToSpace <blocksize = 2, mode = "CRD"> (x)
    five = Constant <value_ints = [0, 2, 4, 5, 5]> ()  shape = Shape (x)  start = Shape <end = 1> (x)
    tail = Shape <start = 2> (x)  groups = Constant <value_ints = [2, 4]> ()
    inner = Concat <axis = 0> (start, groups, tail)
    g = Reshape (x, inner)  t = Transpose <perm = [0, 2, 1, 3, 4]> (g)  b = Reshape (t, shape)
    c = Transpose <perm = [0, 3, 1, 2]> (x)  d = DepthToSpace <blocksize = 2> (x) }

joins 17 (float[n,3,h] x, float[n,3,h] z) => (float[n,6,h] a, float[n,3,k] b, float[n,3,m] c, float[n,3,h] d)
    <int64[3] thrice = {1, 1, 3}> {
    a = Concat <axis = 1> (x, z)  b = Concat <axis = 2> (z, x)  c = Tile (x, thrice)  n0 = Shape (x)
    e = Expand (w_1_3_1, n0)  d = Sub (x, e) }

choices 17 (float[n,9] x) => (float[n,3] a, int64[n,3] ai, int64[n,1] b, int64[n] c, float[n,9] d, float[n,9] e)
    <int64[1] three = {3}> {
    a, ai = TopK (x, three)  b = ArgMax <axis = 1> (x)  c = ArgMin <axis = 1, keepdims = 0> (x)
    big = Greater (x, w_9)  small = Less (x, w_9a)  either = Or (big, small)  n = Neg (x)
    d = Where (big, x, n)  e = Where (either, w_9a, x) }

integers 17 (int32[n,6] i, int64[n,6] k, float[n,6] x) => (int32[n,6] a, int64[n,6] b, float[n,6] c, float[n,6] d)
    <int32[6] m = {3, 5, 7, 2, 9, 4}, int64[6] p = {3, 5, 7, 2, 9, 4}> {
    s = Mul (i, m)  a = Sub (s, m)  q = Div (k, p)  r = Mod (k, p)  b = Add (q, r)
    y = Mul (x, p_6)  j = Cast <to = 6> (y)  f = Cast <to = 1> (j)  c = Sub (x, f)
    e = Equal (i, m)  w = Cast <to = 1> (e)  h = Max (x, w_6)  l = Min (h, p_6a)  d = Add (l, w) }

powers 17 (float[n,6] x) => (float[n,6] a, float[n,6] b, float[n,6] c) <float three = {3}, float half = {0.5}> {
    m = Abs (x)  q = Pow (m, half)  r = Pow (x, three)  a = Add (q, r)  d = Div (x, p_6)  b = Mul (d, w_6)
    mean = ReduceMean <axes = [1]> (x)  e = Sub (x, mean)  s = Mul (e, e)  c = Add (s, w_6a) }

norms 17 (float[n,4,h,w] x) => (float[n,4,h,w] a, float[n,4,h,w] b, float[n,4,h,w] c, float[n,4,h,w] d) {
    a = InstanceNormalization <epsilon = 0.00001> (x, p_4, b_4)
    b = BatchNormalization (x, p_4a, b_4a, b_4b, p_4b)
    c = LRN <size = 3, alpha = 0.01, beta = 0.6, bias = 1.5> (x)
    d = LpNormalization <axis = 1> (x) }

layer_norm 17 (float[n,t,8] x) => (float[n,t,8] y) {
    a = LayerNormalization <axis = -1, epsilon = 1e-12> (x, p_8, b_8)  m = MatMul (a, w_8_8)  r = Add (x, m)
    y = LayerNormalization <axis = -1, epsilon = 0.00001> (r, p_8a, b_8a) }

softmaxes 17 (float[n,4,6] x) => (float[n,4,6] a, float[n,4,6] b, float[n,4,6] c) {
    y = MatMul (x, w_6_6)  a = Softmax <axis = -1> (y)  b = Softmax <axis = 1> (y)  c = LogSoftmax <axis = 2> (x)
    }

einsum 17 (float[n,4,5] x, float[n,5,3] z) => (float[n,4,3] a, float[n,3,4] b) {
    a = Einsum <equation = "bij,bjk->bik"> (x, z)  b = Einsum <equation = "bij,bjk->bki"> (x, z) }

sequences 17 (float[6,2,3] x) => (float[6,1,2,5] a, float[6,1,2,5] b, float[6,2,3] c) <int64[2] lengths = {4, 6}> {
    a, ah, ac = LSTM <hidden_size = 5> (x, w_1_20_3, w_1_20_5, b_1_40)
    b, bh = GRU <hidden_size = 5, linear_before_reset = 1> (x, w_1_15_3, w_1_15_5, b_1_30)
    l = Cast <to = 7> (lengths)  c = ReverseSequence <time_axis = 0, batch_axis = 1> (x, l) }

sums 17 (float[n,5,4] x, int64[n] k) => (float[n,5,4] a, float[n,5,4] b, float[n,7] c)
    <int64 one = {1}, int64 two = {2}, int64 depth = {7}, float[2] off_on = {0.5, 2}> {
    a = CumSum (x, one)  b = CumSum <exclusive = 1, reverse = 1> (x, two)  c = OneHot (k, depth, off_on) }

fills 17 (float[n,t,4] x) => (float[n,t,4] y, float[n,t,4] z) <int64[1] zero_place = {1}, float nought = {0},
    float step = {0.5}> {
    shape = Shape (x)  ones = ConstantOfShape <value = float[1] {1.5}> (shape)  y = Add (x, ones)
    n0 = Shape <start = 1, end = 2> (x)  n1 = Squeeze (n0)  f = Cast <to = 1> (n1)  limit = Mul (f, step)
    places = Range (nought, limit, step)  tall = Unsqueeze (places, zero_place)  z = Mul (x, tall) }

loop 17 (float[2,3] x) => (float[2,3] y, float[k,2,3] all) <int64 count = {4}, bool always = {1}, float[2,3] w =
    {0.5, -1, 2, 0.25, 1, -0.5}> {
    y, all = Loop (count, always, x) <body = body (int64 i, bool goes, float[2,3] s) => (bool on, float[2,3] t,
    float[2,3] each) { on = Identity (goes)  m = Mul (s, w)  t = Tanh (m)  each = Sub (t, s) }> }

scan 17 (float[3] start, float[5,3] x) => (float[3] last, float[5,3] all) {
    last, all = Scan <num_scan_inputs = 1, body = body (float[3] s, float[3] e) => (float[3] t, float[3] o)
    { t = Add (s, e)  o = Neg (t) }> (start, x) }

branches 17 (float[4,4] x) => (float[4,4] y) <float limit = {0}, float[4,4] w = {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5,
    6, 7, 8}> {
    m = ReduceMean <keepdims = 0> (x)  c = Greater (m, limit)
    y = If (c) <then_branch = then () => (float[4,4] a) { s = Sigmoid (x)  a = Mul (s, w) },
    else_branch = other () => (float[4,4] b) { t = Tanh (x)  b = Add (t, w) }> }

boxes 17 (float[1,12,4] boxes, float[1,2,12] scores) => (int64[k,3] y, float[1,2,12] z)
    <int64 most = {3}, float overlap = {0.4}, float least = {0.1}> {
    p = Sigmoid (scores)  z = Mul (p, p)
    y = NonMaxSuppression <center_point_box = 1> (boxes, p, most, overlap, least) }

places 17 (float[n,3,h,w] x) => (float[n,3,h,w] y, float[n,2,h,w] z) {
    t = Trilu <upper = 0> (x)  y = Add (t, x)  c = Conv <dilations = [2,2], pads = [2,2,2,2]> (t, w_2_3_3_3, b_2)
    z = Softplus (c) }

lines 17 (float[n,4,t] x) => (float[n,3,k] y) {
    a = Conv <pads = [2,2], strides = [2]> (x, w_8_4_5, b_8) r = LeakyRelu <alpha = 0.1> (a)
    y = ConvTranspose <strides = [3], pads = [1,1]> (r, w_8_3_6, b_3) }

volumes 17 (float[n,2,d,h,w] x) => (float[n,3,p,q,r] y) {
    a = Conv <pads = [1,1,1,1,1,1]> (x, w_4_2_3_3_3, b_4)  r = Relu (a)
    m = MaxPool <kernel_shape = [2,2,2], strides = [2,2,2]> (r)
    y = ConvTranspose <strides = [2,2,2]> (m, w_4_3_2_2_2, b_3) }

attention 17 (float[n,t,8] x, bool[n,1,1,t] keep) => (float[n,t,8] y) <float off = {-10000}, float zero = {0},
    float root = {2}> {
    shape = Shape (x)  heads = Constant <value_ints = [0, 0, 2, 4]> ()
    q0 = MatMul (x, w_8_8)  k0 = MatMul (x, w_8_8a)  v0 = MatMul (x, w_8_8b)
    q1 = Reshape (q0, heads)  k1 = Reshape (k0, heads)  v1 = Reshape (v0, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)  k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    s = MatMul (q, k)  d = Div (s, root)  m = Where (keep, zero, off)  a = Add (d, m)  p = Softmax <axis = -1> (a)
    o = MatMul (p, v)  o1 = Transpose <perm = [0, 2, 1, 3]> (o)  o2 = Reshape (o1, shape)  y = Add (x, o2) }

half 17 (float16[n,4,h,w] x) => (float16[n,4,h,w] y) {
    a = Conv <pads = [1,1,1,1]> (x, h_8_4_3_3, h_8)  r = Relu (a)  s = Sigmoid (r)  m = Mul (r, s)
    y = Conv <pads = [1,1,1,1]> (m, h_4_8_3_3, h_4) }

int8 17 (float[n,4,h,w] x) => (float[n,4,p,q] y) <float s = {0.03}, int8 z = {0}, float s1 = {0.02}> {
    q0 = QuantizeLinear (x, s, z)  d0 = DequantizeLinear (q0, s, z)
    wd = DequantizeLinear <axis = 0> (q_8_4_3_3, p_8, z_8)  a = Conv <pads = [1,1,1,1]> (d0, wd, b_8)
    r = Relu (a)  q1 = QuantizeLinear (r, s1, z)  d1 = DequantizeLinear (q1, s1, z)
    ud = DequantizeLinear <axis = 1> (q_8_4_2_2, p_4, z_4)  y = ConvTranspose <strides = [2,2]> (d1, ud, b_4) }
"""
"""Name, opset and graph of each."""


@frozen
class Network:
    """A network to be changed.

    Args:
        name: Its name.
        make: Makes the model.
        sizes: Sizes of dynamic dimensions to run it at, by name, for the oracle.
    """

    name: str
    make: Callable[[], onnx.ModelProto]
    sizes: tuple[Mapping[str, int], ...]


_LETTERS = ("n", "h", "w", "t", "d", "batch", "height", "width", "depth", "frames", "sequence", "time")
_BATCHES = ("n", "batch")


def _sizes(*sizes: int) -> tuple[Mapping[str, int], ...]:
    return tuple(
        {name: 1 + number % 2 if name in _BATCHES else size for name in _LETTERS} for number, size in enumerate(sizes)
    )


def _from_text(opset: int, text: str, seed: int) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')
    fill(proto, seed)
    return proto


def fill(proto: onnx.ModelProto, seed: int) -> None:
    """Adds initializers for inputs of nodes by their names: w_8_4_3_3 weights, b_8 biases, p_8 positive numbers,
    h_8_4 in float16, q_8_4 int8 codes, z_8 int8 zeros."""
    random = np.random.default_rng(seed)
    for name in sorted({name for node in proto.graph.node for name in node.input}):
        if name == "zero_axis":
            proto.graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), name))
        found = re.fullmatch(r"([wbphqz])((?:_\d+)+)[a-z]?", name)
        if found is None:
            continue
        shape = tuple(int(size) for size in found[2].strip("_").split("_"))
        values = random.standard_normal(shape).astype(np.float32)
        if found[1] in "wh" and len(shape) > 1:
            values = values / np.sqrt(np.prod(shape[1:]))
        made: Any = {
            "w": values,
            "b": 0.2 * values,
            "p": np.abs(values) + 0.5,
            "h": values.astype(np.float16),
            "q": random.integers(-127, 128, shape).astype(np.int8),
            "z": np.zeros(shape, np.int8),
        }[found[1]]
        made = made if made.dtype in (np.int8, np.float16) else made.astype(np.float32)
        if name.startswith("p") and "q_8" in str(proto.graph.node):
            made = made * np.float32(0.01)
        proto.graph.initializer.append(numpy_helper.from_array(made, name))


def embedding(seed: int = 0) -> onnx.ModelProto:
    """Makes a small BERT: token, place and type tables, a mask of -10000, one block, integers of three ranges."""
    text = """(int64[n,t] ids, int64[n,t] types, float[n,t] keep) => (float[n,t,8] y)
        <float one = {1}, float off = {-10000}, float root = {2.828}, int64[2] mid = {1, 2}> {
        e = Gather (w_30_8, ids)  k = Gather (w_2_8, types)  e0 = Add (e, k)
        e1 = LayerNormalization <axis = -1, epsilon = 1e-12> (e0, p_8, b_8)
        q = MatMul (e1, w_8_8)  kk = MatMul (e1, w_8_8a)  v = MatMul (e1, w_8_8b)  kt = Transpose <perm = [0,2,1]> (kk)
        s = MatMul (q, kt)  d = Div (s, root)  inv = Sub (one, keep)  m0 = Mul (inv, off)
        ax = Constant <value_ints = [1]> ()
        m = Unsqueeze (m0, ax)  a = Add (d, m)  p = Softmax <axis = -1> (a)  o = MatMul (p, v)  y = Add (o, e1) }"""
    return _from_text(17, text, seed)


def yolo(seed: int = 0) -> onnx.ModelProto:
    """Makes a head whose output holds boxes in pixels and scores between 0 and 1."""
    text = """(float[n,3,h,w] x) => (float[n,8,p] y) <float pixels = {640}, int64[3] flat = {0, 4, -1}> {
        a = Conv <pads = [1,1,1,1], strides = [2,2]> (x, w_8_3_3_3, b_8)  r = Relu (a)
        b = Conv (r, w_4_8_1_1, b_4)  c = Conv (r, w_4_8_1_1a, b_4a)  bs = Sigmoid (b)  bp = Mul (bs, pixels)
        cs = Sigmoid (c)  b1 = Reshape (bp, flat)  c1 = Reshape (cs, flat)  y = Concat <axis = 1> (b1, c1) }"""
    return _from_text(17, text, seed)


def all_networks() -> tuple[Network, ...]:
    """Returns all of them, in an order that does not change."""
    texts = (each.split(maxsplit=2) for each in _TEXTS.strip().split("\n\n"))
    found = [
        Network(name, functools.partial(_from_text, int(opset), text, number), _sizes(8, 13, 16))
        for number, (name, opset, text) in enumerate(texts)
    ]
    found += [Network("bert", embedding, _sizes(5, 8)), Network("yolo", yolo, _sizes(16, 24))]
    found += [
        Network(f"random-{seed}", functools.partial(proof_networks.network, seed), _sizes(16, 32))
        for seed in range(100, 100 + _RANDOM_NETWORKS)
    ]
    found.append(Network("chain", functools.partial(networks.chain, 4), ({},)))
    found += [
        Network(path.stem, functools.partial(onnx.load_model, path), _sizes(8, 16))
        for path in sorted((ROOT / "models").glob("*.onnx"))
    ]
    return tuple(found)
