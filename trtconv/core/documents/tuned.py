"""What `--tune` chose, and how to read it back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.core.frozen import frozen


@frozen
class Tuned:
    """What `--tune` chose for a transposed convolution.

    Args:
        node: Its name.
        layer: Its sizes and type, in words.
        form: The form that it takes.
        usual: The form that it would take without.
        us: Microseconds of each form; None where TensorRT does not build it.
        known: Whether all that was measured by an earlier build.
    """

    node: str
    layer: str
    form: str
    usual: str
    us: Mapping[str, float | None]
    known: bool

    def __str__(self) -> str:
        now, before = self.us.get(self.form), self.us.get(self.usual)
        if now is None or before is None:
            return f"tuned {self.node} ({self.layer}): none of its forms could be timed"
        gain = f"{before:.1f} -> {now:.1f} us" if self.form != self.usual else f"{now:.1f} us, none is faster"
        return f"tuned {self.node} ({self.layer}): {self.form}, {gain}{' (measured before)' if self.known else ''}"


def tuned_forms(report: Mapping[str, Any]) -> dict[str, str]:
    """Returns the forms that `--tune` chose, by node, of the JSON of a build's report."""
    return {each["node"]: each["form"] for each in report.get("tuned") or ()}
