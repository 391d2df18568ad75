""" "Did you mean ...?": the hint behind a word that is taken from a list and is not in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

_LONGEST = 200
"""Characters of a word that are compared; a stranger's word may be a megabyte, and comparing takes its square."""
_LISTED = 20
_ALIKE = 0.7
"""How alike two words are for one to be meant: above depth and width (0.6), below height and heigth (0.83)."""
TYPES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float32": "as-is", "fp32": "as-is", "i8": "int8"}
"""What other tools call the choices of --precision."""


def nearest(word: str, choices: Sequence[str], synonyms: Mapping[str, str] = MappingProxyType({})) -> str | None:
    """Returns the choice nearest to a word; None where all are far from it. Arguments as of `did_you_mean`."""
    # Loaded only here: most calls make no mistake.
    import difflib

    by_lower = {name.lower(): name for name in reversed(choices)}
    by_lower |= {word: choice for word, choice in synonyms.items() if choice in choices}
    near = difflib.get_close_matches(word[:_LONGEST].lower(), by_lower, n=1, cutoff=_ALIKE)
    return by_lower[near[0]] if near else None


def did_you_mean(
    word: str, choices: Iterable[str], otherwise: str = "", *, synonyms: Mapping[str, str] | None = None
) -> str:
    """Returns the choice nearest to a word as a question, or else a text.

    Args:
        word: What was written.
        choices: What could have been meant.
        otherwise: Returned where nothing is near; empty: the list of the choices.
        synonyms: Words of other tools, to the choice that means the same.
    """
    names = list(choices)
    guess = nearest(word, names, synonyms or {})
    if guess is not None:
        return f"Did you mean {guess}?"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return otherwise or f"It has: {', '.join(names[:_LISTED]) or 'none'}{more}."
