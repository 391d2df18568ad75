"""What bench is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.agreement import CodeFile
from trtconv.core.dim_flags import parse_shapes
from trtconv.core.dims import Shape
from trtconv.core.frozen import frozen
from trtconv.core.options import Requirement, option
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.code import LEAN_RUNTIME
from trtconv.core.requests.engine import KEY, PLUGINS_HERE, REPORT, TIME_LIMIT, TRUST, WEIGHTS, dims_option

_LOAD = frozenset(("contexts", "beside", "arrivals"))


def _is_load(request: Any) -> bool:
    return bool(request.is_load)


@frozen
class BenchRequest(Request):
    """A call of `trtconv bench`.

    Args:
        engine: The engine.
        report: Its report; default: the engine's path with ".json" appended.
        shapes: The same as `dims` as whole shapes, {input: shape}, for an engine without a report.
        warmup: Seconds of inferences before any is timed.
        duration: Seconds that each row is timed for at least.
        contexts: Serve so many requests at a time, instead of timing one after the other; None: as `beside` and
            `arrivals` say, one.
        beside: Engines that are kept busy meanwhile, each with as many contexts.
        arrivals: A CSV file that says when requests come, and of what sizes.
        copies: Whether requests under load are copied from the host, and their results to it.
        cache: A file that keeps what TensorRT-RTX compiles at run time.
        seconds: How long all of it may take.
    """

    engine: Path
    dims: Bounds = dims_option("Time at these sizes instead of those of the profiles; NAME=N is one size. Repeatable.")
    shapes: Mapping[str, Shape] = option(
        "--shapes",
        "Time at these shapes, as x:1x3x256x256,y:1x8.",
        metavar="INPUT:SHAPE,...",
        default={},
        absent=None,
        read=lambda text: parse_shapes("--shapes", text),
    )
    versus: Path | None = option(
        "--vs",
        "Time another engine in turns with it, at the same sizes.",
        metavar="OTHER",
        default=None,
        reads="an engine",
        requires=Requirement(
            _LOAD,
            lambda request: not request.is_load,
            "--vs times one request at a time, and does not go together with --contexts, --beside and --arrivals",
            "Leave out one of them; --beside OTHER runs two engines at the same time.",
        ),
    )
    report: Path | None = REPORT
    weights: Path | None = WEIGHTS
    warmup: float = option("--warmup", "Seconds run first.", metavar="S", takes=float, least=0, most=600, default=0.3)
    duration: float = option(
        "--seconds --duration",
        "Seconds of each row, at least.",
        metavar="S",
        takes=float,
        least=0.01,
        most=600,
        default=1.0,
        requires=Requirement(
            frozenset(("arrivals",)),
            lambda request: request.arrivals is None,
            "--seconds has no effect with --arrivals, which lasts as long as it says",
            "Leave it out.",
        ),
    )
    contexts: int | None = option(
        "--streams --contexts",
        "Serve N requests at a time, each in an execution context and a stream of its own, and tell throughput and "
        "latency at percentiles.",
        metavar="N",
        takes=int,
        least=1,
        most=1000,
        default=None,
    )
    beside: tuple[Path, ...] = option(
        "--beside",
        "Under load: keep another engine busy at the same time, at opt of its first profile. Repeatable.",
        metavar="OTHER",
        many=True,
        default=(),
        read=lambda paths: tuple(map(Path, paths)),
        reads="an engine",
    )
    arrivals: Path | None = option(
        "--arrivals",
        "Under load: requests come when this CSV file says (columns: time in seconds, and dimensions by name), whether "
        "those before have ended or not.",
        metavar="FILE.csv",
        default=None,
        reads="a table",
    )
    copies: bool = option(
        "--no-copies",
        "Under load: without the copies from and to the host.",
        default=True,
        requires=Requirement(
            _LOAD, _is_load, "{flag} is about engines under load", "Add --contexts N, or leave it out."
        ),
    )
    nvtx: bool = option(
        "--nvtx",
        "Under load: name every request for NVIDIA's profilers; takes the library libnvToolsExt.",
        default=False,
        requires=Requirement(
            _LOAD, _is_load, "{flag} is about engines under load", "Add --contexts N, or leave it out."
        ),
    )
    cache: Path | None = option(
        "--runtime-cache",
        "Keep what TensorRT-RTX compiles while it runs; others have no such cache.",
        metavar="FILE",
        default=None,
        writes=True,
    )
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    lean_runtime: tuple[CodeFile, ...] = LEAN_RUNTIME
    seconds: float = TIME_LIMIT

    @property
    def is_load(self) -> bool:
        """Whether several requests run at a time, or come when they come."""
        return self.contexts is not None or self.arrivals is not None or bool(self.beside)
