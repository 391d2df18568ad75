"""One network quantised in ways that differ in one thing each, to find what a TensorRT reads otherwise than ONNX."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.passes import passes_for, run_passes
from trtconv.passes.fold_batch_norm import FoldBatchNorm
from trtconv.precision.quantize.equalize import equalize, find_links, linked_tensors, sizes_by_channel
from trtconv.precision.quantize.layers import find_layers
from trtconv.precision.quantize.placement import Edge, Placement, measured, place
from trtconv.precision.quantize.sessions import Probe
from trtconv.precision.quantize.write import quantized

Ranges = dict[str, float]
_NUDGE = 1 + 1e-6
"""Makes another float32 of a scale, and the same int8 values of nearly all."""


@dataclasses.dataclass
class _Given:
    """A float network to quantise: where quantisers stand, and the range of every tensor behind sharing."""

    scope: Scope
    placement: Placement
    ranges: Ranges

    def readers(self, tensor: str, op: str) -> list[Edge]:
        """Returns where nodes of a type read a tensor quantised."""
        found = self.placement.edges.get(tensor, ())
        return [edge for edge in found if self.scope.columns.nodes[edge[0]].op_type == op]

    def joined(self, slot: int) -> list[str]:
        """Returns the tensors that are this input of a Concat: 0 from below, 1 the skip."""
        return [n for n in self.placement.edges if any(at == slot for _, at in self.readers(n, "Concat"))]

    def changed(self, edges: Mapping[str, tuple[Edge, ...]], ranges: Ranges) -> tuple[Placement, Ranges]:
        """Returns quantisers that share nothing any more than by having equal ranges."""
        kept = {name: each for name, each in edges.items() if each}
        placement = dataclasses.replace(self.placement, edges=kept, shared={name: name for name in kept})
        return placement, ranges

    def without(self, op: str) -> tuple[Placement, Ranges]:
        """Leaves out the quantisers that nodes of a type read."""
        gone = {name: set(self.readers(name, op)) for name in self.placement.edges}
        edges = {n: tuple(e for e in each if e not in gone[n]) for n, each in self.placement.edges.items()}
        return self.changed(edges, self.ranges)


def variants(proto: onnx.ModelProto, feeds: Mapping[str, Any], target: Target) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields the name of each way, and the network quantised so; the most telling ones first.

    Args:
        proto: The float network, of static shapes.
        feeds: What it is calibrated with.
        target: What it is for.
    """
    model = OnnxModel(proto, Path("variants.onnx"))
    run_passes(model, (FoldBatchNorm(), *passes_for("int8")), target)
    given, own = _given(model, feeds)
    base = quantized(model, given.placement, given.ranges).proto
    yield "base", base
    ways: dict[str, Callable[[], tuple[Placement, Ranges]]] = {
        "skip-nudged": lambda: _scaled(given, given.joined(1), {n: given.ranges[n] * _NUDGE for n in given.ranges}),
        "skip-apart": lambda: _scaled(given, given.joined(1), own),
        "up-nudged": lambda: _scaled(given, given.joined(0), {n: given.ranges[n] * _NUDGE for n in given.ranges}),
        "nothing-shared": lambda: given.changed(given.placement.edges, own),
        "concat-reads-float": lambda: given.without("Concat"),
        "pool-reads-float": lambda: given.without("MaxPool"),
        "pool-apart": lambda: _scaled(given, [n for n in own if n.startswith("maxpool")], own),
    }
    for name, make in ways.items():
        yield name, quantized(model, *make()).proto
    equal = model.copy()
    links = find_links(equal.main)
    equalize(equal, links, sizes_by_channel(equal, tuple(linked_tensors(links)), [feeds], lambda *_: None))
    yield "equalized", quantized(equal, given.placement, _given(equal, feeds)[0].ranges).proto
    for op in ("Relu", "Concat", "ConvTranspose"):
        for tensor in [n.output[0] for n in model.proto.graph.node if n.op_type == op]:
            yield f"until-{tensor}", _until(base, tensor)


def _given(model: OnnxModel, feeds: Mapping[str, Any]) -> tuple[_Given, Ranges]:
    """Returns the usual quantisers with the ranges that they share, and the range of each tensor by itself."""
    placement = place(model.main, [layer for layer in find_layers(model.main) if not layer.reason])
    values = Probe(model, measured(model.main, placement)).run(feeds)
    own = {name: float(np.abs(each).max()) for name, each in values.items()}
    roots = placement.shared
    shared = {n: max(own[other] for other in roots if roots[other] == roots[n]) for n in roots}
    return _Given(model.main, placement, shared), own


def _scaled(given: _Given, tensors: list[str], other: Ranges) -> tuple[Placement, Ranges]:
    """Gives some tensors other ranges; the rest keeps what it shared."""
    return given.changed(given.placement.edges, {**given.ranges, **{name: other[name] for name in tensors}})


def _until(proto: onnx.ModelProto, tensor: str) -> onnx.ModelProto:
    """Returns a network that ends with a tensor, as it is before it is quantised."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    wanted, kept = {tensor}, []
    for node in reversed(proto.graph.node):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    del copy.graph.node[:], copy.graph.output[:], copy.graph.value_info[:]
    copy.graph.node.extend(reversed(kept))
    used = [each for each in proto.graph.initializer if each.name in wanted]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(used)
    copy.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, None))
    return copy
