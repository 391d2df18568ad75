"""Deconvolutions and quantised layers as the rules see them: one object model, computed from the graph."""

from __future__ import annotations

import functools
from typing import Any

import onnx
from numpy.typing import NDArray

from trtconv.core.findings import Location
from trtconv.graph.deconv import Geometry, geometry_of
from trtconv.graph.scope import Scope


class Deconv:
    """A ConvTranspose as a rule sees it.

    Args:
        scope: The graph it is in.
        index: Its position there.
        node: The NodeProto.
    """

    def __init__(self, scope: Scope, index: int, node: onnx.NodeProto) -> None:
        self.scope = scope
        self.index = index
        self.node = node

    @property
    def location(self) -> Location:
        """Where the node stands."""
        return self.scope.location(self.index)

    @functools.cached_property
    def geometry(self) -> Geometry | str:
        """Returns the geometry, or why there is none; computed once for equal nodes."""
        """The geometry, or why there is none."""
        inputs, attributes = self.scope.columns.inputs[self.index], self.scope.columns.attributes[self.index]
        if len(inputs) < 2:
            return "it has no weight"
        weight = self.scope.initializer(inputs[1])
        shape: tuple[int | None, ...] | None = None if weight is None else tuple(weight.dims)
        if shape is None and all(attribute.name != "kernel_shape" for attribute in attributes):
            shape = self.scope.shape(inputs[1])
        return _geometry(tuple(attribute.SerializeToString() for attribute in attributes), shape)

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Spatial input sizes where all are static."""
        shape = self.scope.shape(self.node.input[0])
        if shape is None:
            return None
        sizes = tuple(n for n in shape[2:] if n is not None)
        return sizes if len(sizes) == len(shape) - 2 else None

    @property
    def out_channels(self) -> int | None:
        """Number of output channels where the weight is a constant; its layout is (C_in, C_out/group, k...)."""
        weight = self.scope.initializer(self.node.input[1])
        if weight is None or isinstance(self.geometry, str):
            return None
        return int(weight.dims[1]) * self.geometry.group

    @property
    def bias(self) -> str:
        """Name of the bias, or an empty string."""
        return self.node.input[2] if len(self.node.input) > 2 else ""


@functools.lru_cache(maxsize=256)
def _geometry(attributes: tuple[bytes, ...], weight: tuple[int | None, ...] | None) -> Geometry | str:
    """Returns a geometry; the many deconvolutions of a large model have few."""
    read = (onnx.AttributeProto.FromString(attribute) for attribute in attributes)
    attrs: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in read}
    if isinstance(attrs.get("auto_pad"), bytes):
        attrs["auto_pad"] = attrs["auto_pad"].decode(errors="replace")
    return geometry_of(attrs, weight)


class Linear:
    """A QuantizeLinear or DequantizeLinear as a rule sees it.

    Args:
        scope: The graph it is in.
        index: Its position there.
        node: The NodeProto.
    """

    def __init__(self, scope: Scope, index: int, node: onnx.NodeProto) -> None:
        self.scope = scope
        self.index = index
        self.node = node

    @property
    def location(self) -> Location:
        """Where it is."""
        return self.scope.location(self.index)

    @property
    def quantizes(self) -> bool:
        """Whether it is a QuantizeLinear."""
        return bool(self.node.op_type == "QuantizeLinear")

    @functools.cached_property
    def attributes(self) -> dict[str, Any]:
        """Its attributes by name."""
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.node.attribute}

    @functools.cached_property
    def scale(self) -> NDArray[Any] | None:
        """Its scale, None where it is computed."""
        return self.scope.values(self.node.input[1])

    @functools.cached_property
    def zero_point(self) -> NDArray[Any] | None:
        """Its zero point, None where there is none or it is computed."""
        return self.scope.values(self.node.input[2]) if self.has_zero_point else None

    @property
    def has_zero_point(self) -> bool:
        """Whether it has a zero point, known or not."""
        return len(self.node.input) > 2 and bool(self.node.input[2])

    @functools.cached_property
    def dtype(self) -> str | None:
        """The type on its integer side."""
        if self.zero_point is not None:
            return str(self.zero_point.dtype)
        if self.quantizes:
            return str(onnx.helper.tensor_dtype_to_np_dtype(self.asked_type)) if self.asked_type else "uint8"
        return self.scope.dtype(self.node.input[0])

    @property
    def asked_type(self) -> int:
        """The ONNX element type that its output_dtype asks for, 0 where it asks for none or one that is none."""
        asked = self.attributes.get("output_dtype", 0)
        return asked if asked in onnx.TensorProto.DataType.values() else 0

    @functools.cached_property
    def clash(self) -> tuple[str, str] | None:
        """The integer types of its input and of its zero point where they differ."""
        if self.quantizes or self.zero_point is None:
            return None
        given, point = self.scope.dtype(self.node.input[0]), str(self.zero_point.dtype)
        return (given, point) if given is not None and given != point else None

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


LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose second input is a weight with channels of its own."""
