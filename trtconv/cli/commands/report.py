"""`trtconv report`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.files import with_ending
from trtconv.core.gpus import PEAKS
from trtconv.core.outputs import Output


@click.command(
    "report",
    cls=Command,
    epilog="""\b
Examples:
  The page of an engine, made of the report beside it; writes unet.html:
    trtconv report unet.engine
  With what was measured; the page takes files of these names by itself:
    trtconv verify unet.onnx --format json > unet.engine.verify.json
    trtconv bench unet.engine --format json > unet.engine.bench.json
    trtconv inspect unet.engine --format json > unet.engine.inspect.json
    trtconv report unet.engine -o unet.html
  A model in parts, drawn:
    trtconv report yolo.pipeline.json -o yolo.html
  All engines below a folder, by model and target; with the builds that failed, where their document is there:
    trtconv build --format json > engines/build.json
    trtconv report engines/ -o engines.html

\b
Exit status: 0 written; 2 a bad call, or files that are no reports or do not belong together.
""",
)
@options.for_models
@click.argument("subject", metavar="ENGINE|REPORT|PIPELINE|FOLDER")
@click.option(
    "-o",
    "--output",
    metavar="PAGE.html",
    help="Where the page goes. Default: the engine or the model in parts with .html, of a folder its index.html.",
)
@click.option(
    "--with",
    "documents",
    multiple=True,
    metavar="FILE",
    help="Show this document of verify, bench, inspect or quantize, instead of the one beside the engine. Repeatable.",
)
@click.option(
    "--gpu",
    type=click.Choice(list(PEAKS)),
    help="Estimate the layers' times for this GPU.  [default: the target's, the one it was built on, or l4]",
)
@options.format_option("text", "json")
@options.quiet_anyway
def command(
    subject: str, output: str | None, documents: tuple[str, ...], gpu: str | None, output_format: str
) -> Outcome:
    """Write a page about an engine, or about a folder of engines.

    One HTML file that loads nothing and runs nothing: verdict and proof, the sizes that are accepted, rewrites drawn
    before and after, findings with their fixes, the network that TensorRT parsed with its layers' work and an estimate
    of their time, numerics, latency, memory, what has changed since the build before, and what determines the engine.

    Nothing is built or run, and the engine is not loaded. Rewrites are drawn where the model is at hand and unchanged.
    """
    from trtconv.cli.formats.page import engine_page, folder_page
    from trtconv.cli.formats.page.gather import files_shown, gather, gather_all
    from trtconv.cli.formats.wording import byte_size, count
    from trtconv.core.documents.pipeline import is_pipeline
    from trtconv.core.errors import InputError
    from trtconv.core.files import atomic_write, openable
    from trtconv.core.outputs import check_all
    from trtconv.core.text import clean

    path = Path(subject)
    page = _usual_page(path) if output is None else openable(Path(output))
    place = Output(page, "the page", typed=output is not None, hint="Write the page elsewhere: -o page.html.")
    if is_pipeline(path):
        return _pipeline(path, place, documents, output_format)
    if path.is_dir():
        if documents:
            raise InputError("--with goes with one engine", "Put the documents beside the engines: ENGINE.bench.json.")
        folder = gather_all(path)
        subjects, left_out = folder.subjects, folder.left_out
        content = folder_page(path.resolve().name or str(path), folder)
    else:
        subjects, left_out = (gather(path, [Path(file) for file in documents]),), {}
        content = engine_page(subjects[0], gpu)
    inputs = [("what is shown", Path(file)) for file in documents] + [("what is shown", path)]
    inputs += [file for subject in subjects for file in files_shown(subject)]
    check_all([place], inputs)
    atomic_write(page, content, through_links=True)
    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.documents.commands import PageFile, PageReport

        document = PageReport(PageFile(str(page), len(content)), len(subjects), left_out)
        return Outcome(render(document.to_json()))
    topic = count(len(subjects), "engine") if path.is_dir() else subjects[0].path.name
    lines = [f"wrote {page} ({byte_size(len(content))}) about {topic}"]
    lines += [f"left out {file}: {why}" for file, why in left_out.items()]
    return Outcome("\n".join(map(clean, lines)))


def _usual_page(subject: Path) -> Path:
    """Returns where the page goes where nobody says: beside what it is about."""
    if subject.is_dir():
        return subject / "index.html"
    return with_ending(subject.with_name(subject.name.removesuffix(".json").removesuffix(".pipeline")), ".html")


def _pipeline(path: Path, place: Output, documents: tuple[str, ...], output_format: str) -> Outcome:
    """Writes the page of a model in parts."""
    from trtconv.cli.formats.json import render
    from trtconv.cli.formats.page.pipelines import pipeline_page
    from trtconv.cli.formats.wording import byte_size
    from trtconv.core.documents.commands import PageFile, PageReport
    from trtconv.core.documents.pipeline import load_document
    from trtconv.core.errors import InputError
    from trtconv.core.files import atomic_write
    from trtconv.core.outputs import check_all
    from trtconv.core.text import leading

    if documents:
        raise InputError("--with goes with one engine", "Leave it out.")
    saved = load_document(path)
    page = place.path
    check_all([place], [("what is shown", file) for file in saved.files()])
    content = pipeline_page(saved)
    atomic_write(page, content, through_links=True)
    if output_format == "json":
        engines = sum(part.onnx is not None for part in saved.document.parts)
        return Outcome(render(PageReport(PageFile(str(page), len(content)), engines, {}).to_json()))
    return Outcome(f"wrote {leading(str(page))} ({byte_size(len(content))}) about {leading(path.name)}")
