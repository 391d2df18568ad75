"""What is known of a piece before it runs: limits, kinds of inputs, windows, how it rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.describe import Description
from trtconv.runtimes.proof.feeds import InputKind, Role
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

X = "float[1,4,8,8]"


def described(
    body: str,
    inputs: str = f"{X} x",
    *,
    kind: str = "UNARY",
    constants: str = "",
    result: str = "float",
    known: Mapping[str, tuple[int, ...] | None] | None = None,
    **values: Any,
) -> Description:
    """Describes a model of few nodes whose network is one layer; `known`: what the network knows of shapes instead."""
    head = f'<ir_version: 9, opset_import: ["": 20, "acme": 1]> g ({inputs}) => ({result} y)'
    text = f"{head} {f'<{constants}>' if constants else ''} {{ {body} }}"
    proto = onnx.parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    model = OnnxModel(onnx.shape_inference.infer_shapes(proto), Path("m.onnx"))
    names = [value.name for value in model.proto.graph.input]
    shapes = {spec.name: tuple(spec.dims) for spec in model.inputs}
    made = (name for node in model.proto.graph.node for name in node.output)
    shapes |= {name: shape for name in made if (shape := model.main.shape(name))}
    tensors = tuple(
        ReadTensor(at, name, "float32", {**shapes, **(known or {})}.get(name, (1, 4)))
        for at, name in enumerate([*names, "y"])
    )
    layer = ReadLayer(0, "l", kind, tuple(range(len(names))), (len(names),), values)
    network = ReadNetwork(tensors, (layer,), tuple(range(len(names))), (len(names),))
    nodes = tuple(range(len(model.proto.graph.node)))
    return Description.of(network, model, Piece("y", tuple(names), (0,), nodes, True, frozenset()), shapes)


def test_limits_are_the_numbers_of_a_piece_and_where_quantising_saturates_and_ties() -> None:
    of_quantiser = described("y = QuantizeLinear (x, s, z)", kind="QUANTIZE", constants="float s = {2}, int8 z = {0}")
    assert set(of_quantiser.limits) >= {2, -2, -256, -255, 254, 255, -257, 253, 510, 1, 3, 5, -1}
    of_clip = described("y = Clip (x, a, b)", kind="ACTIVATION", constants="float a = {-3}, float b = {60}", alpha=0.25)
    assert {-3, 3, 60, -60, 0.25, -0.25} <= set(of_clip.limits)
    assert {0.01, -0.01} <= {round(each, 6) for each in described("y = LeakyRelu <alpha = 0.01> (x)").limits}


@pytest.mark.parametrize("value", ["0", "inf", "nan", "1e-38", "1e31"])
def test_what_is_no_number_to_be_near_is_no_limit(value: str) -> None:
    held = onnx.helper.make_tensor("a", onnx.TensorProto.FLOAT, [], [float(value)])
    assert described("y = Add (x, x)", kind="ELEMENTWISE", held=np.array(onnx.numpy_helper.to_array(held))).limits == ()


@pytest.mark.parametrize(("value", "limit"), [(1e30, False), (9e29, True), (1e-30, False), (2e-30, True)])
def test_numbers_near_which_floats_lie_are_limits(value: float, limit: bool) -> None:
    found = described("y = Add (x, x)", kind="ELEMENTWISE", held=np.array(value)).limits
    assert (value in found) is limit


def test_of_many_numbers_few_are_limits() -> None:
    assert described("y = Relu (x)", held=np.arange(1.0, 10)).limits == ()
    limits = described("y = Relu (x)", **{f"v{n}": np.arange(8.0 * n + 1, 8 * n + 9) for n in range(5)}).limits
    assert {1, 8, 16, 24} <= set(limits) and 37 not in limits


def test_kinds_are_those_that_tell_something() -> None:
    every = tuple(kind for kind in InputKind if kind not in (InputKind.WIDE, InputKind.DEEP))
    assert described("y = Add (x, x)", kind="ELEMENTWISE", op="SUM").kinds == LINEAR
    assert described("y = Transpose (x)", kind="SHUFFLE").kinds == (InputKind.ORDINARY, InputKind.LIMITS)
    assert described("y = Transpose (x)", kind="UNARY").kinds == every
    assert described("y = Abs (x)").kinds == every
    assert described("y = Exp (x)").kinds == (*every, InputKind.WIDE)
    assert described("y = Exp (x)", "double[1,4] x").kinds == every
    gathered = described("y = Reshape (x, s)", f"{X} x, int64[2] s", kind="SHUFFLE")
    assert gathered.kinds == every and gathered.sources[1].role is Role.SIZES
    assert described("y = Abs (x)").kinds_at({"x": (4, 8)}, 32) == every
    assert described("y = Abs (x)").kinds_at({"x": (4, 8), "z": (1,)}, 32) == every[:1]


LINEAR, MOVING = (InputKind.ORDINARY, InputKind.ZEROS, InputKind.LARGE), (InputKind.ORDINARY, InputKind.LIMITS)
SIZES = "s = Shape (x)  i = Constant <value_ints = [1]> ()  g = Gather (s, i)  m = Mul (g, g)  n = Abs (m)"


@pytest.mark.parametrize(
    ("body", "layer", "kinds"),
    [
        ("a = Identity (x)  y = Conv (a, w)", "CONVOLUTION", LINEAR),
        ("m = Mul (x, x)  y = ReduceMean (m)", "REDUCE AVG", LINEAR),
        # What the network does counts too: a threshold may lie anywhere.
        ("m = Mul (x, x)  y = ReduceMean (m)", "REDUCE MAX", None),
        ("y = Mul (x, x)", "ELEMENTWISE PROD", LINEAR),
        ("y = Mul (x, x)", "ELEMENTWISE MAX", None),
        ("y = Mul (x, x)", "ACTIVATION CLIP", None),
        ("y = GlobalAveragePool (x)", "POOLING AVERAGE", LINEAR),
        ("y = GlobalAveragePool (x)", "POOLING MAX", None),
        ("y = acme.Mul (x, x)", "ELEMENTWISE PROD", None),
        # What is computed of sizes alone is no part of it, in whatever order it stands.
        (f"{SIZES}  y = Reshape (x, n)", "SHUFFLE", MOVING),
        (f"y = Reshape (x, n)  {SIZES}", "SHUFFLE", MOVING),
        (f"y = Reshape (x, n)  {SIZES}", "UNARY ABS", None),
        (f"{SIZES}  a = Abs (x)  y = Reshape (a, n)", "SHUFFLE", None),
        ("s = Shape (x)  f = Cast <to = 1> (s)  e = Exp (f)  y = Mul (x, e)", "ELEMENTWISE PROD", LINEAR),
        ("e = Exp (x)  y = Reshape (e, n)", "SHUFFLE", None),
        ("y = Exp (e)  e = Identity (x)", "SHUFFLE", None),
        # What reads nothing of it is no part of it either.
        ("c = Constant <value = float {2}> ()  e = Exp (c)  y = Identity (x)", "SHUFFLE", MOVING),
    ],
)
def test_kinds_are_those_of_what_is_done_to_values(body: str, layer: str, kinds: tuple[InputKind, ...] | None) -> None:
    constants = "float[1,4,1] w = {1,2,3,4}" if "Conv" in body else "int64[1] n = {4}" if "Exp (x)" in body else ""
    kind, _, op = layer.partition(" ")
    values = {"type" if kind in ("POOLING", "ACTIVATION") else "op": op} if op else {}
    found = described(body, "float[1,4,4] x", kind=kind, constants=constants, **values).kinds
    assert found == kinds if kinds else len(found) > len(LINEAR)


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool", "uint8"])
def test_integers_and_booleans_have_all_kinds(dtype: str) -> None:
    """Of the kinds of floats that tell sums apart none has negative integers, or a boolean that is false."""
    moved = described("y = Transpose (x)", f"{dtype}[1,4] x", kind="SHUFFLE", result=dtype)
    assert len(moved.kinds) > len(LINEAR)
    added = described("y = Add (x, x)", "int32[1,4] x", kind="ELEMENTWISE", op="SUM", result="int32")
    assert InputKind.NEGATIVE in added.kinds


def test_a_piece_rounds_as_its_coarsest_type_and_what_is_approximated_takes_smaller_inputs() -> None:
    plain, half, doubles = (described("y = Abs (x)", f"{kind}[1,4] x") for kind in ("float", "float16", "double"))
    assert (plain.eps, plain.largest) == (2.0**-23, 300)
    assert (half.eps, half.largest) == (2.0**-10, 30)
    # The network has float32 of them.
    assert doubles.eps == 2.0**-23
    rough = described("y = Selu (x)")
    assert (rough.approximated, rough.largest, rough.rough) == (True, 8, 1e-4)
    assert described("y = LRN <size = 3> (x)").rough == 0
    assert not plain.approximated and plain.rough == 0 and not plain.narrow
    assert described("y = Cast <to = 16> (x)", result="bfloat16").narrow
    assert described("y = Cast <to = 8> (x)", result="string").narrow


def test_a_piece_of_no_nodes_is_exact_and_has_no_places() -> None:
    model = OnnxModel(
        onnx.parser.parse_model("<ir_version: 9> g (float[2] x) => (float[2] y) { y = Neg (x) }"), Path("m")
    )
    tensor = ReadTensor(0, "x", "float32", (2,))
    found = Description.of(
        ReadNetwork((tensor,), (), (0,), (0,)), model, Piece("x", ("x",), (), (), True, frozenset()), {}
    )
    assert (found.rough, found.placed, found.extent) == (0, 0, 1)


def test_places_are_rounded_where_they_are_computed() -> None:
    assert described("y = Resize (x, , s)", constants="float[4] s = {1,1,2,2}").placed == 1
    assert described("y = DFT (x)", "float[1,8,1] x").placed == pytest.approx(2 * math.pi)
    assert described("y = Abs (x)").placed == 0


def test_the_window_is_the_largest_with_its_gaps() -> None:
    assert described("y = Abs (x)").extent == 1
    assert described("y = Abs (x)", kernel_size_nd=(3, 5), dilation_nd=(4, 1)).extent == 12
    assert described("y = Abs (x)", window_size_nd=(3, 7)).extent == 7
    pooled = "y = MaxPool <kernel_shape = [2, 3], dilations = [1, 5]> (x)"
    assert described(pooled).extent == 15
    assert described("y = MaxPool <kernel_shape = [2, 3]> (x)").extent == 3
    assert described(pooled, kernel_size_nd=(20,)).extent == 20


def test_sizes_of_constants_bind_but_not_those_of_a_kernel() -> None:
    held = "float[7,1,11] c = {" + ", ".join(["1"] * 77) + "}"
    assert described("y = Mul (x, c)", "float[1,7,11] x", constants=held).bound == {7, 11}
    kernel = "float[7,4,3,3] c = {" + ", ".join(["1"] * 252) + "}"
    assert described("y = Conv (x, c)", constants=kernel).bound == frozenset()


@pytest.mark.parametrize(
    ("shape", "target", "bound"),
    [
        ((2, 3, 4), (2, 12), {2, 3, 4, 12}),
        ((2, 3, 4), (0, 12), {3, 4, 12}),
        ((2, 3, 4), (-1, 12), {3, 4, 12}),
        ((2, 3, 4), (6, 4), {2, 3, 4, 6}),
        ((2, 3, 4), (6, -1), {2, 3, 6}),
        ((2, 3, 4), (2, 1, 12, 1), {2, 3, 4, 12}),
        ((2, 3, 4), (-1,), {2, 3, 4, 24}),
        ((2, 3, 4), (0, 0, 2, 2), {4, 2}),
        ((2, 3, 4), (-1, 3, 4), {3, 4}),
        ((1, 5, 1, 7), (-1,), {5, 7, 35}),
        ((1, 5), (-1,), set()),
        ((1, 5), (5,), {5}),
        ((5, 7), (1, 5, 1, -1), {5}),
        ((4, 6), (3, 8), {3, 4, 6, 8}),
        ((4, 6, 5), (3, 8, 5), {3, 4, 5, 6, 8}),
        ((4, 6, 5), (3, 8, -1), {3, 4, 6, 8}),
        ((3, 4), (12, 1, 1), {3, 4, 12}),
    ],
)
def test_sizes_that_a_reshape_states_or_joins_bind(
    shape: tuple[int, ...], target: tuple[int, ...], bound: set[int]
) -> None:
    """Those that it hands on may be any."""
    held = f"int64[{len(target)}] n = {{{', '.join(map(str, target))}}}"
    found = described("y = Reshape (x, n)", f"float[{', '.join(map(str, shape))}] x", constants=held).bound
    # What is stated is a constant of as many elements.
    assert found - {len(target)} == bound - {len(target)}


def test_a_reshape_behind_other_nodes_binds_too() -> None:
    found = described("a = Abs (x)  y = Reshape (a, n)", "float[5,7] x", constants="int64[1] n = {35}")
    assert found.bound >= {5, 7, 35}


def test_a_reshape_to_a_computed_shape_binds_no_size() -> None:
    assert described("y = Reshape (x, n)", "float[5,5] x, int64[1] n").bound == frozenset()


def test_sizes_that_the_network_does_not_know_are_open() -> None:
    assert described("y = Abs (x)", "float[1,4] x").shape("x") == (1, 4)
    assert described("y = Abs (x)", "float[0,4] x").shape("x") == (0, 4)
    assert described("y = Abs (x)", "float[1,4] x", known={"x": (-1, 4)}).shape("x") == (None, 4)
    assert described("y = Abs (x)", "float[1,4] x").shape("nothing") == ()


def test_layers_that_hold_sizes_and_layers_that_move_are_told() -> None:
    flags = {
        kind: (described("y = Abs (x)", kind=kind).any_size, described("y = Abs (x)", kind=kind).moves)
        for kind in ("UNARY", "SHUFFLE", "CONVOLUTION", "CONSTANT", "SOFTMAX")
    }
    assert flags == {
        "UNARY": (True, False),
        "SHUFFLE": (False, True),
        "CONVOLUTION": (True, True),
        "CONSTANT": (False, False),
        "SOFTMAX": (True, True),
    }


@pytest.mark.parametrize(
    ("inputs", "free"),
    [
        ("float[1,4] x", False),
        ("float x", True),
        ("float[1,4] x, float k", False),
        ("float[2,4] x", False),
    ],
)
def test_a_first_axis_is_free_where_the_network_leaves_it_open(inputs: str, free: bool) -> None:
    assert described("y = Abs (x)", inputs).free_batch is free


@pytest.mark.parametrize(
    ("inputs", "known", "free"),
    [
        ("float[1,4] x", {"x": (-1, 4)}, True),
        ("float[2,4] x", {"x": (-1, 4)}, False),
        ("float[1,4] x", {"x": (0, 4)}, False),
        ("float[1,4] x", {"x": None}, False),
        ("float[1,4] x, float[1,2] k", {"x": (-1, 4)}, False),
        ("float[1,4] x, float[1,2] k", {"x": (-1, 4), "k": (-1, 2)}, True),
        ("float[1,4] x, float k", {"x": (-1, 4)}, True),
    ],
)
def test_a_batch_is_free_where_all_sources_have_one(
    inputs: str, known: dict[str, tuple[int, ...] | None], free: bool
) -> None:
    assert described("y = Abs (x)", inputs, known=known).free_batch is free
