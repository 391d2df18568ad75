"""Where the constants of a rewritten model come from: each is held, bit for bit, to the file that it was read from.

Passes copy, cast, move (a kernel grows by zeros, is dilated, ungrouped, turned) and fold. What they say that they did
is not asked: a constant that only moved has the elements of one of the file's, zeros left out, each as often; one that
was folded is what ONNX's reference implementation makes of the file's. Whether an element lies in the right place is
not seen here, but by running both.
"""

from __future__ import annotations

import enum
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from trtconv.graph.arrays import Array
from trtconv.graph.attributes import attribute
from trtconv.graph.folding import FOLDED, evaluate
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.runtimes.proof.bits import Fingerprint, elements, fingerprint, nonzero_count, same_bits, stored

_MOST_FOLDED = 1 << 26
"""Bytes of constants that are folded to find where others come from."""
_QUANTIZERS = ("DequantizeLinear", "QuantizeLinear")


class Derivation(enum.Enum):
    """Where a constant comes from."""

    FILE = "file"
    """The file has it, under its name."""
    DERIVED = "derived"
    """The file has its elements, cast or moved, or folds to them."""
    CHANGED = "changed"
    """The file has another one under its name."""
    COMPUTED = "computed"
    """The file has nothing of the kind: it has to be shown by running both."""


def origins(file: OnnxModel, rewritten: OnnxModel) -> dict[str, Derivation]:
    """Returns where each constant of a model comes from.

    Args:
        file: The model as it was read.
        rewritten: What the passes made of it.
    """
    tensors = dict(constants(file))
    named_origins = {name: _named(file, rewritten, tensors.get(name), tensor) for name, tensor in constants(rewritten)}
    new = {name: rewritten.array(tensor) for name, tensor in constants(rewritten) if named_origins[name] is None}
    sources = _Sources(file, tensors) if new else None
    near = _near(file, rewritten, new.keys()) if new else {}
    other_origins = {
        name: _derived(sources, values, near.get(name, ())) for name, values in new.items() if sources is not None
    }
    left = {name for name, origin in other_origins.items() if origin is Derivation.COMPUTED}
    if sources is not None:
        other_origins.update(dict.fromkeys(_folding_to(sources, rewritten, left), Derivation.DERIVED))
    return {name: origin or other_origins[name] for name, origin in named_origins.items()}


def _near(file: OnnxModel, rewritten: OnnxModel, names: Collection[str]) -> dict[str, dict[str, None]]:
    """Returns, of constants that a model has anew, what nodes of the file read that make the same as their readers do:
    most come from there."""
    columns, before, near = rewritten.main.columns, file.main, dict[str, dict[str, None]]()
    news = set(names)
    for inputs, outputs in zip(columns.inputs, columns.outputs, strict=True):
        for name in news.intersection(inputs):
            makers = (before.producers[output] for output in outputs if output in before.producers)
            near.setdefault(name, {}).update((read, None) for index in makers for read in before.columns.inputs[index])
    return near


def constants(model: OnnxModel) -> Iterator[tuple[str, onnx.TensorProto]]:
    """Yields every constant of a model: initializers and what Constant nodes hold, in all graphs."""
    for scope in model.scopes:
        yield from scope.initializers.items()
        for index in scope.by_op.get("Constant", ()):
            for name in scope.columns.outputs[index]:
                tensor = scope.constant(name)
                if tensor is not None:
                    yield name, tensor


def _named(
    file: OnnxModel, rewritten: OnnxModel, old: onnx.TensorProto | None, new: onnx.TensorProto
) -> Derivation | None:
    """Returns what a constant is to that of its name in the file; None where there is none."""
    if old is None:
        return None
    if old.data_type == new.data_type and old.dims == new.dims:
        if old.data_location == new.data_location == onnx.TensorProto.EXTERNAL:
            return Derivation.FILE if list(old.external_data) == list(new.external_data) else Derivation.CHANGED
        pairs = (old.raw_data, new.raw_data), (list(old.string_data), list(new.string_data))
        if any(one and one == two for one, two in pairs):
            return Derivation.FILE
    if onnx.TensorProto.STRING in (old.data_type, new.data_type):
        return Derivation.CHANGED
    if not same_bits(stored(rewritten, new), stored(file, old)):
        return Derivation.CHANGED
    return Derivation.FILE if old.data_type == new.data_type else Derivation.DERIVED


class _Sources:
    """What the constants of a file are made into: themselves, in any order, and what they fold to."""

    def __init__(self, file: OnnxModel, tensors: Mapping[str, onnx.TensorProto]) -> None:
        self._file = file
        self._tensors = tensors
        self._indices: dict[np.dtype[Any], _Index] = {}

    def have(self, values: Array, near: Iterable[str] = ()) -> bool:
        """Whether a constant of the file, or what they fold to, has the elements of an array.

        Args:
            values: The array.
            near: Names of constants that are looked at first.
        """
        index = self._indices.get(values.dtype)
        if index is None:
            index = self._indices[values.dtype] = _Index(self._loads(), values.dtype)
        first = (functools.partial(self._file.array, self._tensors[name]) for name in near if name in self._tensors)
        return index.has(values, first)

    def _loads(self) -> Iterator[_Load]:
        """Yields what returns each constant, and then what they fold to."""
        for tensor in self._tensors.values():
            yield functools.partial(self._file.array, tensor)
        for array in self._folded.values():
            yield functools.partial(np.asarray, array)

    @functools.cached_property
    def _folded(self) -> dict[str, Array]:
        return folded(self._file)


