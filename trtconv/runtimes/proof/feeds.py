"""What a piece of a network is run on: inputs of several kinds, at sizes of its own."""

from __future__ import annotations

import enum
import functools
import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Array
from trtconv.runtimes.tensorrt.readback.types import numpy_type

Shape = tuple[int, ...]

SMALL_ELEMENTS = 1 << 14
"""Pieces whose sources have no more elements than this run at their own sizes; others are made smaller."""
_STEP = 8
_PLANE = 4
"""Axes of an image."""
_PERIODS = (16_411, 16_417)
"""Drawing many numbers takes long: they begin again after so many. A prime keeps places apart, but along an axis of
that size, for which there is another."""
CALM = (0, 1, 2)
"""How calm integers may be."""
LARGEST_SIZE = 4
"""The largest integer, of either sign, that is drawn where integers decide sizes."""
_APART = 61
"""Places between what two inputs of a piece begin with in the numbers that are drawn once for all: no size of a channel
or a row, or one input would be another whose channels are moved."""
_MOST_DRAWN = 32
"""How many such draws are kept: of all kinds and both periods."""
_WIDEST = 300.0
_UNKNOWN = 5
"""Size of an axis that only values decide, such as how many boxes there are."""


class InputKind(enum.IntEnum):
    """The kinds of inputs."""

    ORDINARY = 0
    LARGE = 1
    SMALL = 2
    NEGATIVE = 3
    TIES = 4
    ZEROS = 5
    LIMITS = 6
    POSITIVE = 7
    WIDE = 8
    """Of many magnitudes at once, some beyond what exponentials take."""
    DEEP = 9
    """So negative that all scores made of them are next to nothing: what a threshold keeps is then nothing at all."""


class Role(enum.Enum):
    """What a tensor is read as."""

    NUMBER = "number"
    INDEX = "index"
    TRIPS = "trips"
    SIZES = "sizes"
    """Integers that decide the shape of a result, such as axes."""
    BOXES = "boxes"
    LENGTH = "length"


@frozen
class Source:
    """A tensor that a piece starts from.

    Args:
        name: Its name.
        dtype: Its element type, as NumPy would name it.
        role: What it is read as.
        bound: Of an index, how many there are to choose from; 0: not known. Of a length, the largest.
    """

    name: str
    dtype: str
    role: Role = Role.NUMBER
    bound: int = 0


def schemes(
    shapes: Mapping[str, Sequence[int | None]], batch: int, extent: int, bound: Collection[int]
) -> Iterator[dict[str, Shape]]:
    """Yields shapes for the sources of a piece, cheap ones first; last those that they have in the whole network.

    Args:
        shapes: Those in the whole network.
        batch: Another size that the first axis of all of them may have; 0: none.
        extent: The largest window, with its dilation, that is moved over the axes.
        bound: Sizes that constants of the piece have, to which those of its sources may be bound.
    """
    real = {name: tuple(_UNKNOWN if n is None else n for n in shape) for name, shape in shapes.items()}
    earlier: list[dict[str, Shape]] = []
    # Of sequences the second axis counts places, of images the third and those behind.
    first = 1 if max(map(len, real.values()), default=0) <= 3 else 2
    free, all_ = _shrunk(real, range(first, 9), extent, bound), _shrunk(real, range(2, 9), extent, ())
    for small in (free, all_, real):
        for scheme in (_batched(small, batch), small) if batch else (small,):
            if scheme not in earlier:
                earlier.append(scheme)
                yield scheme


