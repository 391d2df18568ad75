"""Small float networks for the tests of `quantize`, with weights and inputs to calibrate with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from support.onnx_models import parse

HEAD = '<ir_version: 8, opset_import: ["": 17]>'
UNET = f"""{HEAD} g (float[n,3,h,w] x) => (float[n,2,h,w] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_3_3_3, b_8)
    [n1] an = BatchNormalization (a, p_8, b_8a, b_8b, p_8a)
    r = Relu (an)
    p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
    [c2] q = Conv <pads = [1,1,1,1]> (p, w_12_8_3_3, b_12)
    qr = Relu (q)
    [up] u = ConvTranspose <strides = [2,2]> (qr, w_12_8_2_2, b_8c)
    [join] c = Concat <axis = 1> (u, r)
    [c3] t = Conv <pads = [1,1,1,1]> (c, w_8_16_3_3, b_8d)
    s = LeakyRelu <alpha = 0.1> (t)
    [head] y = Conv (s, w_2_8_1_1, b_2) }}"""
RESIDUAL = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,16,16] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_4_3_3)
    r = Relu (a)
    [up] u = ConvTranspose <strides = [2,2], pads = [1,1,1,1]> (r, w_8_8_4_4)
    [short] s = ConvTranspose <strides = [2,2]> (r, w_8_8_2_2)
    [sum] t = Add (u, s)
    tr = Relu (t)
    [head] y = Conv (tr, w_4_8_1_1) }}"""
VOLUME = f"""{HEAD} g (float[1,4,4,4,4] x) => (float[1,4,8,8,8] y) {{
    [c1] a = Conv <pads = [1,1,1,1,1,1]> (x, w_8_4_3_3_3)
    r = Relu (a)
    [last] y = ConvTranspose <strides = [2,2,2]> (r, w_8_4_2_2_2) }}"""
GROUPED = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,4,16,16] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_4_3_3)
    r = Relu (a)
    [up] u = ConvTranspose <strides = [2,2], group = 2> (r, w_8_2_2_2)
    [c2] y = Conv (u, w_4_4_1_1) }}"""

NARROW = f"""{HEAD} g (float[1,4,8,8] x) => (float[1,3,16,16] y) {{
    [c1] a = Conv <pads = [1,1,1,1]> (x, w_8_4_3_3)
    r = Relu (a)
    [last] y = ConvTranspose <strides = [2,2]> (r, w_8_3_2_2) }}"""

ATTENTION = f"""{HEAD.replace("17", "20")} g (float[n,6,8] x) => (float[n,6,4] y) {{
    [norm] c = LayerNormalization (x, p_8, b_8)
    [q] q0 = MatMul (c, w_8_8)
    q = Add (q0, b_8a)
    [k] k = MatMul (c, w_8_8a)
    [v] v = MatMul (c, w_8_8b)
    kt = Transpose <perm = [0,2,1]> (k)
    [scores] s = MatMul (q, kt)
    p = Softmax (s)
    [mix] m = MatMul (p, v)
    turned = Transpose <perm = [1,0]> (w_8_8c)
    [out] o = MatMul (m, turned)
    t = Add (o, x)
    [norm2] d = LayerNormalization (t, p_8, b_8)
    [up] f = MatMul (d, w_8_16)
    fb = Add (f, b_16)
    g = Gelu (fb)
    [down] h = MatMul (g, w_16_8)
    r = Add (t, h)
    [last] y = MatMul (r, w_8_4) }}"""
"""A block of a transformer: seven products with weights, one of them transposed, and two of computed matrices."""
PRODUCTS = f"""{HEAD} g (float[1,8,12] x) => (float[8,5] y, float[2,8,7] v, float[8,16] l, float[8] e) {{
    [plain] a = MatMul (x, w_12_16)
    r = Relu (a)
    s = Squeeze (r)
    [turned] b = Gemm <transB = 1, alpha = 0.5> (s, w_16_16, b_16)
    br = Relu (b)
    [scaled] y = Gemm <beta = 0.5> (br, w_16_5, b_5)
    [batched] v = MatMul (r, w_2_16_7)
    [bare] c = Gemm <transA = 1, transB = 1> (br, w_2_8)
    ct = Transpose (c)
    [left] l = MatMul (w_8_2, ct)
    [vector] e = MatMul (s, w_16) }}"""


def net(text: str, seed: int = 0) -> onnx.ModelProto:
    """Returns a network; inputs called w_8_4_3_3, b_8 or p_8 become weights, biases and positive numbers so shaped."""
    proto = parse(text)
    random = np.random.default_rng(seed)
    for name in sorted({name for node in proto.graph.node for name in node.input}):
        found = re.fullmatch(r"([wbp])((?:_\d+)+)[a-z]?", name)
        if found is None:
            continue
        shape = tuple(int(size) for size in found[2].strip("_").split("_"))
        values: NDArray[Any] = random.standard_normal(shape).astype(np.float32)
        values = values / np.sqrt(np.prod(shape[1:])) if found[1] == "w" else 0.2 * values
        values = np.abs(values) + 0.5 if found[1] == "p" else values
        proto.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    return proto


def saved_net(text: str, folder: Path) -> Path:
    """Writes a network."""
    path = folder / "float.onnx"
    onnx.save_model(net(text), path)
    return path


def saved_samples(folder: Path, shapes: list[tuple[int, ...]], count: int = 8) -> Path:
    """Writes samples of input x, at some shapes in turns; returns their folder."""
    place = folder / "samples"
    place.mkdir()
    for number in range(count):
        np.savez(place / f"{number}.npz", x=sample(shapes[number % len(shapes)], number))
    return place


def sample(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Returns an input."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
