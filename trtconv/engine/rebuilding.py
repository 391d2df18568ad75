"""The model as `trtconv build` hands it to TensorRT, made again from the plan in a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trtconv.core.documents.saved import SavedReport
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import chosen, passes_for, run_passes
from trtconv.precision.apply import recast


def rewritten_as_built(model: OnnxModel, plan: Mapping[str, Any], report: SavedReport | None = None) -> OnnxModel:
    """Returns a model rewritten as a build did, in the precision that it has.

    Args:
        model: The original; left as it is.
        plan: The plan of a report's JSON; empty for what `build` does without flags.
        report: Of the build, which may have chosen forms; None where there is none.
    """
    rewritten = OnnxModel.load(model.path)
    precision = str(plan.get("precision", "as-is"))
    # TensorRT's layers are told apart by these names.
    rewritten.name_nodes("ConvTranspose")
    if plan.get("rewrite", True):
        choose = chosen({} if report is None else report.forms)
        kept = plan.get("node_precisions") or {}
        passes = passes_for(precision, requantize=bool(plan.get("requantize")), choose=choose, kept=kept)
        run_passes(rewritten, passes, _target(plan))
    return rewritten


def types_of(plan: Mapping[str, Any], report: SavedReport | None) -> tuple[str, Mapping[str, str]]:
    """Returns the precision of a build and those of single nodes: the mix that was found, where one was looked for."""
    mix = {} if report is None else report.document.get("mix") or {}
    found = {**plan, **{key: mix[key] for key in ("precision", "node_precisions") if key in mix}}
    precision = str(found.get("precision", "as-is"))
    return precision if precision != "auto" else "as-is", found.get("node_precisions") or {}


def changes_numbers(model: OnnxModel, plan: Mapping[str, Any]) -> bool:
    """Whether a build's passes quantise some of the model's weights or tensors anew.

    Args:
        model: The original; left as it is.
        plan: As for `rewritten_as_built`.
    """
    if not plan.get("rewrite", True):
        return False
    passes = passes_for(str(plan.get("precision", "as-is")), requantize=bool(plan.get("requantize")))
    anew = {each.name for each in passes if each.requantizes}
    return any(edit.pass_name in anew for edit in run_passes(model.copy(), passes, _target(plan)).edits)


def as_built(
    model: OnnxModel, plan: Mapping[str, Any], report: SavedReport | None, *, emulated: bool = False
) -> tuple[OnnxModel, Mapping[str, str]]:
    """Returns a model rewritten as a build did, and cast to its precision, also where the builder's flags did that.

    With it come the tensors that go by another name since the cast, by the name that they had.

    Args:
        model: The original; left as it is.
        plan: The plan of a report's JSON; empty for what `build` does without flags.
        report: Of the build, whose first profile a cast was measured at; None where there is none.
        emulated: Compute in float32 and round, so that ONNX Runtime can run it.
    """
    rewritten = rewritten_as_built(model, plan, report)
    precision, nodes = types_of(plan, report)
    # A mix names a type for every node whose values do not fit; samples showed which, and random inputs may not.
    measured = report is not None and report.profiles and not report.document.get("mix")
    profile = report.profiles[0] if report is not None and measured else None
    return rewritten, recast(rewritten, precision, profile, nodes=nodes, emulated=emulated)


def _target(plan: Mapping[str, Any]) -> Target:
    return Target.parse(str(plan.get("target", "rtx"))) or Target("rtx")
