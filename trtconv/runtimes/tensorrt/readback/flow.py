"""Loops and conditionals: which layers belong to which, and what a loop starts from and returns."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven, ReadLayer, ReadNetwork

BOUNDARIES = ("CONDITION", "CONDITIONAL_INPUT")
"""Layers that hand on their first input."""
LOOP_LAYERS = ("RECURRENCE", "ITERATOR", "TRIP_LIMIT", "LOOP_OUTPUT")
"""Layers that a loop is made of."""
_VARYING = ("RECURRENCE", "ITERATOR")


@frozen
class Loop:
    """A loop.

    Args:
        number: Its number.
        boundary: Its layers.
        varying: Numbers of the tensors that change with each pass.
    """

    number: int
    boundary: tuple[ReadLayer, ...]
    varying: frozenset[int]

    def of_kind(self, kind: str) -> tuple[ReadLayer, ...]:
        """Returns its layers of a kind."""
        return tuple(layer for layer in self.boundary if layer.kind == kind)

    @property
    def recurrences(self) -> tuple[ReadLayer, ...]:
        """Values that go from one pass to the next."""
        return self.of_kind("RECURRENCE")

    @property
    def outputs(self) -> tuple[ReadLayer, ...]:
        """Its results."""
        return self.of_kind("LOOP_OUTPUT")

    @property
    def condition(self) -> int | None:
        """Number of the tensor that says whether there is another pass."""
        return next((layer.inputs[0] for layer in self.of_kind("TRIP_LIMIT") if layer.values["kind"] == "WHILE"), None)

    @property
    def needs(self) -> list[int]:
        """Numbers of the tensors that must be known before the first pass."""
        numbers = [layer.inputs[0] for layer in (*self.recurrences, *self.of_kind("ITERATOR"))]
        numbers += [layer.inputs[0] for layer in self.of_kind("TRIP_LIMIT") if layer.values["kind"] == "COUNT"]
        numbers += [layer.inputs[1] for layer in self.outputs if len(layer.inputs) > 1]
        numbers += [source for layer in self.outputs if (source := layer.inputs[0]) not in self.varying]
        return list(dict.fromkeys(number for number in numbers if number is not None and number not in self.varying))

    def start(self, recurrence: ReadLayer) -> int:
        """Returns the tensor with a recurrence's first value."""
        return _present(recurrence, 0)

    def back(self, recurrence: ReadLayer) -> int:
        """Returns the tensor with a recurrence's next value."""
        return _present(recurrence, 1)

    def source(self, output: ReadLayer) -> int:
        """Returns the tensor that a result is made of."""
        return _present(output, 0)

    def trips(self, values: Mapping[int, Any]) -> int | None:
        """Returns how many passes there are at most, None where only a condition ends them."""
        counts = [values[_present(layer, 0)] for layer in self.of_kind("TRIP_LIMIT") if layer.values["kind"] == "COUNT"]
        if not counts and self.condition is None:
            raise NotProven("its loop has no limit")
        return min((int(count.reshape(())) for count in counts), default=None)

    def items(self, frame: Mapping[int, Any], index: int) -> dict[int, Array]:
        """Returns what its iterators have in a pass."""
        slices = {}
        for layer in self.of_kind("ITERATOR"):
            values, axis = frame[_present(layer, 0)], layer.values["axis"]
            place = values.shape[axis] - 1 - index if layer.values["reverse"] else index
            if not 0 <= place < values.shape[axis]:
                raise Malformed("its loop goes on beyond what it runs over")
            slices[layer.outputs[0]] = values.take(place, axis)
        return slices

    def collects(self, output: ReadLayer) -> bool:
        """Returns whether a result is made of the values of all passes."""
        return bool(output.values["kind"] != "LAST_VALUE")

    def result(
        self, output: ReadLayer, collected: Mapping[int, list[Any]], state: Mapping[int, Any], values: Mapping[int, Any]
    ) -> Any:
        """Returns a result after the last pass, or as `NotProven` why there is none.

        A last value is that of a recurrence. What is collected has the length that the loop was told; where it ended
        earlier the rest is undefined.
        """
        source = self.source(output)
        if not self.collects(output):
            return state[source] if source in state else values.get(source, NotProven("its last value is not known"))
        parts, axis = collected[output.index], output.values["axis"]
        if any(not isinstance(part, np.ndarray) for part in parts):
            return next(part for part in parts if not isinstance(part, np.ndarray))
        length = int(values[_present(output, 1)].reshape(())) if len(output.inputs) > 1 else len(parts)
        if length != len(parts) or not parts:
            return NotProven(f"its loop ended after {len(parts)} of {length} passes")
        return np.stack(parts[::-1] if output.values["kind"] == "REVERSE" else parts, axis)


def _present(layer: ReadLayer, position: int) -> int:
    number = layer.inputs[position] if position < len(layer.inputs) else None
    if number is None:
        raise NotProven(f"{layer.kind} has no input {position}")
    return number


class Flow:
    """What of a network is in which loop, and what is read how often."""

    def __init__(self, network: ReadNetwork) -> None:
        self._network = network
        self.conditions = {
            layer.values["conditional"]: _present(layer, 0) for layer in network.layers if layer.kind == "CONDITION"
        }
        """Of each conditional the tensor that decides."""
        self.loops_of = _loops_of(network)
        """For each tensor the loops with whose passes it changes."""
        self.loops = self._loops()
        """Every loop by its number."""

    def _loops(self) -> dict[int, Loop]:
        layers: dict[int, list[ReadLayer]] = {}
        for layer in self._network.layers:
            if layer.kind in LOOP_LAYERS:
                layers.setdefault(layer.values["loop"], []).append(layer)
        return {
            number: Loop(
                number, tuple(group), frozenset(tensor for tensor, loops in enumerate(self.loops_of) if number in loops)
            )
            for number, group in layers.items()
        }

    def uses(self) -> dict[int, int]:
        """Returns how often each tensor is read, of those that can be dropped when the last reader has run.

        What a loop or a conditional reads is kept: how often it is read is not known beforehand.
        """
        others = set(self._network.outputs)
        counts: collections.Counter[int] = collections.Counter()
        for layer in self._network.layers:
            present = {number for number in layer.inputs if number is not None}
            counts.update(present)
            makes_loop = any(self.loops_of[number] for number in (*present, *layer.outputs))
            if layer.kind in (*LOOP_LAYERS, "CONDITION", "CONDITIONAL_OUTPUT") or makes_loop:
                others |= present
        return {number: count for number, count in counts.items() if number not in others}


def _loops_of(network: ReadNetwork) -> Sequence[frozenset[int]]:
    by_tensor: list[frozenset[int]] = [frozenset()] * len(network.tensors)
    if not any(layer.kind in LOOP_LAYERS for layer in network.layers):
        return by_tensor
    changed = True
    while changed:
        changed = False
        for layer in network.layers:
            loops = frozenset().union(*(by_tensor[number] for number in layer.inputs if number is not None))
            own = {layer.values["loop"]} if layer.kind in LOOP_LAYERS else set()
            loops = loops | own if layer.kind in _VARYING else loops - own
            for tensor in layer.outputs:
                if not loops <= by_tensor[tensor]:
                    by_tensor[tensor] |= loops
                    changed = True
    return by_tensor
