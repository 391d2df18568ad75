"""Mutations that know protobuf, but not ONNX: any field of any message of a model becomes something else.

A case is its seed: the same number makes the same files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import broken
import onnx
from broken import INTEGERS
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message
from harness import POISON
from onnx import AttributeProto, TensorProto, helper

TEXTS = (
    *(
        "",
        "x",
        "y",
        "w",
        " ",
        "a" * 300,
        "A" * 5000,
        "\u00e9\u4e2d",
        "\x00",
        "\x1b[31mred",
        "\x07\x08",
        "%s%n",
        "'\"\\",
    ),
    *(f"::error file=a::{POISON}", f"\n::error file=a::{POISON}", f"a\n{POISON} ok", f"\r\n{POISON}: no findings"),
    *(f"a\u2028{POISON}", f"a\u0085{POISON}", f"a\x0b{POISON}", f"a\x1c{POISON}", f"##[error]{POISON}", "a##[group]b"),
    *(
        "::stop-commands::tok",
        "\u202eevil",
        "a\u200bb",
        "\ufeff",
        "../../x",
        "/etc/passwd",
        "a:0",
        "h//0",
        "8*h",
        "]]>",
    ),
    *("<a>&amp;", "--dim", "-q", "=", "?", "unk", "None", "{0}", "${HOME}", "\x7f", "\x9b31m", "##vso[task.x]", "`id`"),
)
"""What a name may be; whatever would make a line of its own begins that with `POISON`."""
FLOATS = broken.FLOATS
OPS = (
    *("ConvTranspose", "Conv", "QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger"),
    *(
        "MatMulInteger",
        "DynamicQuantizeLinear",
        "Reshape",
        "Resize",
        "Range",
        "Concat",
        "Slice",
        "Expand",
        "Tile",
        "Pad",
    ),
    *(
        "ConstantOfShape",
        "Gather",
        "Shape",
        "Split",
        "TopK",
        "If",
        "Loop",
        "Scan",
        "Constant",
        "DepthToSpace",
        "Upsample",
    ),
    *(
        "NonMaxSuppression",
        "EyeLike",
        "Einsum",
        "Squeeze",
        "Unsqueeze",
        "Cast",
        "Where",
        "OneHot",
        "GridSample",
        "MaxPool",
    ),
    *("QGemm", "QLinearAdd", "QLinearConcat", "QLinearMul", "QLinearSigmoid", "QLinearWhere", "BatchNormalization", ""),
)
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_FLOATING = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
_BITS = {FieldDescriptor.CPPTYPE_INT32: 32, FieldDescriptor.CPPTYPE_UINT32: 32}
_DEEPEST = 12
_MOST_BYTES = 1 << 20
Mutation = Callable[[random.Random, onnx.ModelProto, onnx.ModelProto], None]


def spoil(
    r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto, more: tuple[tuple[Mutation, int], ...] = ()
) -> list[str]:
    """Changes a model in one to five ways; returns how.

    Args:
        r: Where chance comes from.
        model: What is changed.
        other: Another model, from which parts are taken.
        more: Further mutations, each with how often it is taken.
    """
    done = []
    for mutation in r.choices(*zip(*_MUTATIONS, *more, strict=True), k=r.choice([1, 1, 1, 2, 2, 3, 5])):
        try:
            mutation(r, model, other)
        except (
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            DecodeError,
            EncodeError,
            AttributeError,
            RuntimeError,
            Warning,
        ):
            # Some leave nothing for the next ones to work on, and protobuf refuses some values.
            continue
        done.append(mutation.__name__)
        if model.ByteSize() > _MOST_BYTES:
            break
    return done


def _fields(message: Message) -> list[FieldDescriptor]:
    return [field for field, _ in message.ListFields()]


def _is_list(field: FieldDescriptor) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated() if callable(repeated) else repeated if repeated is not None else field.label == 3)


def _walk(r: random.Random, message: Message) -> Message:
    """Returns a message somewhere inside, often a node or what a node holds."""
    for _ in range(r.randint(1, _DEEPEST)):
        inner = [f for f in _fields(message) if f.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE]
        if not inner:
            break
        field = r.choice(inner)
        value = getattr(message, field.name)
        message = value[r.randrange(len(value))] if _is_list(field) else value
    return message


def generic(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes any field of any message."""
    _change(r, _walk(r, model), model)


