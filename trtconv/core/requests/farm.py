"""What is asked of a farm: other machines that build."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Request

AFTERWARDS = ("verify", "bench")
"""What can be done with an engine where it was built."""


def _afterwards(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in AFTERWARDS:
            raise InputError(f"--then {text!r}: there is no {name!r}", "Use --then verify, bench or verify,bench.")
    return tuple(name for name in AFTERWARDS if name in names)


@frozen
class FarmAccess(Request):
    """How a farm is reached.

    Args:
        keys: Folder that `trtconv farm keys` made; None: there are none, and no TLS.
        insecure: Talk also without TLS, beyond this machine.
        store: Folder for engines and large models that several machines see.
        reconnect: Seconds that a lost line to the scheduler may take to be there again.
    """

    keys: Path | None = option(
        "--keys",
        "Folder with the keys that trtconv farm keys made. Default: $TRTCONV_FARM_KEYS.",
        metavar="DIR",
        default=None,
        reads="the keys",
    )
    insecure: bool = option(
        "--insecure",
        "Talk to a farm without TLS, beyond this machine too: who reaches it gives engines to everybody in it.",
        default=False,
    )
    store: Path | None = option(
        "--store",
        "Folder that keeps engines, by what determines them, and large models on their way; a shared one serves all.",
        metavar="DIR",
        default=None,
    )
    reconnect: float = option(
        "--reconnect",
        "How many seconds a scheduler that is lost is waited for.",
        metavar="SECONDS",
        takes=float,
        least=0,
        default=60.0,
    )


@frozen
class FarmRequest(FarmAccess):
    """Builds on a farm.

    Args:
        on: The scheduler's address; None: build here.
        then: What of `AFTERWARDS` is done with each engine where it was built.
        retries: How often a job is sent again whose worker is lost, or whose engine does not come back.
        job_timeout: Seconds that a worker may be at a job; None: any number.
        sbatch: More arguments for sbatch; TARGET=ARGUMENTS are for one target alone.
    """

    on: str | None = option(
        "--on",
        "Build on the machines of the farm whose scheduler is there, such as tls://farm:8786 (docs/farm.md); slurm: by "
        "sbatch; here: on this machine, whatever [farm] in trtconv.toml says.",
        metavar="ADDRESS",
        default=None,
    )
    then: tuple[str, ...] = option(
        "--then",
        "Run verify, bench or both where the engine was built, and write ENGINE.verify.json and ENGINE.bench.json.",
        metavar="verify,bench",
        default=(),
        absent=None,
        read=_afterwards,
    )
    retries: int = option(
        "--retries",
        "How often a job is tried again whose worker is lost, or whose engine is not in the store.",
        metavar="N",
        takes=int,
        least=0,
        default=0,
    )
    job_timeout: float | None = option(
        "--job-timeout",
        "End a job after so many seconds on a worker.",
        metavar="SECONDS",
        takes=float,
        above=0,
        default=None,
    )
    sbatch: tuple[str, ...] = option(
        "--sbatch",
        "With --on slurm: arguments for sbatch, or TARGET=ARGUMENTS for those of one target. Default: --gres=gpu:1.",
        metavar="[TARGET=]ARGUMENTS",
        many=True,
        default=(),
    )
