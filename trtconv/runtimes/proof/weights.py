"""Every weight of a parsed network, held bit for bit to the one of its ONNX node.

What TensorRT's parsers do to weights on the way is little, and told apart here: nothing; another type (double to
float32, int64 to int32); batch normalisation as one scale and one shift, which are computed again; matrices and the
gates of recurrent nodes in another order. What else is in a network is the parser's own (the 1 of a reciprocal,
shapes), and for the runs of the network to judge.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx

from trtconv.core.documents.proof import WeightCounts
from trtconv.core.findings import Location
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.graph.attributes import attribute
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.runtimes.proof.batch_norm import Folded, folded
from trtconv.runtimes.proof.bits import elements, leave, same_bits, stored
from trtconv.runtimes.proof.origin import Derivation, constants
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

_ATTRIBUTES = ("kernel", "bias", "weights", "shift", "scale", "power")
_POSITIONS = {op: {"kernel": 1, "bias": 2} for op in ("Conv", "ConvTranspose")}
"""Which input of a node a weight is, where each is one for sure."""
_REORDERED = ("Gemm", "MatMul", "LSTM", "GRU", "RNN", "Einsum")
"""Operators whose constants a parser hands on in another order."""
_OWN_NAMES = ("tmp_weight", "ONNXTRT_")
"""Of constants that parsers make themselves; a model's that are called so are looked for by their values."""
_NUMBERED = re.compile(r"_\d+$")


class Relation(enum.Enum):
    """What a weight of a network is to the model."""

    EQUAL = "equal"
    DERIVED = "derived"
    DIFFERENT = "different"
    OWN = "own"


@frozen
class Weight:
    """A weight of a network.

    Args:
        layer: Its layer.
        attribute: Which weights of it.
        values: The values, flat or not.
    """

    layer: ReadLayer
    attribute: str
    values: Array


@frozen
class Account:
    """What a weight of a network was found to be.

    Args:
        weight: The weight.
        relation: What it is to the model.
        sources: Names of the model's constants that it was held to.
        place: The node that has them.
    """

    weight: Weight
    relation: Relation
    sources: tuple[str, ...] = ()
    place: Location = Location()


def weights(network: ReadNetwork) -> Iterator[Weight]:
    """Yields every weight of a network that could be read and is not empty."""
    for layer in network.layers:
        for name in _ATTRIBUTES:
            values = layer.values.get(name)
            if isinstance(values, np.ndarray) and values.size:
                yield Weight(layer, name, values)


def forget(network: ReadNetwork) -> None:
    """Gives back the memory of a network's weights, which nobody may ask for any more; those that lie in a parser's own
    are its affair."""
    if network.keep_alive is not None:
        return
    for layer in network.layers:
        for name in layer.values.keys() & _ATTRIBUTES:
            del layer.values[name]


def accounts(network: ReadNetwork, model: OnnxModel) -> Iterator[Account]:
    """Yields what each weight of a network is.

    Args:
        network: What TensorRT's parser made.
        model: What it was given.
    """
    stock = _Stock(model)
    for weight in weights(network):
        yield _account(network, stock, weight)


@frozen
class Weighed:
    """How many weights of a network were shown to be those of the file.

    Args:
        equal: Bit for bit as the file has them.
        derived: Derived from the file's again: cast, moved or folded.
        of: All weights that a model gave.
        different: Those that are others.
    """

    equal: int
    derived: int
    of: int
    different: tuple[Account, ...] = ()

    @property
    def counts(self) -> WeightCounts:
        """What a document says of it."""
        return WeightCounts(self.equal, self.derived, self.of)


def weigh(network: ReadNetwork, model: OnnxModel, origin: Mapping[str, Derivation]) -> Weighed:
    """Holds every weight of a network to the file behind its model.

    Args:
        network: What TensorRT's parser made.
        model: What it was given.
        origin: Where that model's constants come from.
    """
    equal = derived = own = total = 0
    different = []
    for account in accounts(network, model):
        total += 1
        leave(account.weight.values)
        origins = {origin.get(name, Derivation.COMPUTED) for name in account.sources}
        if account.relation is Relation.DIFFERENT:
            different.append(account)
        elif account.relation is Relation.OWN:
            # Single numbers and integers are for what computes with them to show.
            own += account.weight.values.size == 1 or account.weight.values.dtype.kind in "iub"
        elif account.relation is Relation.EQUAL and origins == {Derivation.FILE}:
            equal += 1
        elif origins <= {Derivation.FILE, Derivation.DERIVED}:
            derived += 1
    return Weighed(equal, derived, total - own, tuple(different))


class _Place(NamedTuple):
    """A node in its graph."""

    scope: Scope
    at: int

    @property
    def node(self) -> onnx.NodeProto:
        return self.scope.columns.nodes[self.at]

    @property
    def location(self) -> Location:
        return self.scope.location(self.at)


class _Constant(NamedTuple):
    """A constant of the model, and the name of the tensor that it is."""

    name: str
    tensor: onnx.TensorProto

    @property
    def size(self) -> int:
        return math.prod(self.tensor.dims)


