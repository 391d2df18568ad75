"""The model as `trtconv build` hands it to TensorRT, made again from the report of the build."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.saved import SavedReport
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PassResult
from trtconv.pipeline.preparation import Preparation, passes_of, promise_of
from trtconv.precision import Types
from trtconv.runtimes.proof.subject import Promise, ProofSubject
from trtconv.runtimes.tensorrt import Capabilities


@frozen
class Recipe:
    """What decides the model that TensorRT's parser was given.

    Args:
        plan: What was asked.
        types: What is computed in which type: as asked, or the mix that was found.
        forms: The forms of nodes that are not the usual ones, by name.
        profile: The sizes that a cast was measured at; None: it was not.
    """

    plan: BuildPlan
    types: Types
    forms: Mapping[str, str]
    profile: ShapeProfile | None

    @classmethod
    def of(cls, report: SavedReport | None) -> Recipe:
        """Reads the report of a build; None stands for what `build` does without flags."""
        if report is None:
            return cls(BuildPlan(Target("rtx"), ()), Types(), {}, None)
        build = report.report
        # What was asked for may leave the version open.
        target = Target.of(build.runtime.family, build.runtime.version)
        plan = dataclasses.replace(build.plan, target=target)
        precision = "as-is" if plan.precision == "auto" else plan.precision
        # Reports of an older trtconv have no patterns.
        types = Types.of(precision, build.pinned) if build.pinned else Types(precision, plan.node_precisions)
        if build.mix is not None:
            types = Types(build.mix.precision, build.mix.node_precisions)
        # A mix names a type for every node whose values do not fit; samples showed which, and random inputs may not.
        profile = report.profiles[0] if report.profiles and build.mix is None else None
        return cls(plan, types, build.forms, profile)


def rewritten_as_built(model: OnnxModel, recipe: Recipe) -> OnnxModel:
    """Returns a copy of a model rewritten as a build did, in the precision that it has."""
    return _rewritten(model, recipe)[0].model


def as_built(model: OnnxModel, recipe: Recipe, *, emulated: bool = False) -> tuple[OnnxModel, Mapping[str, str]]:
    """Returns a copy of a model rewritten and cast as a build did, also where the builder's flags did the latter.

    With it come the tensors that go by another name since the cast, by the name that they had.

    Args:
        model: The original.
        recipe: How it was built.
        emulated: Compute in float32 and round, so that ONNX Runtime can run it; inputs and outputs keep their types.
    """
    preparation, _ = _rewritten(model, recipe)
    interface = recipe.plan.cast_interface and not emulated
    lowered = preparation.recast(recipe.types, recipe.profile, interface=interface, emulated=emulated)
    return preparation.model, lowered


def changes_numbers(model: OnnxModel, recipe: Recipe) -> bool:
    """Whether a build's passes quantise some of the model's weights or tensors anew."""
    return rewrite_of(model, recipe.plan)[1].requantizes


def rewrite_of(model: OnnxModel, plan: BuildPlan) -> tuple[OnnxModel, Promise]:
    """Returns a copy of a model that a plan's passes have been at, and what they say of it."""
    passes, preparation = passes_of(plan), Preparation(model.copy(), plan.target)
    return preparation.model, promise_of(preparation.rewrite(passes).edits, passes)


def subject_as_built(model: OnnxModel, recipe: Recipe, capabilities: Capabilities) -> ProofSubject:
    """Returns what a build had to prove of the network that its parser made.

    Args:
        model: The original.
        recipe: How it was built.
        capabilities: Of the TensorRT that parses it: one whose builder has flags is given what was not cast.
    """
    preparation, result = _rewritten(model, recipe)
    promise = promise_of(result.edits, passes_of(recipe.plan, recipe.forms))
    if not capabilities.casts(recipe.types.precision, recipe.types.nodes):
        return ProofSubject(promise, preparation.model, preparation.model)
    uncast = preparation.model.copy()
    preparation.recast(recipe.types, recipe.profile, interface=recipe.plan.cast_interface)
    return ProofSubject(promise, uncast, preparation.model, recipe.types.precision)


def _rewritten(model: OnnxModel, recipe: Recipe) -> tuple[Preparation, PassResult]:
    preparation = Preparation(model.copy(), recipe.plan.target)
    result = preparation.rewrite(passes_of(recipe.plan, recipe.forms))
    preparation.choose_types(recipe.plan)
    return preparation, result
