"""The process that runs models for a proof, without a process: what it does is seen, and takes milliseconds."""

from __future__ import annotations

import pickle
from typing import Any
from unittest import mock

from trtconv.core.process import Process
from trtconv.runtimes.proof import SERVE
from trtconv.runtimes.proof.models import Models


class InProcess(Process):
    """Runs the model's side of a proof here.

    Args:
        error: What every call fails with, once a first piece is begun; None: none does.
    """

    def __init__(self, *_: object, error: Exception | None = None) -> None:
        super().__init__(SERVE)
        self._models = Models()
        self._error = error
        self.arguments: list[Any] = []
        """What was asked for."""

    def call(self, argument: object, seconds: float | None = None, tell: Any = None, watch: Any = None) -> Any:
        """Calls the function, with a copy of the argument, as a process is."""
        self.arguments.append(argument)
        if self._error is not None:
            tell({"event": "begin", "number": 0})
            raise self._error
        # Of a process that runs tests there is too much garbage to be looked through each time.
        with mock.patch("gc.collect"):
            return self._models(pickle.loads(pickle.dumps(argument)), tell)
