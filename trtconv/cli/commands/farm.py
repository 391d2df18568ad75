"""`trtconv farm`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from trtconv.cli import options
from trtconv.cli.commands.farming import with_keys
from trtconv.cli.process.outcome import Command, Outcome, Word
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean


@click.command(
    "farm",
    cls=Command,
    short_help="Make the keys of a farm, or of signatures, or run a farm's scheduler.",
    epilog="""\b
Examples:
  Keys, once; ca.pem goes to everybody, scheduler.pem, worker.pem and client.pem each to who is that:
    trtconv farm keys keys
  A pair of keys for build --sign private.pem, and verify --key public.pem:
    trtconv farm signing-keys mine
  The scheduler, on a machine that all others reach:
    trtconv farm scheduler tls://0.0.0.0:8786 --keys keys

\b
Exit status: 0 done; 2 a bad address or folder, or no keys; 4 the packages of a farm are missing; 130 interrupted.
""",
)
@click.argument("what", metavar="keys|signing-keys|scheduler", type=Word(["keys", "signing-keys", "scheduler"]))
@click.argument("place", metavar="DIR|ADDRESS")
@options.asking(FarmAccess)
@options.quiet_option
def command(asked: options.Asked[FarmAccess], what: str, place: str, quiet: bool) -> Outcome:
    """Make the keys of a farm, or of signatures, or run a farm's scheduler.

    The scheduler gives jobs to workers, and none to a second one that took down the first. docs/farm.md says who can
    do what in a farm.
    """
    if what != "scheduler":
        from trtconv.engine.farm.keys import make_keys, make_signing_keys

        make = make_keys if what == "keys" else make_signing_keys
        return Outcome("\n".join(clean(f"wrote {path}") for path in make(Path(place))))
    from trtconv.engine.farm.scheduler import schedule

    def ready(text: str) -> None:
        if not quiet:
            click.echo(clean(f"scheduler at {text}"), err=True)

    asyncio.run(schedule(place, with_keys(asked.request()), ready))
    return Outcome("the scheduler has ended")
