"""What samples hold, and which of them mislead who calibrates with them."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trtconv.core.documents.doubts import Doubt, DoubtKind
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.graph.arrays import Feeds

_OUTLYING = 10.0
"""How many times the usual largest value, the median over the samples, the largest value of an outlying one is."""
_LISTED = 8


@frozen
class Largest:
    """The value of an input that is farthest from 0.

    Args:
        value: The value.
        place: Its indices.
    """

    value: float
    place: tuple[int, ...]


@frozen
class Facts:
    """What a sample holds.

    Args:
        sha256: Of all its values, in hexadecimal.
        shapes: Input to its shape.
        largest: Input of floats to its value farthest from 0.
        constant: Inputs of floats whose elements, of which there are several, are all the same.
    """

    sha256: str
    shapes: Mapping[str, tuple[int, ...]]
    largest: Mapping[str, Largest]
    constant: tuple[str, ...]


def facts_of(feeds: Feeds, name: str) -> Facts:
    """Returns what a sample holds.

    Args:
        feeds: The sample.
        name: What it is called in messages.

    Raises:
        InputError: A value is infinite: it has no range.
    """
    sha = hashlib.sha256()
    largest: dict[str, Largest] = {}
    constant = []
    for key, array in sorted(feeds.items()):
        sha.update(f"{key} {array.dtype} {array.shape}".encode())
        # Not its buffer: that of bfloat16 cannot be had.
        sha.update(array.tobytes())
        if array.dtype.kind != "f" or not array.size:
            continue
        at = np.unravel_index(int(np.abs(array).argmax()), array.shape)
        peak = Largest(float(array[at]), tuple(map(int, at)))
        if not np.isfinite(peak.value):
            raise InputError(
                f"{name}: input {key!r} is {peak.value} at {list(peak.place)}", "Leave that sample out, or mend it."
            )
        largest[key] = peak
        if array.size > 1 and (array == array.flat[0]).all():
            constant.append(key)
    shapes = {key: array.shape for key, array in feeds.items()}
    return Facts(sha.hexdigest(), shapes, largest, tuple(constant))


def doubts_about(facts: Sequence[Facts], names: Sequence[str]) -> tuple[Doubt, ...]:
    """Returns what misleads in samples: constant, identical and outlying ones.

    Args:
        facts: What each sample holds.
        names: What each is called.
    """
    return (*_constant(facts, names), *_identical(facts, names), *_outlying(facts, names))


def _constant(facts: Sequence[Facts], names: Sequence[str]) -> Iterator[Doubt]:
    for key in dict.fromkeys(key for fact in facts for key in fact.constant):
        which = [name for fact, name in zip(facts, names, strict=True) if key in fact.constant]
        yield Doubt(DoubtKind.CONSTANT, tuple(which), f"all elements of input {key!r} are the same in {_listed(which)}")


def _identical(facts: Sequence[Facts], names: Sequence[str]) -> Iterator[Doubt]:
    first: dict[str, str] = {}
    again = []
    for fact, name in zip(facts, names, strict=True):
        if fact.sha256 in first:
            again.append(name)
        first.setdefault(fact.sha256, name)
    if again:
        message = f"{len(facts)} samples are {len(first)} different ones; left out as repetitions: {_listed(again)}"
        yield Doubt(DoubtKind.IDENTICAL, tuple(again), message)


def _outlying(facts: Sequence[Facts], names: Sequence[str]) -> Iterator[Doubt]:
    for key in dict.fromkeys(key for fact in facts for key in fact.largest):
        sizes = [(abs(fact.largest[key].value), number) for number, fact in enumerate(facts) if key in fact.largest]
        usual = statistics.median(size for size, _ in sizes)
        # With few samples the median may be the outlying one.
        wild = [number for size, number in sizes if size > _OUTLYING * usual > 0]
        for number in wild:
            value = facts[number].largest[key]
            message = f"{names[number]}: input {key!r} is {value.value:.4g} at {list(value.place)}"
            yield Doubt(DoubtKind.OUTLYING, (names[number],), f"{message}; the others' largest is usually {usual:.4g}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
