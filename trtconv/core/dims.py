"""Dynamic dimensions, their ranges, and optimization profiles (min, opt, max), as plain values."""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.core.encode import Document, plain
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.typed import settle_fields

Shape = tuple[int, ...]


_LARGEST = 2**48
"""Sizes beyond are none, and leave no room in 64 bits for the layers that enlarge them."""


@dataclasses.dataclass(frozen=True, order=True)
class Range:
    """Inclusive bounds of one dimension, in elements.

    Raises:
        InputError: Unless 1 <= min <= opt <= max, and max is at most 2**48.
    """

    min: int
    opt: int
    max: int

    EXAMPLE = '"64:256:512"'
    """What a request takes in its place."""

    def __post_init__(self) -> None:
        if not type(self.min) is type(self.opt) is type(self.max) is int:
            settle_fields(self)
        if max(self.min, self.opt, self.max) > _LARGEST:
            raise InputError(f"{self.short}: no dimension is that large", "Give sizes that a tensor can have.")
        if self.min < 1:
            raise InputError(
                f"{self.short}: a dimension is at least 1", "Give positive sizes, as in height=64:256:512."
            )
        if not self.min <= self.opt <= self.max:
            raise InputError(
                f"{self}: bounds must be ordered min <= opt <= max",
                f"Did you mean {Range(*sorted((self.min, self.opt, self.max)))}?",
            )

    def __str__(self) -> str:
        return f"{self.min}:{self.opt}:{self.max}"

    to_json = __str__

    @property
    def short(self) -> str:
        """The range as people write it: "64" where it is one size."""
        return str(self.min) if self.min == self.max == self.opt else str(self)

    @classmethod
    def parse(cls, text: str) -> Range:
        """Reads "MIN:OPT:MAX", "MIN:MAX" (opt = max) or "N" (fixed)."""
        parts = text.split(":")
        try:
            sizes = [int(part) for part in parts]
        except ValueError as error:
            message = f"{text!r} is not MIN:OPT:MAX, MIN:MAX or N"
            guess = ":".join(re.split("[x,;-]", text))
            plain = re.fullmatch(r"\d{1,9}(:\d{1,9}){1,2}", guess)
            hint = f"Did you mean {guess}?" if plain else "Give integers, as in 64:256:512."
            raise InputError(message, hint) from error
        if len(sizes) == 1:
            return cls(sizes[0], sizes[0], sizes[0])
        if len(sizes) == 2:
            return cls(sizes[0], sizes[1], sizes[1])
        if len(sizes) == 3:
            return cls(*sizes)
        raise InputError(f"{text!r} has {len(sizes)} parts", "Give MIN:OPT:MAX, MIN:MAX or N.")

    @classmethod
    def of(cls, bound: object) -> Range:
        """Returns the range of a `Range`, of what `parse` reads, of one size, or of two or three in a tuple or list.

        Raises:
            InputError: It is none of these.
        """
        if isinstance(bound, Range):
            return bound
        sizes = bound if isinstance(bound, (tuple, list)) else (bound,)
        if isinstance(bound, str) or (
            sizes and all(isinstance(size, numbers.Integral) and not isinstance(size, bool) for size in sizes)
        ):
            return cls.parse(bound if isinstance(bound, str) else ":".join(map(str, sizes)))
        raise InputError(f"{bound!r} is not a range of sizes", 'Give trtconv.Range(64, 256, 512), "64:256:512" or 64.')

    @classmethod
    def from_json(cls, value: Any) -> Range:
        """Reads the text that `to_json` makes."""
        return cls.parse(str(value))


@frozen
class InputSpec:
    """One graph input as the model declares it.

    Args:
        name: Tensor name.
        dtype: ONNX element type in lower case, for example "float" or "int64".
        dims: One entry an axis: a size, or a dimension name.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(str(d) for d in self.dims)})"


@frozen
class InputRange(Document):
    """The min, opt and max shape of one input in one profile."""

    min: Shape
    opt: Shape
    max: Shape


@frozen
class ShapeProfile:
    """One optimization profile: min, opt and max for every input of a model.

    Args:
        inputs: Input name to its shapes; has every input that the model has, static ones too.
        dims: The named dimensions behind it.
        values: Bounds of the elements of inputs that hold shapes or counts ("shape tensors"), flat.
    """

    inputs: Mapping[str, InputRange]
    dims: Mapping[str, Range]
    values: Mapping[str, InputRange] = dataclasses.field(default_factory=dict)

    def contains(self, shapes: Mapping[str, Sequence[int]]) -> bool:
        """Whether shapes, of all inputs or of some, are inside."""
        bounds = ((shape, self.inputs[name].min, self.inputs[name].max) for name, shape in shapes.items())
        return all(
            len(shape) == len(low) and all(a <= size <= b for size, a, b in zip(shape, low, high, strict=True))
            for shape, low, high in bounds
        )

    def to_json(self) -> dict[str, dict[str, object]]:
        """Returns input name to its shapes, and to its "values" where they are bounded."""
        document: dict[str, dict[str, object]] = plain(self.inputs)
        for name, values in self.values.items():
            document[name]["values"] = values.to_json()
        return document


def times(shape: Sequence[int]) -> str:
    """Writes a shape as people do: "2x3x64x64"; that of a scalar has no sizes."""
    return "x".join(str(size) for size in shape) or "scalar"


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Returns "height 64, width 32"."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def elements_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """Returns how many elements tensors of these shapes have together."""
    return sum(map(math.prod, shapes.values()))


def dynamic_dims(inputs: Sequence[InputSpec]) -> dict[str, list[str]]:
    """Returns each dynamic dimension's name with the places (`INPUT:AXIS`) where it occurs, in order."""
    dims: dict[str, list[str]] = {}
    for spec in inputs:
        for axis, dim in enumerate(spec.dims):
            if isinstance(dim, str):
                dims.setdefault(dim, []).append(f"{spec.name}:{axis}")
    return dims
