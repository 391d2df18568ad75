"""Mutations that leave a model well-formed, and change what it means: types, sizes, nesting, order, names."""

from __future__ import annotations

import random

import onnx
from mutate import TEXTS
from onnx import AttributeProto, TensorProto, helper, numpy_helper

_TYPES = tuple(range(27))
_NUMBERS = (float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 1e-45, 1e38, 0.5)
_COUNTS = (0, -1, -2, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 7, 1000)


def swapped_sizes(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Exchanges the sizes of two weights, or turns those of one around, and leaves the data."""
    weights = list(model.graph.initializer)
    a, b = r.choice(weights), r.choice(weights)
    first, second = (list(a.dims)[::-1], None) if a is b else (list(b.dims), list(a.dims))
    for tensor, dims in ((a, first), (b, second)):
        if dims is not None:
            del tensor.dims[:]
            tensor.dims.extend(dims)


def other_type(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives a weight, an input or an output another element type; of a weight the values may be converted."""
    kind = r.randrange(3)
    if kind and model.graph.initializer:
        tensor = r.choice(model.graph.initializer)
        wanted = r.choice(_TYPES)
        if kind == 1:
            tensor.data_type = wanted
            return
        values = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(wanted))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        return
    values = r.choice([*model.graph.input, *model.graph.output])
    values.type.tensor_type.elem_type = r.choice(_TYPES)


