"""What Triton Inference Server has to know of an engine: config.pbtxt, made of the report."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from trtconv.cli.formats.json import render
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.commands import TritonModel, TritonReport
from trtconv.core.documents.pipeline import PipelineDocument
from trtconv.core.documents.saved import SavedReport
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import read_plain

TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
}
"""TensorRT's types to Triton's; Triton has none for the others."""


@frozen
class Served:
    """How an engine is served.

    Args:
        name: Of the model, which is that of its folder.
        batch: Largest batch that Triton may make of requests; 0 where requests bring their own.
        why: Why Triton makes no batches; empty where it does.
        config: Content of config.pbtxt.
    """

    name: str
    batch: int
    why: str
    config: str


@frozen
class PluginLibrary:
    """A library of plugins that was given.

    Args:
        path: Where it lies.
        data: Its content.
        sha256: Of the content.
    """

    path: Path
    data: bytes
    sha256: str

    @classmethod
    def read(cls, path: Path) -> PluginLibrary:
        """Returns a file; raises InputError where it cannot be read."""
        data = read_plain(path)
        return cls(path, data, hashlib.sha256(data).hexdigest())


def libraries_of(engine: Path, report: SavedReport, libraries: Sequence[PluginLibrary]) -> tuple[PluginLibrary, ...]:
    """Returns the libraries of plugins that an engine needs beside it.

    Args:
        engine: The engine.
        report: What `trtconv build` wrote of it.
        libraries: Those to choose from.

    Raises:
        InputError: One is not among them.
    """
    by_hash = {library.sha256: library for library in libraries}
    plugins = [plugin for plugin in report.report.plan.plugins if not plugin.serialized]
    for plugin in plugins:
        if plugin.sha256 not in by_hash:
            raise InputError(
                f"{engine} was built with the plugins of {plugin.file} (SHA-256 {plugin.sha256}), which is not given",
                f"Give the same file: --plugin {shlex.quote(plugin.file)}.",
            )
    return tuple(by_hash[plugin.sha256] for plugin in plugins)


def served(name: str, report: SavedReport) -> Served:
    """Returns how an engine is served.

    Args:
        name: Of the model.
        report: What `trtconv build` wrote of the engine.

    Raises:
        InputError: Triton cannot serve it: it is for TensorRT-RTX, has no weights, or a type that Triton does not know.
    """
    _refuse(report)
    tensors = report.report.io
    if not tensors:
        raise InputError(f"{report.path} tells of no inputs and outputs", "Build the engine again.")
    _refuse_misfits(report, tensors)
    batch, why = _batch(report, tensors)
    lines = [f"name: {_text(name)}", 'platform: "tensorrt_plan"', f"max_batch_size: {batch}"]
    for kind in ("input", "output"):
        lines += [f"{kind} ["]
        blocks = [_tensor(report, tensor, batched=batch > 0) for tensor in tensors if tensor.kind == kind]
        lines += [*",\n".join(blocks).splitlines(), "]"]
    lines += _instances(len(report.profiles))
    if batch > 1:
        best = sorted({_batch_range(profile, tensors)[1] for profile in report.profiles} - {1})
        preferred = f" preferred_batch_size: [ {', '.join(map(str, best))} ] " if best else " "
        lines.append(f"dynamic_batching {{{preferred}}}")
    return Served(name, batch, why, "\n".join(lines) + "\n")


def _refuse(report: SavedReport) -> None:
    build = report.report
    if build.runtime.family == "rtx":
        raise InputError(
            f"{report.path}: the engine is for TensorRT-RTX, which Triton has no backend for",
            "Build with --target tensorrt, by the version of TensorRT that is in the Triton container.",
        )
    if build.plan.options.strip_weights:
        raise InputError(
            f"{report.path}: the engine has no weights, and Triton refits none",
            "Give the file that has them with --weights MODEL.onnx, on a machine with the engine's GPU.",
        )


def _refuse_misfits(report: SavedReport, tensors: Sequence[TensorInfo]) -> None:
    """Raises InputError where profiles are not of the inputs that the report lists: it may be a stranger's."""
    inputs = [tensor for tensor in tensors if tensor.kind == "input"]
    for profile in report.profiles:
        for tensor in inputs:
            shapes = profile.inputs.get(tensor.name)
            fits = shapes is None or {len(shapes.min), len(shapes.opt), len(shapes.max)} == {len(tensor.shape)}
            if not fits or (shapes is None and -1 in tensor.shape and tensor.name not in profile.values):
                raise InputError(
                    f"{report.path} has a profile that is not one of input {tensor.name!r}", "Build the engine again."
                )