def _shrunk(real: Mapping[str, Shape], axes: range, extent: int, bound: Collection[int]) -> dict[str, Shape]:
    """Returns shapes with fewer elements: large sizes that nothing binds become small ones that leave the same rest.

    Sizes that are multiples of one another stay so where all of them can be divided by one factor.
    """
    if sum(math.prod(shape) for shape in real.values()) <= SMALL_ELEMENTS:
        return dict(real)
    # Of volumes, whose elements are many, half of each size will do.
    step = _STEP // 2 if max(map(len, real.values())) > _PLANE else _STEP
    least = step * max(1, -(-extent // step))
    candidates = {
        n for shape in real.values() for axis, n in enumerate(shape) if axis in axes and n > max(least, _STEP)
    }
    sizes = candidates.difference(bound)
    factor = math.gcd(*sizes) // least if sizes else 1
    together = factor > 1 and all(n % factor == 0 for n in sizes)
    ratio = max(sizes, default=1) // max(1, min(sizes, default=1))

    if together and ratio <= _STEP:
        small = {n: n // factor for n in sizes}
    else:
        small = _told_apart(sizes, {n for shape in real.values() for n in shape}, least, step)
    return {
        name: tuple(small.get(n, n) if axis in axes else n for axis, n in enumerate(shape))
        for name, shape in real.items()
    }


def _told_apart(sizes: Collection[int], others: Collection[int], least: int, step: int) -> dict[int, int]:
    """Returns a small size for each, which no other has, and which leaves the same rest."""
    small: dict[int, int] = {}
    for n in sorted(sizes):
        all_others = {*others, *small.values()}
        small[n] = next((m for m in range(least + n % step, n, step) if m not in all_others), n)
    return small


def _batched(shapes: Mapping[str, Shape], batch: int) -> dict[str, Shape]:
    return {name: (batch, *shape[1:]) if shape else shape for name, shape in shapes.items()}


def make(
    sources: Sequence[Source],
    shapes: Mapping[str, Shape],
    kind: InputKind,
    limits: Sequence[float],
    largest: float,
    calm: int = 0,
) -> dict[str, Array]:
    """Makes the inputs of a piece; the same ones wherever it is called.

    Args:
        sources: What is fed.
        shapes: The shape of each.
        kind: Of which kind.
        limits: Values around which the piece may behave otherwise.
        largest: The scale of large inputs.
        calm: 0: integers as their role says; 1: none but 0 and 1; 2: ones, which are valid wherever anything is;
            beyond: others for those that decide sizes, another draw with each number.
    """
    return {
        source.name: _values(source, shapes[source.name], kind, limits, largest, calm, place)
        for source, place in zip(sources, _stretches(sources, kind), strict=True)
    }


@frozen
class _Stretch:
    """Where the numbers of a source are from.

    Args:
        start: Where they begin in those that are drawn once; None: they are drawn for it alone.
        factor: What ordinary and large ones are multiplied by, so that no source has numbers of another.
    """

    start: int | None
    factor: float


def _stretches(sources: Sequence[Source], kind: InputKind) -> list[_Stretch]:
    most = min(_PERIODS) // _APART
    starts: dict[int, None] = {}
    for source in sources[:most]:
        place = zlib.crc32(source.name.encode(), int(kind)) % most
        while place in starts:
            place = (place + 1) % most
        starts[place] = None
    every = [*(place * _APART for place in starts), *(None for _ in sources[most:])]
    return [_Stretch(start, 1 + number / _APART) for number, start in enumerate(every)]


def _values(
    source: Source, shape: Shape, kind: InputKind, limits: Sequence[float], largest: float, calm: int, place: _Stretch
) -> Array:
    dtype = numpy_type(source.dtype)
    if source.role is Role.SIZES and calm > CALM[-1]:
        return sizes(shape, dtype, np.random.default_rng([zlib.crc32(source.name.encode()), calm]))
    if dtype.kind not in "iub" and not (source.role is Role.BOXES and shape[-1:] == (4,)):
        with np.errstate(all="ignore"):
            return _floats(source, shape, kind, limits, largest, place).astype(dtype)
    random = np.random.default_rng([zlib.crc32(source.name.encode()), int(kind)])
    if dtype.kind == "b":
        # A single one decides which branch is taken.
        booleans: Any = np.full(shape, kind % 2 == 0) if math.prod(shape) == 1 else random.integers(0, 2, shape)
        return np.asarray(booleans, dtype)
    if dtype.kind in "iu":
        return np.asarray(_integers(source, shape, kind, calm, random, dtype), dtype)
    return _boxes(shape, kind, random).astype(dtype)


def _integers(
    source: Source, shape: Shape, kind: InputKind, calm: int, random: np.random.Generator, dtype: np.dtype[Any]
) -> Any:
    if calm and calm <= CALM[-1]:
        return np.ones(shape) if calm > 1 else random.integers(0, 2, shape)
    if source.role is Role.TRIPS:
        return np.full(shape, (3, 0, 1, 2, 5, 0, 1, 4, 2, 3)[kind])
    if source.role is Role.LENGTH:
        return 1 + _indices(max(source.bound, 1), shape, kind, random)
    if source.role is Role.INDEX:
        return _indices(max(source.bound, 1), shape, kind, random)
    info = np.iinfo(dtype) if dtype.itemsize == 1 else None
    if info is not None:
        return random.integers(info.min, info.max + 1, shape)
    high = {InputKind.LARGE: 1000, InputKind.SMALL: 2}.get(kind, 10)
    low = 0 if dtype.kind == "u" or kind is not InputKind.NEGATIVE else -10
    return np.zeros(shape) if kind is InputKind.ZEROS else random.integers(low, high, shape)


def sizes(shape: Shape, dtype: np.dtype[Any], random: np.random.Generator, stated: Collection[int] = ()) -> Array:
    """Draws what may be axes, sizes or ends; of booleans, which rows are kept.

    Args:
        shape: How many.
        dtype: Their type.
        random: Draws.
        stated: Sizes that a model states of its tensors: each is as likely as all small integers together.
    """
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(dtype)
    small = random.integers(-LARGEST_SIZE, LARGEST_SIZE + 1, shape)
    choices = np.array(sorted(stated), np.int64)
    pick = random.integers(0, len(choices) + 1, shape)
    return np.where(pick == 0, small, np.append(choices, 0)[pick - 1]).astype(dtype)


def _boxes(shape: Shape, kind: InputKind, random: np.random.Generator) -> Array:
    """Returns boxes that overlap more or less, as corners or as centres and sizes."""
    places = random.integers(0, 3, (*shape[:-1], 2)) * 2.0 + random.uniform(-0.4, 0.4, (*shape[:-1], 2))
    extent = random.uniform(0.8, 1.6, (*shape[:-1], 2))
    return np.concatenate([places, places + extent if kind % 2 else extent], -1)


def _indices(bound: int, shape: Shape, kind: InputKind, random: np.random.Generator) -> Array:
    """Returns indices spread over all of a table, its first and last row among them."""
    count = math.prod(shape)
    indices = random.permutation(np.resize(np.arange(bound), max(count, bound)))[:count]
    if count:
        end = (bound - 1, 0)[kind % 2]
        # Exchanged with one that names it, or another row would go unread.
        indices[np.argmax(indices == end)] = indices[0]
        indices[0] = end
    return indices.reshape(shape)


def _floats(
    source: Source, shape: Shape, kind: InputKind, limits: Sequence[float], largest: float, place: _Stretch
) -> Array:
    count = math.prod(shape)
    period = min(_PERIODS, key=lambda period: any(size % period == 0 for size in shape))
    stretch = slice(place.start or 0, (place.start or 0) + min(count, period))
    owner = "" if place.start is not None else source.name
    if kind is InputKind.LIMITS:
        numbers = _around(np.array([*limits, 0.0]), _choices(period, owner)[:, stretch])
    else:
        scale = {InputKind.ORDINARY: place.factor, InputKind.LARGE: place.factor * largest}
        numbers = _numbers(kind, period, owner)[stretch] * scale.get(kind, 1.0)
    return numbers.reshape(shape) if count == numbers.size else np.resize(numbers, shape)


@functools.lru_cache(_MOST_DRAWN)
def _numbers(kind: InputKind, period: int, owner: str) -> Array:
    """Draws numbers of a kind, twice over, for stretches that begin anywhere.

    Args:
        kind: The kind.
        period: How many.
        owner: The source that they are drawn for alone; "": for all.
    """
    random = np.random.default_rng([period, int(kind), zlib.crc32(owner.encode())])
    return np.tile(_of_kind(random.standard_normal(period), kind, random), 2)


@functools.lru_cache(_MOST_DRAWN)
def _choices(period: int, owner: str) -> NDArray[np.int64]:
    """Draws what `_around` chooses by, as `_numbers` draws numbers."""
    random = np.random.default_rng([period, zlib.crc32(owner.encode())])
    return np.tile(random.integers(0, 1 << 40, (3, period)), 2)


def _of_kind(normal: Array, kind: InputKind, random: np.random.Generator) -> Array:
    if kind is InputKind.WIDE:
        return np.asarray(normal * _WIDEST ** random.random(normal.size))
    if kind is InputKind.SMALL:
        return normal * 3e-3
    if kind is InputKind.NEGATIVE:
        return -np.abs(normal) - 0.01
    if kind is InputKind.DEEP:
        return -np.abs(normal) * 3 - 10
    if kind is InputKind.POSITIVE:
        return np.abs(normal) * 3 + 1
    if kind is InputKind.TIES:
        return np.asarray(np.rint(normal * 3) / 2)
    return np.zeros(normal.size) if kind is InputKind.ZEROS else normal


def _around(limits: Array, choices: NDArray[np.int64]) -> Array:
    """Returns limits, and numbers a little and a lot beside them."""
    limit, factor, step = (
        options[choice % len(options)] for options, choice in zip((limits, _FACTORS, _STEPS), choices, strict=True)
    )
    return np.asarray(limit * factor + step)


_FACTORS = np.array([1.0, 1.0 - 1e-3, 1.0 + 1e-3, 0.5, 1.5])
_STEPS = np.array([0.0, 0.0, 1e-3, -1e-3])
