"""Named dimensions, their bounds, and optimization profiles.

The vocabulary: a model has *inputs*; every axis of an input is either static or carries a *dimension name*: the
symbolic name in the model, or `INPUT:AXIS` (such as `x:2`) where the model gives none. A `Range` bounds a
dimension, and a `ShapeProfile` gives every input a min, opt and max shape, as TensorRT wants them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtconv.core.dim_flags import quoted
from trtconv.core.dims import InputRange, InputSpec, Range, Shape, ShapeProfile, dynamic_dims
from trtconv.core.errors import InputError
from trtconv.core.export_command import freeing_command, own_names
from trtconv.core.expressions import Expression, derived, free_names
from trtconv.core.suggest import did_you_mean

_LARGEST = (1 << 31) - 1
"""Size of an axis that TensorRT counts to."""


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
        InputError: For a name that the model does not have, a range given to a static axis, a size that is too large,
            or a dynamic dimension without bounds. The message lists what exists and a command line to copy.
    """
    ranges = bounds_by_name(inputs, bounds)
    missing = [name for name in dynamic_dims(inputs) if name not in ranges]
    if missing:
        raise _missing_bounds(inputs, missing, ranges)
    for name, bound in ranges.items():
        if bound.max > _LARGEST:
            raise InputError(
                f"dimension {name}={bound.short} is too large: TensorRT takes sizes up to {_LARGEST}",
                f"Give at most that: --dim {quoted(name)}=MIN:OPT:{_LARGEST}.",
            )

    def shape(spec: InputSpec, pick: str) -> Shape:
        return tuple(d if isinstance(d, int) else getattr(ranges[d], pick) for d in spec.dims)

    shapes = {s.name: InputRange(shape(s, "min"), shape(s, "opt"), shape(s, "max")) for s in inputs}
    return ShapeProfile(shapes, ranges, _checked_values(inputs, values or {}, shapes))


def shapes_with_sizes(
    inputs: Sequence[InputSpec], sizes: Mapping[str, int], values: Mapping[str, InputRange] | None = None
) -> dict[str, Shape]:
    """Returns the shape of each input where dimensions have one size each.

    Args:
        inputs: The inputs of a model.
        sizes: Dimension to its size.
        values: As for `make_profile`.

    Raises:
        InputError: As by `make_profile`.
    """
    profile = make_profile(inputs, {name: Range(size, size, size) for name, size in sizes.items()}, values)
    return {name: shapes.opt for name, shapes in profile.inputs.items()}


def _checked_values(
    inputs: Sequence[InputSpec], values: Mapping[str, InputRange], shapes: Mapping[str, InputRange]
) -> Mapping[str, InputRange]:
    by_name = {spec.name: spec for spec in inputs}
    for name, bounds in values.items():
        if name not in by_name:
            raise InputError(f"--value {name}: the model has no input {name!r}", did_you_mean(name, by_name))
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


def bounds_by_name(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Returns bounds by the model's own names, with those that follow from them; dimensions may be missing.

    Raises:
        InputError: As `make_profile`, but for missing ones.
    """
    return _with_derived(inputs, _resolve(inputs, bounds))


def divided_bounds(inputs: Sequence[InputSpec], dims: Mapping[str, Range]) -> tuple[dict[str, Range], dict[str, Range]]:
    """Divides bounds into those of the model's inputs, and those of sizes that only values tell.

    Raises:
        InputError: One is about an input, and does not fit it.
    """
    own: dict[str, Range] = {}
    others: dict[str, Range] = {}
    places = {*dynamic_dims(inputs), *(f"{spec.name}:{axis}" for spec in inputs for axis in range(len(spec.dims)))}
    for name, bound in dims.items():
        try:
            bounds_by_name(inputs, {name: bound})
            own[name] = bound
        except InputError:
            if name in places:
                raise
            others[name] = bound
    return own, others


def _resolve(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Maps every given name to the model's own name for that dimension."""
    dims = dynamic_dims(inputs)
    by_place = {place: name for name, places in dims.items() for place in places}
    static = {f"{s.name}:{axis}": d for s in inputs for axis, d in enumerate(s.dims) if isinstance(d, int)}
    ranges: dict[str, Range] = {}
    for key, bound in bounds.items():
        if key in static:
            if bound.min != static[key] or bound.max != static[key]:
                message = f"dimension {key} is static ({static[key]}) and cannot range over {bound.short}"
                raise InputError(message, f"Leave out {key}.{_export(inputs, bounds)}")
            continue
        name = key if key in dims or key in free_names(list(dims)) else by_place.get(key)
        if name is None:
            names, owner = [spec.name for spec in inputs], key.rpartition(":")[0]
            if owner and owner not in names:
                hint = did_you_mean(owner, names, f"It has: {', '.join(map(str, inputs))}.")
                raise InputError(f"the model has no input {owner!r}", hint)
            near = did_you_mean(key, dims, " ").strip()
            hint = f"{near} It has: {_list_dims(inputs)}.".strip() + ("" if near else _way_out(inputs, bounds))
            raise InputError(f"the model has no dimension {key!r}", hint)
        if name in ranges and ranges[name] != bound:
            raise InputError(
                f"dimension {name} is given twice: {ranges[name].short} and {bound.short}", "Give one range for it."
            )
        ranges[name] = bound
    return ranges


def _with_derived(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> dict[str, Range]:
    """Adds the symbols of expressions that were given bounds, and the expressions whose symbols have bounds."""
    ranges = dict(bounds)
    expressions = derived(list(dynamic_dims(inputs)))
    for name, expression in expressions.items():
        if name in bounds:
            _set_symbol(ranges, expression, bounds[name])
    for name, expression in expressions.items():
        if all(symbol in ranges for symbol in expression.symbols):
            computed = _computed(expression, ranges)
            if name in bounds and bounds[name] != computed:
                raise InputError(
                    f"dimension {name} is given as {bounds[name]}, but it is {computed}"
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
            f"Give bounds of that instead: {flags_of(expression.symbols)}.",
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


def _way_out(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> str:
    """Says what to write instead of names that the model has not."""
    own = own_names(inputs, bounds)
    if not own:
        return _export(inputs, bounds)
    return " If its axes are meant: " + " ".join(f"--dim {name}={bound}" for name, bound in own.items())


def _export(inputs: Sequence[InputSpec], bounds: Mapping[str, Range]) -> str:
    """Says how a model is made whose sizes range as was asked; nothing where no fixed size of it could be meant."""
    command = freeing_command(inputs, bounds)
    return f" If the exporter fixed what is to vary, export again from its Python: {command}" if command else ""


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
    needs: list[str] = []
    for name in missing:
        expression = expressions.get(name)
        if expression is None:
            needs.append(name)
        elif not expression.linear:
            needs += [symbol for symbol in expression.symbols if symbol not in ranges]
        elif expression.symbols[0] not in missing:
            needs.append(name)
    # What follows from a symbol that is asked for need not be given.
    needs = [name for name in dict.fromkeys(needs) if not set(_symbols(expressions, name)) & set(needs)]
    return InputError("\n".join(lines), f"Add: {flags_of(needs)}", lacks_bounds=True)


def _symbols(expressions: Mapping[str, Expression], name: str) -> tuple[str, ...]:
    return expressions[name].symbols if name in expressions else ()


def flags_of(names: Sequence[str]) -> str:
    """Returns the flags that give bounds of dimensions, to be filled in."""
    return " ".join(f"--dim {quoted(name)}=MIN:OPT:MAX" for name in names)
