"""Pieces of a network, run by themselves: what one run of the whole on ordinary inputs does not see."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import trtconv
from trtconv.core.documents.proof import Lack
from trtconv.core.findings import Severity
from trtconv.runtimes.proof import pieces
from trtconv.runtimes.tensorrt.base import EngineBlob
from trtconv.runtimes.tensorrt.network import Network
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'
Change = Callable[[ReadLayer], ReadLayer]

LIMITED = (
    HEADER
    + """g (float[1,4,8,8] x) => (float[1,4,8,8] y) <float low = {0}, float high = {60}>
    { y = Clip (x, low, high) }"""
)
BRANCHES = (
    HEADER
    + """g (float[4] x, bool take) => (float[4] y)
    { y = If (take) <then_branch = a () => (float[4] p) { p = Mul (x, x) },
                     else_branch = b () => (float[4] q) { q = Abs (x) }> }"""
)
MEAN = HEADER + "g (float[n,4,8,8] x) => (float[n,4,1,1] y) { y = ReduceMean <axes = [2, 3]> (x) }"
NORM = (
    HEADER
    + """g (float[1,4,16] x, float[16] s, float[16] b) => (float[1,4,16] y)
    { y = LayerNormalization <axis = -1, epsilon = 1e-12> (x, s, b) }"""
)
SATURATED = (
    HEADER
    + """g (float[1,4,8] x) => (float[1,4,8] y) <float far = {100}>
    { f = Mul (x, far)  a = LeakyRelu <alpha = 0.1> (f)  y = Softmax <axis = 2> (a) }"""
)
NEVER_FINITE = (
    HEADER
    + """g (float[1,4,8] x) => (float[1,4,8] y) <float far = {50}>
    { f = Sub (x, far)  r = Sqrt (f)  n = Neg (r)
      y = LeakyRelu <alpha = 0.1> (n) }"""
)
FROM_ABSOLUTES = HEADER + "g (float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalLpPool <p = 1> (x) }"
NOT_A_NUMBER = HEADER + "g (float[1,2,4,4] x) => (float[1,2,4,4] y) { y = MeanVarianceNormalization (x) }"
CUBIC = (
    HEADER
    + """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}>
    { y = Resize <mode = "cubic", coordinate_transformation_mode = "align_corners"> (x, , s) }"""
)
CORNERS = (
    HEADER
    + """g (float[1,2,32,32] x) => (float[1,2,48,40] y) <int64[4] s = {1, 2, 48, 40}>
    { y = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (x, , , s) }"""
)
STEPS = (
    HEADER
    + """g (float[3,1,2] x, float[1,4,2] w, float[1,4,4] r, int32[1] lens) => (float[3,1,1,4] y, float[1,1,4] h)
    { y, h = RNN <hidden_size = 4> (x, w, r, , lens) }"""
)
RANDOM = (
    HEADER
    + """g (float[4] x) => (float[4] y)
    { r = RandomUniform <shape = [4]> ()  y = Add (x, r) }"""
)
OVERFLOWING = (
    HEADER
    + """g (int32[n,6] x) => (int32[n] y, int64[n] z) <int64[1] far = {9000000000000000000}, int64[1] axes = {1}>
    { y = ReduceProd <axes = [1], keepdims = 0> (x)
      w = Cast <to = 7> (x)  v = Mul (w, far)  z = ReduceSum <keepdims = 0> (v, axes) }"""
)
BY_SIZE = (
    HEADER
    + """g (float[n,4] x) => (float[n,4] y) <int64[1] most = {10}, int64[1] axes = {0}>
    { s = Shape <start = 0, end = 1> (x)  g = Greater (s, most)  c = Squeeze (g, axes)
      y = If (c) <then_branch = a () => (float[n,4] p) { p = Relu (x) },
                  else_branch = b () => (float[n,4] q) { q = Neg (x) }> }"""
)
ROUNDED = (
    HEADER
    + """g (float16[2,3,4,8] q, float16[2,3,8,6] k, float16[2,3,6,5] v) => (float16[2,3,4,5] y) <float third = {0.35}>
    { scale = Cast <to = 10> (third)  s = Mul (q, scale)  p = MatMul (s, k)  w = Cast <to = 1> (p)
      a = Softmax <axis = -1> (w)  h = Cast <to = 10> (a)  y = MatMul (h, v) }"""
)
BOXES = (
    HEADER
    + """g (float[1,12,4] boxes, float[1,2,12] scores) => (int64[k,3] y, float[1,2,12] z)
    <int64 most = {3}, float overlap = {0.4}, float least = {0.1}> {
    p = Sigmoid (scores)  z = Mul (p, p)
    y = NonMaxSuppression <center_point_box = 1> (boxes, p, most, overlap, least) }"""
)
OF_OWN_SIZES = (
    HEADER
    + """g (float[1,4,8,8] x) => (float[1,64,64] y) <int64[3] flat = {1, 4, 64}>
    { f = Reshape (x, flat)  t = Transpose <perm = [0, 2, 1]> (f)  m = MatMul (t, f)  y = Softmax <axis = 2> (m) }"""
)


def check(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, change: Change | None = None, **more: Any
) -> trtconv.CheckReport:
    """Checks a model whose parsed network has other layers."""
    path = folder / "m.onnx"
    onnx.save(parser.parse_model(text), path)
    read = Network.read_back

    def changed(network: Network) -> ReadNetwork:
        found = read(network)
        return found if change is None else dataclasses.replace(found, layers=tuple(map(change, found.layers)))

    monkeypatch.setattr(Network, "read_back", changed)
    # What TensorRT-RTX has no kernel for is proven all the same.
    monkeypatch.setattr(Network, "build", lambda network, plan, monitor=None: EngineBlob(memoryview(b""), (), ()))
    return trtconv.check(trtconv.CheckRequest(path, **more))


def setting(kind: str, **values: Any) -> Change:
    """Returns what sets attributes of all layers of a kind."""

    def change(layer: ReadLayer) -> ReadLayer:
        return dataclasses.replace(layer, values={**layer.values, **values}) if layer.kind == kind else layer

    return change


def negating(number: float) -> Change:
    """Returns what negates all constants of one number."""

    def change(layer: ReadLayer) -> ReadLayer:
        held = layer.values.get("weights")
        if not isinstance(held, np.ndarray) or held.size != 1 or held.item() != np.float32(number):
            return layer
        return dataclasses.replace(layer, values={**layer.values, "weights": -held})

    return change


CHANGES = {
    "a limit that ordinary inputs do not reach": (LIMITED, setting("ACTIVATION", beta=1e4)),
    "a branch that is not taken": (BRANCHES, setting("UNARY", op="NEG")),
    "the other branch": (BRANCHES, setting("ELEMENTWISE", op="SUM")),
    "what shows at batches above one": (MEAN, setting("REDUCE", axes=13)),
    "a row of a cubic interpolation": (CUBIC, setting("RESIZE", cubic_coeff=-0.7)),
    "corners that are not aligned": (CORNERS, setting("RESIZE", coordinate_transformation="HALF_PIXEL")),
    "an epsilon that small inputs alone show": (NORM, setting("NORMALIZATION", epsilon=1e-6)),
    "what comes before a softmax that is saturated": (SATURATED, setting("ACTIVATION", alpha=0.15)),
    "a threshold below which scores seldom are": (BOXES, negating(0.1)),
    "what comes behind NaN": (NEVER_FINITE, setting("ACTIVATION", alpha=0.5)),
}


@pytest.mark.parametrize(("text", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(text: str, change: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(tmp_path, text, monkeypatch, change)
    assert report.proof is not None
    assert report.proof.agrees is False
    assert "TC402" in [each.code for each in report.findings]


@pytest.mark.parametrize(
    "text", [*dict.fromkeys(text for text, _ in CHANGES.values()), FROM_ABSOLUTES, NOT_A_NUMBER, STEPS, OVERFLOWING]
)
def test_what_is_right_is_proven_in_all_its_pieces(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(tmp_path, text, monkeypatch)
    assert report.proof is not None
    assert report.proof.agrees is True
    assert report.proof.missing == ()
    assert report.proof.pieces.proven == report.proof.pieces.of > 0


def test_what_is_not_shown_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(tmp_path, RANDOM, monkeypatch)
    (finding,) = [each for each in report.findings if each.code == "TC410"]
    assert finding.severity is Severity.INFO
    assert report.exit_code == 0
    assert report.proof is not None
    assert report.proof.missing
    # More time would show nothing of what could not be run at all.
    lacks_time = any(unshown.what is Lack.TIME for unshown in report.proof.missing)
    assert ("--prove-time" in (finding.fix or "")) is lacks_time


def test_a_branch_that_no_inputs_lead_to_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check(tmp_path, BY_SIZE, monkeypatch)
    assert report.proof is not None
    assert [(each.what, each.where) for each in report.proof.missing] == [(Lack.BRANCH, "y")]


def test_sizes_that_nobody_knows_raise_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Network.read_back

    def unknown(network: Network) -> ReadNetwork:
        found = read(network)
        inner = (each if each.index in found.inputs or not each.shape else _of_any_size(each) for each in found.tensors)
        return dataclasses.replace(found, tensors=tuple(inner))

    monkeypatch.setattr(Network, "read_back", unknown)
    monkeypatch.setattr(pieces, "shapes_of", lambda network, model, inputs, *_: dict(inputs))
    report = check(tmp_path, OF_OWN_SIZES, monkeypatch)
    assert report.exit_code == 0
    assert report.proof is not None
    assert report.proof.agrees is True


def _of_any_size(tensor: ReadTensor) -> ReadTensor:
    return dataclasses.replace(tensor, shape=tensor.shape and (-1,) * len(tensor.shape))


def test_what_must_be_shown_and_is_not_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(tmp_path, RANDOM, monkeypatch, prove="required").exit_code == 1
    assert check(tmp_path, LIMITED, monkeypatch, prove="required").exit_code == 0


def test_a_large_network_is_proven_by_its_pieces_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        HEADER
        + """g (float[1,64,2048,2048] x) => (float[1,64,2048,2048] y)
        { y = Conv <pads = [1, 1, 1, 1]> (x, w) }"""
    )
    model = parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    report = trtconv.check(trtconv.CheckRequest(path))
    assert report.proof is not None
    assert (report.proof.agrees, report.proof.sizes, report.proof.pieces.proven) == (True, 0, 1)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_weights_behind_links_are_proven(link: Callable[[Path, Path], None], tmp_path: Path) -> None:
    """onnx's own reader takes no links; caches of downloads are full of them."""
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    model = parser.parse_model(
        HEADER + "g (float[1,16,8,8] x) => (float[1,16,6,6] y) <float[16,16,3,3] w> { y = Conv (x, w) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    del model.graph.input[1:]
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="stored.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink(missing_ok=True)
    link(tmp_path / "stored.bin", tmp_path / "w.bin")
    stored = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    next(each for each in stored.graph.initializer[0].external_data if each.key == "location").value = "w.bin"
    (tmp_path / "m.onnx").write_bytes(stored.SerializeToString())
    report = trtconv.check(trtconv.CheckRequest(tmp_path / "m.onnx", prove="required"))
    assert report.exit_code == 0 and report.proof is not None and report.proof.agrees, report.findings


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_floats_that_a_network_calls_float32_are_rounded_as_the_model_says(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of TensorRT 8.6, whose networks have types of their own only at their ends."""
    read = Network.read_back

    def wider(network: Network) -> ReadNetwork:
        found = read(network)
        ends = (*found.inputs, *found.outputs)
        return dataclasses.replace(
            found,
            tensors=tuple(
                dataclasses.replace(each, dtype="float32") if each.index not in ends else each for each in found.tensors
            ),
        )

    def scaled(layer: ReadLayer) -> ReadLayer:
        if layer.kind != "CONSTANT":
            return layer
        weights = np.asarray(layer.values["weights"])
        return dataclasses.replace(layer, values={**layer.values, "weights": (weights * factor).astype(weights.dtype)})

    monkeypatch.setattr(Network, "read_back", wider)
    report = check(tmp_path, ROUNDED, monkeypatch, scaled)
    assert report.exit_code == (0 if factor == 1.0 else 1), report.findings
    assert report.proof is not None and report.proof.agrees is (factor == 1.0)
