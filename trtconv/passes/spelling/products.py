"""Products of matrices in front of a GridSample, of which TensorRT 8.6 makes something else."""

from __future__ import annotations

import numpy as np

from trtconv.core.target import Target
from trtconv.graph.places import products_before
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Unwritable, Writer


class ConvolveProducts(Spelling):
    """Writes a product with a matrix of weights as a convolution of one by one, where a GridSample takes places of it.

    The builder of TensorRT 8.6 makes one layer of a spatial transformer, and in it a product of two matrices to which
    a bias is added is wrong, or not written at all; without a bias, with three axes, or as a convolution, which stays
    outside, it is right (bench/results/gpu-warp-8.6.json).

    Before (tensorrt-8.6):
        <ir_version: 8, opset_import: ["": 16]>
        g (float[1,1,2,2] x, float[1,2] v) => (float[1,1,1,1] y)
        <float[2,2] w = {1, 2, 3, 4}, float[2] b = {0.5, 0.25}, int64[4] s = {1, 1, 1, 2}>
        { p = Gemm (v, w, b)  at = Reshape (p, s)  y = GridSample (x, at) }
    After:
        <ir_version: 8, opset_import: ["": 16]>
        g (float[1,1,2,2] x, float[1,2] v) => (float[1,1,1,1] y)
        <float[2,2,1,1] w = {1, 3, 2, 4}, float[2] b = {0.5, 0.25}, int64[2] a = {2, 3}, int64[4] s = {1, 1, 1, 2}>
        {
          i = Unsqueeze (v, a)  c = Conv (i, w)  q = Squeeze (c, a)  p = Add (q, b)
          at = Reshape (p, s)  y = GridSample (x, at)
        }
    """

    name = "convolve-products"
    ops = frozenset({"Gemm", "MatMul"})

    def _sites(self, scope: Scope, target: Target) -> list[int]:
        if not target.before(9):
            return []
        return sorted(
            {product for sample in scope.by_op.get("GridSample", ()) for product in products_before(scope, sample)}
        )

    def lacks(self, scope: Scope, index: int, target: Target) -> bool:
        return index in self._sites(scope, target)

    def write(self, writer: Writer, target: Target) -> str | None:
        attrs = writer.attrs
        rows = writer.input(0)
        if len(writer.shape(rows)) != 2:
            raise Unwritable("its first factor has not two axes")
        weights = writer.values(1, "weights")
        if weights.ndim != 2 or weights.dtype.kind != "f":
            raise Unwritable(f"its weights are {weights.dtype} of {weights.ndim} axes")
        if attrs.get("transA", 0):
            rows = writer("Transpose", rows, perm=[1, 0])
        kernel = weights if attrs.get("transB", 0) else weights.T
        result = writer("Conv", writer.unsqueeze(rows, [2, 3]), kernel[:, :, None, None])
        bias = writer.input(2)
        alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
        if alpha == 1 and not bias:
            writer.squeeze(result, [2, 3], to=writer.output())
            return None
        result = writer.squeeze(result, [2, 3])
        if alpha != 1:
            result = writer("Mul", result, np.array(alpha, weights.dtype), to="" if bias else writer.output())
        if bias:
            added = bias if beta == 1 else writer("Mul", bias, np.array(beta, weights.dtype))
            writer("Add", result, added, to=writer.output())
        return None
