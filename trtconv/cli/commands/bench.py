"""`trtconv bench`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.errors import InputError
from trtconv.core.files import openable
from trtconv.core.outputs import Output, check_all
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.files import files_read


@click.command(
    "bench",
    cls=Command,
    epilog="""\b
Examples:
  Every profile at min, opt and max, with a drawing of latency against size:
    trtconv bench unet.engine --plot unet.svg
  One size:
    trtconv bench unet.engine --dim batch=1 --dim height=256 --dim width=256
  Two engines in turns, and the ratio of their times:
    trtconv bench new.engine --vs old.engine
  As a server runs it: four requests at a time, for ten seconds:
    trtconv bench unet.engine --contexts 4 --seconds 10
  Requests as they came one day, while another engine is busy:
    trtconv bench unet.engine --contexts 2 --arrivals monday.csv --beside other.engine
  In a script, the median of a CUDA graph at opt:
    trtconv bench unet.engine --format json -q |
      jq '.rows[] | select(.graph and (.copies | not) and .size == "opt") | .median_us'

\b
Exit status: 0 timed; 1 the engine does not run; 2 a bad call, or files that do not belong together; 4 no GPU,
an engine for another machine, or not all could be timed.
""",
)
@click.argument("engine", metavar="ENGINE")
@options.asking(BenchRequest)
@click.option("--plot", metavar="FILE", help="Draw latency against size into FILE.svg or, with matplotlib, FILE.png.")
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[BenchRequest], engine: str, plot: str | None, output_format: str, quiet: bool
) -> Outcome:
    """Time an engine at its sizes, or two in turns.

    ENGINE is what build made, with its report beside it. Each size is timed as a CUDA graph and with plain launches,
    with and without the copies of inputs and outputs from and to the host, by the GPU's own clock, after a warm-up.
    The median and the 99th percentile are of single inferences; the throughput is of many in a row.

    With --contexts, --arrivals or --beside requests are served several at a time, at opt of each profile or the sizes
    of the recording, and latency is from a request's arrival to its result.
    """
    from trtconv.cli.formats import plot as drawing
    from trtconv.cli.formats.engine import bench_text
    from trtconv.engine import bench

    request = arguments.request(engine=engine)
    if request.dims and request.shapes:
        raise InputError("--dim does not go together with --shapes", "Give one of them.")
    if plot is not None:
        if request.is_load:
            raise InputError("--plot draws latency against size, of one request at a time", "Leave it out.")
        plot = str(openable(Path(plot)))
        drawing.check_format(Path(plot))
        drawings = [Output(Path(plot), "the drawing", hint="Choose another --plot.")]
        cache = [] if request.cache is None else [Output(request.cache, "the runtime cache")]
        check_all([*cache, *drawings], files_read(request))
    with show_progress(quiet) as progress:
        report = bench(request, progress)
    if plot is not None:
        from trtconv.core.files import atomic_write

        atomic_write(Path(plot), drawing.draw(report, Path(plot)), through_links=True)
    return Outcome.of(report, output_format, bench_text)