class _Stock:
    """The constants of a model, by name, by node and by size."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self._nodes: dict[str, list[_Place]] = {}
        self._makers: dict[str, list[_Place]] = {}
        self._named: dict[str, list[_Constant]] = {}
        self._sized: dict[int, list[_Constant]] = {}
        for scope in model.scopes:
            for index, (name, outputs) in enumerate(zip(scope.columns.names, scope.columns.outputs, strict=True)):
                place = _Place(scope, index)
                self._nodes.setdefault(name, []).append(place)
                for output in outputs:
                    self._makers.setdefault(output, []).append(place)
        for name, tensor in constants(model):
            constant = _Constant(name, tensor)
            self._named.setdefault(name, []).append(constant)
            self._sized.setdefault(constant.size, []).append(constant)

    def places(self, network: ReadNetwork, layer: ReadLayer) -> list[_Place]:
        """Returns the nodes that a layer may be of: that which makes its result, or has its name."""
        for number in layer.outputs:
            places = self._makers.get(network.tensors[number].name)
            if places:
                return places
        return self._nodes.get(layer.onnx_node, []) or self._nodes.get(layer.name, [])

    def named(self, name: str) -> list[_Constant]:
        """Returns the constants that a layer's name speaks of; parsers number those that are used again."""
        if name.startswith(_OWN_NAMES):
            return []
        return self._named.get(name, []) or self._named.get(_NUMBERED.sub("", name), [])

    def sized(self, count: int) -> list[_Constant]:
        """Returns all constants of so many elements."""
        return self._sized.get(count, [])

    def read_by(self, place: _Place, attribute: str) -> Iterator[_Constant]:
        """Yields the constants that a node reads, of which one is to be a weight of its layer."""
        position = _POSITIONS.get(place.node.op_type, {}).get(attribute)
        for name in place.node.input if position is None else place.node.input[position : position + 1]:
            tensor = place.scope.constant(name)
            if tensor is not None:
                yield _Constant(name, tensor)

    def reader(self, name: str) -> Location:
        """Returns the place of the first node that reads a constant."""
        for scope in self.model.scopes:
            for index, inputs in enumerate(scope.columns.inputs):
                if name in inputs:
                    return scope.location(index, name)
        return Location(tensor=name)

    def array(self, constant: _Constant) -> Array:
        """Returns a constant's values."""
        return self.model.array(constant.tensor)


def _account(network: ReadNetwork, stock: _Stock, weight: Weight) -> Account:
    layer, size = weight.layer, weight.values.size
    if layer.kind == "CONSTANT":
        named = [constant for constant in stock.named(layer.name) if constant.size == size]
        return _account_of(stock, weight, named, None) if named else _own(stock, weight)
    places = stock.places(network, layer)
    for place in places:
        if place.node.op_type == "BatchNormalization":
            return _normalization(weight, place)
    read = [
        constant for place in places for constant in stock.read_by(place, weight.attribute) if constant.size == size
    ]
    moved = any(place.node.op_type in _REORDERED for place in places)
    return _account_of(stock, weight, read, places[0], moved=moved) if read else _own(stock, weight)


def _account_of(
    stock: _Stock, weight: Weight, sources: Sequence[_Constant], place: _Place | None, *, moved: bool = False
) -> Account:
    """Holds a weight to constants one of which it must be."""
    for constant in sources:
        if same_bits(weight.values, stored(stock.model, constant.tensor)):
            return Account(weight, Relation.EQUAL, (constant.name,))
    for constant in sources:
        if moved and np.array_equal(
            elements(weight.values), elements(stock.array(constant).astype(weight.values.dtype))
        ):
            return Account(weight, Relation.DERIVED, (constant.name,))
    names = tuple(dict.fromkeys(constant.name for constant in sources))
    return Account(weight, Relation.DIFFERENT, names, place.location if place else stock.reader(names[0]))


def _own(stock: _Stock, weight: Weight) -> Account:
    """Looks for a weight among all constants; single numbers are many, and shown by what computes with them."""
    for constant in stock.sized(weight.values.size) if weight.values.size > 1 else ():
        if same_bits(weight.values, stored(stock.model, constant.tensor)):
            return Account(weight, Relation.EQUAL, (constant.name,))
    return Account(weight, Relation.OWN)


def _normalization(weight: Weight, place: _Place) -> Account:
    """Holds scale or shift to what the definition of BatchNormalization makes of its four constants, in float64."""
    node, scope = place.node, place.scope
    arrays = [scope.values(name) for name in node.input[1:5]]
    parameters = [array for array in arrays if array is not None]
    if len(parameters) != 4:
        return Account(weight, Relation.OWN)
    scale, shift = folded(parameters, attribute(node, "epsilon", 1e-5))
    ones = np.ones_like(scale.values)
    expected = {"scale": scale, "shift": shift, "power": Folded(ones, ones)}.get(weight.attribute)
    if expected is None or expected.values.size != weight.values.size:
        return Account(weight, Relation.OWN)
    close = expected.near(weight.values.reshape(-1)) | ~np.isfinite(expected.values)
    relation = Relation.DERIVED if bool(close.all()) else Relation.DIFFERENT
    return Account(weight, relation, tuple(node.input[1:5]), place.location)
