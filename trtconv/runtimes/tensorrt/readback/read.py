"""Reads a parsed network back through TensorRT's Python API, whichever version made it.

Kernels, biases and constants come as arrays over the parser's own memory: nothing is copied.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.runtimes.tensorrt.layers import dtype_name, enum_name, onnx_origin, sizes_of
from trtconv.runtimes.tensorrt.readback.records import NotProven, PluginIdentity, ReadLayer, ReadNetwork, ReadTensor
from trtconv.runtimes.tensorrt.readback.surface import ATTENTION, GROUPS, SURFACES
from trtconv.runtimes.tensorrt.readback.types import numpy_type, unpack

_FIRST, _SECOND = _PERMUTATION = ("first_transpose", "second_transpose")
_WEIGHTS = ("kernel", "bias", "weights", "shift", "scale", "power")
_ORDINARY = frozenset((int, float))
_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))
"""Types of values that are kept as they are, whatever they are of; what is not set is None."""
_HEADER_BYTES = 16
"""Of a Python object, before what a binding keeps in it."""


class UnreadWeights:
    """Weights that could not be read; a layer that needs them is not proven."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def read(trt: Any, network: Any) -> ReadNetwork:
    """Reads a network.

    Args:
        network: An `INetworkDefinition` that the parser filled; it, its parser and the model's bytes must live as long
            as what is returned.
    """
    reader = _Reader(trt)
    layers = tuple(reader.layer(network.get_layer(i), i) for i in range(network.num_layers))
    inputs = tuple(reader.number(network.get_input(i)) for i in range(network.num_inputs))
    outputs = tuple(reader.number(network.get_output(i)) for i in range(network.num_outputs))
    owners = (network, *reader.owners)
    # What reads values refers to the reader, which so lives until cycles are searched for; the network shall not.
    reader.owners.clear()
    return ReadNetwork(tuple(reader.tensors), layers, inputs, outputs, owners)


class _Interface:
    """How a kind of layer is read.

    Args:
        interface: The class that has its attributes.
        names: Those that this version has.
        readers: What reads the value of each.
    """

    def __init__(self, interface: Any, names: Sequence[str], readers: Sequence[Callable[[Any], Any]]) -> None:
        self.interface, self.names, self.readers = interface, names, readers
        # All in one call, in half the time.
        self.values_of: Callable[[Any], Iterable[Any]] = _getter(names)


def _getter(names: Sequence[str]) -> Callable[[Any], Iterable[Any]]:
    if len(names) < 2:
        return lambda layer: [getattr(layer, name) for name in names]
    return operator.attrgetter(*names)


def _set_value(layer: Any, name: str) -> Any:
    """Returns an attribute; None where it is not set, as block shapes and shapes of unknown rank may be."""
    try:
        return getattr(layer, name)
    except (RuntimeError, ValueError):
        return None


