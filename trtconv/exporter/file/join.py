"""Files of parts joined into one model, with weights that several of them have stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import onnx
from onnx import TensorProto, compose
from onnx.external_data_helper import uses_external_data

from trtconv.core.errors import ExportFailed
from trtconv.core.files import streams_together
from trtconv.core.reading import open_plain
from trtconv.exporter.file.write import copy_weights, external_entry
from trtconv.exporter.job import Draft
from trtconv.graph.external_data import refer_to

_ALIGNED = 4096
"""Weights begin at multiples of it, so that they can be mapped into memory."""
_SMALL = 1024
"""Bytes up to which a weight that an exporter left in its model stays there."""


def shared_weights(drafts: Sequence[Draft], data: Path) -> int:
    """Writes the weights of all drafts into one file, each distinct one once, and has the drafts refer to it.

    Args:
        drafts: Files with their weights beside them; changed in place.
        data: Where the weights go, which lies beside the models in the end.

    Returns:
        Bytes that were saved, because several tensors have the same values.
    """
    places: dict[bytes, int] = {}
    saved = 0
    with data.open("xb") as file:
        for draft in drafts:
            for tensor in draft.proto.graph.initializer:
                if not uses_external_data(tensor) and len(tensor.raw_data) <= _SMALL:
                    continue
                digest, size = _digest(tensor, draft.path.parent)
                if digest in places:
                    saved += size
                else:
                    file.write(b"\0" * (-file.tell() % _ALIGNED))
                    places[digest] = file.tell()
                    _append(tensor, draft.path.parent, file)
                refer_to(tensor, data.name, places[digest], size)
    return saved


def _digest(tensor: TensorProto, folder: Path) -> tuple[bytes, int]:
    """Returns what tells the values of a tensor from others, and how many bytes they are."""
    if not uses_external_data(tensor):
        return hashlib.sha256(tensor.raw_data).digest(), len(tensor.raw_data)
    sha, size = hashlib.sha256(), external_entry(tensor)[2]
    copy_weights(tensor, folder, sha.update)
    return sha.digest(), size


def _append(tensor: TensorProto, folder: Path, file: BinaryIO) -> None:
    if uses_external_data(tensor):
        copy_weights(tensor, folder, file.write)
    else:
        file.write(tensor.raw_data)


def joined(drafts: Mapping[str, Draft], outputs: Sequence[str]) -> onnx.ModelProto:
    """Returns the model of all parts, one after the other; what they read and make has the same name in each.

    Args:
        drafts: Name of each part to its file, in the order in which they run.
        outputs: Names of what the whole returns.

    Raises:
        ExportFailed: The parts were written in different opsets.
    """
    whole = onnx.ModelProto()
    versions: dict[str, int] = {}
    for name, draft in drafts.items():
        own = compose.add_prefix(
            draft.proto, f"{name}/", rename_inputs=False, rename_outputs=False, rename_functions=True
        )
        for node in own.graph.node:
            node.name = node.name.replace("//", "/")
        for opset in own.opset_import:
            if versions.setdefault(opset.domain, opset.version) != opset.version:
                raise ExportFailed(
                    f"part {name} was written in opset {opset.version}, another one in {versions[opset.domain]}",
                    "Choose one way for all: --exporter torch.export or torchscript.",
                )
        whole.ir_version = max(whole.ir_version, own.ir_version)
        whole.functions.extend(own.functions)
        for field in ("node", "initializer", "value_info"):
            getattr(whole.graph, field).extend(getattr(own.graph, field))
        there = {value.name for value in (*whole.graph.input, *_results(whole.graph))}
        whole.graph.input.extend(value for value in own.graph.input if value.name not in there)
        whole.graph.value_info.extend(value for value in own.graph.output if value.name not in outputs)
        whole.graph.output.extend(value for value in own.graph.output if value.name in outputs)
    whole.graph.name = "pipeline"
    whole.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions.items())
    return whole


def _results(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    names = {name for node in graph.node for name in node.output}
    yield from (value for value in (*graph.value_info, *graph.output) if value.name in names)


def write_joined(models: Mapping[Path, bytes], data: Path, output: Path) -> None:
    """Writes files that refer to the same weights, and these beside them: all or none.

    Args:
        models: Where each goes, to its content.
        data: The weights, where they were made.
        output: Where the weights go.

    Raises:
        InputError: A file cannot be written.
    """
    with streams_together({output: False, **dict.fromkeys(models, False)}) as files, open_plain(data) as source:
        while chunk := source.read(1 << 22):
            files[0].write(chunk)
        for file, content in zip(files[1:], models.values(), strict=True):
            file.write(content)
