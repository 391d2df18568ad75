"""`trtconv worker`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from trtconv.cli import options
from trtconv.cli.commands.farming import with_keys
from trtconv.cli.process.command import Command
from trtconv.cli.process.outcome import Outcome
from trtconv.cli.timing_folder import timing_folder
from trtconv.core.requests.farm import FarmAccess
from trtconv.core.text import clean

if TYPE_CHECKING:
    from trtconv.engine.farm.code import HeldCode


@click.command(
    "worker",
    cls=Command,
    epilog="""\b
Examples:
  On each machine with a GPU, until Ctrl-C:
    trtconv worker tls://farm:8786 --keys keys
  One for each GPU of a machine:
    CUDA_VISIBLE_DEVICES=1 trtconv worker tls://farm:8786 --keys keys
  On a cluster of Slurm's:
    srun --gres=gpu:1 trtconv worker tls://farm:8786 --keys keys

\b
Exit status: 0 the scheduler ended, and did not come back; 2 a bad address, or no keys; 4 no TensorRT works here, nobody
answers, keys of another farm, or the connection was lost for --reconnect seconds; 130 interrupted.
""",
)
@click.argument("address", metavar="ADDRESS")
@options.asking(FarmAccess)
@click.option("--gpu", metavar="NAME", help="What the GPU is called in targets, in place of its own name.")
@options.code_options
@click.option("--name", metavar="NAME", help="What the worker is called. Default: the host and the process.")
@options.quiet_option
def command(
    arguments: options.Flags[FarmAccess],
    address: str,
    gpu: str | None,
    name: str | None,
    load_code: Callable[[], HeldCode],
    quiet: bool,
) -> Outcome:
    """Build on this machine what a farm is asked for.

    Finds out which TensorRT works here, on which GPU, and offers that to the scheduler at ADDRESS (trtconv farm
    scheduler). Builds one engine at a time, each in a process whose crash costs that job alone, and keeps a timing
    cache for each version and GPU. Whoever has a client's key has models built here (docs/farm.md).
    """
    from trtconv.cli.process import event_loop
    from trtconv.engine.farm.addresses import checked_address
    from trtconv.engine.farm.worker import look, serve

    access = with_keys(arguments.request())
    checked_address(address, access.insecure)
    code = load_code()
    called = name or f"{socket.gethostname()}-{os.getpid()}"

    def say(text: str) -> None:
        if not quiet:
            click.echo(f"{time.strftime('%H:%M:%S')} {clean(text)}", err=True)

    event_loop.run(serve(address, access, lambda: look(gpu), called, timing_folder(), say, code))
    return Outcome("the scheduler has ended")
