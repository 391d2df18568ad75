"""Nodes that a builder refuses, and that it takes in another form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import trtconv
from trtconv.core import codes
from trtconv.core.errors import BuildFailed
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.spelling.other_forms import OTHER_FORMS, other_forms
from trtconv.runtimes.onnxruntime import compare_models
from trtconv.runtimes.tensorrt.network import Network

Refuses = Callable[[Any], bool]


def model(op: str, rank: int, groups: int = 1, *, kernel: int = 3, bias: bool = True, **attributes: Any) -> OnnxModel:
    """Returns Relu, a convolution named "up" of 4 -> 6 channels, Relu."""
    random = np.random.default_rng(0)
    ins, outs = (6, 4 // groups) if op == "Conv" else (4, 6 // groups)
    weight = random.standard_normal((ins, outs, *[kernel] * rank)).astype(np.float32)
    inits = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.arange(6, dtype=np.float32), "b")]
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node(op, ["r", "w", *(["b"] if bias else [])], ["u"], "up", group=groups, **attributes),
        helper.make_node("Relu", ["u"], ["y"], "last"),
    ]
    sizes = [f"d{axis}" for axis in range(rank)]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 4, *sizes])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 6, *(f"o{a}" for a in range(rank))])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return OnnxModel(proto, Path("m.onnx"))


@settings(max_examples=60, deadline=None)
@given(
    op=st.sampled_from(["Conv", "ConvTranspose"]),
    rank=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    kernel=st.integers(1, 4),
    bias=st.booleans(),
    form=st.sampled_from(sorted(OTHER_FORMS)),
    data=st.data(),
)
def test_each_form_computes_the_same(
    op: str, rank: int, groups: int, kernel: int, bias: bool, form: str, data: st.DataObject
) -> None:
    sizes = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    strides, dilations = data.draw(sizes, "strides"), data.draw(sizes, "dilations")
    pads = data.draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank), "pads")
    before = model(op, rank, groups, kernel=kernel, bias=bias, strides=strides, dilations=dilations, pads=pads)
    after = before.copy()
    done = run_passes(after, other_forms({"up": form}), Target("rtx"))
    if done.edits:
        compared = compare_models(before, after)
        # Where nothing is left of the result, neither runs.
        assert compared.max_relative_error is None or compared.max_relative_error < 1e-5
    else:
        assert {"plane": rank > 1, "groups": groups == 1, "conv": op == "Conv"}[form]


def kinds(network: Any) -> list[str]:
    return [str(network.get_layer(i).type).rpartition(".")[2] for i in range(network.num_layers)]


def grouped(network: Any) -> bool:
    """Whether a convolution of a network has groups."""
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    found = [each for each in layers if str(each.type).endswith("CONVOLUTION")]
    for each in found:
        import tensorrt_rtx as trt

        each.__class__ = trt.IDeconvolutionLayer if "DECONV" in str(each.type) else trt.IConvolutionLayer
    return any(each.num_groups > 1 for each in found)


CASES: dict[str, tuple[str, int, int, dict[str, Any], Refuses, str]] = {
    "no deconvolution": ("ConvTranspose", 2, 1, {"strides": [2, 2]}, lambda n: "DECONVOLUTION" in kinds(n), "conv"),
    "no groups": ("Conv", 2, 2, {}, grouped, "groups"),
}


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[[Refuses], None]:
    def install(refuses: Refuses) -> None:
        build = Network.build

        def picky(network: Network, plan: Any, monitor: Any = None) -> Any:
            if refuses(network._handles.network):
                text = "Could not find any implementation for node up"
                raise BuildFailed(
                    "TensorRT's builder refused the network", findings=(codes.BUILDER_REFUSED.finding(text),)
                )
            return build(network, plan, monitor)

        monkeypatch.setattr(Network, "build", picky)

    return install


@pytest.mark.parametrize("case", CASES)
def test_the_first_form_that_builds_is_taken_and_proven(
    case: str, refuse: Callable[[Refuses], None], tmp_path: Path
) -> None:
    op, rank, groups, attributes, refuses, form = CASES[case]
    path = tmp_path / "m.onnx"
    onnx.save(model(op, rank, groups, **attributes).proto, path)
    refuse(refuses)
    dims = {"n": trtconv.Range(1, 1, 2), **{f"d{axis}": trtconv.Range(5, 8, 9) for axis in range(rank)}}
    report = trtconv.build(trtconv.BuildRequest(path, dims=dims))
    assert report.exit_code == 0
    assert report.respelled == {"up": form}
    assert [(each.pass_name, each.node) for each in report.edits] == [(OTHER_FORMS[form].name, "up")]
    assert report.proof is not None
    assert (report.proof.agrees, report.proof.missing) == (True, ())
    # What was built is made again from the report.
    checked = trtconv.verify(trtconv.VerifyRequest(path, random=0, prove="required"))
    assert checked.exit_code == 0
    assert checked.parsed is not None
    left = trtconv.build(trtconv.BuildRequest(path, dims=dims, mend=False, force=True))
    assert (left.exit_code, [each.code for each in left.findings]) == (1, ["TC403"])


def test_a_form_that_computes_something_else_is_not_taken(
    refuse: Callable[[Refuses], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model("ConvTranspose", 1, strides=[2]).proto, path)
    refuse(lambda network: "DECONVOLUTION" in kinds(network))
    monkeypatch.setattr("trtconv.passes.spelling.other_forms._mirrored", lambda kernel, groups: kernel.swapaxes(0, 1))
    dims = {"n": trtconv.Range(1, 1, 2), "d0": trtconv.Range(5, 8, 9)}
    report = trtconv.build(trtconv.BuildRequest(path, dims=dims))
    assert (report.exit_code, report.respelled) == (1, {})
