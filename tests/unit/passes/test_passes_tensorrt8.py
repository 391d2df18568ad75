"""Passes for TensorRT 8 alone: kernel_shape behind a DequantizeLinear, weights of layers without int8 kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import parse, wrap
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes, select
from trtconv.rules import run_rules
from trtconv.runtimes.onnxruntime import compare_models

TENSORRT_8 = Target("tensorrt", (8, 6))
RTX = Target("rtx", (1, 7))


def network(
    *, group: int = 1, rank: int = 2, axis: int = 1, folded: bool = False, quiet: bool = False, output: bool = False
) -> onnx.ModelProto:
    """Makes x -> Q -> DQ -> ConvTranspose (quantised weight) [-> Q -> DQ].

    Args:
        group: Groups of the deconvolution.
        rank: Spatial axes.
        axis: Axis of the weight's scales.
        folded: The weight is int8 -> DQ instead of float -> Q -> DQ.
        quiet: The input is not quantised.
        output: The output is.
    """
    random = np.random.default_rng(3)
    shape = (8, 8 // group, *[3] * rank)
    weights = random.standard_normal(shape).astype(np.float32) * np.linspace(0.1, 3, shape[1]).reshape(
        1, -1, *[1] * rank
    ).astype(np.float32)
    others = tuple(a for a in range(weights.ndim) if a != axis)
    scale = (np.abs(weights).max(axis=others) / 127).astype(np.float32)
    wide = scale.reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
    integers = np.clip(np.rint(weights / wide), -128, 127).astype(np.int8)
    values = {
        "w": integers if folded else weights,
        "s": scale,
        "z": np.zeros(scale.shape, np.int8),
        "xs": np.float32(0.03),
        "xz": np.int8(0),
    }
    nodes = []
    if not quiet:
        nodes += [_linear("Quantize", "x", "xs", "xz", "xq"), _linear("Dequantize", "xq", "xs", "xz", "xd")]
    if not folded:
        nodes.append(_linear("Quantize", "w", "s", "z", "wq", axis=axis))
    nodes.append(_linear("Dequantize", "w" if folded else "wq", "s", "z", "wd", axis=axis))
    made = "t" if output else "y"
    nodes.append(
        helper.make_node("ConvTranspose", ["x" if quiet else "xd", "wd"], [made], "up", strides=[2] * rank, group=group)
    )
    if output:
        nodes += [_linear("Quantize", "t", "xs", "xz", "tq"), _linear("Dequantize", "tq", "xs", "xz", "y")]
    sizes = ["n", 8, *("hwd"[:rank])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, *[None] * rank])],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in values.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _linear(kind: str, tensor: str, scale: str, zero: str, output: str, **attrs: int) -> onnx.NodeProto:
    return helper.make_node(f"{kind}Linear", [tensor, scale, zero], [output], f"{output}_node", **attrs)


def rewritten(proto: onnx.ModelProto, target: Target, *only: str) -> tuple[OnnxModel, list[str]]:
    model = OnnxModel(onnx.ModelProto.FromString(proto.SerializeToString()), Path("m.onnx"))
    done = run_passes(model, select(PASSES, only, ()), target)
    return model, [edit.pass_name for edit in done.edits]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("changes", [{"group": 2}, {"group": 8}, {"rank": 3}, {"quiet": True}])
def test_weights_of_float_layers_are_folded_to_what_onnx_means(
    changes: dict[str, int | bool], axis: int, folded: bool
) -> None:
    proto = network(**changes, axis=axis, folded=folded)  # type: ignore[arg-type]
    model, edits = rewritten(proto, TENSORRT_8)
    assert "fold-weight-quantizers" in edits
    assert "move-channel-scales" not in edits
    assert model.main.initializer(next(n for n in model.proto.graph.node if n.name == "up").input[1]) is not None
    assert compare_models(OnnxModel(proto, Path("m.onnx")), model).max_relative_error == 0.0


@pytest.mark.parametrize("changes", [{}, {"rank": 3, "output": True}, {"folded": True}])
def test_layers_that_run_in_int8_keep_their_quantisers(changes: dict[str, int | bool]) -> None:
    _, edits = rewritten(network(**changes), TENSORRT_8, "fold-weight-quantizers")  # type: ignore[arg-type]
    assert edits == []


def test_other_targets_keep_their_quantisers() -> None:
    assert rewritten(network(group=2), RTX)[1] == []
    assert "fold-weight-quantizers" not in rewritten(network(group=2), Target("tensorrt", (10, 3)))[1]


def test_kernel_shape_is_written_where_the_weight_is_no_initializer() -> None:
    model, edits = rewritten(network(), TENSORRT_8, "write-kernel-shape")
    assert edits == ["write-kernel-shape"]
    node = next(n for n in model.proto.graph.node if n.name == "up")
    assert [list(a.ints) for a in node.attribute if a.name == "kernel_shape"] == [[3, 3]]
    assert compare_models(OnnxModel(network(), Path("m.onnx")), model).max_relative_error == 0.0


@pytest.mark.parametrize(
    ("weight", "written"),
    [("[2,2,3,3]", [3, 3]), ("[2,2,3,k]", None), ("[o,2,3,1]", [3, 1]), ("[2,2]", None), ("", None)],
)
def test_kernel_shape_is_written_where_it_is_known(weight: str, written: list[int] | None) -> None:
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,2,8,8] x, float{weight or "[1]"} w) => (float[] y)
        {{ y = Conv (x, w) }}"""
    )
    if not weight:
        proto.graph.input[1].type.tensor_type.ClearField("shape")
    passes = [each for each in PASSES if each.name == "write-kernel-shape"]
    done = run_passes(wrap(proto), passes, TENSORRT_8)
    assert [edit.what for edit in done.edits] == ([] if written is None else [f"kernel_shape {written} written"])
    assert len(done.skipped) == (written is None)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    ("inputs", "what"), [("x, w, b", ""), ("x, w, r", "bias 'r'"), ("x, v, b", "weight 'v'"), ("x, w", "")]
)
def test_a_kernel_size_is_asked_for_where_a_parameter_is_computed(op: str, inputs: str, what: str) -> None:
    values = ", ".join(["1"] * 24)
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[1,2,4,4] x, float[2] r, float[2,2,2,3] v) => (float[1,2,p,q] y)
        <float[2,2,2,3] w = {{{values}}}, float[2] b = {{1, 2}}> {{ y = {op} ({inputs}) }}"""
    )
    found = [finding.message for finding in run_rules(wrap(proto), TENSORRT_8) if finding.code == "TC110"]
    assert [message for message in found if f"the {what} is not" in message] == found
    assert len(found) == bool(what)
    model, edits = rewritten(proto, TENSORRT_8, "write-kernel-shape")
    assert edits == ["write-kernel-shape"] * bool(what)
    written = [list(a.ints) for node in model.proto.graph.node for a in node.attribute if a.name == "kernel_shape"]
    assert written == [[2, 3]] * bool(what)


def test_kernel_shape_is_not_written_for_rtx_or_twice() -> None:
    assert rewritten(network(), RTX, "write-kernel-shape")[1] == []
    model, _ = rewritten(network(), TENSORRT_8, "write-kernel-shape")
    assert rewritten(model.proto, TENSORRT_8, "write-kernel-shape")[1] == []
