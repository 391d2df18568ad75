"""The only door to onnx and onnx-graphsurgeon: reading, looking at, operating on and writing ONNX models.

A model is read without its external data: weights are fetched one by one, when something needs their values. Passes
operate through a `Field`: an onnx-graphsurgeon graph of just the nodes that a pass asks for and their surroundings.
Closing a field writes back the replaced nodes and nothing else, so whatever graph-surgeon would lose on a round trip
(metadata, doc strings, unusual attributes, the order of nodes) stays as it was.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError, EncodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.logger import G_LOGGER

from trtconv import validity
from trtconv.columns import Columns
from trtconv.deconv import crops, geometry_of
from trtconv.errors import InputError
from trtconv.files import atomic_stream, atomic_write
from trtconv.findings import Location
from trtconv.shapes import InputSpec

# It prints to stdout, which belongs to the report.
G_LOGGER.severity = G_LOGGER.CRITICAL

_ONNX_DOMAINS = ("", "ai.onnx")
_KNOWN_DOMAINS = (*_ONNX_DOMAINS, "com.microsoft")
"""Domains whose operators passes may ask for; ONNX Runtime's quantiser writes the last one."""
CONCERNED = (
    *("ConvTranspose", "QuantizeLinear", "DequantizeLinear", "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger"),
    *("QGemm", "QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearGlobalAveragePool"),
    *("QLinearLeakyRelu", "QLinearMatMul", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
)
"""Operators that rules and passes are about, so that functions which hold them are inlined."""
_UNTRACEABLE = re.compile(r" \| |\](?=[^\]\w])")
"""What TensorRT's layer metadata, "[ONNX Layer: name | inside]", could not be read back from if a name had it."""
_UNUSABLE_NAMES = ("", "?", "-1", "None", "unk")
_SMALL_ELEMENTS = 64
"""Integer tensors up to this size are read from external data at once: shape inference needs their values."""
_MAX_CONE = 32
"""Nodes that are looked at, at most, to find where a weight comes from."""
_STACK_TRACES = ("pkg.torch.onnx.stack_trace", "pkg.onnxscript.stack_trace")
SOURCE_KEY = "trtconv.source"
"""Node metadata that `trtconv export` writes: the line of Python, "models/unet.py:31"."""
_SOURCE = re.compile(r"[^\n]+:[1-9]\d*")
_UNREADABLE_HINT = "Export the model again, or copy the file again: it may be truncated or a Git LFS pointer."
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_EXTERNAL = onnx.TensorProto.EXTERNAL
_LISTS = {onnx.AttributeProto.INTS: "ints", onnx.AttributeProto.FLOATS: "floats"}
_SINGLE = frozenset(getattr(onnx.AttributeProto, name) for name in ("INT", "FLOAT", "TENSOR"))
_SMALL_BYTES = 1 << 10
"""Tensors up to this size stay in the model's file when the others move out of it."""
_LIGHT_BYTES = 1 << 24
"""Up to this size a model is handed over with its weights: to take them out costs more than to copy them."""
_ALIGNMENT = 1 << 12
"""Readers map external data into memory, by pages."""
PROTOBUF_LIMIT = 2**31 - 2**20
"""Bytes that fit one protobuf message, with some room for the rest of the model."""


class UnsupportedFunctions(Exception):
    """Model-local functions cannot be inlined."""


class Scope:
    """One graph of a model - the main graph or the body of an If, Loop or Scan - and the names that it sees.

    Args:
        model: The model it belongs to.
        graph: The live GraphProto.
        path: "" for the main graph, "loop_node/body" for a subgraph; need not be unique.
        parent: The graph around it.
    """

    def __init__(self, model: OnnxModel, graph: onnx.GraphProto, path: str, parent: Scope | None) -> None:
        self.model = model
        self.graph = graph
        self.path = path
        self.parent = parent
        self.position = 0
        """Place among the model's scopes; no pass changes it."""

    @functools.cached_property
    def columns(self) -> Columns:
        """This graph's nodes, column by column."""
        return Columns(self.graph.node)

    def forget(self) -> None:
        """Forgets what was derived from the nodes' columns and the initializers."""
        for cached in ("initializers", "producers", "by_op", "consumers"):
            self.__dict__.pop(cached, None)
        self.model.__dict__.pop("mentions", None)

    @functools.cached_property
    def initializers(self) -> dict[str, onnx.TensorProto]:
        """This graph's own initializers by name."""
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @functools.cached_property
    def producers(self) -> dict[str, int]:
        """Tensor name to the index of the node that makes it."""
        return {name: index for index, outputs in enumerate(self.columns.outputs) for name in outputs if name}

    def initializer(self, name: str) -> onnx.TensorProto | None:
        """Returns an initializer of this graph or of a graph around it."""
        found = self.initializers.get(name)
        return found if found is not None or self.parent is None else self.parent.initializer(name)

    def values(self, name: str) -> NDArray[Any] | None:
        """Returns the values of an initializer or of a Constant node's output; None for anything computed."""
        tensor = self.initializer(name)
        if tensor is not None:
            return self.model.array(tensor)
        scope: Scope | None = self
        while scope is not None and name not in scope.producers:
            scope = scope.parent
        if scope is None:
            return None
        node = scope.columns.nodes[scope.producers[name]]
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        return self.model.array(value) if node.op_type == "Constant" and value is not None else None

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Returns the node of this graph that makes a tensor."""
        index = self.producers.get(name)
        return None if index is None else self.columns.nodes[index]

    @functools.cached_property
    def by_op(self) -> dict[str, list[int]]:
        """Operator type to the nodes of this graph, by position."""
        found: dict[str, list[int]] = {}
        for index, op in enumerate(self.columns.ops):
            found.setdefault(op, []).append(index)
        return found

    @functools.cached_property
    def consumers(self) -> dict[str, list[onnx.NodeProto]]:
        """Tensor name to the nodes of this graph that take it."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node, inputs in zip(self.columns.nodes, self.columns.inputs, strict=True):
            for name in inputs:
                found.setdefault(name, []).append(node)
        return found

    def seen_from(self, name: str) -> Iterator[Scope]:
        """Yields the graphs that mention a tensor of this graph: not those that have another one so named."""
        return (scope for scope in self.model.mentions.get(name, ()) if scope._means(name, self))

    def _means(self, name: str, owner: Scope) -> bool:
        """Whether a name is, in this graph, that of a tensor of `owner`."""
        scope: Scope | None = self
        while scope is not None and scope is not owner:
            if name in scope.producers or name in scope.initializers:
                return False
            scope = scope.parent
        return scope is owner

    def uses_of(self, name: str) -> int:
        """Returns how often a tensor is an input of a node or an output of a graph.

        Branches of one If may use the same names for tensors of their own, which are then told apart.
        """
        if len(self.model.scopes) == 1 or (name not in self.producers and name not in self.initializers):
            return self.model.uses[name]
        return sum(
            len(scope.consumers.get(name, ()))
            + sum(value.name == name for value in (*scope.graph.output, *scope.graph.input))
            for scope in self.seen_from(name)
        )

    def outer_constant(self, name: str) -> onnx.TensorProto | None:
        """Returns what a Constant node in a graph around this one holds, or None."""
        if self.parent is None:
            return None
        index = self.parent.producers.get(name)
        if index is None:
            return self.parent.outer_constant(name)
        node = self.parent.columns.nodes[index]
        if node.op_type != "Constant" or node.domain not in _ONNX_DOMAINS:
            return None
        return next((a.t for a in node.attribute if a.name == "value"), None)

    def location(self, index: int, tensor: str = "") -> Location:
        """Returns the place of a node of this graph."""
        node = self.columns.nodes[index]
        return Location(self.path, index, node.name, node.op_type, tensor, python_line(node))

    def dtype(self, name: str) -> str | None:
        """Returns the element type of a tensor as numpy names it, or None where it is not known."""
        tensor = self.initializer(name)
        if tensor is not None:
            return _dtype_name(tensor.data_type)
        known = _dtype_name(self.model.inferred_types[self.position].get(name, 0))
        return known if known is not None or self.parent is None else self.parent.dtype(name)

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Returns the shape of a tensor, None for each size that is not known, or None where the rank is not."""
        tensor = self.initializer(name)
        if tensor is not None:
            return tuple(tensor.dims)
        known = self.model.inferred_shapes[self.position].get(name)
        return known if known is not None or self.parent is None else self.parent.shape(name)


class OnnxModel:
    """An ONNX model in memory, its external data still on disk.

    Args:
        proto: The model; owned by this object from here on.
        path: The file it came from: external data is looked up beside it.
    """

    def __init__(self, proto: onnx.ModelProto, path: Path) -> None:
        self.proto = proto
        self.path = path
        self._sha: Any = None

    @classmethod
    def load(cls, path: Path, hashed: bool = False) -> OnnxModel:
        """Reads a model; its external data is checked for being there, not read.

        Args:
            path: The file.
            hashed: Whether `digest` will be asked for, which then need not read the file again.

        Raises:
            InputError: The file is missing, a folder, unreadable, truncated or no ONNX model, or its external data is
                missing, too short or outside the model's folder.
        """
        data = read_file(path)
        model = cls(_parse(data, path), path)
        if hashed:
            model._sha = hashlib.sha256(data)
        examined = validity.examine(model.proto)
        if isinstance(examined, str):
            raise InputError(f"{path} is not a valid ONNX model: {examined}", _UNREADABLE_HINT)
        model.__dict__["scopes"] = model._find_scopes(examined)
        model._check_external_data()
        model._embed_small_tensors()
        return model

    @property
    def opset(self) -> int:
        """Version of the default operator set; 0 where the model names none."""
        return max((o.version for o in self.proto.opset_import if o.domain in _ONNX_DOMAINS), default=0)

    @functools.cached_property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The inputs that a caller must give: graph inputs that are no initializers."""
        given = self.main.initializers
        return tuple(_input_spec(value) for value in self.proto.graph.input if value.name not in given)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph outputs."""
        return tuple(value.name for value in self.proto.graph.output)

    @functools.cached_property
    def scopes(self) -> tuple[Scope, ...]:
        """Every graph, the main graph first, each after the graph around it."""
        return self._find_scopes(Columns(self.proto.graph.node))

    def _find_scopes(self, columns: Columns) -> tuple[Scope, ...]:
        main = Scope(self, self.proto.graph, "", None)
        main.columns = columns
        found = (main, *_inner_scopes(main))
        for position, scope in enumerate(found):
            scope.position = position
        return found

    @property
    def main(self) -> Scope:
        """The main graph."""
        return self.scopes[0]

    def nodes(self, *ops: str) -> Iterator[tuple[Scope, int, onnx.NodeProto]]:
        """Yields every node of these standard operators, in every graph."""
        for scope in self.scopes:
            for index in sorted(index for op in set(ops) for index in scope.by_op.get(op, ())):
                if scope.columns.domains[index] in _ONNX_DOMAINS:
                    yield scope, index, scope.columns.nodes[index]

    def has(self, ops: Collection[str]) -> bool:
        """Whether a node of one of these operators is in a graph of the model; functions are not looked into."""
        return any(not scope.by_op.keys().isdisjoint(ops) for scope in self.scopes)

    def array(self, tensor: onnx.TensorProto) -> NDArray[Any]:
        """Returns a tensor's values, reading external data where needed.

        Raises:
            InputError: The values cannot be read.
        """
        try:
            if uses_external_data(tensor):
                inside = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
                inside.raw_data = self._raw(tensor)
                tensor = inside
            values: NDArray[Any] = numpy_helper.to_array(tensor)
            return values
        except Exception as error:
            raise InputError(f"{self.path}: the values of tensor {tensor.name!r} cannot be read: {error}") from error

    @functools.cached_property
    def uses(self) -> Counter[str]:
        """How often each tensor is an input of a node or an output of a graph, in all graphs."""
        return Counter(itertools.chain.from_iterable(_used_names(scope) for scope in self.scopes))

    @functools.cached_property
    def derived(self) -> dict[str, Any]:
        """What other modules found out about the graph, by a name of theirs; forgotten when the graph changes."""
        return {}

    @functools.cached_property
    def mentions(self) -> dict[str, list[Scope]]:
        """Tensor name to the graphs in which a node takes it, or whose input or output it is."""
        found: dict[str, list[Scope]] = {}
        for scope in self.scopes:
            ends = (value.name for value in (*scope.graph.output, *scope.graph.input))
            for name in {*scope.consumers, *ends}:
                found.setdefault(name, []).append(scope)
        return found

    @functools.cached_property
    def inferred(self) -> tuple[list[onnx.ValueInfoProto], ...]:
        """The tensors whose types ONNX's inference knows, one list a scope."""
        data = self._without_misread_pads() or self.without_weights()
        # Inference gives up with an exception on some models that are valid otherwise; little is then known.
        for data_prop in (True, False) if validity.data_can_be_propagated(self.proto.graph) else (False,):
            try:
                inferred = onnx.shape_inference.infer_shapes(data, data_prop=data_prop)
                break
            except Exception:
                continue
        else:
            inferred = onnx.ModelProto.FromString(data)
        graphs = (s.graph for s in OnnxModel(inferred, self.path).scopes) if len(self.scopes) > 1 else (inferred.graph,)
        return tuple([*graph.input, *graph.value_info, *graph.output] for graph in graphs)

    def _without_misread_pads(self) -> bytes | None:
        """Returns a copy with auto_pad SAME_* beside output_padding written as pads; None where there is no such node.

        ONNX's shape inference (1.23) adds the output_padding to the size that SAME asks for. Sizes that the file itself
        states may come from the same inference, so they are left out then.
        """
        places = ((scope, index, _same_pads(scope, index)) for scope, index, _ in self.nodes("ConvTranspose"))
        wrong = [(scope.position, index, pads) for scope, index, pads in places if pads]
        if not wrong:
            return None
        copy = self.skeleton()
        twins = OnnxModel(copy, self.path).scopes
        for position, index, pads in wrong:
            twin = twins[position].graph.node[index]
            kept = [a for a in twin.attribute if a.name not in ("auto_pad", "pads")]
            twin.ClearField("attribute")
            twin.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])
        for scope in twins:
            del scope.graph.value_info[:]
        data: bytes = copy.SerializeToString()
        return data

    @functools.cached_property
    def inferred_shapes(self) -> tuple[Mapping[str, tuple[int | None, ...]], ...]:
        """Tensor name to shape, one entry a scope, by ONNX shape inference; what it cannot tell is left out."""
        return tuple(_Shapes(values) for values in self.inferred)

    @functools.cached_property
    def inferred_types(self) -> tuple[dict[str, int], ...]:
        """Tensor name to ONNX element type, one entry a scope."""
        return tuple({v.name: v.type.tensor_type.elem_type for v in values} for values in self.inferred)

    def skeleton(self) -> onnx.ModelProto:
        """Returns a copy whose large initializers are graph inputs: same shapes and types, no weights."""
        copy = onnx.ModelProto()
        copy.ir_version = self.proto.ir_version
        copy.opset_import.extend(self.proto.opset_import)
        copy.functions.extend(self.proto.functions)
        graph, source = copy.graph, self.proto.graph
        graph.name = source.name
        graph.node.extend(source.node)
        graph.input.extend(source.input)
        graph.output.extend(source.output)
        graph.value_info.extend(source.value_info)
        graph.sparse_initializer.extend(source.sparse_initializer)
        declared = {value.name for value in source.input}
        for tensor in source.initializer:
            if not uses_external_data(tensor) and math.prod(tensor.dims) <= _SMALL_ELEMENTS:
                graph.initializer.append(tensor)
            elif tensor.name not in declared:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        return copy

    def without_weights(self) -> bytes:
        """Returns the model as bytes, for onnx to look at: with its weights where they are small, else a skeleton."""
        large = self.proto.ByteSize() > _LIGHT_BYTES or any(True for _ in self._external_tensors())
        data: bytes = (self.skeleton() if large else self.proto).SerializeToString()
        return data

    def touch(self) -> None:
        """Forgets what was derived from the graph; call after changing it."""
        self.__dict__.pop("scopes", None)
        self.__dict__.pop("uses", None)
        self.__dict__.pop("mentions", None)
        self.forget_shapes()

    def forget_shapes(self) -> None:
        """Forgets what is known of inputs, shapes and types, and what was derived from them."""
        for cached in ("inputs", "inferred", "inferred_shapes", "inferred_types", "derived"):
            self.__dict__.pop(cached, None)

    def serialize(self) -> bytes:
        """Returns the model as bytes; external data stays beside `path`.

        Raises:
            InputError: The model has outgrown a protobuf message.
        """
        try:
            data: bytes = self.proto.SerializeToString()
        except (ValueError, DecodeError, EncodeError) as error:
            raise InputError(
                f"{self.path}: the model with its rewritten weights is over 2 GiB",
                "Save the model with external data (onnx.save_model(..., save_as_external_data=True)) first.",
            ) from error
        return data

    def save(self, path: Path) -> None:
        """Writes a self-contained model: weights inside, or in `data_path` where the whole exceeds 2 GiB.

        Raises:
            InputError: A file cannot be read or written.
        """
        copy = OnnxModel(onnx.ModelProto(), self.path)
        copy.proto.CopyFrom(self.proto)
        if self._fits_one_file():
            copy.embed()
        else:
            copy._move_weights(path)
        atomic_write(path, copy.serialize())

    def _fits_one_file(self) -> bool:
        external = sum(validity.nbytes(tensor) for tensor in self._external_tensors())
        try:
            return len(self.serialize()) + external <= PROTOBUF_LIMIT
        except InputError:
            return False

    def _external_tensors(self) -> Iterator[onnx.TensorProto]:
        """Yields the tensors whose values are in other files: weights, attributes, those of subgraphs and functions."""
        for scope in self.scopes:
            # Asked one by one of thousands of weights, so without a call for each.
            yield from (tensor for tensor in scope.graph.initializer if tensor.data_location == _EXTERNAL)
            for sparse in scope.graph.sparse_initializer:
                yield from filter(uses_external_data, (sparse.values, sparse.indices))
            yield from filter(uses_external_data, scope.columns.tensors())
        for function in self.proto.functions:
            yield from filter(uses_external_data, _node_tensors(function.node))

    def _move_weights(self, path: Path) -> None:
        """Writes the weights to the data file of a model at `path`, and makes them refer to it."""
        data = data_path(path)
        large = [tensor for tensor in self.proto.graph.initializer if len(tensor.raw_data) > _SMALL_BYTES]
        with atomic_stream(data) as file:
            for tensor in (*self._external_tensors(), *large):
                file.write(bytes(-file.tell() % _ALIGNMENT))
                begin = file.tell()
                self._copy_raw(tensor, file)
                _refer(tensor, data.name, begin, file.tell() - begin)
            # An older model there would take the new weights for its own.
            path.unlink(missing_ok=True)

    def _copy_raw(self, tensor: onnx.TensorProto, file: BinaryIO) -> None:
        if not uses_external_data(tensor):
            file.write(tensor.raw_data)
            return
        begin, end = _external_range(tensor)
        for chunk in _chunks(self.path.parent / _external(tensor)["location"], begin, end):
            file.write(chunk)

    def embed(self) -> None:
        """Reads all external data into the model.

        Raises:
            InputError: A file cannot be read.
        """
        for tensor in self._external_tensors():
            try:
                tensor.raw_data = self._raw(tensor)
            except OSError as error:
                raise InputError(f"{self.path}: tensor {tensor.name!r} cannot be read: {error.strerror}") from error
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]

    def _raw(self, tensor: onnx.TensorProto) -> bytes:
        """Returns the bytes of external data; onnx's own reader refuses links, as which caches keep large files."""
        begin, _ = _external_range(tensor)
        path = self.path.parent / _external(tensor)["location"]
        return b"".join(_chunks(path, begin, begin + validity.nbytes(tensor)))

    def digest(self) -> str:
        """Returns the SHA-256 of the model file followed by what it uses of its external data files."""
        sha = hashlib.sha256(read_file(self.path)) if self._sha is None else self._sha.copy()
        for name, begin, end in self._external_ranges:
            for chunk in _chunks(self.path.parent / name, begin, end):
                sha.update(chunk)
        return sha.hexdigest()

    @property
    def _external_ranges(self) -> list[tuple[str, int, int]]:
        """The parts of external files that tensors lie in: file, begin, end; none overlap, in order."""
        merged: list[tuple[str, int, int]] = []
        parts = ((_external(t)["location"], *_external_range(t)) for t in self._external_tensors())
        for name, begin, end in sorted(parts):
            if merged and merged[-1][0] == name and begin <= merged[-1][2]:
                merged[-1] = (name, merged[-1][1], max(end, merged[-1][2]))
            else:
                merged.append((name, begin, end))
        return merged

    @property
    def external_files(self) -> tuple[Path, ...]:
        """The files that hold external data, in order of name."""
        names = {_external(t)["location"] for t in self._external_tensors()}
        return tuple(self.path.parent / name for name in sorted(names))

    def _check_external_data(self) -> None:
        for tensor in self._external_tensors():
            _check_external(tensor, self.path)

    def _embed_small_tensors(self) -> None:
        for tensor in [t for t in self.proto.graph.initializer if t.data_location == _EXTERNAL]:
            if math.prod(tensor.dims) <= _SMALL_ELEMENTS and tensor.data_type == onnx.TensorProto.INT64:
                tensor.CopyFrom(numpy_helper.from_array(self.array(tensor), tensor.name))

    @functools.cached_property
    def _taken(self) -> Counter[str]:
        """How many numbers were tried behind each wanted name; without it thousands of unnamed nodes take minutes."""
        return Counter()

    @functools.cached_property
    def _names(self) -> set[str]:
        return set(itertools.chain.from_iterable(_all_names(scope) for scope in self.scopes))

    def fresh_name(self, wanted: str) -> str:
        """Returns a tensor or node name that the model does not use yet, and takes it."""
        name = wanted
        while name in self._names:
            self._taken[wanted] += 1
            name = f"{wanted}_{self._taken[wanted]}"
        self._names.add(name)
        return name

    def name_nodes(self, op: str) -> None:
        """Gives every node of an operator a name of its own, so that TensorRT's layers can be told apart."""
        seen: set[str] = set()
        for scope, index, node in self.nodes(op):
            if not node.name or node.name in seen or _UNTRACEABLE.search(node.name):
                node.name = self.fresh_name(_UNTRACEABLE.sub("_", node.name) or op)
                scope.columns.names[index] = node.name
            seen.add(node.name)

    def copy(self) -> OnnxModel:
        """Returns a copy; both refer to the same external data."""
        twin = OnnxModel(onnx.ModelProto(), self.path)
        twin.proto.CopyFrom(self.proto)
        return twin

    def fits_halved(self) -> bool:
        """Whether the model, with half the bytes of its external data inside, is small enough for one message."""
        external = sum(validity.nbytes(tensor) for tensor in self._external_tensors())
        return not external or len(self.serialize()) + external // 2 <= PROTOBUF_LIMIT

    def inline_functions(self) -> None:
        """Inlines all model-local functions.

        Raises:
            UnsupportedFunctions: ONNX's inliner refuses.
        """
        if not self.proto.functions:
            return
        from onnx import inliner

        try:
            self.proto = inliner.inline_local_functions(self.proto)
        except RuntimeError as error:
            raise UnsupportedFunctions(str(error)) from error
        self._forget_names()

    def _forget_names(self) -> None:
        self.__dict__.pop("_names", None)
        self.__dict__.pop("_is_flat", None)
        self.touch()

    def inline_functions_with(self, *ops: str) -> tuple[str, ...]:
        """Inlines the model-local functions whose body has one of some operators, directly or through other functions.

        Weights that reach a function as arguments are constants again afterwards.

        Returns:
            Names of the functions that were inlined.

        Raises:
            UnsupportedFunctions: ONNX's inliner refuses, as where a function has another opset than the model.
        """
        called = _called_functions(self.proto) if self.proto.functions else set()
        holders = [f for f in _functions_with(self.proto.functions, ops) if (f.domain, f.name) in called]
        if holders:
            from onnx import inliner

            try:
                self.proto = inliner.inline_selected_functions(self.proto, [(f.domain, f.name) for f in holders])
            except RuntimeError as error:
                raise UnsupportedFunctions(str(error)) from error
            self._forget_names()
        return tuple(function.name for function in holders)


