"""How far indices reach that are too many to follow."""

from __future__ import annotations

import numpy as np
import pytest

from support.sizes import parse
from trtconv.core.findings import Location
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.lattice.number import Num
from trtconv.shapes.lattice.reach import reach_of
from trtconv.shapes.lattice.tensor import Tensor
from trtconv.shapes.lattice.trial import Node

INT64 = np.dtype(np.int64)
SIZE = Num(np.array([3, 5]), 1)
ZERO = Num(0)


@pytest.mark.parametrize("op", ["Reshape", "Transpose", "Cast", "Add", "Sub", "Max", "Min"])
@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("first", [True, False])
def test_places_are_told_apart_only_where_nothing_moves_them(op: str, places: int, first: bool) -> None:
    node = Node(op, "", ("a", "b"), ("y",), {}, Location(op=op), 17)
    apart = Tensor([SIZE, Num(places)], None, INT64, ((ZERO, SIZE),) * places)
    single = Tensor.of_array(np.zeros((), np.int64))
    operands = (apart, single) if first or op in ("Reshape", "Transpose", "Cast") else (single, apart)
    assert (reach_of(node, operands, Tensor([SIZE, Num(places)], None, INT64)) is None) == (places == 2)


def test_an_index_beyond_the_last_is_told() -> None:
    """As in the adaptive pooling that torch.export writes for the sizes of its example, at others."""
    text = """g (float[h,3] x, float[w] z) => (float[a,b] y) <int64 zero = {0}, int64 one = {1}> {
        n = Size (z)  i = Range (zero, n, one)  y = Gather (x, i) }"""
    trial = Sizes(parse(text)).run([{"h": 4, "w": 4}, {"h": 4, "w": 6}])
    (check,) = trial.checks
    assert check.holds.tolist() == [True, False]
    assert check.evidence(1) == "takes element 5 of 4 at axis 0"
