"""Operators that make other numbers with each run, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes

RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)


def random_outputs(model: OnnxModel) -> dict[str, str]:
    """Returns the outputs of a model that differ with each run, and the operator that each of them hangs on.

    A seed does not help: what numbers it stands for is every runtime's own affair.
    """
    operators = _operators(model)
    if not operators:
        return {}
    main, causes = model.main, dict[str, str]()
    before = -1
    # The nodes of a model stand in any order.
    while before != len(causes):
        before = len(causes)
        for index, reads in enumerate(main.reads):
            cause = operators.get(index) or next((causes[name] for name in sorted(reads) if name in causes), None)
            if cause is not None:
                causes.update(dict.fromkeys(main.columns.outputs[index], cause))
    return {name: causes[name] for name in model.outputs if name in causes}


def _operators(model: OnnxModel) -> dict[int, str]:
    """Returns the nodes of the main graph that draw numbers, in the graphs inside them and in functions too, with the
    operator that does."""
    functions = {(function.domain, function.name): function for function in model.proto.functions}
    drawing: dict[tuple[str, str], str] = {}
    # A function that calls one which draws does so, too.
    for _ in functions:
        ops = {key: _drawn(function.node, drawing) for key, function in functions.items()}
        drawing.update({key: op for key, op in ops.items() if op is not None})
    drawn = {index: _drawn([node], drawing) for index, node in enumerate(model.main.columns.nodes)}
    return {index: op for index, op in drawn.items() if op is not None}


def _drawn(nodes: Iterable[onnx.NodeProto], drawing: dict[tuple[str, str], str]) -> str | None:
    """Returns the first operator of some nodes that draws numbers."""
    for node in all_nodes(nodes):
        if node.op_type in RANDOM and node.domain in ONNX_DOMAINS:
            return str(node.op_type)
        if (node.domain, node.op_type) in drawing:
            return drawing[node.domain, node.op_type]
    return None
