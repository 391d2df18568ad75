"""A model without what is its owner's alone: every name is another, and texts and metadata are left out.

The copy is made field by field, so that what this module does not know of is not in it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, TensorProto, defs

from trtconv.graph.functions import called_functions
from trtconv.graph.types import KNOWN_DOMAINS, MICROSOFT

_VALUES = (*("raw_data", "float_data", "int32_data", "string_data"), *("int64_data", "double_data", "uint64_data"))
_NUMBERS = ("f", "i", "floats", "ints")
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EXPRESSION = re.compile(r"[\w\s+*/%()-]+")


class Aliases:
    """Other names for those of a model: one for each name and kind, and none that the model has itself.

    Args:
        texts: The texts of the model.
    """

    def __init__(self, texts: Collection[str]) -> None:
        self._texts = texts
        self._aliases: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def __call__(self, kind: str, name: str) -> str:
        """Returns another name; of none, none.

        Args:
            kind: What it names, in a letter or a word, with which the new name begins.
            name: The name.
        """
        if name and (kind, name) not in self._aliases:
            self._aliases[kind, name] = self._fresh(kind)
        return self._aliases[kind, name] if name else ""

    def operator(self, op: str) -> str:
        """Returns what an operator is called now; ONNX's own keep their names."""
        return self._aliases.get(("Op", op), op)

    def dim(self, name: str) -> str:
        """Returns another name of a dimension: of "x:2", an input's axis, and of "2*h + 1" too."""
        tensor, colon, axis = name.rpartition(":")
        if colon and axis.isdecimal():
            return f"{self('t', tensor)}:{axis}"
        if _EXPRESSION.fullmatch(name):
            return _NAME.sub(lambda match: self("d", match[0]), name)
        return self("d", name)

    def text(self, text: str) -> str:
        """Returns a text with the other names in it."""
        other = {name: new for (_, name), new in self._aliases.items()}
        longest = sorted(other, key=len, reverse=True)
        pattern = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in longest)
        return re.sub(pattern, lambda match: other[match[0]], text) if pattern else text

    def _fresh(self, kind: str) -> str:
        while True:
            number = self._numbers[kind] = self._numbers.get(kind, -1) + 1
            if f"{kind}{number}" not in self._texts:
                return f"{kind}{number}"


def anonymous(proto: onnx.ModelProto, aliases: Aliases) -> onnx.ModelProto:
    """Returns a copy of a model under other names, its weights as they are.

    Kept are ONNX's own words (operators, attributes and their words), shapes, numbers of attributes and the order of
    nodes. Left out are metadata, documentation, the producer, and the shapes that are stated inside the graph.

    Args:
        proto: The model, weights inside.
        aliases: The other names.
    """
    return _Copy(proto, aliases).model()


