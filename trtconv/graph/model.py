"""The only door to onnx and onnx-graphsurgeon: reading, looking at, operating on and writing ONNX models.

A model is read without its external data: weights are fetched one by one. Passes operate through a `Field`: an
onnx-graphsurgeon graph of the nodes that a pass asks for. Closing it writes back the replaced nodes alone, so whatever
graph-surgeon would lose (metadata, doc strings, unusual attributes, the order of nodes) stays as it was.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data
from onnx_graphsurgeon.logger import G_LOGGER

from trtconv.core.dims import InputSpec
from trtconv.core.documents.images import ImageInput
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_stream
from trtconv.core.hashing import Hashing
from trtconv.core.interface import Interface
from trtconv.core.tensor_io import TensorIos
from trtconv.graph.admission import UNREADABLE_HINT, admit
from trtconv.graph.dim_names import input_spec
from trtconv.graph.element_types import ElementTypes
from trtconv.graph.external_data import (
    ALIGNMENT,
    EXTERNAL,
    SMALL_BYTES,
    FileStates,
    array_of,
    beside,
    check_external_all,
    data_path,
    external_entry,
    inside_bytes,
    raw_bytes,
    raw_chunks,
    read_chunks,
    read_file,
    refer_to,
    refuse_other_kinds,
    used_parts,
)
from trtconv.graph.functions import UnsupportedFunctions, called_functions, function_tensors, functions_with
from trtconv.graph.inference import infer, may_be_sizes, skeleton
from trtconv.graph.nodes import Columns
from trtconv.graph.scope import Scope, Whole
from trtconv.graph.sealing import sealed
from trtconv.graph.tensor_checker import nbytes
from trtconv.graph.types import ONNX_DOMAINS, PROTOBUF_LIMIT

# It prints to stdout, which belongs to the report.
G_LOGGER.severity = G_LOGGER.CRITICAL

_UNTRACEABLE = re.compile(r" \| |\](?=[^\]\w])")
"""What TensorRT's layer metadata, "[ONNX Layer: name | inside]", could not be read back from if a name had it."""
_SMALL_FILE = 1 << 22
"""What is hashed in a few milliseconds, so that it is known where it is read again."""
_LIGHT_BYTES = 1 << 24
"""Up to this size a model is handed over with its weights: to take them out costs more than to copy them."""


