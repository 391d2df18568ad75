"""The branch of an If that is decided takes its place, with all that it holds and reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from support.onnx_models import RTX, parse, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes

HEAD = '<ir_version: 10, opset_import: ["": 17]> g '
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def rewritten(body: str) -> onnx.ModelProto:
    model = wrap(parse(HEAD + body))
    assert "take-decided-branches" in {edit.pass_name for edit in run_passes(model, PASSES, RTX).edits}
    onnx.checker.check_model(model.proto, full_check=True)
    return model.proto


def ops(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize(("rows", "op"), [(2, "Relu"), (3, "Neg")])
def test_a_condition_on_sizes_that_are_known_is_decided(rows: int, op: str) -> None:
    proto = rewritten(f"""(float[{rows},3] x) => (float[{rows},3] y) <int64 two = {{2}}, int64 zero = {{0}}> {{
        s = Shape (x)  n = Gather (s, zero)  c = Equal (n, two)
        y = If (c) <then_branch = a () => (float[{rows},3] p) {{ p = Relu (x) }},
                    else_branch = b () => (float[{rows},3] q) {{ q = Neg (x) }}> }}""")
    assert ops(proto) == [op]


def test_a_condition_on_one_size_is_decided_where_others_are_free() -> None:
    """Voice detectors ask so whether there is a state, of a free batch."""
    proto = rewritten("""(float[2,n,3] x) => (float[2,n,3] y) <int64 zero = {0}> {
        s = Shape (x)  m = Gather (s, zero)  c = Cast <to = 9> (m)
        y = If (c) <then_branch = a () => (float[2,n,3] p) { p = Relu (x) },
                    else_branch = b () => (float[2,n,3] q) { q = Neg (x) }> }""")
    assert "If" not in ops(proto)
    assert "Relu" in ops(proto)


@pytest.mark.parametrize("value", [0, 1])
def test_a_branch_brings_its_constants_and_may_hand_on_what_it_did_not_make(value: int) -> None:
    proto = rewritten(f"""(float[2,3] x) => (float[2,3] y, float[2,3] z) <int64 elements = {{{5 + value}}}> {{
        n = Size (x)  c = Equal (n, elements)  w = Neg (x)
        y, z = If (c) <
            then_branch = a () => (float[2,3] p, float[2,3] q) <float k = {{3}}> {{ p = Mul (x, k)  q = Identity (w) }},
            else_branch = b () => (float[2,3] p, float[2,3] q) <float k = {{5}}> {{ p = Mul (w, k)  q = Add (p, k) }}
        > }}""")
    assert "If" not in ops(proto)
    y, z = run(proto, {"x": X})
    expected = (3 * X, -X) if value else (-5 * X, 5 - 5 * X)
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(z, expected[1])


def test_an_output_that_the_branch_only_names_becomes_one() -> None:
    held = onnx.helper.make_tensor("k", onnx.TensorProto.FLOAT, [2], [7, 8])
    branch = onnx.helper.make_graph([], "a", [], [onnx.helper.make_tensor_value_info("k", 1, [2])], [held])
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["q"])], "b", [], [onnx.helper.make_tensor_value_info("q", 1, [2])]
    )
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xy")
    size = onnx.helper.make_node("Size", ["x"], ["n"])
    decided = onnx.helper.make_node("Cast", ["n"], ["c"], to=onnx.TensorProto.BOOL)
    proto = onnx.helper.make_model(
        onnx.helper.make_graph([size, decided, node], "g", [x], [y]),
        ir_version=8,
        opset_imports=[onnx.helper.make_opsetid("", 17)],
    )
    model = wrap(proto)
    assert run_passes(model, PASSES, RTX).edits
    assert ops(model.proto) == ["Identity"]
    assert run(model.proto, {"x": np.zeros(2, np.float32)})[0].tolist() == [7, 8]


def test_branches_inside_keep_names_of_their_own() -> None:
    proto = rewritten("""(float[2,3] x, bool d) => (float[2,3] y) {
        n = Size (x)  c = Cast <to = 9> (n)  t = Abs (x)
        u = If (c) <
            then_branch = a () => (float[2,3] p) {
                t1 = Neg (x)
                p = If (d) <then_branch = e () => (float[2,3] m) <float t2 = {2}> { m = Mul (t1, t2) },
                            else_branch = f () => (float[2,3] m) { t2 = Abs (t1)  m = Add (t2, t1) }>
            },
            else_branch = b () => (float[2,3] q) { q = Relu (x) }>
        y = Add (u, t) }""")
    assert ops(proto).count("If") == 1
    for d, expected in ((True, np.abs(X) - 2 * X), (False, 2 * np.abs(X) - X)):
        np.testing.assert_array_equal(run(proto, {"x": X, "d": np.array(d)})[0], expected)


@pytest.mark.parametrize("condition", ["Less (n, far)", "Not (c0)"])
def test_what_follows_from_small_constants_is_written_down(condition: str) -> None:
    proto = rewritten(
        f"""(float[2,3] x) => (float[a,b] y) <int64 one = {{1}}, int64 far = {{9}}, int64[1] minus = {{-1}}> {{
        s = Shape (x)  n = Gather (s, one)  m = Mul (n, far)  c0 = Less (m, n)  c = {condition}
        r = If (c) <then_branch = a () => (float[a,b] p) {{
                        k = Sub (m, far)  v = Div (k, one)  p = Add (x, x) }},
                    else_branch = b () => (float[a,b] q) {{ q = Neg (x) }}>
        y = Identity (r) }}"""
    )
    assert not {"Shape", "Gather", "Mul", "Less", "Not", "Sub", "Div"} & set(ops(proto))
    np.testing.assert_array_equal(run(proto, {"x": X})[0], 2 * X)


def test_large_constants_are_not_computed() -> None:
    many: Any = ", ".join(["1"] * 1025)
    proto = rewritten(f"""(float[1025] x) => (float[1025] y) <float[1025] w = {{{many}}}> {{
        n = Size (x)  c = Cast <to = 9> (n)  v = Neg (w)
        u = If (c) <then_branch = a () => (float[1025] p) {{ p = Add (x, v) }},
                    else_branch = b () => (float[1025] q) {{ q = Neg (x) }}>
        y = Abs (u) }}""")
    assert ops(proto) == ["Neg", "Add", "Abs"]
