"""Convolutions whose channels nothing but their weights tells are built, and compute what they did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.graph.channel_counts import channels_by_weights, free_place
from trtconv.passes import PASSES, run_passes
from trtconv.runtimes.assumed import assumed_shapes

NAME = "state-channels"
VIEW = """s = Shape (x)  b = Gather (s, zero)  i = Gather (s, two)  j = Gather (s, three)
t = Concat <axis = 0> (b, {channels}, i, j)  f = Concat <axis = 0> (b, eight, less)  flat = Reshape (x, f)
r = Reshape (flat, t)"""
FREE = {
    "by a Reshape": ("b,8,h,w", VIEW.format(channels="less"), ("r", 1)),
    "by a Reshape, behind others": (
        "b,8,h,w",
        VIEW.format(channels="less").replace("r =", "q =") + " r = Relu (q)",
        ("q", 1),
    ),
    "by an input": ("b,c,h,w", "r = Relu (x)", ("x", 1)),
    "by an input's last axis": ("b,h,w,c", "r = Transpose <perm = [0, 3, 1, 2]> (x)", ("x", 3)),
    "by both of two": ("b,c,h,w", "e = Exp (x)  r = Add (e, x)", ("x", 1)),
    "by what is beside a number": ("b,c,h,w", "r = Mul (x, factor)", ("x", 1)),
    "by what is beside one channel": ("b,c,h,w", "r = Mul (x, ones)", ("x", 1)),
    "by a Reshape that keeps it": ("b,c,h,w", "r = Reshape (x, keep)", ("x", 1)),
    "by another operator": ("b,8,h,w", "c = Cast <to = 7> (factor)  r = CumSum (x, c)  ", None),
}
"""Shape of the input and the nodes before a convolution, to what leaves its channels free."""
KNOWN = {
    "of a convolution": ("b,4,h,w", "r = Conv (x, k)"),
    "of an input": ("b,8,h,w", "r = Relu (x)"),
    "of one of two": ("b,c,h,w", "r = Add (x, eights)"),
    "of a Reshape": ("b,8,h,w", VIEW.format(channels="eight")),
    "of a Reshape whose sizes are computed": ("b,8,h,w", "s = Shape (x)  r = Reshape (x, s)"),
    "of a Reshape of known sizes": ("1,8,4,4", "r = Reshape (x, worked)"),
}


def model(op: str, shape: str, nodes: str, **attributes: object) -> onnx.ModelProto:
    given = f"<{', '.join(f'{name} = {value}' for name, value in attributes.items())}>" if attributes else ""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[{shape}] x) => (float[n,m,p,q] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] less = {{-1}},
        int64[1] eight = {{8}}, float factor = {{2}}, float[1,1,1,1] ones = {{1}}, int64[4] keep = {{0, 0, 0, 0}},
        int64[4] worked = {{1, -1, 4, 4}}, float[8,1,1] eights = {{1, 2, 3, 4, 5, 6, 7, 8}}>
        {{ {nodes}  y = {op} {given} (r, w) }}"""
    )
    r = np.random.default_rng(0)
    weights = (8, 4, 2, 2) if op == "ConvTranspose" else (4, 2, 2, 2)
    kernels = {"w": r.normal(size=weights), "k": r.normal(size=(8, 4, 1, 1))}
    tensors = (numpy_helper.from_array(values.astype(np.float32), name) for name, values in kernels.items())
    proto.graph.initializer.extend(tensors)
    return proto


def edits(proto: onnx.ModelProto, target: Target = RTX) -> tuple[onnx.ModelProto, int]:
    own = wrap(proto)
    result = run_passes(own, PASSES, target)
    return own.proto, [edit.pass_name for edit in result.edits].count(NAME)


def values(shape: str) -> np.ndarray:
    sizes = {"b": 2, "c": 8, "h": 3, "w": 5}
    full = [sizes[part] if part in sizes else int(part) for part in shape.split(",")]
    return np.random.default_rng(1).normal(size=full).astype(np.float32)