class _Shapes(Mapping[str, "tuple[int | None, ...]"]):
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


class Field:
    """Some nodes of one graph, opened for operation as an onnx-graphsurgeon graph.

    The field holds the nodes of the asked operators, their direct neighbours, and the nodes that their further inputs
    (weights, biases, scales) come from. Edit it in graph-surgeon's ways, hand the result to `replace`, then `close`.

    Args:
        scope: The graph.
        ops: Operators that the pass is about.
        concerns: Picks among the nodes of these operators, by position; None takes all.
        looks_around: Whether the neighbours are needed.
    """

    def __init__(
        self,
        scope: Scope,
        ops: Collection[str],
        concerns: Callable[[int], bool] | None = None,
        looks_around: bool = True,
    ) -> None:
        self.model = scope.model
        self.scope = scope
        self._tensors: dict[str, gs.Tensor] = {}
        self._index: dict[int, int] = {}
        self._replaced: dict[int, list[gs.Node]] = {}
        self._ours: dict[int, gs.Constant] = {}
        self._bare: set[int] = set()
        self._folded: dict[str, NDArray[Any]] = {}
        wanted = {
            index
            for op in ops
            for index in scope.by_op.get(op, ())
            if scope.columns.domains[index] in _KNOWN_DOMAINS and (concerns is None or concerns(index))
        }
        nodes = [self._import(index) for index in _field_indices(scope, wanted, looks_around)]
        self.graph = gs.Graph(nodes=nodes, opset=self.model.opset)
        self.candidates = [n for n in nodes if self._index[id(n)] in wanted and id(n) not in self._bare]

    def _import(self, index: int) -> gs.Node:
        proto = self.scope.columns.nodes[index]
        for name in self.scope.columns.inputs[index]:
            if name and name not in self._tensors:
                tensor = self.scope.initializer(name) or self.scope.outer_constant(name)
                self._tensors[name] = gs.Variable(name) if tensor is None else gs.Constant(name, LazyValues(tensor))
        node = self._import_node(proto)
        self._index[id(node)] = index
        return node

    def _import_node(self, proto: onnx.NodeProto) -> gs.Node:
        """Imports a node; one that graph-surgeon cannot read (as for strings that are no UTF-8) without attributes."""
        try:
            return OnnxImporter.import_node(proto, {}, self._tensors, self.model.opset, None)
        except Exception:
            bare = onnx.NodeProto()
            bare.CopyFrom(proto)
            del bare.attribute[:]
            node = OnnxImporter.import_node(bare, {}, self._tensors, self.model.opset, None)
            self._bare.add(id(node))
            return node

    def location(self, node: gs.Node, tensor: str = "") -> Location:
        """Returns where a node was in the graph as it was opened."""
        return self.scope.location(self._index[id(node)], tensor)

    def values(self, tensor: gs.Tensor) -> NDArray[Any] | None:
        """Returns a constant's values: an initializer's or a Constant node's; None for anything computed."""
        if isinstance(tensor, gs.Constant):
            lazy = tensor._values  # the public `.values` reads neither external data nor bfloat16
            return self.model.array(lazy.tensor) if isinstance(lazy, LazyValues) else np.asarray(lazy)
        if tensor.inputs:
            return self._constant_value(tensor.inputs[0]) if tensor.inputs[0].op == "Constant" else None
        return self.scope.values(tensor.name)

    def _constant_value(self, node: gs.Node) -> NDArray[Any] | None:
        value = node.attrs.get("value")
        if isinstance(value, gs.Constant):
            return self.values(value)
        for name, dtype in (("value_float", "f4"), ("value_floats", "f4"), ("value_int", "i8"), ("value_ints", "i8")):
            if name in node.attrs:
                return np.asarray(node.attrs[name], dtype=dtype)
        return None

    def fold(self, tensor: gs.Tensor) -> NDArray[Any] | None:
        """Returns the values of a tensor that is computed from constants alone, or None.

        Evaluated by ONNX's reference implementation. Quantised weights are not folded: their scales would be lost.
        """
        known = self.values(tensor)
        if known is not None:
            return known
        cone = self._constant_cone(tensor)
        if cone is None:
            return None
        nodes = [self.scope.columns.nodes[self._index[id(n)]] for n in cone]
        constants = (t for n in cone for t in n.inputs if isinstance(t, gs.Constant))
        feeds = {t.name: v for t in constants if (v := self.values(t)) is not None}
        return _evaluate(nodes, feeds, tensor.name, self.model.proto.opset_import)

    def _constant_cone(self, tensor: gs.Tensor) -> list[gs.Node] | None:
        """Returns the nodes that compute a tensor from constants, in order, or None if anything else goes in."""
        order: dict[int, gs.Node] = {}

        def visit(current: gs.Tensor) -> bool:
            if isinstance(current, gs.Constant) or current.is_empty():
                return True
            if not current.inputs or len(order) >= _MAX_CONE:
                return False
            node = current.inputs[0]
            if id(node) in order:
                return True
            if node.op in _NEVER_FOLDED or (node.domain or "") not in _ONNX_DOMAINS:
                return False
            if not all(visit(t) for t in node.inputs):
                return False
            order[id(node)] = node
            return True

        return list(order.values()) if visit(tensor) else None

    def constant(self, name: str, values: NDArray[Any]) -> gs.Constant:
        """Makes a new initializer; it is added to the graph when the field closes, if a node uses it."""
        made = gs.Constant(self.model.fresh_name(name), np.asarray(values))
        self._ours[id(made)] = made
        return made

    def tensor(self, name: str) -> gs.Tensor:
        """Returns a tensor of the graph by its name, also one that no node of the field touches."""
        if name not in self._tensors:
            self._tensors[name] = gs.Variable(name)
        return self._tensors[name]

    def variable(self, name: str) -> gs.Variable:
        """Makes a new tensor with a name of its own."""
        return gs.Variable(self.model.fresh_name(name))

    def node(self, op: str, name: str, inputs: list[gs.Tensor], output: gs.Tensor | str, **attrs: Any) -> gs.Node:
        """Makes a node with one output. A node that is replaced must let go of its outputs first.

        Args:
            op: Operator type.
            name: Wanted name.
            inputs: Input tensors.
            output: The output tensor, or a wanted name for a new one.
            **attrs: ONNX attributes.
        """
        tensor = self.variable(output) if isinstance(output, str) else output
        return gs.Node(op, name=self.model.fresh_name(name), attrs=attrs, inputs=inputs, outputs=[tensor])

    def dtype(self, tensor: gs.Tensor) -> str | None:
        """Returns a tensor's element type as numpy names it ("int8", "float32"), or None where it is not known."""
        return self.scope.dtype(tensor.name)

    def escapes(self, tensor: gs.Tensor) -> bool:
        """Whether something outside the field uses a tensor: a graph output, a subgraph, another node."""
        # A node that takes it twice stands among the takers twice.
        takers = {id(node): node for node in tensor.outputs}.values()
        return self.scope.uses_of(tensor.name) != sum(t is tensor for node in takers for t in node.inputs)

    def shape(self, tensor: gs.Tensor) -> tuple[int | None, ...] | None:
        """Returns a tensor's shape, None for each unknown size, or None where the rank is unknown."""
        return self.scope.shape(tensor.name)

    def keep_type(self, tensor: gs.Tensor) -> None:
        """Writes down what is known of a tensor, where the nodes that will make it do not tell its shape."""
        graph = self.scope.graph
        if any(value.name == tensor.name for value in (*graph.value_info, *graph.output)):
            return
        known = (value for value in self.model.inferred[self.scope.position] if value.name == tensor.name)
        graph.value_info.extend(itertools.islice(known, 1))

    def replace(self, node: gs.Node, by: Sequence[gs.Node]) -> None:
        """Puts nodes, in topological order, where a node was; `by` may contain the node itself, changed."""
        self._replaced[self._index[id(node)]] = list(by)

    def fold_into(self, node: gs.Node, values: NDArray[Any]) -> None:
        """Makes an initializer of a node's output, under the same name; the node goes."""
        self._folded[node.outputs[0].name] = values
        self.replace(node, [])

    def close(self) -> bool:
        """Writes the replacements into the model and drops what only the replaced nodes used.

        Returns:
            Whether the graph changed.
        """
        return close_all([self])

    def _write(self) -> set[str]:
        """Writes the replacements into the graph; returns the tensors that the replaced nodes took."""
        graph, columns, uses = self.scope.graph, self.scope.columns, self.model.uses
        dropped: set[str] = set()
        fresh: dict[int, list[onnx.NodeProto]] = {}
        for index, nodes in self._replaced.items():
            dropped.update(columns.inputs[index])
            uses.subtract(columns.inputs[index])
            fresh[index] = [_carry_over(columns.nodes[index], OnnxExporter.export_node(n)) for n in nodes]
            try:
                graph.initializer.extend(self._new_initializers(nodes))
            except EncodeError as error:
                raise InputError(
                    f"{self.model.path}: node {columns.nodes[index].name!r} rewritten has a weight over 2 GiB,"
                    " which ONNX cannot hold",
                    "Leave it as it is with --no-rewrite, or split the layer.",
                ) from error
        graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in self._folded.items())
        # Up to IR version 3 every initializer must be a graph input.
        self.model.proto.ir_version = max(self.model.proto.ir_version, 4)
        for node in itertools.chain.from_iterable(fresh.values()):
            uses.update(node.input)
        self._forget_types(columns)
        _splice(graph, fresh)
        columns.replace({index: len(nodes) for index, nodes in fresh.items()}, graph.node)
        self.scope.forget()
        return dropped

    def _forget_types(self, columns: Columns) -> None:
        """Drops what the graph says of integers that the replaced nodes made: they may make another type now."""
        values = self.scope.graph.value_info
        made = {name for index in self._replaced for name in columns.outputs[index]} if values else set()
        _drop(
            values,
            {i for i, v in enumerate(values) if v.name in made and v.type.tensor_type.elem_type in _QUANTIZED_TYPES},
        )

    def _new_initializers(self, nodes: Iterable[gs.Node]) -> Iterator[onnx.TensorProto]:
        for node in nodes:
            for tensor in node.inputs:
                made = self._ours.pop(id(tensor), None)
                if made is not None:
                    yield numpy_helper.from_array(np.asarray(made.values, order="C"), made.name)


