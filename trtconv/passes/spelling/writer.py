"""Writes the nodes that take the place of one node, at whatever opset its model has."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import defs, helper, numpy_helper

from trtconv.graph.attributes import readable
from trtconv.graph.model import OnnxModel
from trtconv.graph.resolve import resolved
from trtconv.graph.scope import Scope
from trtconv.graph.types import ONNX_DOMAINS

_AXES_AS_INPUT = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13, "Split": 13}
"""Operators to the opset from which their axes, or the sizes of a Split, are an input; of other reductions 18."""


_HELD = "trtconv.held"
"""Metadata of a cast to a narrower type that changes no value."""


def is_held(node: onnx.NodeProto) -> bool:
    """Whether a node is a cast that `Writer.mark_held` marked."""
    return any(entry.key == _HELD for entry in node.metadata_props)


class Unwritable(Exception):
    """A node cannot be written with the same meaning; the message says why."""


class _Shape(tuple[Any, ...]):
    """A shape that a model states, which may have fewer axes than its nodes read."""

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError:
            raise Unwritable(f"it reads axis {key} of a tensor that the model says has {len(self)}") from None


class Writer:
    """The nodes that take the place of one node.

    Called like a function it writes a node of an operator, and returns the name of the tensor that it makes. Inputs are
    names of tensors, "" for one that is left out, or arrays, which become constants.

    Args:
        model: The model.
        scope: The graph of the node.
        index: Its position there.
    """

    def __init__(self, model: OnnxModel, scope: Scope, index: int) -> None:
        self.model = model
        self.scope = scope
        self.index = index
        self.node = scope.columns.nodes[index]
        self.opset = model.opset
        self.attrs: Mapping[str, Any] = {entry.name: readable(entry) for entry in self.node.attribute}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._stem = self.node.name or next(filter(None, self.node.output), self.node.op_type)

    def check(self) -> None:
        """Raises `Unwritable` where the model's opset has not what was written."""
        for node in self.nodes:
            if node.domain not in ONNX_DOMAINS:
                continue
            try:
                schema = defs.get_schema(node.op_type, self.opset)
            except defs.SchemaError:
                raise Unwritable(f"opset {self.opset} has no {node.op_type}") from None
            if len(node.input) > schema.max_input or any(
                attribute.name not in schema.attributes for attribute in node.attribute
            ):
                raise Unwritable(f"opset {self.opset} has no {node.op_type} as it would be written")

    def input(self, slot: int) -> str:
        """Returns the name of an input; "" for one that is left out."""
        return self.node.input[slot] if slot < len(self.node.input) else ""

    def output(self, slot: int = 0) -> str:
        """Returns the name of an output; "" for one that nobody wants."""
        return self.node.output[slot] if slot < len(self.node.output) else ""

    def dtype(self, name: str) -> np.dtype[Any]:
        """Returns the type of a tensor of the model; raises `Unwritable` where it is not known."""
        dtype = self.scope.dtype(name)
        if dtype is None:
            raise Unwritable(f"the type of {name!r} is not known")
        return _types()[dtype]

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Returns the shape of a tensor of the model, None for sizes that are dynamic.

        Raises:
            Unwritable: Its rank is not known.
        """
        shape = self.scope.shape(name)
        if shape is None:
            raise Unwritable(f"how many axes {name!r} has is not known")
        return _Shape(shape)

    def sizes(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor of the model; raises `Unwritable` where a size is not known."""
        shape = self.shape(name)
        sizes = tuple(size for size in shape if size is not None)
        if len(sizes) != len(shape):
            raise Unwritable(f"the sizes of {name!r} are known only at run time")
        return _Shape(sizes)

    def values(self, slot: int, what: str) -> NDArray[Any]:
        """Returns the values of an input that the model fixes, directly or by its shapes.

        Raises:
            Unwritable: They are known only at run time.
        """
        values = self.resolve(self.input(slot))
        if values is None:
            raise Unwritable(f"its {what} are known only at run time")
        return values

    def resolve(self, name: str) -> NDArray[Any] | None:
        """Returns the values of a tensor that the model fixes, directly or by its shapes; None of any other."""
        return resolved(self.scope, name, self.model.proto.opset_import)

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Writes a constant and returns its name."""
        name = self.model.fresh_name(f"{self._stem}/constant")
        array = np.asarray(values, dtype)
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    @overload
    def __call__(self, op: str, *inputs: Any, to: str = "", outputs: Literal[1] = 1, **attrs: Any) -> str: ...

    @overload
    def __call__(self, op: str, *inputs: Any, to: str = "", outputs: int, **attrs: Any) -> Any: ...

    def __call__(self, op: str, *inputs: Any, to: str = "", outputs: int = 1, **attrs: Any) -> Any:
        """Writes a node.

        Args:
            op: Its operator, of ONNX's own domain.
            *inputs: Its inputs.
            to: The tensor that it makes; a new one where none is named.
            outputs: How many it makes; more than one are returned as a list.
            **attrs: Its attributes; those that are None are left out.
        """
        operands = [source if isinstance(source, str) else self.constant(source) for source in inputs]
        name = self.model.fresh_name(f"{self._stem}/{op}")
        results = [to] if to else [self.model.fresh_name(f"{name}_{slot}") for slot in range(outputs)]
        attributes = {key: value for key, value in attrs.items() if value is not None}
        self.nodes.append(helper.make_node(op, operands, results, name=name, **attributes))
        return results[0] if outputs == 1 else results

    def again(self, inputs: Sequence[str], outputs: Sequence[str] = (), **attrs: Any) -> onnx.NodeProto:
        """Writes the node itself with other inputs, and returns it.

        Args:
            inputs: Their names.
            outputs: What it makes now; by default what it made.
            **attrs: Attributes that are otherwise; None for those that are left out.
        """
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        node.input[:] = inputs
        node.output[:] = outputs or self.node.output
        attributes = [attribute for attribute in node.attribute if attribute.name not in attrs]
        attributes += [helper.make_attribute(name, value) for name, value in attrs.items() if value is not None]
        attributes = [onnx.AttributeProto.FromString(attribute.SerializeToString()) for attribute in attributes]
        del node.attribute[:]
        node.attribute.extend(attributes)
        self.nodes.append(node)
        return node

    def cast(self, name: str, dtype: Any, to: str = "") -> str:
        """Casts a tensor to a NumPy type."""
        result = self("Cast", name, to=to)
        self.nodes[-1].attribute.append(helper.make_attribute("to", helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
        return result

    def cast_or_fold(self, name: str, dtype: Any) -> str:
        """Casts a tensor of the model; a constant is written anew, since TensorRT takes bytes for quantised values."""
        values = self.scope.values(name)
        if values is None:
            return self.cast(name, dtype)
        with np.errstate(over="ignore"):
            return self.constant(values.astype(dtype))

    def mark_held(self) -> None:
        """Marks the node written last: a cast whose values its type has all."""
        self.nodes[-1].metadata_props.append(onnx.StringStringEntryProto(key=_HELD, value="1"))

    def reduce(self, op: str, name: str, axes: Sequence[int], *, keep: bool = True, to: str = "") -> str:
        """Reduces over axes, given as an input or as an attribute, as the opset has them."""
        keepdims = int(keep)
        if self.opset >= _AXES_AS_INPUT.get(op, 18):
            return self(op, name, np.array(axes, np.int64), to=to, keepdims=keepdims)
        return self(op, name, to=to, axes=[int(axis) for axis in axes], keepdims=keepdims)

    def unsqueeze(self, name: str, axes: Sequence[int], to: str = "") -> str:
        """Adds axes of size 1."""
        return self._with_axes("Unsqueeze", name, axes, to)

    def squeeze(self, name: str, axes: Sequence[int], to: str = "") -> str:
        """Removes axes of size 1."""
        return self._with_axes("Squeeze", name, axes, to)

    def _with_axes(self, op: str, name: str, axes: Sequence[int], to: str) -> str:
        if self.opset >= _AXES_AS_INPUT[op]:
            return self(op, name, np.array(axes, np.int64), to=to)
        return self(op, name, to=to, axes=[int(axis) for axis in axes])

    def slice(
        self, name: str, starts: Any, ends: Any, axes: Sequence[int], steps: Sequence[int] | None = None, to: str = ""
    ) -> str:
        """Cuts a part out; starts and ends are numbers, or names of tensors of them."""
        if self.opset < 10:
            if steps is not None or isinstance(starts, str) or isinstance(ends, str):
                raise Unwritable(f"opset {self.opset} has no Slice with steps, or of bounds known only at run time")
            first, last, along = ([int(number) for number in numbers] for numbers in (starts, ends, axes))
            return self("Slice", name, to=to, starts=first, ends=last, axes=along)
        inputs = [bound if isinstance(bound, str) else np.array(bound, np.int64) for bound in (starts, ends)]
        inputs.append(np.array(axes, np.int64))
        return self("Slice", name, *inputs, *([] if steps is None else [np.array(steps, np.int64)]), to=to)

    def split(self, name: str, parts: Sequence[int], axis: int) -> list[str]:
        """Cuts a tensor into parts along an axis."""
        pieces: list[str]
        if self.opset >= _AXES_AS_INPUT["Split"]:
            pieces = self("Split", name, np.array(parts, np.int64), outputs=len(parts), axis=axis)
        else:
            pieces = self("Split", name, outputs=len(parts), axis=axis, split=[int(part) for part in parts])
        return [pieces] if isinstance(pieces, str) else pieces

    def reshape(self, name: str, shape: Any, to: str = "") -> str:
        """Reshapes; the shape is numbers, or the name of a tensor of them."""
        return self("Reshape", name, shape if isinstance(shape, str) else np.array(shape, np.int64), to=to)

    def size(self, name: str, axis: int) -> str:
        """Returns a tensor of one int64: the size of an axis, as a constant where it is known."""
        shape = self.scope.shape(name)
        size = None if shape is None else shape[axis]
        if size is not None:
            return self.constant([size], np.int64)
        return self("Gather", self("Shape", name), np.array([axis], np.int64), axis=0)


@functools.cache
def _types() -> dict[str, np.dtype[Any]]:
    """NumPy's types of ONNX's, by name."""
    codes = [code for code in onnx.TensorProto.DataType.values() if code != onnx.TensorProto.UNDEFINED]
    types = [np.dtype(helper.tensor_dtype_to_np_dtype(code)) for code in codes]
    return {str(dtype): dtype for dtype in types}
