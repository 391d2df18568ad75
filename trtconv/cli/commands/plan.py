"""`trtconv plan`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.commands.farming import farm_of
from trtconv.cli.commands.many import ManyFlags, agreed_builds, whole
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError
from trtconv.core.requests.farm import FarmRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtconv.core.requests.build import BuildRequest
    from trtconv.engine.farm.machines import Machine
    from trtconv.engine.farm.planning import Planned


@click.command(
    "plan",
    cls=Command,
    epilog="""\b
Examples:
  What this machine would build:
    trtconv plan
  What a farm would, and for which GPU it has no machine:
    trtconv plan --on tls://farm:8786 --keys keys
  Jobs for machines that no scheduler knows (Slurm, CI runners, ssh):
    trtconv plan --write jobs
    trtconv run-job jobs/NAME.json out
    trtconv collect out

\b
Exit status: 0 all can be built; 2 a model cannot be read; 4 nobody has the GPU or TensorRT for one of them.
""",
)
@options.asking(FarmRequest)
@click.option("--write", metavar="DIR", help="Write a job for each engine that is to be built, with its model.")
@click.option("--config", metavar="FILE", help="The configuration, in place of the nearest trtconv.toml.")
@options.agree_option
@options.format_option("text", "json")
@options.quiet_anyway
def command(
    farming: options.Flags[FarmRequest],
    write: str | None,
    config: str | None,
    agree: tuple[str, ...],
    output_format: str,
) -> Outcome:
    """List which engines of trtconv.toml are to be built, and who can.

    Each model with each of its targets is up to date, to build, or for a GPU or TensorRT that nobody has. Nothing is
    built. With --write each build becomes a file that any machine with the GPU can work on: the model with its
    weights, what is asked of it, and the hash of both as its name.
    """
    listing = whole(ManyFlags(output_format, config, None, True, False))
    builds, farm = agreed_builds(listing, agree), None
    if write is None:
        farm = farm_of(farming, listing)
        machines: Sequence[Machine] | None = _machines(farm, builds)
    elif farming.flags - {"then"}:
        raise InputError("--write is for machines that no farm has", "Leave out --on and what goes with it.")
    else:
        machines = None
    from trtconv.engine.farm.planning import plan

    here = write is None and farm is None
    planned = plan(builds, machines, farming.request().then, here=here)
    lines = [] if write is None else _write(Path(write), planned)
    code = next((code for code in (3, 2, 4, 1) if code in [entry.exit_code for entry in planned]), 0)
    if output_format == "json":
        from trtconv.cli.formats.json import render
        from trtconv.core.documents.commands import PlanReport

        return Outcome(render(PlanReport(tuple(entry.record() for entry in planned), code).to_json()), code)
    return Outcome("\n".join([*_matrix(builds, planned), *lines]), code)


def _machines(farm: FarmRequest | None, builds: Sequence[BuildRequest]) -> Sequence[Machine]:
    if farm is None:
        from trtconv.engine.farm.worker import look

        return [look(None)]
    from trtconv.cli.commands.farming import SLURM

    if farm.on == SLURM:
        raise InputError("nobody asks Slurm who has which GPU", "Use plan --write, or build --on slurm.")
    from trtconv.engine.farm.cluster import Farm

    with contextlib.closing(Farm(farm)) as joined:
        return joined.machines({build.target for build in builds})


def _write(folder: Path, planned: Sequence[Planned]) -> list[str]:
    """Writes the jobs; returns a line for each."""
    from trtconv.core.reading import read_plain
    from trtconv.core.text import clean
    from trtconv.engine.farm.job import contents
    from trtconv.engine.farm.planning import TO_BUILD
    from trtconv.engine.farm.store import Store

    store, lines = Store(folder), []
    for entry in planned:
        if entry.state == TO_BUILD and entry.job is not None:
            for path in contents(entry.job, entry.request.model).values():
                store.put(read_plain(path))
            path = store.put_job(entry.job.name, entry.job.to_json())
            lines.append(clean(f"wrote {path} for {entry.request.model}, {entry.request.target or 'auto'}"))
    return lines


def _matrix(builds: Sequence[BuildRequest], planned: Sequence[Planned]) -> list[str]:
    """Returns the lines of a table, models down and targets across, the counts, and what is wrong."""
    from trtconv.cli.formats.wording import table
    from trtconv.core.text import clean

    words = {"up-to-date": "up to date", "to-build": "to build", "nobody": "nobody", "error": "error"}
    targets = list(dict.fromkeys(str(build.target or "auto") for build in builds))
    rows: dict[str, dict[str, str]] = {}
    for entry in planned:
        rows.setdefault(str(entry.request.model), {})[str(entry.request.target or "auto")] = words[entry.state]
    head = [("model", *targets)]
    lines = table([*head, *((clean(m), *(cells.get(t, "-") for t in targets)) for m, cells in rows.items())], "")
    states = [entry.state for entry in planned]
    counts = ", ".join(f"{states.count(state)} {text}" for state, text in words.items() if state in states)
    faults = [clean(f"{e.request.model}: {e.error.message}. {e.error.hint}") for e in planned if e.error is not None]
    lacking = dict.fromkeys(str(entry.request.target or "auto") for entry in planned if entry.state == "nobody")
    missing = [f"nobody can build for {target}: start trtconv worker where that is" for target in lacking]
    notes = dict.fromkeys(clean(note) for entry in planned for note in entry.notes)
    return [*lines, "", counts, *missing, *notes, *dict.fromkeys(faults)]
