"""The passes of `--substitute`, and what `check` offers of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx

from trtconv.core import codes
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.findings import Finding, Severity
from trtconv.core.target import Target
from trtconv.graph import order
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.passes import Pass, PassResult
from trtconv.passes.spelling.writer import Unwritable, Writer
from trtconv.pipeline.substituting.parts import GraphPart
from trtconv.pipeline.substituting.trial import SUBSTITUTES, Fit, Substitute, fits_of
from trtconv.plugins.known import KNOWN


class PutPlugin(Pass):
    """Puts a plugin of TensorRT's own in the place of what computes the same.

    Args:
        substitute: Which plugin, and what it may stand for.
    """

    def __init__(self, substitute: Substitute) -> None:
        self.name = f"substitute-{substitute.name}"  # type: ignore[misc]
        self._substitute = substitute

    def may_act(self, model: OnnxModel, target: Target) -> bool:
        """Whether there is a part that may be what the plugin computes."""
        return any(True for _ in self._substitute.candidates(model))

    def run(self, model: OnnxModel, target: Target) -> PassResult:
        """Puts the plugin wherever it was shown to compute the same."""
        edits: list[Edit] = []
        skips: list[Skip] = []
        plugin = self._substitute.plugin
        if not KNOWN[plugin].is_in(target):
            return PassResult(skipped=(Skip(self.name, plugin, f"{target} has no plugin {plugin}"),))
        while matches := list(_matches(model, self._substitute)):
            # One at a time: what is left is found anew.
            part, (_, way) = matches[0]
            last = max(part.nodes)
            columns, patch = model.main.columns, Patch(model, model.main)
            writer = Writer(model, model.main, last)
            try:
                self._substitute.write(writer, part, way)
                writer.check()
            except Unwritable as why:
                skips.append(Skip(self.name, columns.names[last] or str(model.main.location(last)), str(why)))
                break
            place = columns.names[last] or str(model.main.location(last))
            ends = {model.main.producers[name] for name in part.outputs}
            for index in ends - {max(ends)}:
                patch.replace(index, [])
            patch.replace(max(ends), writer.nodes, writer.initializers)
            close_patches([patch])
            _import(model)
            order.sort(model)
            edits.append(
                Edit(self.name, place, f"{len(part.nodes)} nodes written as {plugin}: {self._substitute.bound}")
            )
        return PassResult(tuple(edits), tuple(skips))


def _matches(model: OnnxModel, substitute: Substitute) -> Iterator[tuple[GraphPart, Fit]]:
    """Yields the parts of a model that a plugin computes, none of which has a node of another."""
    lists = list(substitute.candidates(model))
    nodes: set[int] = set()
    for parts, fit in zip(lists, fits_of(substitute.name, lists) if lists else [], strict=True):
        if fit is not None and nodes.isdisjoint(parts[fit[0]].nodes):
            nodes |= parts[fit[0]].nodes
            yield parts[fit[0]], fit


def _import(model: OnnxModel) -> None:
    if all(opset.domain != "TRT" for opset in model.proto.opset_import):
        model.proto.opset_import.append(onnx.helper.make_opsetid("TRT", 1))


def substitutions(names: Sequence[str]) -> tuple[Pass, ...]:
    """Returns the passes that `--substitute` asks for."""
    return tuple(PutPlugin(SUBSTITUTES[name]) for name in names)


def unused(names: Sequence[str], edits: Iterable[Edit], target: Target) -> Iterator[str]:
    """Yields in words which of what `--substitute` asks for was put nowhere, and why."""
    acted = {edit.pass_name for edit in edits}
    for name in names:
        plugin = SUBSTITUTES[name].plugin
        if f"substitute-{name}" not in acted:
            has_plugin = KNOWN[plugin].is_in(target)
            why = f"no part of the model was shown to compute what plugin {plugin} does"
            yield f"--substitute {name} changed nothing: {why if has_plugin else f'{target} has no plugin {plugin}'}"


def offers(model: OnnxModel, target: Target, names: Sequence[str] = ()) -> Iterator[Finding]:
    """Yields what could be substituted in a model for a target, but for what is asked for already."""
    for name, substitute in SUBSTITUTES.items():
        if name in names or not KNOWN[substitute.plugin].is_in(target):
            continue
        for part, _ in _matches(model, substitute):
            message = f"{len(part.nodes)} nodes compute what plugin {substitute.plugin} does: {substitute.bound}"
            place = model.main.location(max(part.nodes))
            yield codes.PLUGIN_OFFERED.finding(message, Severity.INFO, place, f"Build with --substitute {name}.")
