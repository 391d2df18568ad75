"""One of two models of which passes made one of the other: what its nodes compute, and pieces of it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence

import onnx

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import made_of_values

Describe = Callable[[str], "onnx.ValueInfoProto | None"]
"""What describes a tensor by its type and sizes; None where they are not known."""


class Version:
    """One of the two models, and what its nodes compute."""

    def __init__(self, model: OnnxModel) -> None:
        self.model = model
        self.nodes: Sequence[onnx.NodeProto] = model.main.columns.nodes
        self.producers = model.main.producers
        self.inputs = {spec.name for spec in model.inputs}
        self.reads = model.main.reads
        self._keys: dict[int, bytes] = {}
        self._varying = set(self.inputs)
        self._fixed: set[str] = set()
        """What nodes make of constants."""
        for read, outputs in zip(self.reads, model.main.columns.outputs, strict=True):
            (self._fixed if self._varying.isdisjoint(read) else self._varying).update(outputs)

    def makes(self, name: str) -> bool:
        """Whether a node makes a tensor, of what the inputs hold."""
        return name in self.producers and name in self._varying

    def varies(self, name: str) -> bool:
        """Whether a tensor holds what the inputs hold, or is made of that."""
        return name in self._varying

    def makes_of_sizes(self, name: str) -> bool:
        """Whether a node makes a tensor of sizes alone: in their place others than the real ones mean nothing."""
        return self.makes(name) and name not in self._values

    @functools.cached_property
    def _values(self) -> set[str]:
        return made_of_values(self.model)

    def makes_alike(self, other: Version, name: str) -> bool:
        """Whether the same node makes a tensor in another model, of the same."""
        return (
            self._plain(name) == other._plain(name) != b""
            or self.key(name) == other.key(name)
            or self._reads_alike(other, name)
        )

    def _reads_alike(self, other: Version, name: str) -> bool:
        """Whether the node that makes a tensor is the same in another model, and the constants that it reads are,
        whether nodes hold them or initializers."""
        sides = [(side, side.producers[name]) for side in (self, other)]
        one, another = (side.nodes[index] for side, index in sides)
        constants = {read for side, index in sides for read in side._constants_of(index)}
        return bool(one == another) and all(self._holds_alike(other, read) for read in constants)

    def _holds_alike(self, other: Version, name: str) -> bool:
        one, another = (side.model.main.values(name) for side in (self, other))
        if one is not None and another is not None:
            return (one.dtype, one.shape, one.tobytes()) == (another.dtype, another.shape, another.tobytes())
        makers = [name in side.producers and not side.varies(name) for side in (self, other)]
        return all(makers) and self.key(name) == other.key(name)

    def _plain(self, name: str) -> bytes:
        """Returns the node that makes a tensor as it is written; nothing where it reads what is made of constants."""
        index = self.producers[name]
        if self._constants_of(index):
            return b""
        data: bytes = self.nodes[index].SerializeToString()
        return data

    def key(self, name: str) -> bytes:
        """Returns what tells the node that makes a tensor, and those that make constants for it, from others."""
        stack, begun = [self.producers[name]], set[int]()
        # Each once, after what it reads: many nodes may read what is made of the same.
        while stack:
            index = stack[-1]
            begun.add(index)
            sources = [self.producers[source] for source in self._constants_of(index)]
            more = [source for source in sources if source not in self._keys and source not in begun]
            stack += more
            if not more:
                self._keys[stack.pop()] = self._key_of(index, sources)
        return self._keys[self.producers[name]]

    def _key_of(self, index: int, sources: Sequence[int]) -> bytes:
        copy = onnx.NodeProto()
        copy.CopyFrom(self.nodes[index])
        for field in ("name", "doc_string", "metadata_props"):
            copy.ClearField(field)
        # An input that has no name is not there. (An output without one may be: a Split has as many parts.)
        while copy.input and not copy.input[-1]:
            copy.input.pop()
        parts = [hashlib.sha256(copy.SerializeToString(deterministic=True)).digest()]
        parts += [self._keys.get(source, b"") for source in sources]
        return hashlib.sha256(b"".join(parts)).digest()

    def _constants_of(self, index: int) -> list[str]:
        """Returns what a node reads that others make of constants."""
        return sorted(self.reads[index] & self._fixed)

    def cone(self, target: str, seams: set[str]) -> tuple[list[int], set[str]]:
        """Returns the nodes between a tensor and those before it, in order, and which of these they read."""
        stack, indices, sources = [target], set[int](), set[str]()
        while stack:
            name = stack.pop()
            if name in self.inputs or (name in seams and name != target):
                sources.add(name)
            elif name in self.producers and self.producers[name] not in indices:
                indices.add(self.producers[name])
                stack += self.reads[self.producers[name]]
        return sorted(indices), sources

    @functools.cached_property
    def _stated(self) -> dict[str, onnx.ValueInfoProto]:
        graph = self.model.proto.graph
        return {value.name: value for value in (*graph.value_info, *graph.output)}

    def reads_of(self, name: str) -> set[str]:
        """Returns what the node that makes a tensor reads."""
        return self.reads[self.producers[name]]

    def cut(self, target: str, seams: set[str], describe: Describe) -> bytes | None:
        """Returns a piece as a model of its own, serialized; None where what it reads cannot be described."""
        nodes, sources = self.cone(target, seams)
        inputs = [describe(name) for name in sorted(sources)]
        if None in inputs:
            return None
        part = onnx.ModelProto(ir_version=max(4, self.model.proto.ir_version))
        part.opset_import.extend(self.model.proto.opset_import)
        part.functions.extend(self.model.proto.functions)
        part.graph.name = "piece"
        part.graph.node.extend(self.nodes[index] for index in nodes)
        read = {name for index in nodes for name in self.reads[index]}
        initializers = self.model.main.initializers
        part.graph.initializer.extend(initializers[name] for name in sorted(read & initializers.keys()))
        part.graph.input.extend(inputs)
        part.graph.output.append(self._stated.get(target) or onnx.ValueInfoProto(name=target))
        data: bytes = part.SerializeToString()
        return data
