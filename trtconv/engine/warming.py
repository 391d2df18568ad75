"""Filling the runtime cache of a TensorRT-RTX engine: what it compiles when it first runs at a size."""

from __future__ import annotations

from trtconv.core.documents.inspect import WarmedSize, WarmReport
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.options import shared
from trtconv.core.progress import Progress
from trtconv.core.requests.bench import BenchRequest
from trtconv.core.requests.engine import WarmRequest
from trtconv.engine import bench
from trtconv.engine.opening import read_engine

_SECONDS_A_ROW = 0.2


def warm(request: WarmRequest, progress: Progress | None = None) -> WarmReport:
    """Runs an engine at its sizes, and keeps what TensorRT-RTX compiles for them.

    Returns:
        What was run.

    Raises:
        InputError: A bad request, or an engine of full TensorRT, which compiles nothing at run time.
        EnvironmentMissing: There is no GPU, or the TensorRT-RTX that is here keeps no runtime cache.
        EngineFailed: TensorRT does not load the engine, or it broke down.
    """
    subject = read_engine(request.engine, request.report, trust=request.trust, key=request.key)
    if subject.family == "tensorrt":
        raise InputError(
            f"{request.engine} is of full TensorRT, which compiles nothing while it runs and has no runtime cache",
            "It needs no warming; trtconv bench says how fast it is.",
        )
    report = bench(BenchRequest(request.engine, duration=_SECONDS_A_ROW, **shared(request, BenchRequest)), progress)
    if not request.cache.is_file():
        raise EnvironmentMissing(
            f"the {report.runtime} that is here wrote no runtime cache",
            "Install the TensorRT-RTX that built the engine.",
        )
    sizes = {f"{row.size} of profile {row.profile}": row.shapes for row in report.rows}
    return WarmReport(
        subject.identity(),
        FileIdentity(str(request.cache), bytes=request.cache.stat().st_size),
        tuple(WarmedSize(size, shapes) for size, shapes in sizes.items()),
        report.incomplete,
        report.exit_code,
    )
