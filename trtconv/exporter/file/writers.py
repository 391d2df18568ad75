"""The two exporters of torch, each writing a raw ONNX file into a folder of ours."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from trtconv.core.errors import ExportFailed
from trtconv.exporter.module.state import restored
from trtconv.exporter.module.torch_module import Subject, example_at
from trtconv.exporter.module.values import caught_error
from trtconv.exporter.patches.adaptive_pooling import adaptive_pooling
from trtconv.exporter.patches.causal_masks import masks_unseen
from trtconv.exporter.patches.onnx_log import no_dump
from trtconv.exporter.patches.onnxscript_costs import idle_work_left_out
from trtconv.exporter.patches.output_size import computed_output_sizes, translation
from trtconv.exporter.request import Axes

Translations = Mapping[Any, Callable[..., Any]]
NEWEST_OPSET = 20
"""What both exporters write by default, and every TensorRT from 10.0 reads."""
DYNAMO_OPSET = 18
"""Oldest opset that the exporter over torch.export writes itself; older ones are converted from it."""


def write_program(
    program: torch.export.ExportedProgram, subject: Subject, opset: int, folder: Path, translations: Translations
) -> Path:
    """Writes with the exporter over torch.export; weights go to a file beside, straight from torch's memory.

    Args:
        program: The program.
        subject: What it was made of.
        opset: The opset to write.
        folder: Where.
        translations: Operators of torch to functions that write them, besides those that the exporter knows.
    """
    path = folder / "program.onnx"
    with idle_work_left_out():
        result = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[decl.name for decl in subject.inputs],
            output_names=list(subject.outputs),
            opset_version=max(opset, DYNAMO_OPSET),
            verbose=False,
            custom_translation_table={**translation(), **translations},
        )
    assert result is not None
    if opset < DYNAMO_OPSET:
        _convert(result.model, opset)
    result.save(path, external_data=True)
    return path


def _convert(model: Any, opset: int) -> None:
    """Converts to an older opset; ONNX's converter drops the nodes' metadata, which is put back."""
    from onnxscript import version_converter

    metadata = {node.outputs[0].name: dict(node.metadata_props) for node in model.graph}
    version_converter.convert_version(model, opset, fallback=True)
    for node in model.graph:
        node.metadata_props.update(metadata.get(node.outputs[0].name, {}))


def write_trace(subject: Subject, axes: Axes, sizes: Mapping[str, int], opset: int, folder: Path) -> tuple[Path, bool]:
    """Writes with the tracing exporter.

    Args:
        subject: The module.
        axes: Its dynamic dimensions.
        sizes: The sizes to trace at.
        opset: The opset to write.
        folder: Where.

    Returns:
        The file, and whether the tracer made a constant of something that it had followed until then.

    Raises:
        ExportFailed: An operation fails and the module goes on: torch's tracer ends the process then.
    """
    example = example_at(subject, axes, sizes)
    line = None if subject.scripted else caught_error(subject, example)
    if line is not None:
        raise ExportFailed(f"the code goes on where an operation fails, which a trace does not survive: from {line}")
    path = folder / "trace.onnx"
    axis_names = {
        decl.name: {a: n for a, n in enumerate(axes.names(i, len(decl.shape))) if n is not None}
        for i, decl in enumerate(subject.inputs)
    }
    # Tracing cannot tell a size that is computed from one that is known; where nothing is dynamic all are known.
    sized = computed_output_sizes(operator=False) if axes.places else contextlib.nullcontext()
    pooling = adaptive_pooling() if _spatial(axes) else contextlib.nullcontext()
    with (
        torch.no_grad(),
        restored(subject.module),
        no_dump(),
        masks_unseen(),
        pooling,
        sized as counted,
        _hardening() as messages,
    ):
        torch.onnx.export(
            _traceable(subject, example),
            example,
            path,
            input_names=[decl.name for decl in subject.inputs],
            output_names=list(subject.outputs),
            dynamic_axes={name: dims for name, dims in axis_names.items() if dims} | _all_dynamic(subject, axes),
            opset_version=opset,
            dynamo=False,
        )
    subject.sized = counted.count if counted else 0
    return path, any("Converting a tensor to a Python" in str(warning.message) for warning in messages)


def _traceable(subject: Subject, example: tuple[torch.Tensor, ...]) -> torch.nn.Module:
    """Returns the module; traced already where parts of it are TorchScript, which the exporter itself cannot call."""
    if subject.scripted or not any(isinstance(part, torch.jit.ScriptModule) for part in subject.module.modules()):
        return subject.module
    traced: torch.nn.Module = torch.jit.trace(subject.module, example, check_trace=False)
    return traced


def _spatial(axes: Axes) -> bool:
    """Whether more than batches change: the tracer cannot tell a size that it computes from one that it knows."""
    return any(axis > 0 for places in axes.places.values() for _, axis in places)


@contextlib.contextmanager
def _hardening() -> Iterator[list[warnings.WarningMessage]]:
    """Collects what the tracer warns of."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        yield messages


def _all_dynamic(subject: Subject, axes: Axes) -> dict[str, dict[int, str]]:
    """Outputs' axes are named afterwards; the exporter only must not fix them to the example's sizes."""
    if not axes.places:
        return {}
    return {
        name: {axis: f"{name}_{axis}" for axis in range(tensor.dim())}
        for name, tensor in zip(subject.outputs, subject.expected, strict=True)
        if tensor.dim()
    }


def opset_for(limit: int | None) -> int:
    """Returns the opset to write for a target that reads up to `limit`."""
    return NEWEST_OPSET if limit is None else min(limit, NEWEST_OPSET)
