"""`trtconv init`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError


@click.command(
    "init",
    cls=Command,
    epilog="""\b
Examples:
  The models below this folder, and then all their engines:
    trtconv init
    trtconv build
  Those of another folder, into it:
    trtconv init models

\b
Exit status: 0 written; 2 there is no model, or a trtconv.toml already.
""",
)
@click.argument("folder", metavar="[FOLDER]", default=".")
@click.option("--force", is_flag=True, help="Replace the trtconv.toml that is there.")
@options.for_models
@options.format_option("text", "json")
@options.quiet_anyway
def command(folder: str, force: bool, output_format: str) -> Outcome:
    """Write a trtconv.toml for the models that are here.

    Lists every .onnx file below FOLDER, with bounds for its dynamic dimensions that the network accepts: a batch of 1
    to 8, other sizes near 64:256:512, or less where a tensor would be too large. A model that cannot be read is named
    in a comment.
    """
    from trtconv.cli.formats.init import find_models, toml
    from trtconv.cli.formats.wording import count
    from trtconv.core import config
    from trtconv.core.files import atomic_write
    from trtconv.core.text import clean

    path = Path(folder) / config.FILE
    if not Path(folder).is_dir():
        raise InputError(f"{folder} is not a folder", "Give the folder of the models.")
    if (path.exists() or path.is_symlink()) and not force:
        raise InputError(f"{path} exists", "Replace it with --force.")
    candidates = find_models(Path(folder))
    good = [model for model in candidates if not model.fault]
    if not good:
        raise InputError(
            f"no .onnx file in {folder} can be read: {candidates[0].path}: {candidates[0].fault}", "Export it again."
        )
    try:
        atomic_write(path, toml(candidates).encode())
    except InputError as error:
        raise InputError(error.message, f"It lies beside the models: make {folder} writable, or copy them.") from error
    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.documents.commands import InitModel, InitReport, LeftOut

        models = tuple(InitModel(model.path, {name: text for name, text, _ in model.dims}) for model in good)
        rest = tuple(LeftOut(model.path, model.fault) for model in candidates if model.fault)
        return Outcome(render(InitReport(str(path), models, rest).to_json()))
    # What is proposed can be pasted where the user stands.
    flag = "" if path.parent.resolve() in (Path.cwd(), *Path.cwd().parents) else f" --config {shlex.quote(str(path))}"
    note = f", {len(candidates) - len(good)} left out" if len(candidates) > len(good) else ""
    return Outcome(
        clean(f"wrote {path}: {count(len(good), 'model')}{note}; look at the bounds, then run trtconv build{flag}")
    )
