"""What an export is asked for, and how the command line spells it. Knows nothing of torch."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.agreement import CodeFile, code_option
from trtconv.core.dims import Range, Shape
from trtconv.core.errors import InputError
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.options import group, option
from trtconv.core.requests.base import Request, settle
from trtconv.core.requests.code import PLUGINS, REFERENCES
from trtconv.core.requests.common import FAIL_ON, TARGET
from trtconv.core.suggest import did_you_mean
from trtconv.core.target import Target
from trtconv.exporter.inputs import (
    AxisNames,
    InputDecl,
    SteppedRange,
    all_axes,
    all_bounds,
    parse_bounds,
    parse_dynamic,
    parse_inputs,
)

_FLAG_ALONE: Any = {"settings": {}, "load": None, "save": None}
"""What makes of an option one that trtconv.toml does not have: an export has no configuration."""
EXPORTERS = ("auto", "torch.export", "torchscript")
"""What may write the file: the exporter over torch.export, the tracing one that torch calls legacy, or the better."""


def parse_places(texts: Sequence[str]) -> tuple[str, ...]:
    """Reads every `--accept-branch`.

    Raises:
        InputError: For one that is not FILE:LINE.
    """
    for text in texts:
        file, _, line = text.rpartition(":")
        if not (file and line.isascii() and line.isdecimal()):
            raise InputError(f"--accept-branch {text!r} is not FILE:LINE", "Write it as the error names the place.")
    return tuple(texts)


@frozen
class ExportOptions:
    """What is asked beside the module, its inputs and where the file goes.

    Args:
        outputs: Names of the outputs, in order; empty: the module's own (keys of a dict), else "output".
        accepted: Places of branches of which one side is enough, as FILE:LINE.
        translations: Python files that say how operators of the user's own are written.
        plugins: Libraries of plugins for `check` and `--build`.
        references: Python files that say what such operators compute, for the proof.
        target: What the file is for: decides opset and IR version. None: any TensorRT from 10.0 and RTX.
    """

    static: bool = option("--static", "Leave every dimension static, whatever --dynamic and --dim say.", default=False)
    outputs: tuple[str, ...] = option(
        "--output-name", "Name of an output. Repeatable.", metavar="NAME", many=True, default=()
    )
    exporter: str = option(
        "--exporter",
        "auto: torch.export's; the tracing one where the first cannot, or loses quantisation.",
        takes=EXPORTERS,
        default="auto",
    )
    accepted: tuple[str, ...] = option(
        "--accept-branch",
        "Keep the side of a branch that runs on the example, where Python reads values or sizes; the error names the "
        "place. Repeatable.",
        metavar="FILE:LINE",
        many=True,
        default=(),
        read=parse_places,
    )
    split_branches: bool = option(
        "--split-branches",
        "Where a branch on sizes parts the range, write a file for each side, MODEL.1.onnx, MODEL.2.onnx, each with "
        "its own sizes, in place of one for the example's side.",
        default=False,
    )
    time_limit: float = option(
        "--time-limit",
        "Seconds for all ways to a file together: then the best file so far is used, and the report says which ways "
        "were not tried.",
        metavar="S",
        takes=float,
        above=0,
        default=600.0,
    )
    translations: tuple[CodeFile, ...] = code_option(
        "--translate",
        "Run a Python file that says how operators of your own are written (docs/export.md). Repeatable.",
        metavar="FILE.py",
        key="translations",
        about="",
    )._replace(**_FLAG_ALONE)
    plugins: tuple[CodeFile, ...] = PLUGINS._replace(**_FLAG_ALONE)
    references: tuple[CodeFile, ...] = REFERENCES._replace(**_FLAG_ALONE)
    proof: bool = option("--no-proof", "Do not compare PyTorch with ONNX Runtime.", default=True)
    check: bool = option("--no-check", "Do not run check on the file.", default=True)
    target: Target | None = TARGET
    fail_on: Severity | None = FAIL_ON

    def __post_init__(self) -> None:
        settle(self)


@frozen
class ExportRequest(Request):
    """A call of `trtconv export`.

    Args:
        spec: What to export: "file.py:factory", "package.module:Class", a .pt2 or a TorchScript file.
        output: Where the ONNX file goes.
        inputs: The example's inputs, in the order of the file's inputs.
        dynamic: Input name to the names of its dynamic axes.
        dims: Dimension name to its bounds.
        arguments: Keyword arguments of the factory.
        weights: A state dict to load, .pt or .safetensors.
        trust: Whether a pickle may be read, which runs the code that is in it.
        build: Whether the engine is built too.
        options: The rest.
    """

    spec: str
    output: Path
    inputs: tuple[InputDecl, ...] = option(
        "--input",
        "One input: its name (forward's parameter; may be left out where it is the only one), then the example's "
        "shape, or its axes with bounds, as in x=batch,3,height=64:128:512,width=64:128:512, and its type (default "
        "float32), of integers with the values that it takes, as in n=batch:int64[1..length]. Repeatable.",
        metavar="[NAME=]1x3x64x64[:DTYPE]",
        many=True,
        default=(),
        read=parse_inputs,
    )
    dynamic: Mapping[str, AxisNames] = option(
        "--dynamic",
        "Name the dynamic axes of an input; _ is a static one; a name alone gives it the usual ones. Repeatable.",
        metavar="NAME[=batch,_,height,width]",
        many=True,
        default={},
        read=lambda texts: dict(parse_dynamic(text) for text in texts),
    )
    dims: Mapping[str, Range] = option(
        "--dim",
        "Bound a dynamic dimension; MIN:OPT:MAX as in build is taken too, and a step: height=16:512:/8. Repeatable.",
        metavar="NAME=MIN:MAX",
        many=True,
        default={},
        read=parse_bounds,
    )
    arguments: Mapping[str, Any] = option(
        "--arg",
        "Keyword argument of the factory. Repeatable.",
        metavar="KEY=VALUE",
        many=True,
        default={},
        read=lambda texts: dict(parse_argument(text) for text in texts),
    )
    weights: Path | None = option(
        "--weights",
        "State dict to load, .pt or .safetensors; nothing is unpickled.",
        metavar="FILE",
        default=None,
        reads="the weights",
    )
    trust: bool = option(
        "--trust", "Read a checkpoint of ultralytics, which is a pickle: runs the code that is in it.", default=False
    )
    build: bool = option(
        "--build", "Build the engine too, MODEL.engine, for the bounds that were given.", default=False
    )
    options: ExportOptions = group(ExportOptions)


def parse_argument(text: str) -> tuple[str, Any]:
    """Reads one `--arg`: "widths=(8,16)" gives a tuple, "name=resnet" a string, "bias=true" a bool."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise InputError(f"--arg {text!r} is not KEY=VALUE", "Write --arg widths='(8, 16, 32)' or --arg name=tiny.")
    return name.strip(), _literal(value.strip())


