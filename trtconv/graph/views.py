"""Deconvolutions and quantised layers: one object model for rules, passes, audit and explanation."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core.findings import Location
from trtconv.graph.attributes import attributes_of
from trtconv.graph.deconv import Geometry, geometry_of
from trtconv.graph.quantization import scale_fault
from trtconv.graph.resolve import values_of_copy
from trtconv.graph.scope import Scope

if TYPE_CHECKING:
    from trtconv.graph.model import OnnxModel

Shape = tuple[int | None, ...]
"""Sizes of a tensor, None for each that is not known."""
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose second input is a weight with channels of its own."""
QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")

_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear")
"""What the operators that round to steps begin with."""


def quantizes(model: OnnxModel) -> bool:
    """Returns whether a model rounds values to steps; it may do so in a function."""
    inside = (node.op_type for function in model.proto.functions for node in function.node)
    ops = itertools.chain(inside, (op for scope in model.scopes for op in scope.by_op))
    return any(op.startswith(_ROUNDING) for op in ops)


class NodeView:
    """A node where it stands.

    Args:
        scope: The graph it is in.
        index: Its position there.
    """

    def __init__(self, scope: Scope, index: int) -> None:
        self.scope = scope
        self.index = index
        self.node: onnx.NodeProto = scope.columns.nodes[index]

    @property
    def location(self) -> Location:
        """Where the node stands."""
        return self.scope.location(self.index)

    @functools.cached_property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs; at least three, those that are left out empty."""
        names = self.scope.columns.inputs[self.index]
        return (*names, *[""] * (3 - len(names)))

    def producer(self, slot: int, op: str) -> int | None:
        """Returns the position of the node that makes an input, if it is of this operator."""
        index = self.scope.producers.get(self.inputs[slot])
        return index if index is not None and self.scope.columns.ops[index] == op else None


class Deconv(NodeView):
    """A ConvTranspose."""

    @functools.cached_property
    def geometry(self) -> Geometry | str:
        """The geometry, or why there is none."""
        attributes = self.scope.columns.attributes[self.index]
        if not self.inputs[1]:
            return "it has no weight"
        weight = self.scope.constant(self.inputs[1])
        shape: Shape | None = None if weight is None else tuple(weight.dims)
        # Shapes of computed tensors cost an inference over the whole model: asked only where the node does not say.
        if shape is None and all(attribute.name != "kernel_shape" for attribute in attributes):
            shape = self.weight_shape
        return _geometry(tuple(attribute.SerializeToString() for attribute in attributes), shape)

    @property
    def input_shape(self) -> Shape | None:
        """(N, C, spatial...); None where the rank is not known."""
        return self.scope.shape(self.inputs[0])

    @property
    def weight_shape(self) -> Shape | None:
        """(C_in, C_out/group, k...); None where the rank is not known."""
        return self.scope.shape(self.inputs[1]) if self.inputs[1] else None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Spatial input sizes where all are static."""
        shape = self.input_shape
        if shape is None:
            return None
        sizes = tuple(n for n in shape[2:] if n is not None)
        fits = not isinstance(self.geometry, Geometry) or len(sizes) == self.geometry.rank
        return sizes if len(sizes) == len(shape) - 2 and fits else None

    @property
    def out_channels(self) -> int | None:
        """Number of output channels where the weight is a constant; its layout is (C_in, C_out/group, k...)."""
        weight = self.scope.initializer(self.inputs[1])
        if weight is None or isinstance(self.geometry, str):
            return None
        return int(weight.dims[1]) * self.geometry.group

    @property
    def bias(self) -> str:
        """Name of the bias, or an empty string."""
        return self.inputs[2]

    def dequantizer(self, slot: int) -> Linear | None:
        """Returns the DequantizeLinear that makes an input."""
        index = self.producer(slot, "DequantizeLinear")
        return None if index is None else Linear(self.scope, index)

    @property
    def is_quantized_behind(self) -> bool:
        """Whether its output goes to a QuantizeLinear."""
        users = self.scope.consumers.get(self.node.output[0], ())
        return any(user.op_type == "QuantizeLinear" for user in users)


@functools.lru_cache(maxsize=256)
def _geometry(attributes: tuple[bytes, ...], weight: tuple[int | None, ...] | None) -> Geometry | str:
    """Returns a geometry; the many deconvolutions of a large model have few."""
    protos = (onnx.AttributeProto.FromString(attribute) for attribute in attributes)
    attrs: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in protos}
    if isinstance(attrs.get("auto_pad"), bytes):
        attrs["auto_pad"] = attrs["auto_pad"].decode(errors="replace")
    return geometry_of(attrs, weight)


