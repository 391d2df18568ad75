"""What commands share that have a farm build: how it is reached, and what it did."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trtconv.cli.commands.many import ManyFlags, outcome_of, outcome_of_build
from trtconv.cli.options import Flags
from trtconv.cli.process.outcome import Outcome
from trtconv.core import errors
from trtconv.core.errors import InputError, TrtconvError
from trtconv.core.requests.farm import FarmAccess, FarmRequest

if TYPE_CHECKING:
    from trtconv.cli.rows import Rows
    from trtconv.core.config import Config
    from trtconv.core.requests.build import BuildRequest
    from trtconv.pipeline.batch import Executor

Access = TypeVar("Access", bound=FarmAccess)
HERE, SLURM = "here", "slurm"
_OF_SLURM = {"on", "store", "then", "sbatch"}
"""Flags that say something to Slurm."""


def farm_of(arguments: Flags[FarmRequest], config: Config | None) -> FarmRequest | None:
    """Returns the farm that builds, None where this machine does.

    A configuration may be a stranger's. So keys are never those that it names, and its address counts with TLS alone,
    on this machine too: anybody can listen there.

    Args:
        arguments: What the command line says.
        config: What else may name a farm.

    Raises:
        InputError: There are flags of a farm, and none, or of a scheduler of trtconv's, and it is Slurm; or the
            configuration names one without TLS.
    """
    request = with_keys(arguments.request())
    address = request.on or _safe_address(config)
    if address in (None, HERE):
        for flag in sorted(arguments.flags - {"on"}):
            raise InputError(
                f"{_flag(flag)} goes with a farm", "Add --on ADDRESS, or [farm] to trtconv.toml (docs/farm.md)."
            )
        return None
    if request.sbatch and address != SLURM:
        raise InputError("--sbatch goes with --on slurm", "Leave it out.")
    for flag in sorted(arguments.flags - _OF_SLURM) if address == SLURM else ():
        raise InputError(
            f"{_flag(flag)} says nothing to Slurm",
            "Leave it out; how Slurm runs its tasks goes with --sbatch: --sbatch '--gres=gpu:1 --requeue -t 60'.",
        )
    store = request.store or (config.store if config else None)
    return dataclasses.replace(request, on=address, store=store)


def _flag(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _safe_address(config: Config | None) -> str | None:
    if config is None or config.address is None:
        return None
    from trtconv.engine.farm.addresses import checked_address, has_tls

    if config.address != HERE and not has_tls(checked_address(config.address, insecure=True)):
        raise InputError(
            f"{config.path}: [farm] address {config.address!r} is without TLS, and may be anybody's",
            "Use tls://, or say on the command line where to build: --on here, or --on with that address.",
        )
    return config.address


def with_keys(request: Access) -> Access:
    """Returns the same access, with the keys that the environment names where none are given."""
    path = os.environ.get("TRTCONV_FARM_KEYS")
    return dataclasses.replace(request, keys=Path(path)) if path and request.keys is None else request


def build_on(
    farm: FarmRequest, requests: Sequence[BuildRequest], flags: ManyFlags, config: Config | None, alone: bool = False
) -> Outcome:
    """Builds on a farm.

    Args:
        farm: Where.
        requests: What to build.
        flags: How it is told.
        config: The configuration that lists them.
        alone: Whether it is one build, which is told, and fails, as one here does.
    """
    if flags.jobs is not None:
        raise InputError("--jobs is of this machine", "Start more workers, one a GPU.")
    from trtconv.cli.rows import WatchedExecutor, show_rows
    from trtconv.core.documents.build import BuildReport
    from trtconv.core.documents.check import FailedRun
    from trtconv.core.outputs import check_all
    from trtconv.core.requests.files import files_read
    from trtconv.pipeline.batch import run_all

    check_all([output for request in requests for output in request.outputs], files_read(farm), and_disk=False)
    with show_rows(requests, flags.quiet) as rows, opened(farm, rows) as executor:
        results = run_all(requests, WatchedExecutor(executor, rows))
    if not alone:
        return outcome_of(results, flags, config)
    (result,) = results
    if not isinstance(result, FailedRun):
        assert isinstance(result, BuildReport)
        return outcome_of_build(result, flags)
    kind = getattr(errors, result.kind, None)
    if flags.output_format == "json" or not isinstance(kind, type) or not issubclass(kind, TrtconvError):
        return outcome_of([result], flags, config)
    raise kind(result.message, result.hint)


@contextlib.contextmanager
def opened(farm: FarmRequest, rows: Rows) -> Iterator[Executor]:
    """Joins a farm, and leaves it again."""
    if farm.on == SLURM:
        from trtconv.engine.farm.slurm import Slurm

        with contextlib.closing(Slurm(farm)) as batch:
            yield batch
        return
    from trtconv.engine.farm.cluster import Farm

    with contextlib.closing(Farm(farm, rows)) as executor:
        yield executor
