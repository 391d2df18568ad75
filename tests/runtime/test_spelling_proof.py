"""A spelling that is broken on purpose is caught: the network is compared with the model as its file has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import trtconv
from trtconv.cli.formats.pages import sections
from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.passes import PASSES
from trtconv.passes.spelling import fourier, pool_windows, regions, resize, scatter
from trtconv.passes.spelling.base import Spelling
from trtconv.passes.spelling.writer import Writer

pytest.importorskip("tensorrt_rtx")

MODELS = {
    "resize": (
        18,
        """(float[1,1,4,6] x) => (float[1,1,2,3] y) <float[4] s = {1, 1, 0.5, 0.5}>
        { y = Resize <antialias = 1, mode = "linear"> (x, , s) }""",
    ),
    "scatter": (
        18,
        """(float[5] x, float[2] u) => (float[5] y) <int64[2,1] i = {1, 3}>
        { y = ScatterND <reduction = "add"> (x, i, u) }""",
    ),
    "pool": (13, "(float[1,1,8] x) => (float[1,1,4] y) { y = MaxPool <kernel_shape = [3], dilations = [2]> (x) }"),
    "regions": (
        16,
        """(float[2,1,6,6] x, float[3,4] rois, int64[3] b) => (float[3,1,2,2] y)
        { y = RoiAlign <output_height = 2, output_width = 2, sampling_ratio = 2> (x, rois, b) }""",
    ),
    "deform": (
        19,
        """(float[1,2,5,5] x, float[2,2,3,3] w, float[1,18,5,5] move) => (float[1,2,5,5] y)
        { y = DeformConv <pads = [1, 1, 1, 1]> (x, w, move) }""",
    ),
    "fourier": (17, "(float[1,8,1] x) => (float[1,8,2] y) { y = DFT <axis = 1> (x) }"),
}
BROKEN: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "resize": (resize, "weights", lambda right: lambda *given: np.roll(right(*given), 1, axis=1)),
    "scatter": (scatter, "_REDUCTIONS", lambda right: {**right, "add": right["max"]}),
    "regions": (regions, "_hats", lambda right: lambda w, at, *rest: right(w, w("Neg", at), *rest)),
    "deform": (regions, "_base", lambda right: lambda *given: right(*given)[::-1]),
    "pool": (pool_windows.PoolWindow, "taps", lambda right: lambda window: right(window)[:-1]),
    "fourier": (fourier, "_matrix", lambda right: lambda *given: right(*given)[:, :, ::-1]),
}

FORMS = {
    "bytes with zero points": (
        17,
        """(int8[2,4] x, uint8[4,3] w) => (int32[2,3] y) <int8 a = {5}, uint8 b = {128}>
        { y = MatMulInteger (x, w, a, b) }""",
    ),
    "bytes in and out": (
        17,
        """(uint8[1,1,5,5] x) => (uint8[1,1,5,5] y)
        <float s = {0.1}, float t = {7.391}, uint8 z = {0}, uint8[1,1,3,3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}>
        { y = QLinearConv <pads = [1, 1, 1, 1]> (x, s, z, w, s, z, t, z) }""",
    ),
    "scales of kernels and a bias at run time": (
        17,
        """(uint8[1,2,5,5] x, float s, uint8 z, float[3] t, int32[3] b) => (uint8[1,3,4,4] y)
        <int8[3,2,2,2] w = {1, -2, 3, 4, -5, 6, 7, 8, 9, 1, 2, -3, 4, 5, 6, -7, 1, 2, 3, 4, 5, 6, 7, 8},
         int8[3] p = {0, 1, 2}> { y = QLinearConv (x, s, z, w, t, p, s, z, b) }""",
    ),
    "a norm in halves": (19, "(float16[2,4,3,3] x) => (float16[2,4,3,3] y) { y = MeanVarianceNormalization (x) }"),
    "moments of a sum in halves": (
        19,
        """(float16[2,2,4] x, float16[2,4] s, float16[4] g)
        => (float16[2,2,4] y, float[2,2,1] m, float[2,2,1] d, float16[2,2,4] t)
        { y, m, d, t = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (x, s, g) }""",
    ),
    "keys of before": (
        19,
        """(float[1,2,4] q, float[1,2,4] k, float[1,2,4] v, float[12] b, float[1,2,3,2] pk, float[1,2,3,2] pv)
        => (float[1,2,4] y, float[1,2,5,2] nk, float[1,2,5,2] nv)
        { y, nk, nv = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, b, , , pk, pv) }""",
    ),
    "steps of a slice that are short integers": (
        17,
        """(float[6,2] x) => (float[2,2] y) <int32[1] a = {1}, int32[1] axis = {0}, int64[1] first = {0}> {
          s = Shape (x)  n = Gather (s, first)  end = Cast <to = 6> (n)  step = Sub (end, a)  half = Div (end, step)
          two = Add (half, a)  even = Add (two, a)  y = Slice (x, a, end, axis, even)
        }""",
    ),
    "a loop that its condition ends": (
        17,
        """(float[4,2] x) => (float[2] y, float[4,2] z) <bool go = {1}, int32 none = {0}, float[2] h = {0, 0}> {
          n, y, z = Loop <body = b (int64 i, bool c, int32 p, float[2] s) => (bool d, int32 q, float[2] t, float[2] u)
            <int32 one = {1}, int32 four = {4}>
            { r = Gather (x, p)  t = Add (r, s)  u = Identity (t)  q = Add (p, one)  d = Less (q, four) }>
            (, go, none, h)
        }""",
    ),
    "a loop whose sizes grow": (
        17,
        """(float[4,2] x) => (float[2] y) <int64 most = {4}, bool go = {1}, float[2] h = {0, 0}, int64[1] none = {0},
        int64[1] one = {1}> {
          y = Loop <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            d = Identity (c)  k = Unsqueeze (i, none)  e = Add (k, one)  r = Slice (x, none, e, none)
            m = ReduceMean <axes = [0], keepdims = 0> (r)  t = Add (s, m) }> (most, go, h)
        }""",
    ),
    "a number of the iteration as a list": (
        17,
        """(float[4,2] x) => (float[2,1,2] y) <int64 most = {2}, bool go = {1}> {
          y = Loop <body = b (int64[1] i, bool c) => (bool d, float[1,2] t) { d = Identity (c)  t = Gather (x, i) }>
            (most, go)
        }""",
    ),
    "weights of few bits at run time": (
        19,
        """(float[2,16] x, uint8[4,1,8] w, float[4] s, uint8[4] z) => (float[2,4] y)
        { y = com.microsoft.MatMulNBits <K = 16, N = 4, bits = 4, block_size = 16> (x, w, s, z) }""",
    ),
    "scales of batches and columns": (
        17,
        """(uint8[2,3,4] x, uint8[2,4,5] w, float s, uint8 z, float[2,1,5] t, uint8[2,1,5] p) => (uint8[2,3,5] y)
        { y = QLinearMatMul (x, s, z, w, t, p, s, z) }""",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_that_are_written_are_built_and_proven(name: str, tmp_path: Path) -> None:
    opset, text = FORMS[name]
    opsets = f'"": {opset}, "com.microsoft": 1'
    path = tmp_path / "model.onnx"
    onnx.save(parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]> g {text}"), path)
    report = trtconv.check(trtconv.CheckRequest(model=path))
    assert not [
        finding for finding in report.findings if finding.severity is not Severity.INFO and not finding.mended_by
    ]
    assert report.proof is not None and report.proof.agrees and not report.proof.missing


def report_of(folder: Path, name: str) -> Any:
    opset, text = MODELS[name]
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}'), path)
    return trtconv.check(trtconv.CheckRequest(model=path))


@pytest.mark.parametrize("name", MODELS)
def test_a_spelling_is_proven(name: str, tmp_path: Path) -> None:
    report = report_of(tmp_path, name)
    assert report.proof is not None
    assert report.proof.agrees is True


@pytest.mark.parametrize("name", MODELS)
def test_a_broken_spelling_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, broken = BROKEN[name]
    monkeypatch.setattr(place, attribute, broken(getattr(place, attribute)))
    report = report_of(tmp_path, name)
    assert "TC402" in {finding.code for finding in report.findings}


def _example(each: Spelling) -> onnx.ModelProto | None:
    """Returns the model on the page of a pass that it rewrites for TensorRT-RTX; None: it does for another target."""
    page = dict(sections(each.page))
    return parser.parse_model(page["Before"]) if "Before" in page else None


SPELLINGS = [each for each in PASSES if isinstance(each, Spelling) and _example(each) is not None]


def _break(spelling: type[Spelling], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes a pass write one operation too many behind all that it makes; returns what it wrote."""
    right, wrote = spelling.write, []

    def write(self: Spelling, writer: Writer, target: Target) -> str | None:
        said = right(self, writer, target)
        for slot, name in enumerate(writer.node.output):
            made = next((n for n in writer.nodes if name and name in n.output), None)
            if made is None:
                continue
            made.output[list(made.output).index(name)] = f"{name}.right"
            kind = writer.scope.dtype(name) or "float32"
            if kind == "bool":
                writer("Not", f"{name}.right", to=name)
            elif kind in ("int8", "uint8"):
                # TensorRT adds no bytes.
                wide = writer("Add", writer.cast(f"{name}.right", np.int32), np.array(1, np.int32))
                writer.cast(wide, kind, to=name)
                if self.name == "compute-wider":
                    # It would write its own cast once more.
                    writer.mark_held()
            else:
                number = np.array(1 + slot, "float32" if kind not in np.sctypeDict else kind)
                writer("Add", f"{name}.right", number, to=name)
            wrote.append(name)
        return said

    monkeypatch.setattr(spelling, "write", write)
    return wrote


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda each: each.name)
def test_the_example_of_every_spelling_is_proven_and_caught_when_it_is_broken(
    spelling: Spelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = _example(spelling)
    assert example is not None
    onnx.save(example, tmp_path / "model.onnx")
    names = {dim.dim_param for value in example.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
    dims = {name: trtconv.Range(*[1 if name == "one" else 4] * 3) for name in names}
    request = trtconv.CheckRequest(model=tmp_path / "model.onnx", dims=dims)
    proof = trtconv.check(request).proof
    assert proof is not None and proof.agrees
    wrote = _break(type(spelling), monkeypatch)
    broken = trtconv.check(request)
    assert wrote and broken.proof is not None and broken.proof.agrees is False
    assert "TC402" in {finding.code for finding in broken.findings}, broken.findings
