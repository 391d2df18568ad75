"""What a report says of an engine that can be held to the model here: its inputs, outputs and sizes.

The rest of it, as edits, findings and proofs, is the word of the machine that built, which the report names.
"""

from __future__ import annotations

from collections.abc import Sequence

from trtconv.core.dims import InputSpec, ShapeProfile, dynamic_dims
from trtconv.core.documents.lattice import DimRecord, LatticeRecord
from trtconv.core.documents.tensors import TensorInfo
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.runtimes.onnxruntime import dtype_of

_FLOATS = {"float32", "float16", "bfloat16"}
_RETYPED = {*_FLOATS, "int8", "uint8", "int32", "int64", "bool"}
_INSTEAD = {"int64": {"int64", "int32"}, "float64": {"float64", "float32"}}
"""What engines have where a model has another type, which their TensorRT does not."""


def check_tensors(model: OnnxModel, tensors: Sequence[TensorInfo], *, cast: bool, retyped: bool) -> None:
    """Raises ValueError where inputs and outputs of an engine are not those of a model.

    Args:
        model: The model.
        tensors: What a report says of the engine.
        cast: Whether their types may be those of the precision (`--cast-io`).
        retyped: Whether they may have any type that an engine has (`--io`).
    """
    pairs = [(tensor.kind, tensor.name) for tensor in tensors]
    inputs = {spec.name: spec for spec in model.inputs}
    outputs = {output.name: dtype_name(output.type.tensor_type.elem_type) for output in model.proto.graph.output}
    expected = {*(("input", name) for name in inputs), *(("output", name) for name in outputs)}
    if len(set(pairs)) != len(pairs) or set(pairs) != expected:
        raise ValueError("its engine has other inputs or outputs than the model")
    for tensor in tensors:
        spec = inputs[tensor.name] if tensor.kind == "input" else None
        own = outputs[tensor.name] if spec is None else spec.dtype
        if not (tensor.dtype in _RETYPED if retyped else _may_be(own, tensor.dtype, cast=cast)):
            raise ValueError(
                f"{tensor.kind} {tensor.name!r} of its engine is {tensor.dtype[:40]!r}, and {own} in the model"
            )
        fits = _may_have(model.main.shape(tensor.name), tensor.shape) if spec is None else _fits(spec, tensor.shape)
        if min(tensor.shape, default=0) < -1 or not fits:
            raise ValueError(f"{tensor.kind} {tensor.name!r} of its engine has another shape than in the model")


def _may_be(own: str, claim: str, *, cast: bool) -> bool:
    try:
        name = str(dtype_of(own))
    except (KeyError, ValueError):
        # The model does not say.
        return True
    allowed = _INSTEAD.get(name, {name})
    return claim in (allowed | _FLOATS if cast and allowed & _FLOATS else allowed)


def _fits(spec: InputSpec, shape: Sequence[int]) -> bool:
    pairs = zip(spec.dims, shape, strict=False)
    return len(shape) == len(spec.dims) and all(not isinstance(own, int) or own == size for own, size in pairs)


def _may_have(own: Sequence[int | None] | None, shape: Sequence[int]) -> bool:
    """Whether an output may be of a shape; TensorRT does not know every size that the model states."""
    if own is None:
        return True
    return len(shape) == len(own) and all(
        length in (-1, size) or size is None for size, length in zip(own, shape, strict=True)
    )


def check_lattice(inputs: Sequence[InputSpec], profiles: Sequence[ShapeProfile], record: LatticeRecord | None) -> None:
    """Raises ValueError where sizes are told of dimensions that a model has not, or that nobody asked about.

    Args:
        inputs: The model's inputs.
        profiles: What was asked for, and what was built.
        record: What a report says of the sizes that the network accepts.
    """
    names = dynamic_dims(inputs)
    for name, dim in {} if record is None else record.dims.items():
        ranges = [profile.dims[name] for profile in profiles if name in profile.dims]
        if name not in names or (
            ranges and not _is_within(dim, min(r.min for r in ranges), max(r.max for r in ranges))
        ):
            raise ValueError(f"it tells of sizes of {name[:80]!r} that were not asked about")


def _is_within(record: DimRecord, least: int, most: int) -> bool:
    sizes = record.valid if record.valid is not None else (record.min, record.max)
    return least <= record.min <= record.max <= most and all(record.min <= size <= record.max for size in sizes)
