"""Quantised constants of which TensorRT takes no quantised form, against ONNX Runtime and plain arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from support.onnx_models import RTX, TENSORRT_8, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PassResult, passes_for, run_passes

FOREIGN = {
    "uint4": ml_dtypes.uint4,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
}
KINDS = {**FOREIGN, "int8": np.int8, "uint8": np.uint8, "int4": ml_dtypes.int4}


def constant_net(
    values: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    perm: tuple[int, ...] = (),
    **attributes: int,
) -> onnx.ModelProto:
    """Returns a network that dequantises a constant, and adds it to its input."""
    weights = [numpy_helper.from_array(values, "q"), numpy_helper.from_array(scale, "s")]
    weights += [] if zero is None else [numpy_helper.from_array(zero, "z")]
    moved = [helper.make_node("Transpose", ["q"], ["t"], perm=perm)] if perm else []
    inputs = ["t" if perm else "q", "s", *(["z"] if zero is not None else [])]
    nodes = [*moved, helper.make_node("DequantizeLinear", inputs, ["w"], "dq", **attributes)]
    nodes.append(helper.make_node("Add", ["x", "w"], ["y"], "add"))
    shape = [values.shape[axis] for axis in perm] if perm else list(values.shape)
    io = [helper.make_tensor_value_info(name, 1, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", io[:1], io[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def settled(proto: onnx.ModelProto, target: Target = RTX) -> tuple[OnnxModel, PassResult]:
    """Runs the pass, twice: the second time there is nothing left to do."""
    model = wrap(proto)
    passes = [each for each in passes_for("int8") if each.name == "settle-quantized-constants"]
    done = run_passes(model, passes, target)
    again = run_passes(model, passes, target)
    assert not again.edits
    return model, done


def result_of(proto: onnx.ModelProto, shape: tuple[int, ...]) -> np.ndarray:
    """Runs a network; of blocks, which ONNX Runtime knows some of, it adds up what ONNX defines."""
    node = next((node for node in proto.graph.node if node.op_type == "DequantizeLinear"), None)
    attributes = {} if node is None else {each.name: each.i for each in node.attribute}
    if "block_size" not in attributes:
        return run(proto, {"x": np.zeros(shape, np.float32)})[0]
    assert node is not None
    known = {each.name: numpy_helper.to_array(each).astype(np.float32) for each in proto.graph.initializer}
    turned = next((each for each in proto.graph.node if each.op_type == "Transpose"), None)
    q = known[node.input[0]] if turned is None else known["q"].transpose(list(turned.attribute[0].ints))
    scale, zero = (known[name] for name in node.input[1:])
    result = np.zeros(shape, np.float32)
    for place in np.ndindex(shape):
        block = tuple(
            at // attributes["block_size"] if axis == attributes["axis"] else at for axis, at in enumerate(place)
        )
        result[place] = (q[place] - zero[block]) * scale[block]
    return result


@st.composite
def constants(draw: st.DrawFn) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Draws a constant of any type, rank, order and way to be quantised."""
    rank = draw(st.integers(0, 4))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    kind = draw(st.sampled_from(sorted(KINDS)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = kind in ("int8", "uint8", "int4", "uint4")
    low, high = {"int8": (-128, 127), "int4": (-8, 7), "uint4": (0, 15)}.get(kind, (0, 255))
    values = random.integers(low, high + 1, shape) if whole else random.normal(size=shape) * 4
    values = np.asarray(values).astype(KINDS[kind])
    perm = tuple(draw(st.permutations(range(rank)))) if rank > 1 and kind == "int8" and draw(st.booleans()) else ()
    behind = tuple(shape[axis] for axis in perm) if perm else shape
    axis = draw(st.integers(0, rank - 1)) if rank else 0
    way = draw(st.sampled_from(["tensor", "channel", "block"])) if rank else "tensor"
    block = draw(st.integers(1, 3)) if way == "block" else 0
    sizes = {"tensor": (), "channel": behind[axis : axis + 1]}.get(way)
    if sizes is None:
        sizes = tuple(-(-size // block) if each == axis else size for each, size in enumerate(behind))
    scale = random.uniform(0.01, 1, sizes).astype(np.float32)
    if draw(st.booleans()):
        scale = np.where(random.uniform(size=sizes) < 0.5, np.float32(0), scale)
    point = random.integers(low, high + 1, sizes) if whole and draw(st.booleans()) else np.zeros(sizes)
    zero = np.asarray(point).astype(KINDS[kind])
    attributes = {"axis": axis, **({"block_size": block} if block else {})} if way != "tensor" else {}
    return constant_net(values, np.asarray(scale), zero, perm, **attributes), behind


@given(constants())
def test_a_settled_constant_means_what_it_meant(drawn: tuple[onnx.ModelProto, tuple[int, ...]]) -> None:
    proto, shape = drawn
    model, done = settled(proto)
    onnx.checker.check_model(model.proto, full_check=True)
    if done.edits:
        np.testing.assert_array_equal(result_of(model.proto, shape), result_of(proto, shape))
    dequantizer = next((node for node in model.proto.graph.node if node.op_type == "DequantizeLinear"), None)
    if dequantizer is None:
        assert done.edits
        return
    # What is still quantised is stored, has axes, a type that TensorRT knows, and no scale of 0.
    integers, scale = (model.main.values(name) for name in dequantizer.input[:2])
    assert integers is not None and scale is not None
    assert integers.ndim and str(integers.dtype) in ("int8", "uint8", "int4")
    assert (scale > 0).all()


@pytest.mark.parametrize("kind", ["uint2", "int2"])
def test_two_bits_are_folded(kind: str) -> None:
    values = np.arange(4).reshape(2, 2)
    proto = constant_net(np.zeros((2, 2), np.int8), np.array(0.5, np.float32), None)
    tensor = helper.make_tensor("q", getattr(onnx.TensorProto, kind.upper()), [2, 2], (values % 2).ravel().tolist())
    proto.graph.initializer[0].CopyFrom(tensor)
    model, done = settled(proto)
    assert [edit.node for edit in done.edits] == ["dq"]
    np.testing.assert_array_equal(model.main.values("w"), values % 2 * np.float32(0.5))


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_blocks_are_kept_for_products_and_folded_for_convolutions(op: str) -> None:
    values = np.random.default_rng(0).integers(-128, 128, (8, 8, 1, 1)).astype(np.int8)
    proto = constant_net(values, np.full((2, 8, 1, 1), 0.5, np.float32), None, axis=0, block_size=4)
    proto.graph.node[-1].CopyFrom(helper.make_node(op, ["x", "w"], ["y"]))
    assert settled(proto)[0].main.values("w").dtype == np.float32
    product = constant_net(values[:, :, 0, 0], np.full((2, 8), 0.5, np.float32), None, axis=0, block_size=4)
    product.graph.node[-1].CopyFrom(helper.make_node("MatMul", ["x", "w"], ["y"]))
    assert not settled(product)[1].edits


@pytest.mark.parametrize("scale", [np.nan, np.inf, -0.5])
def test_a_scale_without_meaning_is_left(scale: float) -> None:
    proto = constant_net(np.ones((2, 2), np.int8), np.array([scale, 0], np.float32), None, axis=0)
    _, done = settled(proto)
    assert not done.edits
    assert [skip.node for skip in done.skipped] == ["dq"]


def test_scales_that_do_not_fit_their_blocks_are_left() -> None:
    values = np.ones((4, 4, 2, 2), np.int8).astype(ml_dtypes.uint4)
    _, done = settled(constant_net(values, np.ones((3, 4, 2, 2), np.float32), None, axis=0, block_size=2))
    assert not done.edits
    assert "do not fit blocks" in done.skipped[0].reason


@pytest.mark.parametrize("kind", ["int4", "float8_e4m3fn", "blocks", "int8"])
def test_what_only_newer_versions_know_is_folded_for_tensorrt_8(kind: str) -> None:
    dtype = {"int4": ml_dtypes.int4, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}.get(kind, np.int8)
    values = np.arange(-4, 4, dtype=np.int8).reshape(4, 2).astype(dtype)
    scale = np.array([[0.5, 2], [4, 0.25]], np.float32) if kind == "blocks" else np.float32(0.5)
    proto = constant_net(values, np.asarray(scale), None, **({"axis": 0, "block_size": 2} if kind == "blocks" else {}))
    means = values.astype(np.float32) * (np.repeat(scale, 2, 0) if kind == "blocks" else scale)
    model, done = settled(proto, TENSORRT_8)
    assert len(done.edits) == (kind != "int8")
    if kind != "int8":
        np.testing.assert_array_equal(model.main.values("w"), means)
    assert not settled(proto)[1].edits