class _Reader:
    """Numbers tensors and groups as they are met; keeps the bindings' objects, whose identity is the number's key."""

    def __init__(self, trt: Any) -> None:
        self.trt = trt
        self.tensors: list[ReadTensor] = []
        self.owners: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._interfaces: dict[str, _Interface | None] = {}
        self._readers: dict[type, Callable[[Any], Any]] = {}
        """What reads values of each type: found out once, since there are ten in each layer."""

    def number(self, tensor: Any) -> int:
        """Returns a tensor's number."""
        key = id(tensor)
        number = self._numbers.get(key)
        if number is None:
            self.owners.append(tensor)
            number = self._numbers[key] = len(self.tensors)
            self.tensors.append(ReadTensor(number, tensor.name, dtype_name(tensor.dtype), _shape(tensor)))
        return number

    def layer(self, layer: Any, index: int) -> ReadLayer:
        """Reads one layer, as `get_layer` returned it."""
        self.owners.append(layer)
        # Read first: on some interfaces `type` means another thing.
        kind = enum_name(layer.type)
        inputs = (layer.get_input(i) for i in range(layer.num_inputs))
        outputs = (layer.get_output(i) for i in range(layer.num_outputs))
        node, inside = onnx_origin(layer.metadata, layer.name)
        operands = tuple([None if tensor is None else self.number(tensor) for tensor in inputs])
        results = tuple([self.number(tensor) for tensor in outputs if tensor is not None])
        values = self._values(layer, kind)
        if values.keys() & _PERMUTATION:
            values |= self._permutations(values, operands, results)
        return ReadLayer(index, layer.name, kind, operands, results, values, node, inside)

    def _values(self, layer: Any, kind: str) -> dict[str, object]:
        if kind not in self._interfaces:
            self._interfaces[kind] = self._interface_of(kind)
        surface = self._interfaces[kind]
        if surface is None:
            return {}
        # get_layer returns a plain ILayer; NVIDIA's own tools go down to the class of the layer in this way.
        layer.__class__ = surface.interface
        try:
            values = surface.values_of(layer)
        except (RuntimeError, ValueError):
            values = [_set_value(layer, name) for name in surface.names]
        return {
            name: value if type(value) in _AS_THEY_ARE else read_value(value)
            for name, value, read_value in zip(surface.names, values, surface.readers, strict=True)
        }

    def _interface_of(self, kind: str) -> _Interface | None:
        """Returns how a kind of layer is read; None: it has no attributes."""
        surface = SURFACES.get(kind)
        if surface is None:
            return None
        layer = getattr(self.trt, surface.interface)
        names = (*surface.attributes, *(name for name in surface.newer if hasattr(layer, name)))
        return _Interface(layer, names, [self._reader_for(name) for name in names])

    def _reader_for(self, name: str) -> Callable[[Any], Any]:
        """Returns what reads an attribute."""
        if name in GROUPS:
            return self._group
        if name in _PERMUTATION:
            return lambda value: tuple(int(axis) for axis in value)
        if name in _WEIGHTS:
            return weights_of
        return {"attention": self._attention, "plugin": self._plugin}.get(name, self._plain)

    def _permutations(
        self, values: Mapping[str, Any], inputs: tuple[int | None, ...], outputs: tuple[int, ...]
    ) -> dict[str, object]:
        """Returns permutations as long as the rank: there are always eight entries, and the rest has any value."""
        ends = {_FIRST: inputs[:1], _SECOND: outputs[:1]}
        shapes = {
            name: self.tensors[number].shape
            for name, numbers in ends.items()
            for number in numbers
            if name in values and number is not None
        }
        return {name: values[name][: len(shape)] for name, shape in shapes.items() if shape is not None}

    def _plain(self, value: Any) -> Any:
        kind = type(value)
        if kind not in self._readers:
            self._readers[kind] = self._reader_of(value)
        return self._readers[kind](value)

    def _reader_of(self, value: Any) -> Callable[[Any], Any]:
        """Returns what reads values of the type of this one."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return lambda value: value
        if isinstance(value, self.trt.ITensor):
            return lambda value: self.tensors[self.number(value)]
        return enum_name if hasattr(value, "name") else _elements

    def _plugin(self, value: Any) -> PluginIdentity:
        if hasattr(value, "plugin_type"):
            return PluginIdentity(value.plugin_type, value.plugin_version, value.plugin_namespace)
        core = value.get_capability_interface(self.trt.PluginCapabilityType.CORE)
        return PluginIdentity(core.plugin_name, core.plugin_version, core.plugin_namespace)

    def _group(self, value: Any) -> int:
        self.owners.append(value)
        return self._groups.setdefault(id(value), len(self._groups))

    def _attention(self, value: Any) -> Mapping[str, Any]:
        names = (*ATTENTION.attributes, *(name for name in ATTENTION.newer if hasattr(type(value), name)))
        return {"group": self._group(value), **{name: self._plain(getattr(value, name)) for name in names}}


def _elements(value: Any) -> tuple[Any, ...] | None:
    try:
        elements = sizes_of(value)
    except ValueError:  # `Dims` of unknown rank, as TensorRT 8.6 hands them out: their length is -1.
        return None
    if _ORDINARY.issuperset(map(type, elements)):
        return elements
    return tuple(element if isinstance(element, float) else int(element) for element in elements)


def _shape(tensor: Any) -> tuple[int, ...] | None:
    try:
        return sizes_of(tensor.shape)
    except (ValueError, RuntimeError):  # TensorRT could not infer it; a layer is then judged by what it computes.
        return None


def weights_of(value: Any) -> Any:
    """Returns weights as an array, flat or as they are; as `UnreadWeights` where the bindings do not give them."""
    if value is None or isinstance(value, np.ndarray):
        return _contiguous(value)
    if not value.size:
        return np.empty(0, np.float32)
    array = value.numpy()
    if isinstance(array, np.ndarray):
        return _contiguous(array)
    try:
        return _by_pointer(value)
    except NotProven as error:
        return UnreadWeights(error.reason)


def _contiguous(array: Any) -> Any:
    """Returns weights with the strides that they have.

    The bindings of TensorRT 8.6 were made for NumPy 1 and read the size of an element from another place than NumPy 2
    has it: every element of their arrays is then the first one.
    """
    if array is None or array.flags.c_contiguous:
        return array
    steps = np.empty(array.shape, np.bool_).strides
    return np.lib.stride_tricks.as_strided(array, array.shape, tuple(step * array.itemsize for step in steps))


class _Weights(ctypes.Structure):
    """TensorRT's `Weights`: element type, where the values lie, how many there are."""

    _fields_ = (("type", ctypes.c_int32), ("values", ctypes.c_void_p), ("count", ctypes.c_int64))


def _by_pointer(value: Any) -> Any:
    """Returns weights of a type that NumPy has not, which the bindings return as a wrapper without a pointer.

    The wrapper holds the address of the C++ structure behind the header that every Python object has. Whether it is
    that structure is seen from its type and count, which the bindings do tell.
    """
    dtype = dtype_name(value.dtype)
    address = ctypes.c_void_p.from_address(id(value) + _HEADER_BYTES).value
    if not address:
        raise NotProven(f"{dtype} weights cannot be read")
    weights = _Weights.from_address(address)
    if weights.type != int(value.dtype) or weights.count != value.size or not weights.values:
        raise NotProven(f"{dtype} weights cannot be read")
    element = numpy_type(dtype)
    packed = dtype in ("int4", "float4")
    size = (weights.count + 1) // 2 if packed else weights.count * element.itemsize
    raw = np.ctypeslib.as_array(ctypes.cast(weights.values, ctypes.POINTER(ctypes.c_uint8)), (size,))
    return unpack(raw, weights.count, dtype) if packed else raw.view(element)
