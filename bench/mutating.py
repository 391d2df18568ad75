"""What can be changed about a parsed network through TensorRT's API: one attribute or weight of one layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.runtimes.tensorrt.layers import enum_name
from trtconv.runtimes.tensorrt.readback.read import weights_of
from trtconv.runtimes.tensorrt.readback.surface import SURFACES

Setter = Callable[[Any], None]
"""Changes a layer, already of its own class."""

_EXCHANGED = {"ELEMENTWISE": (0, 1), "SELECT": (1, 2), "CONCATENATION": (0, 1), "MATRIX_MULTIPLY": (0, 1)}
_EXCHANGED |= {"CONDITIONAL_OUTPUT": (0, 1)}
_PERMUTATIONS = ("first_transpose", "second_transpose")
_MASKS = ("axes",)
_FACTORS = (1.01, 1.1, 1.5, -1.0)
_UNSET = ("loop", "conditional", "attention", "num_output_maps")
_LARGEST_AXES = 8


@frozen
class Change:
    """One change of one layer.

    Args:
        kind: The layer's kind.
        index: Its number.
        attribute: What is changed.
        how: In words.
        apply: Changes it.
    """

    kind: str
    index: int
    attribute: str
    how: str
    apply: Setter


def typed(trt: Any, layer: Any) -> str:
    """Gives a layer, as `get_layer` returns it, the class of its kind; returns the kind."""
    kind = enum_name(layer.type)
    if kind in SURFACES:
        layer.__class__ = getattr(trt, SURFACES[kind].interface)
    return kind


def changes(trt: Any, network: Any, random: np.random.Generator, kept: list[Any]) -> list[Change]:
    """Returns every change that is known for a network.

    Args:
        trt: The TensorRT module.
        network: An `INetworkDefinition`.
        random: Chooses elements and channels.
        kept: Where arrays are put that must live as long as the network.
    """
    found = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        original = layer.__class__
        kind = typed(trt, layer)
        surface = SURFACES.get(kind)
        for name in () if surface is None else (*surface.attributes, *surface.newer):
            for how, value in _values(layer, name, random, kept):
                found.append(Change(kind, index, name, how, _setter(name, value)))
        if kind in _EXCHANGED and layer.num_inputs > max(_EXCHANGED[kind]):
            found.append(Change(kind, index, "inputs", "exchanged", _exchange(*_EXCHANGED[kind])))
        layer.__class__ = original
    return found


def apply(trt: Any, network: Any, change: Change) -> None:
    """Makes a change; raises what TensorRT's bindings raise where they do not take it."""
    layer = network.get_layer(change.index)
    original = layer.__class__
    typed(trt, layer)
    try:
        change.apply(layer)
    finally:
        layer.__class__ = original


def _setter(name: str, value: Any) -> Setter:
    return lambda layer: setattr(layer, name, value)


def _exchange(first: int, second: int) -> Setter:
    def exchange(layer: Any) -> None:
        tensors = layer.get_input(first), layer.get_input(second)
        layer.set_input(first, tensors[1])
        layer.set_input(second, tensors[0])

    return exchange


def _values(layer: Any, name: str, random: np.random.Generator, kept: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yields other values of an attribute, with what is other about them."""
    try:
        value = None if name in _UNSET else getattr(layer, name)
    except (RuntimeError, ValueError, AttributeError):
        return
    if isinstance(value, np.ndarray) or hasattr(value, "numpy"):
        array = weights_of(value)
        if isinstance(array, np.ndarray) and array.size:
            yield from _arrays(layer, name, array.copy(), random, kept)
    elif name in _PERMUTATIONS:
        yield from _permutations(layer, value)
    elif hasattr(type(value), "__members__"):
        kind: Any = type(value)
        yield from (
            (f"{enum_name(value)} to {enum_name(other)}", other)
            for other in kind.__members__.values()
            if other != value
        )
    elif isinstance(value, (bool, int, float, str)):
        yield from ((f"{value} to {other}", other) for other in _plain(name, value))
    else:
        yield from _dims(value)


def _plain(name: str, value: Any) -> list[Any]:
    """Returns other values of a number, a flag or an equation."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        head, _, tail = value.partition("->")
        return [f"{head}->{tail[::-1]}"]
    if isinstance(value, float):
        return [value * 1.1, value + 0.1, value * 1e3] if value else [0.1, 1.0]
    return (
        sorted({value << 1, value >> 1, value | value << 1} - {value, 0}) if name in _MASKS else [value + 1, value - 1]
    )


def _arrays(
    layer: Any, name: str, array: Any, random: np.random.Generator, kept: list[Any]
) -> Iterator[tuple[str, Any]]:
    flat = array.reshape(-1)
    rows = max(int(getattr(layer, "num_output_maps", 0)), 1)
    channel = int(random.integers(rows)) if rows > 1 and flat.size % rows == 0 else None
    one = int(np.argsort(np.abs(flat.astype(np.float64)))[flat.size // 2])
    made: list[tuple[str, Any]] = []
    if flat.dtype.kind == "f":
        made += [(f"x {factor}", flat * flat.dtype.type(factor)) for factor in _FACTORS]
        made += [(f"element {one} {what}", _with(flat, one, value)) for what, value in _moved(flat, one)]
        if channel is not None and name == "kernel":
            part = slice(channel * (flat.size // rows), (channel + 1) * (flat.size // rows))
            made.append((f"channel {channel} x 1.3", _with(flat, part, flat[part] * flat.dtype.type(1.3))))
    elif flat.dtype.kind == "b":
        made.append(("inverted", ~flat))
    else:
        made.append((f"element {one} + 1", _with(flat, one, flat[one] + 1)))
    if flat.size > 1:
        made += [("reversed", flat[::-1]), ("rolled", np.roll(flat, 1))]
    for how, values in made:
        changed = np.ascontiguousarray(values, array.dtype).reshape(array.shape)
        if changed.tobytes() != array.tobytes():
            kept.append(changed)
            yield how, changed


def _moved(flat: Any, at: int) -> Iterator[tuple[str, Any]]:
    value = flat[at]
    yield "x 1.2", value * flat.dtype.type(1.2)
    yield "+ 1", value + flat.dtype.type(1)


def _with(flat: Any, at: Any, value: Any) -> Any:
    copy = flat.copy()
    copy[at] = value
    return copy


def _permutations(layer: Any, value: Any) -> Iterator[tuple[str, Any]]:
    source = layer.get_input(0)
    try:
        rank = len(source.shape)
    except ValueError:
        return
    held = [int(each) for each in value]
    for a, b in itertools.combinations(range(min(rank, _LARGEST_AXES)), 2):
        other = list(held)
        other[a], other[b] = other[b], other[a]
        yield f"{held[:rank]} to {other[:rank]}", type(value)(other[:rank])


def _dims(value: Any) -> Iterator[tuple[str, Any]]:
    try:
        held = [value[i] for i in range(len(value))]
    except (TypeError, ValueError):
        return
    if not all(isinstance(each, (int, float)) for each in held):
        return
    for position, step in itertools.product(range(len(held)), (1, -1)):
        other = list(held)
        other[position] += step
        yield f"{held} to {other}", tuple(other)
