"""What an engine takes and returns where the model says otherwise: `--io NAME=TYPE[:FORMAT]`, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.suggest import did_you_mean

TYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}
"""As they are written, and as NumPy calls them."""
FORMATS = {
    "chw": "LINEAR",
    "chw2": "CHW2",
    "chw4": "CHW4",
    "chw16": "CHW16",
    "chw32": "CHW32",
    "hwc": "HWC",
    "hwc8": "HWC8",
    "hwc16": "HWC16",
    "dhwc": "DHWC",
    "dhwc8": "DHWC8",
    "cdhw32": "CDHW32",
}
"""As trtexec writes them, and as TensorRT calls them. Those of DLA are left out: nothing here builds for it."""
LINEAR = "chw"
ALL = {"input": "inputs", "output": "outputs"}
"""What stands for all inputs, or all outputs, that can have the type."""
_WRONG = {("fp16", "chw4"): "TensorRT 8.6.0 reads it as something else, on an H100"}
"""Pairs of type and format that engines take and compute with wrongly. Source: bench/results/gpu-formats-8.6.json."""
_WORDS = f"TYPE is one of {', '.join(TYPES)}, FORMAT one of {', '.join(FORMATS)}."


@frozen
class TensorIo:
    """Type and format of an input or output.

    Args:
        type: One of `TYPES`.
        format: One of `FORMATS`.
        scale: What an int8 code is times, to be the number that it stands for; None for other types, and where only
            the type is asked for.
    """

    type: str
    format: str = LINEAR
    scale: float | None = None

    def __str__(self) -> str:
        return self.type if self.format == LINEAR else f"{self.type}:{self.format}"

    to_json = __str__

    @classmethod
    def parse(cls, text: str, flag: str = "--io") -> TensorIo:
        """Reads "fp16" or "fp16:hwc8".

        Args:
            text: What is read.
            flag: What messages say that it is of.

        Raises:
            InputError: A word is not known.
        """
        kind, _, form = text.partition(":")
        form = form or LINEAR
        if (kind, form) in _WRONG:
            raise InputError(
                f"{flag} {text} is not safe: {_WRONG[kind, form]}", f"Take {kind}:chw2, {kind}:chw16 or {kind}:hwc8."
            )
        if kind in TYPES and form in FORMATS:
            return cls(kind, form)
        wrong, words = (kind, list(TYPES)) if kind not in TYPES else (form, list(FORMATS))
        if "+" in form:
            raise InputError(f"{flag} {text!r} has several formats", "Name one: an engine has one, which --io decides.")
        raise InputError(
            f"{flag} {text!r} is not TYPE[:FORMAT]: {wrong!r} is unknown", did_you_mean(wrong, words, _WORDS)
        )

    @classmethod
    def from_json(cls, value: Any) -> TensorIo:
        """Reads the text that `to_json` makes."""
        return cls.parse(str(value))


TensorIos = Mapping[str, TensorIo]
"""Name of an input or output, or what `ALL` and `numbered` stand for, to what it is to be."""


def numbered(kind: str, index: int) -> str:
    """Returns what stands for one input or output by its position: "inputs#0"."""
    return f"{ALL[kind]}#{index}"


def place_of(name: str, kind: str) -> int | None:
    """Returns the position that a name of `numbered` stands for; None where it is another name."""
    place = name.removeprefix(numbered(kind, 0)[:-1])
    return int(place) if place != name and place.isascii() and place.isdecimal() and len(place) < 9 else None


def positional(kind: str) -> str:
    """Returns trtexec's flag that lists inputs or outputs by their positions."""
    return f"--{kind}IOFormats"


def read_io(texts: Sequence[str], inputs: str | None, outputs: str | None) -> TensorIos:
    """Reads `--io`, and trtexec's `--inputIOFormats` and `--outputIOFormats`.

    Args:
        texts: Each NAME=TYPE[:FORMAT].
        inputs: "fp16:chw,fp32:chw", in the model's order; one alone is for all.
        outputs: The same of outputs.

    Raises:
        InputError: One is none of that, or a name comes twice.
    """
    ios: dict[str, TensorIo] = {}
    for text in texts:
        name, _, what = text.rpartition("=")
        if not name:
            raise InputError(f"--io {text!r} is not NAME=TYPE[:FORMAT]", _WORDS)
        if name in ios:
            raise InputError(f"--io names {name!r} twice", "Say once what it is.")
        ios[name] = TensorIo.parse(what)
    for kind, line in (("input", inputs), ("output", outputs)):
        parts = [TensorIo.parse(text, positional(kind)) for text in line.split(",")] if line else []
        names = [ALL[kind]] if len(parts) == 1 else [numbered(kind, index) for index in range(len(parts))]
        ios |= dict(zip(names, parts, strict=True))
    return ios
