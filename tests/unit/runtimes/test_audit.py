"""The audit on made-up layers: every kind of difference is found, and none where there is none."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from support.onnx_models import parse, wrap
from support.runtime import FakeNetwork, deconv
from trtconv.runtimes.tensorrt import DeconvLayer
from trtconv.runtimes.tensorrt.audit import audit


def model(attrs: str, bias: str = "", inputs: str = "") -> onnx.ModelProto:
    return parse(
        f"""<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8,8] x{inputs}) => (float[1,4,p,q] y)
        <float[4] b = {{1,2,3,4}}> {{ [up] y = ConvTranspose <kernel_shape=[3,3], {attrs}> (x, w{bias}) }}"""
    )


def found(attrs: str, *layers: DeconvLayer, bias: str = "") -> list[str]:
    proto = model(attrs, bias, ", float[3,4,3,3] w")
    findings = audit(wrap(proto), FakeNetwork(deconvolutions=layers))
    assert all(f.code == "TC402" and f.location.op == "ConvTranspose" and f.fix for f in findings)
    return [f.message for f in findings]


def layer(**changes: Any) -> DeconvLayer:
    return deconv("up", has_bias=False, **changes)


PADDED = {"post_padding": (1, 1), "output_shape": (1, 4, 16, 16)}
PLAIN = "strides=[2,2]"
EXTRA = "strides=[2,2], output_padding=[1,1]"


def test_a_layer_that_is_right() -> None:
    assert found(PLAIN, layer()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernel": (3, 2)}, "kernel is (3, 2)"),
        ({"stride": (2, 1)}, "stride is (2, 1)"),
        ({"dilation": (1, 2)}, "dilation is (1, 2)"),
        ({"groups": 3}, "group is 3"),
        ({"pre_padding": (0, 1)}, "crops [0, 1] at the low"),
        ({"post_padding": (1, 0)}, "[1, 0] at the high"),
        ({"padding_mode": "SAME_UPPER"}, "[1, 1] at the high"),
        ({"padding_mode": "SAME_LOWER"}, "crops [1, 1] at the low"),
        ({"output_shape": (1, 4, 17, 18)}, "output is [17, 18]"),
    ],
)
def test_each_difference_is_found(changes: dict[str, Any], words: str) -> None:
    messages = found(PLAIN, layer(**changes))
    assert len(messages) == 1 or "padding_mode" in changes
    assert words in messages[0]


@pytest.mark.parametrize(
    ("attrs", "changes", "right"),
    [
        (
            'strides=[2,2], auto_pad="SAME_UPPER"',
            {"padding_mode": "SAME_UPPER", **PADDED, "post_padding": (0, 0)},
            True,
        ),
        ('strides=[2,2], auto_pad="SAME_UPPER"', PADDED, True),
        ('strides=[2,2], auto_pad="SAME_LOWER"', PADDED, False),
        ('strides=[2,2], auto_pad="SAME_LOWER"', {"padding_mode": "SAME_LOWER", "output_shape": (1, 4, 16, 16)}, True),
        (EXTRA + ', auto_pad="SAME_UPPER"', {"padding_mode": "SAME_UPPER", "output_shape": (1, 4, 16, 16)}, False),
        (EXTRA + ', auto_pad="SAME_UPPER"', {"pre_padding": (1, 1), "output_shape": (1, 4, 16, 16)}, True),
        (EXTRA + ', auto_pad="VALID"', {}, False),
        (EXTRA + ", pads=[0,0,1,1]", {}, True),
        (EXTRA + ", pads=[0,0,1,1]", PADDED, False),
        ("strides=[2,2], output_shape=[16,16]", PADDED, False),
        ("strides=[2,2], output_shape=[16,16]", {"pre_padding": (1, 1), "output_shape": (1, 4, 16, 16)}, True),
        ("strides=[2,2], pads=[-1,0,0,0]", {}, False),
    ],
)
def test_pads_in_every_spelling(attrs: str, changes: dict[str, Any], right: bool) -> None:
    assert (found(attrs, layer(**changes)) == []) == right


def test_a_fill_behind_the_layer_is_right() -> None:
    assert found(EXTRA, layer()) == []


def test_a_missing_fill_is_found() -> None:
    assert "ignores output_padding" in found(EXTRA, layer(output="y"))[0]


def test_a_bias_inside_a_filled_layer_is_found() -> None:
    assert "without bias" in found(EXTRA, deconv("up", has_bias=True), bias=", b")[0]


def test_a_lost_or_invented_bias_is_found() -> None:
    assert "bias" in found(PLAIN, layer(), bias=", b")[0]
    assert "bias" in found(PLAIN, deconv("up", has_bias=True))[0]


def test_wrong_channels_are_found() -> None:
    proto = model(PLAIN)
    proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [3, 4, 3, 3], bytes(432), raw=True))
    assert audit(wrap(proto), FakeNetwork(deconvolutions=(layer(),))) == ()
    (finding,) = audit(wrap(proto), FakeNetwork(deconvolutions=(layer(out_channels=10),)))
    assert "channels are 10 in TensorRT's network, 4 in the model" in finding.message


@pytest.mark.parametrize("count", [0, 2])
def test_a_missing_or_doubled_layer_is_found(count: int) -> None:
    assert f"made {count} deconvolutions" in found(PLAIN, *[layer()] * count)[0]


def test_a_layer_that_no_node_asked_for_is_found() -> None:
    assert "in no graph of the model" in found(PLAIN, layer(), deconv("stray", inside=("call (Up)",)))[0]


def test_dynamic_sizes() -> None:
    dynamic = {"input_shape": (1, 3, -1, -1), "output_shape": (1, 4, -1, -1)}
    assert found(PLAIN, layer(**dynamic)) == []
    assert found(EXTRA + ', auto_pad="SAME_UPPER"', layer(**dynamic, padding_mode="SAME_UPPER"))
    assert "cannot be audited" in found("output_shape=[9,9]", layer(**dynamic, stride=(1, 1)))[0]


def test_a_malformed_node_cannot_be_audited() -> None:
    assert "strides has 1 entries" in found("strides=[2]", layer())[0]


def test_one_dimension_is_lifted_to_two() -> None:
    proto = parse(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,3,8] x, float[3,4,3] w) => (float[1,4,p] y)
        { [up] y = ConvTranspose <kernel_shape=[3], strides=[2]> (x, w) }"""
    )
    lifted = {"kernel": (3, 1), "stride": (2, 1), "input_shape": (1, 3, 8, 1), "output_shape": (1, 4, 17, 1)}
    assert audit(wrap(proto), FakeNetwork(deconvolutions=(layer(**lifted),))) == ()
    wrong = {**lifted, "post_padding": (0, 1)}
    assert audit(wrap(proto), FakeNetwork(deconvolutions=(layer(**wrong),)))
