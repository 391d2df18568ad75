"""What nodes are written down as is what ONNX Runtime computes of them, or they are not written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.session import Array, without_sizes
from support.term_values import term_of, value_of
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session
from trtconv.runtimes.proof.terms.term import Term

IMAGE = "float[2,4,8,6] x"
ROW = "float[2,9] x"
FREE = "float[n,4,h,w] x"
SIZES = {"n": 3, "h": 7, "w": 9, "t": 11}
FUNCTIONS = """Relu Sigmoid Tanh Softsign Exp Sqrt Abs Neg Sin Cos Tan Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Ceil
    Floor Erf Sign Round Log Reciprocal LeakyRelu Elu HardSigmoid HardSwish ThresholdedRelu Gelu"""
KNOWN: list[tuple[str, str] | tuple[str, str, int]] = [
    *((ROW, f"y = {op} (x)") for op in FUNCTIONS.split()),
    (ROW, "y = LeakyRelu <alpha = 0.3> (x)"),
    (ROW, "y = Elu <alpha = 0.7> (x)"),
    (ROW, "y = HardSigmoid <alpha = 0.3, beta = 0.4> (x)"),
    (ROW, "y = ThresholdedRelu <alpha = 0.1> (x)"),
    (ROW, 'y = Gelu <approximate = "tanh"> (x)'),
    (ROW, "y = Clip (x, low, high)"),
    (ROW, "y = Clip (x, high, high)"),
    (ROW, "y = Clip <min = -0.5, max = 0.75> (x)", 10),
    (ROW, "b = IsInf (x) y = Cast <to = 1> (b)"),
    (ROW, "r = Log (x) b = IsNaN (r) y = Cast <to = 1> (b)"),
    (ROW, "y = PRelu (x, row)"),
    ("float[2,3,9] x", "y = PRelu (x, row)"),
    *(
        ("float[2,1,9] x, float[4,1] z", f"y = {op} (x, z)")
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Pow")
    ),
    ("float[4,1] z, float[2,1,9] x", "y = Sub (z, x)"),
    *(
        ("float[2,1,9] x, float[4,1] z", f"a = Round (x) c = Round (z) b = {op} (a, c) y = Cast <to = 1> (b)")
        for op in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
    ),
    *(
        ("float[2,1,9] x, float[4,1] z", f"a = Less (x, one) c = Less (z, one) b = {op} (a, c) y = Cast <to = 1> (b)")
        for op in ("And", "Or", "Xor")
    ),
    *(
        ("int32[2,9] x, int32[9] z", f"a = {op} (x, z) y = Cast <to = 1> (a)")
        for op in ("Add", "Sub", "Mul", "Equal", "Greater", "Less")
    ),
    ("int64[2,9] x, int64[9] z", "a = Add (x, z) y = Cast <to = 1> (a)"),
    (ROW, "a = Less (x, one) b = Not (a) y = Where (b, x, row)"),
    ("float[3,1] x, float[4] z", "c = Less (x, one) y = Where (c, z, x)"),
    ("float[3,1,1] x, float[4] z", "c = Less (z, one) a = Where (c, x, z) y = Neg (a)"),
    (ROW, "a = Cast <to = 10> (x) y = Cast <to = 1> (a)"),
    (ROW, "a = Cast <to = 7> (x) y = Cast <to = 1> (a)"),
    (ROW, "a = Cast <to = 1> (x) y = Cast <to = 1, saturate = 1> (a)", 19),
    ("float[2,4] x", "c = Identity (of4) y = Add (x, c)"),
    ("float[3,1] x", "y = Expand (x, of34)"),
    ("float[3,4] x", "y = Expand (x, same3)"),
    ("float[2,1,3,1] x", "a = Expand (x, of34) y = Relu (a)"),
    ("float[2,3,4,5] x", "y = GatherND (x, pairs)"),
    ("float[2,3,4,5] x", "y = GatherND <batch_dims = 1> (x, singles)"),
    (ROW, "y = Softplus (x)"),
    (ROW, "y = Mish (x)"),
    (ROW, "y = Selu (x)"),
    (ROW, "y = Selu <alpha = 1.5, gamma = 0.5> (x)"),
    *((IMAGE, f"y = Reduce{how} (x, axes)") for how in ("L1", "L2", "SumSquare")),
    (IMAGE, "y = ReduceL1 <keepdims = 0> (x, axes)"),
    (IMAGE, "y = ReduceL2 <axes = [1, -1]> (x)", 17),
    ("float[2,4,9] x", "y = AveragePool <kernel_shape = [3], strides = [2], pads = [1, 0], count_include_pad = 1> (x)"),
    ("float[2,4,9] x", "y = MaxPool <kernel_shape = [3], strides = [2], ceil_mode = 1> (x)"),
    ("float[2,9] x", "a = Exp (of29) b = Sign (a) y = Mul (x, b)"),
    # Sums of products.
    ("float[2,3,4] x, float[2,5,4] m", 'y = Einsum <equation = "bij, bkj -> bki"> (x, m)'),
    ("float[2,3,4] x", 'y = Einsum <equation = "zbc->zc"> (x)'),
    ("float[n,3,4] x, float[4] m, float[3] z", 'y = Einsum <equation = "nij,j,i->n"> (x, m, z)'),
    ("float[2,3,4,5] x, float[5,6] m", "y = MatMul (x, m)"),
    ("float[4,5] x, float[2,3,5,6] m", "y = MatMul (x, m)"),
    ("float[3,1,4,5] x, float[2,5,6] m", "y = MatMul (x, m)"),
    ("float[n,t,5] x, float[5,6] m", "y = MatMul (x, m)"),
    ("float[4,5] x, float[5,6] m", "y = Gemm (x, m)"),
    ("float[4,5] x, float[6,5] m", "y = Gemm <transB = 1> (x, m, of6)"),
    ("float[5,4] x, float[5,6] m", "y = Gemm <transA = 1, alpha = 1.0, beta = 1.0> (x, m, one)"),
    (IMAGE, "y = Conv <strides = [2, 1], pads = [1, 0, 2, 1], dilations = [1, 2]> (x, k, of5)"),
    (IMAGE, "y = Conv <kernel_shape = [3, 2]> (x, k)"),
    (IMAGE, "y = Conv <group = 2, strides = [3, 2]> (x, kg)"),
    (FREE, "y = Conv <pads = [0, 1, 2, 3], strides = [1, 2]> (x, k, of5)"),
    ("float[2,4,9] x", "y = Conv <strides = [2], pads = [1, 2], dilations = [2]> (x, k1, of5)"),
    ("float[n,4,t] x", "y = Conv <strides = [2], pads = [1, 2], dilations = [2]> (x, k1, of5)"),
    ("float[1,4,5,6,7] x", "y = Conv <strides = [1, 2, 1], pads = [1, 0, 1, 1, 0, 0]> (x, k3)"),
    ("float[2,4,8,6] x, float[5,4,2,3] m", "y = Conv <pads = [0, 1, 2, 1]> (x, m)"),
    (IMAGE, "y = ConvTranspose <strides = [2, 3], pads = [1, 0, 1, 1]> (x, kt, of3)"),
    (IMAGE, "y = ConvTranspose <group = 2, strides = [2, 2]> (x, ktg)"),
    (IMAGE, "y = ConvTranspose <strides = [2, 3], output_padding = [1, 2], dilations = [2, 1]> (x, kt)"),
    (IMAGE, "y = ConvTranspose <strides = [4, 5], pads = [0, 1, 2, 0], output_padding = [3, 4]> (x, kt, of3)"),
    (IMAGE, "y = ConvTranspose <strides = [5, 5], output_padding = [3, 2]> (x, kt)"),
    (IMAGE, "y = ConvTranspose <strides = [2, 2], output_shape = [17, 13]> (x, kt)"),
    (IMAGE, 'y = ConvTranspose <strides = [2, 2], auto_pad = "SAME_UPPER"> (x, kt)'),
    (FREE, "y = ConvTranspose <strides = [2, 3], pads = [1, 0, 1, 1], output_padding = [1, 2]> (x, kt, of3)"),
    ("float[2,4,9] x", "y = ConvTranspose <strides = [3], pads = [1, 0]> (x, kt1)"),
    ("float[n,4,t] x", "y = ConvTranspose <strides = [3], pads = [1, 2], dilations = [2]> (x, kt1)"),
    (IMAGE, "y = MaxPool <kernel_shape = [3, 2], strides = [2, 1], pads = [1, 0, 1, 1]> (x)"),
    (FREE, "y = MaxPool <kernel_shape = [3, 2], strides = [2, 3], pads = [1, 0, 2, 1]> (x)"),
    (IMAGE, "y = AveragePool <kernel_shape = [2, 3], pads = [1, 1, 0, 2]> (x)"),
    (IMAGE, "y = AveragePool <kernel_shape = [2, 2], pads = [1, 1, 0, 0], count_include_pad = 1> (x)"),
    (IMAGE, "y = AveragePool <kernel_shape = [2, 2], strides = [2, 2], count_include_pad = 1> (x)"),
    ("float[1,2,5,6,7] x", "y = MaxPool <kernel_shape = [2, 2, 3], pads = [0, 1, 0, 1, 0, 2]> (x)"),
    (FREE, "y = GlobalAveragePool (x)"),
    ("float[2,4,9] x", "y = GlobalMaxPool (x)"),
    *(
        (IMAGE, f"y = {op} <keepdims = {keep}> (x, {axes})")
        for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
        for keep, axes in ((0, "back"), (1, "axes"))
    ),
    *((IMAGE, f"y = Reduce{op} <axes = [1, -1], keepdims = 0> (x)", 12) for op in ("Mean", "Sum", "Max")),
    *((IMAGE, f"y = Reduce{op} <axes = [2]> (x)", 17) for op in ("Mean", "Max", "Min", "Prod")),
    (IMAGE, "y = ReduceSum (x, axes)", 13),
    (IMAGE, "y = ReduceMean <noop_with_empty_axes = 1> (x, axes)"),
    (FREE, "y = ReduceMean <keepdims = 0> (x, axes)"),
    *((IMAGE, f"y = CumSum <exclusive = {a}, reverse = {b}> (x, ax1)") for a in (0, 1) for b in (0, 1)),
    (IMAGE, "y = CumSum (x, axm2)"),
    ("int32[2,9] x", "a = CumSum (x, ax1) y = Cast <to = 1> (a)"),
    (IMAGE, "y = Softmax <axis = 1> (x)"),
    (IMAGE, "y = Softmax (x)"),
    (IMAGE, "y = Softmax <axis = 3> (x)", 11),
    (ROW, "y = Softmax (x)", 11),
    (IMAGE, "y = Softmax (x)", 13),
    (IMAGE, "y = Softmax <axis = 1> (x)", 13),
    (IMAGE, "y = LayerNormalization <axis = -1, epsilon = 0.01> (x, of6, row6)"),
    (IMAGE, "y = LayerNormalization (x, of6)"),
    (IMAGE, "y = LayerNormalization <axis = 2, stash_type = 1> (x, of86, row6)"),
    (IMAGE, "y = LayerNormalization <axis = 2> (x, of86, zero6)"),
    (FREE, "y = InstanceNormalization <epsilon = 0.1> (x, of4, row4)"),
    ("float[2,4,9] x", "y = InstanceNormalization (x, of4, row4)"),
    ("float[2,4,9] x, float[4] z", "y = InstanceNormalization (x, of4, z)"),
    (IMAGE, "y = BatchNormalization <epsilon = 0.1, momentum = 0.5> (x, of4, row4, m4, v4)"),
    ("float[2,4] x", "y = BatchNormalization (x, of4, row4, m4, v4)"),
    ("float[n,4,h,w] x", "y = BatchNormalization (x, of4, row4, m4, v4)", 9),
    ("float[1,4,0,6] x", "y = Conv <pads = [3, 0, 1, 0]> (x, k)"),
    ("float[1,4,0,6] x", "y = ConvTranspose (x, kt)"),
    ("float[2,4,9] x", "y = MaxPool <kernel_shape = [2], strides = [2]> (x)"),
    # Moves.
    ("float[2,3,4] x", "y = Transpose (x)"),
    ("float[2,3,4] x", "y = Transpose <perm = [1, 2, 0]> (x)"),
    ("float[2,3,4] x", "a = Transpose <perm = [1, 2, 0]> (x) y = Transpose <perm = [0, 2, 1]> (a)"),
    ("float[2,3,4] x", "a = Transpose <perm = [1, 2, 0]> (x) y = Transpose <perm = [2, 0, 1]> (a)"),
    ("float[2,3,4] x", "y = Reshape (x, to)"),
    ("float[2,3,4] x", "a = Reshape (x, to) y = Reshape (a, to3)"),
    ("float[2,3,4] x", "a = Reshape (x, to) b = Neg (a) y = Reshape (b, to3)"),
    ("float[2,3,4] x", "y = Reshape (x, copied)"),
    ("float[2,3,4] x", "y = Reshape <allowzero = 1> (x, to)"),
    ("float[n,t,8] x", "a = Reshape (x, heads) b = Transpose <perm = [0, 2, 1, 3]> (a) y = Reshape (b, flat)"),
    ("float[n,4,t] x", "a = Reshape (x, as_it_is) y = Neg (a)"),
    ("float[n,4,6] x", "y = Reshape (x, otherwise)"),
    ("float[n,4,6] x", "y = Reshape (x, shorter)"),
    *((IMAGE, f"y = Flatten <axis = {axis}> (x)") for axis in (0, 2, 4, -1, -3)),
    (IMAGE, "y = Flatten (x)"),
    ("float[1,3,1,4] x", "y = Squeeze (x, sides)"),
    ("float[1,n,1,4] x", "y = Squeeze (x, sides)"),
    ("float[1,3,1,4] x", "y = Squeeze <axes = [0, -2]> (x)", 11),
    ("float[3,4] x", "y = Unsqueeze (x, sides)"),
    ("float[3,4] x", "y = Unsqueeze (x, m3)"),
    ("float[n,4] x", "y = Unsqueeze (x, sides)"),
    ("float[3,4] x", "y = Unsqueeze <axes = [0, 3]> (x)", 11),
    ("float[2,3] x, float[2,4] z", "y = Concat <axis = 1> (x, z, x)"),
    ("float[n,3] x, float[2,3] z", "y = Concat <axis = -2> (x, z)"),
    ("float[n,3] x, float[n,2] z", "y = Concat <axis = 1> (z, x)"),
    (IMAGE, "a, y = Split <axis = 2> (x, parts)"),
    (IMAGE, "a, b, c, y = Split <axis = -2, num_outputs = 4> (x)"),
    (IMAGE, "a, y = Split <axis = 2> (x)", 13),
    (IMAGE, "y, a = Split <axis = 2, split = [3, 5]> (x)", 11),
    ("float[2,4] x", "a, y = Split (x)", 13),
    (IMAGE, "y = Slice (x, starts, ends, places, steps)"),
    (IMAGE, "y = Slice (x, starts, ends, places)"),
    (IMAGE, "y = Slice (x, starts, ends)"),
    (IMAGE, "y = Slice (x, last, before, places, backwards)"),
    (IMAGE, "y = Slice (x, zeros2, far, places)"),
    ("float[9] x", "y = Slice (x, m3, far1)"),
    ("float[9] x", "y = Slice (x, m3, one1)"),
    ("float[9] x", "y = Slice (x, far1, m100, zero1, mone)"),
    *((IMAGE, f"y = Pad (x, pads, {fill})") for fill in ("", "low")),
    (IMAGE, "y = Pad <pads = [0, 0, 1, 2, 0, 0, 2, 0], value = 0.5> (x)", 10),
    (IMAGE, "y = Pad <pads = [0, 0, 1, 2, 0, 0, 2, 0]> (x)", 10),
    *((IMAGE, f'y = Pad <mode = "{mode}"> (x, pads)') for mode in ("edge", "reflect")),
    (IMAGE, 'y = Pad <mode = "wrap"> (x, pads)', 19),
    (IMAGE, "y = Pad (x, nopads)"),
    (IMAGE, 'y = Pad <mode = "reflect"> (x, wide)'),
    (IMAGE, "y = Expand (x, same)"),
    (IMAGE, "a = DepthToSpace <blocksize = 2> (x) y = Neg (a)"),
    ("float[2,18,2,3] x", "y = DepthToSpace <blocksize = 3> (x)"),
    ("float[2,18,2,3] x", 'y = DepthToSpace <blocksize = 3, mode = "CRD"> (x)'),
    ("float[2,18,2,3] x", "y = DepthToSpace <blocksize = 1> (x)"),
    ("float[7,5] x, int64[3] i", "y = Gather (x, i)"),
    ("float[7,5] x, int32[3] i", "j = Cast <to = 7> (i) y = Gather <axis = -1> (x, j)"),
    ("float[7,5] x", "y = Gather <axis = 1> (x, rows)"),
    ("float[7,n,5] x", "y = Gather <axis = 2> (x, rows)"),
    *(
        (IMAGE, f'y = Resize <mode = "{mode}", coordinate_transformation_mode = "{places}"> (x, , , {sizes})')
        for mode in ("nearest", "linear", "cubic")
        for places in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
        for sizes in ("resized", "single")
    ),
    *(
        (IMAGE, f'y = Resize <nearest_mode = "{nearest}"> (x, , twice)')
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    *(
        (ends, f'y = Resize <mode = "{mode}", coordinate_transformation_mode = "{places}"> (x, , twice)')
        for ends in ("float[n,4,h,w] x", "float[n,4,h,1] x", "float[2,4,1,w] x")
        for mode in ("nearest", "linear", "cubic")
        for places in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    ),
    ("float[n,4,h,w] x", "s = Shape (x) a = Reshape (x, halves) y = Reshape (a, s)"),
    ("float[n,3,h] x", "s = Shape (x) c = Cast <to = 6> (s) d = Cast <to = 7> (c) y = Reshape (x, d)"),
    ("float[n,4,h,w] x", "s = Shape (x) a = Reshape (x, halves) y = Reshape <allowzero = 1> (a, s)"),
    ("float[n,4,h,w] x", "s = Shape <start = 2> (x) t = Concat <axis = 0> (minus, s) y = Reshape (x, t)"),
    ("float[n,4,h,w] x", "s = Shape <end = -2> (x) t = Concat <axis = 0> (s, minus) y = Reshape (x, t)"),
    ("float[n,4,h,w] x", "s = Shape (x) r = Add (s, s) y = Cast <to = 1> (r)"),
    ("float[n,4,h,w] x", "a, b = Split <axis = 1> (x, halves4) c = Neg (a) y = Concat <axis = 1> (b, c)"),
    *(
        ("float[n,4,h,w] x", f"s = Shape (x) r = {op} (s, two) q = {op} (hundred, r) y = Cast <to = 1> (q)")
        for op in ("Add", "Sub", "Mul", "Div")
    ),
    ("float[n,4,h,w] x", "s = Shape <start = 3> (x) q = Squeeze (s) t = Mul (q, s) y = Cast <to = 1> (t)"),
    ("int32[2,9] x", "a = Div (x, seven) y = Cast <to = 1> (a)"),
    (IMAGE, 'y = Resize <mode = "cubic", cubic_coeff_a = -0.5> (x, , twice)'),
    (IMAGE, "y = Resize <extrapolation_value = 2.0> (x, roi, unscaled, resized)", 11),
    (IMAGE, "y = Resize (x, roi, twice)", 11),
    # Where attributes became inputs.
    ("float[1,3,1,4] x", "y = Squeeze (x, sides)", 13),
    ("float[1,3,1,4] x", "y = Squeeze <axes = [0, -2]> (x)", 12),
    ("float[3,4] x", "y = Unsqueeze (x, sides)", 13),
    ("float[3,4] x", "y = Unsqueeze <axes = [0, 3]> (x)", 12),
    (IMAGE, "y = ReduceSum <axes = [1, -1]> (x)", 12),
    (IMAGE, "a, y = Split <axis = 2> (x, parts)", 13),
    (IMAGE, "y, a = Split <axis = 2, split = [3, 5]> (x)", 12),
    (IMAGE, "y = Pad (x, pads, low)", 11),
    (ROW, "y = Clip (x, low, high)", 11),
    (ROW, "y = Clip <min = -0.5, max = 0.75> (x)", 10),
    # Sizes.
    *(
        (IMAGE, f"a = Shape <{ends}> (x) y = Cast <to = 1> (a)")
        for ends in ("start = 1", "end = 2", "start = -3, end = -1", "start = 0")
    ),
    ("float[n,4,2] x", "a = Shape <start = 1> (x) y = Cast <to = 1> (a)"),
]  # fmt: skip
"""Inputs, nodes and opset, 18 or else what is newest that matters, of all of which words are known."""
DOUBTFUL: list[tuple[str, str] | tuple[str, str, int]] = [
    (ROW, "y = Clip (x, high, low)"),
    (ROW, "y = Clip (x, low)"),
    (ROW, "y = Clip (x, , high)"),
    (ROW, "y = Clip (x, low, endless)"),
    (ROW, "y = Clip <min = -0.5> (x)", 6),
    (ROW, "y = Clip (x, row, high)"),
    *(
        ("float[4] x", f"e = Div (x, nothing) b = IsInf <{how}> (e) y = Cast <to = 1> (b)")
        for how in ("detect_negative = 0", "detect_positive = 0")
    ),
    (ROW, "y = Sum (x)"),
    (ROW, "y = Max (x, row, one)"),
    ("float[9] x", "y = PRelu (x, column)"),
    (ROW, "y = Add (x, two)"),
    ("int32[2,9] x", "a = Neg (x) y = Cast <to = 1> (a)"),
    ("int32[2,9] x", "a = Cast <to = 2> (x) y = Cast <to = 1> (a)"),
    ("float[n,4] x", "a = Shape (x) y = Cast <to = 1> (a)"),
    ("float[n,4] x", "a = Shape <end = 1> (x) y = Cast <to = 1> (a)"),
    (ROW, "y = Unheard (x)"),
    (ROW, "y = Cast (x)"),
    ("float[2,3] x, float[2,2] z", "y = Add (x, z)"),
    # Sums of products.
    ("float[5] x, float[5,6] m", "y = MatMul (x, m)"),
    ("float[4,5] x, float[5] m", "y = MatMul (x, m)"),
    ("float[4,5] x, float[5,6] m", "y = Gemm <alpha = 0.5> (x, m, of6)"),
    ("float[4,5] x, float[5,6] m", "y = Gemm <beta = 0.5> (x, m, of6)"),
    ("float[4,5] x, float[5,6] m", "y = Gemm <alpha = 2.0> (x, m, of6)"),
    ("float[4,5] x, float[5,6] m", "y = Gemm <beta = 2.0> (x, m, of6)"),
    ("float[2,4,5] x, float[5,6] m", "y = Gemm (x, m)"),
    *((IMAGE, f'y = Conv <auto_pad = "{how}"> (x, k)') for how in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    (IMAGE, "y = Conv <pads = [1, 1]> (x, k)"),
    (IMAGE, "y = Conv <pads = [-1, 0, 0, 0]> (x, k)"),
    (IMAGE, "y = Conv <strides = [2]> (x, k)"),
    (IMAGE, "y = Conv <strides = [0, 1]> (x, k)"),
    (IMAGE, "y = Conv <kernel_shape = [2, 3]> (x, k)"),
    (IMAGE, "y = Conv <group = 0> (x, k)"),
    (IMAGE, "y = Conv (x, k1)"),
    ("float[2,4,8,6] x, float[a,4,3,2] m", "y = Conv (x, m)"),
    ("float[2,4,8,6] x, float16[5,4,3,2] m", "y = Conv (x, m)"),
    ("float[2,4,8,6] x, float16[5] m", "y = Conv (x, k, m)"),
    ("float[2,4,8,6] x, float[5,1] m", "y = Conv (x, k, m)"),
    (IMAGE, "y = Conv <dilations = [4, 1]> (x, k)"),
    ("float[2,4,2,6] x", "y = Conv (x, k)"),
    ("float[2,4] x", "y = Conv (x, w46)"),
    (IMAGE, "y = ConvTranspose <pads = [9, 9, 9, 9]> (x, kt)"),
    ("float[2,4,1,1] x", "y = ConvTranspose <pads = [1, 2, 2, 2]> (x, kt)"),
    (IMAGE, "a = Neg (kt) y = ConvTranspose <strides = [5, 5], output_padding = [3, 2]> (x, a)"),
    ("float[2,4,8,6] x, float[4,3,3,4] m", "y = ConvTranspose <strides = [5, 5], output_padding = [3, 2]> (x, m)"),
    (FREE, "y = ConvTranspose <strides = [2, 2], output_shape = [17, 13]> (x, kt)"),
    (IMAGE, "y = MaxPool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> (x)"),
    (IMAGE, "y = AveragePool <kernel_shape = [3, 3], strides = [3, 3], ceil_mode = 1> (x)"),
    (IMAGE, "y = MaxPool <kernel_shape = [2, 2], dilations = [2, 1]> (x)"),
    (IMAGE, "y = MaxPool <kernel_shape = [2, 2], pads = [1, 2, 1, 1]> (x)"),
    (IMAGE, "y = MaxPool <kernel_shape = [2, 2, 2]> (x)"),
    (IMAGE, 'y = MaxPool <kernel_shape = [2, 2], auto_pad = "SAME_UPPER"> (x)'),
    (IMAGE, "y, i = MaxPool <kernel_shape = [2, 2]> (x)"),
    (IMAGE, "y = ReduceMean (x)"),
    (IMAGE, "y = ReduceMean <noop_with_empty_axes = 1> (x)"),
    (IMAGE, "y = ReduceSum <noop_with_empty_axes = 1> (x, nothing0)"),
    ("int32[2,9] x", "a = ReduceSum (x, ax1) y = Cast <to = 1> (a)"),
    (IMAGE, "y = ReduceSum (x, beyond)"),
    ("int64 i, float[2,9] x", "y = CumSum (x, i)"),
    (IMAGE, "y = CumSum (x, axes)"),
    (IMAGE, "y = Softmax (x)", 11),
    (IMAGE, "y = Softmax (x)", 12),
    (IMAGE, "y = Softmax <axis = 2> (x)", 12),
    (IMAGE, "y = Softmax <axis = -2> (x)", 11),
    (IMAGE, "y, m, d = LayerNormalization (x, of6)"),
    ("float[4,8,6] x", "y = LayerNormalization (x, w1486)"),
    ("float[2,4] x", "y = InstanceNormalization (x, of4, row4)"),
    (IMAGE, "a = Neg (of4) y = InstanceNormalization (x, of4, of4, of4)"),
    ("float[4] x", "y = BatchNormalization (x, of4, row4, m4, v4)"),
    ("float[2,4,8,6] x, float[4] s", "y = BatchNormalization (x, s, row4, m4, v4)"),
    (IMAGE, "y = BatchNormalization <training_mode = 1> (x, of4, row4, m4, v4)"),
    (IMAGE, "y, m, v = BatchNormalization <training_mode = 1> (x, of4, row4, m4, v4)"),
    # Moves.
    ("float[2,3,4] x", "y = Transpose <perm = [1, 0]> (x)"),
    ("float[2,3,4] x", "y = Transpose <perm = [1, 1, 0]> (x)"),
    ("float[2,3,4] x", "y = Reshape (x, uneven)"),
    ("float[2,3,4] x", "y = Reshape (x, two_left)"),
    ("float[n,4] x", "y = Reshape (x, two_left)"),
    ("float[n,4] x", "y = Reshape (x, minus2)"),
    ("float[2,3,4] x", "y = Reshape (x, minus2)"),
    ("float[2,3,4] x", "y = Reshape (x, minuses)"),
    ("float[2,3,4] x", "y = Reshape (x, fewer)"),
    ("float[2,3,4] x", "y = Reshape <allowzero = 1> (x, copied)"),
    ("float[0,3,4] x", "y = Reshape (x, copied)"),
    ("float[0,3,4] x", "y = Reshape (x, to0)"),
    ("float[2,4] x", "y = Reshape (x, copied3)"),
    ("float[n,4] x", "y = Reshape <allowzero = 1> (x, flat0)"),
    ("float[n,4,h,w] x", "y = Flatten (x)"),
    (IMAGE, "y = Flatten <axis = 5> (x)"),
    (IMAGE, "y = Flatten <axis = -5> (x)"),
    ("float[1,3,1,4] x", "y = Squeeze (x)"),
    ("float[1,3,1,4] x", "y = Squeeze (x, ax1)"),
    ("float[n,4] x", "y = Squeeze (x, zero1)"),
    ("float[3,4] x", "y = Unsqueeze (x, twice0)"),
    ("float[3,4] x", "y = Unsqueeze (x, beyond)"),
    ("float[2,3] x, float[2,3,1] z", "y = Concat <axis = 0> (x, z)"),
    (IMAGE, "a, b, y = Split <axis = 2, num_outputs = 3> (x)"),
    (IMAGE, "a, b, y = Split <axis = 2> (x)", 13),
    (IMAGE, "a, y = Split <axis = 2> (x, parts3)"),
    (IMAGE, "a, y = Split <axis = 2> (x, short)"),
    ("float[n,4] x", "a, y = Split (x)", 13),
    ("float[n,4] x", "a, y = Split <axis = 1> (x)", 13),
    ("float[n,4,8,6] x", "y = Slice (x, starts, ends, places, steps)"),
    ("float[n,4] x", "y = Slice (x, zero1, one1, zero1)"),
    (IMAGE, "y = Slice (x, starts, ends, places, zeros2)"),
    (IMAGE, "y = Slice (x, ends, starts, places)"),
    (IMAGE, "y = Slice <starts = [1], ends = [3]> (x)", 9),
    (IMAGE, "y = Slice (x, starts, ends, twice0)"),
    (IMAGE, "y = Pad (x, pads, , last_axes)"),
    (IMAGE, "y = Pad (x, negative)"),
    (IMAGE, 'y = Pad <mode = "reflect"> (x, wider)'),
    (IMAGE, 'y = Pad <mode = "wrap"> (x, wider)', 19),
    ("float[n,4] x", "y = Pad (x, pads2)"),
    ("int32[2,4] x", "a = Pad (x, pads2) y = Cast <to = 1> (a)"),
    ("float[3,4] x", "y = Expand (x, other)"),
    ("float[n,4] x", "y = Expand (x, of34)"),
    ("float[3,3] x", 'y = Einsum <equation = "ii->i"> (x)'),
    ("float[2,3] x", 'y = Einsum <equation = "ij"> (x)'),
    ("float[2,3] x", 'y = Einsum <equation = "...j->j..."> (x)'),
    ("float[2,3] x, float[1,3] m", 'y = Einsum <equation = "ij,ij->i"> (x, m)'),
    ("int32[2,3] x", 'a = Einsum <equation = "ij->j"> (x) y = Cast <to = 1> (a)'),
    ("float[n,3,4,5] x", "y = GatherND (x, pairs)"),
    ("float[2,2,4,5] x", "y = GatherND (x, pairs)"),
    ("float[3,4,5] x", "y = GatherND <batch_dims = 1> (x, singles)"),
    ("float[2,18,n,3] x", "y = DepthToSpace <blocksize = 3> (x)"),
    ("float[2,18,2,3] x", "y = DepthToSpace <blocksize = 0> (x)"),
    ("float[2,18,2,3] x", "y = DepthToSpace <blocksize = -3> (x)"),
    ("float[n,18,2,3] x", "y = DepthToSpace <blocksize = 3> (x)"),
    ("float[2,18,6] x", "y = DepthToSpace <blocksize = 3> (x)"),
    ("float[2,18,2,3] x", 'y = DepthToSpace <blocksize = 3, mode = "other"> (x)'),
    (ROW, 'y = Gelu <approximate = "other"> (x)'),
    (IMAGE, 'y = Pad <mode = "other"> (x, pads)'),
    (IMAGE, "y = Pad (x, steps)"),
    ("float[2,17,2,3] x", "y = DepthToSpace <blocksize = 3> (x)"),
    ("float[7,5] x", "y = Gather <axis = 1> (x, far1)"),
    ("float[7,5] x", "y = Gather <axis = 1> (x, m6)"),
    ("float[n,5] x, int64[3] i", "y = Gather (x, i)"),
    ("float[7,5] x", "y = Gather <axis = 2> (x, rows)"),
    ("float[7,5] x, float[3] i", "y = Gather (x, i)"),
    ("float[7,5] x, int64[3] i", "j = Cast <to = 9> (i) y = Gather (x, j)"),
    ("float[7,5] x, int64[3] i", "j = Cast <to = 1> (i) y = Gather (x, j)"),
    ("float[n,4,8,6] x", "y = Resize (x, , , resized)"),
    ("float[n,4,h,6] x", "y = Resize (x, , odd)"),
    ("float[n,4,h,6] x", "y = Resize (x, , shrunk)"),
    ("float[n,4,h,w] x", "s = Shape (x) c = Cast <to = 1> (s) d = Cast <to = 7> (c) y = Reshape (x, d)"),
    (IMAGE, "y = Resize (x, , odd)"),
    (IMAGE, "y = Resize (x, , twice, resized)"),
    (IMAGE, 'y = Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, twice)'),
    (IMAGE, 'y = Resize <mode = "cubic", exclude_outside = 1> (x, , twice)'),
    (IMAGE, 'y = Resize <mode = "linear", antialias = 1> (x, , shrunk)'),
    (IMAGE, 'y = Resize <keep_aspect_ratio_policy = "not_larger"> (x, , , resized)'),
    (IMAGE, "y = Resize <axes = [2, 3]> (x, , , resized2)"),
    (IMAGE, "y = Resize (x, twice)", 10),
    ("float[2,4,8,6] x, float[4] s", "y = Resize (x, , s)"),
]  # fmt: skip
"""What has no words, or those of what it computes."""
RANDOM = np.random.default_rng(7)


def floats(*shape: int) -> Array:
    return RANDOM.uniform(0.2, 1.5, shape).astype(np.float32)


CONSTANTS: dict[str, Any] = {
    "low": np.float32(-0.5), "high": np.float32(0.75), "one": np.float32(1), "two": np.int64(2),
    "endless": np.float32(np.inf), "nothing": np.float32(0), "row": floats(9), "column": floats(9, 1),
    "k": floats(5, 4, 3, 2) - 0.8, "kg": floats(6, 2, 2, 2), "kt": floats(4, 3, 3, 4), "ktg": floats(4, 2, 3, 2),
    "k1": floats(5, 4, 3), "kt1": floats(4, 2, 4), "k3": floats(2, 4, 2, 3, 2), "w46": floats(4, 6),
    "w1486": floats(1, 4, 8, 6),
    **{f"of{n}": floats(n) for n in (3, 4, 5, 6)}, "of86": floats(8, 6), "row6": floats(6), "row4": floats(4),
    "zero6": np.zeros(6, np.float32), "m4": floats(4), "v4": floats(4),
    "axes": [2, 3], "back": [-1, 1], "beyond": [4], "nothing0": np.zeros(0, np.int64),
    "unscaled": np.zeros(0, np.float32), "ax1": [1], "axm2": np.int64(-2),
    "to": [3, -1, 2], "to3": [2, 3, 4], "copied": [0, -1, 2], "to0": [0, 12], "uneven": [5, -1],
    "two_left": [-1, -1, 2],
    "minus": [-1], "halves4": [2, 2], "seven": np.int32(7), "hundred": np.int64(100),
    "minus2": [-2, 12], "minuses": [-2, -12],
    "fewer": [2, 3, 3], "copied3": [2, 4, 0], "heads": [0, -1, 2, 4], "flat": [-1, 4],
    "flat0": [0, -1],
    "as_it_is": [0, 4, 0], "otherwise": [0, 6, 4], "shorter": [0, 24],
    "sides": [0, -2], "ends": [1000, 6], "twice0": [0, 0], "parts": [3, 5],
    "parts3": [3, 2, 3], "short": [3, 4],
    "starts": [1, -4], "places": [2, -1], "steps": [1, 2], "backwards": [-2, -1], "last": [-1, 9],
    "before": [0, -100], "zeros2": [0, 0], "far": [1000, 1000], "far1": [1000], "m3": [-3], "m100": [-100],
    "zero1": [0], "one1": [1], "mone": [-1], "m6": [-6], "pads": [0, 0, 1, 2, 0, 0, 2, 0], "nopads": [0] * 8,
    "wide": [0, 0, 7, 0, 0, 0, 0, 5], "wider": [0, 0, 8, 0, 0, 0, 0, 0], "negative": [0, 0, -1, 0, 0, 0, 0, 0],
    "last_axes": [2, 3], "pads2": [0, 1, 0, 2], "same": [4, 1, 6], "same3": [1, 3, 4], "of34": [3, 4],
    "of29": floats(2, 9),
    "pairs": [[0, -1], [1, 2], [-2, 0]], "singles": [[-1], [1]], "other": [2, 4],
    "rows": [[-1, 0, 4]], "halves": [0, 2, -1], "resized": [2, 4, 11, 5], "single": [2, 4, 1, 9], "resized2": [11, 5],
    "twice": np.array([1, 1, 2, 3], np.float32), "odd": np.array([1, 1, 1.3, 1.7], np.float32),
    "shrunk": np.array([1, 1, 0.5, 0.5], np.float32), "roi": np.array([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9], np.float32),
}  # fmt: skip


def model_of(ends: str, body: str, opset: int = 18) -> OnnxModel:
    opset = 20 if "Gelu" in body else opset
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g ({ends}) => (float y) {{ {body} }}'
    )
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    nodes = list(proto.graph.node)
    read = {name for node in nodes for name in node.input} - {name for node in nodes for name in node.output}
    held = [numpy_helper.from_array(np.asarray(CONSTANTS[name]), name) for name in CONSTANTS if name in read]
    proto.graph.initializer.extend(held)
    return OnnxModel(proto, Path("m.onnx"))


def feeds_of(model: OnnxModel) -> dict[str, Array]:
    """Returns values on either side of 0, some of them whole numbers and halves."""
    feeds = {}
    for spec in model.inputs:
        shape = [SIZES[dim] if isinstance(dim, str) else dim for dim in spec.dims]
        dtype = model.main.dtype(spec.name) or ""
        if dtype.startswith("int"):
            feeds[spec.name] = RANDOM.integers(0 if spec.name == "i" else -3, 4, shape).astype(dtype)
        else:
            values = RANDOM.uniform(-3, 3, shape)
            feeds[spec.name] = np.where(RANDOM.random(shape) < 0.3, np.rint(2 * values) / 2, values).astype(dtype)
    return feeds


NOTHING: list[tuple[str, str] | tuple[str, str, int]] = [
    (IMAGE, "y = Slice (x, zeros2, far, places)"),
    ("float[2,3,4] x", "y = Transpose <perm = [0, 1, 2]> (x)"),
    ("float[2,3,4] x", "a = Transpose <perm = [1, 2, 0]> (x) y = Transpose <perm = [2, 0, 1]> (a)"),
    ("float[2,3,4] x", "a = Reshape (x, to) y = Reshape (a, to3)"),
    ("float[2,3,4] x", "y = Reshape (x, to3)"),
    ("float[n,4,t] x", "y = Reshape (x, as_it_is)"),
    ("float[3,4] x", "a = Unsqueeze (x, sides) y = Squeeze (a, sides)"),
    (ROW, "y = Cast <to = 1> (x)"),
    (ROW, "y = Split (x)", 13),
    (IMAGE, "y = Pad (x, nopads)"),
    (IMAGE, "y = Expand (x, same)"),
    (ROW, "y = Identity (x)"),
]  # fmt: skip
"""What changes nothing."""


@pytest.mark.parametrize("case", NOTHING, ids=str)
def test_what_changes_nothing_is_what_it_was(case: tuple[Any, ...]) -> None:
    model = model_of(*case)
    term = term_of(model)
    assert term is not None and term.op == "tensor"
    assert is_right(model, term)


def is_right(model: OnnxModel, term: Term) -> bool:
    feeds = feeds_of(model)
    # By ONNX's definition: versions of ONNX Runtime differ.
    loaded = session(OnnxModel(without_sizes(model.proto), model.path))
    if isinstance(loaded, str):
        raise ValueError(loaded)
    (expected,) = loaded.run(["y"], feeds)
    got = value_of(term, feeds)
    return got.shape == expected.shape and np.allclose(got, expected, 1e-4, 1e-5, equal_nan=True)


@pytest.mark.parametrize("case", KNOWN, ids=str)
def test_what_is_written_down_is_what_is_computed(case: tuple[Any, ...]) -> None:
    model = model_of(*case)
    term = term_of(model)
    assert term is not None
    assert is_right(model, term)
    # What sizes follow from those of the inputs is known.
    assert term.is_static or any(isinstance(dim, str) for spec in model.inputs for dim in spec.dims)


@pytest.mark.parametrize("case", DOUBTFUL, ids=str)
def test_what_is_doubtful_is_not_written_down_as_something_else(case: tuple[Any, ...]) -> None:
    model = model_of(*case)
    term = term_of(model)
    if term is not None:
        assert is_right(model, term)
