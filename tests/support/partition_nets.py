"""Networks that no engine takes whole, small, with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Collects nodes and weights.

    Args:
        seed: Of the weights.
    """

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def hold(self, name: str, values: object, dtype: object = np.float32) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))  # type: ignore[call-overload]
        return name

    def add(self, op: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def conv(self, x: str, channels: tuple[int, int], kernel: int, stride: int, name: str) -> str:
        size = (channels[1], channels[0], kernel, kernel)
        self.hold(f"{name}_w", self.random.standard_normal(size) / np.sqrt(channels[0] * kernel**2))
        pads = [kernel // 2] * 4
        return self.add("Conv", [x, f"{name}_w"], name, strides=[stride, stride], pads=pads)

    def matmul(self, x: str, sizes: tuple[int, int], name: str) -> str:
        self.hold(f"{name}_w", self.random.standard_normal(sizes) / np.sqrt(sizes[0]))
        return self.add("MatMul", [x, f"{name}_w"], name)

    def model(self, inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def value(name: str, kind: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    """Describes an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def detector() -> onnx.ModelProto:
    """Boxes and scores of a small convolutional network with a pyramid, and NonMaxSuppression."""
    net = Net(1)

    def block(x: str, channels: tuple[int, int], kernel: int, stride: int, name: str) -> str:
        made = net.conv(x, channels, kernel, stride, name)
        return net.add("Mul", [made, net.add("Sigmoid", [made], f"{name}_gate")], f"{name}_act")

    x = block(block("images", (3, 8), 3, 2, "stem"), (8, 16), 3, 2, "down")
    fine = block(x, (16, 16), 3, 2, "fine")
    coarse = block(fine, (16, 16), 3, 2, "coarse")
    up = net.add(
        "Resize",
        [coarse, "", net.hold("scales", [1, 1, 2, 2])],
        "up",
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    joined = block(net.add("Concat", [up, fine], "joined", axis=1), (32, 16), 3, 1, "neck")
    head = net.conv(joined, (16, 4 + 5), 1, 1, "head")
    flat = net.add("Reshape", [head, net.hold("flat_shape", [0, 9, -1], np.int64)], "flat")
    sizes = net.hold("parts", [4, 5], np.int64)
    net.nodes.append(helper.make_node("Split", [flat, sizes], ["raw", "logits"], name="split", axis=1))
    centred = net.add("Sigmoid", [net.add("Transpose", ["raw"], "raw_rows", perm=[0, 2, 1])], "centred")
    boxes = net.add("Mul", [centred, net.hold("field", 100)], "boxes")
    scores = net.add("Sigmoid", ["logits"], "scores")
    limits = [net.hold("most", [20], np.int64), net.hold("overlap", [0.5]), net.hold("least", [0.3])]
    net.add("NonMaxSuppression", [boxes, scores, *limits], "selected", center_point_box=1)
    ends = [net.hold("two", [2], np.int64), net.hold("three", [3], np.int64), net.hold("axis", [1], np.int64)]
    index = net.add("Squeeze", [net.add("Slice", ["selected", *ends], "column"), "axis"], "index")
    net.add("Gather", [boxes, index], "picked", axis=1)
    return net.model(
        [value("images", TensorProto.FLOAT, [1, 3, "height", "width"])],
        [
            value("picked", TensorProto.FLOAT, [1, "found", 4]),
            value("selected", TensorProto.INT64, ["found", 3]),
        ],
    )


def packer() -> onnx.ModelProto:
    """A text network that drops the padding by NonZero, and goes on with the tokens that are left."""
    net, width = Net(2), 32
    hidden = net.add("Relu", [net.matmul("embeddings", (width, 64), "first")], "hidden")
    inner = net.add("Add", [net.matmul(hidden, (64, width), "second"), "embeddings"], "inner")
    mixed = net.matmul(net.add("Softmax", [inner], "weights", axis=-1), (width, width), "mixed")
    places = net.add("Transpose", [net.add("NonZero", ["mask"], "kept")], "places", perm=[1, 0])
    packed = net.add("GatherND", [mixed, places], "packed")
    last = net.add("Relu", [net.matmul(packed, (width, 64), "third")], "last")
    net.matmul(last, (64, 8), "logits")
    return net.model(
        [
            value("embeddings", TensorProto.FLOAT, ["batch", "tokens", width]),
            value("mask", TensorProto.BOOL, ["batch", "tokens"]),
        ],
        [value("logits", TensorProto.FLOAT, ["valid", 8])],
    )


def matcher() -> onnx.ModelProto:
    """Features of an image, an operator in the middle that ONNX Runtime has and TensorRT has not, and a classifier."""
    net = Net(3)
    x = net.add("Relu", [net.conv("x", (3, 8), 3, 1, "first")], "first_act")
    x = net.add("Relu", [net.conv(x, (8, 8), 3, 1, "second")], "second_act")
    rows = net.add("Reshape", [x, net.hold("rows_shape", [8, -1], np.int64)], "rows")
    pixels = net.add("Transpose", [rows], "pixels", perm=[1, 0])
    net.hold("codebook", net.random.standard_normal((16, 8)))
    net.add("CDist", [pixels, "codebook"], "distances", domain="com.microsoft", metric="euclidean")
    hidden = net.add("Relu", [net.matmul("distances", (16, 32), "third")], "third_act")
    net.add("Softmax", [net.matmul(hidden, (32, 8), "fourth")], "y", axis=-1)
    return net.model(
        [value("x", TensorProto.FLOAT, [1, 3, "height", "width"])], [value("y", TensorProto.FLOAT, ["pixels", 8])]
    )


BOUNDS = {
    "detector": {"height": "32:64:96", "width": "32:64:128"},
    "packer": {"batch": "1:2:4", "tokens": "4:16:32"},
    "matcher": {"height": "8:16:32", "width": "8:16:32"},
}
"""Network to its dimensions and bounds that it takes."""
NETS = {"detector": detector, "packer": packer, "matcher": matcher}


def write(name: str, folder: Path) -> Path:
    """Writes one of the networks; returns its path."""
    path = folder / f"{name}.onnx"
    onnx.save(NETS[name](), path)
    return path


def flags(name: str) -> list[str]:
    """Returns the --dim flags of a network."""
    return [part for dim, bound in BOUNDS[name].items() for part in ("--dim", f"{dim}={bound}")]
