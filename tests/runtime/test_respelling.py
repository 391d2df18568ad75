"""Nodes that a builder refuses, and that it takes in another form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import trtconv
from support.convolutions import convolution
from trtconv.core import codes
from trtconv.core.errors import BuildFailed
from trtconv.passes.spelling.other_forms import OTHER_FORMS
from trtconv.runtimes.tensorrt.network import Network

Refuses = Callable[[Any], bool]


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
def refuse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(refuses: Refuses, text: str = "Could not find any implementation for node up") -> None:
        build = Network.build

        def picky(network: Network, plan: Any, monitor: Any = None) -> Any:
            if refuses(network._handles.network):
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
    onnx.save(convolution(op, rank, groups, **attributes).proto, path)
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


GROUPS = """<ir_version: 8, opset_import: ["": 17]> g (float[1,4,h,w] x) => (float[1,4,h,w] y)
    <float[2] s = {1, 1}, float[2] b = {0, 0}, int64[3] groups = {1, 2, -1}> {
      sizes = Shape (x)
      r = Reshape (x, groups)
      [norm] i = InstanceNormalization (r, s, b)
      y = Reshape (i, sizes)
    }"""


@pytest.mark.parametrize(
    ("text", "mended"), [("Unexpected exception std::bad_alloc", True), ("no implementation", False)]
)
def test_normalisations_are_written_as_means_where_the_builder_wants_endless_memory(
    text: str, mended: bool, refuse: Callable[..., None], tmp_path: Path
) -> None:
    """The builder takes the node alone: it is what stands around it that it cannot deal with."""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(GROUPS), path)
    refuse(lambda network: "NORMALIZATION" in kinds(network) and "SHUFFLE" in kinds(network), text)
    dims = {"h": trtconv.Range(4, 8, 12), "w": trtconv.Range(4, 8, 12)}
    report = trtconv.build(trtconv.BuildRequest(path, dims=dims))
    assert report.exit_code == (0 if mended else 1)
    assert report.respelled == ({"norm": "means"} if mended else {})
    if mended:
        assert [(edit.pass_name, edit.node) for edit in report.edits] == [("normalize-by-means", "norm")]
        assert report.proof is not None
        assert (report.proof.agrees, report.proof.missing) == (True, ())
        again = trtconv.verify(trtconv.VerifyRequest(path, random=0, prove="quick"))
        assert again.exit_code == 0


def test_a_form_that_computes_something_else_is_not_taken(
    refuse: Callable[[Refuses], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(convolution("ConvTranspose", 1, strides=[2]).proto, path)
    refuse(lambda network: "DECONVOLUTION" in kinds(network))
    monkeypatch.setattr("trtconv.passes.spelling.other_forms._mirrored", lambda kernel, groups: kernel.swapaxes(0, 1))
    dims = {"n": trtconv.Range(1, 1, 2), "d0": trtconv.Range(5, 8, 9)}
    report = trtconv.build(trtconv.BuildRequest(path, dims=dims))
    assert (report.exit_code, report.respelled) == (1, {})
