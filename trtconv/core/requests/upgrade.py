"""What `upgrade` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtconv.core.dims import InputRange
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.common import (
    DIMS,
    FAIL_ON,
    PRECISION,
    PROFILES,
    PROVE,
    PROVE_TIME,
    REQUANTIZE,
    REWRITE,
    TARGET,
    VALUES,
)
from trtconv.core.target import Target


@frozen
class TrialSettings(Request):
    """What the command line may say of the builds that both sides are asked for."""

    dims: Bounds = DIMS
    profiles: tuple[Bounds, ...] = PROFILES
    values: Mapping[str, InputRange] = VALUES
    precision: str = PRECISION
    rewrite: bool = REWRITE
    requantize: bool = REQUANTIZE
    target: Target | None = TARGET._replace(
        flags=(
            TARGET.flags[0]._replace(
                help="The family of both sides, where an environment has two of them. Its version does not count.",
                metavar="tensorrt|rtx",
            ),
        )
    )
    fail_on: Severity | None = FAIL_ON
    prove: str = PROVE
    prove_time: float = PROVE_TIME


@frozen
class UpgradeRequest(Request):
    """A call of `trtconv upgrade`.

    Args:
        builds: What both sides are asked for; nothing is written. Of a target only the family counts.
        before: Python of the environment that has the TensorRT of today, or the folder of that environment.
        after: The same of the TensorRT that is to take its place; None: the environment of this process.
        jobs: How many models are tried at a time; None: as many as fit.
    """

    builds: tuple[BuildRequest, ...]
    before: Path
    after: Path | None = None
    tolerance: float = option(
        "--tolerance",
        "By what part the error that the proof finds may grow.",
        metavar="E",
        takes=float,
        least=0,
        default=0.05,
    )
    slower: float | None = option(
        "--slower",
        "Take a build for a regression that takes more than FACTOR times as long, and a second more. Without it the "
        "times are only shown.",
        metavar="FACTOR",
        takes=float,
        least=1,
        default=None,
    )
    time_limit: float = option(
        "--time-limit",
        "Give up on a model after so many seconds on a side.",
        metavar="SECONDS",
        takes=float,
        above=0,
        default=600.0,
    )
    jobs: int | None = None
