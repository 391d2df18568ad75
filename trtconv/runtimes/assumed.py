"""Sizes that are assumed where nobody gave bounds, by what a model costs there."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import onnx

from trtconv.core.dims import dynamic_dims, elements_of
from trtconv.core.frozen import frozen
from trtconv.graph.attributes import attribute
from trtconv.graph.channel_counts import dims_by_weights
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope

Shapes = Mapping[str, tuple[int, ...]]

_SIZES = (64, 32, 48, 128, 16, 8, 4, 2, 1, 256)
"""Of dynamic dimensions, the first that are cheap enough and that a model accepts are used."""
_MIXED = 4
"""How many of them are tried in every combination."""
_BATCHES = (2, 1)
"""Batch sizes tried, 1 for models that have it written into them."""
_PRODUCTS = 2e9
"""Multiplications of one layer that take a tenth of a second on one core."""
_MEGABYTES = 16.0
"""Of one tensor that a layer makes, on its way too."""
_FLOAT_BYTES = 4
_SOURCES = 4
"""Nodes (quantisers, casts) that may lie between a constant and the layer that it is the kernel of."""


@frozen
class Cost:
    """What the most expensive convolution of a model takes for each place of its input.

    Args:
        products: Multiplications.
        bytes: Memory: the window's values beside each other, as a product of matrices wants them, or the result.
    """

    products: float = 0.0
    bytes: float = 0.0

    @classmethod
    def of(cls, model: OnnxModel) -> Cost:
        """Returns the cost of a model."""
        costs = [
            _cost(scope, node)
            for scope in model.scopes
            for op in ("Conv", "ConvTranspose")
            for node in (scope.columns.nodes[index] for index in scope.by_op.get(op, ()))
        ]
        return cls(max((c.products for c in costs), default=0.0), max((c.bytes for c in costs), default=0.0))

    def is_low(self, shapes: Shapes) -> bool:
        """Whether it is soon done with inputs of these shapes, were they those of every layer."""
        places = max((shape[0] * math.prod(shape[2:]) for shape in shapes.values() if len(shape) > 2), default=0)
        return self.products * places <= _PRODUCTS and self.bytes * places / 1e6 <= _MEGABYTES


def _cost(scope: Scope, node: onnx.NodeProto) -> Cost:
    kernel = _kernel(scope, node)
    if len(kernel) < 3:
        return Cost()
    strides: Sequence[int] = attribute(node, "strides", ())
    window, total = math.prod(kernel[2:]), math.prod(kernel)
    groups: int = attribute(node, "group", 1)
    if node.op_type == "ConvTranspose":
        columns, results = kernel[1] * groups * window, kernel[1] * groups * math.prod(strides)
    else:
        columns, results = kernel[1] * groups * window, kernel[0]
    return Cost(total, max(columns, results) * _FLOAT_BYTES)


def _kernel(scope: Scope, node: onnx.NodeProto) -> tuple[int, ...]:
    """Returns the shape of a kernel, empty where it is not a constant, nor quantised from one."""
    name = node.input[1] if len(node.input) > 1 else ""
    for _ in range(_SOURCES):
        tensor = scope.constant(name)
        if tensor is not None:
            return tuple(tensor.dims)
        maker = scope.producer(name)
        if maker is None or not maker.input:
            return ()
        name = maker.input[0]
    return ()


def assumed_shapes(model: OnnxModel, batches: Sequence[int] = _BATCHES) -> Iterator[Shapes]:
    """Yields input shapes to try: first those that cost little, the largest usual ones before others, then the rest.

    Dimensions that come first in a shape are taken for a batch and kept small.

    Args:
        batches: Batch sizes.
    """
    choices = list(_shapes(model, batches))
    # To find out what a model costs is to look at all its kernels.
    cost, dear = Cost.of(model) if len(choices) > 1 else Cost(), []
    for shapes in choices:
        if cost.is_low(shapes):
            yield shapes
        else:
            dear.append(shapes)
    yield from sorted(dear, key=elements_of)


def _shapes(model: OnnxModel, batches: Sequence[int]) -> Iterator[Shapes]:
    inputs, dims = model.inputs, dynamic_dims(model.inputs)
    batch = [name for name, places in dims.items() if all(place.endswith(":0") for place in places)]
    channels = dims_by_weights(model) if len(batch) < len(dims) else {}
    others = [name for name in dims if name not in batch and name not in channels]
    mixed = itertools.product(_SIZES[:_MIXED], repeat=len(others)) if 1 < len(others) <= 3 else ()
    choices = dict.fromkeys([*((size,) * len(others) for size in _SIZES), *mixed])
    for count, sizes in itertools.product(batches if batch else (1,), choices if others else [()]):
        by_name = {**dict.fromkeys(batch, count), **channels, **dict(zip(others, sizes, strict=True))}
        yield {s.name: tuple(d if isinstance(d, int) else by_name[d] for d in s.dims) for s in inputs}
