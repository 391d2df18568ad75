"""Makes the networks that are too large to keep. `python bench/networks.py MEGABYTES PATH` makes a heavy one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPELLINGS: tuple[dict[str, object], ...] = (
    {"pads": [0, 0, 0, 0], "output_padding": [1, 1]},
    {"pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    {"auto_pad": "SAME_UPPER"},
    {"output_shape": [16, 16]},
)
"""What the passes meet: a kernel to grow, pads to fold, SAME, output_shape."""


def chain(deconvolutions: int, between: int = 0) -> onnx.ModelProto:
    """Makes a chain of (ConvTranspose to twice the size, AveragePool back), spelled in all ways in turn.

    Args:
        deconvolutions: How many.
        between: Nodes of other kinds (Conv, Relu) that follow each of them.
    """
    random = np.random.default_rng(0)
    nodes, weights, tensor = [], [], "x"
    for number in range(deconvolutions):
        weight = random.standard_normal((2, 2, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        weights.append(numpy_helper.from_array(np.ones(2, np.float32), f"b{number}"))
        spelling = SPELLINGS[number % len(SPELLINGS)]
        inputs = [tensor, f"w{number}", f"b{number}"]
        nodes.append(
            helper.make_node("ConvTranspose", inputs, [f"t{number}"], f"up{number}", strides=[2, 2], **spelling)
        )
        # From 18x18 or 16x16 back to 8x8.
        size = 4 if spelling.get("pads") == [0, 0, 0, 0] else 2
        nodes.append(
            helper.make_node(
                "AveragePool",
                [f"t{number}"],
                [f"p{number}"],
                f"down{number}",
                kernel_shape=[size, size],
                strides=[2, 2],
            )
        )
        tensor = f"p{number}"
        for step in range(between):
            before, tensor = tensor, f"m{number}_{step}"
            if step % 2:
                nodes.append(helper.make_node("Relu", [before], [tensor], f"relu{number}_{step}"))
                continue
            kernel = random.standard_normal((2, 2, 3, 3)).astype(np.float32)
            weights.append(numpy_helper.from_array(kernel, f"k{number}_{step}"))
            inputs = [before, f"k{number}_{step}"]
            nodes.append(helper.make_node("Conv", inputs, [tensor], f"conv{number}_{step}", pads=[1, 1, 1, 1]))
    return _model(nodes, weights, [1, 2, 8, 8], tensor)


def heavy(megabytes: int) -> onnx.ModelProto:
    """Makes a chain of 1x1 convolutions of 64 MiB each, and two deconvolutions for the passes."""
    random = np.random.default_rng(0)
    weights = [numpy_helper.from_array(random.standard_normal((4096, 8, 3, 3)).astype(np.float32), "w_up")]
    weights.append(numpy_helper.from_array(random.standard_normal((8, 4, 3, 3)).astype(np.float32), "w_last"))
    nodes, tensor = [], "x"
    for number in range(max(1, megabytes * 10**6 // (4096 * 4096 * 4))):
        weight = random.random((4096, 4096, 1, 1), dtype=np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("Conv", [tensor, f"w{number}"], [f"t{number}"], f"conv{number}"))
        tensor = f"t{number}"
    up = {"strides": [2, 2], "pads": [0, 0, 0, 0], "output_padding": [1, 1]}
    nodes.append(helper.make_node("ConvTranspose", [tensor, "w_up"], ["up"], "up", **up))
    nodes.append(helper.make_node("ConvTranspose", ["up", "w_last"], ["y"], "last", **up))
    return _model(nodes, weights, [1, 4096, 4, 4], "y")


def _model(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], shape: list[int], output: str
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


if __name__ == "__main__":
    megabytes, path = int(sys.argv[1]), Path(sys.argv[2])
    onnx.save_model(heavy(megabytes), path, save_as_external_data=True, location=f"{path.name}.data")
