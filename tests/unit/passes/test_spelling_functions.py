"""Operators that ONNX defines by others are written so where a target lacks them, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from support.onnx_models import parse, wrap
from trtconv.core.target import Target
from trtconv.passes import PASSES, passes_for, run_passes
from trtconv.passes.spelling.functions import ExpandFunctions

RTX, EIGHT, TEN = Target("rtx", (1, 7)), Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))
RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def text(opset: int, body: str) -> str:
    return f'<ir_version: 10, opset_import: ["": {opset}]> g {body}'


CASES = {
    "swish": (24, "(float[2,3] x) => (float[2,3] y) { y = Swish <alpha = 1.5> (x) }", {"x": normal(2, 3)}, TEN),
    "gelu": (
        20,
        '(float[N,3] x) => (float[N,3] y) { y = Gelu <approximate = "tanh"> (x) }',
        {"x": normal(2, 3)},
        EIGHT,
    ),
    "mish": (22, "(float[2,3] x) => (float[2,3] y) { y = Mish (x) }", {"x": normal(2, 3)}, EIGHT),
    "group": (
        21,
        """(float[2,4,3] x, float[4] s, float[4] b) => (float[2,4,3] y)
        { y = GroupNormalization <num_groups = 2> (x, s, b) }""",
        {"x": normal(2, 4, 3), "s": normal(4), "b": normal(4)},
        EIGHT,
    ),
    "layer": (
        17,
        """(float[2,4,3] x, float[3] s) => (float[2,4,3] y, float[2,4,1] m, float[2,4,1] d)
        { y, m, d = LayerNormalization (x, s) }""",
        {"x": normal(2, 4, 3), "s": normal(3)},
        RTX,
    ),
    "softcap": (
        23,
        """(float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (float[1,2,3,4] y)
        { y = Attention <softcap = 2.0> (q, k, v) }""",
        {"q": normal(1, 2, 3, 4), "k": normal(1, 2, 5, 4), "v": normal(1, 2, 5, 4)},
        RTX,
    ),
    "loss": (
        13,
        """(float[3,5] x, int64[3] t) => (float y)
        { y = SoftmaxCrossEntropyLoss <reduction = "mean"> (x, t) }""",
        {"x": normal(3, 5), "t": np.array([0, 4, 2])},
        RTX,
    ),
    "crop": (
        18,
        "(float[2,6,8] x) => (float[2,4,10] y) <int64[2] s = {4, 10}> { y = CenterCropPad <axes = [1, 2]> (x, s) }",
        {"x": normal(2, 6, 8)},
        RTX,
    ),
    "in a branch": (
        22,
        """(bool c, float[2,3] x) => (float[2,3] y)
        { y = If (c) <then_branch = t () => (float[2,3] a) { a = Mish (x) },
                      else_branch = e () => (float[2,3] b) { b = Neg (x) }> }""",
        {"c": np.array(True), "x": normal(2, 3)},
        EIGHT,
    ),
}


@pytest.mark.parametrize(("opset", "body", "feeds", "target"), CASES.values(), ids=CASES)
def test_what_a_target_lacks_is_written_as_onnx_defines_it(opset: int, body: str, feeds: Any, target: Target) -> None:
    model = wrap(parse(text(opset, body)))
    expected = ReferenceEvaluator(model.proto).run(None, feeds)
    lacked = {node.op_type for _, _, node in model.nodes("Swish", "Gelu", "Mish", "GroupNormalization", "Attention")}
    done = run_passes(model, PASSES, target)
    assert "expand-functions" in {edit.pass_name for edit in done.edits}
    assert not any(True for _ in model.nodes(*lacked, "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"))
    for before, after in zip(expected, ReferenceEvaluator(model.proto).run(None, feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "body", "target"),
    [
        (24, "(float[2,3] x) => (float[2,3] y) { y = Swish (x) }", RTX),
        (20, "(float[2,3] x) => (float[2,3] y) { y = Gelu (x) }", TEN),
        (17, "(float[2,3] x, float[3] s) => (float[2,3] y) { y = LayerNormalization (x, s) }", EIGHT),
        (
            23,
            """(float16[1,2,3,16] q, float16[1,2,3,16] k) => (float16[1,2,3,16] y)
            { y = Attention <is_causal = 1> (q, k, k) }""",
            RTX,
        ),
    ],
)
def test_what_a_target_has_stays(opset: int, body: str, target: Target) -> None:
    model = wrap(parse(text(opset, body)))
    before = model.proto.SerializeToString()
    assert not run_passes(model, PASSES, target).edits
    assert model.proto.SerializeToString() == before


@pytest.mark.parametrize(
    ("kind", "head", "stays"), [("float", 64, False), ("float16", 8, False), ("float16", 64, True)]
)
@pytest.mark.parametrize(("masked", "mask"), [("", ""), (", {}[3,3] m", ", m")])
def test_attention_without_a_kernel_is_written_out(kind: str, head: int, stays: bool, masked: str, mask: str) -> None:
    shape = f"{kind}[1,2,3,{head}]"
    inputs = f"{shape} q, {shape} k, {shape} v{masked.format(kind)}"
    body = f"({inputs}) => ({shape} y) {{ y = Attention (q, k, v{mask}) }}"
    model, cast = wrap(parse(text(23, body))), wrap(parse(text(23, body)))
    assert bool(run_passes(model, passes_for("as-is"), RTX).edits) != stays
    assert bool(run_passes(cast, passes_for("fp16"), RTX).edits) == (head < 16)


@pytest.mark.parametrize(
    ("opset", "body"),
    [
        (
            24,
            """(float[1,2,1,4] q, float[1,2,3,4] k, float[1,2,3,4] v, int64[1] n) => (float[1,2,1,4] y)
            { y = Attention <is_causal = 1> (q, k, v, , , , n) }""",
        ),
        (20, "(float[1,3,4] t, int64[5] s) => (float[a,b,c,d,e] y) { y = AffineGrid (t, s) }"),
        (28, "(float[4] x, float[4] z) => (float[4] y) { y = Mod (x, z) }"),
        (18, "(int32[4] x, int32[4] z) => (int32[4] y) { y = BitwiseAnd (x, z) }"),
        (13, "(int32[4] x, int32[4] z) => (int32[4] y) { y = Mul (x, z) }"),
    ],
)
def test_what_8_6_computes_wrongly_is_not_written_for_it(opset: int, body: str) -> None:
    edits = run_passes(wrap(parse(text(opset, body))), PASSES, EIGHT).edits
    assert {edit.pass_name for edit in edits} <= {"lower-opset"}


def test_the_rank_of_an_affine_grid_is_not_that_of_its_batch() -> None:
    """TensorRT fixes ranks, and refused a batch of one where a Squeeze named no axes."""
    body = "(float[n,2,3] t, int64[4] s) => (float[a,b,c,d] y) { y = AffineGrid (t, s) }"
    model = wrap(parse(text(20, body)))
    assert run_passes(model, PASSES, RTX).edits
    assert all(len(node.input) == 2 for _, _, node in model.nodes("Squeeze"))
    assert list(model.nodes("Squeeze"))
    for batch in (1, 3):
        feeds = {"t": np.random.default_rng(0).random((batch, 2, 3), np.float32), "s": np.array([batch, 3, 4, 5])}
        (want,) = ReferenceEvaluator(parse(text(20, body))).run(None, feeds)
        (got,) = ReferenceEvaluator(model.proto).run(None, feeds)
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    ("opset", "body"),
    [
        (18, "a = Relu (x)  y, z = Split <axis = 2, num_outputs = 2> (a)"),
        (28, "a = Relu (x)  y = CumProd (a, two)"),
        (18, 'a = Relu (x)  y = ScatterElements <axis = 2, reduction = "max"> (a, i, a)'),
    ],
)
def test_an_axis_that_the_model_does_not_state_is_no_error(opset: int, body: str) -> None:
    proto = parse(text(opset, f"(float[2,3,4] x, int64[2,3,4] i) => (y) <int64 two = {{2}}> {{ {body} }}"))
    proto.graph.value_info.add(name="a").type.tensor_type.elem_type = 1
    proto.graph.value_info[0].type.tensor_type.shape.dim.add().dim_value = 6
    for target in (EIGHT, TEN, RTX):
        run_passes(wrap(proto), PASSES, target)


@pytest.mark.parametrize("unknown", ["k", "v", "both", "last axis", "none"])
def test_attention_of_unknown_sizes_is_left_to_the_parser(unknown: str) -> None:
    """Heads of two sizes are written out; where one is not known they may be of one."""
    shapes = {"q": "[1,2,3,16]", "k": "[1,2,3,16]", "v": "[1,2,3,32]"}
    lost = {"k": "k", "v": "v", "both": "kv", "last axis": "", "none": ""}[unknown]
    if unknown == "last axis":
        shapes["k"] = "[1,2,3,K]"
    inputs = ", ".join(f"float16{shapes[name]} {name}" for name in "qkv" if name not in lost)
    # A tensor that a function of the user's makes has sizes that nothing knows.
    nodes = "".join(f"{name} = other.Op (q) " for name in lost)
    body = f"({inputs}) => (float16[1,2,3,32] y) {{ {nodes} y = Attention (q, k, v) }}"
    model = wrap(parse(f'<ir_version: 10, opset_import: ["": 23, "other": 1]> g {body}'))
    edits = run_passes(model, PASSES, RTX).edits
    assert ("expand-functions" in {edit.pass_name for edit in edits}) == (unknown == "none")


@pytest.mark.parametrize(
    ("dtype", "size", "edits"), [("float", 16, (1, 0)), ("float16", 16, (0, 0)), ("float16", 8, (1, 1))]
)
def test_attention_is_written_out_where_there_is_no_kernel(dtype: str, size: int, edits: tuple[int, int]) -> None:
    """As the network is, and as it is where it is cast to a half type before it is built."""
    shape = f"{dtype}[1,2,3,{size}]"
    text = f"g ({shape} q, {shape} k, {shape} v) => ({shape} y) {{ y = Attention (q, k, v) }}"
    for each, count in zip((ExpandFunctions(), ExpandFunctions(in_half=True)), edits, strict=True):
        model = wrap(parse(f'<ir_version: 10, opset_import: ["": 23]> {text}'))
        assert len(each.run(model, RTX).edits) == count
    model = wrap(parse(f'<ir_version: 10, opset_import: ["": 23]> {text}'))
    found = [edit for edit in run_passes(model, PASSES, RTX).edits if edit.pass_name == "expand-functions"]
    assert len(found) == edits[0]
