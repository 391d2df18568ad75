"""Channels of one tensor brought to the same size, so that one int8 scale suits them all.

Where a convolution's result goes through nothing but activations and pooling into other convolutions, a channel may be
made smaller in the first and larger in the others: a rectifier passes factors on. The same holds for matrix products,
and for what a normalisation scales by channel before it goes into them, where transformers have their outliers
(SmoothQuant's idea, https://arxiv.org/abs/2211.10438). With powers of two, every float result keeps every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.core.documents.rewrite import Edit
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Feeds
from trtconv.graph.attributes import attribute
from trtconv.graph.channels import relative_inputs, times_inputs, times_outputs
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.precision.quantize.operators import CONVOLUTIONS, PRODUCTS
from trtconv.precision.quantize.sessions import Probe

NAME = "equalize-channels"
_POOLS = frozenset({"MaxPool", "AveragePool"})
_HOMOGENEOUS = _POOLS | {"Relu", "LeakyRelu", "Identity", "Dropout"}
"""Operators that pass a positive factor of a channel on."""
_BY_CHANNEL = ("LayerNormalization", "Mul")
"""Operators without a weight that multiply channels of the last axis by constants."""
_LARGEST = 64.0
"""Factors beyond are of channels that hardly ever hold anything."""

Tell = Callable[[int, int], None]
Store = Callable[[str, NDArray[Any]], onnx.TensorProto]


def _inside(name: str, values: NDArray[Any]) -> onnx.TensorProto:
    return numpy_helper.from_array(values, name)


@frozen
class Link:
    """A layer whose channels can be scaled, because only other layers take them.

    Args:
        maker: Position of the layer.
        tensor: Its result, behind the activation.
        takers: Positions of the others, and the first of their input channels that is meant.
        axis: Of the channels: 1 of convolutions, -1 of matrix products.
        vectors: Constants that hold a number for each channel, and are scaled too: a bias, or those of a normalisation.
        weighted: Whether the layer has a weight whose output channels they are.
    """

    maker: int
    tensor: str
    takers: tuple[tuple[int, int], ...]
    axis: int
    vectors: tuple[str, ...]
    weighted: bool


def find_links(scope: Scope) -> list[Link]:
    """Returns the layers of the main graph whose channels can be scaled, in its order."""
    links = (_link(scope, index) for index in scope.positions(*CONVOLUTIONS, *PRODUCTS, *_BY_CHANNEL))
    return [link for link in links if link is not None]


def _link(scope: Scope, index: int) -> Link | None:
    node = scope.columns.nodes[index]
    weighted, axis = node.op_type not in _BY_CHANNEL, 1 if node.op_type in CONVOLUTIONS else -1
    slots = _by_channel(scope, node)
    if slots is None or (weighted and not _own_weight(scope, node)):
        return None
    vectors, tensor = tuple(node.input[slot] for slot in slots), node.output[0]
    if node.op_type in ("MatMul", "Mul"):
        added = _added_vector(scope, tensor, _is_column(scope, node))
        vectors, tensor = (vectors, tensor) if added is None else ((*vectors, added[0]), added[1])
    takers = _takers(scope, tensor, 0, axis) if all(_is_own(scope, name) for name in vectors) else None
    return Link(index, _rectified(scope, tensor), tuple(takers), axis, vectors, weighted) if takers else None


def _by_channel(scope: Scope, node: onnx.NodeProto) -> tuple[int, ...] | None:
    """Returns which inputs of a layer hold a number for each of its channels; None where the layer is of no use."""
    if node.op_type == "Mul":
        vectors = [
            slot
            for slot in (0, 1)
            if len(scope.shape(node.input[slot]) or ()) == 1 and _is_own(scope, node.input[slot])
        ]
        return tuple(vectors) if len(vectors) == 1 else None
    if node.op_type == "LayerNormalization" and (attribute(node, "axis", -1) != -1 or any(node.output[1:])):
        return None
    first = 1 if node.op_type == "LayerNormalization" else 2
    return tuple(slot for slot in range(first, len(node.input)) if node.input[slot])


def _is_column(scope: Scope, node: onnx.NodeProto) -> bool:
    """Whether a product has one channel, which what is added may spread to several."""
    return node.op_type in PRODUCTS and (scope.shape(node.input[1]) or ())[-1] == 1


def _added_vector(scope: Scope, tensor: str, is_column: bool) -> tuple[str, str] | None:
    """Returns the constant that an Add behind a tensor puts on its last axis, and the sum."""
    users = scope.consumers.get(tensor, ())
    if len(users) != 1 or users[0].op_type != "Add" or scope.uses_of(tensor) != 1:
        return None
    name = next((operand for operand in users[0].input if operand != tensor), "")
    shape = scope.shape(name) or ()
    if len(shape) != 1 or (is_column and shape != (1,)) or not _is_own(scope, name):
        return None
    return name, users[0].output[0]


def _is_own(scope: Scope, name: str) -> bool:
    """Whether a tensor is a float32 initializer that no other node uses."""
    return scope.initializer(name) is not None and scope.dtype(name) == "float32" and scope.uses_of(name) == 1


def _own_weight(scope: Scope, node: onnx.NodeProto) -> bool:
    is_shaped = node.op_type in CONVOLUTIONS or len(scope.shape(node.input[1]) or ()) == 2
    return is_shaped and _is_own(scope, node.input[1])


def _rectified(scope: Scope, tensor: str) -> str:
    users = scope.consumers.get(tensor, ())
    if len(users) == 1 and users[0].op_type in ("Relu", "LeakyRelu"):
        return str(users[0].output[0])
    return tensor


def _takers(scope: Scope, tensor: str, first: int, axis: int) -> list[tuple[int, int]] | None:
    """Returns the layers that a tensor goes into; None where it goes anywhere else."""
    users = scope.consumers.get(tensor, ())
    if not users or scope.uses_of(tensor) != len(users):
        return None
    takers: list[tuple[int, int]] = []
    for node in users:
        inside = _taken_by(scope, node, tensor, first, axis)
        if inside is None:
            return None
        takers += inside
    return takers


def _taken_by(scope: Scope, node: onnx.NodeProto, tensor: str, first: int, axis: int) -> list[tuple[int, int]] | None:
    if node.domain not in ONNX_DOMAINS:
        return None
    passing = _HOMOGENEOUS if axis == 1 else _HOMOGENEOUS - _POOLS
    if node.op_type in passing and len([name for name in node.output if name]) == 1:
        return _takers(scope, node.output[0], first, axis)
    if node.op_type == "Concat" and axis == 1:
        before = _channels_before(scope, node, tensor)
        return None if before is None else _takers(scope, node.output[0], first + before, axis)
    if node.op_type not in (CONVOLUTIONS if axis == 1 else PRODUCTS) or list(node.input).count(tensor) != 1:
        return None
    if node.input[0] != tensor or not _own_weight(scope, node) or attribute(node, "transA"):
        return None
    weight = scope.values(node.input[1])
    if weight is None or relative_inputs(weight, layout_of(node), groups_of(node)) is None:
        return None
    return [(scope.producers[node.output[0]], first)]


def layout_of(node: onnx.NodeProto) -> str:
    """Returns the operator in whose order a weight has its channels: a matrix is a kernel without taps."""
    if node.op_type in CONVOLUTIONS:
        return str(node.op_type)
    return "Conv" if attribute(node, "transB") else "ConvTranspose"


def _channels_before(scope: Scope, node: onnx.NodeProto, tensor: str) -> int | None:
    """Returns the channels that a Concat puts in front of a tensor; None where that is not known."""
    names = list(node.input)
    if attribute(node, "axis") != 1 or names.count(tensor) != 1:
        return None
    shapes = [scope.shape(name) for name in names[: names.index(tensor)]]
    sizes = [shape[1] if shape is not None and len(shape) > 1 else None for shape in shapes]
    return None if None in sizes else sum(size or 0 for size in sizes)


def groups_of(node: onnx.NodeProto) -> int:
    """Returns the number of groups of a Conv or ConvTranspose."""
    return int(attribute(node, "group", 1))


def sizes_by_channel(
    model: OnnxModel, tensors: Mapping[str, int], samples: Sequence[Feeds], tell: Tell
) -> dict[str, list[float]]:
    """Returns tensor to the root of the mean square in each of its channels.

    Not the largest value, which is a matter of chance.

    Args:
        model: The float model.
        tensors: Tensor to the axis of its channels.
        samples: Inputs.
        tell: Hears how many samples are done, of how many.
    """

    def heard() -> Iterator[Feeds]:
        for number, feeds in enumerate(samples, start=1):
            yield feeds
            tell(number, len(samples))

    means = Probe(model, tuple(tensors)).channel_means(tensors, heard(), squared=True)
    return {name: [float(size) for size in np.sqrt(mean)] for name, mean in means.items()}


def equalize(
    model: OnnxModel, links: Sequence[Link], sizes: Mapping[str, Sequence[float]], store: Store = _inside
) -> tuple[Edit, ...]:
    """Scales the channels of some layers, in place.

    Args:
        model: The float model.
        links: Its layers, as `find_links` gives them.
        sizes: Tensor to the root mean square in each channel.
        store: Makes a constant of a name and values.

    Returns:
        What was done; every float result of the network is what it was.
    """
    graph = _ScaledWeights(model, store)
    edits = []
    for link in links:
        factors = graph.factors(link, np.asarray(sizes[link.tensor], np.float64))
        if factors is None or (factors == 1).all():
            continue
        graph.scale(link, factors)
        name = model.main.columns.nodes[link.maker].name
        what = f"{int((factors != 1).sum())} of {factors.size} channels scaled, by powers of two, and back behind it"
        edits.append(Edit(NAME, name, what))
    model.touch()
    return tuple(edits)


class _ScaledWeights:
    """The weights of a model, while they are scaled."""

    def __init__(self, model: OnnxModel, store: Store) -> None:
        self._scope = model.main
        self._nodes = model.main.columns.nodes
        self._store = store

    def factors(self, link: Link, sizes: NDArray[np.float64]) -> NDArray[np.float32] | None:
        """Returns what each channel is divided by: where the values are large and the weights behind them small."""
        weights = np.zeros_like(sizes)
        for index, first in link.takers:
            node = self._nodes[index]
            inputs = relative_inputs(self._values(node.input[1]), layout_of(node), groups_of(node))
            if inputs is None or first + sizes.size > inputs.size:
                return None
            weights = np.maximum(weights, inputs[first : first + sizes.size])
        mask = (sizes > 0) & (weights > 0)
        ratio = np.sqrt(np.divide(sizes, weights, out=np.ones_like(sizes), where=mask))
        middle = float(np.median(ratio[mask])) if mask.any() else 1.0
        bounded = np.clip(np.where(mask, ratio, middle), middle / _LARGEST, middle * _LARGEST)
        rounded: NDArray[np.float32] = np.exp2(np.rint(np.log2(bounded))).astype(np.float32)
        return rounded

    def scale(self, link: Link, factors: NDArray[np.float32]) -> None:
        """Divides the channels that a layer makes, and multiplies them in the layers that take them."""
        maker = self._nodes[link.maker]
        if link.weighted:
            weight = self._values(maker.input[1])
            self._change(maker.input[1], times_outputs(weight, 1 / factors, layout_of(maker), groups_of(maker)))
        for name in link.vectors:
            self._change(name, self._values(name) / factors)
        for index, first in link.takers:
            node = self._nodes[index]
            self._change(node.input[1], self._times(node, first, factors))

    def _times(self, node: onnx.NodeProto, first: int, factors: NDArray[np.float32]) -> NDArray[Any]:
        weight = self._values(node.input[1])
        inputs = relative_inputs(weight, layout_of(node), groups_of(node))
        assert inputs is not None
        whole = np.ones(inputs.size, np.float32)
        whole[first : first + factors.size] = factors
        return times_inputs(weight, whole, layout_of(node), groups_of(node))

    def _values(self, name: str) -> NDArray[Any]:
        values = self._scope.values(name)
        assert values is not None
        return values

    def _change(self, name: str, values: NDArray[Any]) -> None:
        """Stored at once: all weights together are as large as the model."""
        self._scope.initializers[name].CopyFrom(self._store(name, values))


def linked_tensors(links: Sequence[Link]) -> dict[str, int]:
    """Returns the tensors whose channels have to be known, with the axis of these."""
    return {link.tensor: link.axis for link in links}
