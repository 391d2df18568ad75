"""Shapes that ONNX's inference finds, and what it gets wrong mended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from trtconv.graph.deconv import crops, geometry_of
from trtconv.graph.scope import Scope


class InferredShapes(Mapping[str, "tuple[int | None, ...]"]):
    """Tensor name to shape; each is worked out when it is asked for, which few are."""

    def __init__(self, values: Iterable[onnx.ValueInfoProto]) -> None:
        self._values = {value.name: value for value in values}

    def __getitem__(self, name: str) -> tuple[int | None, ...]:
        shape = _value_shape(self._values[name])
        if shape is None:
            raise KeyError(name)
        return shape

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._values.items() if value.type.tensor_type.HasField("shape"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def same_pads(scope: Scope, index: int) -> list[int] | None:
    """Returns the pads that SAME_* beside an output_padding means; None for any other ConvTranspose."""
    node, attributes = scope.columns.nodes[index], scope.columns.attributes[index]
    if not any(a.name == "auto_pad" and a.s.startswith(b"SAME") for a in attributes):
        return None
    attrs = {a.name: onnx.helper.get_attribute_value(a) for a in attributes}
    mode = attrs.get("auto_pad", b"").decode(errors="replace")
    if not mode.startswith("SAME") or not any(attrs.get("output_padding") or ()) or attrs.get("output_shape"):
        return None
    weight = scope.initializer(node.input[1]) if len(node.input) > 1 else None
    geometry = geometry_of({**attrs, "auto_pad": mode}, None if weight is None else tuple(weight.dims))
    window = None if isinstance(geometry, str) else crops(geometry, None)
    if isinstance(geometry, str) or window is None:
        return None
    return [c.begin for c in window] + [c.end + o for c, o in zip(window, geometry.output_padding, strict=True)]


def _value_shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims)
