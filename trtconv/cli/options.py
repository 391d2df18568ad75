"""Flags that several commands share, and what they mean in terms of a request.

Each command's flags arrive in one object: `@packed(BuildFlags)` makes it of what click parsed, so that a new shared
flag is one option here and one field of the class.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen

if TYPE_CHECKING:
    from trtconv.core.dims import InputRange
    from trtconv.core.findings import Severity
    from trtconv.core.requests.common import Bounds
    from trtconv.core.selection import Selection
    from trtconv.core.target import Target

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Flags = TypeVar("Flags")


@frozen
class ShapeFlags:
    """The flags of `shape_options`."""

    dim: tuple[str, ...]
    profile: tuple[str, ...]
    min_shapes: str | None
    opt_shapes: str | None
    max_shapes: str | None
    value: tuple[str, ...]

    def values(self) -> dict[str, InputRange]:
        """Returns the bounds of the elements of shape inputs."""
        from trtconv.core.dim_flags import parse_values

        return parse_values(self.value)

    def bounds(self) -> tuple[Bounds, tuple[Bounds, ...]]:
        """Returns the bounds that hold everywhere, and those of each profile.

        Raises:
            InputError: For flags that cannot be read or do not go together.
        """
        from trtconv.core.dim_flags import parse_dims, parse_profile, parse_trtexec

        dims = parse_dims(self.dim)
        if any(shapes is not None for shapes in (self.min_shapes, self.opt_shapes, self.max_shapes)):
            if self.profile:
                raise InputError(
                    "--profile does not go together with --minShapes, --optShapes and --maxShapes",
                    "Use --profile once for each optimization profile, or trtexec's three flags for a single one.",
                )
            return dims, (parse_trtexec(self.min_shapes, self.opt_shapes, self.max_shapes),)
        return dims, tuple(parse_profile(text) for text in self.profile)


NO_SHAPES: dict[str, object] = {
    "dim": (),
    "profile": (),
    "min_shapes": None,
    "opt_shapes": None,
    "max_shapes": None,
    "value": (),
}
"""The flags of `shape_options` where none is given."""


def packed(flags: Callable[..., Flags]) -> Callable[[Callable[[Flags], Outcome]], Callable[..., Outcome]]:
    """Gives a command its flags as one object.

    Args:
        flags: The class to make of them; has a field for every parameter of the command.
    """

    def decorate(command: Callable[[Flags], Outcome]) -> Callable[..., Outcome]:
        @functools.wraps(command)
        def run(**values: Any) -> Outcome:
            return command(flags(**values))

        return run

    return decorate


def chain(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Makes one decorator of several, listed in the order of the help page."""

    def decorate(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


model_argument = click.argument("model", metavar="MODEL")
optional_model_argument = click.argument("model", metavar="[MODEL]", required=False)
models_argument = click.argument("models", metavar="[MODEL]...", nargs=-1)

many_options = chain(
    click.option("--config", metavar="FILE", help="Do all models of this configuration; alone without MODEL."),
    click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Do so many of several models at a time."),
)


@frozen
class ManyModels:
    """The flags of `many_options`."""

    config: str | None
    jobs: int | None


def refuse_single_flags(flags: object, defaults: dict[str, object]) -> None:
    """Refuses flags that are about one model where the configuration says it all.

    Raises:
        InputError: One of `defaults` has another value.
    """
    given = {name for name, value in defaults.items() if getattr(flags, name) != value}
    for parameter in click.get_current_context().command.params:
        if parameter.name not in given:
            continue
        if isinstance(parameter, click.Argument):
            raise InputError("--config goes without a MODEL", "It does all models of the configuration.")
        raise InputError(
            f"{parameter.opts[-1]} goes with a MODEL", "Without one, the configuration says it: docs/config.md."
        )


shape_options = chain(
    click.option(
        "--dim",
        multiple=True,
        metavar="NAME=MIN:OPT:MAX",
        help="Bound a dynamic dimension everywhere it occurs; NAME=N fixes it. NAME is the dimension's name in the "
        "model, or INPUT:AXIS (x:2) for one without a name. Repeatable.",
    ),
    click.option(
        "--profile",
        multiple=True,
        metavar="NAME=MIN:OPT:MAX,...",
        help="Make one optimization profile with these bounds, laid over those of --dim. Repeatable.",
    ),
    click.option(
        "--minShapes",
        "min_shapes",
        metavar="INPUT:SHAPE,...",
        help="trtexec's spelling of a single profile: smallest shapes, such as x:1x3x64x64.",
    ),
    click.option(
        "--optShapes",
        "opt_shapes",
        metavar="INPUT:SHAPE,...",
        help="Shapes to optimize for. Alone, without the other two: the only shapes.",
    ),
    click.option("--maxShapes", "max_shapes", metavar="INPUT:SHAPE,...", help="Largest shapes."),
    click.option(
        "--value",
        multiple=True,
        metavar="INPUT=MIN:OPT:MAX",
        help="Bound the elements of an integer input that holds a shape or a count: size=64x64:128x128:256x256. "
        "Repeatable.",
    ),
)

_MOST_PROFILES = 9999
split_option = click.option(
    "--split",
    metavar="N|auto",
    help="Divide the ranges into N optimization profiles, equal factors apart, at sizes that the network accepts; "
    "auto makes one for the opt and each of its halves and doubles. The batch is divided only where nothing else "
    "ranges.",
)

round_option = click.option(
    "--round",
    "rounded",
    is_flag=True,
    help="Move min, opt and max to sizes that the network accepts: min down, max up, opt to the nearest.",
)


def parse_split(text: str | None) -> str | None:
    """Reads `--split`.

    Raises:
        InputError: It is neither a number above 0 nor auto.
    """
    if text is None or text == "auto" or (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST_PROFILES):
        return text
    raise InputError(
        f"--split {text!r} is neither a number of profiles (1 to {_MOST_PROFILES}) nor auto",
        "Write --split 3 or --split auto.",
    )


target_option = click.option(
    "--target",
    default="auto",
    show_default=True,
    metavar="TARGET",
    help="auto (the installed tensorrt if it works here, else rtx), rtx, tensorrt, or a version to check against, such "
    "as tensorrt-8.6.",
)

precision_option = click.option(
    "--precision",
    type=click.Choice(["as-is", "fp16", "bf16", "int8"]),
    default="as-is",
    show_default=True,
    help="What to compute in; the same meaning in every TensorRT version. as-is: as the model says; int8: its "
    "quantised layers in int8, the rest in float16.",
)

no_rewrite_option = click.option("--no-rewrite", is_flag=True, help="Hand the model to TensorRT as it is.")

requantize_option = click.option(
    "--requantize",
    is_flag=True,
    help="Requantise asymmetric tensors symmetrically in int8. Changes numbers, by at most what the edits state; "
    "without it such tensors are computed in float, bit for bit.",
)

fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="error",
    show_default=True,
    help="Exit with 1 where a finding is at least this bad.",
)