def close_all(fields: Iterable[Field]) -> bool:
    """Closes the fields of several graphs of one model together, which costs less than one after the other.

    Returns:
        Whether the model changed.
    """
    edited = [field for field in fields if field._replaced]
    if not edited:
        return False
    _prune(edited[0].model, {field.scope.position: field._write() for field in edited})
    return True


_QUANTIZED_TYPES = frozenset(
    code for name, code in onnx.TensorProto.DataType.items() if name.removeprefix("U") in ("INT4", "INT8", "INT16")
)
"""Types of tensors that a pass may give another type."""
_NEVER_FOLDED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
    | {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)


def python_line(node: onnx.NodeProto) -> str:
    """Returns the line of the user's own Python that a node was exported from, "unet.py:12", or an empty string."""
    entries = getattr(node, "metadata_props", ())
    known = next((entry.value for entry in entries if entry.key == SOURCE_KEY), "")
    if _SOURCE.fullmatch(known):
        return known
    trace = next((entry.value for entry in entries if entry.key in _STACK_TRACES), "")
    frames = [f"{file}:{line}" for file, line in _FRAME.findall(trace)]
    # Innermost last; the innermost ones are inside torch.
    own = [frame for frame in frames if "site-packages" not in frame and not frame.startswith("<")]
    return own[-1] if own else ""


