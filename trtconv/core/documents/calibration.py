"""What calibration keeps from one call of `quantize` to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen

_LARGEST = 3.4028234663852886e38
"""Of float32."""


def _is_magnitude(value: float) -> bool:
    """Whether a value is the magnitude of a float32, NaN and infinity left out."""
    return 0 <= value <= _LARGEST


@frozen
class KeptRanges(Document):
    """The ranges of tensors.

    Args:
        method: How they were taken.
        errors: Method to the error that it makes, of those that were tried.
        ranges: Tensor to its largest magnitude.
    """

    method: str
    errors: Mapping[str, float]
    ranges: Mapping[str, float]

    def is_of(self, tensors: Sequence[str]) -> bool:
        """Whether it has all of some tensors, and nothing that no range can be."""
        return self.ranges.keys() >= set(tensors) and all(map(_is_magnitude, self.ranges.values()))


@frozen
class KeptSizes(Document):
    """Tensor to the size of each of its channels."""

    sizes: Mapping[str, Sequence[float]]

    def is_of(self, tensors: Sequence[str]) -> bool:
        """Whether it has all of some tensors, and nothing that no size can be."""
        return self.sizes.keys() >= set(tensors) and all(
            _is_magnitude(size) for sizes in self.sizes.values() for size in sizes
        )