def _batch(report: SavedReport, tensors: Sequence[TensorInfo]) -> tuple[int, str]:
    """Returns the largest batch that Triton may make, and why it may make none."""
    if any(not tensor.shape or tensor.shape[0] != -1 for tensor in tensors):
        return 0, "not every input and output has a dynamic first dimension"
    if not any(tensor.kind == "input" for tensor in tensors):
        return 0, "it has no inputs"
    if any(profile.values for profile in report.profiles):
        return 0, "an input holds sizes"
    first = {spec.dims[0] if spec.dims else None for spec in report.inputs}
    if len(first) != 1:
        return 0, "the first dimension is not the same one in every input"
    ranges = [_batch_range(profile, tensors) for profile in report.profiles]
    if min(low for low, _, _ in ranges) != 1:
        return 0, "no profile takes a single request"
    return max(high for _, _, high in ranges), ""


def _batch_range(profile: ShapeProfile, tensors: Sequence[TensorInfo]) -> tuple[int, int, int]:
    name = next(tensor.name for tensor in tensors if tensor.kind == "input")
    shapes = profile.inputs[name]
    return shapes.min[0], shapes.opt[0], shapes.max[0]


def _tensor(report: SavedReport, tensor: TensorInfo, batched: bool) -> str:
    if tensor.dtype not in TYPES:
        raise InputError(
            f"{report.path}: {tensor.kind} {tensor.name} is {tensor.dtype}, which Triton has no type for",
            "Cast it in the model.",
        )
    more = []
    if len(tensor.shape) == batched:
        # Triton has no tensors without dimensions.
        more.append("reshape { shape: [ ] }")
    if tensor.format is not None:
        # Of Triton 24.08 and newer; requests bring the elements as the engine has them.
        more.append("is_non_linear_format_io: true")
    if any(tensor.name in profile.values for profile in report.profiles):
        more.append("is_shape_tensor: true")
    return _block(tensor, batched, more)


def _block(tensor: TensorInfo, batched: bool, more: Sequence[str] = ()) -> str:
    """Returns an input or output of a model, with what else is said of it."""
    dims = ", ".join(map(str, list(tensor.shape)[1 if batched else 0 :] or [1]))
    lines = [f"name: {_text(tensor.name)}", f"data_type: {TYPES[tensor.dtype]}", f"dims: [ {dims} ]", *more]
    return "\n".join(["  {", *(f"    {line}" for line in lines), "  }"])


def ensemble(name: str, document: PipelineDocument, members: Sequence[tuple[Served, Sequence[TensorInfo]]]) -> Served:
    """Returns how Triton runs engines one after the other, as one model: what flows between them stays in the server.

    Args:
        name: Of the ensemble.
        document: The pipeline.
        members: How each of its engines is served, and the inputs and outputs of it, in order.

    Raises:
        InputError: Two engines have different types for the same tensor, between which Triton does not cast.
    """
    tensors: dict[str, TensorInfo] = {}
    for served_as, own in members:
        for tensor in own:
            other = tensors.setdefault(tensor.name, tensor)
            if other.dtype != tensor.dtype:
                raise InputError(
                    f"{served_as.name} has {tensor.dtype} for {tensor.name}, another engine {other.dtype}",
                    "Build the parts for one target and precision.",
                )
    # No model of an ensemble may take smaller batches than the ensemble.
    batch = min(member.batch for member, _ in members)
    lines = [f"name: {_text(name)}", 'platform: "ensemble"', f"max_batch_size: {batch}"]
    for kind, ends in (("input", document.inputs), ("output", document.outputs)):
        blocks = [_block(tensors[tensor.name], batched=batch > 0) for tensor in ends]
        lines += [f"{kind} [", *",\n".join(blocks).splitlines(), "]"]
    lines.append("ensemble_scheduling {")
    for member, own in members:
        lines += ["  step [", "    {", f"      model_name: {_text(member.name)}", "      model_version: -1"]
        for tensor in own:
            lines.append(f"      {tensor.kind}_map {{ key: {_text(tensor.name)} value: {_text(tensor.name)} }}")
        lines += ["    }", "  ]"]
    lines.append("}")
    return Served(name, batch, "" if batch else "one of its engines makes none", "\n".join(lines) + "\n")


def _instances(profiles: int) -> Iterator[str]:
    """Yields that all profiles may be used; by itself Triton takes the first alone."""
    indices = ", ".join(f'"{index}"' for index in range(profiles))
    choice = f" profile: [ {indices} ]" if profiles > 1 else ""
    yield f"instance_group [ {{ count: 1 kind: KIND_GPU{choice} }} ]"


def _text(text: str) -> str:
    """Returns a string of a protobuf text, its bytes beyond ASCII written out."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:03o}"
        for byte in text.encode(errors="replace")
    )
    return f'"{plain}"'


def triton_json(files: Sequence[tuple[Served, str, Sequence[PluginLibrary]]]) -> str:
    """Renders what was written: each model, its folder, and the libraries beside it."""
    models = []
    for model, folder, own in files:
        names = tuple(library.path.name for library in own)
        models.append(TritonModel(model.name, folder, model.batch, model.why, names or None))
    return render(TritonReport(tuple(models)).to_json())
