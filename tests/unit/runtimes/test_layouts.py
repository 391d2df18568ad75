"""How the elements of a tensor lie in memory, by the formulas of TensorRT's documentation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from trtconv.core.errors import InputError
from trtconv.runtimes.tensorrt.layouts import pack, stored_shape, unpack

VECTORS = {"CHW2": 2, "CHW4": 4, "CHW16": 16, "CHW32": 32, "CDHW32": 32}
LAST = {"HWC": 1, "HWC8": 8, "HWC16": 16, "DHWC": 1, "DHWC8": 8}
FORMS = [*VECTORS, *LAST]


def offset(place: tuple[int, ...], shape: tuple[int, ...], form: str) -> int:
    """Returns where an element lies: [N][(C + x - 1) / x][...][x], or [N][...][(C + x - 1) / x * x]."""
    n, c, *rest = place
    size = VECTORS.get(form) or LAST[form]
    blocks = (shape[1] + size - 1) // size
    spatial = 0
    for index, extent in zip(rest, shape[2:], strict=True):
        spatial = spatial * extent + index
    area = int(np.prod(shape[2:]))
    if form in VECTORS:
        return ((n * blocks + c // size) * area + spatial) * size + c % size
    return (n * area + spatial) * blocks * size + c


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("channels", [1, 3, 8, 33])
def test_every_element_lies_where_the_formula_says(form: str, channels: int) -> None:
    shape = (2, channels, 3, 2, 4) if "D" in form else (2, channels, 3, 4)
    values = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    stored = pack(values, form)
    assert stored.shape == stored_shape(shape, form)
    flat = stored.reshape(-1)
    for place in itertools.product(*map(range, shape)):
        assert flat[offset(place, shape, form)] == values[place]
    assert np.count_nonzero(flat) == values.size
    assert np.array_equal(unpack(stored, shape, form), values)


def test_linear_is_as_it_is_and_the_rest_is_refused() -> None:
    values = np.ones((2, 3), np.float16)
    assert pack(values, "LINEAR") is values
    for form in ("CHW32", "DLA_HWC4"):
        with pytest.raises(InputError, match="cannot be fed"):
            pack(values, form)
