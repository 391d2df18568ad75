"""All the sizes that some rules allow, taken together, as arrays."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.export import SizeRule
from trtconv.exporter.sizing.sizes import following

_CELLS = 400_000
"""Sizes that are looked at, of all dimensions together."""
_OPEN, _FEW = 512, 8
"""To which size a dimension without bounds is looked at, and one that is small in the example."""


class Grid:
    """The product of the valid sizes of several dimensions; one that is tied to another follows it.

    Args:
        rules: Their rules.

    Attributes:
        shape: How many sizes each dimension has; 1 for those that follow.
        values: Name of each dimension to its sizes, shaped to be broadcast with the others.
        thinned: Whether only some sizes of a dimension are in it.
    """

    def __init__(self, rules: Sequence[SizeRule]) -> None:
        leaders = following(rules)
        lists = [_valid(rule) if rule.name not in leaders else [rule.example] for rule in rules]
        self.thinned = False
        while math.prod(map(len, lists)) > _CELLS:
            longest = max(range(len(lists)), key=lambda n: len(lists[n]))
            lists[longest] = _thin(lists[longest], rules[longest].example)
            self.thinned = True
        self.shape = tuple(map(len, lists))
        self.example = {rule.name: rule.example for rule in rules}
        self.values: dict[str, NDArray[np.int64]] = {}
        for number, (rule, sizes) in enumerate(zip(rules, lists, strict=True)):
            shape = [1] * len(rules)
            shape[number] = len(sizes)
            self.values[rule.name] = np.array(sizes, dtype=np.int64).reshape(shape)
        by_name = {rule.name: rule for rule in rules}
        for name, leader in leaders.items():
            own, other = by_name[name], by_name[leader]
            moved = (self.values[leader] - other.example) * own.step // (other.step or 1)
            self.values[name] = own.example + moved

    def everywhere(self) -> NDArray[np.bool_]:
        """Returns a mask that is true for all sizes."""
        return np.ones(self.shape, dtype=bool)

    def at(self, sizes: Mapping[str, int]) -> NDArray[np.bool_]:
        """Returns a mask that is true for some sizes alone."""
        mask = self.everywhere()
        for name, values in self.values.items():
            mask &= values == sizes[name]
        return mask

    def mask(self, rules: Sequence[SizeRule]) -> NDArray[np.bool_]:
        """Returns a mask that is true where all of some rules take the size of their dimension."""
        mask = self.everywhere()
        for rule in rules:
            mask &= np.vectorize(rule.takes, otypes=[bool])(self.values[rule.name])
        return mask

    def sample(self, mask: NDArray[np.bool_], generator: random.Random) -> dict[str, int] | None:
        """Returns some sizes where a mask is true, None where it is nowhere."""
        flat = np.flatnonzero(mask)
        return self._at(int(flat[generator.randrange(len(flat))])) if len(flat) else None

    def taken_out(self, mask: NDArray[np.bool_], count: int, generator: random.Random) -> list[dict[str, int]]:
        """Returns random sizes where a mask is true, so many at most, and makes it false there."""
        flat = np.flatnonzero(mask)
        places = generator.sample(range(len(flat)), min(count, len(flat)))
        mask.ravel()[flat[places]] = False
        return [self._at(int(flat[place])) for place in places]

    def nearest(self, mask: NDArray[np.bool_]) -> dict[str, int] | None:
        """Returns the sizes nearest to the example where a mask is true, None where it is nowhere."""
        flat = np.flatnonzero(mask)
        if not len(flat):
            return None
        far = np.zeros((1,) * len(self.shape))
        for name, sizes in self.values.items():
            far = far + np.abs(np.log(np.maximum(sizes, 1) / self.example[name]))
        return self._at(int(flat[np.argmin(np.broadcast_to(far, self.shape).ravel()[flat])]))

    def _at(self, index: int) -> dict[str, int]:
        place = np.unravel_index(index, self.shape)
        return {name: int(np.broadcast_to(sizes, self.shape)[place]) for name, sizes in self.values.items()}


def _valid(rule: SizeRule) -> Sequence[int]:
    if rule.baked:
        return [rule.example]
    top = _FEW if rule.example < _FEW // 2 else max(_OPEN, 2 * rule.example)
    return rule.valid or rule.sizes(rule.min, rule.max or max(top, rule.min)) or [rule.example]


def _thin(sizes: Sequence[int], example: int) -> list[int]:
    """Returns half of some sizes: the ends, the example, and others at uneven distances."""
    inner = random.Random(len(sizes)).sample(list(sizes), len(sizes) // 2)
    return sorted({sizes[0], sizes[-1], example, *inner})
