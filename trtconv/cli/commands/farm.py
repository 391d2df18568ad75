"""`trtconv farm`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from trtconv.cli import options
from trtconv.cli.commands.farming import with_keys
from trtconv.cli.process.command import Command, Word
from trtconv.cli.process.outcome import Outcome
from trtconv.core.errors import InputError
from trtconv.core.requests.farm import FarmAccess, FarmRequest
from trtconv.core.text import clean


@click.command(
    "farm",
    cls=Command,
    epilog="""\b
Examples:
  Keys, once; ca.pem goes to everybody, scheduler.pem, worker.pem and client.pem each to who is that:
    trtconv farm keys keys
  A pair of keys for build --sign private.pem, and verify --key public.pem:
    trtconv farm signing-keys mine
  The scheduler, on a machine that all others reach:
    trtconv farm scheduler tls://0.0.0.0:8786 --keys keys
  What its workers are at, and what waits:
    trtconv farm status tls://farm:8786 --keys keys --page farm.html
  What the workers wrote into their logs, with the ends of builds that broke down:
    trtconv farm log tls://farm:8786 --keys keys
  Remove from the store what is wrong, half-written, or was not used for a month:
    trtconv farm store --store /mnt/engines --prune --unused-days 30

\b
Exit status: 0 done; 2 a bad address or folder, or no keys; 4 nobody answers, or the packages of a farm are missing;
130 interrupted.
""",
)
@click.argument(
    "what",
    metavar="keys|signing-keys|scheduler|status|log|store",
    type=Word(["keys", "signing-keys", "scheduler", "status", "log", "store"]),
)
@click.argument("place", metavar="[DIR|ADDRESS]", required=False)
@options.asking(FarmAccess)
@click.option("--prune", is_flag=True, help="Remove from the store what is wrong, half-written or unused.")
@click.option(
    "--unused-days", type=click.FloatRange(0), default=90.0, show_default=True, help="Days until something is unused."
)
@click.option("--most-gb", type=click.FloatRange(0), help="Remove what was not used for longest until so much is left.")
@click.option("--page", metavar="FILE.html", help="Write a page of the status too.")
@options.format_option("text", "json")
@options.quiet_option
def command(
    arguments: options.Flags[FarmAccess], what: str, place: str | None, output_format: str, quiet: bool, **tidying: Any
) -> Outcome:
    """Make keys, run a farm's scheduler, see what a farm does, tidy its store.

    The scheduler gives jobs to workers, and none to a second one that took down the first. docs/farm.md says who can
    do what in a farm.
    """
    access = with_keys(arguments.request())
    if what == "store":
        return _store(access, place, tidying, output_format)
    if place is None:
        raise InputError(f"farm {what} takes a folder or an address", "trtconv farm --help has an example of each.")
    if what in ("status", "log"):
        return _status(access, place, tidying["page"], output_format, only_log=what == "log")
    if what != "scheduler":
        from trtconv.engine.farm.keys import make_keys, make_signing_keys

        make = make_keys if what == "keys" else make_signing_keys
        return Outcome("\n".join(clean(f"wrote {path}") for path in make(Path(place))))
    from trtconv.cli.process import event_loop
    from trtconv.engine.farm.scheduler import schedule

    def ready(text: str) -> None:
        if not quiet:
            click.echo(clean(f"scheduler at {text}"), err=True)

    event_loop.run(schedule(place, access, ready))
    return Outcome("the scheduler has ended")


def _status(access: FarmAccess, address: str, page: str | None, output_format: str, *, only_log: bool) -> Outcome:
    from trtconv.cli.formats import json
    from trtconv.cli.formats.farm import status_text
    from trtconv.core.files import atomic_write, openable
    from trtconv.core.outputs import Output, check_all
    from trtconv.core.requests.files import files_read
    from trtconv.engine.farm.asking import ask

    if page is not None:
        check_all([Output(openable(Path(page)), "the page", hint="Write another --page.")], files_read(access))
    status = ask(
        FarmRequest(**{field.name: getattr(access, field.name) for field in dataclasses.fields(access)}, on=address)
    )
    if page is not None:
        from trtconv.cli.formats.page import farm_page

        text = farm_page(address, status, time.strftime("%Y-%m-%d %H:%M:%S"))
        atomic_write(openable(Path(page)), text, through_links=True)
    if output_format == "json":
        return Outcome(json.render({**status.to_json(), "exit_code": 0}))
    return Outcome("\n".join(status.log) or "nothing yet" if only_log else status_text(status))


def _store(access: FarmAccess, place: str | None, tidying: Mapping[str, Any], output_format: str) -> Outcome:
    from trtconv.cli.formats import json
    from trtconv.cli.formats.farm import pruned_text
    from trtconv.engine.farm.pruning import prune

    folder = access.store or (Path(place) if place else None)
    if folder is None:
        raise InputError("farm store takes a folder", "Add --store DIR.")
    most = tidying["most_gb"]
    pruned = prune(folder, tidying["unused_days"], None if most is None else int(most * 1e9), remove=tidying["prune"])
    if output_format == "json":
        return Outcome(json.render({**pruned.to_json(), "exit_code": 0}))
    return Outcome(pruned_text(pruned, tidying["prune"]))