def read_file(path: Path) -> bytes:
    """Returns a file's content.

    Raises:
        InputError: It is missing, a folder or unreadable.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file", "Check the path of the model.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder", "Give the .onnx file in it.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _parse(data: bytes, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is not a readable ONNX model: {error}", _UNREADABLE_HINT) from error
    if not proto.HasField("graph") or not proto.graph.output:
        raise InputError(f"{path} is not an ONNX model: it holds no graph with outputs", _UNREADABLE_HINT)
    return proto


def _inner_scopes(scope: Scope) -> Iterator[Scope]:
    """Yields the graphs inside a graph, each after the graph around it."""
    columns = scope.columns
    for index, name, body in columns.bodies():
        path = f"{columns.names[index] or f'{columns.ops[index]}[{index}]'}/{name}"
        inner = Scope(scope.model, body, f"{scope.path}/{path}" if scope.path else path, scope)
        yield inner
        yield from _inner_scopes(inner)


def _node_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """Yields the tensors that attributes of nodes hold, those of the graphs inside them too."""
    columns = Columns(nodes)
    yield from columns.tensors()
    for _, _, body in columns.bodies():
        yield from body.initializer
        for sparse in body.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        yield from _node_tensors(body.node)


def _all_names(scope: Scope) -> Iterator[str]:
    columns, graph = scope.columns, scope.graph
    yield from columns.names
    yield from itertools.chain.from_iterable(columns.inputs)
    yield from itertools.chain.from_iterable(columns.outputs)
    for named in (*graph.input, *graph.output, *graph.initializer):
        yield named.name


def dtype_name(code: int) -> str:
    """Returns ONNX's name of an element type, in small letters: "float", "int8"."""
    return str(onnx.TensorProto.DataType.Name(code)).lower()


