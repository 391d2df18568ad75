"""Plugins that TensorRT brings: as many inputs as each takes, and no others."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from support.onnx_models import TENSORRT_8, parse, wrap
from trtconv.plugins.known import KNOWN
from trtconv.rules import run_rules

COUNTED = {
    name: plugin.inputs
    for name, plugin in KNOWN.items()
    if plugin.inputs and plugin.fields is not None and plugin.is_in(TENSORRT_8)
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_plugin_takes_no_more_inputs_and_no_fewer(name: str) -> None:
    least, most = COUNTED[name]
    for count in {max(0, least - 1), least, most, most + 1}:
        proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1,64] x) => (float[n] y) { y = Relu (x) }')
        attributes = dict.fromkeys(KNOWN[name].required, 1)
        proto.graph.node[0].CopyFrom(helper.make_node(name, ["x"] * count, ["y"], **attributes))
        refused = "TC005" in {finding.code for finding in run_rules(wrap(proto), TENSORRT_8)}
        assert refused is (not least <= count <= most), count


NMS = {
    "score_threshold": 0.1,
    "iou_threshold": 0.5,
    "max_output_boxes": 5,
    "background_class": -1,
    "score_activation": 0,
    "box_coding": 0,
}
BATCHED = {
    "shareLocation": 1,
    "backgroundLabelId": -1,
    "numClasses": 3,
    "keepTopK": 5,
    "scoreThreshold": 0.1,
    "iouThreshold": 0.5,
}


@pytest.mark.parametrize(("op", "refused"), [("BatchedNMS_TRT", 2), ("BatchedNMSDynamic_TRT", 0)])
def test_several_of_a_plugin_that_is_right_alone(op: str, refused: int) -> None:
    inputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, (2, 9, 1, 4)),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, (2, 9, 3)),
    ]
    nodes = [
        helper.make_node(op, ["boxes", "scores"], [f"y{number}"], domain="TRT", topK=9, **BATCHED) for number in (0, 1)
    ]
    outputs = [helper.make_empty_tensor_value_info(f"y{number}") for number in (0, 1)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=8, opset_imports=opsets)
    found = [each for each in run_rules(wrap(model), TENSORRT_8) if each.code == "TC005"]
    assert len(found) == refused


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "severity"),
    [
        ("DisentangledAttention_TRT", [(2, 64, 64), (2, 64, 8), (2, 64, 8)], {"span": 4, "factor": 0.1}, ""),
        ("DisentangledAttention_TRT", [(2, 65, 65), (2, 65, 8), (2, 65, 8)], {"span": 4, "factor": 0.1}, "error"),
        ("DisentangledAttention_TRT", [("n", "s", "s"), ("n", "s", 8), ("n", "s", 8)], {"span": 4, "factor": 0.1}, ""),
        ("EfficientNMS_Implicit_TF_TRT", [(1, 9, 1, 4), (1, 9, 3)], {}, ""),
        ("EfficientNMS_Implicit_TF_TRT", [(2, 9, 1, 4), (2, 9, 3)], {}, "error"),
        ("EfficientNMS_Explicit_TF_TRT", [(2, 9, 1, 4), (2, 9, 3)], {}, ""),
        ("EfficientNMS_TRT", [(2, 9, 4), (2, 9, 3)], {**NMS, "class_agnostic": 0}, ""),
        ("EfficientNMS_TRT", [(2, 9, 4), (2, 9, 3)], {**NMS, "class_agnostic": 1}, "warning"),
        ("BatchedNMSDynamic_TRT", [(2, 9, 1, 4), (2, 9, 3)], {**BATCHED, "topK": 9}, ""),
        ("BatchedNMSDynamic_TRT", [(2, 9, 1, 4), (2, 9, 3)], {**BATCHED, "topK": 10}, "warning"),
        ("BatchedNMS_TRT", [(2, 9, 1, 4), (2, 9, 3)], {**BATCHED, "topK": 3, "keepTopK": 9}, ""),
        ("BatchedNMS_TRT", [(2, 9, 1, 4), (2, 9, 3)], {**BATCHED, "topK": 3, "keepTopK": 10}, "warning"),
    ],
)
def test_what_a_plugin_computes_wrongly_is_said(
    op: str, shapes: list[tuple[int | str, ...]], attributes: dict[str, float], severity: str
) -> None:
    names = [f"x{number}" for number in range(len(shapes))]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(names, shapes, strict=True)
    ]
    node = helper.make_node(op, names, ["y"], domain="TRT", **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("TRT", 1)]
    found = run_rules(wrap(helper.make_model(graph, ir_version=8, opset_imports=opsets)), TENSORRT_8)
    assert "".join(each.severity.value for each in found if each.code == "TC005") == severity


def test_every_operator_that_nobody_has_is_named() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[1,64] x) => (float[n] y)
        { a = my.Nowhere (x)  b = Relu (a)  c = my.Elsewhere (b)  d = Relu (c)  y = my.Nowhere (d) }"""
    )
    found = [finding for finding in run_rules(wrap(proto), TENSORRT_8) if finding.code == "TC005"]
    assert [finding.location.index for finding in found] == [0, 2, 4]
    assert [finding.message.split()[0] for finding in found] == ["Nowhere", "Elsewhere", "Nowhere"]
