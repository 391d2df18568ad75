"""`trtconv triton`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.core.errors import InputError
from trtconv.core.reading import DOCUMENT_BYTES, read_plain

if TYPE_CHECKING:
    from trtconv.cli.formats.triton import Served


@click.command(
    "triton",
    cls=Command,
    short_help="Put engines into a model repository for Triton.",
    epilog="""\b
Examples:
  One engine; writes repository/unet/config.pbtxt and repository/unet/1/model.plan:
    trtconv triton unet.engine repository
  Several, as a new version:
    trtconv triton unet.engine gan.engine repository --version 2

\b
Exit status: 0 written; 2 a bad call, files that do not belong together, or an engine that Triton cannot serve.
""",
)
@click.argument("engines", metavar="ENGINE...", nargs=-1, required=True)
@click.argument("repository", metavar="REPOSITORY")
@click.option("--version", type=click.IntRange(min=1), default=1, show_default=True, help="Version of the models.")
@click.option("--force", is_flag=True, help="Replace what is there.")
@options.format_option("text", "json")
@options.quiet_anyway
def command(engines: tuple[str, ...], repository: str, version: int, force: bool, output_format: str) -> Outcome:
    """Put engines into a model repository for Triton.

    Each engine is copied to REPOSITORY/NAME/VERSION/model.plan, and what its report says of inputs, outputs, profiles
    and batches is written to REPOSITORY/NAME/config.pbtxt. Triton makes batches of requests where the first dimension
    of all inputs and outputs is the same dynamic one and a profile takes a batch of 1.

    Triton has to have the version of TensorRT that built the engine, and the same GPU.
    """
    from trtconv.cli.formats.page.gather import report_of
    from trtconv.cli.formats.triton import served, triton_json
    from trtconv.core.documents.pipeline import is_pipeline
    from trtconv.core.documents.saved import load_report
    from trtconv.core.files import atomic_write
    from trtconv.core.text import clean

    made: list[tuple[Path, Path, Served]] = []
    for engine in map(Path, engines):
        if is_pipeline(engine):
            raise InputError(
                f"{engine} is a model in parts, which Triton would serve as an ensemble; trtconv writes none",
                "Give its engines, NAME.1.part.engine, and join them with its ONNX files in an ensemble of your own.",
            )
        report = report_of(engine)
        if report == engine:
            raise InputError(f"{engine} is a report, where an engine is wanted", "Give the engine.")
        # A name of points alone would be the repository, or the folder that it is in.
        name = re.sub(r"[^\w.-]|^\.+", "_", engine.stem)
        made.append((engine, Path(repository) / name, served(name, load_report(report))))
    _check(made, version, force)
    lines = []
    for engine, folder, each in made:
        atomic_write(folder / str(version) / "model.plan", read_plain(engine))
        atomic_write(folder / "config.pbtxt", each.config.encode())
        batches = f"batches of up to {each.batch}" if each.batch else f"no batches: {each.why}"
        lines.append(clean(f"wrote {folder}/config.pbtxt and {version}/model.plan; {batches}"))
    if output_format == "json":
        return Outcome(triton_json([(each, str(folder)) for _, folder, each in made]))
    return Outcome("\n".join(lines))


def _check(made: Sequence[tuple[Path, Path, Served]], version: int, force: bool) -> None:
    """Refuses, before anything is written, what would replace another model."""
    folders = [folder for _, folder, _ in made]
    for engine, folder, each in made:
        if folders.count(folder) > 1:
            raise InputError(f"{engine} would be {folder.name}, as another engine", "Rename one of the engines.")
        plan, config = folder / str(version) / "model.plan", folder / "config.pbtxt"
        if not force and plan.exists():
            raise InputError(f"{plan} exists", "Write another --version, or replace it with --force.")
        if not force and config.exists() and read_plain(config, DOCUMENT_BYTES) != each.config.encode():
            raise InputError(f"{config} exists and says something else", "Replace it with --force.")
