"""Execution contexts of an engine, each with a stream of its own, that run one request at a time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from trtconv.core.dim_flags import quoted
from trtconv.core.dims import Shape, ShapeProfile, elements_of, times
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.frozen import frozen
from trtconv.runtimes.inputs import inputs_at
from trtconv.runtimes.tensorrt import Engine, Execution, ProfileTaken, RangeNames

Launch = Callable[[], None]


@frozen
class RequestSize:
    """A size of requests.

    Args:
        profile: Index of the optimization profile that takes it.
        shapes: Input name to its shape.
        values: Elements of inputs that hold shapes.
    """

    profile: int
    shapes: Mapping[str, Shape]
    values: Mapping[str, Sequence[int]]

    @property
    def elements(self) -> int:
        """Number of elements of all inputs."""
        return elements_of(self.shapes)

    def __str__(self) -> str:
        return ", ".join(f"{name} {times(shape)}" for name, shape in self.shapes.items())


@frozen
class ServedEngine:
    """An engine that requests are sent to.

    Args:
        name: What messages call it.
        engine: The engine.
        profiles: Its optimization profiles.
        sizes: What requests there are.
    """

    name: str
    engine: Engine
    profiles: Sequence[ShapeProfile]
    sizes: Sequence[RequestSize]


class ContextSlot:
    """Runs one request at a time, in the execution context of the profile that takes it; see `scheduling.RequestSlot`.

    Args:
        sizes: All sizes of requests.
        lanes: For each profile that they need what runs them.
        ranges: Names each request for profilers; None: nothing does.
        name: What it is called there.
    """

    def __init__(
        self, sizes: Sequence[RequestSize], lanes: Mapping[int, Lane], ranges: RangeNames | None, name: str
    ) -> None:
        self._sizes, self._lanes, self._ranges = sizes, lanes, ranges
        self._names = [f"{name} {size}" for size in sizes]
        self._running: Lane | None = None
        self._range = 0

    def start(self, size: int) -> None:
        """Puts a request of a size on the stream of its context."""
        if self._ranges is not None:
            self._range = self._ranges.begin(self._names[size])
        self._running = self._lanes[self._sizes[size].profile]
        self._running.start(size)

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self._running is None or not self._running.execution.passed():
            return self._running is None
        self._running = None
        if self._ranges is not None:
            self._ranges.end(self._range)
        return True

    def warm_up(self, seconds: float) -> None:
        """Runs every size, again and again until so many seconds are over, but each at least once."""
        until = time.monotonic() + seconds
        while True:
            for size in range(len(self._sizes)):
                self.start(size)
                while not self.has_ended():
                    pass
            if time.monotonic() >= until:
                return

    def runtime_cache(self) -> bytes | None:
        """Returns the content of the runtime cache; None where there is none."""
        return next(iter(self._lanes.values())).execution.runtime_cache()

    @property
    def graph(self) -> bool:
        """Whether all requests run as CUDA graphs."""
        return all(lane.graph for lane in self._lanes.values())


class Lane:
    """One execution context, and the sizes that it runs.

    A context with one size runs it as a CUDA graph where that goes: a graph is of one size, and of a context that does
    not change.

    Args:
        execution: The context.
        engine: Its engine.
        sizes: Number of a size to the size; all of one profile.
        copies: Whether inputs and outputs are copied.
    """

    def __init__(self, execution: Execution, engine: Engine, sizes: Mapping[int, RequestSize], *, copies: bool) -> None:
        self.execution = execution
        self._sizes = sizes
        # The largest first: the memory then suffices for the others.
        self._size = max(sizes, key=lambda number: sizes[number].elements)
        largest = sizes[self._size]
        execution.feed(inputs_at(engine.tensors, largest.shapes, largest.values))
        captured = execution.launcher(graph=True, copies=copies) if len(sizes) == 1 else None
        self.graph = captured is not None
        launch = captured or execution.launcher(graph=False, copies=copies)
        assert launch is not None, "every engine runs without a graph"
        self._launch: Launch = launch

    def start(self, size: int) -> None:
        """Puts one inference on the stream."""
        if size != self._size:
            self.execution.resize(self._sizes[size].shapes)
            self._size = size
        self._launch()
        self.execution.mark()


def open_slots(
    served: ServedEngine,
    count: int,
    stack: contextlib.ExitStack,
    *,
    copies: bool,
    ranges: RangeNames | None = None,
    cache: bytes | None = None,
) -> list[ContextSlot]:
    """Opens execution contexts, one a slot and a profile that the requests need.

    Where an engine has a profile several times, each slot gets its own: TensorRT 8.6 has a profile in one context at a
    time.

    Args:
        served: The engine.
        count: How many slots.
        stack: Closes them.
        copies: Whether inputs and outputs are copied from and to the host.
        ranges: Names each request for profilers.
        cache: Content of a runtime cache.

    Raises:
        InputError: This TensorRT wants a profile of its own for each context, and the engine has too few.
        EnvironmentMissing: The GPU's memory does not suffice.
        EngineFailed: The engine does not run.
    """
    slots = []
    needed = dict.fromkeys(size.profile for size in served.sizes)
    for number in range(count):
        lanes = {}
        for profile in needed:
            same = _same(served.profiles, profile)
            with _explained(served, profile, number, count, len(same)):
                execution = served.engine.open(same[number % len(same)], cache)
                stack.callback(execution.close)
                sizes = {index: size for index, size in enumerate(served.sizes) if size.profile == profile}
                lanes[profile] = Lane(execution, served.engine, sizes, copies=copies)
        slots.append(ContextSlot(served.sizes, lanes, ranges, served.name))
    return slots


def _same(profiles: Sequence[ShapeProfile], profile: int) -> list[int]:
    """Returns the indices of all profiles that are equal to one."""
    return [index for index, other in enumerate(profiles) if other.inputs == profiles[profile].inputs]


@contextlib.contextmanager
def _explained(served: ServedEngine, profile: int, number: int, count: int, same: int) -> Iterator[None]:
    """Says of a context that cannot be opened which one it is, and whether it lacks a profile of its own."""
    try:
        yield
    except EnvironmentMissing as error:
        raise EnvironmentMissing(
            f"context {number + 1} of {count} of {served.name}: {error.message}", error.hint
        ) from error
    except ProfileTaken as error:
        flags = " ".join([_flag(served.profiles[profile])] * count)
        raise InputError(
            f"{served.name} has {same} of the {count} profiles that {count} contexts take: the TensorRT that is here "
            f"does not let contexts share profile {profile} ({error.message})",
            f"Build it with --share-profiles; or, which takes longer, with the profile once a context: {flags}.",
        ) from error


def _flag(profile: ShapeProfile) -> str:
    bounds = ",".join(f"{name}={bound.short}" for name, bound in profile.dims.items())
    return f"--profile {quoted(bounds)}"
