"""What the tests of sizes share: running ONNX Runtime at many sizes, and networks to try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

from support.session import without_sizes
from trtconv.core.dims import dynamic_dims
from trtconv.core.expressions import derived
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import session
from trtconv.shapes.lattice import Sizes, first_faults

HEADER = '<ir_version: 8, opset_import: ["": 17]>'


def parse(text: str, header: str = HEADER) -> OnnxModel:
    """Makes a model of ONNX's textual syntax."""
    return OnnxModel(onnx.parser.parse_model(header + text), Path("model.onnx"))


def save(text: str, path: Path, header: str = HEADER) -> Path:
    onnx.save(onnx.parser.parse_model(header + text), path)
    return path


def unet(pooled: bool, rank: int = 2, join: str = "Concat", paddings: Any = None) -> onnx.ModelProto:
    """Makes a U-Net of two levels.

    Args:
        pooled: Halve by MaxPool, which rounds down, and double with kernel 2; else Conv and ConvTranspose of kernel 3.
        rank: Spatial dimensions.
        join: How a skip is joined: "Concat" or "Add".
        paddings: output_padding of the two deconvolutions; None: those of a size that is divisible by 4.
    """
    random = np.random.default_rng(3)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(op: str, inputs: list[str], **attrs: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], f"{op}_{len(nodes)}", **attrs))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        weights.append(numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    two, kernel, pads = [2] * rank, 2 if pooled else 3, [0 if pooled else 1] * 2 * rank
    paddings = paddings or [[0 if pooled else 1] * rank] * 2
    tensor, skips = "x", []
    for _ in range(2):
        skips.append(tensor)
        if pooled:
            tensor = add("MaxPool", [tensor], kernel_shape=two, strides=two)
        else:
            tensor = add("Conv", [tensor, weight(2, 2, *[3] * rank)], strides=two, pads=pads)
    for padding in paddings:
        attrs = {"strides": two, "pads": pads, "output_padding": padding}
        tensor = add("ConvTranspose", [tensor, weight(2, 2, *[kernel] * rank), weight(2)], **attrs)
        # What keeps the size may stand between.
        tensor = add("Relu", [add("Conv", [tensor, weight(2, 2, *[1] * rank)])])
        skip = skips.pop()
        tensor = add("Add", [tensor, skip]) if join == "Add" else add("Concat", [tensor, skip], axis=1)
        if join == "Concat":
            tensor = add("Conv", [tensor, weight(2, 4, *[1] * rank)])
    nodes[-1].output[0] = "y"
    dims = [1, 2, *("depth", "height", "width")[3 - rank :]]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "unet", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Brute:
    """Tells by running a model on ONNX Runtime which sizes it accepts."""

    def __init__(self, model: OnnxModel) -> None:
        self.inputs = model.inputs
        # Declared sizes would only add warnings.
        self.session = session(OnnxModel(without_sizes(model.proto), model.path))
        assert not isinstance(self.session, str), self.session
        self.expressions = derived(list(dynamic_dims(model.inputs)))

    def shape(self, point: Mapping[str, int]) -> tuple[int, ...] | None:
        """Returns the shape of the first output, or None where the model fails."""
        found = self.shapes(point)
        return None if found is None else found[0]

    def shapes(self, point: Mapping[str, int]) -> tuple[tuple[int, ...], ...] | None:
        """Returns the shapes of all outputs, or None where the model fails."""
        sizes: dict[str, Any] = {**point, **{n: e.evaluate(point) for n, e in self.expressions.items()}}
        feeds = {}
        for spec in self.inputs:
            dtype = np.int64 if spec.dtype == "int64" else np.float32
            feeds[spec.name] = np.ones([d if isinstance(d, int) else sizes[d] for d in spec.dims], dtype)
        try:
            return tuple(tuple(output.shape) for output in self.session.run(None, feeds))
        except Exception:  # ONNX Runtime has an exception type for every status
            return None


def assert_exact(model: OnnxModel, points: Sequence[Mapping[str, int]]) -> int:
    """Compares the lattice with ONNX Runtime at every point; returns how many are valid."""
    sizes, brute = Sizes(model), Brute(model)
    trial = sizes.run(points)
    assert not trial.opaque
    faults = first_faults(trial.checks, len(points))
    output = trial.tensors[model.outputs[0]].shape
    valid = 0
    for row, point in enumerate(points):
        shape = brute.shape(point)
        said = f"at {dict(point)} ONNX Runtime says {shape}, the lattice {faults[row] and faults[row].evidence(row)}"  # type: ignore[union-attr]
        assert (shape is not None) == (faults[row] is None), said
        if shape is not None and output is not None:
            ours = tuple(int(n.value if n.constant else n.value[row]) for n in output)
            assert ours == shape, f"at {dict(point)}: {ours}, ONNX Runtime {shape}"
            valid += 1
    return valid
