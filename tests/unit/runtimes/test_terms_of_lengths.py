"""Integers that come from sizes, one by one, and those of which the order is another."""

from __future__ import annotations

import numpy as np

from trtconv.runtimes.proof.terms import parts
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.lengths import lengths_of, settled

IMAGE = terms.tensor("x", "float32", (-1, 3))
SHAPE = parts.shape_of(IMAGE, "int64")


def constant(*values: object) -> terms.Term:
    return terms.constant(np.array(values, np.int64))


def test_sums_and_joined_lists_are_read_one_by_one() -> None:
    total = terms.joined("SUM", SHAPE, constant(1, 2))
    lengths = lengths_of(parts.concatenated([total, constant(7)], 0))
    assert lengths is not None and lengths[1:] == [5, 7]
    (batch, *_) = lengths
    assert isinstance(batch, terms.Term) and batch.op == "SUM"
    assert settled(total).op == "lengths"


def test_a_single_number_goes_with_each() -> None:
    lengths = lengths_of(terms.joined("PROD", SHAPE, constant(4)))
    assert lengths is not None and lengths[1] == 12


def test_what_has_more_axes_than_one_has_no_such_order() -> None:
    column = terms.unsqueezed(SHAPE, [1])
    for spread in (
        terms.joined("SUM", column, constant([0, 1], [2, 3])),
        parts.concatenated([column, constant([0], [1])], 1),
    ):
        assert lengths_of(terms.reshaped(spread, [4])) is None
