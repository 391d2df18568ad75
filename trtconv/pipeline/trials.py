"""Builds of parts of a failing model, and whether they fail as the whole does.

Each is built in a process of its own with a time limit, since what fails may also crash or hang. A part counts where it
fails as the whole does: the same finding about the same operator, the same crash, or a rewrite that computes something
else.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx

from trtconv.core.codes import OF_TENSORRT, CodeFamily
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.documents.reduce import Failure
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.findings import Finding, Severity
from trtconv.core.options import shared
from trtconv.core.progress import Progress
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.batch import Worker

# What differs between the same refusal of two models: names, shapes and numbers.
_DETAIL = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|'[^']*'|\"[^\"]*\"|\S*\d\S*")


class OutOfTrials(Exception):
    """As many parts as allowed were tried."""


class PartTrials:
    """Builds models and says how they fail.

    Args:
        request: What they are built for, how many at most, and how long each may take.
        folder: Where they are written.
        origin: The file of the whole, beside which external data lies.
        progress: Told of every trial.
    """

    def __init__(self, request: ReduceRequest, folder: Path, origin: Path, progress: Progress) -> None:
        self.number = 0
        self._request = request
        self._folder = folder
        self._origin = origin
        self._progress = progress
        self._worker = Worker()

    def close(self) -> None:
        """Ends the process in which parts are built."""
        self._worker.close()

    def request(self, path: Path) -> BuildRequest:
        """Returns the build of a model that lies at `path`, at the sizes of the whole."""
        return BuildRequest(
            path, self._folder / "part.engine", force=True, mend=False, **shared(self._request, BuildRequest)
        )

    def of_whole(self, has_bounds: bool) -> Failure:
        """Returns how the whole model fails.

        Args:
            has_bounds: Whether its dynamic dimensions have bounds.

        Raises:
            InputError: It does not, or it cannot be tried.
            EnvironmentMissing: The runtime is not here.
        """
        failures = list(self.failures(self.request(self._request.model), raising=True))
        if failures:
            return failures[0]
        unbounded = "" if has_bounds else " Dynamic dimensions have no bounds: give --dim."
        raise InputError(f"{self._request.model} does not fail", f"Give the flags with which it fails.{unbounded}")

    def failure(
        self, part: onnx.ModelProto, request: BuildRequest, originals: Sequence[Failure], title: str
    ) -> Failure | None:
        """Returns how a part fails where that is as it is wanted; None otherwise.

        Args:
            part: The part; it is written to a file of its own.
            request: How it is built; its model is that file.
            originals: The failure of the whole, as it may be worded.
            title: What is tried, for the progress.

        Raises:
            OutOfTrials: There were enough.
        """
        if self.number >= self._request.trials:
            raise OutOfTrials
        self.number += 1
        self._progress.phase(title, self.number, self._request.trials)
        try:
            path = self._save(part)
        except InputError:  # The whole has weights that cannot be read.
            return None
        failures = self.failures(dataclasses.replace(request, model=path))
        return next(
            (candidate for candidate in failures if any(same(candidate, failure) for failure in originals)), None
        )

    def rewritten(self, part: onnx.ModelProto, request: BuildRequest) -> onnx.ModelProto | None:
        """Returns what the passes make of a part; None where they do not end well."""
        output = self._folder / "rewritten.onnx"
        rewrite = RewriteRequest(self._save(part), output, **shared(request, RewriteRequest))
        result = self._worker.run(rewrite, self._request.timeout)
        if isinstance(result, FailedRun) or not output.exists():
            return None
        proto = OnnxModel.load(output).proto
        del proto.metadata_props[:]
        return proto

    def _save(self, part: onnx.ModelProto) -> Path:
        path = self._folder / "part.onnx"
        OnnxModel(part, self._origin).save(path)
        return path

    def failures(self, request: BuildRequest, raising: bool = False) -> Iterator[Failure]:
        """Yields how a model fails: what a build finds, worst first; where that is nothing, what a rewrite breaks."""
        report = self._worker.run(request, self._request.timeout)
        if isinstance(report, FailedRun):
            if raising:
                _raise_unless_of_model(report)
            yield _of_run(report)
        if not isinstance(report, BuildReport) or report.exit_code:
            yield from map(_of_finding, _worst_first(getattr(report, "findings", ())))
        elif request.rewrite and report.edits:
            output = self._folder / "rewritten.onnx"
            rewrite = RewriteRequest(request.model, output, **shared(request, RewriteRequest))
            outcome = self._worker.run(rewrite, self._request.timeout)
            if isinstance(outcome, FailedRun):
                yield _of_run(outcome)
            elif outcome.exit_code:
                yield Failure("verify", "rewrite-differs", "the rewritten model computes something else")


def _worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Returns the errors, those that TensorRT itself reports first."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return sorted(errors, key=lambda finding: CodeFamily.of(finding.code) is not CodeFamily.TENSORRT)


def _of_finding(finding: Finding) -> Failure:
    return Failure(finding.code, finding.name, finding.message, finding.location.op, finding.location.node)


def _of_run(run: FailedRun) -> Failure:
    code = {"crash": "crash", "time": "timeout", "memory": "memory", None: run.kind}[run.lost]
    return Failure(code, run.kind, run.message)


def _raise_unless_of_model(run: FailedRun) -> None:
    """Raises what says more of the call or the machine than of the model."""
    if run.exit_code == InputError.exit_code:
        raise InputError(run.message, run.hint)
    if run.exit_code == EnvironmentMissing.exit_code:
        raise EnvironmentMissing(run.message, run.hint)
    if run.exit_code == 3:
        raise TrtconvError(run.message, run.hint)


def same(failure: Failure, original: Failure) -> bool:
    """Whether two failures are one and the same, but for names, shapes and numbers."""
    if (failure.code, failure.op) != (original.code, original.op):
        return False
    # The code of a rule says it all; behind those of TensorRT's verdicts are many reasons.
    return original.code not in OF_TENSORRT or _gist(failure.message) == _gist(original.message)


def _gist(message: str) -> str:
    """Returns a message without names, shapes and numbers."""
    return " ".join(_DETAIL.sub("", message).split())
