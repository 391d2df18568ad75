"""What to write instead of what other tools call it: their flags, their commands, other habits."""

from __future__ import annotations

import re
import shlex

import click

from trtconv.cli.help import EVERYDAY, HELP_ALL
from trtconv.cli.process.command import EmptyText, NotAChoice
from trtconv.cli.process.other_flags import FLAGS

COMMANDS = {"convert": "build", "compile": "build", "trtexec": "build", "lint": "check", "surgeon": "rewrite"}
"""A command of another tool to ours."""
_MODELS = (".onnx", ".onnx.gz")
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)")


_BOUNDS = re.compile(r"\d+(:\d+){0,2}")


def _unbound(error: click.UsageError) -> str:
    """Returns a name that was given to --dim without its bounds; empty where there is none."""
    dims = error.ctx.params.get("dim") if error.ctx is not None else None
    return next((str(text) for text in dims or () if isinstance(text, str) and text.isidentifier()), "")


def command_hint(name: str) -> str:
    """Returns what to write instead of a command that there is none of; empty where nothing comes to mind."""
    if name.lower().endswith(_MODELS):
        return f" Did you mean trtconv build {shlex.quote(name)}?"
    return f" Did you mean {COMMANDS[name]}?" if name in COMMANDS else ""


def usage_failure(error: click.UsageError) -> tuple[str, str]:
    """Returns the message and the hint of a call that click refuses."""
    command = error.ctx.command if error.ctx is not None else None
    path = error.ctx.command_path if error.ctx is not None else "trtconv"
    message = " ".join(error.format_message().split())
    if isinstance(error, (EmptyText, NotAChoice)):
        return message, error.hint
    if isinstance(error, click.NoSuchOption) and error.option_name in FLAGS:
        page = HELP_ALL if command is not None and command.name in EVERYDAY else "--help"
        return f"There is no option {error.option_name}.", f"{FLAGS[error.option_name]}. '{path} {page}' lists all."
    extra = _EXTRA.match(message)
    if extra and command is not None and command.name == "build":
        words = extra[1].split() or ["''"]
        # In "--dim batch 1 net.onnx" it is the number that stands where the model does.
        texts = [str(error.ctx.params.get("model", "")) if error.ctx is not None else "", *words]
        bound = next((word for word in texts if _BOUNDS.fullmatch(word)), "")
        if bound and (name := _unbound(error)):
            hint = f"Join the two by an equals sign: --dim {name}={bound}"
        elif words[0].lower().endswith(_MODELS):
            hint = "For several models: list them in trtconv.toml (docs/config.md), or call trtconv build for each."
        else:
            hint = f"The engine's path goes behind -o: -o {words[0]}"
        return f"build takes one MODEL, not also {', '.join(words)}", hint
    return message, f"Try '{path} --help'."
