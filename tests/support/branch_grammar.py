"""Modules with branches on sizes and on values, made by Hypothesis, whose behaviour is known by construction."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

LOW, HIGH = 8, 40
"""Bounds of height and width."""


class Branching(nn.Module):
    """Computes something else where a condition of its input holds."""

    def __init__(self, condition: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.condition = condition
        self.conv = nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.condition(x):
            y = y * 2 + 1
        return y


@dataclasses.dataclass(frozen=True)
class SizeCondition:
    """A condition of height and width.

    Args:
        text: In Python, over h and w.
    """

    text: str

    def __call__(self, x: Tensor) -> Any:
        return eval(self.text, {"h": x.shape[2], "w": x.shape[3]})

    def truth(self) -> Mapping[tuple[int, int], bool]:
        """Returns whether it holds, for all sizes within the bounds."""
        sizes = range(LOW, HIGH + 1)
        return {(h, w): bool(eval(self.text, {"h": h, "w": w})) for h, w in itertools.product(sizes, sizes)}


def _size() -> st.SearchStrategy[str]:
    name, small = st.sampled_from(("h", "w")), st.integers(2, 9)
    return st.one_of(
        name,
        st.builds("({} % {})".format, name, small),
        st.builds("({} // {})".format, name, small),
        st.builds("({} * {} + {})".format, small, name, st.integers(-9, 30)),
        st.builds("(h {} w)".format, st.sampled_from(("+", "-", "*"))),
        st.builds("({}(h, w))".format, st.sampled_from(("min", "max"))),
    )


def _relation() -> st.SearchStrategy[str]:
    compare = st.sampled_from(("==", "!=", "<", "<=", ">", ">="))
    return st.builds("({} {} {})".format, _size(), compare, st.one_of(_size(), st.integers(0, 90).map(str)))


def size_conditions() -> st.SearchStrategy[SizeCondition]:
    """Conditions such as `(w >= (3 * h + 5)) and not ((h % 7) == 5)`."""
    joined = st.recursive(
        _relation(),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(("and", "or")), inner),
            st.builds("(not {})".format, inner),
            st.builds("(0 < {} < {})".format, _size(), _size()),
        ),
        max_leaves=3,
    )
    return joined.map(SizeCondition)


WRITTEN = (
    '"3" in str((h, w))',
    'f"{h}x{w}".endswith("1")',
    "(h, w) in {(24, 16), (9, 33), (16, 24), (31, 17), (40, 8), (8, 40), (12, 30), (21, 21)}",
    "hash((h, w)) % 5 == 0",
    "{24: 1, 31: 1}.get(h, 0)",
    '[*"aab"][h % 3] == "b"',
    'bin(h).count("1") == 3',
    'repr(w)[-1] == "7"',
    "sum(divmod(h, 10)) == 7",
    "len(range(3, w, 5)) == 4",
    "sorted([h, w, 20])[1] == h",
    "int(w**0.5) ** 2 == w",
    "h & (h - 1) == 0",
    "(h ^ w) == 3",
)
"""Conditions that take sizes as plain numbers, as text, or as keys."""


def written_conditions() -> st.SearchStrategy[SizeCondition]:
    """Conditions that no symbol can follow."""
    return st.sampled_from(WRITTEN).map(SizeCondition)


NUMBERS: Mapping[str, str] = {
    "mean": "{t}.mean()",
    "largest": "{t}.abs().max()",
    "corner": "{t}[0, 0, -1, -1]",
    "through a view": "{t}.transpose(2, 3)[..., 1:].reshape(-1)[3]",
    "written": "torch.zeros(4).index_copy(0, torch.tensor([1]), {t}.sum()[None])[1]",
    "in place": "torch.zeros(2).add_({t}.std())[0]",
    "sorted": "{t}.flatten().sort().values[-2]",
    "counted": "({t} > 0).sum()",
    "norm": "torch.linalg.vector_norm({t})",
    "matmul": "({t}.flatten() @ {t}.flatten()).sqrt()",
}
"""Ways to a number that depends on the values of a tensor t."""
READS: Mapping[str, str] = {
    "bool": "bool({n} > {k})",
    "truth": "{n} > {k}",
    "not": "not {n}",
    "item": "{n}.item() > {k}",
    "float": "float({n}) > {k}",
    "int": "int({n}) > {k}",
    "tolist": "{n}.tolist() > {k}",
    "numpy": "{n}.numpy() > {k}",
    "in": "{n}[None].round() in torch.tensor([{k}])",
    "equal": "torch.equal({n}, torch.tensor({k}))",
    "any": "any({n}[None] > {k})",
    "isnan": "torch.isnan({n})",
    "selected": "{n}[None][{n}[None] > {k}].numel() > 0",
    "nonzero": "({n}[None] > {k}).nonzero().shape[0] > 0",
    "is_nonzero": "torch.is_nonzero({n} > {k})",
    "max": "max({n}, torch.tensor({k})) != {n}",
}
"""Ways of Python to read a number n, and to compare it with k."""
LIMITS = (-1e6, -50.0, 0.0, 0.5, 49.0, 1e4, 1e9)


@dataclasses.dataclass(frozen=True)
class ValueCondition:
    """A condition of the values of a tensor, or of one that has nothing but its shape and type.

    Args:
        number: The way to a number, of `NUMBERS`.
        read: The way that Python reads it, of `READS`.
        limit: What it is compared with.
        values: Whether it is of the input's values; else of zeros of its shape.
    """

    number: str
    read: str
    limit: float
    values: bool

    @property
    def text(self) -> str:
        """In Python, over x."""
        number = NUMBERS[self.number].format(t="x" if self.values else "torch.zeros_like(x)")
        return READS[self.read].format(n=f"({number})", k=self.limit)

    def __call__(self, x: Tensor) -> Any:
        return eval(self.text, {"torch": torch, "x": x})
