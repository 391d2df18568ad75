"""What the places come of at which a GridSample samples."""

from __future__ import annotations

from trtconv.graph.scope import Scope

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_STACK = 3


def products_before(scope: Scope, sample: int) -> set[int]:
    """Returns the products of matrices, in the sample's own graph, that the places of a GridSample are made of.

    A product of stacks of matrices is none: executed on TensorRT 8.6, it is right; one of unknown axes may not be.
    """
    columns = scope.columns
    open_, products, makers = [columns.inputs[sample][1]], set(), set[int]()
    while open_:
        maker = scope.producers.get(open_.pop())
        if maker is None or maker in makers:
            continue
        makers.add(maker)
        inputs = columns.inputs[maker]
        if columns.ops[maker] in _PRODUCTS and len(scope.shape(inputs[0]) or "??") < _STACK:
            products.add(maker)
        open_ += inputs
    return products