_Load = Callable[[], Array]


class _Index:
    """Arrays by their elements in one type, looked through no further than was needed.

    Args:
        loads: Each returns one of the arrays, which are not held: they may be large.
        dtype: The type that they are cast to.
    """

    def __init__(self, loads: Iterator[_Load], dtype: np.dtype[Any]) -> None:
        self._ahead = loads
        self._dtype = dtype
        self._behind: dict[Fingerprint, list[_Load]] = {}

    def has(self, values: Array, first: Iterable[_Load] = ()) -> bool:
        """Whether one of them has the elements of an array of that type; some are looked at before all."""
        count, target = nonzero_count(values), elements(values)
        # Sorted only where there are as many: most that are read beside it are not.
        near = (array for load in first if self._takes((array := load()).dtype.kind))
        few = (array for array in map(self._cast, near) if nonzero_count(array) == count)
        alike = (self._cast(load()) for load in self._alike(values))
        return any(np.array_equal(elements(array), target) for array in itertools.chain(few, alike))

    def _alike(self, values: Array) -> Iterator[_Load]:
        key = fingerprint(values)
        yield from self._behind.get(key, ())
        for load in self._ahead:
            array = load()
            if not self._takes(array.dtype.kind):
                continue
            other = fingerprint(self._cast(array))
            self._behind.setdefault(other, []).append(load)
            if other == key:
                yield load

    def _takes(self, kind: str) -> bool:
        """Whether passes cast numbers of a kind of types to this one: any to floats, others to none but their own."""
        return kind == self._dtype.kind or (self._dtype.kind in "fV" and kind not in "OUS")

    def _cast(self, array: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(array, self._dtype)


def _derived(sources: _Sources, values: Array, near: Iterable[str] = ()) -> Derivation:
    is_number = values.dtype.kind not in "OUS"
    return Derivation.DERIVED if is_number and sources.have(values, near) else Derivation.COMPUTED


def _folding_to(sources: _Sources, rewritten: OnnxModel, names: set[str]) -> Iterator[str]:
    """Yields those constants of which the rewritten model computes what the file computes too: codes and scales."""
    if not names:
        return
    results = folded(rewritten)
    for scope in rewritten.scopes:
        for node in scope.columns.nodes:
            values = results.get(node.output[0]) if node.output else None
            if values is not None and _derived(sources, values) is Derivation.DERIVED:
                yield from (name for name in node.input if name in names)


def folded(model: OnnxModel) -> dict[str, Array]:
    """Returns what the nodes of a model's main graph compute from nothing but constants, as far as it is cheap."""
    scope, opsets = model.main, model.proto.opset_import
    results: dict[str, Array] = {}
    room = _MOST_FOLDED
    for index, op in enumerate(scope.columns.ops):
        if op not in FOLDED and op not in _QUANTIZERS:
            continue
        node = scope.columns.nodes[index]
        feeds = {name: v for name in node.input if name and (v := _value(scope, results, name)) is not None}
        if not feeds or len(feeds) != len([name for name in node.input if name]):
            continue
        room -= sum(array.nbytes for array in feeds.values())
        if room < 0:
            break
        values = _result(node, feeds, opsets)
        if values is not None:
            results[node.output[0]] = values
    return results


def _value(scope: Scope, results: Mapping[str, Array], name: str) -> Array | None:
    return results[name] if name in results else scope.values(name)


def _result(node: onnx.NodeProto, feeds: Mapping[str, Array], opsets: Any) -> Array | None:
    try:
        if node.op_type in _QUANTIZERS:
            return _dequantized(node, feeds)
        return evaluate([node], feeds, node.output[0], opsets)
    # Whatever the reference and NumPy raise over a stranger's node means one thing here: not known.
    except Exception:
        return None


def _dequantized(node: onnx.NodeProto, feeds: Mapping[str, Array]) -> Array | None:
    """Computes (q - zero) * scale by its definition; None for what has blocks, and for quantisers."""
    if node.op_type != "DequantizeLinear":
        return None
    codes, scale = feeds[node.input[0]], feeds[node.input[1]]
    zero = feeds.get(node.input[2]) if len(node.input) > 2 else None
    axis = attribute(node, "axis", 1)
    if scale.ndim > 1 or codes.dtype.kind not in "iu":
        return None
    place = range(codes.ndim)[axis] if scale.size > 1 else None
    shape = [-1 if i == place else 1 for i in range(codes.ndim)]
    wide = codes.astype(np.int32) - (0 if zero is None else zero.astype(np.int32).reshape(shape))
    return np.asarray(wide.astype(scale.dtype) * scale.reshape(shape))
