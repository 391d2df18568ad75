"""What a shell may complete a value with: dimensions and nodes of the model at hand, targets, rules, passes, files.

What is offered goes into the command line as it is, and its names were chosen by whoever made the model. Only words
that no shell reads as anything but a word are offered; to quote the others would take a rule for each shell, and for
each kind of quotation mark that the user may have opened before.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

VARIABLE = "_TRTCONV_COMPLETE"
"""What the shell says what it wants with."""


def answer(command: click.Command, instruction: str) -> int:
    """Writes what a shell asks for, which says in COMP_WORDS and COMP_CWORD what is typed; returns the exit status.

    Raises:
        InputError: They make no sense.
    """
    from trtconv.core.errors import InputError

    shell, _, action = instruction.partition("_")
    kind = get_completion_class(shell)
    try:
        if kind is not None and action == "complete":
            kind(command, {}, "trtconv", VARIABLE).get_completion_args()
        return shell_complete(command, {}, "trtconv", VARIABLE, instruction)
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(
            "COMP_WORDS and COMP_CWORD do not say what is to be completed",
            f"They are for shells: trtconv completion {shell} prints what {shell} needs.",
        ) from error


def values(ctx: click.Context, parameter: str, incomplete: str) -> list[CompletionItem]:
    """Returns what a value may be completed with; files where nothing better is known.

    Args:
        ctx: The call, with the arguments before this one.
        parameter: Name of the parameter.
        incomplete: What is there of the value.
    """
    offered = _OFFERED.get(parameter)
    if offered is None:
        return [CompletionItem(incomplete, type="file")]
    # A model that cannot be read completes nothing, and is no error here.
    with contextlib.suppress(Exception):
        words = (word for word in offered(ctx) if _PLAIN.fullmatch(word))
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]
    return []


# No blank, quotation mark, glob or comma (click's own separator); at its beginning nothing that makes an option of it,
# nor "=", which zsh expands.
_PLAIN = re.compile(r"[\w./][\w./:+@=-]*")


def _dims(ctx: click.Context) -> Iterable[str]:
    from trtconv.core.dims import dynamic_dims
    from trtconv.graph.model import OnnxModel

    return [f"{name}=" for name in dynamic_dims(OnnxModel.load(_model(ctx)).inputs)]


def _inputs(ctx: click.Context) -> Iterable[str]:
    from trtconv.graph.model import OnnxModel

    return [f"{spec.name}=" for spec in OnnxModel.load(_model(ctx)).inputs]


def _nodes(ctx: click.Context) -> Iterable[str]:
    from trtconv.graph.model import OnnxModel

    nodes = OnnxModel.load(_model(ctx)).nodes("ConvTranspose")
    return [node.name or f"{scope.path or 'graph'}/node[{index}]" for scope, index, node in nodes]


def _model(ctx: click.Context) -> Path:
    # An option that still lacks its value keeps click from handing out the arguments before it.
    return Path(ctx.params.get("model") or next(iter((*ctx.params.get("models", ()), *ctx.args))))


def _targets(_: click.Context) -> Iterable[str]:
    from trtconv.core.target import FAMILIES

    versions = [f"{family}-{major}" for family, support in FAMILIES.items() for major in support.majors]
    return ["auto", *FAMILIES, *versions, "tensorrt-8.6"]


def _rules(_: click.Context) -> Iterable[str]:
    from trtconv.rules import RULES

    return [rule.code for rule in RULES]


def _passes(_: click.Context) -> Iterable[str]:
    from trtconv.passes import PASSES

    return [pass_.name for pass_ in PASSES]


_OFFERED: Mapping[str, Callable[[click.Context], Iterable[str]]] = {
    "dim": _dims,
    "input": _inputs,
    "inputs": _inputs,
    "node": _nodes,
    "target": _targets,
    "code": _rules,
    "select": _rules,
    "ignore": _rules,
    "only": _passes,
    "skip": _passes,
}
"""Name of a parameter to what offers its values."""