def wild_numbers(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives attributes of numbers other ones, or of another length."""
    found = [a for node in model.graph.node for a in node.attribute if a.type in (1, 2, 6, 7)]
    for attribute in r.sample(found, min(len(found), r.choice([1, 2, 5]))):
        if attribute.type == AttributeProto.FLOAT:
            attribute.f = r.choice(_NUMBERS)
        elif attribute.type == AttributeProto.INT:
            attribute.i = r.choice(_COUNTS)
        else:
            numbers = attribute.floats if attribute.type == AttributeProto.FLOATS else attribute.ints
            pool = _NUMBERS if attribute.type == AttributeProto.FLOATS else _COUNTS
            taken = [
                r.choice([*pool, *numbers]) for _ in range(r.choice([0, 1, 2, len(numbers), len(numbers) + 1, 40]))
            ]
            del numbers[:]
            numbers.extend(taken)


def one_name(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives all nodes one name, or all results, or takes all names away."""
    name, kind = r.choice(["", "n", *TEXTS]), r.randrange(4)
    for node in model.graph.node:
        if kind == 0:
            node.name = name
        elif kind == 1 and len(node.output) > 1:
            node.output[-1] = node.output[0]
        elif kind == 2:
            node.doc_string = name
        elif kind == 3 and node.input and r.random() < 0.3:
            node.input[r.randrange(len(node.input))] = ""


def circle(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Has a node read what a later one makes, or itself, or turns the order of the nodes around."""
    nodes = model.graph.node
    if r.random() < 0.3:
        turned = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes][::-1]
        del nodes[:]
        nodes.extend(turned)
        return
    first = r.choice([n for n in nodes if n.input])
    last = r.choice([n for n in nodes if n.output])
    first.input[r.randrange(len(first.input))] = r.choice(last.output)


def nested(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Puts a node into bodies within bodies, whose results may be what is around them."""
    at = r.randrange(len(model.graph.node))
    inner = onnx.NodeProto.FromString(model.graph.node[at].SerializeToString())
    names = list(inner.output)
    for depth in range(r.choice([2, 3, 8, 20, 30])):
        op = r.choice(["If", "If", "Loop", "Scan"])
        given = [helper.make_tensor_value_info(r.choice(["", "i", "c", "x"]), r.choice([7, 9, 1]), [])]
        given = given * r.choice([0, 1, 2, 3]) if op != "If" else []
        results = [
            helper.make_tensor_value_info(r.choice([name, name, "x", ""]), TensorProto.FLOAT, None) for name in names
        ]
        keep = [] if r.random() < 0.1 else [inner]
        body = helper.make_graph(keep, f"b{depth}", given, results)
        taken = [r.choice(["cond", "", "x"]) for _ in range(1 if op == "If" else r.choice([1, 2, 3]))]
        inner = helper.make_node(op, taken, names)
        for name in ("then_branch", "else_branch") if op == "If" else ("body",):
            # Twice the body in each would be too much of them.
            short = name == "else_branch" and depth > 3
            inner.attribute.append(
                helper.make_attribute(name, helper.make_graph([], "e", [], results) if short else body)
            )
        if op == "Scan":
            inner.attribute.append(helper.make_attribute("num_scan_inputs", r.choice([0, 1, 2, -1, 99])))
    model.graph.node[at].CopyFrom(inner)
    if r.random() < 0.8:
        model.graph.initializer.append(helper.make_tensor("cond", TensorProto.BOOL, [], [True]))


def calls(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Puts a node behind a chain of functions, each calling the next: once, twice, or all of them the first."""
    node = r.choice(model.graph.node)
    opsets = [*model.opset_import, helper.make_opsetid("my", 1)]
    formal = list(dict.fromkeys(name for name in node.input if name))
    inside = [onnx.NodeProto.FromString(node.SerializeToString())]
    count = r.choice([1, 2, 5, 20, 60])
    for number in range(count):
        names = [a.name for a in node.attribute] if r.random() < 0.2 else []
        own = list(node.output) * r.choice([1, 1, 1, 2])
        name = r.choice([f"f{number}"] * 8 + ["f0", node.op_type, ""])
        model.functions.append(
            helper.make_function(r.choice(["my"] * 9 + ["", "ai.onnx"]), name, formal, own, inside, opsets, names)
        )
        inside = [helper.make_node(name, formal, list(node.output), domain="my") for _ in range(r.choice([1, 1, 1, 2]))]
    node.CopyFrom(inside[0])
    model.opset_import.add(domain="my", version=r.choice([1, 1, 2, 0]))


def sparse(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes a weight a sparse one, whose indices may be none, too many, double or outside."""
    tensor = r.choice(model.graph.initializer)
    made = model.graph.sparse_initializer.add()
    made.values.CopyFrom(tensor)
    made.dims.extend(r.choice([list(tensor.dims), [1 << 40], [], [-1], [3, 3]]))
    size = max(1, int(numpy_helper.to_array(tensor).size)) if r.random() < 0.5 else r.choice([0, 1, 3])
    indices = [r.choice([number, 0, -1, 1 << 40]) for number in range(min(size, 50))]
    made.indices.CopyFrom(helper.make_tensor(r.choice(["", "i"]), TensorProto.INT64, [len(indices)], indices))
    if r.random() < 0.7:
        model.graph.initializer.remove(tensor)


def no_tensors(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Gives inputs, outputs or inner values types that are no tensors, and nodes that make such."""
    plain = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3])
    kinds = [helper.make_sequence_type_proto(plain), helper.make_optional_type_proto(plain), onnx.TypeProto()]
    kinds += [helper.make_sequence_type_proto(helper.make_sequence_type_proto(plain))]
    kinds += [helper.make_map_type_proto(7, plain), helper.make_sparse_tensor_type_proto(1, [2, "h"])]
    kinds += [helper.make_tensor_type_proto(TensorProto.STRING, [2])]
    value = r.choice(
        [*model.graph.input, *model.graph.output, model.graph.value_info.add(name=model.graph.node[0].output[0])]
    )
    value.type.CopyFrom(r.choice(kinds))
    ops = ["SequenceConstruct", "SplitToSequence", "ConcatFromSequence", "SequenceAt", "SequenceEmpty", "Optional"]
    ops += [
        "OptionalGetElement",
        "OptionalHasElement",
        "StringConcat",
        "StringNormalizer",
        "SequenceMap",
        "TfIdfVectorizer",
    ]
    for op in r.sample(ops, r.choice([0, 1, 2])):
        source = r.choice(model.graph.node)
        model.graph.node.append(helper.make_node(op, [r.choice([*source.output, value.name])], [f"{op}_y"]))


def texts(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Makes a weight one of strings, well made or not."""
    tensor = r.choice(model.graph.initializer)
    count = r.choice([0, 1, 2, 5])
    made = TensorProto(name=tensor.name, data_type=TensorProto.STRING, dims=r.choice([[count], list(tensor.dims)]))
    made.string_data.extend(r.choice([b"a", b"\xff\xfe", b"", b"\n::error::x"]) for _ in range(count))
    if r.random() < 0.2:
        made.raw_data = b"abc"
    tensor.CopyFrom(made)


def opsets(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Takes opsets away, doubles them, or gives other versions and domains."""
    kind = r.randrange(4)
    if kind == 0:
        del model.opset_import[:]
    elif kind == 1:
        model.opset_import.add(domain=r.choice(["", "ai.onnx"]), version=r.choice([1, 7, 9, 11, 13, 18, 21, 24]))
    elif kind == 2:
        model.opset_import[0].version = r.choice([*range(-1, 30), 1 << 40, -(1 << 63)])
    else:
        model.opset_import.add(domain=r.choice(TEXTS), version=r.choice([0, 1, -5]))
    if r.random() < 0.1:
        model.ir_version = r.choice([0, 1, 2, 3, 13, 99, -1])


def besides(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Writes into what is not the graph: metadata, annotations, training, devices."""
    for holder in r.sample([model, model.graph, r.choice(model.graph.node)], 2):
        for _ in range(r.choice([1, 2])):
            holder.metadata_props.add(
                key=r.choice(["trtconv", "names", "", *TEXTS]), value=r.choice(["{}", "[", *TEXTS])
            )
    kind = r.randrange(3)
    if kind == 0:
        note = model.graph.quantization_annotation.add(tensor_name=r.choice(["x", "w", *TEXTS]))
        note.quant_parameter_tensor_names.add(key=r.choice(["SCALE_TENSOR", "x"]), value=r.choice(["s", *TEXTS]))
    elif kind == 1:
        model.training_info.add().algorithm.CopyFrom(model.graph)
    else:
        info = model.graph.value_info.add()
        info.CopyFrom(r.choice([*model.graph.input, *model.graph.output]))
        info.name = r.choice([*(name for node in model.graph.node for name in node.output), "x"])


def quantisers(r: random.Random, model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    """Puts a quantiser and its counterpart in front of a node's input, with odd parameters."""
    node = r.choice([n for n in model.graph.node if n.input])
    slot = r.randrange(len(node.input))
    count = r.choice([1, 1, 2, 3, 8])
    shape = r.choice([[], [], [count], [count, 1], [1, count], [0]])
    size = 0 if shape == [0] else 1 if not shape else count
    scales = [r.choice([0.1, 0.1, 0.0, -1.0, 1e-40, *_NUMBERS]) for _ in range(size)]
    number = len(model.graph.initializer)
    model.graph.initializer.append(helper.make_tensor(f"s{number}", r.choice([1, 1, 1, 10, 16]), shape, scales))
    kind = r.choice([2, 2, 3, 3, 5, 6, 17, 21, 22])
    zeros = [r.choice([0, 0, 1])] * size
    model.graph.initializer.append(
        helper.make_tensor(f"z{number}", kind, r.choice([shape, shape, []]), zeros or [0][:size])
    )
    more = [f"s{number}", *r.choice([[], [f"z{number}"], [f"z{number}"]])]
    made = []
    if r.random() < 0.8:
        made.append(helper.make_node("QuantizeLinear", [node.input[slot], *more], [f"q{number}"]))
    source = f"q{number}" if made else node.input[slot]
    made.append(
        helper.make_node(
            "DequantizeLinear", [source, *more], [f"d{number}"], domain=r.choice(["", "", "com.microsoft"])
        )
    )
    for each in made:
        if r.random() < 0.6:
            each.attribute.append(helper.make_attribute("axis", r.choice([0, 1, -1, 2, 5, -9, 1 << 40])))
        if r.random() < 0.1:
            each.attribute.append(helper.make_attribute("block_size", r.choice([0, 1, 2, 16, -1])))
    at = list(model.graph.node).index(node)
    for each in reversed(made):
        model.graph.node.insert(at, each)
    model.graph.node[at + len(made)].input[slot] = f"d{number}"


MEANINGS = (
    *((swapped_sizes, 4), (other_type, 6), (wild_numbers, 8), (one_name, 3), (circle, 2), (nested, 6), (calls, 4)),
    *((sparse, 3), (no_tensors, 4), (texts, 2), (opsets, 4), (besides, 3), (quantisers, 10)),
)
"""Each with how often it is taken."""