class Linear(NodeView):
    """A QuantizeLinear or DequantizeLinear."""

    @property
    def quantizes(self) -> bool:
        """Whether it is a QuantizeLinear."""
        return bool(self.node.op_type == "QuantizeLinear")

    @functools.cached_property
    def attributes(self) -> dict[str, Any]:
        """Its attributes by name."""
        return attributes_of(self.node)

    @functools.cached_property
    def scale(self) -> NDArray[Any] | None:
        """Its scale, None where it is computed."""
        return values_of_copy(self.scope, self.inputs[1])

    @functools.cached_property
    def zero_point(self) -> NDArray[Any] | None:
        """Its zero point, None where there is none or it is computed."""
        return values_of_copy(self.scope, self.inputs[2]) if self.has_zero_point else None

    @property
    def has_zero_point(self) -> bool:
        """Whether it has a zero point, known or not."""
        return bool(self.inputs[2])

    @functools.cached_property
    def dtype(self) -> str | None:
        """The type on its integer side."""
        if self.zero_point is not None:
            return str(self.zero_point.dtype)
        if self.quantizes:
            return str(onnx.helper.tensor_dtype_to_np_dtype(self.asked_type)) if self.asked_type else "uint8"
        return self.scope.dtype(self.inputs[0])

    @property
    def asked_type(self) -> int:
        """The ONNX element type that its output_dtype asks for, 0 where it asks for none or one that is none."""
        code = self.attributes.get("output_dtype", 0)
        return code if code in onnx.TensorProto.DataType.values() else 0

    @functools.cached_property
    def clash(self) -> tuple[str, str] | None:
        """The integer types of its input and of its zero point where they differ."""
        if self.quantizes or self.zero_point is None:
            return None
        dtype, point = self.scope.dtype(self.inputs[0]), str(self.zero_point.dtype)
        return (dtype, point) if dtype is not None and dtype != point else None

    @functools.cached_property
    def shape(self) -> Shape | None:
        """The shape of its tensor. Quantising does not change it, and a constant's costs no inference."""
        constant = self.scope.constant(self.inputs[0])
        if constant is not None:
            return tuple(constant.dims)
        quantizer = self.producer(0, "QuantizeLinear")
        return self.scope.shape(self.inputs[0] if quantizer is None else self.scope.columns.inputs[quantizer][0])

    @functools.cached_property
    def channels(self) -> tuple[int, int | None] | str:
        """The axis that its scales are for, from the front where the rank matters and is known, and the rank.

        A text says why the scales fit no axis.
        """
        axis = int(self.attributes.get("axis", 1))
        shape = self.shape if self.scale is not None and self.scale.size > 1 else None
        if self.scale is None or shape is None:
            return axis, None
        if len(shape) == 1 and "axis" not in self.attributes:
            axis = 0
        if not -len(shape) <= axis < len(shape):
            return f"its axis {axis} does not exist in {list(shape)}"
        if shape[axis] not in (None, self.scale.size):
            return f"it has {self.scale.size} scales for {shape[axis]} channels (axis {axis} of {list(shape)})"
        return axis % len(shape), len(shape)

    @functools.cached_property
    def problem(self) -> str | None:
        """Why nothing can be computed with it, or None: it is not constant, or makes no sense."""
        if self.attributes.get("block_size"):
            return "it quantises in blocks"
        if self.scale is None:
            return f"its scale {self.inputs[1]!r} is computed at run time"
        if not self.scale.size:
            return f"its scale {self.inputs[1]!r} holds no value"
        if self.scale.dtype.kind in "biu":
            return f"its scale {self.inputs[1]!r} is {self.scale.dtype}"
        if self.has_zero_point and self.zero_point is None:
            return f"its zero point {self.inputs[2]!r} is computed at run time"
        # The type of a computed tensor costs an inference over the whole model.
        if self.scope.constant(self.inputs[0]) is not None and self.clash:
            return f"its input is {self.clash[0]} and its zero point {self.clash[1]}"
        fault = scale_fault(self.scale)
        if fault:
            return f"its {fault}"
        if self.zero_point is not None and not np.isfinite(self.zero_point.astype(np.float32)).all():
            return f"its zero point {self.inputs[2]!r} is not a number"
        if self.zero_point is not None and self.zero_point.size not in (1, self.scale.size):
            return f"it has {self.zero_point.size} zero points for {self.scale.size} scales"
        return self.channels if isinstance(self.channels, str) else None

    @functools.cached_property
    def weight_of(self) -> onnx.NodeProto | None:
        """The first layer whose weight this DequantizeLinear makes, or None."""
        return next(iter(self.weights_of), None)

    @functools.cached_property
    def weights_of(self) -> tuple[onnx.NodeProto, ...]:
        """Every layer whose weight this DequantizeLinear makes, also in the graphs inside its own."""
        if self.quantizes:
            return ()
        name = self.node.output[0]
        users = (user for scope in self.scope.seen_from(name) for user in scope.consumers.get(name, ()))
        return tuple(n for n in users if n.op_type in LAYERS and len(n.input) > 1 and n.input[1] == name)


def deconvs(model: OnnxModel) -> tuple[Deconv, ...]:
    """Returns every ConvTranspose, in every graph; worked out once, until the model changes."""
    derived = model.whole.derived
    if "deconvs" not in derived:
        derived["deconvs"] = tuple(Deconv(scope, index) for scope, index, _ in model.nodes("ConvTranspose"))
    result: tuple[Deconv, ...] = derived["deconvs"]
    return result
