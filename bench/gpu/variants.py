"""One network quantised in ways that differ in one thing each, to find what a TensorRT reads otherwise than ONNX."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import float_nets
import numpy as np
import onnx
import recipes
from onnx import numpy_helper

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

    def without(self, op: str, slot: int | None = None) -> tuple[Placement, Ranges]:
        """Leaves out the quantisers that nodes of a type read, of all inputs or of one."""
        readers = {name: self.readers(name, op) for name in self.placement.edges}
        gone = {name: {edge for edge in each if slot in (None, edge[1])} for name, each in readers.items()}
        edges = {n: tuple(e for e in each if e not in gone[n]) for n, each in self.placement.edges.items()}
        return self.changed(edges, self.ranges)


SHAPES = {"unet2d": (4, 3, 64, 64), "large": (2, 3, 256, 256), "one": (1, 3, 64, 64), "narrow": (4, 3, 64, 64)}
_TARGET = Target("tensorrt", (8, 6))


def archive() -> Iterator[tuple[str, tuple[int, ...], onnx.ModelProto]]:
    """Yields "group/way", the shape of the input, and the network as TensorRT gets it; telling ones first."""
    made = float_nets.make("unet2d")
    samples = float_nets.samples("unet2d", 24)
    ours = recipes.trtconv(made, samples, target=_TARGET)
    theirs = recipes.ort_symmetric(made, samples)
    yield from _ready("unet2d", {"quantize": ours, "ort-sym": theirs})
    yield from _ready("unet2d", dict(variants(_static(made, SHAPES["unet2d"]), _TARGET)))
    yield from _ready("large", {"quantize": ours})
    for group, net, wanted in (("one", made, 2), ("narrow", float_nets.narrow_unet2d(), 6)):
        every = variants(_static(net, SHAPES[group]), _TARGET)
        yield from _ready(group, dict(itertools.islice(every, wanted)))


def _ready(group: str, ways: Mapping[str, onnx.ModelProto]) -> Iterator[tuple[str, tuple[int, ...], onnx.ModelProto]]:
    for way, proto in ways.items():
        model = OnnxModel(_static(proto, SHAPES[group]), Path("variants.onnx"))
        model.name_nodes("ConvTranspose")
        run_passes(model, passes_for("int8", requantize=True), _TARGET)
        model.proto.ir_version = 8
        yield f"{group}/{way}", SHAPES[group], model.proto


def _static(proto: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    dims = copy.graph.input[0].type.tensor_type.shape.dim
    for dim, size in zip(dims, shape, strict=True):
        dim.Clear()
        dim.dim_value = size
    del copy.graph.value_info[:]
    copy.graph.output[0].type.tensor_type.ClearField("shape")
    return copy


def variants(proto: onnx.ModelProto, target: Target) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yields the name of each way, and the network quantised so; the most telling ones first.

    Args:
        proto: The float network, of static shapes.
        target: What it is for.
    """
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": float_nets.sample(shape, 99)}
    model = OnnxModel(proto, Path("variants.onnx"))
    run_passes(model, (FoldBatchNorm(), *passes_for("int8")), target)
    given, own = _given(model, feeds)
    base = quantized(model, given.placement, given.ranges).proto
    yield "base", base
    nudged = {n: given.ranges[n] * _NUDGE for n in given.ranges}
    moved = {n: given.ranges[n] * 1.01 for n in given.ranges}
    skips, ups, joined = given.joined(1), given.joined(0), [n for n in own if n.startswith("concat")]
    pools = [n for n in own if n.startswith("maxpool")]
    ways: dict[str, Callable[[], tuple[Placement, Ranges]]] = {
        "skip-nudged": lambda: _scaled(given, skips, nudged),
        "concat-reads-float": lambda: given.without("Concat"),
        "nothing-shared": lambda: given.changed(given.placement.edges, own),
        "pool-reads-float": lambda: given.without("MaxPool"),
        "skip-float": lambda: given.without("Concat", 1),
        "up-float": lambda: given.without("Concat", 0),
        "up-nudged": lambda: _scaled(given, ups, nudged),
        "pool-apart": lambda: _scaled(given, pools, own),
        "concat-out-nudged": lambda: _scaled(given, joined, nudged),
        "inputs-nudged": lambda: _scaled(given, [*skips, *ups], nudged),
        "skip-moved": lambda: _scaled(given, skips, moved),
    }
    for name, make in itertools.islice(ways.items(), 5):
        yield name, quantized(model, *make()).proto
    yield "skip-twice", _twice(base, 1)
    yield "skip-twice-nudged", _twice(base, _NUDGE)
    for name, make in itertools.islice(ways.items(), 5, None):
        yield name, quantized(model, *make()).proto
    equal = model.copy()
    links = find_links(equal.main)
    equalize(equal, links, sizes_by_channel(equal, tuple(linked_tensors(links)), [feeds], lambda *_: None))
    yield "equalized", quantized(equal, given.placement, _given(equal, feeds)[0].ranges).proto
    for op in ("Relu", "Concat", "ConvTranspose"):
        for tensor in [n.output[0] for n in model.proto.graph.node if n.op_type == op]:
            yield f"until-{tensor}", _until(base, tensor)


def _twice(proto: onnx.ModelProto, factor: float) -> onnx.ModelProto:
    """Gives the skip of every Concat quantisers of its own, beside those that MaxPool reads."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    constants = {each.name: each for each in copy.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in copy.graph.node:
        if node.op_type == "Concat":
            real = next(each for each in nodes if each.output[0] == node.input[1])
            whole = next(each for each in nodes if each.output[0] == real.input[0])
            scale = numpy_helper.to_array(constants[whole.input[1]]) * np.float32(factor)
            name = f"{whole.input[1]}.again"
            copy.graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), name))
            pair = [onnx.NodeProto.FromString(each.SerializeToString()) for each in (whole, real)]
            for each in pair:
                each.name += ".again"
                each.output[0] += ".again"
                each.input[1] = name
            pair[1].input[0] = pair[0].output[0]
            node.input[1] = pair[1].output[0]
            nodes += pair
        nodes.append(node)
    nodes = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def _given(model: OnnxModel, feeds: Mapping[str, Any]) -> tuple[_Given, Ranges]:
    """Returns quantisers, with skips among those that share ranges, and the range of each tensor by itself."""
    placement = _all_shared(place(model.main, [layer for layer in find_layers(model.main) if not layer.reason]))
    values = Probe(model, measured(model.main, placement)).run(feeds)
    own = {name: float(np.abs(each).max()) for name, each in values.items()}
    roots = placement.shared
    shared = {n: max(own[other] for other in roots if roots[other] == roots[n]) for n in roots}
    return _Given(model.main, placement, shared), own


def _all_shared(placement: Placement) -> Placement:
    """Gives skips the scale of the Concat that takes them, which TensorRT 8.6 was seen to compute wrongly."""
    shared = dict(placement.shared)
    for skip, result in placement.apart:
        old, new = shared[skip], shared[result]
        shared = {name: new if first == old else first for name, first in shared.items()}
    return dataclasses.replace(placement, shared=shared, apart=())


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
