"""Outputs that hold results: softmax, sigmoid or argmax at the end of a network."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from trtconv.core.errors import InputError
from trtconv.core.interface import Result, Results
from trtconv.graph.interface import rename_inside
from trtconv.graph.model import OnnxModel

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)
_SOFTMAX_OPSET = 13
"""Softmax of earlier versions is along the axis and all behind it."""


def give_results(model: OnnxModel, results: Results) -> None:
    """Adds softmax, sigmoid or argmax to outputs, which keep their names. An argmax is int32, without its axis.

    Args:
        model: The model, as it was loaded; it is changed.
        results: What becomes of which output.

    Raises:
        InputError: There is no such output, or it is none of floats, or has no such axis.
    """
    for name, result in results.items():
        _give(model, _output(model, name), result)
    if results:
        model.touch()


def _output(model: OnnxModel, name: str) -> onnx.ValueInfoProto:
    outputs = model.proto.graph.output
    value = next((output for output in outputs if output.name == name), None)
    if value is None and not name and len(outputs) == 1:
        value = outputs[0]
    names = ", ".join(output.name for output in outputs)
    if value is None:
        what = f"has no output {name!r}" if name else "has several outputs"
        raise InputError(f"--postprocess: {model.path} {what}", f"Write OUTPUT=OPERATION; it has {names}.")
    kind = value.type.tensor_type.elem_type
    if kind not in _FLOATS or value.name not in model.main.producers:
        why = "no node makes it" if kind in _FLOATS else f"it is {TensorProto.DataType.Name(kind).lower()}"
        raise InputError(f"--postprocess: output {value.name!r} has no result: {why}", "Leave it out.")
    return value


def _give(model: OnnxModel, value: onnx.ValueInfoProto, result: Result) -> None:
    graph, name = model.proto.graph, value.name
    shape = model.main.shape(name)
    axis, rank = _axis(model, name, result, None if shape is None else len(shape))
    inner = model.fresh_name(f"{name}_raw")
    rename_inside(model, {name: inner})
    graph.node.extend(_nodes(model, inner, name, Result(result.operation, axis), rank))
    if result.operation == "argmax":
        value.type.tensor_type.elem_type = TensorProto.INT32
        if value.type.tensor_type.HasField("shape"):
            del value.type.tensor_type.shape.dim[axis]


def _axis(model: OnnxModel, name: str, result: Result, rank: int | None) -> tuple[int, int]:
    """Returns the axis of a result, counted from the first, and how many axes there are."""
    if result.operation == "sigmoid":
        return 0, 0
    if rank is None:
        raise InputError(f"--postprocess: {model.path} does not say how many axes {name!r} has", "Export it again.")
    if not -rank <= result.axis < rank:
        raise InputError(f"--postprocess: {name!r} has {rank} axes, and no axis {result.axis}", "Write OPERATION:AXIS.")
    return result.axis % rank, rank


def _nodes(model: OnnxModel, inner: str, name: str, result: Result, rank: int) -> list[onnx.NodeProto]:
    """Returns the nodes between what the network makes and the output."""
    axis, last = result.axis, rank - 1

    def node(op: str, source: str, target: str, **attributes: object) -> onnx.NodeProto:
        return helper.make_node(op, [source], [target], name=model.fresh_name(f"{name}_{op.lower()}"), **attributes)

    if result.operation == "sigmoid":
        return [node("Sigmoid", inner, name)]
    if result.operation == "argmax":
        index = model.fresh_name(f"{name}_index")
        return [node("ArgMax", inner, index, axis=axis, keepdims=0), node("Cast", index, name, to=TensorProto.INT32)]
    if model.opset >= _SOFTMAX_OPSET or axis == last:
        return [node("Softmax", inner, name, axis=axis)]
    swapped = list(range(rank))
    swapped[axis], swapped[last] = last, axis
    turned, soft = model.fresh_name(f"{name}_turned"), model.fresh_name(f"{name}_soft")
    return [
        node("Transpose", inner, turned, perm=swapped),
        node("Softmax", turned, soft, axis=last),
        node("Transpose", soft, name, perm=swapped),
    ]
