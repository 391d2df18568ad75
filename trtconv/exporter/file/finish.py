"""From what an exporter wrote to the file that is handed out: names, sources, versions, one piece."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from trtconv.core.documents.export import Blame, SizeRule
from trtconv.core.errors import ExportFailed
from trtconv.core.target import Target
from trtconv.core.version import __version__
from trtconv.exporter.module.source_line import blame_stack_text, first_line
from trtconv.exporter.module.torch_module import Subject
from trtconv.graph.attributes import attribute
from trtconv.graph.cut_shapes import SELECTIONS
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import SOURCE_KEY
from trtconv.graph.stored_bounds import DIMS_KEY
from trtconv.graph.walk import all_nodes, reads

MODULE_KEY, CODE_KEY = "trtconv.module", "trtconv.code"
"""Node metadata: path of the submodule, and the text of the line that SOURCE_KEY names."""
_SCOPES, _STACK, _NAMESPACE = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace", "namespace"
Dims = Mapping[str, tuple[int | str, ...]]


def read_raw(path: Path) -> onnx.ModelProto:
    """Reads what an exporter wrote, its weights left on disk where they are beside it."""
    return onnx.load(path, load_external_data=False)


def clean(proto: onnx.ModelProto, subject: Subject) -> None:
    """Gives a model node names and sources; takes out what tells of this machine.

    Args:
        proto: What an exporter wrote; changed in place.
        subject: What was exported.
    """
    graph = proto.graph
    _forget_symbols(graph)
    _sources(graph, subject)
    _name_nodes(graph.node)
    for part in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, graph, *proto.functions):
        _clear(part)
    _clear(proto)
    for function in proto.functions:
        for node in function.node:
            _clear(node)


def without_found(proto: onnx.ModelProto, outputs: Dims) -> Dims:
    """Returns dimensions of outputs without sizes that only the values of the inputs tell, whatever trials had.

    What is as large as what was found, or the first hundred of it, had one size wherever enough was found. Such an
    axis has a name of its own, unless ONNX's inference shows its size.

    Args:
        proto: The file.
        outputs: Dimensions of its outputs, as they were seen.
    """
    dependents: set[str] = set()
    for node in proto.graph.node:
        if any(inner.op_type in SELECTIONS for inner in all_nodes([node])) or not dependents.isdisjoint(reads(node)):
            dependents.update(node.output)
    if dependents.isdisjoint(outputs):
        return outputs
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    shapes = OnnxModel(bare, Path()).main.shapes
    return {
        name: dims if name not in dependents else _open_dims(name, dims, shapes.get(name))
        for name, dims in outputs.items()
    }


def _open_dims(name: str, dims: Sequence[int | str], shape: Sequence[int | None] | None) -> tuple[int | str, ...]:
    sizes = shape if shape is not None and len(shape) == len(dims) else [None] * len(dims)
    pairs = enumerate(zip(dims, sizes, strict=True))
    return tuple(dim if dim == size or isinstance(dim, str) else f"{name}_{axis}" for axis, (dim, size) in pairs)


def label(
    proto: onnx.ModelProto, inputs: Dims, outputs: Dims, rules: Sequence[SizeRule], facts: Mapping[str, str]
) -> None:
    """Gives a model the names of its dimensions, and writes down what is known of them.

    Args:
        proto: The model; changed in place.
        inputs: Dimensions of the inputs, sizes or names.
        outputs: Dimensions of the outputs; a name that says how it follows from the inputs'.
        rules: What is known of the dimensions; kept in the model's metadata.
        facts: More metadata of the model.
    """
    for value in (*proto.graph.input, *proto.graph.output):
        dims = inputs.get(value.name, outputs.get(value.name))
        if dims is not None:
            _set_dims(value, dims)
    record = {rule.name: _rule_record(rule) for rule in rules}
    onnx.helper.set_model_props(proto, {"trtconv": __version__, DIMS_KEY: json.dumps(record), **facts})


def _rule_record(rule: SizeRule) -> dict[str, object]:
    """Returns what a model keeps of a rule: with the bounds to build for, where they were asked for and are valid."""
    record = {key: value for key, value in rule.to_json().items() if key != "from"}
    if rule.asked is not None and rule.max is not None:
        record["bounds"] = [rule.min, rule.example, rule.max]
    return record


def _clear(part: Any) -> None:
    for field in ("metadata_props", "doc_string"):
        with contextlib.suppress(ValueError):
            part.ClearField(field)


def _set_dims(value: onnx.ValueInfoProto, dims: Sequence[int | str]) -> None:
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for dim in dims:
        added = shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        else:
            added.dim_param = dim


def _forget_symbols(graph: onnx.GraphProto) -> None:
    """Takes the exporter's own symbols (8*s56) from inner tensors: the inputs no longer speak of them."""
    for value in graph.value_info:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.ClearField("dim_param")