class _Copy:
    def __init__(self, proto: onnx.ModelProto, aliases: Aliases) -> None:
        self._proto = proto
        self._alias = aliases
        self._functions = called_functions(proto)

    def model(self) -> onnx.ModelProto:
        proto = self._proto
        copy = onnx.ModelProto(ir_version=proto.ir_version)
        copy.opset_import.extend(map(self._opset, proto.opset_import))
        self._graph(proto.graph, copy.graph)
        for function in proto.functions:
            if (function.domain, function.name) in self._functions:
                copy.functions.append(self._function(function))
        return copy

    def _opset(self, opset: onnx.OperatorSetIdProto) -> onnx.OperatorSetIdProto:
        return onnx.OperatorSetIdProto(domain=self._domain(opset.domain), version=opset.version)

    def _domain(self, domain: str) -> str:
        return domain if domain in _public_domains() else self._alias("domain", domain)

    def _operator(self, domain: str, op: str) -> str:
        is_public = domain in _public_domains() and (domain == MICROSOFT or op in _operators())
        return op if is_public and (domain, op) not in self._functions else self._alias("Op", op)

    def _tensor_name(self, name: str) -> str:
        return self._alias("t", name)

    def _function(self, function: onnx.FunctionProto) -> onnx.FunctionProto:
        copy = onnx.FunctionProto(
            name=self._operator(function.domain, function.name),
            domain=self._domain(function.domain),
            overload=self._alias("o", function.overload),
            input=map(self._tensor_name, function.input),
            output=map(self._tensor_name, function.output),
            attribute=[self._alias("a", name) for name in function.attribute],
            opset_import=map(self._opset, function.opset_import),
            node=map(self._node, function.node),
        )
        for attribute in function.attribute_proto:
            copy.attribute_proto.append(self._attribute(attribute, None))
        return copy

    def _graph(self, graph: onnx.GraphProto, copy: onnx.GraphProto) -> onnx.GraphProto:
        copy.name = "part"
        copy.node.extend(map(self._node, graph.node))
        copy.initializer.extend(map(self._tensor, graph.initializer))
        copy.sparse_initializer.extend(map(self._sparse, graph.sparse_initializer))
        copy.input.extend(map(self._value, graph.input))
        copy.output.extend(map(self._value, graph.output))
        return copy

    def _node(self, node: onnx.NodeProto) -> onnx.NodeProto:
        own = (node.domain, node.op_type) not in self._functions and node.op_type in _operators()
        return onnx.NodeProto(
            op_type=self._operator(node.domain, node.op_type),
            domain=self._domain(node.domain),
            overload=self._alias("o", node.overload),
            name=self._alias("n", node.name),
            input=map(self._tensor_name, node.input),
            output=map(self._tensor_name, node.output),
            attribute=[self._attribute(attribute, node.op_type if own else None) for attribute in node.attribute],
        )

    def _attribute(self, attribute: AttributeProto, op: str | None) -> AttributeProto:
        """Copies an attribute of one of ONNX's operators, or of another (None)."""
        words = _words(op) if op else frozenset[str]()
        name = attribute.name if attribute.name in words else self._alias("a", attribute.name)
        copy = AttributeProto(name=name, type=attribute.type, ref_attr_name=self._alias("a", attribute.ref_attr_name))
        for field, value in attribute.ListFields():
            if field.name in _NUMBERS:
                _set(copy, field.name, value)
            elif field.name in _ATTRIBUTE_COPIES:
                _set(copy, field.name, _mapped(value, functools.partial(_ATTRIBUTE_COPIES[field.name], self)))
            elif field.name in ("s", "strings"):
                _set(copy, field.name, _mapped(value, functools.partial(self._text, name, words)))
        return copy

    def _text(self, attribute: str, words: Collection[str], text: bytes) -> bytes:
        string = text.decode("utf-8", "replace")
        if attribute == "equation":
            letters = dict.fromkeys(re.findall(r"[A-Za-z]", string))
            new = dict(zip(letters, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False))
            return re.sub(r"[A-Za-z]", lambda match: new[match[0]], string).encode()
        return text if string in words else self._alias("s", string).encode()

    def _tensor(self, tensor: TensorProto) -> TensorProto:
        copy = TensorProto(name=self._tensor_name(tensor.name), data_type=tensor.data_type, dims=tensor.dims)
        for name in _VALUES:
            if name == "raw_data" and tensor.HasField(name):
                copy.raw_data = tensor.raw_data
            elif name == "string_data":
                copy.string_data.extend(self._text("", (), text) for text in tensor.string_data)
            elif name != "raw_data":
                getattr(copy, name).extend(getattr(tensor, name))
        return copy

    def _sparse(self, sparse: onnx.SparseTensorProto) -> onnx.SparseTensorProto:
        values, indices = self._tensor(sparse.values), self._tensor(sparse.indices)
        return onnx.SparseTensorProto(values=values, indices=indices, dims=sparse.dims)

    def _value(self, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        copy = onnx.ValueInfoProto(name=self._tensor_name(value.name))
        if value.HasField("type"):
            copy.type.CopyFrom(self._type(value.type))
        return copy

    def _type(self, kind: onnx.TypeProto) -> onnx.TypeProto:
        copy = onnx.TypeProto()
        for name in ("tensor_type", "sparse_tensor_type"):
            if kind.HasField(name):
                self._tensor_type(getattr(kind, name), getattr(copy, name))
        for name in ("sequence_type", "optional_type"):
            if kind.HasField(name):
                getattr(copy, name).elem_type.CopyFrom(self._type(getattr(kind, name).elem_type))
        if kind.HasField("map_type"):
            copy.map_type.key_type = kind.map_type.key_type
            copy.map_type.value_type.CopyFrom(self._type(kind.map_type.value_type))
        return copy

    def _tensor_type(self, kind: onnx.TypeProto.Tensor, copy: onnx.TypeProto.Tensor) -> None:
        copy.elem_type = kind.elem_type
        if kind.HasField("shape"):
            copy.shape.SetInParent()
        for dim in kind.shape.dim:
            if dim.HasField("dim_value"):
                copy.shape.dim.add(dim_value=dim.dim_value)
            else:
                copy.shape.dim.add(dim_param=self._alias.dim(dim.dim_param))


_ATTRIBUTE_COPIES: dict[str, Callable[[_Copy, Message], Message]] = {
    **dict.fromkeys(("t", "tensors"), _Copy._tensor),
    **dict.fromkeys(("sparse_tensor", "sparse_tensors"), _Copy._sparse),
    **dict.fromkeys(("g", "graphs"), lambda copy, graph: copy._graph(graph, onnx.GraphProto())),
    **dict.fromkeys(("tp", "type_protos"), _Copy._type),
}
"""Field of an attribute that holds messages to what copies one of them."""


def _mapped(value: object, copy: Callable[[object], object]) -> object:
    return copy(value) if isinstance(value, (bytes, Message)) else [copy(element) for element in value]  # type: ignore[attr-defined]


def _set(message: Message, name: str, value: object) -> None:
    if isinstance(value, Message):
        getattr(message, name).CopyFrom(value)
    elif isinstance(value, (bytes, int, float)):
        setattr(message, name, value)
    else:
        getattr(message, name).extend(value)


def texts(message: Message) -> Iterator[str]:
    """Yields every text of a message: names, words, documentation, and what is made of bytes, but for raw values."""
    for field, value in message.ListFields():
        repeated = value if hasattr(value, "append") or hasattr(value, "add") else [value]
        for element in repeated:
            if isinstance(element, Message):
                yield from texts(element)
            elif isinstance(element, str):
                yield element
            elif isinstance(element, bytes) and field.name != "raw_data":
                yield element.decode("utf-8", "replace")


@functools.cache
def _public_domains() -> frozenset[str]:
    return frozenset(KNOWN_DOMAINS) | {schema.domain for schema in defs.get_all_schemas()}


@functools.cache
def _operators() -> frozenset[str]:
    return frozenset(schema.name for schema in defs.get_all_schemas())


@functools.cache
def _words(op: str) -> frozenset[str]:
    """Returns the attributes of an operator, of any version, and the words in which ONNX documents them."""
    words: set[str] = set()
    for schema in defs.get_all_schemas_with_history():
        if schema.name == op:
            for name, attribute in schema.attributes.items():
                words.add(name)
                words.update(_WORD.findall(attribute.description))
                words.update(_WORD.findall(attribute.default_value.s.decode("utf-8", "replace")))
    return frozenset(words)


@functools.cache
def onnx_words() -> frozenset[str]:
    """Returns what may stand in any model: ONNX's domains, operators, attributes and their words."""
    return _public_domains() | _operators() | frozenset().union(*map(_words, _operators()))
