"""Which tactic each layer of an engine got: what `build --as` reads of a report, which a stranger may have written."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from trtconv.core.decode import Fault, fields_of
from trtconv.core.encode import Document, plain
from trtconv.core.frozen import frozen

MOST_TACTICS = 100_000
"""Most tactics of one engine: a network of ten thousand layers has some tens of thousands, with its copies."""
MOST_NAME = 1 << 16
"""Most characters of a layer's name; one that is fused of hundreds joins theirs."""
_NUMBER = re.compile(r"0x[0-9a-f]{1,16}")


@frozen
class TensorLayout(Document, keys="dtype strides vectorized- components-"):
    """How a layer's input or output lies in memory.

    Args:
        dtype: Type of its elements: "float16".
        strides: Elements from one index to the next, for each axis.
        vectorized: Axis whose elements lie together; None where none does.
        components: How many of them do.
    """

    dtype: str
    strides: tuple[int, ...] = ()
    vectorized: int | None = None
    components: int | None = None


@frozen
class Tactic(Document, keys="layer tactic implementation- tensors profile"):
    """The tactic of one layer.

    Args:
        layer: TensorRT's name of the layer; from an editable timing cache its key ("0x" and 32 digits).
        tactic: TensorRT's number of the tactic, in hexadecimal.
        implementation: Number of what has the tactic, likewise; None from a timing cache.
        tensors: How inputs, then outputs, lie in memory; empty from a timing cache.
        profile: Position of the optimization profile that it is for.
    """

    layer: str
    tactic: str
    implementation: str | None = None
    tensors: tuple[TensorLayout, ...] = ()
    profile: int = 0

    @classmethod
    def from_json(cls, value: Any) -> Tactic:
        """Reads a tactic."""
        tactic = cls(**fields_of(cls, value))
        if not 0 < len(tactic.layer) <= MOST_NAME:
            raise Fault(f"it has not 1 to {MOST_NAME} characters", ["layer"])
        for key, number in (("tactic", tactic.tactic), ("implementation", tactic.implementation)):
            if number is not None and not _NUMBER.fullmatch(number):
                raise Fault(f"{number[:40]!r} is not a number such as 0x3e8", [key])
        return tactic


def hexadecimal(number: int) -> str:
    """Returns a number of 64 bits, which TensorRT counts with a sign or without one, in hexadecimal."""
    return f"0x{number & (1 << 64) - 1:x}"


def require_bounded(tactics: Sequence[Tactic]) -> None:
    """Raises Fault where there are more tactics than an engine has, or two for one layer."""
    if len(tactics) > MOST_TACTICS:
        raise Fault(f"it has {len(tactics)} entries, and {MOST_TACTICS} are the most")
    if len({(tactic.profile, tactic.layer) for tactic in tactics}) != len(tactics):
        raise Fault("it has a layer twice")


def tactics_digest(tactics: Sequence[Tactic]) -> str:
    """Returns the SHA-256 of tactics; empty where there are none."""
    if not tactics:
        return ""
    return hashlib.sha256(json.dumps(plain(tactics), sort_keys=True).encode()).hexdigest()
