"""Models written so that every version of ONNX Runtime computes what ONNX defines.

Which version is installed must not decide what is right. Each module writes out one kind of node that some version
computes otherwise or refuses (measured with 1.20, 1.23 and 1.32), in operators that all of them agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from trtconv.graph.functions import UnsupportedFunctions
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS
from trtconv.graph.walk import all_nodes, inner_graphs
from trtconv.runtimes.definition.attention import write_attention
from trtconv.runtimes.definition.bodies import copy_results
from trtconv.runtimes.definition.casting import write_cast
from trtconv.runtimes.definition.deconvolution import write_deconvolution
from trtconv.runtimes.definition.fourier import write_fourier
from trtconv.runtimes.definition.largest import write_largest
from trtconv.runtimes.definition.normalization import (
    write_instance_normalization,
    write_layer_normalization,
    write_local_response_normalization,
    write_lp_normalization,
    write_mean_variance_normalization,
)
from trtconv.runtimes.definition.pooling import write_average_pool
from trtconv.runtimes.definition.reduction import REDUCTIONS, write_reduction
from trtconv.runtimes.definition.resizing import write_resize
from trtconv.runtimes.definition.sampling import write_grid_sample
from trtconv.runtimes.definition.unpooling import write_max_unpool
from trtconv.runtimes.definition.writing import Writing

WRITERS: dict[str, Callable[[Scope, int, Writing], bool]] = {
    "Attention": write_attention,
    "AveragePool": write_average_pool,
    "Cast": write_cast,
    "ConvTranspose": write_deconvolution,
    "DFT": write_fourier,
    "GridSample": write_grid_sample,
    "InstanceNormalization": write_instance_normalization,
    "LRN": write_local_response_normalization,
    "LayerNormalization": write_layer_normalization,
    "LpNormalization": write_lp_normalization,
    "MaxUnpool": write_max_unpool,
    "MeanVarianceNormalization": write_mean_variance_normalization,
    "Resize": write_resize,
    "STFT": write_fourier,
    "TopK": write_largest,
    **dict.fromkeys(REDUCTIONS, write_reduction),
}
"""By operator, what writes such a node out; returns whether it did."""


def write_out(model: OnnxModel) -> None:
    """Rewrites what ONNX Runtime does not run as defined, in every graph, in place; views of the model are then stale.

    Args:
        model: The model; changed.
    """
    _inline_functions(model)
    replacements = [(scope.graph, _replacements(scope, model.opset)) for scope in model.scopes]
    # Graphs inside nodes first: their nodes are copied with the nodes around them.
    for graph, by_index in reversed(replacements):
        if by_index:
            nodes = [new for index, node in enumerate(graph.node) for new in by_index.get(index, (node,))]
            del graph.node[:]
            graph.node.extend(nodes)
    for body in list(inner_graphs(model.proto.graph.node)):
        copy_results(body)


def _inline_functions(model: OnnxModel) -> None:
    """Inlines functions that hold such operators: inside one, a weight is an argument whose shape nobody knows."""
    inside = (node for function in model.proto.functions for node in all_nodes(function.node))
    ops = {node.op_type for node in inside if node.domain in ONNX_DOMAINS and node.op_type in WRITERS}
    if ops:
        try:
            model.inline_functions_with(*sorted(ops))
        except UnsupportedFunctions:
            return


def _replacements(scope: Scope, opset: int) -> dict[int, Iterable[onnx.NodeProto]]:
    """Returns, by position, the nodes that stand for a node of a graph."""
    result: dict[int, Iterable[onnx.NodeProto]] = {}
    for op in scope.by_op.keys() & WRITERS.keys():
        for index in scope.by_op[op]:
            node = scope.columns.nodes[index]
            if node.domain not in ONNX_DOMAINS or not node.input or not node.output:
                continue
            writing = Writing(node, opset)
            if WRITERS[op](scope, index, writing):
                result[index] = writing.nodes
    return result
