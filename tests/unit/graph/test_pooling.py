"""Windows of poolings, counted by trying."""

from __future__ import annotations

import itertools

from trtconv.graph.pooling import PoolAxis, axes_of_pool, can_exceed


def _floor_count(axis: PoolAxis, end: int) -> int:
    return (axis.size + axis.begin + end - axis.reach) // axis.stride + 1


def test_the_nearest_end_padding_that_gives_the_same_windows_rounded_down() -> None:
    for size, reach, stride, begin, end in itertools.product((3, 4, 7, 8), (1, 2, 3), (1, 2, 3, 4), (0, 1), (0, 1, 2)):
        axis = PoolAxis(size, reach, stride, begin, end)
        right = [pad for pad in range(20) if _floor_count(axis, pad) == axis.count]
        expected = min(right, key=lambda pad: abs(pad - end)) if right else None
        assert axis.exact_end == expected, axis


POOLS = [*itertools.product((1, 2, 3, 4, 7, 8), (1, 2, 3), (1, 2, 3, 4), (0, 1), (0, 1, 2))]


def test_windows_that_begin_in_the_input_are_counted_by_trying() -> None:
    for size, reach, stride, begin, end in POOLS:
        axis, length = PoolAxis(size, reach, stride, begin, end), begin + size + end
        # Rounded up: until a window reaches the end of the padding, or beyond.
        starts = [0]
        while starts[-1] + reach < length:
            starts.append(starts[-1] + stride)
        if reach > length:
            continue
        assert axis.rounded_up == len(starts)
        # ONNX leaves out one that begins behind the input. No more than one can.
        assert axis.count == len(starts) - (starts[-1] >= begin + size)


def test_a_pooling_that_may_exceed_does_at_some_size() -> None:
    for (reach, dilation), stride, begin, end in itertools.product(
        ((1, 1), (2, 1), (3, 1), (2, 2)), (1, 2, 3, 4), (0, 1), (0, 1, 2)
    ):
        attributes = {"kernel_shape": [1, reach], "strides": [1, stride], "dilations": [1, dilation]}
        attributes["pads"] = [0, begin, 0, end]
        exceeds = False
        for size in range(1, 40):
            whole, axis = axes_of_pool(attributes, [5, size])
            assert whole == PoolAxis(5, 1, 1, 0, 0)
            assert axis == PoolAxis(size, (reach - 1) * dilation + 1, stride, begin, end)
            exceeds |= axis.size + begin + end >= axis.reach and axis.count != axis.rounded_up
        assert can_exceed(attributes) == exceeds, attributes


def test_what_a_pooling_does_not_say() -> None:
    assert axes_of_pool({"kernel_shape": [2, 3]}, [4, None]) == [PoolAxis(4, 2, 1, 0, 0), None]
    assert not can_exceed({})
    assert not can_exceed({"kernel_shape": [2], "strides": []})
