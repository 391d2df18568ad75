"""The environments that TensorRTs are installed in, and processes of their Pythons."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from trtconv.core import budget
from trtconv.core.decode import decoded
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.upgrade import BuildTrial, Fate
from trtconv.core.errors import Bug, EnvironmentMissing, InputError, TrtconvError
from trtconv.core.process import Cause, Lost, Process, WorkerBug
from trtconv.core.rations import RationGuard
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.pipeline.upgrading.trial import TrialCall

_PYTHONS = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_START_SECONDS = 120.0
_LOST: Mapping[Cause, Fate] = {
    "crash": Fate.CRASHED,
    "time": Fate.TOO_LONG,
    "memory": Fate.OUT_OF_MEMORY,
    "file": Fate.CRASHED,
}
_HOW = (
    "It takes an environment that trtconv and that TensorRT are installed in: python -I -m venv rtx-1.5; "
    "rtx-1.5/bin/pip install . 'tensorrt-rtx==1.5.*' (docs/upgrading.md)."
)


def interpreter_of(place: Path) -> Path:
    """Returns the Python of an environment.

    Args:
        place: The Python itself, or the environment's folder.

    Raises:
        InputError: There is none.
    """
    if place.is_dir():
        path = next((place / name for name in _PYTHONS if (place / name).is_file()), None)
        if path is None:
            raise InputError(f"{place} is not an environment of Python: it has no {_PYTHONS[0]}", _HOW)
        # Not resolved: a link to the system's Python is what makes the environment.
        return path.absolute()
    if not place.is_file():
        raise InputError(f"{place} is neither an environment of Python nor a Python", _HOW)
    return place.absolute()


class Environment(contextlib.AbstractContextManager["Environment"]):
    """A process that tries models on the TensorRT of an environment, one after another.

    This very trtconv runs in it, so that rules and passes are the same on both sides.

    Args:
        interpreter: The environment's Python; None: that of this process.
        target: The family of TensorRT that is meant; None: any.
        seconds: How long a model may take.
    """

    def __init__(self, interpreter: Path | None, target: Target | None, seconds: float) -> None:
        self._interpreter = interpreter
        self._target = target
        self._budget = budget.current()
        self._seconds = seconds
        self._process = Process("trtconv.pipeline.upgrading.trial:answer", interpreter=interpreter)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, in the middle of a model too."""
        self._process.close()

    def identity(self) -> RuntimeIdentity:
        """Returns which TensorRT there is.

        Raises:
            EnvironmentMissing: There is none that works, or trtconv does not run there.
        """
        try:
            return decoded(RuntimeIdentity, self._process.call(TrialCall(None, self._target), _START_SECONDS))
        except EnvironmentMissing as error:
            raise EnvironmentMissing(f"{self}: {error.message}", error.hint) from error
        except OSError as error:
            raise EnvironmentMissing(f"{self} does not start: {error.strerror}", _HOW) from error
        except (Lost, WorkerBug) as error:
            message = error.summary if isinstance(error, WorkerBug) else error.stderr.rpartition("\n")[2] or error.why
            raise EnvironmentMissing(f"trtconv does not run in {self}: {message}", _HOW) from error

    def attempt(self, build: BuildRequest) -> BuildTrial:
        """Tries a model; whatever happens to the process is what became of it."""
        with budget.allowed(self._budget):
            guard = RationGuard([build.model])
        call = TrialCall(build, self._target)
        try:
            return decoded(BuildTrial, self._process.call(call, self._seconds, guard.hear, guard.watch))
        except TrtconvError as error:
            return BuildTrial(Fate.NOT_TRIED, why=error.message, hint=error.hint, exit_code=error.exit_code)
        except WorkerBug as bug:
            return BuildTrial(Fate.NOT_TRIED, why=f"internal error: {bug.summary}", exit_code=Bug.exit_code)
        except Lost as lost:
            return BuildTrial(_LOST[lost.cause], why=lost.why)

    def __str__(self) -> str:
        return "this environment" if self._interpreter is None else str(self._interpreter)
