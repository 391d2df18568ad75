"""A transposed convolution before and after the passes, with what stands around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trtconv.core.errors import EnvironmentMissing
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.requests.explain import Layers
from trtconv.core.target import Target
from trtconv.explainer.isolate import parse_alone
from trtconv.explainer.place import Shape, place_of, spatial_shape, weight_shape
from trtconv.explainer.quantizers import Quantizers
from trtconv.graph.deconv import Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes import PassResult, passes_for, run_passes
from trtconv.rules import run_rules
from trtconv.rules.base import ModelView
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt import Runtime

_PER_ELEMENT = ("QuantizeLinear", "DequantizeLinear", "Cast", "Identity")


@frozen
class Desk:
    """For what a node is explained, and whose parser can be asked."""

    target: Target
    engine: Runtime | None
    why_not: str = ""

    @classmethod
    def at(cls, target: Target | None) -> Desk:
        """Returns the desk of a target; None: of the TensorRT that is installed."""
        try:
            engine = tensorrt.load(target)
        except EnvironmentMissing as error:
            return cls(target or Target("tensorrt"), None, error.message)
        return cls(target if target is not None and target.version else engine.info.target, engine)


@frozen
class Before:
    """What is known of a node before the passes change the model.

    Args:
        related: Names under which passes report edits of the node and its quantisers.
        layers: What the installed parser makes of it.
    """

    place: str
    name: str
    input: str
    output: str
    spatial: Shape
    input_shape: Shape | None
    weight: Shape | None
    has_bias: bool
    related: frozenset[str]
    findings: tuple[Finding, ...]
    quantizers: Quantizers
    layers: Layers | None

    @classmethod
    def of(cls, model: OnnxModel, node: Deconv, desk: Desk) -> Before:
        """Looks at a node before the passes run."""
        scope = node.scope
        around = {node.index, *_around(node)}
        found = run_rules(model, desk.target)
        related = {label for index in around for label in _labels(scope, index)}
        return cls(
            place=place_of(node),
            name=node.node.name,
            input=node.node.input[0],
            output=node.node.output[0],
            spatial=spatial_shape(node),
            input_shape=scope.shape(node.node.input[0]),
            weight=weight_shape(node),
            has_bias=bool(node.bias),
            related=frozenset(related),
            findings=tuple(f for f in found if f.location.graph == scope.path and f.location.index in around),
            quantizers=Quantizers.of(node),
            layers=None if desk.engine is None else parse_alone(model, node, desk.engine),
        )


@frozen
class After:
    """What the passes made of a node.

    Args:
        done: What they did to the whole model.
        node: The node; None where it is gone.
        findings: What the rules still have against it.
        layers: What the installed parser makes of it.
    """

    done: PassResult
    node: Deconv | None
    findings: tuple[Finding, ...] = ()
    layers: Layers | None = None

    @classmethod
    def of(cls, model: OnnxModel, node: Deconv, desk: Desk) -> After:
        """Runs the passes on the model, in place."""
        model.name_nodes("ConvTranspose")
        name = node.node.name
        done = run_passes(model, passes_for("as-is"), desk.target)
        made = next((each for each in ModelView(model).deconvs if each.node.name == name), None)
        if made is None:
            return cls(done, None)
        here = (made.scope.path, made.index)
        found = (f for f in run_rules(model, desk.target) if (f.location.graph, f.location.index) == here)
        layers = None if desk.engine is None else parse_alone(model, made, desk.engine)
        return cls(done, made, tuple(found), layers)


def _around(node: Deconv) -> Iterator[int]:
    """Yields the nodes that quantise, dequantise or cast a node's inputs and output."""
    producers, nodes = node.scope.producers, node.scope.graph.node
    queue = list(node.node.input)
    for name in queue:
        index = producers.get(name)
        if index is not None and nodes[index].op_type in _PER_ELEMENT:
            yield index
            queue.append(nodes[index].input[0])
    for user in node.scope.consumers.get(node.node.output[0], ()):
        if user.op_type == "QuantizeLinear":
            yield producers[user.output[0]]


def _labels(scope: Scope, index: int) -> Iterator[str]:
    node = scope.graph.node[index]
    yield str(scope.location(index))
    yield from (node.name, *node.output) if node.name else node.output


def attributes_of(geometry: Geometry) -> dict[str, Any]:
    """Returns a node's attributes, those that say nothing left out."""
    found: dict[str, Any] = {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.strides),
        "dilations": list(geometry.dilations),
        "pads": list(geometry.begin_pads + geometry.end_pads),
        "output_padding": list(geometry.output_padding),
        "group": geometry.group,
    }
    if geometry.auto_pad != "NOTSET":
        found["auto_pad"] = geometry.auto_pad
    if geometry.output_shape is not None:
        found["output_shape"] = list(geometry.output_shape)
    return found
