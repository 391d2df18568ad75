"""A failing model made small: the fewest nodes that fail on the target in the same way."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Iterator, Sequence

import onnx

from trtconv.core.bounds import make_profile
from trtconv.core.dims import dynamic_dims
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.reduce import Failure, ReduceReport
from trtconv.core.files import with_ending
from trtconv.core.frozen import frozen
from trtconv.core.options import command_line
from trtconv.core.outputs import Output, check_all
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.files import files_read
from trtconv.core.requests.reduce import ReduceRequest
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.graph.external_data import data_path
from trtconv.graph.extract import Cutter
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.outputs import model_identity, protect_data
from trtconv.pipeline.trials import OutOfTrials, PartTrials


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
    check_all([Output(request.output, "the part")], files_read(request))
    protect_data(model, request.output, data_path(request.output))
    listener = progress or NullProgress()
    with (
        Scratch("reduce") as folder,
        contextlib.closing(PartTrials(request, folder.path, model.path, listener)) as trials,
    ):
        part = smallest_part(model, request, trials, listener)
        number = trials.number
    OnnxModel(part.proto, model.path).save(request.output)
    return ReduceReport(
        model=model_identity(model),
        output=FileIdentity.of(request.output),
        failure=part.failure,
        nodes_before=part.nodes_before,
        nodes=part.nodes,
        trials=number,
        minimal=part.minimal,
        command=_command(dataclasses.replace(part.request, model=request.output), part.failure),
        exit_code=0 if part.minimal else 1,
    )


@frozen
class FailingPart:
    """The smallest part of a model that fails as it does.

    Args:
        proto: The part; the whole where none is smaller.
        request: How it is built: at the sizes that its inputs have in the whole.
        failure: How both fail.
        nodes_before: Nodes of the whole.
        nodes: Nodes of the part.
        minimal: Whether the part without any one of its nodes no longer fails so.
    """

    proto: onnx.ModelProto
    request: BuildRequest
    failure: Failure
    nodes_before: int
    nodes: int
    minimal: bool


def smallest_part(model: OnnxModel, request: ReduceRequest, trials: PartTrials, progress: Progress) -> FailingPart:
    """Finds the smallest part of a model that still fails.

    Args:
        model: The model; must not change meanwhile.
        request: What it is built for.
        trials: Builds the parts.
        progress: Told of the stages.

    Raises:
        InputError: The model does not fail, or it cannot be tried.
        EnvironmentMissing: The runtime that was asked for is not here.
    """
    bounds = request.profiles or ({},)
    bounded = request.dims or request.profiles or not dynamic_dims(model.inputs)
    profiles = (
        [make_profile(model.inputs, {**request.dims, **own}, request.values) for own in bounds] if bounded else []
    )
    with progress.stage(Stage.WHOLE_MODEL.value):
        failure = trials.of_whole(bool(profiles))
    search = _Search(Cutter(model, profiles), trials, trials.request(request.model), failure)
    with progress.stage(Stage.REDUCE.value):
        minimal = search.run()
    indices = search.indices
    # The whole may have inputs that no part could be given.
    part = search.cutter.cut(indices) if len(indices) < len(search.cutter) else None
    build = search.request if part is None else search.request_for(part)
    return FailingPart(part or model.proto, build, failure, len(search.cutter), len(indices), minimal)


class _Search:
    """Leaves out nodes as long as what remains fails as the whole does."""

    def __init__(self, cutter: Cutter, trials: PartTrials, request: BuildRequest, failure: Failure) -> None:
        self.cutter = cutter
        self.request = request
        self.indices = list(range(len(cutter)))
        self._trials = trials
        self._failure = failure
        self._verdicts: dict[tuple[int, ...], bool] = {}

    def run(self) -> bool:
        """Looks for the smallest part; returns whether leaving any one node out of it mends it."""
        try:
            self.indices = next((g for g in self.cutter.around(self._failure.node) if self._fails(g)), self.indices)
            for smaller in _ever_smaller(self.indices, self._fails):
                self.indices = smaller
        except OutOfTrials:
            return False
        return True

    def _fails(self, candidate: Sequence[int]) -> bool:
        key = tuple(candidate)
        if key not in self._verdicts:
            part = self.cutter.cut(candidate)
            title = f"{len(self.indices)} nodes"
            self._verdicts[key] = part is not None and bool(
                self._trials.failure(part, self.request_for(part), [self._failure], title)
            )
        return self._verdicts[key]

    def request_for(self, part: onnx.ModelProto) -> BuildRequest:
        """Returns the build of a part."""
        bounds = self.cutter.bounds(part)
        inputs = {value.name for value in part.graph.input}
        values = {name: value for name, value in self.request.values.items() if name in inputs}
        dims, profiles = (bounds[0], ()) if len(bounds) == 1 else ({}, bounds)
        return dataclasses.replace(self.request, dims=dims, profiles=profiles if any(bounds) else (), values=values)


def _ever_smaller(indices: list[int], fails: Callable[[Sequence[int]], bool]) -> Iterator[list[int]]:
    """Yields smaller and smaller parts that fail: leaves out halves, ever shorter runs of nodes, then single ones."""
    run = len(indices)
    while True:
        run = max(1, run // 2)
        before = len(indices)
        # From the end, so that places in front stay; what comes last is needed least often.
        for start in range((len(indices) - 1) // run * run, -1, -run):
            candidate = indices[:start] + indices[start + run :]
            if candidate and fails(candidate):
                indices = candidate
                yield indices
        if run == 1 and len(indices) == before:
            return


def _command(request: BuildRequest, failure: Failure) -> str:
    """Returns the command that shows the failure."""
    path = request.model
    if failure.code == "verify":
        words = ["rewrite", str(path), "-o", str(with_ending(path, ".rewritten.onnx"))]
        return shlex.join(["trtconv", *words, *command_line(request, RewriteRequest)])
    return shlex.join(["trtconv", "build", str(path), *command_line(request, ReduceRequest)])