def _literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


@frozen
class Axes:
    """The dynamic dimensions of an export.

    Args:
        places: Dimension name to the (input index, axis) where it occurs.
        example: Dimension name to its size in the example.
        bounds: Dimension name to its bounds, where any were given.
        steps: Dimension name to the number that its sizes are to be multiples of, where one was given.
    """

    places: Mapping[str, tuple[tuple[int, int], ...]]
    example: Mapping[str, int]
    bounds: Mapping[str, Range]
    steps: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def on_steps(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes are multiples of the steps that were asked for."""
        return all(sizes.get(name, 0) % step == 0 for name, step in self.steps.items())

    def shapes(self, inputs: Sequence[InputDecl], sizes: Mapping[str, int]) -> tuple[Shape, ...]:
        """Returns the inputs' shapes with the named dimensions set to `sizes`; others stay as in the example."""
        shapes = [list(decl.shape) for decl in inputs]
        for name, places in self.places.items():
            for index, axis in places:
                shapes[index][axis] = sizes.get(name, self.example[name])
        return tuple(tuple(shape) for shape in shapes)

    def names(self, index: int, rank: int) -> AxisNames:
        """Returns the names of one input's axes."""
        by_axis = {axis: name for name, places in self.places.items() for i, axis in places if i == index}
        return tuple(by_axis.get(axis) for axis in range(rank))


def plan_axes(
    inputs: Sequence[InputDecl], dynamic: Mapping[str, AxisNames], dims: Mapping[str, Range], static: bool = False
) -> Axes:
    """Joins `--dynamic` and `--dim` into the dynamic dimensions of an export.

    A dimension whose bounds allow one size only is static. `INPUT:AXIS` in `dims` makes an axis dynamic that
    `dynamic` does not name.

    Raises:
        InputError: An input that is not there, ranks that differ, an unknown dimension, one name at axes of different
            sizes, or an example outside its bounds.
    """
    index = {decl.name: i for i, decl in enumerate(inputs)}
    places: dict[str, list[tuple[int, int]]] = {}
    for name, axes in all_axes(inputs, dynamic).items():
        if name not in index:
            raise InputError(
                f"--dynamic names {name!r}, which is not an input", f"Inputs: {', '.join(index) or 'none'}."
            )
        shape = inputs[index[name]].shape
        if len(axes) != len(shape):
            raise InputError(
                f"--dynamic {name} names {len(axes)} axes, --input {name} has {len(shape)}", "Use _ for a static axis."
            )
        for axis, dim in enumerate(axes):
            if dim is not None:
                places.setdefault(dim, []).append((index[name], axis))
    bounds = {_place(inputs, index, places, name): bound for name, bound in all_bounds(inputs, dims).items()}
    example = {name: _size(inputs, name, at) for name, at in places.items()}
    _check_bounds(example, bounds)
    names = [] if static else [n for n in places if n not in bounds or bounds[n].min < bounds[n].max]
    return Axes(
        {n: tuple(places[n]) for n in names},
        {n: example[n] for n in names},
        {n: bounds[n] for n in names if n in bounds},
        {n: bound.step for n in names if isinstance(bound := bounds.get(n), SteppedRange)},
    )


def _place(
    inputs: Sequence[InputDecl], index: Mapping[str, int], places: dict[str, list[tuple[int, int]]], name: str
) -> str:
    """Returns the dimension that a `--dim` means."""
    if name in places:
        return name
    owner, _, axis = name.rpartition(":")
    if owner in index and axis.isdecimal() and int(axis) < len(inputs[index[owner]].shape):
        place = (index[owner], int(axis))
        for dim, axes in places.items():
            if place in axes:
                return dim
        places[f"{owner}_{axis}"] = [place]
        return f"{owner}_{axis}"
    names = f"Dimensions: {', '.join(places) or 'none'}."
    raise InputError(
        f"--dim names {name!r}, which is not a dimension of the inputs",
        f"{did_you_mean(name, places, names)} Name axes with --dynamic NAME=batch,_,height,width, or write INPUT:AXIS.",
    )


def _size(inputs: Sequence[InputDecl], name: str, places: Sequence[tuple[int, int]]) -> int:
    sizes = {inputs[index].shape[axis] for index, axis in places}
    if len(sizes) > 1:
        at = ", ".join(f"{inputs[i].name}:{axis} is {inputs[i].shape[axis]}" for i, axis in places)
        raise InputError(f"dimension {name} has different sizes in the example: {at}", "Give each size its own name.")
    return sizes.pop()


def _check_bounds(example: Mapping[str, int], bounds: Mapping[str, Range]) -> None:
    for name, bound in bounds.items():
        if not bound.min <= example[name] <= bound.max:
            raise InputError(
                f"the example has {name} {example[name]}, outside --dim {name}={bound.min}:{bound.max}",
                "Give --input a size within the bounds.",
            )
        if isinstance(bound, SteppedRange) and example[name] % bound.step:
            raise InputError(
                f"the example has {name} {example[name]}, no multiple of {bound.step}", "Give --input another size."
            )
