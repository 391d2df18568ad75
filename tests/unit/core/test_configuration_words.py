"""Hints about models that a configuration lists."""

from __future__ import annotations

import pytest

from trtconv.core.configuration_words import in_configuration
from trtconv.core.dim_flags import quoted


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Add: --dim a=1:1:8 --dim x:2=64.", 'Add: dims = { "a" = "1:1:8", "x:2" = "64" }.'),
        (f"Add: --dim {quoted(chr(39) + 'b c')}=MIN:MAX, now", 'Add: dims = { "\'b c" = "MIN:MAX" }, now'),
        ("Add --prove none (--dim)", "Add --prove none (--dim)"),
    ],
)
def test_bounds_are_a_key(hint: str, said: str) -> None:
    assert in_configuration(hint) == said
