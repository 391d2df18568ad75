"""A failing model made small: the fewest nodes that fail on the target in the same way.

Parts of the model are built, each in a process of its own with a time limit, since what fails may also crash or hang.
A part counts where it fails as the whole does: the same finding about the same operator, the same crash, or a rewrite
that computes something else.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import onnx

from trtconv.core.bounds import make_profile
from trtconv.core.codes import OF_TENSORRT, CodeFamily
from trtconv.core.dims import ShapeProfile, dynamic_dims
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.reduce import Failure, ReduceReport
from trtconv.core.errors import EnvironmentMissing, InputError, TrtconvError
from trtconv.core.files import with_ending
from trtconv.core.findings import Finding, Severity
from trtconv.core.options import command_line, shared
from trtconv.core.outputs import Output, check_all
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.reading import sha256_of
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.files import files_read
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.graph.external_data import data_path
from trtconv.graph.extract import Cutter
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.batch import Worker
from trtconv.pipeline.outputs import protect_data

# What differs between the same refusal of two models: names, shapes and numbers.
_DETAIL = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|'[^']*'|\"[^\"]*\"|\S*\d\S*")


class _OutOfTrials(Exception):
    """As many parts as allowed were tried."""


def reduce(request: ReduceRequest, progress: Progress | None = None) -> ReduceReport:
    """Finds the smallest part of a model that still fails, and writes it.

    Args:
        request: The model, what it is built for, and where the part goes.
        progress: Told of every trial.

    Returns:
        The report; its exit_code is 1 where the trials ran out before the part was minimal.

    Raises:
        InputError: A bad request, an unreadable model, or one that does not fail.
        EnvironmentMissing: The runtime that was asked for is not here.
    """
    model = OnnxModel.load(request.model, hashed=True)
    _check_output(request, model)
    bounds = request.profiles or ({},)
    bounded = request.dims or request.profiles or not dynamic_dims(model.inputs)
    profiles = (
        [make_profile(model.inputs, {**request.dims, **own}, request.values) for own in bounds] if bounded else []
    )
    with Scratch("reduce") as folder:
        trials = _Trials(request, folder.path, Cutter(model, profiles), model.path, progress or NullProgress())
        try:
            failure = trials.of_whole(profiles)
            kept, minimal = trials.search(failure)
        finally:
            trials.close()
    # The whole may have inputs that no part could be given.
    part = trials.cutter.cut(kept) if len(kept) < len(trials.cutter) else None
    asked = trials.request_for(part, request.output)
    (model if part is None else OnnxModel(part, model.path)).save(request.output)
    output = FileIdentity(str(request.output), sha256_of(request.output), request.output.stat().st_size)
    return ReduceReport(
        model=FileIdentity(str(model.path), model.digest()),
        output=output,
        failure=failure,
        nodes_before=len(trials.cutter),
        nodes=len(kept),
        trials=trials.number,
        minimal=minimal,
        command=_command(asked, failure),
        exit_code=0 if minimal else 1,
    )


def _check_output(request: ReduceRequest, model: OnnxModel) -> None:
    check_all([Output(request.output, "the part")], files_read(request))
    protect_data(model, request.output, data_path(request.output))


class _Trials:
    """Builds parts of a model and says whether they fail as the whole does."""

    def __init__(self, request: ReduceRequest, folder: Path, cutter: Cutter, origin: Path, progress: Progress) -> None:
        self.cutter = cutter
        self.number = 0
        self._request = request
        self._folder = folder
        self._origin = origin
        self._progress = progress
        self._worker = Worker()
        self._seen: dict[tuple[int, ...], bool] = {}

    def close(self) -> None:
        """Ends the process in which parts are built."""
        self._worker.close()

    def of_whole(self, profiles: Sequence[ShapeProfile]) -> Failure:
        """Returns how the whole model fails.

        Raises:
            InputError: It does not, or it cannot be tried.
            EnvironmentMissing: The runtime is not here.
        """
        with self._progress.stage(Stage.WHOLE_MODEL.value):
            found = list(self._failures(self._build_request(self._request.model), raising=True))
        if found:
            return found[0]
        unbounded = "" if profiles else " Dynamic dimensions have no bounds: give --dim."
        raise InputError(f"{self._request.model} does not fail", f"Give the flags with which it fails.{unbounded}")

    def search(self, failure: Failure) -> tuple[list[int], bool]:
        """Returns the nodes of the smallest part that was found, and whether leaving any one out mends it."""
        kept = list(range(len(self.cutter)))

        def fails(candidate: Sequence[int]) -> bool:
            return self._fails(candidate, failure, len(kept))

        try:
            with self._progress.stage(Stage.REDUCE.value):
                kept = next((guess for guess in self.cutter.around(failure.node) if fails(guess)), kept)
                for smaller in _ever_smaller(kept, fails):
                    kept = smaller
        except _OutOfTrials:
            return kept, False
        return kept, True

    def _fails(self, candidate: Sequence[int], failure: Failure, kept: int) -> bool:
        key = tuple(candidate)
        if key not in self._seen:
            if self.number >= self._request.trials:
                raise _OutOfTrials
            self.number += 1
            self._progress.phase(f"{kept} nodes", self.number, self._request.trials)
            part = self.cutter.cut(candidate)
            self._seen[key] = part is not None and any(_same(found, failure) for found in self._of_part(part))
        return self._seen[key]

    def _of_part(self, part: onnx.ModelProto) -> Iterator[Failure]:
        path = self._folder / "part.onnx"
        try:
            OnnxModel(part, self._origin).save(path)
        except InputError:  # The whole has weights that cannot be read.
            return
        yield from self._failures(self.request_for(part, path))

    def request_for(self, part: onnx.ModelProto | None, path: Path) -> BuildRequest:
        """Returns the build of a part, or of the whole (None), that lies at `path`."""
        request = self._build_request(path)
        if part is None:
            return request
        bounds = self.cutter.bounds(part)
        inputs = {value.name for value in part.graph.input}
        values = {name: value for name, value in request.values.items() if name in inputs}
        dims, profiles = (bounds[0], ()) if len(bounds) == 1 else ({}, bounds)
        return dataclasses.replace(request, dims=dims, profiles=profiles if any(bounds) else (), values=values)

    def _build_request(self, path: Path) -> BuildRequest:
        asked = self._request
        return BuildRequest(path, self._folder / "part.engine", force=True, mend=False, **shared(asked, BuildRequest))

    def _failures(self, request: BuildRequest, raising: bool = False) -> Iterator[Failure]:
        """Yields how a model fails: what a build finds, worst first; where that is nothing, what a rewrite breaks."""
        built = self._worker.run(request, self._request.timeout)
        if isinstance(built, FailedRun):
            if raising:
                _raise_unless_of_model(built)
            yield _of_run(built)
        if not isinstance(built, BuildReport) or built.exit_code:
            yield from map(_of_finding, _worst_first(getattr(built, "findings", ())))
        elif request.rewrite and built.edits:
            output = self._folder / "rewritten.onnx"
            asked = RewriteRequest(request.model, output, **shared(request, RewriteRequest))
            done = self._worker.run(asked, self._request.timeout)
            if isinstance(done, FailedRun):
                yield _of_run(done)
            elif done.exit_code:
                yield Failure("verify", "rewrite-differs", "the rewritten model computes something else")


def _ever_smaller(kept: list[int], fails: Callable[[Sequence[int]], bool]) -> Iterator[list[int]]:
    """Yields smaller and smaller parts that fail: leaves out halves, ever shorter runs of nodes, then single ones."""
    run = len(kept)
    while True:
        run = max(1, run // 2)
        before = len(kept)
        # From the end, so that places in front stay; what comes last is needed least often.
        for start in range((len(kept) - 1) // run * run, -1, -run):
            candidate = kept[:start] + kept[start + run :]
            if candidate and fails(candidate):
                kept = candidate
                yield kept
        if run == 1 and len(kept) == before:
            return


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


def _same(found: Failure, wanted: Failure) -> bool:
    if (found.code, found.op) != (wanted.code, wanted.op):
        return False
    # The code of a rule says it all; behind those of TensorRT's verdicts are many reasons.
    return wanted.code not in OF_TENSORRT or _gist(found.message) == _gist(wanted.message)


def _gist(message: str) -> str:
    """Returns a message without names, shapes and numbers."""
    return " ".join(_DETAIL.sub("", message).split())


def _command(request: BuildRequest, failure: Failure) -> str:
    """Returns the command that shows the failure."""
    path = request.model
    if failure.code == "verify":
        words = ["rewrite", str(path), "-o", str(with_ending(path, ".rewritten.onnx"))]
        return shlex.join(["trtconv", *words, *command_line(request, RewriteRequest)])
    return shlex.join(["trtconv", "build", str(path), *command_line(request, ReduceRequest)])