@pytest.mark.parametrize("target", [RTX, Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))])
@pytest.mark.parametrize(("op", "given"), [("ConvTranspose", {"strides": [2, 2]}), ("Conv", {"group": 4})])
@pytest.mark.parametrize("case", [case for case, (*_, place) in FREE.items() if place is not None])
def test_channels_are_stated_where_they_are_free(case: str, op: str, given: dict[str, object], target: Target) -> None:
    shape, nodes, _ = FREE[case]
    proto = model(op, shape, nodes, **given)
    after, count = edits(proto, target)
    assert count == 1
    inferred = onnx.shape_inference.infer_shapes(after, data_prop=True)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inferred.graph.value_info}
    convolution = next(node for node in after.graph.node if node.op_type.startswith("Conv"))
    assert shapes[convolution.input[0]][1].dim_value == 8
    x = values(shape)
    np.testing.assert_allclose(run(after, {"x": x})[0], run(proto, {"x": x})[0], atol=1e-5)
    assert edits(after, target)[1] == 0, "once is enough"


@pytest.mark.parametrize("case", KNOWN)
def test_channels_that_are_known_are_left(case: str) -> None:
    proto = model("ConvTranspose", *KNOWN[case])
    assert edits(proto)[1] == 0
    assert free_place(wrap(proto).main, "r") is None


@pytest.mark.parametrize("case", FREE)
def test_what_leaves_them_free_is_told(case: str) -> None:
    shape, nodes, place = FREE[case]
    assert free_place(wrap(model("ConvTranspose", shape, nodes)).main, "r") == place


@pytest.mark.parametrize("case", ["of a convolution", "of an input"])
def test_most_are_told_without_inference(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the whole network, which takes longer than all passes of one of ten thousand nodes."""
    scope = wrap(model("ConvTranspose", *KNOWN[case])).main
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *_, **__: pytest.fail("inference is asked"))
    assert free_place(scope, "r") is None


@pytest.mark.parametrize("step", ["Relu (r{0})", "Add (r{0}, r{0})", "Mul (r{0}, x)"])
def test_a_free_size_far_before_is_found(step: str) -> None:
    steps = "  ".join(f"r{number + 1} = {step.format(number)}" for number in range(900))
    nodes = f"r0 = Abs (x)  {steps}  r = Neg (r900)"
    assert free_place(wrap(model("ConvTranspose", "b,c,h,w", nodes)).main, "r") == ("x", 1)


def test_what_is_further_than_that_is_taken_for_known() -> None:
    steps = "  ".join(f"r{number + 1} = Relu (r{number})" for number in range(2000))
    scope = wrap(model("ConvTranspose", "b,c,h,w", f"r0 = Abs (x)  {steps}  r = Neg (r2000)")).main
    assert free_place(scope, "r") is None


def test_a_convolution_of_one_group_is_left() -> None:
    proto = model("Conv", *FREE["by an input"][:2])
    assert edits(proto)[1] == 0


def test_shapes_that_a_file_states_between_nodes_do_not_count() -> None:
    """TensorRT reads none of them."""
    proto = model("ConvTranspose", *FREE["by a Reshape"][:2])
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("r", 1, ["b", 8, "h", "w"]))
    assert edits(proto)[1] == 1


def test_weights_of_the_run_tell_their_channels_where_these_are_declared() -> None:
    proto = model("ConvTranspose", *FREE["by an input"][:2])
    proto.graph.input.append(onnx.helper.make_tensor_value_info("v", 1, [8, 4, "k", "l"]))
    proto.graph.input.append(onnx.helper.make_tensor_value_info("u", 1, ["m", 4, 2, 2]))
    node = proto.graph.node[-1]
    for name, count in (("v", 1), ("u", 0)):
        node.input[1] = name
        assert edits(proto)[1] == count


@pytest.mark.parametrize(("op", "groups", "expected"), [("ConvTranspose", 2, 8), ("Conv", 4, 8), ("Conv", 1, 2)])
def test_weights_tell_how_many_channels_go_in(op: str, groups: int, expected: int) -> None:
    scope = wrap(model(op, "b,8,h,w", "r = Relu (x)", group=groups)).main
    assert channels_by_weights(scope, len(scope.columns.ops) - 1) == expected


def test_sizes_that_are_assumed_are_those_that_weights_allow() -> None:
    for op, given in (("ConvTranspose", {}), ("Conv", {"group": 4})):
        own = wrap(model(op, *FREE["by an input"][:2], **given))
        assert {shapes["x"][1] for shapes in assumed_shapes(own)} == {8}
