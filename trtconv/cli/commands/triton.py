"""`trtconv triton`."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.agreement import CodeFile
from trtconv.core.documents.pipeline import ENDING, SavedPipeline, is_pipeline, load_document
from trtconv.core.errors import InputError
from trtconv.core.reading import DOCUMENT_BYTES, read_plain

if TYPE_CHECKING:
    from trtconv.cli.formats.triton import PluginLibrary, Served
    from trtconv.core.documents.saved import SavedReport
    from trtconv.core.documents.tensors import TensorInfo


@click.command(
    "triton",
    cls=Command,
    epilog="""\b
Examples:
  One engine; writes repository/unet/config.pbtxt and repository/unet/1/model.plan:
    trtconv triton unet.engine repository
  One with a plugin of its own, which is copied beside it:
    trtconv triton detector.engine repository --plugin libmine.so
  One without weights, which the copy gets (it takes the GPU that the engine is for):
    trtconv triton unet.engine repository --weights unet.onnx
  Parts of an export with the ensemble that joins them, repository/tts/config.pbtxt:
    trtconv triton tts.pipeline.json repository
  Several, as a new version:
    trtconv triton unet.engine gan.engine repository --version 2

\b
Exit status: 0 written; 2 a bad call, files that do not belong together, or an engine that Triton cannot serve.
""",
)
@click.argument("engines", metavar="ENGINE...", nargs=-1, required=True)
@click.argument("repository", metavar="REPOSITORY")
@click.option("--version", type=click.IntRange(min=1), default=1, show_default=True, help="Version of the models.")
@click.option(
    "--plugin",
    "libraries",
    metavar="LIB",
    multiple=True,
    help="A library of plugins that an engine was built with; it is copied beside the engine. Repeatable.",
)
@click.option(
    "--weights",
    metavar="MODEL.onnx",
    help="The .onnx file with the weights of an engine that was built with --strip-weights: the copy gets them.",
)
@click.option("--force", is_flag=True, help="Replace what is there.")
@options.format_option("text", "json")
@options.quiet_anyway
def command(
    engines: tuple[str, ...],
    repository: str,
    version: int,
    libraries: tuple[str, ...],
    weights: str | None,
    force: bool,
    output_format: str,
) -> Outcome:
    """Put engines into a model repository for Triton.

    Each engine is copied to REPOSITORY/NAME/VERSION/model.plan, and what its report says of inputs, outputs, profiles
    and batches is written to REPOSITORY/NAME/config.pbtxt. Triton makes batches of requests where the first dimension
    of all inputs and outputs is the same dynamic one and a profile takes a batch of 1.

    Of a MODEL.pipeline.json whose parts are all engines, each is put there, and an ensemble that joins them.

    Triton has to have the version of TensorRT that built the engine, and the same GPU. It loads libraries of plugins
    where it is started with --backend-config=tensorrt,plugins=FILE;FILE, which is told.
    """

    from trtconv.cli.formats.triton import PluginLibrary, libraries_of, served, triton_json

    pipelines = [_engine_pipeline(Path(engine)) for engine in engines if is_pipeline(engine)]
    alone = [Path(engine) for engine in engines if not is_pipeline(engine)]
    paths = [*alone, *(engine for saved in pipelines for _, engine in saved.engines())]
    if weights is not None and len(paths) != 1:
        raise InputError("--weights is about one engine", "Put engines without weights in one at a time.")
    plugins = [PluginLibrary.read(Path(library)) for library in libraries]
    entries: list[tuple[Path, Path, Served]] = []
    needed: list[tuple[PluginLibrary, ...]] = []
    tensors: dict[Path, tuple[Served, Sequence[TensorInfo]]] = {}
    for engine in paths:
        report = _report(engine) if weights is None else _to_have_weights(engine, _report(engine))
        entries.append((engine, Path(repository) / _name(engine.stem), served(_name(engine.stem), report)))
        needed.append(libraries_of(engine, report, plugins))
        tensors[engine] = entries[-1][2], report.report.io
    ensembles = _ensembles(pipelines, tensors, Path(repository))
    _check(entries, ensembles, version, force)
    with _with_weights(entries, weights, libraries) as ready:
        _copy(ready, needed, version)
    lines = [*_lines(entries, needed, version), *_write_ensembles(ensembles, version)]
    if output_format == "json":
        models = [(model, str(folder), own) for (_, folder, model), own in zip(entries, needed, strict=True)]
        return Outcome(triton_json([*models, *((model, str(folder), ()) for folder, model in ensembles)]))
    return Outcome("\n".join(lines))


def _name(stem: str) -> str:
    """Returns what a model is called; a name of points alone would be the repository, or the folder that it is in."""
    return re.sub(r"[^\w.-]|^\.+", "_", stem)


def _engine_pipeline(path: Path) -> SavedPipeline:
    """Returns a pipeline all of whose parts are engines.

    Raises:
        InputError: A part stays with ONNX Runtime.
    """
    saved = load_document(path)
    others = [part.file for part in saved.document.parts if part.onnx is None]
    if others:
        raise InputError(
            f"{path}: {others[0]} is no engine, and an ensemble of engines cannot have it",
            "Build the parts of an export first (trtconv build MODEL.pipeline.json); of build --partition give the "
            "engines, NAME.1.part.engine, and join them with its ONNX files in an ensemble of your own.",
        )
    return saved


def _ensembles(
    pipelines: Sequence[SavedPipeline], tensors: Mapping[Path, tuple[Served, Sequence[TensorInfo]]], repository: Path
) -> list[tuple[Path, Served]]:
    """Returns the ensemble of each pipeline, and its folder."""
    from trtconv.cli.formats.triton import ensemble

    ensembles = []
    for saved in pipelines:
        members = [tensors[engine] for _, engine in saved.engines()]
        ensembles.append(ensemble(_name(saved.path.name.removesuffix(ENDING)), saved.document, members))
    return [(repository / model.name, model) for model in ensembles]


def _write_ensembles(ensembles: Sequence[tuple[Path, Served]], version: int) -> list[str]:
    """Writes configurations; Triton wants a folder of the version, which has nothing in it. Says what was written."""
    from trtconv.core.files import atomic_write
    from trtconv.core.text import clean

    for folder, model in ensembles:
        atomic_write(folder / "config.pbtxt", model.config.encode())
        (folder / str(version)).mkdir(exist_ok=True)
    return [clean(f"wrote {folder}/config.pbtxt; an ensemble") for folder, _ in ensembles]


def _report(engine: Path) -> SavedReport:
    """Returns the report beside an engine; raises InputError where the file is no engine."""
    from trtconv.cli.formats.page.gather import report_of
    from trtconv.core.documents.saved import load_report

    report = report_of(engine)
    if report == engine:
        raise InputError(f"{engine} is a report, where an engine is wanted", "Give the engine.")
    return load_report(report)


def _to_have_weights(engine: Path, saved: SavedReport) -> SavedReport:
    """Returns the report of an engine as it is with its weights; raises InputError where it has them."""
    plan = saved.report.plan
    if not plan.options.strip_weights:
        raise InputError(f"--weights: {engine} has its weights", "Leave it out.")
    options = dataclasses.replace(plan.options, strip_weights=False)
    report = dataclasses.replace(saved.report, plan=dataclasses.replace(plan, options=options))
    return dataclasses.replace(saved, report=report)


@contextlib.contextmanager
def _with_weights(
    entries: list[tuple[Path, Path, Served]], weights: str | None, libraries: Sequence[str]
) -> Iterator[list[tuple[Path, Path, Served]]]:
    """Yields what is copied: the engines, or the only one with its weights, which it gets beside."""
    if weights is None:
        yield entries
        return
    from trtconv.core.requests.engine import RefitRequest
    from trtconv.engine import refit

    ((engine, folder, model),) = entries
    with tempfile.TemporaryDirectory() as place:
        full = Path(place) / "full.engine"
        plugins = CodeFile.named(libraries)
        refit(RefitRequest(engine, Path(weights), output=full, prove="none", plugins=plugins))
        yield [(full, folder, model)]


def _copy(
    entries: Sequence[tuple[Path, Path, Served]], needed: Sequence[Sequence[PluginLibrary]], version: int
) -> None:
    """Writes the engines, each with what it needs beside it."""
    from trtconv.core.files import atomic_write

    for (engine, folder, model), own in zip(entries, needed, strict=True):
        names = [library.path.name for library in own]
        if len(set(names)) < len(names):
            raise InputError(f"two libraries of {engine} have one name: {', '.join(names)}", "Give one another name.")
        for library in own:
            atomic_write(folder / str(version) / library.path.name, library.data)
        atomic_write(folder / str(version) / "model.plan", read_plain(engine))
        atomic_write(folder / "config.pbtxt", model.config.encode())


def _lines(
    entries: Sequence[tuple[Path, Path, Served]], needed: Sequence[Sequence[PluginLibrary]], version: int
) -> list[str]:
    """Returns what was written, as text, and how Triton loads the libraries."""
    from trtconv.core.text import clean

    lines = []
    for _, folder, model in entries:
        batches = f"batches of up to {model.batch}" if model.batch else f"no batches: {model.why}"
        lines.append(clean(f"wrote {folder}/config.pbtxt and {version}/model.plan; {batches}"))
    places = [
        str(folder / str(version) / library.path.name)
        for (_, folder, _), own in zip(entries, needed, strict=True)
        for library in own
    ]
    if places:
        lines.append(clean(f"start Triton with --backend-config=tensorrt,plugins='{';'.join(places)}'"))
    return lines


def _check(
    entries: Sequence[tuple[Path, Path, Served]], ensembles: Sequence[tuple[Path, Served]], version: int, force: bool
) -> None:
    """Refuses, before anything is written, what would replace another model."""
    folders = [*(folder for _, folder, _ in entries), *(folder for folder, _ in ensembles)]
    for engine, folder, model in entries:
        if folders.count(folder) > 1:
            raise InputError(f"{engine} would be {folder.name}, as another engine", "Rename one of the engines.")
        plan, config = folder / str(version) / "model.plan", folder / "config.pbtxt"
        if not force and plan.exists():
            raise InputError(f"{plan} exists", "Write another --version, or replace it with --force.")
        _check_config(config, model, force)
    for folder, model in ensembles:
        if folders.count(folder) > 1:
            raise InputError(f"the ensemble {folder.name} has the name of an engine", "Rename one of them.")
        _check_config(folder / "config.pbtxt", model, force)


def _check_config(config: Path, model: Served, force: bool) -> None:
    if not force and config.exists() and read_plain(config, DOCUMENT_BYTES) != model.config.encode():
        raise InputError(f"{config} exists and says something else", "Replace it with --force.")