class OnnxModel:
    """An ONNX model in memory, its external data still on disk.

    Args:
        proto: The model; owned by this object from here on.
        path: The file it came from: external data is looked up beside it.
    """

    def __init__(self, proto: onnx.ModelProto, path: Path) -> None:
        self.proto, self.path = proto, path
        self.interface = Interface()  # What `graph.fitting` was asked for; what that came to:
        self.io: TensorIos = {}
        self.images: ImageInput | None = None
        self._hashing: Hashing | None = None
        self.leaves_weights = False  # Whether weights lie in the file that a whole model would have inside.
        self._size, self._data, self._file = 0, FileStates({}), FileStates({})

    @classmethod
    def load(
        cls, path: Path, hashed: bool = False, data: bytes | None = None, keep: Callable[[bytes], bytes] | None = None
    ) -> OnnxModel:
        """Reads a model; its external data is checked for being there, not read.

        Args:
            path: The file.
            hashed: Whether `digest` will be asked for, which then need not read the file again.
            data: Its content, if it was read.
            keep: Returns what of the content is to be in memory; None: all.

        Raises:
            InputError: The file is missing, truncated or no ONNX model, or its external data is not as it should be.
        """
        state, data = FileStates.of([path]), read_file(path) if data is None else data
        hashing = Hashing(data) if hashed or len(data) <= _SMALL_FILE else None
        model = cls(_parse(data if keep is None else keep(data), path), path)
        model._file, model._hashing = state, hashing.wait() if hashing is not None and hashed else None
        # What follows copies each tensor that it looks at.
        model._size, model.leaves_weights, data = len(data), keep is not None, b""
        model.whole = model._whole_of(admit(model.proto, hashing, path))
        if external := list(model.external_tensors()):
            model.path = check_external_all(external, path)
            model._data = FileStates.of(model.external_files)
            model._embed_small_tensors()
        return model

    @property
    def opset(self) -> int:
        """Version of the default operator set; 0 where the model names none."""
        return max([o.version for o in self.proto.opset_import if o.domain in ONNX_DOMAINS], default=0)

    @functools.cached_property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The inputs that a caller must give: graph inputs that are no initializers."""
        constants = self.main.initializers
        return tuple(input_spec(value) for value in self.proto.graph.input if value.name not in constants)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph outputs."""
        return tuple(value.name for value in self.proto.graph.output)

    @functools.cached_property
    def whole(self) -> Whole:
        """All graphs together."""
        return self._whole_of(Columns(self.proto.graph.node))

    def _whole_of(self, columns: Columns) -> Whole:
        return Whole(
            self.proto.graph,
            columns,
            self.array,
            lambda whole: infer(whole, self.skeleton, self.without_weights),
            lambda whole: ElementTypes(whole.scopes[0], self.opset),
        )

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Every graph, the main graph first, each after the graph around it."""
        return self.whole.scopes

    @property
    def main(self) -> Scope:
        """The main graph."""
        return self.scopes[0]

    def nodes(self, *ops: str) -> Iterator[tuple[Scope, int, onnx.NodeProto]]:
        """Yields every node of these standard operators, in every graph."""
        return self.whole.nodes(*ops)

    def has(self, ops: Collection[str]) -> bool:
        """Whether a node of one of these operators is in a graph of the model; functions are not looked into."""
        return any(not scope.by_op.keys().isdisjoint(ops) for scope in self.scopes)

    def array(self, tensor: onnx.TensorProto) -> NDArray[Any]:
        """Returns a tensor's values, reading external data where needed.

        Raises:
            InputError: The values cannot be read.
        """
        try:
            return array_of(tensor, self.path)
        except Exception as error:
            raise InputError(f"{self.path}: the values of tensor {tensor.name!r} cannot be read: {error}") from error

    def skeleton(self) -> onnx.ModelProto:
        """Returns a copy whose large initializers are graph inputs: same shapes and types, no weights."""
        return skeleton(self.proto)

    def without_weights(self) -> bytes:
        """Returns the model as bytes, for onnx to look at: with its weights where they are small, else a skeleton."""
        data: bytes = (self.proto if self.is_light else self.skeleton()).SerializeToString()
        return data

    @functools.cached_property
    def is_light(self) -> bool:
        """Whether all weights are inside and few; found out once, since what passes add is little."""
        few = (self._size or inside_bytes(self.proto)) <= _LIGHT_BYTES
        return few and not any(True for _ in self.external_tensors())

    def touch(self) -> None:
        """Forgets what was derived from the graph; call after changing it."""
        self.__dict__.pop("whole", None)
        self.__dict__.pop("inputs", None)

    def forget_shapes(self) -> None:
        """Forgets what is known of inputs, shapes and types, and what was derived from them."""
        self.__dict__.pop("inputs", None)
        self.whole.forget_shapes()

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
        with atomic_stream(path, through_links=True) as file:
            file.writelines(sealed(copy.proto, copy.serialize))

    def _fits_one_file(self) -> bool:
        size = self.nbytes
        external = size - inside_bytes(self.proto)
        return size <= PROTOBUF_LIMIT // 2 or int(self.proto.ByteSize()) + external <= PROTOBUF_LIMIT

    @property
    def nbytes(self) -> int:
        """How many bytes the model takes, its external data among them; nearly, as `inside_bytes`."""
        return inside_bytes(self.proto) + sum(nbytes(tensor) for tensor in self.external_tensors())

    def external_tensors(self) -> Iterator[onnx.TensorProto]:
        """Yields the tensors whose values are in other files: weights, attributes, those of subgraphs and functions."""
        for scope in self.scopes:
            # Asked one by one of thousands of weights, so without a call for each.
            yield from (tensor for tensor in scope.graph.initializer if tensor.data_location == EXTERNAL)
            for sparse in scope.graph.sparse_initializer:
                yield from filter(uses_external_data, (sparse.values, sparse.indices))
            yield from filter(uses_external_data, scope.columns.tensors())
        for function in self.proto.functions:
            yield from filter(uses_external_data, function_tensors(function))

    def _move_weights(self, path: Path) -> None:
        """Writes the weights to the data file of a model at `path`, and makes them refer to it."""
        data = data_path(path)
        large = [tensor for tensor in self.proto.graph.initializer if len(tensor.raw_data) > SMALL_BYTES]
        with atomic_stream(data) as file:
            for tensor in (*self.external_tensors(), *large):
                file.write(bytes(-file.tell() % ALIGNMENT))
                begin = file.tell()
                file.writelines(raw_chunks(tensor, self.path))
                refer_to(tensor, data.name, begin, file.tell() - begin)
            # An older model there would take the new weights for its own.
            path.unlink(missing_ok=True)

    def embed(self) -> None:
        """Reads all external data into the model.

        Raises:
            InputError: A file cannot be read.
        """
        for tensor in self.external_tensors():
            try:
                tensor.raw_data = bytes(raw_bytes(tensor, self.path))
            except OSError as error:
                raise InputError(f"{self.path}: tensor {tensor.name!r} cannot be read: {error.strerror}") from error
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]

    def digest(self, alone: bool = False) -> str:
        """Returns the SHA-256 of the model file, `alone` or followed by what it uses of its external data files."""
        sha = (self._hashing or Hashing(read_file(self.path))).result()
        for name, begin, end in () if alone else used_parts(beside(self.external_tensors(), self.path)):
            for chunk in read_chunks(self.path.parent / name, begin, end):
                sha.update(chunk)
        return str(sha.hexdigest())

    @property
    def external_files(self) -> tuple[Path, ...]:
        """The files that hold external data, in order of name; its own where the file itself says so."""
        tensors = beside(self.external_tensors(), self.path) if self.leaves_weights else self.external_tensors()
        return tuple(self.path.parent / name for name in sorted({external_entry(t)["location"] for t in tensors}))

    def require_unchanged_data(self) -> None:
        """Raises InputError where the model's file or one of external data is another one than when it was loaded."""
        self._data.require()
        # A link or a right that was added is no change, and a file that is gone has had its say, unless it has weights.
        is_gone = not self.path.exists()
        if self._file.stand() or self._hashing is None or (is_gone and not self.leaves_weights):
            return
        if is_gone or Hashing(read_file(self.path)).result().digest() != self._hashing.result().digest():
            self._file.require()

    def _embed_small_tensors(self) -> None:
        for tensor in [t for t in self.proto.graph.initializer if t.data_location == EXTERNAL]:
            if may_be_sizes(tensor):
                tensor.CopyFrom(numpy_helper.from_array(self.array(tensor), tensor.name))

    @functools.cached_property
    def _suffixes(self) -> Counter[str]:
        """How many numbers were tried behind each wanted name; without it thousands of unnamed nodes take minutes."""
        return Counter()

    @functools.cached_property
    def _names(self) -> set[str]:
        return set().union(*(scope.names() for scope in self.scopes))

    def fresh_name(self, base: str) -> str:
        """Returns a tensor or node name that the model does not use yet, and takes it."""
        name = base
        while name in self._names:
            self._suffixes[base] += 1
            name = f"{base}_{self._suffixes[base]}"
        self._names.add(name)
        return name

    def name_nodes(self, op: str) -> None:
        """Gives every node of an operator a name of its own, so that TensorRT's layers can be told apart."""
        names: set[str] = set()
        for scope, index, node in self.nodes(op):
            if not node.name or node.name in names or _UNTRACEABLE.search(node.name):
                node.name = self.fresh_name(_UNTRACEABLE.sub("_", node.name) or op)
                scope.columns.names[index] = node.name
            names.add(node.name)

    def copy(self) -> OnnxModel:
        """Returns a copy; both refer to the same external data."""
        twin = OnnxModel(onnx.ModelProto(), self.path)
        twin.proto.CopyFrom(self.proto)
        twin.interface, twin.io, twin.images = self.interface, self.io, self.images
        twin.leaves_weights = self.leaves_weights
        return twin

    def fits_halved(self) -> bool:
        """Whether the model, with half the bytes of its external data inside, is small enough for one message."""
        external = sum(nbytes(tensor) for tensor in self.external_tensors())
        return not external or len(self.serialize()) + external // 2 <= PROTOBUF_LIMIT

    def inline_functions(self) -> None:
        """Inlines all model-local functions.

        Raises:
            UnsupportedFunctions: ONNX's inliner refuses.
        """
        if self.proto.functions:
            self._inline(lambda inliner: inliner.inline_local_functions(self.proto))

    def _inline(self, inlined: Callable[[Any], onnx.ModelProto]) -> None:
        from onnx import inliner

        try:
            self.proto = inlined(inliner)
        except (RuntimeError, onnx.checker.ValidationError) as error:
            message = str(error).strip().partition("\n")[0]
            raise UnsupportedFunctions(f"{self.path}: its functions cannot be inlined: {message}") from error
        self.__dict__.pop("_names", None)
        self.touch()

    def inline_functions_with(self, *ops: str) -> tuple[str, ...]:
        """Inlines the model-local functions whose body has one of some operators, directly or through other functions.

        Weights that reach a function as arguments are constants again afterwards.

        Returns:
            Names of the functions that were inlined.

        Raises:
            UnsupportedFunctions: ONNX's inliner refuses, as where a function has another opset than the model.
        """
        return self.inline_functions_among(functions_with(self.proto.functions, ops))

    def inline_functions_among(self, functions: Iterable[onnx.FunctionProto]) -> tuple[str, ...]:
        """Inlines those of some functions that are called; returns their names, raises as `inline_functions_with`."""
        called = called_functions(self.proto) if self.proto.functions else set()
        keys = [(f.domain, f.name) for f in functions if (f.domain, f.name) in called]
        if keys:
            self._inline(lambda inliner: inliner.inline_selected_functions(self.proto, keys))
        return tuple(name for _, name in keys)


def _parse(data: bytes, path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        refuse_other_kinds(path)
        raise InputError(f"{path} is not a readable ONNX model: {error}", UNREADABLE_HINT) from error
    if not proto.HasField("graph") or not proto.graph.output:
        refuse_other_kinds(path)
        raise InputError(f"{path} is not an ONNX model: it holds no graph with outputs", UNREADABLE_HINT)
    return proto
