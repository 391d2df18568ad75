"""What an expanded definition computes of constants and known sizes, written down; branches that these decide."""

from __future__ import annotations

import math
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.graph.attributes import attribute
from trtconv.graph.bodies import renamed
from trtconv.graph.folding import FOLDED, evaluate
from trtconv.graph.model import OnnxModel
from trtconv.graph.patch import Patch, close_patches
from trtconv.graph.resolve import resolved, sizes_read
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

_MOST = 1024
"""Elements of what is written down, at most: sizes, axes, positions."""
_ROUNDS = 4
"""Sizes that are written down let inference know more of them."""


def fold_sizes(model: OnnxModel) -> None:
    """Writes down what a model computes of small constants and of sizes that are known, and takes decided branches."""
    for _ in range(_ROUNDS):
        patches = [_folded(model, scope) for scope in model.scopes]
        changed = close_patches(patches)
        patches = [_decided(model, scope) for scope in model.scopes[:1]]
        if not (close_patches(patches) or changed):
            return


def _folded(model: OnnxModel, scope: Scope) -> Patch:
    """Returns the patch that puts constants in the place of the nodes that compute them."""
    patch, columns = Patch(model, scope), scope.columns
    outputs = {value.name for value in scope.graph.output}
    constants: dict[str, NDArray[Any]] = {}
    for index, node in enumerate(columns.nodes):
        if columns.domains[index] not in ONNX_DOMAINS or not outputs.isdisjoint(columns.outputs[index]):
            continue
        values = _values(model, scope, node, constants)
        if values is not None:
            constants |= values
            tensors = [numpy_helper.from_array(array, name) for name, array in values.items()]
            patch.replace(index, [], tensors)
    return patch


def _values(
    model: OnnxModel, scope: Scope, node: onnx.NodeProto, constants: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]] | None:
    """Returns what a node makes, by name; None where that is not known, or large."""
    outputs = [name for name in node.output if name]
    if node.op_type in ("Shape", "Size"):
        sizes = sizes_read(scope, node)
        return None if sizes is None else {outputs[0]: sizes}
    if node.op_type not in FOLDED or any(not _is_small(scope.shape(name)) for name in outputs):
        return None
    feeds: dict[str, NDArray[Any]] = {}
    for name in filter(None, node.input):
        values = constants.get(name)
        if values is None and _is_small(scope.shape(name)):
            values = scope.values(name)
        if values is None:
            return None
        feeds[name] = values
    results = {name: evaluate([node], feeds, name, model.proto.opset_import) for name in outputs}
    arrays = {name: values for name, values in results.items() if values is not None}
    return arrays if len(arrays) == len(outputs) and all(array.size <= _MOST for array in arrays.values()) else None


def _is_small(shape: tuple[int | None, ...] | None) -> bool:
    """Whether a shape has few elements; one that is not known may have."""
    return shape is None or math.prod(size or 1 for size in shape) <= _MOST


def _decided(model: OnnxModel, scope: Scope) -> Patch:
    """Returns the patch that puts the branch of an If in its place where its condition is known."""
    patch = Patch(model, scope)
    for index in scope.by_op.get("If", ()):
        node = scope.columns.nodes[index]
        condition = resolved(scope, node.input[0], model.proto.opset_import)
        if condition is None or condition.size != 1:
            continue
        name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        branch = attribute(node, name)
        nodes, initializers = renamed(branch, node, model.fresh_name)
        patch.replace(index, nodes, initializers)
    return patch
