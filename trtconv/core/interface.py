"""What an engine takes and returns where the model says otherwise: images, types and formats, results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.preprocessing import Preprocessing
from trtconv.core.suggest import did_you_mean
from trtconv.core.tensor_io import TensorIos

OPERATIONS = ("softmax", "sigmoid", "argmax")


@frozen
class Result:
    """What becomes of an output.

    Args:
        operation: One of `OPERATIONS`.
        axis: Which axis softmax and argmax are along; -1 is the last.
    """

    operation: str
    axis: int = 1

    def __str__(self) -> str:
        return self.operation if self.axis == 1 else f"{self.operation}:{self.axis}"

    to_json = __str__

    @classmethod
    def parse(cls, text: str) -> Result:
        """Reads "argmax" or "softmax:-1".

        Raises:
            InputError: It is something else.
        """
        operation, colon, axis = text.partition(":")
        if operation not in OPERATIONS:
            hint = f"It is one of {', '.join(OPERATIONS)}, with :AXIS where that is not 1."
            raise InputError(f"--postprocess: {operation!r} is unknown", did_you_mean(operation, OPERATIONS, hint))
        digits = axis.removeprefix("-")
        if colon and not (digits.isascii() and digits.isdecimal() and len(digits) < 3 and operation != "sigmoid"):
            raise InputError(f"--postprocess: {axis!r} is not an axis of {operation}", "Write softmax:1 or argmax:-1.")
        return cls(operation, int(axis) if colon else 1)

    @classmethod
    def from_json(cls, value: Any) -> Result:
        """Reads the text that `to_json` makes."""
        return cls.parse(str(value))


Results = dict[str, Result]
"""Output to what becomes of it; "" is the only output."""


def read_results(texts: Sequence[str]) -> Results:
    """Reads `--postprocess`: each OUTPUT=OPERATION[:AXIS], or the operation alone for the only output.

    Raises:
        InputError: One is neither, or an output comes twice.
    """
    results: Results = {}
    for text in texts:
        name, _, what = text.rpartition("=")
        if name in results:
            raise InputError(f"--postprocess names {name or 'the output'!r} twice", "Say once what becomes of it.")
        results[name] = Result.parse(what)
    return results


@frozen
class Interface:
    """What inputs and outputs are to be.

    Args:
        images: How the images become inputs that the engine takes; None: it takes none.
        io: Types and formats by name.
        results: What becomes of outputs.
    """

    images: Preprocessing | None = None
    io: TensorIos = dataclasses.field(default_factory=dict)
    results: Results = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is asked for."""
        return self.images is not None or bool(self.io) or bool(self.results)
