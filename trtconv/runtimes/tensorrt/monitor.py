"""TensorRT's IProgressMonitor, forwarded to a `BuildMonitor`."""

from __future__ import annotations

from typing import Any

from trtconv.runtimes.tensorrt.base import BuildMonitor
from trtconv.runtimes.tensorrt.logger import Session


class BuildProgress:
    """Follows the phases of one build and remembers whether it was asked to stop.

    Args:
        session: Takes what the monitor raises.
        monitor: Told of every phase and step; None where only Ctrl-C matters.
    """

    def __init__(self, session: Session, monitor: BuildMonitor | None) -> None:
        self._session = session
        self._monitor = monitor
        self._steps: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.cancelled = False

    def start(self, phase: str, steps: int) -> None:
        """A phase of so many steps begins."""
        self._steps[phase] = steps
        self._tell(phase, 0)

    def step(self, phase: str, step: int) -> bool:
        """A step ends, counted from 0. Returns whether to go on."""
        self._tell(phase, step + 1)
        return not self.cancelled

    def finish(self, phase: str) -> None:
        """A phase ends, of which TensorRT may have left steps out."""
        steps = self._steps.get(phase, 0)
        if self._counts.get(phase, 0) < steps:
            self._tell(phase, steps)

    def _tell(self, phase: str, count: int) -> None:
        self._counts[phase] = count
        # The logger may have been interrupted meanwhile.
        self.cancelled = self.cancelled or self._session.failure is not None
        if self.cancelled:
            return
        try:
            if self._monitor is not None and not self._monitor(phase, count, self._steps.get(phase, count)):
                self.cancelled = True
        except BaseException as error:  # Nothing may be raised through C++; the caller's thread raises it again.
            self._session.fail(error)
            self.cancelled = True


def make_progress_monitor(trt: Any, progress: BuildProgress) -> Any:
    """Makes the IProgressMonitor; it must be kept alive until the build is over."""

    class ForwardingMonitor(trt.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.start(phase_name, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            return progress.step(phase_name, step)

        def phase_finish(self, phase_name: str) -> None:
            progress.finish(phase_name)

    return ForwardingMonitor()
