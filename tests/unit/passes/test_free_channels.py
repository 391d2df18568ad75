"""Convolutions whose channels nothing but their weights tells are built, and compute what they did."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.graph.channel_counts import are_made, channels_by_weights, dims_by_weights
from trtconv.passes import PASSES, run_passes
from trtconv.rules import run_rules
from trtconv.runtimes.assumed import assumed_shapes

NAME = "state-channels"
EIGHT, TEN = Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))
VIEW = """s = Shape (x)  b = Gather (s, zero)  i = Gather (s, two)  j = Gather (s, three)
t = Concat <axis = 0> (b, {channels}, i, j)  f = Concat <axis = 0> (b, eight, less)  flat = Reshape (x, f)
r = Reshape (flat, t)"""
OF_VIEW = VIEW.format(channels="less").replace("r =", "v =")
FREE = {
    "by a Reshape": ("b,8,h,w", VIEW.format(channels="less")),
    "by a Reshape, behind others": ("b,8,h,w", f"{OF_VIEW}  r = Relu (v)"),
    "by a Reshape, behind a Resize": ("b,8,h,w", f"{OF_VIEW}  r = Resize (v, , scales)"),
    "by a Reshape, behind a Pad": ("b,8,h,w", f"{OF_VIEW}  r = Pad (v, pads)"),
    "by a Reshape, behind a Slice": ("b,8,h,w", f"{OF_VIEW}  r = Slice (v, zero, two, three)"),
    "by a Reshape to computed sizes": ("b,c,h,w", "s = Shape (x)  r = Reshape (x, s)"),
    "by an input": ("b,c,h,w", "r = Relu (x)"),
    "by an input itself": ("b,c,h,w", ""),
    "by an input's last axis": ("b,h,w,c", "r = Transpose <perm = [0, 3, 1, 2]> (x)"),
    "by an input's order": ("w,h,c,b", "r = Transpose (x)"),
    "by both of two": ("b,c,h,w", "e = Exp (x)  r = Add (e, x)"),
    "by what is beside one channel": ("b,c,h,w", "r = Mul (x, ones)"),
    "by a Reshape that keeps it": ("b,c,h,w", "r = Reshape (x, keep)"),
}
"""Shape of the input and the nodes before a convolution."""
KNOWN = {
    "of a convolution": ("b,4,h,w", "r = Conv (x, k)"),
    "of an input": ("b,8,h,w", "r = Relu (x)"),
    "of one of two": ("b,c,h,w", "r = Add (x, eights)"),
    "of a Reshape": ("b,8,h,w", VIEW.format(channels="eight")),
    "of a Reshape to computed sizes": ("b,8,h,w", "s = Shape (x)  r = Reshape (x, s)"),
    "of a Reshape of known sizes": ("1,8,4,4", "r = Reshape (x, worked)"),
    "of a Reshape with them": ("b,c,h,w", "r = Reshape (x, eights_kept)"),
    "of a Resize": ("b,8,h,w", "r = Resize (x, , scales)"),
}


def model(op: str, shape: str, nodes: str, **attributes: object) -> onnx.ModelProto:
    given = f"<{', '.join(f'{name} = {value}' for name, value in attributes.items())}>" if attributes else ""
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[{shape}] x) => (float[n,m,p,q] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] less = {{-1}},
        int64[1] eight = {{8}}, float[1,1,1,1] ones = {{1}}, int64[4] keep = {{0, 0, 0, 0}},
        float[4] scales = {{1, 1, 2, 2}}, int64[8] pads = {{0, 0, 1, 1, 0, 0, 1, 1}},
        int64[4] worked = {{1, -1, 4, 4}}, int64[4] eights_kept = {{0, 8, 0, 0}},
        float[8,1,1] eights = {{1, 2, 3, 4, 5, 6, 7, 8}}>
        {{ {nodes}  y = {op} {given} ({"r" if nodes else "x"}, w) }}"""
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


def states(proto: onnx.ModelProto, name: str, *sizes: object) -> onnx.ModelProto:
    proto.graph.value_info.append(helper.make_tensor_value_info(name, 1, list(sizes)))
    return proto


