"""dilate-deconv-kernel and inline-deconv-functions: when they fire, and what they leave."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import RTX, TENSORRT_8, Layer, assert_equal, attributes, deconvs, make, parse, rewritten
from support.session import run
from trtconv.passes import PASSES, PassResult

DILATE = tuple(each for each in PASSES if each.name == "dilate-deconv-kernel")
INLINE = tuple(each for each in PASSES if each.name == "inline-deconv-functions")
BOTH = Layer(sizes=(4, 5), kernel=(3, 2), strides=(2, 1), dilations=(2, 3), bias="initializer")


@pytest.mark.parametrize("weight", ["initializer", "computed", "dq_uint8", "shared", "overridable"])
def test_dilation_goes_into_the_kernel(weight: str) -> None:
    layer = Layer(**{**vars(BOTH), "weight": weight, "axis": 1 if weight == "dq_uint8" else None})
    proto, feeds = make(layer)
    model, result = rewritten(proto, RTX, DILATE)
    made = attributes(deconvs(model)[0])
    assert (made["kernel_shape"], made["dilations"]) == ([5, 4], [1, 1])
    assert "dilations [2, 3] written into the kernel" in result.edits[0].what
    assert_equal(run(proto, feeds), run(model.proto, feeds))


@pytest.mark.parametrize(
    ("changes", "target"),
    [({}, TENSORRT_8), ({"strides": (1, 1)}, RTX), ({"dilations": (1, 1)}, RTX), ({"dilations": None}, RTX)],
)
def test_dilation_stays_where_it_can(changes: dict[str, object], target: object) -> None:
    proto, _ = make(Layer(**{**vars(BOTH), **changes}))
    model, result = rewritten(proto, target, DILATE)  # type: ignore[arg-type]
    assert result == PassResult()
    assert model.proto == proto


def test_a_computed_kernel_needs_opset_13() -> None:
    proto, _ = make(Layer(**{**vars(BOTH), "weight": "computed", "opset": 12}))
    model, result = rewritten(proto, RTX, DILATE)
    assert "opset 13" in result.skipped[0].reason
    assert model.proto == proto


def test_a_shared_weight_stays_for_its_other_user() -> None:
    proto, _ = make(Layer(**{**vars(BOTH), "weight": "shared"}))
    after = rewritten(proto, RTX, DILATE)[0].proto
    assert {t.name: tuple(t.dims) for t in after.graph.initializer if t.name != "b"} == {
        "w": (2, 3, 3, 2),
        "up.weight": (2, 3, 5, 4),
    }
    grown = numpy_helper.to_array(next(t for t in after.graph.initializer if t.name == "up.weight"))
    np.testing.assert_array_equal(grown[:, :, ::2, ::3], BOTH.arrays()[1])
    assert np.count_nonzero(grown) == BOTH.arrays()[1].size


FUNCTION = """<ir_version: 8, opset_import: ["": 17, "local": 1]> g (float[1,1,5,5] x) => (float[1,1,p,q] y)
    <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}> { %s }
    <domain: "local", opset_import: ["": %d]> Up (a, k) => (r) { r = ConvTranspose <strides=[2,2]> (a, k) }
    <domain: "local", opset_import: ["": 17]> Plain (a) => (r) { r = Relu (a) }"""


def function(call: str = "h = local.Plain (x) y = local.Up (h, w)", opset: int = 17) -> onnx.ModelProto:
    return parse(FUNCTION % (call, opset))


def test_only_functions_with_a_deconvolution_are_inlined() -> None:
    model, result = rewritten(function(), RTX, INLINE)
    assert [edit.node for edit in result.edits] == ["Up"]
    assert [node.op_type for node in model.proto.graph.node] == ["Plain", "ConvTranspose"]
    assert "Plain" in {f.name for f in model.proto.functions}


def test_a_function_that_nobody_calls_is_left() -> None:
    proto = function("y = local.Plain (x)")
    model, result = rewritten(proto, RTX, INLINE)
    assert result == PassResult()
    assert model.proto == proto


def test_a_function_of_another_opset_is_refused() -> None:
    proto = function(opset=13)
    model, result = rewritten(proto, RTX, INLINE)
    assert "opset" in result.skipped[0].reason
    assert model.proto == proto


def test_a_function_called_twice_and_in_a_branch() -> None:
    proto = parse(
        (
            FUNCTION
            % (
                "h = local.Up (x, w) y = If (c) <then_branch = t () => (float[1,1,p,q] a) { a = local.Up (h, w) },"
                "else_branch = e () => (float[1,1,p,q] b) { b = Relu (x) }>",
                17,
            )
        ).replace("[1,1,5,5] x)", "[1,1,5,5] x, bool c)")
    )
    model, _ = rewritten(proto, RTX, INLINE)
    assert len(deconvs(model)) == 2
    feeds = {"x": np.ones((1, 1, 5, 5), np.float32), "c": np.array(True)}
    assert_equal(run(proto, feeds), run(model.proto, feeds))
