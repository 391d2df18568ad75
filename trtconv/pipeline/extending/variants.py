"""Models like the one of a page: other weights, sizes, attributes and uses, at random, as far as they are valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.random import Generator
from numpy.typing import NDArray
from onnx import AttributeProto, numpy_helper

from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.passes.base import complaint
from trtconv.pipeline.extending.drawing import KINDS
from trtconv.runtimes.onnxruntime import numpy_type

_COUNT = 48
_SIZES = (1, 2, 3, 4, 5, 8)
_LARGE = 100.0


@frozen
class Variant:
    """A model, and inputs for it.

    Args:
        model: The model.
        feeds: Inputs by name.
        what: How it came about, in words.
    """

    model: OnnxModel
    feeds: Mapping[str, NDArray[Any]]
    what: str


def variants(model: OnnxModel) -> Iterator[Variant]:
    """Yields a model as it is, and then changed at random, each with random inputs; the same every time."""
    for number in range(_COUNT):
        random = np.random.default_rng(number)
        changes: list[str] = []
        changed = model.copy()
        if number >= len(KINDS):
            for change in (_weights, _attributes, _axes, _use):
                if random.random() < 0.5:
                    changes += change(changed, random)
            changed.touch()
        if complaint(changed.without_weights()) is None:
            feeds = _feeds(changed, random, KINDS[number % len(KINDS)])
            yield Variant(changed, feeds, f"the page's model with {', '.join(changes) or 'other inputs'}")


def _feeds(model: OnnxModel, random: Generator, values: Callable[..., NDArray[Any]]) -> dict[str, NDArray[Any]]:
    sizes: dict[Any, int] = {}
    feeds = {}
    for spec in model.inputs:
        shape = tuple(d if isinstance(d, int) else sizes.setdefault(d, int(random.choice(_SIZES))) for d in spec.dims)
        feeds[spec.name] = np.asarray(values(random, shape, _LARGE)).astype(numpy_type(spec))
    return feeds


def _weights(model: OnnxModel, random: Generator) -> list[str]:
    """Gives a float weight other values."""
    floats = [tensor for tensor in model.proto.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    if not floats:
        return []
    tensor = floats[int(random.integers(len(floats)))]
    values = KINDS[int(random.integers(len(KINDS)))](random, tuple(tensor.dims), _LARGE)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(values, np.float32), tensor.name))
    return [f"other values of {tensor.name!r}"]


def _attributes(model: OnnxModel, random: Generator) -> list[str]:
    """Gives a number among the attributes another value, or leaves an attribute out."""
    places = [
        (node, attribute)
        for node in model.proto.graph.node
        for attribute in node.attribute
        if attribute.type in (AttributeProto.FLOAT, AttributeProto.INT)
    ]
    if not places:
        return []
    node, attribute = places[int(random.integers(len(places)))]
    change = f"another {attribute.name} of {node.op_type}"
    if random.random() < 0.3:
        node.attribute.remove(attribute)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = float(random.choice((0.0, 1.0, -1.0, 0.5, attribute.f * 2)))
    else:
        attribute.i = int(random.choice((0, 1, -1, 2, attribute.i + 1)))
    return [change]


def _axes(model: OnnxModel, random: Generator) -> list[str]:
    """Gives a constant of one number axes of its own, which may show in results."""
    graph = model.proto.graph
    single = [tensor for tensor in graph.initializer if math.prod(tensor.dims) == 1]
    if not single:
        return []
    tensor = single[int(random.integers(len(single)))]
    tensor.dims.extend([1] * int(random.integers(1, 4)))
    for value in graph.output:
        kind = value.type.tensor_type
        axes = max(len(kind.shape.dim), len(tensor.dims))
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind.elem_type, [None] * axes))
    del graph.value_info[:]
    return [f"more axes of {tensor.name!r}"]


def _use(model: OnnxModel, random: Generator) -> list[str]:
    """Makes a tensor inside the model one of its outputs, as a skip connection or a debugger does."""
    outputs = set(model.outputs)
    inner = [name for node in model.proto.graph.node for name in node.output if name and name not in outputs]
    if not inner:
        return []
    name = inner[int(random.integers(len(inner)))]
    infos = [value for value in model.whole.inferred[0] if value.name == name]
    if not infos:
        return []
    model.proto.graph.output.append(infos[0])
    return [f"{name!r} among its outputs"]