@pytest.mark.parametrize("target", [RTX, EIGHT, TEN])
@pytest.mark.parametrize("is_stated", [False, True])
@pytest.mark.parametrize("case", FREE)
def test_channels_are_stated_where_they_are_free(case: str, is_stated: bool, target: Target) -> None:
    """Whatever the file says of tensors between nodes, as exporters do of all: TensorRT reads none of it."""
    shape, nodes = FREE[case]
    proto = model("ConvTranspose", shape, nodes, strides=[2, 2])
    if is_stated and nodes:
        states(proto, "r", "b", 8, "i", "j")
    after, count = edits(proto, target)
    assert count == 1
    del after.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(after, data_prop=True)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inferred.graph.value_info}
    convolution = next(node for node in after.graph.node if node.op_type == "ConvTranspose")
    assert shapes[convolution.input[0]][1].dim_value == 8
    x = values(shape)
    np.testing.assert_allclose(run(after, {"x": x})[0], run(proto, {"x": x})[0], atol=1e-5)
    assert edits(after, target)[1] == 0, "once is enough"


@pytest.mark.parametrize("case", KNOWN)
def test_channels_that_are_known_are_left(case: str) -> None:
    assert edits(model("ConvTranspose", *KNOWN[case]))[1] == 0


@pytest.mark.parametrize(
    ("group", "target", "is_constant", "count"),
    [(4, EIGHT, True, 1), (4, RTX, True, 0), (4, TEN, True, 0), (4, RTX, False, 1), (1, EIGHT, True, 0)],
)
def test_a_convolution_of_several_groups(group: int, target: Target, is_constant: bool, count: int) -> None:
    proto = model("Conv", *FREE["by an input"], group=group)
    if not is_constant:
        proto.graph.input.append(helper.make_tensor_value_info("v", 1, [4, 2, "k", "l"]))
        proto.graph.node[-1].input[1] = "v"
    after, found = edits(proto, target)
    assert found == count
    if is_constant and count:
        x = values("b,c,h,w")
        np.testing.assert_allclose(run(after, {"x": x})[0], run(proto, {"x": x})[0], atol=1e-5)


def test_weights_of_the_run_tell_their_channels_where_these_are_declared() -> None:
    proto = model("ConvTranspose", *FREE["by an input"])
    proto.graph.input.append(helper.make_tensor_value_info("v", 1, [8, 4, "k", "l"]))
    proto.graph.input.append(helper.make_tensor_value_info("u", 1, ["m", 4, 2, 2]))
    for name, count in (("v", 1), ("u", 0)):
        proto.graph.node[-1].input[1] = name
        assert edits(proto)[1] == count


def test_a_branch_reads_what_is_around_it() -> None:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[b,8,h,w] x, bool c) => (float[n,m,p,q] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] three = {{3}}, int64[1] less = {{-1}},
        int64[1] eight = {{8}}>
        {{
          {VIEW.format(channels="less")}
          y = If (c) <
            then_branch = t () => (float[n,m,p,q] u) {{ u = ConvTranspose (r, w) }},
            else_branch = e () => (float[n,m,p,q] o) {{ a = Abs (r)  o = ConvTranspose (a, w) }}
          >
        }}"""
    )
    weights = np.random.default_rng(0).normal(size=(8, 4, 2, 2)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    after, count = edits(states(proto, "r", "b", 8, "h", "w"))
    assert count == 2
    for taken in (True, False):
        feeds = {"x": values("b,8,h,w"), "c": np.array(taken)}
        np.testing.assert_allclose(run(after, feeds)[0], run(proto, feeds)[0], atol=1e-5)


@pytest.mark.parametrize("step", ["Relu (r{0})", "Add (r{0}, r{0})", "Reshape (r{0}, keep)", "Mul (r{0}, gate)"])
def test_free_channels_far_before_are_found(step: str) -> None:
    steps = "  ".join(f"r{number + 1} = {step.format(number)}" for number in range(1200))
    proto = model("ConvTranspose", "b,c,h,w", f"gate = Sigmoid (x)  r0 = Abs (x)  {steps}  r = Neg (r1200)")
    assert edits(proto)[1] == 1


@pytest.mark.parametrize("case", ["of a convolution", "of an input"])
def test_most_are_told_without_inference(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at the whole network, which takes longer than all passes of one of ten thousand nodes."""
    own = wrap(model("ConvTranspose", *KNOWN[case]))
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *_, **__: pytest.fail("inference is asked"))
    assert are_made(own.main, "r") and dims_by_weights(own) == {}


