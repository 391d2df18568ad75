"""Which terms are the same: those that stand for the same values, whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trtconv.runtimes.proof.terms import term as terms
from trtconv.runtimes.proof.terms.term import Term

X, Z = terms.tensor("x", "float32", (2, 3)), terms.tensor("z", "float32", (2, 3))
VALUES = np.array([[1, 2], [3, 4]], np.float32)


def held(values: Any) -> Term:
    return terms.constant(np.asarray(values, np.float32))


SAME = [
    (X, terms.tensor("x", "float32", (2, 3))),
    *((terms.joined(op, X, Z), terms.joined(op, Z, X)) for op in ("SUM", "PROD", "MAX", "MIN", "EQUAL")),
    (terms.joined("SUM", X, terms.joined("PROD", X, Z)), terms.joined("SUM", terms.joined("PROD", Z, X), X)),
    (held(VALUES), held(np.asfortranarray(VALUES))),
    (held(np.nan), held(np.nan)),
    (terms.normalized(X, Z, held([[0, 0, 0]]), [1], 0.1), terms.normalized(X, Z, None, [1], 0.1)),
    (held(VALUES.T), held(VALUES.T.copy())),
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
]


@pytest.mark.parametrize("pair", SAME)
def test_what_stands_for_the_same_is_the_same(pair: tuple[Term, Term]) -> None:
    assert terms.same(*pair) and terms.same(*reversed(pair))


@pytest.mark.parametrize("pair", OTHER)
def test_what_stands_for_something_else_is_not(pair: tuple[Term, Term]) -> None:
    assert not terms.same(*pair) and not terms.same(*reversed(pair))
