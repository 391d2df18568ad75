"""Baked sizes are found and repaired: equal at the traced size, and the right function at others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.sizecases import HEADER, MODELS, parse
from trtconv.baked import Baked
from trtconv.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.restore_sizes import RestorePixelShuffle, RestoreReshapeTarget, RestoreResizeScales
from trtconv.plan import Target

onnxruntime = pytest.importorskip("onnxruntime")
RTX = Target("rtx", (1, 7))
PASSES = (RestorePixelShuffle(), RestoreReshapeTarget(), RestoreResizeScales())


def _run(model: OnnxModel, shape: tuple[int, ...]) -> np.ndarray:
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result: np.ndarray = session.run(None, {"x": x})[0]
    return result


# name: the baked model, the same with dynamic sizes, the traced shape, what repairs it
CASES = {
    "pixel shuffle": (
        """g (float[n,8,h,w] x) => (float[n,2,a,b] y) <int64[6] s = {1,2,2,2,16,24}, int64[4] t = {1,2,32,48}> {
            r = Reshape (x, s) q = Transpose <perm = [0,1,4,2,5,3]> (r) y = Reshape (q, t) }""",
        'g (float[n,8,h,w] x) => (float[n,2,a,b] y) { y = DepthToSpace <blocksize = 2, mode = "CRD"> (x) }',
        (1, 8, 16, 24),
        "restore-pixel-shuffle",
    ),
    "depth to space": (
        """g (float[n,18,h,w] x) => (float[n,2,a,b] y) <int64[6] s = {-1,3,3,2,8,8}, int64[4] t = {-1,2,24,24}> {
            r = Reshape (x, s) q = Transpose <perm = [0,3,4,1,5,2]> (r) y = Reshape (q, t) }""",
        "g (float[n,18,h,w] x) => (float[n,2,a,b] y) { y = DepthToSpace <blocksize = 3> (x) }",
        (2, 18, 8, 8),
        "restore-pixel-shuffle",
    ),
    "space to depth": (
        """g (float[n,3,h,w] x) => (float[n,12,a,b] y) <int64[6] s = {1,3,8,2,12,2}, int64[4] t = {1,12,8,12}> {
            r = Reshape (x, s) q = Transpose <perm = [0,3,5,1,2,4]> (r) y = Reshape (q, t) }""",
        "g (float[n,3,h,w] x) => (float[n,12,a,b] y) { y = SpaceToDepth <blocksize = 2> (x) }",
        (1, 3, 16, 24),
        "restore-pixel-shuffle",
    ),
    "pixel unshuffle": (
        """g (float[n,3,h,w] x) => (float[n,12,a,b] y) <int64[6] s = {1,3,8,2,12,2}, int64[4] t = {1,12,8,12}> {
            r = Reshape (x, s) q = Transpose <perm = [0,1,3,5,2,4]> (r) y = Reshape (q, t) }""",
        """g (float[n,3,h,w] x) => (float[n,12,a,b] y) <int64[12] i = {0,3,6,9,1,4,7,10,2,5,8,11}> {
            r = SpaceToDepth <blocksize = 2> (x) y = Gather <axis = 1> (r, i) }""",
        (1, 3, 16, 24),
        "restore-pixel-shuffle",
    ),
    "resize": (
        """g (float[n,2,h,w] x) => (float[n,2,a,b] y) <int64[4] s = {1,2,32,48}> {
            m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            r = Resize <mode = "linear"> (m, , , s) y = Add (r, x) }""",
        """g (float[n,2,h,w] x) => (float[n,2,a,b] y) <float[4] s = {1.0,1.0,2.0,2.0}> {
            m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x)
            r = Resize <mode = "linear"> (m, , s) y = Add (r, x) }""",
        (1, 2, 32, 48),
        "restore-resize-scales",
    ),
    "batch": (
        "g (float[n,4,6] x) => (float[n,24] y) <int64[2] s = {1,24}> { y = Reshape (x, s) }",
        "g (float[n,4,6] x) => (float[n,24] y) <int64[2] s = {0,-1}> { y = Reshape (x, s) }",
        (1, 4, 6),
        "restore-reshape-target",
    ),
    "flatten and back": (
        """g (float[n,4,h,w] x) => (float[n,4,a,b] y)
            <int64[3] s = {1,4,384}, int64[4] t = {1,4,16,24}> {
            f = Reshape (x, s) m = Softmax <axis = 2> (f) r = Reshape (m, t) y = Add (r, x) }""",
        """g (float[n,4,h,w] x) => (float[n,4,a,b] y) <int64[3] s = {0,0,-1}> {
            f = Reshape (x, s) m = Softmax <axis = 2> (f) t = Shape (x) r = Reshape (m, t) y = Add (r, x) }""",
        (1, 4, 16, 24),
        "restore-reshape-target",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_repairs(name: str) -> None:
    text, wanted, shape, expected = CASES[name]
    model, original, dynamic = parse(text), parse(text), parse(wanted)
    done = run_passes(model, PASSES, RTX)
    assert {edit.pass_name for edit in done.edits} == {expected}
    np.testing.assert_array_equal(_run(model, shape), _run(original, shape))
    spatial = shape[2:] if len(shape) == 4 else ()
    for batch, factor in ((1, 2), (2, 1), (3, 3), (2, 2)):
        other = (batch, shape[1], *(n * factor for n in spatial)) if spatial else (batch, *shape[1:])
        np.testing.assert_array_equal(_run(model, other), _run(dynamic, other))


KEPT_ALONE = {
    "a Resize to the size that a network works at": """
        g (float[n,1,h,w] x) => (float[n,1,a,b] y) <int64[4] s = {1,1,32,32}, float[1,1,32,32] p> {
            r = Resize <mode = "linear"> (x, , , s) y = Relu (r) }""",
    "a Reshape of static sizes": """
        g (float[n,4,h] x, float[2,6] z) => (float[a,b] y) <int64[2] s = {4,3}> { y = Reshape (z, s) }""",
    "a Reshape that takes any batch": """
        g (float[n,4,6] x) => (float[a,b] y) <int64[2] s = {-1,24}> { y = Reshape (x, s) }""",
    "another transposition": """
        g (float[n,8,h,w] x) => (float[a,b,c,d] y) <int64[6] s = {1,2,2,2,16,16}, int64[4] t = {1,2,32,32}> {
            r = Reshape (x, s) q = Transpose <perm = [0,1,5,2,4,3]> (r) y = Reshape (q, t) }""",
    "channels that do not divide so": """
        g (float[n,8,h,w] x) => (float[a,b,c,d] y) <int64[6] s = {1,1,2,2,32,16}, int64[4] t = {1,1,64,32}> {
            r = Reshape (x, s) q = Transpose <perm = [0,1,4,2,5,3]> (r) y = Reshape (q, t) }""",
}


@pytest.mark.parametrize("name", KEPT_ALONE)
def test_what_is_no_pixel_shuffle_or_not_baked_stays(name: str) -> None:
    text = KEPT_ALONE[name].replace(", float[1,1,32,32] p", "")
    assert run_passes(parse(text), (PASSES[0], PASSES[2]), RTX).edits == ()


def test_a_long_chain_is_repaired_to_its_end() -> None:
    """Each repair lays open the next: more of them than any fixed number of rounds."""
    count = 140
    nodes = [f"r{i} = Reshape (q{i}, s) q{i + 1} = Relu (r{i})" for i in range(count)]
    text = f"g (float[n,4,h,16] q0) => (float[a,b,c,d] q{count}) <int64[4] s = {{1,4,16,16}}> {{ {' '.join(nodes)} }}"
    assert len(run_passes(parse(text), PASSES, RTX).edits) == count


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_kept_models_have_nothing_baked(path: Path) -> None:
    baked = Baked(OnnxModel.load(path))
    assert (baked.shuffles(), baked.scalings(), baked.targets()) == ([], [], [])


def test_the_pytorch_line_is_named() -> None:
    text, _, _, _ = CASES["resize"]
    model = parse(text, HEADER)
    trace = 'File "/home/me/net.py", line 7, in forward\n    y = up(x)\nFile "/home/me/unet.py", line 47, in forward'
    model.proto.graph.node[1].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)
    done = run_passes(model, PASSES, RTX)
    assert done.edits[0].what.endswith("(unet.py:47)")
