"""`trtconv warm`."""

from __future__ import annotations

import shlex

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.requests.engine import WarmRequest


@click.command(
    "warm",
    cls=Command,
    epilog="""\b
Examples:
  At min, opt and max of every profile:
    trtconv warm unet.engine -o unet.cache
  At the sizes that will be used:
    trtconv warm unet.engine -o unet.cache --dim batch=1 --dim height=512 --dim width=512

\b
Exit status: 0 written; 1 the engine does not run; 2 a bad call, or an engine of full TensorRT; 4 no GPU, an engine
for another machine, or not every size could be run.
""",
)
@click.argument("engine", metavar="ENGINE")
@options.asking(WarmRequest)
@options.format_option("text", "json")
@options.quiet_option
def command(arguments: options.Flags[WarmRequest], engine: str, output_format: str, quiet: bool) -> Outcome:
    """Fill the runtime cache of a TensorRT-RTX engine.

    An engine of TensorRT-RTX is compiled for the GPU when it first runs at a size, which takes seconds. The cache
    keeps that: deliver it beside the engine to machines with the same GPU, or write it there once, at installation. A
    cache that is there is added to. Needs a GPU.
    """
    from trtconv.cli.formats.json import render
    from trtconv.cli.formats.wording import byte_size, count
    from trtconv.core.errors import InputError
    from trtconv.core.text import clean
    from trtconv.engine.warming import warm

    if not arguments.values["output"]:
        words = shlex.join(["trtconv", "warm", engine, "-o", f"{engine}.cache"])
        raise InputError("there is no place for the cache", f"Add -o: {words}")
    with show_progress(quiet) as progress:
        report = warm(arguments.request(engine=engine), progress)
    if output_format == "json":
        return Outcome(render(report.to_json()), report.exit_code)
    cache, rest = report.cache, report.incomplete
    text = f"wrote {cache.path} ({byte_size(cache.bytes)}) for {count(len(report.sizes), 'size')}"
    return Outcome(clean(f"{text}; not all was run: {rest}" if rest else text), report.exit_code)
