"""Makes broken models: a valid seed, then mutations of its graph, its external data or its bytes.

A case is its number: the same number makes the same files.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

Mutation = Callable[[random.Random, onnx.ModelProto], None]

INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    -2,
    64,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    (1 << 62),
    (1 << 63) - 1,
    -(1 << 63),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-45, 3.4e38)
NAMES = (
    "",
    "x",
    "y",
    "w",
    " ",
    "a" * 300,
    "\u00e9\u4e2d",
    "\x00",
    "\x1b[2J",
    "a/b",
    "../../x",
    "%s%n",
    "'\"\\",
    "\n::error::x",
)


def _model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], dims: list[int | str]) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _weights(*shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    numbers = np.random.default_rng(0)
    return [
        numpy_helper.from_array(numbers.standard_normal(shape).astype(np.float32), f"w{i}")
        for i, shape in enumerate(shapes)
    ]


def _deconvs() -> onnx.ModelProto:
    up = helper.make_node("ConvTranspose", ["x", "w0", "w1"], ["a"], "up0", strides=[2, 2], output_padding=[1, 1])
    same = helper.make_node("ConvTranspose", ["a", "w2"], ["b"], "up1", auto_pad="SAME_UPPER", strides=[2, 2])
    fixed = helper.make_node("ConvTranspose", ["b", "w3"], ["c"], "up2", output_shape=[40, 40], strides=[2, 2])
    last = helper.make_node("Relu", ["c"], ["y"], "relu")
    return _model([up, same, fixed, last], _weights((2, 3, 3, 3), (3,), (3, 2, 3, 3), (2, 1, 3, 3)), [1, 2, 4, 4])


def _dynamic() -> onnx.ModelProto:
    down = helper.make_node("Conv", ["x", "w0"], ["a"], "down", strides=[2, 2], pads=[1, 1, 1, 1])
    up = helper.make_node(
        "ConvTranspose", ["a", "w1"], ["b"], "up", strides=[2, 2], dilations=[2, 2], pads=[2, 2, 1, 1]
    )
    return _model(
        [down, up, helper.make_node("Relu", ["b"], ["y"])], _weights((4, 2, 3, 3), (4, 2, 3, 3)), [1, 2, "h", "w"]
    )


def _quantised() -> onnx.ModelProto:
    scales = [
        numpy_helper.from_array(np.full(3, 0.02, np.float32), "ws"),
        numpy_helper.from_array(np.float32(0.1), "s"),
    ]
    zeros = [numpy_helper.from_array(np.zeros(3, np.int8), "wz"), numpy_helper.from_array(np.uint8(128), "z")]
    weight = numpy_helper.from_array(np.arange(-27, 27, dtype=np.int8).reshape(2, 3, 3, 3), "w0")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "dq"),
        helper.make_node("DequantizeLinear", ["w0", "ws", "wz"], ["wd"], "wdq", axis=1),
        helper.make_node("ConvTranspose", ["d", "wd"], ["c"], "up", strides=[2, 2], output_padding=[1, 1]),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"], "q2"),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"], "dq2"),
    ]
    return _model(nodes, [*scales, *zeros, weight], [1, 2, 4, 4])


def _branches() -> onnx.ModelProto:
    def branch(name: str, pads: list[int]) -> onnx.GraphProto:
        node = helper.make_node("ConvTranspose", ["x", "w0"], [f"{name}_y"], name, strides=[2, 2], pads=pads)
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        return helper.make_graph([node], name, [], [out])

    condition = helper.make_node("Constant", [], ["cond"], value=numpy_helper.from_array(np.bool_(True)))
    choice = helper.make_node(
        "If", ["cond"], ["y"], "if", then_branch=branch("t", [0] * 4), else_branch=branch("e", [1, 1, 0, 0])
    )
    return _model([condition, choice], _weights((2, 3, 3, 3)), [1, 2, 4, 4])


def _linear() -> onnx.ModelProto:
    zero = numpy_helper.from_array(np.int8(3), "z")
    scale = numpy_helper.from_array(np.float32(0.1), "s")
    weight = numpy_helper.from_array(np.ones((2, 2), np.int8), "w0")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "s", "z", "w0", "s", "z", "s", "z"], ["m"]),
        helper.make_node("DequantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    return _model(nodes, [zero, scale, weight], [1, 2])


SEEDS = (_deconvs, _dynamic, _quantised, _branches, _linear)


def _node(r: random.Random, m: onnx.ModelProto) -> onnx.NodeProto:
    return r.choice(m.graph.node) if m.graph.node else m.graph.node.add(op_type="Relu", input=["x"], output=["y"])


def cycle(r: random.Random, m: onnx.ModelProto) -> None:
    node = _node(r, m)
    if node.input and node.output:
        node.input[r.randrange(len(node.input))] = r.choice(list(_node(r, m).output) or ["y"])


def duplicate_names(r: random.Random, m: onnx.ModelProto) -> None:
    for node in m.graph.node:
        node.name = "same"
        if node.output and r.random() < 0.5:
            node.output[0] = _node(r, m).output[0] if _node(r, m).output else "y"


def missing_tensor(r: random.Random, m: onnx.ModelProto) -> None:
    node = _node(r, m)
    if node.input:
        node.input[r.randrange(len(node.input))] = r.choice(["nowhere", "", "y"])


def drop_input(r: random.Random, m: onnx.ModelProto) -> None:
    node = _node(r, m)
    del node.input[r.randrange(len(node.input) + 1) :]


def more_inputs(r: random.Random, m: onnx.ModelProto) -> None:
    _node(r, m).input.extend(r.choice(["x", "", "w0", "y"]) for _ in range(r.choice([1, 3, 500])))


def drop_output(r: random.Random, m: onnx.ModelProto) -> None:
    del _node(r, m).output[:]


def drop_node(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.node:
        del m.graph.node[r.randrange(len(m.graph.node))]


def no_nodes(r: random.Random, m: onnx.ModelProto) -> None:
    del m.graph.node[:]


def drop_weight(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.initializer:
        del m.graph.initializer[r.randrange(len(m.graph.initializer))]


def other_op(r: random.Random, m: onnx.ModelProto) -> None:
    ops = ("ConvTranspose", "QuantizeLinear", "DequantizeLinear", "Reshape", "If", "Loop", "Scan", "Constant", "Resize")
    _node(r, m).op_type = r.choice([*ops, "QLinearConv", "ConvInteger", "Nope", "", "Transpose", "Pad", "MatMul"])


def other_domain(r: random.Random, m: onnx.ModelProto) -> None:
    _node(r, m).domain = r.choice(["ai.onnx", "com.microsoft", "my", "\u00e9", "ai.onnx.ml"])


def wild_attribute(r: random.Random, m: onnx.ModelProto) -> None:
    node = _node(r, m)
    names = [
        "strides",
        "pads",
        "dilations",
        "output_padding",
        "output_shape",
        "kernel_shape",
        "group",
        "axis",
        "auto_pad",
    ]
    name = r.choice(names)
    kept = [a for a in node.attribute if a.name != name]
    length = r.choice([0, 1, 2, 3, 4, 4, 2, 8])
    value = r.choice(
        [
            [r.choice(INTEGERS) for _ in range(length)] or r.choice(INTEGERS),
            [r.randint(-3, 9) for _ in range(length)] or 1,
            r.choice(INTEGERS),
            r.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "", "nonsense", "\u00e9"]),
            r.choice(FLOATS),
            b"\xff\xfe",
            numpy_helper.from_array(np.zeros((2, 0), np.float32)),
        ]
    )
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def twice_the_attribute(r: random.Random, m: onnx.ModelProto) -> None:
    node = _node(r, m)
    if node.attribute:
        node.attribute.add().CopyFrom(r.choice(node.attribute))


def bare_attribute(r: random.Random, m: onnx.ModelProto) -> None:
    attribute = _node(r, m).attribute.add(name=r.choice(["pads", "strides", "value", "body", "axis", "auto_pad", ""]))
    attribute.type = r.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 10])


def huge_attribute(r: random.Random, m: onnx.ModelProto) -> None:
    name = r.choice(["pads", "strides", "kernel_shape", "output_shape", "axes"])
    _node(r, m).attribute.append(helper.make_attribute(name, [r.choice(INTEGERS)] * 200_000))


def absurd_dims(r: random.Random, m: onnx.ModelProto) -> None:
    tensor = r.choice(m.graph.initializer) if m.graph.initializer else m.graph.initializer.add(name="w0")
    dims = [r.choice(INTEGERS) for _ in range(r.choice([0, 1, 3, 4, 5, 9]))]
    del tensor.dims[:]
    tensor.dims.extend(dims)


def absurd_input(r: random.Random, m: onnx.ModelProto) -> None:
    for value in m.graph.input:
        del value.type.tensor_type.shape.dim[:]
        for _ in range(r.choice([0, 1, 2, 3, 4, 5, 9])):
            dim = value.type.tensor_type.shape.dim.add()
            if r.random() < 0.7:
                dim.dim_value = r.choice(INTEGERS)
            else:
                dim.dim_param = r.choice(NAMES)


def odd_input_type(r: random.Random, m: onnx.ModelProto) -> None:
    value = m.graph.input[0] if m.graph.input else m.graph.input.add(name="x")
    choice = r.randrange(4)
    if choice == 0:
        value.ClearField("type")
    elif choice == 1:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif choice == 2:
        value.type.tensor_type.elem_type = r.choice([0, 2, 8, 14, 16, 17, 22, 23, 99, -1])
    else:
        value.type.tensor_type.ClearField("shape")


def odd_weight_type(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.initializer:
        r.choice(m.graph.initializer).data_type = r.choice(
            [0, 2, 3, 5, 8, 9, 10, 11, 14, 16, 17, 19, 22, 23, 26, 99, -1]
        )


def odd_weight_data(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.initializer:
        tensor = r.choice(m.graph.initializer)
        data = tensor.raw_data
        choice = r.randrange(4)
        tensor.raw_data = [data[:-1], data * 2, b"", bytes(r.randrange(256) for _ in data)][choice]


def odd_floats(r: random.Random, m: onnx.ModelProto) -> None:
    for tensor in m.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.raw_data:
            values = np.frombuffer(tensor.raw_data, np.float32).copy()
            values[r.randrange(values.size)] = r.choice(FLOATS)
            tensor.raw_data = values.tobytes()


def twice_the_weight(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.initializer:
        m.graph.initializer.add().CopyFrom(r.choice(m.graph.initializer))


def weight_is_input(r: random.Random, m: onnx.ModelProto) -> None:
    for tensor in m.graph.initializer:
        dims = [r.choice([n, n + 1, -1]) for n in tensor.dims]
        m.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))


def weight_becomes_input(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.initializer:
        index = r.randrange(len(m.graph.initializer))
        tensor = m.graph.initializer[index]
        m.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        del m.graph.initializer[index]


def sparse_weight(r: random.Random, m: onnx.ModelProto) -> None:
    sparse = m.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), r.choice(["w0", "w9"])))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0, r.choice(INTEGERS)], np.int64), "i"))
    sparse.dims.extend([2, 3, 3, 3])


def no_outputs(r: random.Random, m: onnx.ModelProto) -> None:
    del m.graph.output[:]


def odd_output(r: random.Random, m: onnx.ModelProto) -> None:
    m.graph.output[0].name = r.choice([*NAMES, "x", "w0", "nowhere"])


def twice_the_output(r: random.Random, m: onnx.ModelProto) -> None:
    m.graph.output.extend([m.graph.output[0]] * r.choice([1, 300]))


def no_inputs(r: random.Random, m: onnx.ModelProto) -> None:
    del m.graph.input[:]


def twice_the_input(r: random.Random, m: onnx.ModelProto) -> None:
    if m.graph.input:
        m.graph.input.append(m.graph.input[0])


def odd_names(r: random.Random, m: onnx.ModelProto) -> None:
    old, new = r.choice(["x", "w0", "a", "c"]), r.choice(NAMES)
    for node in m.graph.node:
        node.name = r.choice(NAMES)
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                if name == old:
                    names[index] = new
    for value in (*m.graph.input, *m.graph.output, *m.graph.initializer):
        value.name = new if value.name == old else value.name


def deep(r: random.Random, m: onnx.ModelProto) -> None:
    graph = copy.deepcopy(m.graph)
    graph.ClearField("input")
    for level in range(r.choice([3, 20, 45])):
        node = helper.make_node(
            "If", ["cond"], [f"y{level}"], then_branch=graph, else_branch=graph if level < 3 else None
        )
        out = helper.make_tensor_value_info(f"y{level}", TensorProto.FLOAT, None)
        graph = helper.make_graph([node], f"g{level}", [], [out])
    m.graph.node.extend(graph.node)


def empty_subgraph(r: random.Random, m: onnx.ModelProto) -> None:
    name = r.choice(["then_branch", "body", "else_branch"])
    _node(r, m).attribute.append(helper.make_attribute(name, onnx.GraphProto()))


def recursive_function(r: random.Random, m: onnx.ModelProto) -> None:
    inner = helper.make_node("f", ["a"], ["b"], domain="my")
    more = helper.make_node("ConvTranspose", ["b", "a"], ["c"])
    opsets = [helper.make_opsetid("", r.choice([17, 3, 99])), helper.make_opsetid("my", 1)]
    m.functions.append(helper.make_function("my", "f", ["a"], ["c"], [inner, more], opsets))
    m.opset_import.append(helper.make_opsetid("my", 1))
    m.graph.node.insert(0, helper.make_node("f", ["x"], ["fx"], domain="my"))


def odd_opset(r: random.Random, m: onnx.ModelProto) -> None:
    choice = r.randrange(4)
    if choice == 0:
        del m.opset_import[:]
    elif choice == 1:
        m.opset_import[0].version = r.choice(INTEGERS)
    elif choice == 2:
        m.opset_import.append(helper.make_opsetid("", r.choice([1, 17, 26])))
    else:
        m.ir_version = r.choice([0, 1, 3, 9, 99, (1 << 62)])


def odd_metadata(r: random.Random, m: onnx.ModelProto) -> None:
    for node in m.graph.node:
        value = r.choice(['File "', 'File "a", line 99999999999999999999, in f', "x" * 100_000, 'File "\x1b", line -1'])
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=value)


def long_chain(r: random.Random, m: onnx.ModelProto) -> None:
    last = m.graph.node[-1].output[0] if m.graph.node and m.graph.node[-1].output else "x"
    for i in range(r.choice([10, 2000])):
        m.graph.node.append(helper.make_node("Relu", [last], [f"chain{i}"]))
        last = f"chain{i}"
    if r.random() < 0.3:
        m.graph.node.sort(key=lambda node: node.output[0] if node.output else "")


GRAPH: tuple[Mutation, ...] = (
    *(cycle, duplicate_names, missing_tensor, drop_input, more_inputs, drop_output, drop_node, no_nodes, drop_weight),
    *(other_op, other_domain, wild_attribute, wild_attribute, wild_attribute, twice_the_attribute, bare_attribute),
    *(huge_attribute, absurd_dims, absurd_input, odd_input_type, odd_weight_type, odd_weight_data, odd_floats),
    *(twice_the_weight, weight_is_input, weight_becomes_input, sparse_weight, no_outputs, odd_output, twice_the_output),
    *(no_inputs, twice_the_input, odd_names, deep, empty_subgraph, recursive_function, odd_opset, odd_metadata),
    long_chain,
)


def external(r: random.Random, m: onnx.ModelProto, folder: Path) -> None:
    """Moves weights into a file, and lies about it."""
    data = folder / "w.data"
    (folder / "sub").mkdir()
    data.write_bytes(bytes(4096))
    _spoil_file(r, folder, data)
    for tensor in m.graph.initializer:
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        places = [
            "w.data",
            "w.data",
            "w.data",
            "../w.data",
            "/etc/passwd",
            "",
            ".",
            "sub",
            "/dev/zero",
            "w\x00",
            "sub/..",
        ]
        tensor.external_data.add(key="location", value=r.choice(places))
        numbers = ["0", "0", str(size), "-1", str(1 << 62), "1e3", "", "\u0663", "9" * 5000, " 1", str(1 << 31)]
        for key in ("offset", "length"):
            if r.random() < 0.7:
                tensor.external_data.add(key=key, value=r.choice(numbers if r.random() < 0.7 else ["0", str(size)]))


def _spoil_file(r: random.Random, folder: Path, data: Path) -> None:
    choice = r.randrange(6)
    if choice == 0:
        data.unlink()
        data.symlink_to(r.choice(["/etc/passwd", "w.data", "nowhere", "/dev/zero", str(folder / "sub")]))
    elif choice == 1:
        with data.open("wb") as file:
            file.truncate(1 << 40)
    elif choice == 2:
        data.write_bytes(b"")
    elif choice == 3:
        data.chmod(0)


def mutate_bytes(r: random.Random, data: bytes) -> bytes:
    """Truncates, flips, repeats or inserts bytes."""
    choice = r.randrange(5)
    if choice == 0:
        return data[: r.randrange(len(data) + 1)]
    spoiled = bytearray(data)
    for _ in range(r.choice([1, 2, 8])):
        at = r.randrange(len(spoiled)) if spoiled else 0
        if choice == 1:
            spoiled[at] ^= 1 << r.randrange(8)
        elif choice == 2:
            spoiled[at:at] = bytes(r.randrange(256) for _ in range(r.choice([1, 4])))
        elif choice == 3:
            del spoiled[at : at + r.choice([1, 5])]
        else:
            spoiled[at] = r.choice([0, 0x7F, 0x80, 0xFF])
    return bytes(spoiled)


def make(number: int, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Makes the model of a case.

    Args:
        number: Which case.
        folder: Empty; its files go here.

    Returns:
        The model, and the bounds for its dimensions.
    """
    r = random.Random(number)
    model = r.choice(SEEDS)()
    kind = r.random()
    names = []
    if kind < 0.75:
        for mutation in r.choices(GRAPH, k=r.choice([1, 1, 1, 2, 3])):
            names.append(mutation.__name__)
            _try(mutation, r, model)
    elif kind < 0.85:
        names.append("external")
        external(r, model, folder)
    data = model.SerializeToString()
    if kind >= 0.85:
        names.append("bytes")
        data = mutate_bytes(r, data)
    elif r.random() < 0.03:
        data = data.replace(b"up", b"\xff\xfe")
    path = folder / "m.onnx"
    path.write_bytes(data)
    (folder / "what.txt").write_text(" ".join(names))
    dims = ("h=4:8:16", "w=4:8:16") if any(d.dim_param for d in _dims(model)) else ()
    return path, dims


def _try(mutation: Mutation, r: random.Random, model: onnx.ModelProto) -> None:
    try:
        mutation(r, model)
    except (ValueError, TypeError, IndexError, DecodeError):
        # Some mutations leave nothing for the next ones to work on, and protobuf refuses some values.
        return


def _dims(model: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in model.graph.input:
        yield from value.type.tensor_type.shape.dim
