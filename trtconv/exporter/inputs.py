"""The example's inputs, the names of their axes and their bounds, as a call gives them. Knows nothing of torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from trtconv.core.dim_flags import parse_dims
from trtconv.core.dims import Range, Shape
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.suggest import did_you_mean

DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
_ALIASES = {
    "float": "float32",
    "fp32": "float32",
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "double": "float64",
    "fp64": "float64",
    "long": "int64",
    "int": "int32",
}
AxisNames = tuple[str | None, ...]
"""One entry an axis of an input: the dimension's name, or None for a static axis."""


_BY_RANK: dict[int, AxisNames] = {
    2: ("batch", None),
    3: ("batch", None, "length"),
    4: ("batch", None, "height", "width"),
    5: ("batch", None, "depth", "height", "width"),
}
"""What the axes of an input are mostly called, by how many it has."""
_EXAMPLE = "Write --input x=1x3x64x64, or --input x=batch,3,height=64:128:512,width=64:128:512."


@dataclasses.dataclass(frozen=True, order=True)
class SteppedRange(Range):
    """Bounds of a dimension whose sizes are to be multiples of a step."""

    step: int = 1


@frozen
class Values:
    """Which values an integer input takes.

    Args:
        low: The smallest.
        high: The largest: a number, or the name of the dimension whose size it is.
        place: Input and axis of that dimension, once they are known.
    """

    low: int
    high: int | str
    place: tuple[int, int] | None = None

    @classmethod
    def parse(cls, flag: str, text: str) -> Values:
        """Reads "1..length" or "0..49406".

        Raises:
            InputError: For what is neither.
        """
        low, dots, high = (part.strip() for part in text.partition(".."))
        number = high.removeprefix("-").isdecimal()
        if not (dots and low.removeprefix("-").isdecimal() and (number or high.isidentifier())):
            raise InputError(f"--input {flag!r}: [{text}] is not a range of values", "Write n=batch:int64[1..length].")
        if number and int(high) < int(low):
            raise InputError(f"--input {flag!r}: [{text}] has no value in it", "Write the smaller value first.")
        return cls(int(low), int(high) if number else high)

    def top(self, shapes: Sequence[Shape]) -> int:
        """Returns the largest value where the inputs have some shapes."""
        if self.place is not None:
            return max(shapes[self.place[0]][self.place[1]], self.low)
        return self.high if isinstance(self.high, int) else self.low


