"""Named dimensions, their bounds, and optimization profiles.

The vocabulary: a model has *inputs*; every axis of an input is either static or carries a *dimension name*: the
symbolic name in the model, or `INPUT:AXIS` (such as `x:2`) where the model gives none. A `Range` bounds a
dimension, and a `ShapeProfile` gives every input a min, opt and max shape, as TensorRT wants them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.errors import InputError
from trtconv.expressions import Expression, derived, free_names
from trtconv.frozen import frozen

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

    def __post_init__(self) -> None:
        if max(self.min, self.opt, self.max) > _LARGEST:
            raise InputError(f"{self}: no dimension is that large", "Give sizes that a tensor can have.")
        if self.min < 1:
            raise InputError(f"{self}: a dimension is at least 1", "Give positive sizes, as in height=64:256:512.")
        if not self.min <= self.opt <= self.max:
            raise InputError(
                f"{self}: bounds must be ordered min <= opt <= max",
                f"Did you mean {Range(*sorted((self.min, self.opt, self.max)))}?",
            )

    def __str__(self) -> str:
        return f"{self.min}:{self.opt}:{self.max}"

    @classmethod
    def parse(cls, text: str) -> Range:
        """Reads "MIN:OPT:MAX", "MIN:MAX" (opt = max) or "N" (fixed)."""
        parts = text.split(":")
        try:
            sizes = [int(part) for part in parts]
        except ValueError as error:
            message = f"{text!r} is not MIN:OPT:MAX, MIN:MAX or N"
            raise InputError(message, "Give integers, as in 64:256:512.") from error
        if len(sizes) == 1:
            return cls(sizes[0], sizes[0], sizes[0])
        if len(sizes) == 2:
            return cls(sizes[0], sizes[1], sizes[1])
        if len(sizes) == 3:
            return cls(*sizes)
        raise InputError(f"{text!r} has {len(sizes)} parts", "Give MIN:OPT:MAX, MIN:MAX or N.")


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
class InputRange:
    """The min, opt and max shape of one input in one profile."""

    min: Shape
    opt: Shape
    max: Shape

    def to_json(self) -> dict[str, list[int]]:
        """Returns the three shapes as lists."""
        return {"min": list(self.min), "opt": list(self.opt), "max": list(self.max)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputRange:
        """Reads what `to_json` wrote."""
        return cls(*(tuple(int(n) for n in data[pick]) for pick in ("min", "opt", "max")))


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

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Returns input name to its shapes, and to its "values" where they are bounded."""
        found: dict[str, dict[str, Any]] = {name: dict(shapes.to_json()) for name, shapes in self.inputs.items()}
        for name, values in self.values.items():
            found[name]["values"] = values.to_json()
        return found


def dynamic_dims(inputs: Sequence[InputSpec]) -> dict[str, list[str]]:
    """Returns each dynamic dimension's name with the places (`INPUT:AXIS`) where it occurs, in order."""
    found: dict[str, list[str]] = {}
    for spec in inputs:
        for axis, dim in enumerate(spec.dims):
            if isinstance(dim, str):
                found.setdefault(dim, []).append(f"{spec.name}:{axis}")
    return found


def make_profile(
    inputs: Sequence[InputSpec], bounds: Mapping[str, Range], values: Mapping[str, InputRange] | None = None
) -> ShapeProfile:
    """Makes the profile of a model from the bounds of its dimensions.

    Args:
        inputs: The model's inputs.
        bounds: Dimension name (or `INPUT:AXIS`) to its range. A range of one size is accepted for a static axis
            of just that size.
        values: Bounds of the elements of inputs that hold shapes or counts.

    Returns:
        The profile; every input is in it.

    Raises:
        InputError: For a name that the model does not have, a range given to a static axis, or a dynamic dimension
            without bounds. The message lists what exists and a command line to copy.
    """
    ranges = bounds_by_name(inputs, bounds)
    missing = [name for name in dynamic_dims(inputs) if name not in ranges]
    if missing:
        raise _missing_bounds(inputs, missing, ranges)

    def shape(spec: InputSpec, pick: str) -> Shape:
        return tuple(d if isinstance(d, int) else getattr(ranges[d], pick) for d in spec.dims)

    shapes = {s.name: InputRange(shape(s, "min"), shape(s, "opt"), shape(s, "max")) for s in inputs}
    return ShapeProfile(shapes, ranges, _checked_values(inputs, values or {}, shapes))