def test_what_other_domains_call_so_is_not_followed() -> None:
    proto = model("ConvTranspose", "b,8,h,w", "q = Relu (x)  r = Abs (q)")
    proto.graph.node[1].domain = "acme"
    assert not are_made(wrap(proto).main, "r") and are_made(wrap(proto).main, "q")


def test_tensors_of_unknown_rank_are_stated() -> None:
    """Nothing but the weights says how many axes these have."""
    proto = model("ConvTranspose", "b,8,h,w", "u = Relu (x)  q = Add (u, u)  r = Mul (q, q)")
    proto.graph.node[0].domain = "acme"
    assert edits(proto)[1] == 1
    assert dims_by_weights(wrap(proto)) == {}


@pytest.mark.parametrize("inputs", [0, 1])
@pytest.mark.parametrize("place", [0, -1])
def test_nodes_that_lack_inputs_do_no_harm(place: int, inputs: int) -> None:
    proto = model("ConvTranspose", *FREE["by an input"])
    del proto.graph.node[place].input[inputs:]
    assert not are_made(wrap(proto).main, "r")
    assert dims_by_weights(wrap(proto)) in ({}, {"c": 8})


@pytest.mark.parametrize(("op", "groups", "expected"), [("ConvTranspose", 2, 8), ("Conv", 4, 8), ("Conv", 1, 2)])
def test_weights_tell_how_many_channels_go_in(op: str, groups: int, expected: int) -> None:
    scope = wrap(model(op, "b,8,h,w", "r = Relu (x)", group=groups)).main
    assert channels_by_weights(scope, len(scope.columns.ops) - 1) == expected


@pytest.mark.parametrize("case", ["by an input", "by an input itself"])
@pytest.mark.parametrize(("op", "given"), [("ConvTranspose", {}), ("Conv", {"group": 4})])
def test_sizes_that_are_assumed_are_those_that_weights_allow(case: str, op: str, given: dict[str, int]) -> None:
    own = wrap(model(op, *FREE[case], **given))
    assert {shapes["x"][1] for shapes in assumed_shapes(own)} == {8}


def test_weights_that_contradict_each_other_allow_none() -> None:
    proto = model("ConvTranspose", *FREE["by an input"])
    proto.graph.node.append(helper.make_node("Conv", ["r", "k"], ["z"]))
    assert dims_by_weights(wrap(proto)) == {}


@pytest.mark.parametrize(
    "case", ["by an input", "by an input itself", "by an input's last axis", "by an input's order"]
)
def test_channels_that_are_stated_are_no_sizes_of_an_example(case: str) -> None:
    """A Reshape that the pass wrote has a constant size, and the network takes no other."""
    own = wrap(model("ConvTranspose", *FREE[case]))
    assert dims_by_weights(own) == {"c": 8}
    result = run_passes(own, PASSES, RTX)
    assert {edit.pass_name for edit in result.edits} == {NAME} and not result.skipped
    assert dims_by_weights(own) == {"c": 8}
    assert "TC213" not in {finding.code for finding in run_rules(own, RTX)}


def test_inputs_whose_second_axes_are_known_leave_no_channels_free(monkeypatch: pytest.MonkeyPatch) -> None:
    own = wrap(model("ConvTranspose", *FREE["by a Reshape"]))
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *_, **__: pytest.fail("inference is asked"))
    assert dims_by_weights(own) == {}


def test_what_a_file_states_of_its_outputs_does_not_count() -> None:
    proto = model("ConvTranspose", *FREE["by a Reshape"])
    proto.graph.output.append(helper.make_tensor_value_info("r", 1, ["b", 8, "h", "w"]))
    assert edits(proto)[1] == 1


def test_a_reshape_to_other_sizes_allows_any_channels() -> None:
    proto = model("ConvTranspose", "b,c,h,w", "k4 = Constant <value = int64[4] {0, 8, 4, 4}> ()  r = Reshape (x, k4)")
    assert dims_by_weights(wrap(proto)) == {}