def _input_spec(value: onnx.ValueInfoProto) -> InputSpec:
    tensor = value.type.tensor_type
    dims: list[int | str] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            dims.append(dim.dim_value)
        else:
            dims.append(dim.dim_param if dim.dim_param not in _UNUSABLE_NAMES else f"{value.name}:{axis}")
    return InputSpec(value.name, dtype_name(tensor.elem_type), tuple(dims))


def _same_pads(scope: Scope, index: int) -> list[int] | None:
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


def _dtype_name(code: int) -> str | None:
    """Returns numpy's name of an ONNX element type; None for an unknown one."""
    if code == onnx.TensorProto.UNDEFINED:
        return None
    return str(onnx.helper.tensor_dtype_to_np_dtype(code))


def _value_shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...] | None:
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims)


def _external(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _check_external(tensor: onnx.TensorProto, path: Path) -> None:
    """Raises InputError unless a tensor's external data is beside the model and long enough."""
    entry = _external(tensor)
    location = entry.get("location", "")
    where = f"{path}: external data {location!r} of tensor {tensor.name!r}"
    parts = Path(location).parts
    if not location or Path(location).is_absolute() or ".." in parts or "\\" in location:
        raise InputError(f"{where} points outside the model's folder", "Keep external data beside the model.")
    if not (path.parent / location).is_file():
        raise InputError(f"{where} is missing", f"Put {location} beside {path.name}.")
    size = (path.parent / location).stat().st_size
    try:
        _, end = _external_range(tensor, where)
    except ValueError as error:
        raise InputError(f"{where} has an offset or length that is no number", "Export the model again.") from error
    if end > size:
        raise InputError(f"{where} is too short: {end} bytes needed, {size} there", "Copy the file again.")


def _external_range(tensor: onnx.TensorProto, where: str = "") -> tuple[int, int]:
    """Returns where a tensor's external data begins and ends in its file, in bytes."""
    entry, needed = _external(tensor), validity.nbytes(tensor)
    offset, length = _number(entry.get("offset", "0")), _number(entry.get("length", str(needed)))
    if offset < 0 or length < needed:
        raise InputError(f"{where} has {length} bytes at {offset}; it needs {needed}", "Export the model again.")
    return offset, offset + length


def _number(text: str) -> int:
    """Reads a number as the C++ readers of external data do; int() alone would let more through."""
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise ValueError(text)
    return int(text)


def data_path(path: Path) -> Path:
    """Returns where the weights of a model at `path` go when it is too large for one file."""
    return path.with_name(path.name + ".data")


def _chunks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    """Yields a part of a file, in pieces that need little memory."""
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (chunk := file.read(min(1 << 20, end - begin))):
            yield chunk
            begin += len(chunk)


def _refer(tensor: onnx.TensorProto, location: str, offset: int, length: int) -> None:
    """Makes a tensor's values external data."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)


def _functions_with(functions: Iterable[onnx.FunctionProto], ops: Sequence[str]) -> list[onnx.FunctionProto]:
    functions = list(functions)
    wanted = {(domain, op) for domain in _KNOWN_DOMAINS for op in ops}
    holders = {(f.domain, f.name) for f in functions if _has_op(f.node, wanted)}
    grown = True
    while grown and holders:
        callers = {(f.domain, f.name) for f in functions if _has_op(f.node, holders)} - holders
        holders |= callers
        grown = bool(callers)
    return [f for f in functions if (f.domain, f.name) in holders]


def _called_functions(proto: onnx.ModelProto) -> set[tuple[str, str]]:
    """Returns the functions that are called from the graph, directly or through other functions."""
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    called: set[tuple[str, str]] = set()
    queue: list[Iterable[onnx.NodeProto]] = [proto.graph.node]
    for nodes in queue:
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in bodies and key not in called:
                called.add(key)
                queue.append(bodies[key])
            queue.extend(g.node for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
    return called


def _has_op(nodes: Iterable[onnx.NodeProto], ops: set[tuple[str, str]]) -> bool:
    for node in nodes:
        if (node.domain, node.op_type) in ops:
            return True
        bodies = (g for a in node.attribute for g in (*([a.g] if a.HasField("g") else []), *a.graphs))
        if any(_has_op(body.node, ops) for body in bodies):
            return True
    return False


def _field_indices(scope: Scope, wanted: Collection[int], looks_around: bool) -> list[int]:
    """Returns the nodes of a field: the wanted ones, their neighbours, and where their further inputs come from."""
    columns, field = scope.columns, {*wanted}
    if wanted and looks_around:
        made = {name for i in wanted for name in columns.outputs[i]}
        field.update(i for i, inputs in enumerate(columns.inputs) if not made.isdisjoint(inputs))
    for index in wanted:
        if looks_around:
            field.update(_sources(scope, columns.inputs[index][:1], 1))
        field.update(_sources(scope, columns.inputs[index][1:], _MAX_CONE))
    return sorted(i for i in field if all(_survives(a) for a in columns.attributes[i]))


def _survives(attribute: onnx.AttributeProto) -> bool:
    """Whether an attribute is one that graph-surgeon reads and writes without losing or refusing it."""
    if attribute.type in _LISTS:
        # An empty list loses its type.
        return bool(len(getattr(attribute, _LISTS[attribute.type])))
    if attribute.type == onnx.AttributeProto.STRING:
        return _is_text(attribute.s)
    return bool(attribute.type in _SINGLE)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sources(scope: Scope, names: Iterable[str], limit: int) -> set[int]:
    """Returns up to `limit` nodes that these tensors come from, nearest first."""
    found: set[int] = set()
    queue = list(names)
    for name in queue:
        index = scope.producers.get(name)
        if index is not None and index not in found:
            if len(found) == limit:
                break
            found.add(index)
            queue.extend(scope.columns.inputs[index])
    return found


def _carry_over(old: onnx.NodeProto, new: onnx.NodeProto) -> onnx.NodeProto:
    """Gives a replacement the doc string and metadata of the node it replaces."""
    new.doc_string = old.doc_string
    if hasattr(old, "metadata_props"):
        new.metadata_props.extend(old.metadata_props)
    return new


def _splice(graph: onnx.GraphProto, fresh: dict[int, list[onnx.NodeProto]]) -> None:
    """Puts the new nodes where the old ones were; all others stay the objects that they are."""
    nodes = graph.node
    if all(len(made) == 1 for made in fresh.values()):
        for index, (node,) in fresh.items():
            nodes[index].CopyFrom(node)
        return
    places = [*range(len(nodes)), *(index for index, made in fresh.items() for _ in made)]
    gone = [index in fresh for index in range(len(nodes))] + [False] * (len(places) - len(nodes))
    nodes.extend(itertools.chain.from_iterable(fresh.values()))
    _arrange(nodes, zip(gone, places, strict=True))
    del nodes[len(nodes) - len(fresh) :]


def _arrange(entries: Any, keys: Iterable[Any]) -> None:
    """Sorts a repeated field by one key an entry; equals stay in order. Taking entries out one by one is quadratic."""
    order = iter(keys)
    entries.sort(key=lambda _: next(order))


def _drop(entries: Any, gone: Collection[int]) -> None:
    """Removes the entries of a repeated field that lie at these positions."""
    if gone:
        _arrange(entries, (index in gone for index in range(len(entries))))
        del entries[len(entries) - len(gone) :]


def _prune(model: OnnxModel, dropped: dict[int, set[str]]) -> None:
    """Removes initializers and nodes that nothing uses any more.

    Args:
        model: The model; its `uses` are up to date.
        dropped: Position of a scope to tensors that lost a use there.
    """
    lost_bodies = False
    # Inner graphs first: what they leave may be the last use of a tensor outside.
    for scope in reversed(model.scopes):
        names = dropped.pop(scope.position, set())
        foreign, bodies = _prune_scope(scope, names, model.uses) if names else (set(), False)
        lost_bodies |= bodies
        if scope.parent is not None and foreign:
            dropped.setdefault(scope.parent.position, set()).update(foreign)
    # Only now: the scopes find each other by identity.
    if lost_bodies:
        model.touch()
    model.forget_shapes()


def _used_names(scope: Scope) -> Iterator[str]:
    yield from itertools.chain.from_iterable(scope.columns.inputs)
    for value in (*scope.graph.output, *scope.graph.input):
        yield value.name


def _prune_scope(scope: Scope, names: set[str], uses: Counter[str]) -> tuple[set[str], bool]:
    """Prunes one graph; returns the names that it does not own, and whether graphs inside it went."""
    initializers, nodes, foreign = _unused(scope, names, uses)
    lost_bodies = bool(nodes) and any(index in nodes for index, _, _ in scope.columns.bodies())
    if initializers:
        owned = enumerate(scope.graph.initializer)
        _drop(scope.graph.initializer, {index for index, tensor in owned if tensor.name in initializers})
    if nodes:
        _drop(scope.graph.node, nodes)
        scope.columns.replace(dict.fromkeys(nodes, 0), scope.graph.node)
    if initializers or nodes:
        scope.forget()
    return foreign, lost_bodies


def _unused(scope: Scope, names: set[str], uses: Counter[str]) -> tuple[set[str], set[int], set[str]]:
    """Finds what only made tensors that lost their last use: initializers, nodes, and names of outer graphs.

    Args:
        scope: The graph.
        names: Tensors that lost a use.
        uses: The model's; what the found nodes took is subtracted.
    """
    columns = scope.columns
    initializers: set[str] = set()
    nodes: set[int] = set()
    foreign: set[str] = set()
    left: dict[str, int] = {}

    def count(name: str) -> int:
        return left.setdefault(name, scope.uses_of(name))

    queue = [n for n in names if n]
    for name in queue:
        index = scope.producers.get(name)
        if name in scope.initializers:
            initializers.update([] if count(name) else [name])
        elif index is None:
            foreign.add(name)
        elif index not in nodes and not any(count(out) for out in columns.outputs[index] if out):
            nodes.add(index)
            taken = [n for n in columns.inputs[index] if n]
            for each in taken:
                left[each] = count(each) - 1
            uses.subtract(columns.inputs[index])
            queue.extend(taken)
    return initializers, nodes, foreign


def _evaluate(
    nodes: Sequence[onnx.NodeProto], feeds: dict[str, NDArray[Any]], output: str, opsets: Iterable[Any]
) -> NDArray[Any] | None:
    """Runs a few nodes on ONNX's reference implementation; None where it cannot."""
    from onnx.reference import ReferenceEvaluator

    inputs = [onnx.ValueInfoProto(name=name) for name in feeds]
    graph = onnx.GraphProto(name="constants", node=nodes, input=inputs, output=[onnx.ValueInfoProto(name=output)])
    proto = onnx.ModelProto(ir_version=8, graph=graph, opset_import=opsets)
    # Whatever an evaluation of unknown operators raises means one thing here: not foldable.
    try:
        return np.asarray(ReferenceEvaluator(proto).run(None, feeds)[0])
    except Exception:
        return None


def interface(model: OnnxModel) -> tuple[bytes, ...]:
    """Returns what no pass may change: the graph's inputs and outputs with their types, and the model's metadata."""
    graph = model.proto.graph
    parts = (*graph.input, *graph.output, *model.proto.metadata_props)
    return tuple(part.SerializeToString(deterministic=True) for part in parts)
