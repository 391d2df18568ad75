"""`trtconv bench`."""

from __future__ import annotations

from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.process.outcome import Command, Outcome
from trtconv.cli.progress import show_progress
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen


@frozen
class BenchFlags:
    """The command's flags."""

    engine: str
    dim: tuple[str, ...]
    shapes: str | None
    versus: str | None
    report: str | None
    warmup: float
    duration: float
    plot: str | None
    runtime_cache: str | None
    trust: bool
    time_limit: float
    output_format: str
    quiet: bool


@click.command(
    "bench",
    cls=Command,
    short_help="Time an engine at its sizes, or two in turns.",
    epilog="""\b
Examples:
  Every profile at min, opt and max, with a drawing of latency against size:
    trtconv bench unet.engine --plot unet.svg
  One size:
    trtconv bench unet.engine --dim batch=1 --dim height=256 --dim width=256
  Two engines in turns, and the ratio of their times:
    trtconv bench new.engine --vs old.engine
  In a script, the median of a CUDA graph at opt:
    trtconv bench unet.engine --format json -q |
      jq '.rows[] | select(.graph and (.copies | not) and .size == "opt") | .median_us'

\b
Exit status: 0 timed; 1 the engine does not run; 2 a bad call, or files that do not belong together; 4 no GPU,
an engine for another machine, or not all could be timed.
""",
)
@click.argument("engine", metavar="ENGINE")
@click.option(
    "--dim",
    multiple=True,
    metavar="NAME=MIN:OPT:MAX",
    help="Time at these sizes instead of those of the profiles; NAME=N is one size. Repeatable.",
)
@click.option("--shapes", metavar="INPUT:SHAPE,...", help="Time at these shapes, as x:1x3x256x256,y:1x8.")
@click.option("--vs", "versus", metavar="OTHER", help="Time another engine in turns with it, at the same sizes.")
@options.report_option
@click.option(
    "--warmup", type=options.FiniteRange(0, 600), default=0.3, show_default=True, metavar="S", help="Seconds run first."
)
@click.option(
    "--duration",
    type=options.FiniteRange(0.01, 600),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds of each row.",
)
@click.option("--plot", metavar="FILE", help="Draw latency against size into FILE.svg or, with matplotlib, FILE.png.")
@click.option(
    "--runtime-cache", metavar="FILE", help="Keep what TensorRT-RTX compiles while it runs; others have no such cache."
)
@options.trust_option
@options.time_limit_option(600)
@options.format_option("text", "json")
@options.quiet_option
@options.packed(BenchFlags)
def command(flags: BenchFlags) -> Outcome:
    """Time an engine at its sizes, or two in turns.

    ENGINE is what build made, with its report beside it. Each size is timed as a CUDA graph and with plain launches,
    with and without the copies of inputs and outputs from and to the host, by the GPU's own clock, after a warm-up.
    The median and the 99th percentile are of single inferences; the throughput is of many in a row.
    """
    from trtconv import engine
    from trtconv.cli.formats import json, plot
    from trtconv.cli.formats.engine import bench_text
    from trtconv.core.dim_flags import parse_dims, parse_shapes
    from trtconv.core.requests.engine import BenchRequest

    if flags.dim and flags.shapes:
        raise InputError("--dim does not go together with --shapes", "Give one of them.")
    if flags.plot is not None:
        plot.check_format(Path(flags.plot))
    request = BenchRequest(
        engine=Path(flags.engine),
        report=options.optional_path(flags.report),
        versus=options.optional_path(flags.versus),
        dims=parse_dims(flags.dim),
        shapes={} if flags.shapes is None else parse_shapes("--shapes", flags.shapes),
        warmup=flags.warmup,
        duration=flags.duration,
        trust=flags.trust,
        cache=options.optional_path(flags.runtime_cache),
        seconds=flags.time_limit,
    )
    with show_progress(flags.quiet) as progress:
        report = engine.bench(request, progress)
    document = report.to_json()
    if flags.plot is not None:
        from trtconv.core.files import atomic_write

        atomic_write(Path(flags.plot), plot.draw(document, Path(flags.plot)))
    render = json.render(document) if flags.output_format == "json" else bench_text(document)
    return Outcome(render, report.exit_code)