def _sources(graph: onnx.GraphProto, subject: Subject) -> None:
    """Says for each node which submodule and which line of Python it comes from."""
    for node in all_nodes(graph.node):
        old = {prop.key: prop.value for prop in node.metadata_props}
        module = _module_path(old, node.name, subject)
        blame = blame_stack_text(old[_STACK]) if _STACK in old else _caller(module, subject)
        _clear(node)
        origin = {MODULE_KEY: module}
        if blame is not None:
            origin |= {SOURCE_KEY: f"{blame.file}:{blame.line}", CODE_KEY: blame.code}
        for key, value in origin.items():
            if value:
                node.metadata_props.add(key=key, value=value)


def _module_path(props: Mapping[str, str], name: str, subject: Subject) -> str:
    """Returns the submodule's path: from the scopes that torch.export's exporter keeps, or the tracer's node name."""
    if _SCOPES in props:
        with contextlib.suppress(ValueError, SyntaxError):
            scopes = [s for s in ast.literal_eval(props[_SCOPES])[:-1] if s and not s.startswith("_empty_nn_module")]
            return scopes[-1].removeprefix(subject.prefix) if scopes and scopes[-1] != "inner" else ""
    parts = [part for part in name.split("/")[:-1] if part]
    # The tracer repeats the path of a container: /enc1/enc1.0/Conv.
    path = ""
    for part in parts:
        path = part if path and part.startswith(path + ".") else f"{path}.{part}" if path else part
    return path.removeprefix(subject.prefix)


def _caller(module: str, subject: Subject) -> Blame | None:
    return subject.calls.get(subject.prefix + module) if module else None


def _name_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Names every node by its submodule and operator, as in /up1/ConvTranspose: names that say something."""
    numbers: dict[str, int] = {}
    for node in nodes:
        module = next((p.value for p in node.metadata_props if p.key == MODULE_KEY), "")
        stem = "/".join(["", *([module] if module else []), node.op_type])
        number = numbers[stem] = numbers.get(stem, -1) + 1
        node.name = stem if number == 0 else f"{stem}_{number}"


def set_versions(proto: onnx.ModelProto, target: Target | None) -> None:
    """Sets the IR version that the target reads.

    Raises:
        ExportFailed: The model needs a newer opset than the target reads.
    """
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    limit = 20 if target is None else target.max_opset
    if opset > limit:
        raise ExportFailed(f"the exporter wrote opset {opset}, {target} reads up to {limit}")
    proto.ir_version = 8 if target is not None and target.before(9) else min(proto.ir_version, 10)


def write_axis(proto: onnx.ModelProto) -> int:
    """Writes the axis attribute of per-channel Q/DQ nodes that leave it to the default.

    TensorRT's parser took 0 for the default up to 10.6, ONNX says 1.

    Returns:
        How many nodes were changed.
    """
    sizes = {t.name: list(t.dims) for t in proto.graph.initializer}
    changed = 0
    for node in all_nodes(proto.graph.node):
        quantizes = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        if quantizes and len(node.input) > 1 and attribute(node, "axis") is None:
            scale = sizes.get(node.input[1])
            if scale is not None and len(scale) == 1 and scale != [1]:
                node.attribute.append(onnx.helper.make_attribute("axis", 1))
                changed += 1
    return changed


def check_proto(path: Path, proto: onnx.ModelProto) -> None:
    """Writes the changed model over the raw one and runs the ONNX checker on it.

    Raises:
        ExportFailed: The exporter wrote an invalid model.
    """
    path.write_bytes(proto.SerializeToString())
    try:
        onnx.checker.check_model(path)
    except Exception as error:
        raise ExportFailed(f"the exporter wrote an invalid model: {first_line(error)}") from error


def custom_domains(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the operators that are neither ONNX's nor the model's own functions."""
    own = {(f.domain, f.name) for f in proto.functions}
    foreign = {
        f"{n.domain}::{n.op_type}"
        for n in all_nodes(proto.graph.node)
        if n.domain not in ("", "ai.onnx") and (n.domain, n.op_type) not in own
    }
    return tuple(sorted(foreign))
