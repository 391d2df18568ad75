"""Runs a network that was read back.

Values are asked for from the outputs backwards, so that layers may stand in any order, a branch that is not taken is
not run, and a loop is run when its first result is asked for. A value is dropped when its last reader has run.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trtconv.core import budget
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.layers import numpy_name
from trtconv.runtimes.tensorrt.readback import (
    arithmetic,
    attention,
    detection,
    movement,
    plugin,
    quantizing,
    reducing,
    sampling,
    windows,
)
from trtconv.runtimes.tensorrt.readback.call import Call, Kernel
from trtconv.runtimes.tensorrt.readback.extent import require_room
from trtconv.runtimes.tensorrt.readback.flow import BOUNDARIES, Loop
from trtconv.runtimes.tensorrt.readback.prepared import Prepared
from trtconv.runtimes.tensorrt.readback.records import (
    Malformed,
    NotProven,
    OutOfTime,
    ReadLayer,
    ReadNetwork,
    ReadTensor,
)
from trtconv.runtimes.tensorrt.readback.types import cast

KINDS: dict[str, Kernel] = {
    kind: kernel
    for family in (arithmetic, movement, windows, reducing, quantizing, sampling, attention, detection, plugin)
    for kind, kernel in family.KINDS.items()
}
"""Every kind of layer that computes; loops and conditionals are run by what is here."""

_ASK_SECONDS = 0.05
"""How long it is taken for known how much memory there is, where nothing large was made since."""
_LARGE_BYTES = 1 << 20
Given = Callable[[ReadTensor], "Array | None"]
"""Returns the value of a tensor in the original, None where that has none of its name."""
Seen = Callable[[ReadTensor, Array, bool], Array]
"""Told of each value as (tensor, value, whether it was computed and not given); returns what readers get."""


class Missing(Exception):
    """A value cannot be had: a layer before it is not proven, and the original has no tensor of its name."""

    def __init__(self, layer: ReadLayer) -> None:
        super().__init__(layer.name)
        self.layer = layer


class Run:
    """One run of a network.

    Args:
        network: The network.
        feeds: Values of its inputs by name.
        stand_in: Where values come from that cannot be computed.
        see: Told of every value.
        deadline: When to stop, on the clock of `time.monotonic`.
        megabytes: How much memory this process may take besides what it has now; then, too, the run stops.
        prepared: Of the network; runs that share it do not compute again what is the same in all of them. Not where
            values are seen by `see`.
    """

    def __init__(
        self,
        network: ReadNetwork,
        feeds: Mapping[str, Any],
        stand_in: Given = lambda tensor: None,
        see: Seen = lambda tensor, value, computed: value,
        deadline: float = math.inf,
        megabytes: float = math.inf,
        prepared: Prepared | None = None,
    ) -> None:
        self.unproven: dict[int, str] = {}
        """Layers that were not run, by their index, and why."""
        self.malformed: set[int] = set()
        """Those of them that fit neither what they are given nor what TensorRT inferred."""
        self.ran: set[int] = set()
        """Layers that were run."""
        self.branches: set[tuple[int, bool]] = set()
        """Conditionals, by their numbers, with what decided them."""
        self._network = network
        self._stand_in = stand_in
        self._see = see
        self.deadline = deadline
        self._prepared = prepared or Prepared(network)
        self._flow = self._prepared.flow
        self._makers = self._prepared.makers
        self._settled = {} if prepared is None else prepared.results(feeds)
        # Another thread may run the same network, and settle more meanwhile.
        settled: dict[int, Array | Missing] = {**self._settled}
        self.ran.update(self._makers[number].index for number in settled)
        self._values = [settled]
        self._loops: list[int] = []
        self._megabytes = megabytes
        self._megabytes_held, self._ask_time = budget.held_megabytes(), time.monotonic()
        self._most = self._megabytes_held + megabytes
        self._uses = dict(self._prepared.uses)
        for number in network.inputs:
            tensor = network.tensors[number]
            if tensor.name in feeds:
                self._values[0][number] = see(tensor, cast(np.asarray(feeds[tensor.name]), tensor.dtype), False)

    def outputs(self) -> dict[str, Array]:
        """Runs, and returns the outputs by name; those that cannot be had are left out.

        Raises:
            OutOfTime: It took too long.
        """
        results = {}
        for number in self._network.outputs:
            value = self._value(number)
            if not isinstance(value, Missing):
                results[self._network.tensors[number].name] = value
        return results

    def broken(self) -> ReadLayer | None:
        """Returns the first assertion that does not hold, so that an engine would stop there.

        To be asked before `outputs`, which drops what nobody reads any more.

        Raises:
            OutOfTime: It took too long.
        """
        for layer in self._network.layers:
            number = layer.inputs[0] if layer.kind == "ASSERTION" else None
            if number is not None and not self._flow.loops_of[number]:
                value = self._value(number)
                if not isinstance(value, Missing) and not value.all():
                    return layer
        return None

    def _value(self, number: int) -> Array | Missing:
        """Returns a value, computing what it needs; without recursion, since networks are deep."""
        stack = [number]
        while stack:
            current = stack[-1]
            if self._current(current) is not None:
                stack.pop()
                continue
            layer = self._makers.get(current)
            needs = [] if layer is None else [need for need in self._needs(layer) if self._current(need) is None]
            if needs:
                stack += reversed(needs)
                continue
            stack.pop()
            self._make(current, layer)
        value = self._current(number)
        assert value is not None
        return value

    def _current(self, number: int) -> Array | Missing | None:
        return (self._frame(number) if self._loops else self._values[0]).get(number)

    def _frame(self, number: int) -> dict[int, Array | Missing]:
        """Returns where a value is kept: with the innermost running loop on which it depends."""
        loops = self._flow.loops_of[number] if self._loops else ()
        depth = max((i + 1 for i, loop in enumerate(self._loops) if loop in loops), default=0)
        return self._values[depth]

    def _needs(self, layer: ReadLayer) -> Sequence[int]:
        """Returns what must be known before a layer can run; of a conditional only the branch that is taken."""
        if layer.kind == "CONDITIONAL_OUTPUT":
            condition = self._flow.conditions[layer.values["conditional"]]
            value = self._current(condition)
            return [condition] if value is None or isinstance(value, Missing) else self._branch(layer, value)
        if layer.kind == "LOOP_OUTPUT":
            return self._flow.loops[layer.values["loop"]].needs
        return [number for number in layer.inputs if number is not None]

    def _branch(self, layer: ReadLayer, condition: Array) -> Sequence[int]:
        decided = bool(condition.reshape(()))
        self.branches.add((layer.values["conditional"], decided))
        number = layer.inputs[0 if decided else 1]
        assert number is not None
        return [number]

    def _make(self, number: int, layer: ReadLayer | None) -> None:
        self._require_time()
        room = self._room()
        if layer is not None and self._prepared.least_megabytes(layer) > room:
            raise OutOfTime(f"it takes more than {self._megabytes:.0f} MB of memory")
        if layer is None:
            self._frame(number)[number] = self._fallback(number, Missing(_nobody(self._network.tensors[number])))
        elif layer.kind == "LOOP_OUTPUT":
            self._run_loop(self._flow.loops[layer.values["loop"]])
        else:
            self._run(layer, room)

    def _room(self) -> float:
        """Returns how much more memory this process may take, in MB."""
        # Not asked for each layer: of small ones it takes as long as to compute them.
        now = time.monotonic()
        if now - self._ask_time > _ASK_SECONDS:
            self._megabytes_held, self._ask_time = budget.held_megabytes(), now
        return self._most - self._megabytes_held

    def _require_time(self) -> None:
        if time.monotonic() > self.deadline:
            raise OutOfTime("time was up")

    def _run(self, layer: ReadLayer, room: float) -> None:
        missing = next((v for n in self._needs(layer) if isinstance(v := self._current(n), Missing)), None)
        if missing is None:
            try:
                results = self._results(layer, room)
                self.ran.add(layer.index)
            except NotProven as error:
                self._note(layer, error)
                missing = Missing(layer)
        for position, number in enumerate(layer.outputs):
            if missing is not None:
                self._frame(number)[number] = self._fallback(number, missing)
            elif position < len(results):
                result = results[position]
                if self._prepared.is_settled(number, result):
                    self._settled[number] = result
                elif result.nbytes > _LARGE_BYTES:
                    self._ask_time = -math.inf
                self._frame(number)[number] = self._see(self._network.tensors[number], result, True)
        self._release(layer)

    def _note(self, layer: ReadLayer, error: NotProven) -> None:
        """Remembers why a layer was not run."""
        self.unproven.setdefault(layer.index, error.reason)
        if isinstance(error, Malformed):
            self.malformed.add(layer.index)

    def _fallback(self, number: int, missing: Missing) -> Array | Missing:
        tensor = self._network.tensors[number]
        # What changes from one pass of a loop to the next has no one value in the original.
        value = None if self._flow.loops_of[number] else self._stand_in(tensor)
        return missing if value is None else self._see(tensor, cast(np.asarray(value), tensor.dtype), False)

    def _results(self, layer: ReadLayer, room: float) -> list[Array]:
        if layer.kind == "CONDITIONAL_OUTPUT":
            (number,) = self._needs(layer)
            results: Sequence[Any] = [self._current(number)]
        elif layer.kind in BOUNDARIES:
            results = [self._current(n) for n in layer.inputs if n is not None][:1]
        else:
            kernel = KINDS.get(layer.kind)
            if layer.kind == "DEQUANTIZE" and self._prepared.int8_kernels.intersection(layer.outputs):
                kernel = quantizing.dequantize_kernel
            if kernel is None:
                raise NotProven(f"layers of kind {layer.kind} are not known")
            results = kernel_results(self._network, layer, kernel, lambda n: self._current(n), room)
        return results_of(self._network, layer, results)

    def _release(self, layer: ReadLayer) -> None:
        """Drops values that nobody reads any more."""
        for number in set(self._needs(layer) if layer.kind == "CONDITIONAL_OUTPUT" else layer.inputs):
            if number is None or number not in self._uses:
                continue
            self._uses[number] -= 1
            if not self._uses[number]:
                self._values[0].pop(number, None)

    def _run_loop(self, loop: Loop) -> None:
        """Runs a loop to its end, and sets all its results."""
        missing = next((v for n in loop.needs if isinstance(v := self._current(n), Missing)), None)
        if missing is not None:
            self._set_loop(loop, dict.fromkeys((layer.index for layer in loop.outputs), missing))
            return
        values = {n: self._current(n) for n in loop.needs}
        self._loops.append(loop.number)
        try:
            collected, state = self._passes(loop, values)
        except OutOfTime:
            raise
        except NotProven as error:
            for layer in loop.outputs:
                self._note(layer, error)
            results: dict[int, Any] = {layer.index: Missing(layer) for layer in loop.outputs}
        else:
            self.ran.update(layer.index for layer in loop.boundary)
            results = {layer.index: loop.result(layer, collected, state, values) for layer in loop.outputs}
        finally:
            self._loops.pop()
        self._set_loop(loop, results)

    def _passes(self, loop: Loop, values: Mapping[int, Any]) -> tuple[dict[int, list[Any]], dict[int, Any]]:
        """Runs a loop's passes; returns what its results collect, and its recurrences' last values."""
        collected: dict[int, list[Any]] = {layer.index: [] for layer in loop.outputs}
        state = {r.outputs[0]: values[loop.start(r)] for r in loop.recurrences}
        trips = loop.trips(values)
        for count in itertools.count() if trips is None else range(trips):
            # A pass may have nothing to compute.
            self._require_time()
            self._values.append({**state, **loop.items(values, count)})
            try:
                if loop.condition is not None and not self._is_true(loop.condition):
                    break
                for layer in loop.outputs:
                    if loop.collects(layer):
                        collected[layer.index].append(self._value(loop.source(layer)))
                state = {r.outputs[0]: self._value(loop.back(r)) for r in loop.recurrences}
            finally:
                self._values.pop()
        return collected, state

    def _is_true(self, number: int) -> bool:
        value = self._value(number)
        if isinstance(value, Missing):
            raise NotProven("whether its loop goes on is not known")
        return bool(value.reshape(()))

    def _set_loop(self, loop: Loop, results: Mapping[int, Any]) -> None:
        for layer in loop.outputs:
            number = layer.outputs[0]
            tensor = self._network.tensors[number]
            try:
                result = results[layer.index]
                if isinstance(result, NotProven):
                    raise result
                result = result if isinstance(result, Missing) else _checked(tensor, result)
            except NotProven as error:
                self._note(layer, error)
                result = Missing(layer)
            is_known = not isinstance(result, Missing)
            self._frame(number)[number] = (
                self._see(tensor, result, True) if is_known else self._fallback(number, result)
            )


def _nobody(tensor: ReadTensor) -> ReadLayer:
    return ReadLayer(-1, tensor.name, "INPUT", (), (tensor.index,), {})


def kernel_results(
    network: ReadNetwork, layer: ReadLayer, kernel: Kernel, value_of: Callable[[int], Any], megabytes: float = math.inf
) -> Sequence[Array]:
    """Runs one layer by itself; raises NotProven, also where it is malformed, or takes more memory than that."""
    call = Call(
        layer,
        tuple(None if n is None else value_of(n) for n in layer.inputs),
        tuple(network.tensors[n] for n in layer.outputs),
        tuple(None if n is None else network.tensors[n] for n in layer.inputs),
    )
    with np.errstate(all="ignore"):
        try:
            require_room(call, megabytes)
            return kernel(call)
        except MemoryError as error:
            raise NotProven("there is not the memory for it") from error
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:
            raise Malformed(f"it does not compute at these sizes: {error}") from error


def results_of(network: ReadNetwork, layer: ReadLayer, values: Sequence[Array]) -> list[Array]:
    """Returns results in the types and shapes that they must have."""
    tensors = [network.tensors[number] for number in layer.outputs]
    values = _typed(layer, tensors, values)
    return [_checked(tensor, value) for tensor, value in zip(tensors, values, strict=False)]


def _typed(layer: ReadLayer, tensors: Sequence[ReadTensor], values: Sequence[Array]) -> Sequence[Array]:
    """Returns results in the type that their layer is told to make.

    TensorRT 8.6 chooses between float types as it builds, and until then calls all of them float32.
    """
    to_type = numpy_name(layer.values["to_type"]) if "to_type" in layer.values else None
    if to_type is None or not tensors or to_type == tensors[0].dtype:
        return values
    if (to_type, tensors[0].dtype) != ("float16", "float32"):
        raise Malformed(f"it is told to make {to_type}, and TensorRT infers {tensors[0].dtype}")
    return [cast(np.asarray(value), to_type) for value in values]


def _checked(tensor: ReadTensor, value: Array) -> Array:
    """Returns a result in the type of its tensor; its shape must be the one that TensorRT itself inferred."""
    shape = tensor.shape
    if shape is not None and (
        len(shape) != value.ndim or any(-1 != a != b for a, b in zip(shape, value.shape, strict=True))
    ):
        raise Malformed(f"its result has the shape {value.shape}, and TensorRT infers {shape}")
    return cast(np.asarray(value), tensor.dtype)
