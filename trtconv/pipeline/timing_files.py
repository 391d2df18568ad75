"""Where a build keeps what it measures: TensorRT's timing cache, and beside it what `--tune` timed."""

from __future__ import annotations

import re
from pathlib import Path

from trtconv.core import codes
from trtconv.core.findings import Finding, Severity
from trtconv.core.requests.build import BuildRequest
from trtconv.runtimes.tensorrt import RuntimeInfo


def timing_cache(request: BuildRequest, info: RuntimeInfo) -> Path | None:
    """Returns the file of the timing cache: what was measured on one GPU with one version is of no use to others."""
    if not info.capabilities.timing_cache:
        return None
    if request.timing_cache is not None:
        return request.timing_cache
    gpu = re.sub(r"[^\w.+-]+", "-", info.gpu or "unknown")
    folder = request.timing_folder
    return None if folder is None else folder / f"{info.family}-{info.version}-{gpu}.timing"


def measured(request: BuildRequest) -> Path | None:
    """Returns the file of what `--tune` measured: beside the timing cache, or where those of all GPUs are."""
    if request.timing_cache is not None:
        return Path(f"{request.timing_cache}.tuned.json")
    return None if request.timing_folder is None else request.timing_folder / "tuned.json"


def cache_findings(request: BuildRequest, info: RuntimeInfo) -> tuple[Finding, ...]:
    """Tells whoever named a file for a timing cache that there is none; a folder stands for "if there is one"."""
    if request.timing_cache is None or info.capabilities.timing_cache:
        return ()
    message = "TensorRT-RTX has no timing cache: it chooses kernels on the machine that runs the engine"
    fix = "Leave out --timing-cache; TensorRT has one."
    return (codes.TIMING_CACHE_UNUSED.finding(message, Severity.INFO, fix=fix),)
