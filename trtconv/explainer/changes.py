"""What the passes made of a model, region by region: the nodes before and after, for drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx

from trtconv.core.documents.explain import Axis
from trtconv.core.documents.rewrite import Edit
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.explainer.axis import describe_axes
from trtconv.explainer.rewritten import rewrite_of
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv
from trtconv.passes import PassResult, chooser_of, passes_for
from trtconv.pipeline.preparation import Preparation
from trtconv.rules.base import ModelView

MOST_NODES = 14
"""Of a larger region only so many nodes are told."""
_LONGEST_VALUE = 48


@frozen
class DrawnNode:
    """A node of a drawing.

    Args:
        op: Its operator.
        name: Its name, possibly empty.
        inputs: Tensors that it takes, constants left out.
        outputs: Tensors that it makes.
        attributes: Its attributes, each in words: "strides 2, 2".
        constants: Its constant inputs likewise: "input 1: constant 48x32x3x3".
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    constants: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Attributes and constants."""
        return self.attributes + self.constants


@frozen
class Change:
    """What became of one node.

    Args:
        edits: The edits that name it.
        before: The node, alone.
        after: The nodes that make the same tensors now, in order; empty where nothing has to.
        axes: Of a ConvTranspose, its axes as they were.
        why: Why it computes the same, where that is known.
    """

    edits: tuple[Edit, ...]
    before: tuple[DrawnNode, ...]
    after: tuple[DrawnNode, ...]
    axes: tuple[Axis, ...] = ()
    why: tuple[str, ...] = ()


def changes(
    path: Path,
    target: Target,
    precision: str = "as-is",
    *,
    requantize: bool = False,
    forms: Mapping[str, str] | None = None,
) -> tuple[Change, ...]:
    """Runs the passes on a model, and tells what became of each node that they name.

    Args:
        path: The .onnx file; never written.
        target: What it was rewritten for.
        precision: As asked of build; so is `requantize`.
        forms: What `--tune` chose, by node.

    Returns:
        One entry a node, in the order of the edits; nodes that the model as written does not have are left out.

    Raises:
        InputError: An unreadable model.
    """
    old, new = (OnnxModel.load(path) for _ in range(2))
    Preparation(old, target).name()
    result = Preparation(new, target).rewrite(
        passes_for(precision, requantize=requantize, choose=chooser_of(forms or {}))
    )
    deconvs = [{deconv.node.name: deconv for deconv in ModelView(model).deconvs} for model in (old, new)]
    grouped: dict[tuple[int, int], list[Edit]] = {}
    for edit in result.edits:
        place = _find(old, edit.node)
        if place is not None:
            grouped.setdefault(place, []).append(edit)
    return tuple(_change(old, new, place, edits, result, *deconvs) for place, edits in grouped.items())


def _find(model: OnnxModel, label: str) -> tuple[int, int] | None:
    """Returns graph and position of the node that an edit names: by name, by place, or by a tensor that it makes."""
    for number, scope in enumerate(model.scopes):
        columns = scope.columns
        if label in columns.names:
            return number, columns.names.index(label)
        if label in scope.producers:
            return number, scope.producers[label]
        for index in range(len(columns)):
            if not columns.names[index] and str(scope.location(index)) == label:
                return number, index
    return None


def _change(
    old: OnnxModel,
    new: OnnxModel,
    place: tuple[int, int],
    edits: Sequence[Edit],
    result: PassResult,
    deconvs: dict[str, Deconv],
    new_deconvs: dict[str, Deconv],
) -> Change:
    number, index = place
    before, after = old.scopes[number], new.scopes[number]
    name = before.columns.names[index]
    after_nodes = tuple(_drawn(after, position) for position in _region(before, after, index))
    node = deconvs.get(name)
    if node is None or isinstance(node.geometry, str):
        return Change(tuple(edits), (_drawn(before, index),), after_nodes)
    rewrite = rewrite_of(node, result, new_deconvs.get(name), (), None)
    axes = describe_axes(node.geometry, (node.input_shape or ())[2:])
    return Change(tuple(edits), (_drawn(before, index),), after_nodes, axes, rewrite.why)


def _region(before: Scope, after: Scope, index: int) -> list[int]:
    """Returns the nodes that make the outputs of a node now, from tensors that there were before."""
    sources = {*before.producers, *before.initializers, *(value.name for value in before.graph.input)}
    region: set[int] = set()
    queue = [name for name in before.columns.outputs[index] if name]
    while queue and len(region) < MOST_NODES:
        position = after.producers.get(queue.pop())
        if position is None or position in region:
            continue
        region.add(position)
        queue += [name for name in after.columns.inputs[position] if name and name not in sources]
    return sorted(region)


def _drawn(scope: Scope, index: int) -> DrawnNode:
    columns = scope.columns
    constants = {
        name: tensor for name in columns.inputs[index] if name and (tensor := scope.constant(name)) is not None
    }
    texts = [_constant(at, constants[name]) for at, name in enumerate(columns.inputs[index]) if name in constants]
    return DrawnNode(
        columns.ops[index],
        columns.names[index],
        tuple(name for name in columns.inputs[index] if name and name not in constants),
        tuple(name for name in columns.outputs[index] if name),
        tuple(note for attribute in columns.attributes[index] if (note := _note(attribute))),
        tuple(texts),
    )


def _note(attribute: onnx.AttributeProto) -> str:
    kinds = onnx.AttributeProto
    if attribute.type in (kinds.INTS, kinds.FLOATS):
        value = _listed(attribute.ints or attribute.floats)
    elif attribute.type in (kinds.INT, kinds.FLOAT):
        value = f"{attribute.i if attribute.type == kinds.INT else attribute.f:g}"
    elif attribute.type == kinds.STRING:
        value = attribute.s.decode("utf-8", "replace")
    else:
        return ""
    return f"{attribute.name} {value}"


def _constant(position: int, tensor: onnx.TensorProto) -> str:
    shape = "x".join(map(str, tensor.dims)) or "scalar"
    return f"input {position}: constant {shape}"


def _listed(values: Iterable[float]) -> str:
    text = ", ".join(f"{value:g}" for value in values)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
