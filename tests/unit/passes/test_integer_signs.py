"""Whether a Relu reads integers is told by what makes its input where that makes floats alone, else by its type."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper, parser

from support.onnx_models import RTX, wrap
from trtconv.passes import PASSES, run_passes
from trtconv.passes.spelling.integer_signs import _makes_floats

NAME = "pick-above-zero"


def edits(nodes: str, domain: str = "") -> int:
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17, "acme": 1]> g (int32[2,3] x, float[2,3] v) => (int32[2,3] y)
        {{ {nodes}  y = Relu (q) }}"""
    )
    if domain:
        proto.graph.node[0].domain = domain
        proto.graph.value_info.append(helper.make_tensor_value_info("q", onnx.TensorProto.INT32, [2, 3]))
    else:
        proto.graph.output[0].type.tensor_type.ClearField("elem_type")
    result = run_passes(wrap(proto), PASSES, RTX)
    return [edit.pass_name for edit in result.edits].count(NAME)


@pytest.mark.parametrize(
    ("nodes", "domain", "count"),
    [
        ("q = Add (x, x)", "", 1),
        ("q = ReduceLogSum <axes = [1]> (x)", "", 1),
        ("q = Abs (v)", "", 0),
        ("q = Exp (v)", "", 0),
        ("q = Exp (v)", "acme", 1),
    ],
)
def test_a_relu_of_integers_is_found(nodes: str, domain: str, count: int) -> None:
    assert edits(nodes, domain) == count


def test_no_version_of_what_makes_floats_makes_anything_else() -> None:
    """All schemas of all versions, one by one."""
    floats = {"tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)"}
    kinds: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
            made = {kind for output in schema.outputs for kind in allowed.get(output.type_str, [output.type_str])}
            kinds.setdefault(schema.name, set()).update(made)
    told = {op for op in kinds if _makes_floats(op)}
    assert {"Conv", "BatchNormalization", "Exp", "Softmax", "GlobalAveragePool"} <= told
    assert not {op: kinds[op] for op in told if not all(kind.startswith("tensor(float") for kind in kinds[op] - floats)}
    assert not {"Erf", "ReduceLogSum", "ReduceLogSumExp", "Dropout", "Add"} & told
    assert not _makes_floats("NoSuchOperator")
