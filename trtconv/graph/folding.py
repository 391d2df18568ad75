"""Evaluates a few nodes that have nothing but constants to work on, within the budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.core import budget
from trtconv.core.findings import Location
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.graph.scope import Scope
from trtconv.graph.types import undefined_opset

FOLDED = frozenset(
    (
        *("Abs", "Add", "And", "ArgMax", "ArgMin", "Cast", "CastLike", "Ceil", "Clip"),
        *("Concat", "Constant", "ConstantOfShape", "CumSum", "DepthToSpace", "Div", "Equal", "Erf", "Exp"),
        *("Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Greater", "GreaterOrEqual"),
        *("Identity", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Mean", "Min", "Mod"),
        *("Mul", "Neg", "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceL1"),
        *(
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ),
        *("Relu", "Reshape", "Round", "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Size"),
        *("Slice", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile"),
        *("Transpose", "Trilu", "Unsqueeze", "Where", "Xor"),
    )
)
"""Operators whose cost is that of their inputs and outputs, so that it is known before they run."""
OF_SHAPES = ("Shape", "Size")
"""Those whose results do not depend on the values of what they read."""
_TOLD_ELEMENTS = 1024
"""Inputs up to this size are shown to shape inference, which needs shapes, repeats and pads."""


def evaluate(
    nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, NDArray[Any]], output: str, opsets: Iterable[Any]
) -> NDArray[Any] | None:
    """Runs nodes on ONNX's reference implementation.

    Args:
        nodes: In the order in which they can run.
        feeds: The constants that they read.
        output: The tensor that is wanted.
        opsets: The model's.

    Returns:
        Its values; None where they cannot be computed, the onnx that is installed does not know what the operators of
        this set mean, or nobody can say beforehand how many there are.

    Raises:
        BudgetExceeded: There are more than the budget allows.
    """
    tensors, imports = dict(feeds), list(opsets)
    if undefined_opset(imports):
        return None
    for node in nodes:
        if node.op_type not in FOLDED or not _is_affordable(node, tensors, imports):
            return None
        results = _run(node, tensors, imports)
        if results is None:
            return None
        tensors.update(zip(node.output, results, strict=False))
    return tensors.get(output)


def spend_on_constants(scopes: Iterable[Scope]) -> None:
    """Asks for what a model computes of constants and of shapes, which TensorRT evaluates on the host while it builds.

    Args:
        scopes: The model's graphs, each after the graph around it.

    Raises:
        BudgetExceeded: One result has more elements than the budget and the model's own weights have together.
    """
    constant: set[str] = {""}
    initializers: list[onnx.TensorProto] = []
    weights = counted = 0
    for scope in scopes:
        constant.update(scope.initializers)
        initializers += scope.initializers.values()
        columns = scope.columns
        for index in sorted(index for op in FOLDED & scope.by_op.keys() for index in scope.by_op[op]):
            if columns.ops[index] not in OF_SHAPES and not constant.issuperset(columns.inputs[index]):
                continue
            constant.update(columns.outputs[index])
            for name in columns.outputs[index]:
                shape = scope.shape(name) or ()
                if budget.fits("elements", _elements(shape)):
                    continue
                # They are many, and few models have such a result.
                weights += sum(math.prod(tensor.dims) for tensor in initializers[counted:])
                counted = len(initializers)
                if not budget.fits("elements", _elements(shape) - weights):
                    what = f"its result of {list(shape)}, made of constants and sizes alone,"
                    budget.spend("elements", _elements(shape), what, scope.location(index))


def _elements(shape: Sequence[int | None]) -> int:
    return math.prod(dim or 0 for dim in shape)


def _is_affordable(node: onnx.NodeProto, tensors: Mapping[str, NDArray[Any]], opsets: Sequence[Any]) -> bool:
    """Whether it is known how large the outputs of a node will be; raises where that is too large."""
    place = Location(node=node.name, op=node.op_type, tensor=next(iter(node.output), ""))
    for shape in _shapes(node, tensors, opsets):
        if shape is None:
            return False
        budget.spend("elements", math.prod(shape), f"its constant result of {list(shape)}", place)
    if node.op_type == "MatMul":
        # Shapes are known of matrices and vectors that are given.
        inner = tensors[node.input[0]].shape[-1]
        return budget.fits(
            "candidates", inner * sum(math.prod(shape or ()) for shape in _shapes(node, tensors, opsets))
        )
    return True


def _shapes(
    node: onnx.NodeProto, tensors: Mapping[str, NDArray[Any]], opsets: Sequence[Any]
) -> list[tuple[int, ...] | None]:
    """Returns the shapes of a node's outputs as ONNX's shape inference knows them from its inputs."""
    graph = onnx.GraphProto(name="one", node=[node])
    for name in dict.fromkeys(node.input):
        if name not in tensors:
            continue
        values = tensors[name]
        if values.size <= _TOLD_ELEMENTS:
            graph.initializer.append(numpy_helper.from_array(values, name))
        kind = onnx.helper.np_dtype_to_tensor_dtype(values.dtype)
        graph.input.append(onnx.helper.make_tensor_value_info(name, kind, values.shape))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    model = onnx.ModelProto(ir_version=8, graph=graph, opset_import=opsets)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    # Whatever inference raises over a stranger's node means one thing here: not known.
    except Exception:
        return [None]
    return [_known_shape(value) for value in inferred.graph.output]


def _known_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None


def _run(node: onnx.NodeProto, tensors: Mapping[str, NDArray[Any]], opsets: Sequence[Any]) -> list[NDArray[Any]] | None:
    feeds = {name: tensors[name] for name in node.input if name in tensors}
    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = onnx.GraphProto(name="constants", node=[node], input=inputs, output=outputs)
    proto = onnx.ModelProto(ir_version=8, graph=graph, opset_import=opsets)
    # Whatever an evaluation of a stranger's operators raises means one thing here: not foldable.
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(result) for result in reference_evaluator(proto).run(None, feeds)]
    except Exception:
        return None
