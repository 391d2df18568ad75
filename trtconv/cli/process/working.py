"""What surrounds a command's work with TensorRT: progress, and processes that are started early."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trtconv.cli.process import status
from trtconv.cli.progress import show_progress
from trtconv.core.progress import Progress

if TYPE_CHECKING:
    from trtconv.core.requests.build import BuildRequest


@contextlib.contextmanager
def at_work(quiet: bool, *outputs: Path, before: Path | None = None) -> Iterator[Progress]:
    """Has TensorRT serve this process alone, and shows progress while the block runs.

    Args:
        quiet: Show nothing.
        outputs: What will be written; who watches removes what is half written of it.
        before: The report of the same work done before, which tells how long its stages took; None, or no file, where
            there is none.
    """
    _own_tensorrt()
    for path in outputs:
        status.announce(status.OUTPUT, str(path.absolute()))
    with show_progress(quiet, _seconds_before(before)) as progress:
        yield progress


def start_early(task: str) -> None:
    """Starts the process of a task as `core.process.start_early`: as a fork of this one, where that works alone."""
    from trtconv.core import process

    process.start_early(task, fork=status.is_watched())


def build_early(request: BuildRequest) -> contextlib.AbstractContextManager[None]:
    """Has what a request asks for parsed and built beside the block, where this process ends with its command."""
    if not status.is_watched():
        return contextlib.nullcontext()
    from trtconv.runtimes.tensorrt.early.runtime import begun

    return begun(request)


def load_onnx() -> None:
    """Imports onnx before whatever else would, without what it has no use for, where this process is a child's."""
    if status.is_watched():
        from trtconv.cli.process.loading import load

        load("onnx")


def _seconds_before(report: Path | None) -> Mapping[str, float]:
    """Returns what the stages of the last build took; nothing where that is not known."""
    if report is None or not report.is_file():
        return {}
    # Loaded only here: other commands read no reports.
    from trtconv.core.documents.saved import load_report
    from trtconv.core.errors import InputError

    with contextlib.suppress(OSError, InputError):
        return load_report(report).report.seconds
    return {}


def _own_tensorrt() -> None:
    """Has TensorRT serve a process that does nothing else, where it is one: what it logs is told to who watches."""
    if status.is_watched():
        from trtconv.runtimes import tensorrt

        tensorrt.follow_log(lambda severity, text: status.announce(status.LOG, f"[{severity}] {text}"))
        tensorrt.keep_network()
