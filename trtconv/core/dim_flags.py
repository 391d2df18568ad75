"""Sizes as they are written on a command line: --dim, --profile, --value and trtexec's flags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from trtconv.core.dims import InputRange, Range, Shape
from trtconv.core.errors import InputError

_SHAPE = re.compile(r"\d+(x\d+)+")


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


def write_values(values: Mapping[str, InputRange]) -> list[str]:
    """Returns what `parse_values` reads."""
    return [
        f"{name}={':'.join('x'.join(map(str, pick)) for pick in (bounds.min, bounds.opt, bounds.max))}"
        for name, bounds in values.items()
    ]


def _parse_elements(text: str) -> Shape | None:
    parts = text.strip().split("x")
    if not all(part.removeprefix("-").isdecimal() and part.isascii() and len(part) < 20 for part in parts):
        return None
    return tuple(int(part) for part in parts)


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


def parse_bounds(dims: Sequence[str], inputs: Sequence[str]) -> dict[str, Range]:
    """Reads the values of `--dim` and of `--input`, which bounds all axes of an input at once.

    Args:
        dims: As `parse_dims` takes them.
        inputs: "x=1:1:4,3,64:256:512,_": bounds of each axis, in order; _ leaves one out. "x=1x3x64x64" is a shape. An
            axis may say its name, as `trtconv export` has it: "x=batch=1:1:4,3,height=64:256:512,_".

    Returns:
        Dimension name or `INPUT:AXIS` to range.

    Raises:
        InputError: For an item that is no such thing, or a name given twice with different ranges.
    """
    return _parse_bounds("--dim", [*dims, *(item for text in inputs for item in _axes(text))])


def _axes(text: str) -> list[str]:
    name, equals, shape = (part.strip() for part in text.partition("="))
    # The second is how trtexec and Polygraphy write a shape.
    axes = [axis.strip() for axis in shape.split("x" if _SHAPE.fullmatch(shape) else ",")]
    if not (equals and name and all(axes)):
        raise InputError(f"--input {text!r} is not INPUT=BOUNDS,BOUNDS,...", "Write --input x=1:1:4,3,64:256:512,64.")
    return [bounds if "=" in bounds else f"{name}:{axis}={bounds}" for axis, bounds in enumerate(axes) if bounds != "_"]


def write_bounds(bounds: Mapping[str, Range]) -> list[str]:
    """Returns what `parse_dims` reads."""
    return [f"{name}={bound}" for name, bound in bounds.items()]


def quoted(name: str) -> str:
    """Returns a name as a shell takes it."""
    plain = all(c.isalnum() or c in "_-.:/" for c in name)
    return name if plain else "'" + name.replace("'", "'\\''") + "'"


def parse_profiles(
    profiles: Sequence[str], min_shapes: str | None, opt_shapes: str | None, max_shapes: str | None
) -> tuple[dict[str, Range], ...]:
    """Reads all values of `--profile`, or the one profile of trtexec's three flags.

    Raises:
        InputError: As `parse_profile` and `parse_trtexec`, and where both are given.
    """
    if min_shapes is opt_shapes is max_shapes is None:
        return tuple(parse_profile(text) for text in profiles)
    if profiles:
        raise InputError(
            "--profile does not go together with --minShapes, --optShapes and --maxShapes",
            "Use --profile once for each optimization profile, or trtexec's three flags for a single one.",
        )
    return (parse_trtexec(min_shapes, opt_shapes, max_shapes),)


def parse_profile(text: str) -> dict[str, Range]:
    """Reads one value of `--profile`: "height=64:128:256,width=64:128:256".

    Args:
        text: Items as in `--dim`, separated by commas. Commas inside parentheses belong to a name, as in "Max(h, w)".

    Returns:
        Dimension name to range, in the order given.

    Raises:
        InputError: As `parse_dims`, and for an empty profile.
    """
    items = [item for item in _split_outside(text, "(", ")") if item.strip()]
    if not items:
        raise InputError("--profile is empty", "Write --profile 'height=64:128:256,width=64:128:256'.")
    return _parse_bounds("--profile", items)


def _parse_bounds(flag: str, items: Sequence[str]) -> dict[str, Range]:
    bounds: dict[str, Range] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.rpartition("="))
        if not (equals and name and text):
            name = item.strip() if item.strip().isidentifier() else "height"
            raise InputError(f"{flag} {item!r} is not NAME=MIN:OPT:MAX", f"Write {flag} {name}=64:256:512.")
        try:
            bound = Range.parse(text)
        except InputError as error:
            hint = error.hint.replace("Did you mean ", f"Did you mean {flag} {name}=")
            raise InputError(f"{flag} {name}: {error.message}", hint) from error
        if bounds.setdefault(name, bound) != bound:
            raise InputError(
                f"{flag} gives {name} twice: {bounds[name].short} and {bound.short}",
                f"Give {name} one range in each {flag}.",
            )
    return bounds


def _split_outside(text: str, opening: str, closing: str) -> list[str]:
    """Splits at commas that are not between an opening and a closing character.

    Where the two are the same character (a quote) they do not nest, and open only at the start of an item.
    """
    items = [""]
    depth = 0
    for char in text:
        if char == "," and depth == 0:
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
    texts = {"--minShapes": min_shapes, "--optShapes": opt_shapes, "--maxShapes": max_shapes}
    shapes = {flag: parse_shapes(flag, text) for flag, text in texts.items() if text is not None}
    if not shapes:
        return {}
    if list(shapes) == ["--optShapes"]:
        shapes = dict.fromkeys(texts, shapes["--optShapes"])
    absent = [flag for flag in texts if flag not in shapes]
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
            counts = ", ".join(f"{rank} in {flag}" for flag, rank in ranks.items())
            raise InputError(
                f"input {name!r} has different numbers of dimensions: {counts}",
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
    for item in _split_outside(text.replace("\\'", "'"), "'", "'"):
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
