"""Windows of poolings, counted by trying."""

from __future__ import annotations

import itertools

from trtconv.graph.pooling import PoolAxis


def _floor_count(axis: PoolAxis, end: int) -> int:
    return (axis.size + axis.begin + end - axis.reach) // axis.stride + 1


def test_the_nearest_end_padding_that_gives_the_same_windows_rounded_down() -> None:
    for size, reach, stride, begin, end in itertools.product((3, 4, 7, 8), (1, 2, 3), (1, 2, 3, 4), (0, 1), (0, 1, 2)):
        axis = PoolAxis(size, reach, stride, begin, end)
        right = [pad for pad in range(20) if _floor_count(axis, pad) == axis.count]
        expected = min(right, key=lambda pad: abs(pad - end)) if right else None
        assert axis.exact_end == expected, axis