def _checked_values(
    inputs: Sequence[InputSpec], values: Mapping[str, InputRange], shapes: Mapping[str, InputRange]
) -> Mapping[str, InputRange]:
    by_name = {spec.name: spec for spec in inputs}
    for name, bounds in values.items():
        if name not in by_name:
            raise InputError(f"--value {name}: the model has no input {name!r}", f"It has: {', '.join(by_name)}.")
        spec = by_name[name]
        if not spec.dtype.startswith(("int", "uint")) or len(spec.dims) > 1:
            raise InputError(
                f"--value {name}: input {spec} of type {spec.dtype} holds no shape or count",
                "Only integer scalars and vectors can; the shape of an input is bounded with --dim.",
            )
        count = shapes[name].max[0] if spec.dims else 1
        if len(bounds.min) != count:
            raise InputError(
                f"--value {name} has {len(bounds.min)} element(s), input {spec} has {count}",
                "Join the elements by x, as in 1x3x64x64:1x3x128x128:1x3x256x256.",
            )
    return dict(values)


def parse_values(items: Sequence[str]) -> dict[str, InputRange]:
    """Reads the values of `--value`: "NAME=MIN:OPT:MAX", each an integer or several joined by x.

    Args:
        items: One string an occurrence of the flag. "NAME=N" fixes the value, "NAME=MIN:MAX" means opt = max.

    Returns:
        Input name to the bounds of its elements.

    Raises:
        InputError: For an item that is no such thing, or bounds that are not ordered.
    """
    values: dict[str, InputRange] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.rpartition("="))
        parts = [_parse_elements(part) for part in text.split(":")]
        if not (equals and name) or len(parts) > 3 or any(part is None for part in parts):
            raise InputError(f"--value {item!r} is not NAME=MIN:OPT:MAX", "Write --value size=64x64:128x128:256x256.")
        low, best, high = (parts[0], parts[len(parts) // 2], parts[-1])
        assert low is not None and best is not None and high is not None
        if not len(low) == len(best) == len(high) or any(
            not a <= b <= c for a, b, c in zip(low, best, high, strict=True)
        ):
            raise InputError(
                f"--value {name}: bounds must have as many elements each and be ordered min <= opt <= max",
                "Write --value size=64x64:128x128:256x256.",
            )
        if values.setdefault(name, InputRange(low, best, high)) != InputRange(low, best, high):
            raise InputError(f"--value gives {name} twice", "Give every input one range.")
    return values


def _parse_elements(text: str) -> Shape | None:
    parts = text.strip().split("x")
    if not all(part.removeprefix("-").isdecimal() and part.isascii() and len(part) < 20 for part in parts):
        return None
    return tuple(int(part) for part in parts)


def bounds_by_name(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Returns bounds by the model's own names, with those that follow from them; dimensions may be missing.

    Raises:
        InputError: As `make_profile`, but for missing ones.
    """
    return _with_derived(inputs, _resolve(inputs, bounds))


def _resolve(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Maps every given name to the model's own name for that dimension."""
    dims = dynamic_dims(inputs)
    by_place = {place: name for name, places in dims.items() for place in places}
    static = {f"{s.name}:{axis}": d for s in inputs for axis, d in enumerate(s.dims) if isinstance(d, int)}
    ranges: dict[str, Range] = {}
    for given, bound in bounds.items():
        if given in static:
            if bound.min != static[given] or bound.max != static[given]:
                raise InputError(
                    f"dimension {given} is static ({static[given]}) and cannot range over {bound}",
                    f"Leave out {given}, or export the model with that axis dynamic.",
                )
            continue
        name = given if given in dims or given in free_names(list(dims)) else by_place.get(given)
        if name is None:
            raise InputError(f"the model has no dimension {given!r}", f"It has: {_list_dims(inputs)}.")
        if name in ranges and ranges[name] != bound:
            raise InputError(f"dimension {name} is given twice: {ranges[name]} and {bound}", "Give one range for it.")
        ranges[name] = bound
    return ranges


def _with_derived(inputs: Sequence[InputSpec], given: Mapping[str, Range]) -> dict[str, Range]:
    """Adds the symbols of expressions that were given bounds, and the expressions whose symbols have bounds."""
    ranges = dict(given)
    expressions = derived(list(dynamic_dims(inputs)))
    for name, expression in expressions.items():
        if name in given:
            _set_symbol(ranges, expression, given[name])
    for name, expression in expressions.items():
        if all(symbol in ranges for symbol in expression.symbols):
            computed = _computed(expression, ranges)
            if name in given and given[name] != computed:
                raise InputError(
                    f"dimension {name} is given as {given[name]}, but it is {computed}"
                    f" for {_bounds_of(expression, ranges)}",
                    f"Leave out {name}: it is computed from {', '.join(expression.symbols)}.",
                )
            ranges[name] = computed
    return ranges


def _set_symbol(ranges: dict[str, Range], expression: Expression, bound: Range) -> None:
    symbol = expression.symbols[0]
    if not expression.linear:
        if all(name in ranges for name in expression.symbols):
            return
        raise InputError(
            f"dimension {expression.text} is computed from {', '.join(expression.symbols)}",
            f"Give bounds of that instead: {_flags(expression.symbols)}.",
        )
    sizes = []
    for size in (bound.min, bound.opt, bound.max):
        solved = expression.solve(size)
        if solved is None or solved < 1:
            near = [n for n in _possible_sizes(expression, size) if n != size]
            hint = f"Near it are {' and '.join(map(str, near))}." if near else f"Give bounds for {symbol} instead."
            raise InputError(f"dimension {expression.text} cannot be {size}: {symbol} would be no size", hint)
        sizes.append(solved)
    solved_range = Range(*sorted(sizes))
    if symbol in ranges and ranges[symbol] != solved_range:
        raise InputError(
            f"dimension {expression.text}={bound} means {symbol}={solved_range},"
            f" but {symbol} is given as {ranges[symbol]}",
            f"Give bounds for {symbol} alone.",
        )
    ranges[symbol] = solved_range


def _possible_sizes(expression: Expression, near: int) -> list[int]:
    """Returns the sizes just below and above that an expression of one symbol can have."""
    span = range(max(1, near - 1024), near + 1025)
    fitting = [n for n in span if (solved := expression.solve(n)) is not None and solved >= 1]
    return [*[n for n in fitting if n <= near][-1:], *[n for n in fitting if n > near][:1]]


def _computed(expression: Expression, ranges: Mapping[str, Range]) -> Range:
    def at(pick: str) -> int:
        return int(expression.evaluate({name: getattr(ranges[name], pick) for name in expression.symbols}))

    sizes = sorted((at("min"), at("opt"), at("max")))
    if sizes[0] < 1:
        raise InputError(
            f"dimension {expression.text} is {sizes[0]} for {_bounds_of(expression, ranges)}", "Give larger sizes."
        )
    return Range(*sizes)


def _bounds_of(expression: Expression, ranges: Mapping[str, Range]) -> str:
    return ", ".join(f"{name}={ranges[name]}" for name in expression.symbols)


def _list_dims(inputs: Sequence[InputSpec]) -> str:
    dims = dynamic_dims(inputs)
    if not dims:
        return "no dynamic dimension; inputs are " + ", ".join(str(s) for s in inputs)
    return ", ".join(f"{name} ({', '.join(places)})" for name, places in dims.items())


def _missing_bounds(inputs: Sequence[InputSpec], missing: Sequence[str], ranges: Mapping[str, Range]) -> InputError:
    lines = [f"{len(missing)} dynamic dimension(s) without bounds:"]
    dims = dynamic_dims(inputs)
    lines += [f"  {name}  at {', '.join(dims[name])}" for name in missing]
    expressions = derived(list(dims))
    wanted: list[str] = []
    for name in missing:
        expression = expressions.get(name)
        if expression is None:
            wanted.append(name)
        elif not expression.linear:
            wanted += [symbol for symbol in expression.symbols if symbol not in ranges]
        elif expression.symbols[0] not in missing:
            wanted.append(name)
    # What follows from a symbol that is asked for need not be given.
    wanted = [name for name in dict.fromkeys(wanted) if not set(_symbols(expressions, name)) & set(wanted)]
    return InputError("\n".join(lines), f"Add: {_flags(wanted)}")


def _symbols(expressions: Mapping[str, Expression], name: str) -> tuple[str, ...]:
    return expressions[name].symbols if name in expressions else ()


def _flags(names: Sequence[str]) -> str:
    return " ".join(f"--dim {_quote(name)}=MIN:OPT:MAX" for name in names)


def _quote(name: str) -> str:
    plain = all(c.isalnum() or c in "_-.:/" for c in name)
    return name if plain else "'" + name.replace("'", "'\\''") + "'"


def parse_dims(items: Sequence[str]) -> dict[str, Range]:
    """Reads the values of `--dim`: "NAME=MIN:OPT:MAX", "NAME=MIN:MAX" or "NAME=N".

    Args:
        items: One string an occurrence of the flag. A name may contain "=": the last one separates.

    Returns:
        Dimension name to range, in the order given.

    Raises:
        InputError: For an item that is no such thing, or a name given twice with different ranges.
    """
    return _parse_bounds("--dim", items)


def parse_profile(text: str) -> dict[str, Range]:
    """Reads one value of `--profile`: "height=64:128:256,width=64:128:256".

    Args:
        text: Items as in `--dim`, separated by commas. Commas inside parentheses belong to a name, as in "Max(h, w)".

    Returns:
        Dimension name to range, in the order given.

    Raises:
        InputError: As `parse_dims`, and for an empty profile.
    """
    items = [item for item in _split_outside(text, ",", "(", ")") if item.strip()]
    if not items:
        raise InputError("--profile is empty", "Write --profile 'height=64:128:256,width=64:128:256'.")
    return _parse_bounds("--profile", items)


def _parse_bounds(flag: str, items: Sequence[str]) -> dict[str, Range]:
    bounds: dict[str, Range] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.rpartition("="))
        if not (equals and name and text):
            raise InputError(f"{flag} {item!r} is not NAME=MIN:OPT:MAX", f"Write {flag} height=64:256:512.")
        try:
            bound = Range.parse(text)
        except InputError as error:
            raise InputError(f"{flag} {name}: {error.message}", error.hint) from error
        if bounds.setdefault(name, bound) != bound:
            raise InputError(
                f"{flag} gives {name} twice: {bounds[name]} and {bound}", f"Give {name} one range in each {flag}."
            )
    return bounds


def _split_outside(text: str, separator: str, opening: str, closing: str) -> list[str]:
    """Splits at separators that are not between an opening and a closing character.

    Where the two are the same character (a quote) they do not nest, and open only at the start of an item.
    """
    items = [""]
    depth = 0
    for char in text:
        if char == separator and depth == 0:
            items.append("")
            continue
        if char in closing and depth > 0:
            depth -= 1
        elif char in opening and (opening != closing or not items[-1].strip()):
            depth += 1
        items[-1] += char
    return items


_TRTEXEC_EXAMPLE = "x:1x3x64x64,y:1x8"


def parse_trtexec(min_shapes: str | None, opt_shapes: str | None, max_shapes: str | None) -> dict[str, Range]:
    """Reads trtexec's `--minShapes`, `--optShapes` and `--maxShapes`.

    As in trtexec, either all three are given, or `--optShapes` alone, which then fixes every shape.

    Args:
        min_shapes: "x:1x3x64x64,y:1x8"; a name that contains a comma is put in single quotes. A scalar is "z:scalar"
            or "z:".
        opt_shapes: Likewise.
        max_shapes: Likewise.

    Returns:
        `INPUT:AXIS` to its range, for every axis of every input given; empty where no flag is.

    Raises:
        InputError: For text that cannot be read, flags that are missing, and inputs or ranks that differ between them.
    """
    given = {"--minShapes": min_shapes, "--optShapes": opt_shapes, "--maxShapes": max_shapes}
    shapes = {flag: parse_shapes(flag, text) for flag, text in given.items() if text is not None}
    if not shapes:
        return {}
    if list(shapes) == ["--optShapes"]:
        shapes = dict.fromkeys(given, shapes["--optShapes"])
    absent = [flag for flag in given if flag not in shapes]
    if absent:
        raise InputError(
            f"{' and '.join(absent)} missing beside {' and '.join(shapes)}",
            "Give --minShapes, --optShapes and --maxShapes together, or --optShapes alone for fixed shapes.",
        )
    return _shape_ranges(shapes)


def _shape_ranges(shapes: Mapping[str, Mapping[str, Shape]]) -> dict[str, Range]:
    """Joins the three flags' shapes into one range an axis."""
    names = [name for of_flag in shapes.values() for name in of_flag]
    bounds: dict[str, Range] = {}
    for name in dict.fromkeys(names):
        for flag, of_flag in shapes.items():
            if name not in of_flag:
                raise InputError(f"{flag} has no shape for input {name!r}", f"Add {name}:... to {flag}.")
        ranks = {flag: len(of_flag[name]) for flag, of_flag in shapes.items()}
        if len(set(ranks.values())) > 1:
            listed = ", ".join(f"{rank} in {flag}" for flag, rank in ranks.items())
            raise InputError(
                f"input {name!r} has different numbers of dimensions: {listed}",
                "Give the same number in --minShapes, --optShapes and --maxShapes.",
            )
        for axis, sizes in enumerate(zip(*(of_flag[name] for of_flag in shapes.values()), strict=True)):
            try:
                bounds[f"{name}:{axis}"] = Range(*sizes)
            except InputError as error:
                raise InputError(
                    f"axis {axis} of input {name!r} in --minShapes, --optShapes, --maxShapes: {error.message}",
                    error.hint,
                ) from error
    return bounds


def parse_shapes(flag: str, text: str) -> dict[str, Shape]:
    """Reads the value of one of trtexec's shape flags: "x:1x3x64x64,y:1x8".

    Args:
        flag: Its name, for messages.
        text: The value.

    Raises:
        InputError: It is no such thing, or gives an input two shapes.
    """
    shapes: dict[str, Shape] = {}
    # trtexec wants quotes escaped from the shell, so that they arrive here; some scripts escape the backslash too.
    for item in _split_outside(text.replace("\\'", "'"), ",", "'", "'"):
        name, colon, sizes = (part.strip() for part in item.rpartition(":"))
        if len(name) > 1 and name[0] == name[-1] == "'":
            name = name[1:-1]
        if not (colon and name):
            raise InputError(f"{flag} {item.strip()!r} is not INPUT:SHAPE", f"Write {flag} {_TRTEXEC_EXAMPLE}.")
        shape = _parse_shape(flag, name, sizes)
        if shapes.setdefault(name, shape) != shape:
            raise InputError(f"{flag} gives input {name!r} twice", "Give every input one shape.")
    return shapes


def _parse_shape(flag: str, name: str, text: str) -> Shape:
    if text in ("", "scalar"):
        return ()
    parts = text.split("x")
    # isdecimal alone would let other scripts' digits through, and int() would let "1_0" through.
    if not all(part.isascii() and part.isdecimal() and len(part) < 20 for part in parts):
        raise InputError(
            f"{flag}: the shape {text!r} of input {name!r} is not integers joined by x",
            f"Write {flag} {_TRTEXEC_EXAMPLE}.",
        )
    shape = tuple(int(part) for part in parts)
    if min(shape) < 1:
        raise InputError(
            f"{flag}: the shape {text!r} of input {name!r} has a size below 1", "Give sizes of at least 1."
        )
    return shape
