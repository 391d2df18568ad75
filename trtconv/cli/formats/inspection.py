"""What a person reads of inspect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trtconv.cli.formats.wording import byte_size, count, memory_by_profile, shape_text, table
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.build import ProfileRecord
from trtconv.core.documents.inspect import EngineInspection, Layer, LayerTensor, ModelInspection
from trtconv.core.documents.rewrite import Edit
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.runs_on import runs_on
from trtconv.core.text import clean, leading

LONGEST = 60
"""Characters of a layer's name that are shown."""


def inspect_text(document: EngineInspection | ModelInspection) -> str:
    """Renders what `trtconv inspect` saw; the last line is the summary."""
    blocks = _onnx_blocks(document) if isinstance(document, ModelInspection) else _engine_blocks(document)
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _onnx_blocks(document: ModelInspection) -> list[list[str]]:
    file, weights = document.file, document.weights
    rows = [
        (kind, clean(tensor.name), tensor.dtype or "?", "?" if tensor.dims is None else clean(_dims(tensor.dims)))
        for kind, tensors in (("input", document.inputs), ("output", document.outputs))
        for tensor in tensors
    ]
    ops = [(leading(op), str(number)) for op, number in document.nodes.items()]
    nodes = sum(document.nodes.values())
    external = f", in {count(len(weights.external_files), 'file')} beside it" if weights.external_files else ""
    head = [
        ("model", f"{file.path} ({byte_size(file.bytes)})"),
        ("opset", f"{document.opset}, IR version {document.ir_version}"),
        ("made by", document.producer or "unknown"),
        ("weights", f"{weights.elements} elements in {weights.count} tensors{external}"),
    ]
    return [
        table(head, ""),
        table(rows, ""),
        ["operators", *table(ops, "  ")],
        [f"{leading(file.path)}: {count(nodes, 'node')}"],
    ]


def _dims(dims: Sequence[Any]) -> str:
    return f"({', '.join('?' if dim is None else str(dim) for dim in dims)})"


def _engine_blocks(document: EngineInspection) -> list[list[str]]:
    return [
        _head(document),
        _not_loaded(document),
        _io(document.io or ()),
        *_profiles(document.profiles or ()),
        _edits(document.edits or ()),
        _layers(document),
        _summary(document),
    ]


def _head(document: EngineInspection) -> list[str]:
    file, runtime, plan = document.file, document.runtime, document.plan
    rows = [(document.kind, f"{file.path} ({byte_size(file.bytes)})")]
    if document.model is not None:
        rows.append(("model", document.model.path))
    if runtime is not None:
        rows.append(("runtime", f"{runtime}, {runtime.gpu or 'without a GPU'}"))
    if plan is not None:
        rows.append(("built for", f"{plan.target}, precision {plan.precision}"))
    if runtime is not None:
        requirements = runs_on(runtime, plan.options if plan is not None else BuilderOptions())
        rows += [("runs with", requirements.loader), ("runs on", requirements.cards)]
    if document.activation_memory_bytes is not None:
        by_profile = memory_by_profile(document.profile_memory_bytes)
        rows.append(("memory", f"{byte_size(document.activation_memory_bytes)} for activations{by_profile}"))
    return table(rows, "")


def _not_loaded(document: EngineInspection) -> list[str]:
    if document.loaded:
        return []
    why = document.why_not_loaded
    return [
        clean(
            f"THE ENGINE WAS NOT LOADED: {why}. This is what its report tells." if why else "read from the report alone"
        )
    ]


def _io(tensors: Sequence[TensorInfo]) -> list[str]:
    return table([(t.kind, t.name, t.type_text, shape_text(t.shape)) for t in tensors], "")


def _profiles(profiles: Sequence[ProfileRecord]) -> list[list[str]]:
    blocks = []
    for number, profile in enumerate(profiles):
        rows = [["input", "min", "opt", "max"]]
        rows += [[n, *map(shape_text, (s.min, s.opt, s.max))] for n, s in profile.items()]
        blocks.append([f"profile {number}", *table(rows, "  ")])
    return blocks


def _edits(edits: Sequence[Edit]) -> list[str]:
    if not edits:
        return []
    return ["rewritten before it was built", *(clean(f"  {e.node}: {e.what}") for e in edits)]


def _layers(document: EngineInspection) -> list[str]:
    layers = document.layers
    if layers is None:
        return []
    if document.details == "names":
        lines = ["layers (built without details: --profiling-verbosity detailed has them)"]
        return lines + [clean(f"  {_time(layer)}{layer.name}") for layer in layers]
    rows = [("type", "precision", "input", "output", "us", "layer")]
    for layer in layers:
        rows.append(
            (
                layer.type,
                layer.precision or "-",
                first_tensor(layer.inputs),
                first_tensor(layer.outputs),
                "-" if layer.time_us is None else f"{layer.time_us:.1f}",
                _cut(layer.name),
            )
        )
    return ["layers", *table(rows, "  ")]


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 3] + "..."


def _time(layer: Layer) -> str:
    return "" if layer.time_us is None else f"{layer.time_us:8.1f} us  "


def first_tensor(tensors: Sequence[LayerTensor]) -> str:
    """Returns type and shape of the first of a layer's tensors."""
    if not tensors:
        return "-"
    shape = tensors[0].shape
    return f"{tensors[0].dtype or '?'} {shape_text(shape) if shape is not None else ''}".strip()


def _summary(document: EngineInspection) -> list[str]:
    summary, path = document.summary, document.file.path
    if summary is None:
        return [f"{leading(path)}: {count(len(document.profiles or ()), 'profile')}; no layer is known"]
    precisions = ", ".join(f"{number} in {name}" for name, number in summary.precisions.items())
    parts = [f"{count(summary.layers, 'layer')}" + (f" ({precisions})" if precisions else "")]
    parts.append(count(summary.reformats, "reformat"))
    quantizers = summary.quantizers
    if quantizers.fused or quantizers.alone:
        parts.append(f"{len(quantizers.fused)} Q/DQ fused, {len(quantizers.alone)} alone")
    if document.time is not None and document.time.layers_us is not None:
        parts.append(f"{document.time.layers_us:.1f} us in layers at opt of profile 0")
    return [f"{leading(path)}: {clean('; '.join(parts))}"]