def several(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Changes several fields of one message."""
    message = _walk(r, model)
    for _ in range(3):
        _change(r, message, model)


def _change(r: random.Random, message: Message, model: onnx.ModelProto) -> None:
    there = _fields(message)
    field = r.choice(there if there and r.random() < 0.8 else list(message.DESCRIPTOR.fields))
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        _change_messages(r, message, field)
    elif r.random() < 0.1:
        message.ClearField(field.name)
    elif _is_list(field):
        _change_list(r, getattr(message, field.name), field, model)
    else:
        setattr(message, field.name, _scalar(r, field, model))


def _change_messages(r: random.Random, message: Message, field: FieldDescriptor) -> None:
    if not _is_list(field):
        if r.random() < 0.5:
            message.ClearField(field.name)
        else:
            getattr(message, field.name).SetInParent()
        return
    values: Any = getattr(message, field.name)
    if not values or r.random() < 0.15:
        values.add()
        return
    at = r.randrange(len(values))
    choice = r.randrange(3)
    if choice == 0:
        del values[at]
    elif choice == 1:
        values.add().CopyFrom(values[at])
    else:
        values[at].CopyFrom(values[r.randrange(len(values))])


def _change_list(r: random.Random, values: Any, field: FieldDescriptor, model: onnx.ModelProto) -> None:
    choice = r.randrange(5) if len(values) else 0
    at = r.randrange(len(values)) if len(values) else 0
    if choice == 0:
        values.extend(_scalar(r, field, model) for _ in range(r.choice([1, 1, 2, 4, 9])))
    elif choice == 1:
        del values[at]
    elif choice == 2:
        values.append(values[at])
    else:
        values[at] = _scalar(r, field, model)


def _scalar(r: random.Random, field: FieldDescriptor, model: onnx.ModelProto) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return r.choice([*(value.number for value in field.enum_type.values), r.choice([-1, 99, 1 << 30])])
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return r.random() < 0.5
    if kind in _FLOATING:
        return r.choice(FLOATS)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _text(r, field, model)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return r.choice(
            [b"", b"\xff\xfe", b"SAME_UPPER", b"VALID", bytes(r.randrange(256) for _ in range(16)), b"a" * 4096]
        )
    value = r.choice(INTEGERS) if r.random() < 0.5 else r.choice([*range(-3, 30), 40000, 3 * 10**9, 10**6])
    bits = _BITS.get(kind, 64)
    return value % (1 << bits) if kind in _UNSIGNED else (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _text(r: random.Random, field: FieldDescriptor, model: onnx.ModelProto) -> str:
    if field.name == "op_type" and r.random() < 0.7:
        return r.choice(OPS)
    if field.name == "domain" and r.random() < 0.7:
        return r.choice(["", "ai.onnx", "com.microsoft", "my", "ai.onnx.ml"])
    return r.choice(list(_names(model)) or [""]) if r.random() < 0.5 else r.choice(TEXTS)


def _names(model: onnx.ModelProto) -> Iterator[str]:
    for node in model.graph.node:
        yield from (*node.input, *node.output)
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        yield value.name


def rename(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives a tensor, a dimension, a node or an operator a hostile name wherever it is named."""
    kind, new = r.randrange(4), r.choice(TEXTS)
    if kind == 0:
        old = r.choice([name for name in _names(model) if name])
        for part in _messages(model):
            _replace(part, old, new)
    elif kind == 1:
        dims = [d for v in model.graph.input for d in v.type.tensor_type.shape.dim]
        r.choice(dims).dim_param = new
    else:
        node = r.choice(model.graph.node)
        setattr(node, r.choice(["name", "doc_string", "op_type", "domain"]), new)


def _messages(message: Message, depth: int = 0) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE and depth < _DEEPEST:
            for inner in value if _is_list(field) else [value]:
                yield from _messages(inner, depth + 1)


def _replace(message: Message, old: str, new: str) -> None:
    for field, value in message.ListFields():
        if field.cpp_type != FieldDescriptor.CPPTYPE_STRING or field.type == FieldDescriptor.TYPE_BYTES:
            continue
        if not _is_list(field) and value == old:
            setattr(message, field.name, new)
        elif _is_list(field):
            for index in [index for index, each in enumerate(value) if each == old]:
                value[index] = new


def graft(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Puts nodes of another model behind those of this one."""
    taken = list(other.graph.node)[: r.randint(1, 6)]
    ours = list(_names(model)) or ["x"]
    for node in taken:
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        for index in range(len(copy.input)):
            if r.random() < 0.5:
                copy.input[index] = r.choice(ours)
    model.graph.initializer.extend(t for t in other.graph.initializer if r.random() < 0.7)


def swap(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Puts a message of the other model in the place of one of the same type."""
    mine = _walk(r, model)
    theirs = [m for m in _messages(other) if m.DESCRIPTOR is mine.DESCRIPTOR]
    mine.CopyFrom(r.choice(theirs))


def as_function(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Moves a node into a function, and calls it; sometimes with too many arguments, sometimes from itself."""
    node = r.choice(model.graph.node)
    inside = onnx.NodeProto()
    inside.CopyFrom(node)
    formal = [name for name in dict.fromkeys(node.input) if name]
    name = r.choice(["f", "g", r.choice(OPS), r.choice(TEXTS)])
    opsets = [helper.make_opsetid("", r.choice([*(o.version for o in model.opset_import), 17, 3]))]
    opsets += [helper.make_opsetid("my", 1)] if r.random() < 0.8 else []
    names = []
    for attribute in inside.attribute:
        if r.random() < 0.5:
            names.append(attribute.name)
            attribute.CopyFrom(AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name=attribute.name))
    body = [inside]
    if r.random() < 0.1:
        body.append(helper.make_node(name, formal, ["again"], domain="my"))
    model.functions.append(helper.make_function("my", name, formal, list(node.output), body, opsets, names))
    node.op_type, node.domain = name, "my"
    del node.input[:]
    node.input.extend([*formal, *(["x"] * r.choice([0, 0, 1, 5]))])
    if not any(o.domain == "my" for o in model.opset_import):
        model.opset_import.add(domain="my", version=1)


def in_branch(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Moves a node into the body of an If, a Loop or a Scan."""
    at = r.randrange(len(model.graph.node))
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[at])
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    body = helper.make_graph([node], r.choice(TEXTS), [], outs)
    op = r.choice(["If", "If", "Loop", "Scan"])
    names = ("then_branch", "else_branch") if op == "If" else ("body",)
    made = helper.make_node(op, ["cond" if op == "If" else ""], list(node.output), r.choice(["", *TEXTS]))
    made.attribute.extend(helper.make_attribute(name, body) for name in names)
    if op == "If" and r.random() < 0.7:
        model.graph.initializer.append(helper.make_tensor("cond", TensorProto.BOOL, [], [True]))
    model.graph.node[at].CopyFrom(made)


def reference(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes an attribute refer to one of a function, wherever it is."""
    nodes = [n for m in _messages(model) if isinstance(m, onnx.NodeProto) for n in [m] if n.attribute]
    r.choice(r.choice(nodes).attribute).ref_attr_name = r.choice(["strides", "x", *TEXTS])


def amplify(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes numbers large: sizes, counts, dilations, trip counts."""
    large = r.choice([20000, 40000, 10**6, 3 * 10**9, 1 << 40, (1 << 62)])
    places = [m for m in _messages(model) if isinstance(m, AttributeProto) and m.type in (2, 7)]
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64]
    if tensors and (not places or r.random() < 0.5):
        tensor = r.choice(tensors)
        elements = len(tensor.raw_data) // 8 or len(tensor.int64_data)
        tensor.ClearField("int64_data")
        tensor.raw_data = b"".join(r.choice([1, 2, large]).to_bytes(8, "little") for _ in range(elements))
    elif places:
        place = r.choice(places)
        if place.type == AttributeProto.INT:
            place.i = large
        else:
            place.ints[r.randrange(len(place.ints))] = large
    dims = [d for v in model.graph.input for d in v.type.tensor_type.shape.dim]
    if dims and r.random() < 0.2:
        r.choice(dims).dim_value = large


def repeat(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Chains one node to itself many times: what each doubles, 40 double 2^40 times."""
    node = r.choice([n for n in model.graph.node if n.input and n.output])
    times, last = r.choice([5, 30, 45, 400]), node.output[0]
    both = r.random() < 0.5
    for step in range(times):
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        copy.name = f"{node.name}_{step}"
        for index in range(len(copy.input) if both else 1):
            copy.input[index] = last
        del copy.output[:]
        last = f"again{step}"
        copy.output.append(last)


def known(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Does one of the mutations that know ONNX."""
    r.choice(broken.GRAPH)(r, model)


_MUTATIONS: tuple[tuple[Mutation, int], ...] = (
    *((generic, 30), (several, 8), (rename, 12), (graft, 8), (swap, 6), (as_function, 6), (in_branch, 5)),
    *((reference, 3), (amplify, 8), (repeat, 2), (known, 20)),
)
