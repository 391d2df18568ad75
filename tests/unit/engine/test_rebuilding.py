"""The model that verify and bisect make again of a report is, byte for byte, the one that the parser was given."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.onnx_models import parse
from support.runtime import RTX, FakeRuntime
from support.runtime import TENSORRT_8 as FLAGS
from trtconv import BuildRequest, build, load_report
from trtconv.core.dim_flags import parse_dims
from trtconv.core.documents.tuned import Tuned
from trtconv.core.errors import EnvironmentMissing
from trtconv.engine.rebuilding import Recipe, as_built, rewritten_as_built
from trtconv.graph.model import OnnxModel
from trtconv.pipeline import parse as parsing
from trtconv.pipeline import tuning
from trtconv.pipeline.preparation import handed_over
from trtconv.runtimes import tensorrt

NET = """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[1,2,h,w] x) => (float[1,2,p,q] y)
    <float[2,2,3,3] k = {1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,0,1,2,3,4,5,6,7,8,9,8,7,6,5,4,3,2,1,0},
     float[2,2,2,2] w2 = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float big = {20000}, float small = {0.00005}>
    { a = Conv <kernel_shape=[3,3], pads=[1,1,1,1]> (x, k)
      [up] b = ConvTranspose <strides=[2,2], output_padding=[1,1]> (a, w2)
      c = my.grow (b, w2)  d = Mul (c, big)  e = Mul (d, small)
      [last] y = Tanh (e) }
    <opset_import: ["": 17], domain: "my"> grow (s, v) => (t)
    { t = ConvTranspose <strides=[2,2], auto_pad="SAME_UPPER"> (s, v) }"""
"""Nodes without names, one in a function, values too large for float16, and deconvolutions that the passes rewrite."""
BAKED = """<ir_version: 8, opset_import: ["": 17]> g (float[1,16,h,w] x) => (float[1,4,p,q] y)
    <int64[6] s = {1,4,2,2,8,8}, int64[4] r = {1,4,16,16}>
    { a = Reshape (x, s)  b = Transpose <perm=[0,1,4,2,5,3]> (a)  c = Reshape (b, r)  y = Relu (c) }"""
"""A pixel shuffle with the sizes of its example, which a pass frees."""
ASYMMETRIC = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,h,w] x) => (float[1,2,p,q] y)
    <float s = {0.1}, uint8 z = {100}>
    { q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)  y = Relu (d) }"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    """Makes a strongly typed TensorRT the installed one; what it parses is not audited."""
    fake = FakeRuntime(capabilities=RTX)
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    monkeypatch.setattr(parsing, "audit", lambda model, network: ())
    return fake


def save(text: str, folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save_model(parse(text), path)
    return path


def built(text: str, folder: Path, dims: str, **asked: Any) -> tuple[OnnxModel, Recipe]:
    """Builds a model; returns it as it was, and how the report says that it was built."""
    path = save(text, folder)
    bounds = parse_dims(dims.split())
    report = build(BuildRequest(path, dims=bounds, prove="none", **asked))
    assert report.exit_code == 0, report.findings
    return OnnxModel.load(path), Recipe.of(load_report(path.with_suffix(".engine.json")))


@pytest.mark.parametrize(
    ("text", "dims", "asked"),
    [
        (NET, "h=4:8:16 w=4:8:16", {}),
        (NET, "h=4:8:16 w=4:8:16", {"rewrite": False}),
        (NET, "h=8 w=8", {"precision": "fp16"}),
        (NET, "h=4:8:16 w=4:8:16", {"precision": "fp16", "split": "2"}),
        (NET, "h=8 w=8", {"precision": "bf16", "cast_interface": True}),
        (NET, "h=8 w=8", {"precision": "fp16", "node_precisions": {"last": "fp32", "up": "fp32"}}),
        (NET, "h=8 w=8", {"precision": "as-is", "node_precisions": {"Conv": "fp16"}}),
        (NET, "h=8 w=8", {"precision": "auto", "tolerance": 0.01}),
        (NET, "h=8 w=8", {"precision": "auto", "tolerance": 0.0}),
        (NET, "h=8 w=8", {"precision": "auto", "tolerance": 0.1, "cast_interface": True}),
        (BAKED, "h=8:16:32 w=8:16:32", {}),
        (BAKED, "h=8:16:32 w=8:16:32", {"precision": "fp16"}),
        (ASYMMETRIC, "h=8 w=8", {}),
        (ASYMMETRIC, "h=8 w=8", {"precision": "int8", "requantize": True}),
    ],
)
def test_what_is_made_again_is_what_was_built(
    runtime: FakeRuntime, tmp_path: Path, text: str, dims: str, asked: dict[str, Any]
) -> None:
    model, recipe = built(text, tmp_path, dims, **asked)
    given, _ = runtime.parsed[-1]
    assert given != handed_over(OnnxModel.load(model.path)) or asked.get("rewrite") is False
    assert handed_over(as_built(model, recipe)[0]) == given


def elsewhere() -> None:
    raise EnvironmentMissing("the layers were measured on another machine", "")


def test_the_forms_that_were_chosen_are_made_again(
    runtime: FakeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = {"up": "behind"}
    tuned = tuple(Tuned(node, "layer", form, "input", {}, False) for node, form in forms.items())
    monkeypatch.setattr(tuning, "tune", lambda *_: tuned)
    monkeypatch.setattr(runtime, "engines", elsewhere)
    model, recipe = built(NET, tmp_path, "h=8 w=8", tune=True, precision="fp16")
    given, _ = runtime.parsed[-1]
    assert recipe.forms == forms
    assert handed_over(as_built(model, recipe)[0]) == given
    assert handed_over(as_built(model, dataclasses.replace(recipe, forms={}))[0]) != given


def test_types_that_the_builder_is_told_leave_the_graph_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeRuntime(capabilities=FLAGS, family="tensorrt", version="8.6.1")
    monkeypatch.setattr(tensorrt, "load", lambda target: fake)
    monkeypatch.setattr(parsing, "audit", lambda model, network: ())
    model, recipe = built(NET, tmp_path, "h=8 w=8", precision="fp16", node_precisions={"last": "fp32"})
    assert handed_over(rewritten_as_built(model, recipe)) == fake.parsed[-1][0]
