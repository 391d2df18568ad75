"""Which terms are the same: those that stand for the same values, whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trtconv.runtimes.proof.batch_norm import folded
from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.term import Term

X, Z = terms.tensor("x", "float32", (2, 3)), terms.tensor("z", "float32", (2, 3))
VALUES = np.array([[1, 2], [3, 4]], np.float32)


def held(values: Any) -> Term:
    return terms.constant(np.asarray(values, np.float32))


def normed(mean: float = 3, step: int = 0, dtype: Any = np.float32, factor: float = 1) -> Term:
    """What a parser makes of a BatchNormalization, its shift some steps off; as it is written down of the node where
    there is no step."""
    scale, shift = folded([np.array([value], np.float32) for value in (2, 1, mean, 4)], 1e-5)
    summand = np.asarray(shift.values, dtype)
    for _ in range(step):
        summand = np.nextafter(summand, dtype(np.inf))
    factors = np.asarray(scale.values * factor, dtype)
    return terms.joined(
        "SUM", terms.joined("PROD", X, terms.constant(factors.reshape(1, 1))), terms.constant(summand.reshape(1, 1))
    )


def node(mean: float = 3) -> Term:
    """The same, as it is written down of the node."""
    values = [
        terms.constant_near(part, "float32", (1, 1))
        for part in folded([np.array([value], np.float32) for value in (2, 1, mean, 4)], 1e-5)
    ]
    return terms.either(Z, terms.joined("SUM", terms.joined("PROD", X, values[0]), values[1]))


SAME = [
    (X, terms.tensor("x", "float32", (2, 3))),
    *((terms.joined(op, X, Z), terms.joined(op, Z, X)) for op in ("SUM", "PROD", "MAX", "MIN", "EQUAL")),
    (terms.joined("SUM", X, terms.joined("PROD", X, Z)), terms.joined("SUM", terms.joined("PROD", Z, X), X)),
    (held(VALUES), held(np.asfortranarray(VALUES))),
    (held(np.nan), held(np.nan)),
    (terms.normalized(X, Z, held([[0, 0, 0]]), [1], 0.1), terms.normalized(X, Z, None, [1], 0.1)),
    (held(VALUES.T), held(VALUES.T.copy())),
    (node(), normed()),
    (node(), normed(step=8)),
    (node(), Z),
    (node(), node()),
    (terms.applied("SIN", node()), terms.applied("SIN", normed())),
]
OTHER = [
    (X, Z),
    (X, terms.tensor("x", "float16", (2, 3))),
    (X, terms.tensor("x", "float32", (3, 2))),
    (X, terms.tensor("x", "float32", (-1, 3))),
    (terms.applied("SIN", X), terms.applied("COS", X)),
    (terms.applied("SIN", X), terms.applied("SIN", Z)),
    (terms.applied("ELU", X, 0.1), terms.applied("ELU", X, 0.2)),
    (terms.cast(X, "float16"), terms.cast(X, "int32")),
    *((terms.joined(op, X, Z), terms.joined(op, Z, X)) for op in ("SUB", "DIV", "POW", "GREATER", "LESS", "PRELU")),
    (terms.joined("SUM", X, X), terms.joined("SUM", X, Z)),
    (terms.joined("SUM", Z, Z), terms.joined("SUM", X, Z)),
    (terms.normalized(X, Z, None, [1], 0.1), terms.normalized(X, Z, X, [1], 0.1)),
    (held(1), held(2)),
    (held(0.0), held(-0.0)),
    (held([1]), held([[1]])),
    (held(VALUES), terms.tensor("w", "float32", (2, 2))),
    # In memory one is as the other.
    (held(VALUES), held(VALUES.T)),
    (node(), X),
    (node(), normed(step=40)),
    (node(), normed(mean=3.001)),
    (node(), normed(factor=1.00001)),
    (node(), node(3.001)),
    (node(np.nan), normed(np.nan)),
    (terms.applied("SIN", node()), normed()),
]


@pytest.mark.parametrize("pair", SAME)
def test_what_stands_for_the_same_is_the_same(pair: tuple[Term, Term]) -> None:
    assert terms.same(*pair) and terms.same(*reversed(pair))


@pytest.mark.parametrize("pair", OTHER)
def test_what_stands_for_something_else_is_not(pair: tuple[Term, Term]) -> None:
    assert not terms.same(*pair) and not terms.same(*reversed(pair))
