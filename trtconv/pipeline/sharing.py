"""The smallest part of a failing model that may leave the company, and a page about it."""

from __future__ import annotations

import contextlib
import dataclasses

from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.share import ShareChecks, ShareReport
from trtconv.core.errors import TrtconvError
from trtconv.core.files import atomic_write
from trtconv.core.outputs import Output, check_all
from trtconv.core.progress import NullProgress, Progress
from trtconv.core.reading import sha256_of
from trtconv.core.requests.files import files_read
from trtconv.core.requests.share import ShareRequest
from trtconv.core.scratch import Scratch
from trtconv.core.stages import Stage
from trtconv.graph.anonymous import Aliases, texts
from trtconv.graph.external_data import data_path
from trtconv.graph.leaks import Leaks, find_leaks
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.disguise import Disguise
from trtconv.pipeline.outputs import model_identity, protect_data
from trtconv.pipeline.reduce import smallest_part
from trtconv.pipeline.share_page import commands, is_page, page_of
from trtconv.pipeline.trials import PartTrials
from trtconv.runtimes import tensorrt


def share(request: ShareRequest, progress: Progress | None = None) -> ShareReport:
    """Makes the smallest part of a failing model that still fails, under other names and with other weights.

    Args:
        request: The model, what it is built for, and where the part goes; a page about it goes beside it.
        progress: Told of every trial.

    Returns:
        The report; its exit_code is 1 where the trials ran out before the part was as small as it goes.

    Raises:
        InputError: A bad request, an unreadable model, one that does not fail, or whose own names or weights are what
            it fails on.
        EnvironmentMissing: The runtime that was asked for is not here.
        TrtconvError: Something of the model is left in what was to be written; nothing is.
    """
    listener = progress or NullProgress()
    model = OnnxModel.load(request.model, hashed=True)
    check_all(
        [
            Output(request.output, "the part"),
            Output(request.page, "the page about it", typed=False, ours=is_page(request.page)),
        ],
        files_read(request),
    )
    protect_data(model, request.output, request.page, data_path(request.output))
    report, part = _make(model, request, listener)
    data = part.serialize()
    report = dataclasses.replace(report, output=FileIdentity(str(request.output), bytes=len(data)))
    own = (request.output.name, request.output.stem, "part")
    leaks = find_leaks(model, data, page_of(report, part.proto), own)
    _require_clean(leaks)
    report = dataclasses.replace(report, checks=ShareChecks(leaks.names, leaks.weight_bytes))
    atomic_write(request.output, data, through_links=True)
    atomic_write(request.page, page_of(report, part.proto).encode(), through_links=False)
    identity = FileIdentity(str(request.output), sha256_of(request.output), len(data))
    return dataclasses.replace(report, output=identity)


def _make(model: OnnxModel, request: ShareRequest, progress: Progress) -> tuple[ShareReport, OnnxModel]:
    """Makes the part; returns what is told of it, but for what was looked for, and the part."""
    runtime: RuntimeIdentity = tensorrt.load(request.target).info.identity
    with (
        Scratch("share") as folder,
        contextlib.closing(PartTrials(request, folder.path, model.path, progress)) as trials,
    ):
        part = smallest_part(model, request, trials, progress)
        cut = OnnxModel(part.proto, model.path).copy()
        cut.embed()
        with progress.stage(Stage.SHARE.value):
            aliases = Aliases({*texts(model.proto), model.path.stem})
            disguise = Disguise(dataclasses.replace(part, proto=cut.proto), aliases, trials)
            is_whole = disguise.run() and part.minimal
            alone = disguise.fails_alone()
        message = disguise.failure.message.replace(f"{folder.path}/", "")
    failure = dataclasses.replace(disguise.failure, message=message)
    build = dataclasses.replace(disguise.request, model=request.output)
    shared = OnnxModel(disguise.proto, request.output)
    report = ShareReport(
        model=model_identity(model),
        output=FileIdentity(str(request.output)),
        page=str(request.page),
        failure=failure,
        runtime=runtime,
        nodes_before=part.nodes_before,
        nodes=len(disguise.proto.graph.node),
        trials=trials.number,
        minimal=is_whole,
        constants=disguise.constants,
        checks=ShareChecks(0, 0),
        commands=commands(build, shared.inputs, failure, runtime, alone),
        exit_code=0 if is_whole else 1,
    )
    return report, shared


def _require_clean(leaks: Leaks) -> None:
    if leaks.leaked:
        raise TrtconvError(
            f"{len(leaks.leaked)} names or weights of the model are in what was to be shared: "
            + ", ".join(map(repr, leaks.leaked[:5])),
            "Nothing is written. Please report it: it is a fault of trtconv.",
        )
