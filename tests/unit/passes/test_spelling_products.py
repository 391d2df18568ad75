"""Products in front of a GridSample, written as convolutions: ONNX's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import parse, wrap
from support.session import session
from trtconv.core.target import Target
from trtconv.passes import PASSES, run_passes
from trtconv.rules import run_rules

RTX, EIGHT, TEN = Target("rtx", (1, 7)), Target("tensorrt", (8, 6)), Target("tensorrt", (10, 0))


@settings(max_examples=60)
@given(
    st.sampled_from(("Gemm", "MatMul")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((1.0, -0.5)),
    st.sampled_from((1.0, 2.0)),
    st.sampled_from((None, (), (4,), (1, 4), (3, 1), (3, 4))),
    st.sampled_from((16, 17)),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_product(
    op: str,
    turned: bool,
    transposed: bool,
    alpha: float,
    beta: float,
    bias: tuple[int, ...] | None,
    opset: int,
    dynamic: bool,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    rows, w = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
    gemm = op == "Gemm"
    attributes = {"transA": int(turned), "transB": int(transposed), "alpha": alpha, "beta": beta} if gemm else {}
    feeds = {
        "x": random.standard_normal((3, 1, 4, 4)).astype(np.float32),
        "v": np.ascontiguousarray(rows.T) if gemm and turned else rows,
    }
    constants = {"w": np.ascontiguousarray(w.T) if gemm and transposed else w, "s": np.array([-1, 1, 2, 2])}
    if gemm and bias is not None:
        constants["c"] = random.standard_normal(bias).astype(np.float32)
    nodes = [
        helper.make_node(op, ["v", "w", *(["c"] if "c" in constants else [])], ["p"], **attributes),
        helper.make_node("Tanh", ["p"], ["t"]),
        helper.make_node("Reshape", ["t", "s"], ["at"]),
        helper.make_node("GridSample", ["x", "at"], ["y"]),
    ]
    shape = [f"{axis}" if dynamic else size for axis, size in enumerate(feeds["v"].shape)]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1, 4, 4]),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    (want,) = session(proto, sized=False).run(None, feeds)
    rewritten = wrap(proto)
    done = run_passes(rewritten, PASSES, EIGHT)
    assert [edit.pass_name for edit in done.edits] == ["convolve-products"]
    assert not [finding for finding in run_rules(rewritten, EIGHT) if finding.code == "TC616"]
    (got,) = session(rewritten.proto, sized=False).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


SAMPLE = "at = Reshape (p, s)  y = GridSample (x, at)"
HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '
CONSTANTS = "<float[2,2] w = {1,2,3,4}, float[2,2,2] stack = {1,2,3,4,5,6,7,8}, int64[4] s = {-1, 1, 1, 2}>"


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        ("p = MatMul (v, other)", True),
        ("u = Mul (v, v)  p = MatMul (u, other)", True),
        ("e = Expand (v, n)  p = MatMul (e, other)", True),
        ("z = Tanh (v)  f = Unsqueeze (z, one)  h = MatMul (f, w)  p = Neg (h)", False),
        ("p = Mul (v, v)", False),
    ],
)
def test_products_that_cannot_be_written_are_refused(made: str, refused: bool) -> None:
    inputs = "(float[1,1,2,2] x, float[2,2] v, float[2,2] other, int64[k] n)"
    constants = CONSTANTS.replace("<", "<int64[1] one = {1}, ")
    rewritten = wrap(parse(f"{HEAD}{inputs} => (float[2,1,1,1] y) {constants} {{ {made} {SAMPLE} }}"))
    done = run_passes(rewritten, PASSES, EIGHT)
    assert "convolve-products" not in {edit.pass_name for edit in done.edits}
    found = [f.code for f in run_rules(rewritten, EIGHT) if f.code == "TC616"]
    assert found == (["TC616"] if refused else [])


@pytest.mark.parametrize("target", [EIGHT, TEN, RTX])
def test_products_elsewhere_and_for_other_versions_stay(target: Target) -> None:
    text = f"{HEAD}(float[1,1,2,2] x, float[1,2] v) => (float[1,1,1,1] y, float[1,2] z) {CONSTANTS}"
    both = wrap(parse(f"{text} {{ p = MatMul (v, w) {SAMPLE}  z = MatMul (v, w) }}"))
    run_passes(both, PASSES, target)
    assert [node.op_type for node in both.proto.graph.node].count("MatMul") == (1 if target is EIGHT else 2)