report_option = click.option("--report", metavar="FILE", help="The engine's report. Default: ENGINE.json.")

trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Load an engine that has no report, or another one. Loading an engine runs code that is in it.",
)


class FiniteRange(click.FloatRange):
    """A number in a range; NaN, which is in every range of click's, and infinities are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Reads the number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no finite number.", param, ctx)
        return found


def time_limit_option(seconds: int) -> Callable[[Decorated], Decorated]:
    """Returns the `--time-limit` flag with a default in seconds."""
    return click.option(
        "--time-limit",
        type=FiniteRange(1),
        default=seconds,
        show_default=True,
        metavar="S",
        help="Seconds after which it ends, whatever it is at.",
    )


def optional_path(text: str | None) -> Path | None:
    """Returns the path of a flag that may be left out."""
    return None if text is None else Path(text)


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress on stderr.")


verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="List every finding, also of a rule that finds many, where the format is text.",
)


def format_option(*formats: str) -> Callable[[Decorated], Decorated]:
    """Returns the `--format` flag of a command that has these formats; the first is the default."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="What stdout gets. Progress and diagnostics go to stderr.",
    )


def severity(fail_on: str) -> Severity | None:
    """Returns the severity that `--fail-on` names, None for never."""
    from trtconv.core.findings import Severity

    return None if fail_on == "never" else Severity(fail_on)


def selection(select: tuple[str, ...], ignore: tuple[str, ...]) -> Selection:
    """Returns the choice of findings that `--select` and `--ignore` make; codes may be joined by commas."""
    from trtconv.core.selection import Selection

    chosen = [code.strip() for text in select for code in text.split(",")]
    left_out = [code.strip() for text in ignore for code in text.split(",")]
    return Selection(tuple(chosen), dict.fromkeys(left_out, ""))


def parse_target(text: str) -> Target | None:
    """Returns the target that `--target` names, None for auto."""
    from trtconv.core.target import Target

    return Target.asked(text)