@frozen
class InputDecl:
    """One input of the module.

    Args:
        name: The tensor's name in the ONNX file; that of `forward`'s parameter where there is one so called.
        shape: The example's shape.
        dtype: One of `DTYPES`.
        axes: The names of its axes, where the call gives them with the shape.
        bounds: Dimension name to its bounds, likewise.
        values: The values that it takes, where it is of integers and the call says so.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    axes: AxisNames | None = None
    bounds: Mapping[str, Range] = dataclasses.field(default_factory=dict)
    values: Values | None = None

    def __str__(self) -> str:
        return f"{self.name}={'x'.join(map(str, self.shape)) or 'scalar'}:{self.dtype}"


def parse_inputs(texts: Sequence[str]) -> tuple[InputDecl, ...]:
    """Reads every `--input` of a call: as `parse_input`, or "x=batch,3,height=64:128:512,width=64:128:512:/8".

    An axis is a size, a name with its bounds, of which the middle one is the example, or a name alone: its bounds stand
    with another input, or its example is 1. The name of the input may be left out where it is the only one.

    Raises:
        InputError: For one that cannot be read.
    """
    bounds: dict[str, Range] = {}
    for text in texts:
        bounds |= _input(text, {}).bounds
    decls = tuple(_input(text, bounds) for text in texts)
    if len(decls) > 1 and not all(decl.name for decl in decls):
        raise InputError("--input without a name, beside others", "Write --input NAME=... for each of them.")
    return decls


def _input(text: str, shared_bounds: Mapping[str, Range]) -> InputDecl:
    name, shape = _named(text)
    if not _lists_axes(shape):
        return parse_input(text) if name or "=" in text else dataclasses.replace(parse_input(f"_={text}"), name="")
    dims, dtype = _without_dtype(shape)
    sizes: list[int] = []
    axes: list[str | None] = []
    bounds: dict[str, Range] = {}
    for axis in dims.split(","):
        label, bounded, _ = (part.strip() for part in axis.partition("="))
        if not label or label == "_" or ":" in label:
            raise InputError(f"--input {text!r}: {axis!r} is not an axis", _EXAMPLE)
        if bounded:
            bounds |= parse_bounds([axis])
        bound = bounds.get(label, shared_bounds.get(label))
        sizes.append(int(label) if label.isdecimal() else 1 if bound is None else bound.opt)
        axes.append(None if label.isdecimal() else label)
    decl = parse_input(f"{name or '_'}={'x'.join(map(str, sizes))}{dtype}")
    return dataclasses.replace(decl, name=name.strip(), axes=tuple(axes), bounds=bounds)


def _named(text: str) -> tuple[str, str]:
    """Splits an input's name from its shape; the name is empty where it was left out.

    The first axis may have an equals sign of its own: "x=batch=1:1:4,3" names input x, "batch=1:1:4,3" only its axis,
    since a range by itself is not an axis here.
    """
    first = text.partition(",")[0]
    name, equals, shape = text.partition("=")
    axis = first.partition("=")[2]
    if not equals or "," in name or ("=" not in axis and _bounds_only(axis) and ("," in text or ":/" in axis)):
        return "", text
    return name, shape


def _bounds_only(axis: str) -> bool:
    """Whether a text is the bounds of an axis, such as "1:1:4" or "16:512:/8"."""
    return ":" in axis and all(part.strip().lstrip("/").isdecimal() for part in axis.split(":"))


def _lists_axes(shape: str) -> bool:
    """Whether a shape is written axis by axis, and not as sizes joined by x."""
    only = shape.partition(":")[0].strip()
    return "," in shape or "=" in shape or (only.isidentifier() and only != "scalar")


def _without_dtype(text: str) -> tuple[str, str]:
    """Splits what follows the last colon off where it is no number and no step."""
    axes, colon, last = text.rpartition(":")
    if colon and "," not in last and not last.strip().isdecimal() and not last.startswith("/"):
        return axes, f":{last}"
    return text, ""


def parse_bounds(texts: Sequence[str]) -> dict[str, Range]:
    """Reads the values of `--dim`, of which each may end in a step: "height=16:512:/8".

    Raises:
        InputError: For one that cannot be read.
    """
    plain, steps = [], []
    for text in texts:
        bounds, slash, step = text.rpartition(":/")
        if slash and not (step.isascii() and step.isdecimal() and int(step) > 0):
            raise InputError(f"--dim {text!r}: {step!r} is not a step", "Write --dim height=16:512:/8.")
        plain.append(bounds if slash else text)
        steps.append(int(step) if slash else 0)
    by_name = dict(zip((text.rpartition("=")[0].strip() for text in plain), steps, strict=True))
    return {
        name: SteppedRange(bound.min, bound.opt, bound.max, by_name[name]) if by_name.get(name) else bound
        for name, bound in parse_dims(plain).items()
    }


def all_axes(inputs: Sequence[InputDecl], dynamic: Mapping[str, AxisNames]) -> dict[str, AxisNames]:
    """Joins the names of axes that stand with the inputs and those that were given apart.

    Raises:
        InputError: An input without usual names for its axes is to have them.
    """
    result = {decl.name: decl.axes for decl in inputs if decl.axes is not None}
    ranks = {decl.name: len(decl.shape) for decl in inputs}
    for name, axes in dynamic.items():
        usual = _BY_RANK.get(ranks.get(name, 0))
        if not axes and usual is None:
            raise InputError(
                f"--dynamic {name}: its axes have no usual names",
                f"Write --dynamic {name}=AXIS,AXIS,...; _ is a static one.",
            )
        result[name] = axes or usual or ()
    return result


def all_bounds(inputs: Sequence[InputDecl], dims: Mapping[str, Range]) -> dict[str, Range]:
    """Joins the bounds that stand with the inputs and those that were given apart, which go first."""
    return {**{name: bound for decl in inputs for name, bound in decl.bounds.items()}, **dims}


def parse_input(text: str) -> InputDecl:
    """Reads one `--input`: "x=1x3x64x64", "t=1:int64", "scale=scalar"."""
    name, equals, rest = text.partition("=")
    name, rest = name.strip(), rest.strip()
    if not (name and equals and rest):
        raise InputError(f"--input {text!r} is not NAME=SHAPE[:DTYPE]", "Write --input x=1x3x64x64 or t=1:int64.")
    shape, _, dtype = rest.partition(":")
    dtype, bracket, values = dtype.partition("[")
    decl = InputDecl(name, _shape(text, shape), _dtype(text, dtype or "float32"))
    if not bracket:
        return decl
    if not values.endswith("]") or not decl.dtype.startswith(("int", "uint")):
        raise InputError(f"--input {text!r}: values go with an integer type", "Write n=batch:int64[1..length].")
    return dataclasses.replace(decl, values=Values.parse(text, values[:-1]))


def with_places(inputs: Sequence[InputDecl], axes: Mapping[str, AxisNames]) -> tuple[InputDecl, ...]:
    """Returns inputs whose values know the place of the dimension that bounds them.

    Args:
        inputs: All inputs.
        axes: Input name to the names of its axes.

    Raises:
        InputError: A name that no axis has.
    """
    places = {
        dim: (number, axis)
        for number, decl in enumerate(inputs)
        for axis, dim in enumerate(axes.get(decl.name, ()))
        if dim is not None
    }
    placed = []
    for decl in inputs:
        if decl.values is not None and isinstance(decl.values.high, str):
            if decl.values.high not in places:
                names = ", ".join(places) or "none"
                message = f"--input {decl.name}: no axis is called {decl.values.high}"
                raise InputError(message, did_you_mean(decl.values.high, list(places), f"Axes: {names}."))
            values = dataclasses.replace(decl.values, place=places[decl.values.high])
            decl = dataclasses.replace(decl, values=values)
        placed.append(decl)
    return tuple(placed)


def _shape(flag: str, text: str) -> Shape:
    if text == "scalar":
        return ()
    sizes = text.split("x")
    if not all(size.isascii() and size.isdecimal() and len(size) < 12 for size in sizes):
        raise InputError(f"--input {flag!r}: the shape {text!r} is not integers joined by x", "Write 1x3x64x64.")
    shape = tuple(int(size) for size in sizes)
    if min(shape) < 1:
        raise InputError(f"--input {flag!r} has a size below 1", "Give sizes of at least 1.")
    return shape


def _dtype(flag: str, text: str) -> str:
    dtype = _ALIASES.get(text, text)
    if dtype not in DTYPES:
        hint = did_you_mean(text, [*DTYPES, *_ALIASES], f"Use one of {', '.join(DTYPES)}.")
        raise InputError(f"--input {flag!r}: there is no type {text!r}", hint)
    return dtype


def parse_dynamic(text: str) -> tuple[str, AxisNames]:
    """Reads one `--dynamic`: "x=batch,_,height,width"; "_" is a static axis; "x" alone gives it the usual names."""
    if "=" not in text:
        return text.strip(), ()
    name, equals, rest = text.partition("=")
    axes = tuple(part.strip() for part in rest.split(","))
    if not (name.strip() and equals and all(axes)):
        raise InputError(
            f"--dynamic {text!r} is not NAME=AXIS,AXIS,...", "Write --dynamic x=batch,_,height,width; _ is static."
        )
    return name.strip(), tuple(None if axis == "_" else axis for axis in axes)
