"""What `trtconv.rewrite` does."""

from __future__ import annotations

import math
from collections.abc import Mapping

from trtconv.core import foreign
from trtconv.core.bounds import shapes_with_sizes
from trtconv.core.dims import Shape
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.rewrite import Comparison, RewriteReport
from trtconv.core.outputs import Output, check_all
from trtconv.core.progress import Progress
from trtconv.core.requests.base import takes_request
from trtconv.core.requests.files import files_read
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.external_data import data_path
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, Pass, select
from trtconv.pipeline.checking import target_and_runtime
from trtconv.pipeline.extending.added import added_passes, admit, code_of
from trtconv.pipeline.outputs import model_identity, protect_data
from trtconv.pipeline.preparation import Preparation, promise_of
from trtconv.runtimes.proof.subject import allowed_error
from trtconv.shapes.traced.search import baked_in


@takes_request
def rewrite(request: RewriteRequest, progress: Progress | None = None) -> RewriteReport:
    """Writes the model as the passes make it, after running both on ONNX Runtime.

    Args:
        request: The model, the passes, and where the result goes.
        progress: Told of the stages.

    Returns:
        The report; its exit_code is 1 where the rewritten model computes something else (nothing is written then).

    Raises:
        InputError: A bad request, an unreadable model, or an output that cannot be written.
    """
    with foreign.using(code_of(request)):
        return _rewrite(request, Stopwatch(progress))


def _rewrite(request: RewriteRequest, clock: Stopwatch) -> RewriteReport:
    # Loaded only here: who builds or checks imports this module too, and compares nothing.
    from trtconv.runtimes.onnxruntime import compare_safely

    with clock.stage(Stage.LOAD):
        check_all([Output(request.output, "the rewritten model")], files_read(request))
        passes = _selected(request)
        original, model = OnnxModel.load(request.model), OnnxModel.load(request.model, hashed=True)
        protect_data(original, request.output, data_path(request.output))
    with clock.stage(Stage.RUNTIME):
        target = request.target or target_and_runtime(None)[0]
    result = Preparation(model, target, clock).rewrite(passes)
    with clock.stage(Stage.VERIFY):
        verified = Comparison(None, "nothing was rewritten")
        promise = promise_of(result.edits, passes)
        resized = promise.frees_sizes
        traced, further = _examples(original, model) if resized else ([], [])
        if result.edits:
            verified = compare_safely(original, model, resized=resized, traced=traced, further=further)
    error = verified.max_relative_error
    # An infinite error means other shapes or no results: no request to change numbers allows that.
    if error is not None and (error > allowed_error(original, promise) or math.isinf(error)):
        return RewriteReport(model_identity(original), None, result.edits, result.skipped, verified, exit_code=1)
    with clock.stage(Stage.WRITE):
        model.save(request.output)
    output = FileIdentity.of(request.output)
    return RewriteReport(model_identity(original), output, result.edits, result.skipped, verified)


_ANY = Target("rtx")
_Shapes = list[Mapping[str, Shape]]


def _examples(original: OnnxModel, rewritten: OnnxModel) -> tuple[_Shapes, _Shapes]:
    """Returns the input shapes that a model was traced at, where these are baked into it, and those that were freed."""
    examples = baked_in(original).examples()
    others = baked_in(rewritten).cheap([*examples[0].multiples(), *examples[0].parts()]) if examples else []
    return [shapes_with_sizes(original.inputs, example.point) for example in examples], [
        shapes_with_sizes(original.inputs, point) for point in others
    ]


def _selected(request: RewriteRequest) -> tuple[Pass, ...]:
    # A plan of what decides which passes are the user's.
    added = admit(request.extend, ())
    plan = BuildPlan(_ANY, rewrite_rules=request.rewrite_rules, substitute=request.substitute, extensions=added)
    passes = (*added_passes(plan), *PASSES)
    selection = select(passes, request.only, request.skip)
    extras = [
        pass_ for pass_ in passes if pass_.flag and getattr(request, pass_.flag) and pass_.name not in request.skip
    ]
    return tuple(pass_ for pass_ in passes if pass_ in selection or pass_ in extras)
