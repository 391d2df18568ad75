"""Baked sizes are found and repaired: equal at the traced size, and the right function at others."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from support.paths import MODELS
from support.session import Array, run
from support.sizes import HEADER, parse, save
from trtconv.cli.formats.text import rewrite_text
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.requests.rewrite import RewriteRequest
from trtconv.core.target import Target
from trtconv.exporter.inputs import parse_inputs
from trtconv.graph.model import OnnxModel
from trtconv.passes import run_passes
from trtconv.passes.restore_sizes import RestorePixelShuffle, RestoreReshapeTarget, RestoreResizeScales
from trtconv.pipeline.profiles import settle
from trtconv.pipeline.rewriting import rewrite
from trtconv.rules import run_rules
from trtconv.shapes.traced.repairs import words
from trtconv.shapes.traced.search import Baked

RTX = Target("rtx", (1, 7))
PASSES = (RestorePixelShuffle(), RestoreReshapeTarget(), RestoreResizeScales())


def _run(model: OnnxModel, shape: tuple[int, ...]) -> Array:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return run(model.proto, {"x": x}, sized=False)[0]


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
        """g (float[n,18,h,w] x) => (float[n,2,a,b] y) <int64[6] s = {-1,3,3,2,8,12}, int64[4] t = {-1,2,24,36}> {
            r = Reshape (x, s) q = Transpose <perm = [0,3,4,1,5,2]> (r) y = Reshape (q, t) }""",
        "g (float[n,18,h,w] x) => (float[n,2,a,b] y) { y = DepthToSpace <blocksize = 3> (x) }",
        (2, 18, 8, 12),
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
    "tokens of patches in landscape": (
        """g (float[n,3,h,w] x) => (float[n,3,c] y) <int64[3] s = {1,3,384}> {
            p = MaxPool <kernel_shape = [4,4], strides = [4,4]> (x) y = Reshape (p, s) }""",
        """g (float[n,3,h,w] x) => (float[n,3,c] y) <int64[3] s = {0,0,-1}> {
            p = MaxPool <kernel_shape = [4,4], strides = [4,4]> (x) y = Reshape (p, s) }""",
        (1, 3, 64, 96),
        "restore-reshape-target",
    ),
    "beside a Resize by scales": (
        """g (float[n,4,h,w] x) => (float[n,4,c] y) <float[4] k = {1, 1, 2, 2}, int64[3] s = {1,4,1536}> {
            r = Resize <mode = "nearest"> (x, , k) y = Reshape (r, s) }""",
        """g (float[n,4,h,w] x) => (float[n,4,c] y) <float[4] k = {1, 1, 2, 2}, int64[3] s = {0,0,-1}> {
            r = Resize <mode = "nearest"> (x, , k) y = Reshape (r, s) }""",
        (1, 4, 16, 24),
        "restore-reshape-target",
    ),
    "a batch of two": (
        "g (float[n,4,6] x) => (float[n,24] y) <int64[2] s = {2,24}> { y = Reshape (x, s) }",
        "g (float[n,4,6] x) => (float[n,24] y) <int64[2] s = {0,-1}> { y = Reshape (x, s) }",
        (2, 4, 6),
        "restore-reshape-target",
    ),
    "a batch of three, and ones at the end": (
        """g (float[n,5,h,w] x) => (float[n,5,a,b] y) <int64[2] s = {3,5}, int64[4] t = {3,5,1,1}> {
            m = ReduceMean <axes = [2,3], keepdims = 0> (x) r = Reshape (m, s) q = Relu (r) y = Reshape (q, t) }""",
        """g (float[n,5,h,w] x) => (float[n,5,a,b] y) { m = ReduceMean <axes = [2,3]> (x) y = Relu (m) }""",
        (3, 5, 8, 8),
        "restore-reshape-target",
    ),
    "a shuffle of channels in portrait": (
        """g (float[n,6,h,w] x) => (float[n,6,a,b] y) <int64[5] s = {1,3,2,16,12}, int64[4] t = {1,6,16,12}> {
            r = Reshape (x, s) q = Transpose <perm = [0,2,1,3,4]> (r) y = Reshape (q, t) }""",
        """g (float[n,6,h,w] x) => (float[n,6,a,b] y) <int64[6] i = {0,2,4,1,3,5}> { y = Gather <axis = 1> (x, i) }""",
        (1, 6, 16, 12),
        "restore-reshape-target",
    ),
    # As torch.nn.MultiheadAttention is traced: tokens first, their number a constant beside a batch that is read.
    "tokens of an attention": (
        """g (float[n,6,h,w] x) => (float[n,l,6] y)
            <int64[3] f = {0,6,-1}, int64 one = {1}, int64 heads = {2}, int64[1] zero = {0}, int64[1] tokens = {384},
             int64[1] deep = {3}, int64[3] back = {0,-1,6}> {
            a = Reshape (x, f) t = Transpose <perm = [2,0,1]> (a)
            s = Shape (t) b = Gather (s, one) c = Mul (b, heads) d = Unsqueeze (c, zero)
            k = Concat <axis = 0> (tokens, d, deep) r = Reshape (t, k)
            q = Transpose <perm = [1,0,2]> (r) m = Softmax <axis = 1> (q)
            u = Transpose <perm = [1,0,2]> (m) v = Reshape (u, back) y = Transpose <perm = [1,0,2]> (v) }""",
        """g (float[n,6,h,w] x) => (float[n,l,6] y)
            <int64[3] f = {0,6,-1}, int64[4] k = {0,0,2,3}, int64[3] back = {0,0,-1}> {
            a = Reshape (x, f) t = Transpose <perm = [2,0,1]> (a) r = Reshape (t, k)
            m = Softmax <axis = 0> (r) v = Reshape (m, back) y = Transpose <perm = [1,0,2]> (v) }""",
        (1, 6, 16, 24),
        "restore-reshape-target",
    ),
    "rows in portrait": (
        """g (float[n,h,w,3] x) => (float[n,a,b,3] y) <int64[3] s = {16,12,3}, int64[4] t = {1,16,12,3}> {
            r = Reshape (x, s) q = Softmax <axis = 1> (r) y = Reshape (q, t) }""",
        "g (float[n,h,w,3] x) => (float[n,a,b,3] y) { y = Softmax <axis = 2> (x) }",
        (1, 16, 12, 3),
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
    dynamic_axes = {axis for axis, dim in enumerate(original.inputs[0].dims) if isinstance(dim, str)}
    for batch, factor in ((1, 2), (2, 1), (3, 3), (2, 2)):
        other = (batch, *(n * factor if axis in dynamic_axes else n for axis, n in enumerate(shape) if axis))
        np.testing.assert_array_equal(_run(model, other), _run(dynamic, other))


UNTOLD = ("depth to space", "beside a Resize by scales", "a batch of three, and ones at the end")
"""Those whose constants fit other sizes first, or any."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in UNTOLD])
def test_the_sizes_at_which_a_model_was_traced_are_among_the_examples(name: str) -> None:
    text, _, shape, _ = CASES[name]
    model = parse(text)
    (spec,) = model.inputs
    point = {dim: size for dim, size in zip(spec.dims, shape, strict=True) if isinstance(dim, str)}
    assert point in [dict(example.point) for example in Baked(model).examples()]


@pytest.mark.parametrize("stride", [1, 2, 8, 16, 32])
def test_grids_of_usual_strides_are_examples(stride: int) -> None:
    text = f"""g (float[n,3,h,w] x) => (float[n,3,c] y) <int64[3] s = {{1,3,385}}> {{
        p = MaxPool <kernel_shape = [{stride},{stride}], strides = [{stride},{stride}]> (x) y = Reshape (p, s) }}"""
    points = [dict(example.point) for example in Baked(parse(text)).examples()]
    assert {"n": 1, "h": 11 * stride, "w": 35 * stride} in points


@pytest.mark.parametrize("batch", [1, 2, 4, 8])
def test_usual_batches_are_examples(batch: int) -> None:
    model = parse(f"g (float[n,4,6] x) => (float[m] y) <int64[1] s = {{{24 * batch}}}> {{ y = Reshape (x, s) }}")
    assert {"n": batch} in [dict(example.point) for example in Baked(model).examples()]


def test_sizes_that_the_file_states_tell_examples_apart() -> None:
    text = DOUBTFUL["two ways to split"][0].replace("(float[a,b,c] y)", "(float[a,b,c] y, float[1,4,4,64] z)")
    baked = Baked(parse(text.replace("y = Reshape", "z = Relu (x) y = Reshape")))
    assert [dict(example.point) for example in baked.examples()] == [{"n": 1, "h": 4, "w": 64}]
    assert not baked.refusals()


def test_what_a_target_becomes_is_told_in_words() -> None:
    assert words([0, None, ("x", 2), -1]) == "[0, computed, size of x at axis 2, -1]"


def test_a_model_that_takes_all_larger_sizes_has_none_baked_in() -> None:
    """A crop beside an image that is brought to its size: both constants are meant so."""
    model = parse(
        """g (float[n,1,h] x) => (float[n,1,640] y) <int64[1] from = {0}, int64[1] to = {640}, int64[1] axis = {2},
        int64[3] s = {1,1,640}> {
        c = Slice (x, from, to, axis)  r = Resize <mode = "nearest"> (x, , , s)  y = Add (c, r) }"""
    )
    assert Baked(model).accepted([{"n": 1, "h": size} for size in (320, 640, 641, 1280)]) == [
        {"n": 1, "h": size} for size in (640, 641, 1280)
    ]
    assert Baked(model).examples() == [] and not run_passes(model, PASSES, RTX).edits


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


@pytest.mark.parametrize(("policy", "edits"), [("stretch", 1), ("not_larger", 0), ("not_smaller", 0)])
def test_a_resize_that_keeps_the_proportions_stays(policy: str, edits: int) -> None:
    text = CASES["resize"][0].replace('"linear"', f'"linear", keep_aspect_ratio_policy = "{policy}"')
    done = run_passes(parse(text, HEADER.replace("17", "18")), (PASSES[2],), RTX)
    assert len(done.edits) == edits


def test_a_target_in_which_zero_is_a_size_stays() -> None:
    text = CASES["batch"][0].replace("Reshape (x", "Reshape <allowzero = 1> (x")
    assert not run_passes(parse(text), PASSES, RTX).edits


def test_a_target_that_is_read_but_for_its_channels_stays() -> None:
    """Beside one that is baked: a batch of 1 at the example must not have the channels taken for a size."""
    text = """
        g (float[n,h,8] x) => (float[a,8] y, float[b,c] z) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] c = {8},
            int64[2] s = {1,96}> {
            d = Shape (x) p = Gather (d, zero) q = Gather (d, one) r = Mul (p, q) t = Concat <axis = 0> (r, c)
            y = Reshape (x, t) z = Reshape (x, s) }"""
    model = parse(text)
    (edit,) = run_passes(model, PASSES, RTX).edits
    assert "[1, 96] is now [0, -1]" in edit.what


# name: a model of whose sizes it cannot be told what they are, the node that says so, and what is said of it
DOUBTFUL = {
    "a size beside -1 at the end": (
        """g (float[n,3,h,w] x) => (float[1,3,32,16] y) <int64[4] s = {1,3,-1,16}, int64[4] t = {1,3,32,16}> {
            r = Reshape (x, s) q = Softmax <axis = 3> (r) y = Reshape (q, t) }""",
        "Reshape",
        "beside -1, 16 may as well be a constant of the network",
    ),
    "a size beside -1 in the middle": (
        """g (float[n,3,h,w] x) => (float[1,3,16,24] y) <int64[4] s = {1,3,16,-1}, int64[4] t = {1,3,16,24}> {
            r = Reshape (x, s) q = Softmax <axis = 3> (r) y = Reshape (q, t) }""",
        "Reshape",
        "beside -1, 16 may as well be a constant of the network",
    ),
    "a batch that -1 would take up": (
        """g (float[n,6,h,4] x) => (float[a,b,8] y, float[1,6,c] z) <int64[3] s = {1,-1,8}, int64[3] t = {1,6,64}> {
            y = Reshape (x, s) z = Reshape (x, t) }""",
        "Reshape",
        "at another batch than 1, -1 would take it up",
    ),
    "two ways to split": (
        "g (float[n,h,4,w] x) => (float[a,b,c] y) <int64[3] s = {1,16,64}> { y = Reshape (x, s) }",
        "Reshape",
        "has constants that fit an example of n 1, h 16, w 16 as well as n 1, h 4, w 64",
    ),
    "a constant of the example's size": (
        """g (float[n,1,h,w] x) => (float[a,b,c] y) <int64[3] s = {1,1,64}, int64[3] e = {1,2,64}> {
            p = Reshape (x, s) k = ConstantOfShape (e) y = Concat <axis = 1> (p, k) }""",
        "Concat",
        "joins sizes 2 and 1 at axis 0",
    ),
    "a result that does not grow with the batch": (
        """g (float[n,4,h,16] x) => (float[a,b,c,d] y, float[e,f,g,i] z) <int64[4] s = {1,4,16,16}> {
            y = Reshape (x, s) z = ReduceMean <axes = [0]> (x) }""",
        "ReduceMean",
        "returns [1, 4, 16, 16] for twice the batch",
    ),
    "a result that grows elsewhere with the batch": (
        """g (float[n,4,h,16] x) => (float[a,b,c,d] y) <int64[4] s = {1,4,16,16}> {
            r = Reshape (x, s) y = Transpose <perm = [1,0,2,3]> (r) }""",
        "Transpose",
        "returns [4, 2, 16, 16] for twice the batch",
    ),
    "a Resize of a known batch": (
        """g (float[n,2,h,w] x) => (float[a,b,c,d] y) <int64[4] s = {1,2,8,8}, int64[4] t = {1,2,1,1}> {
            r = Resize <mode = "nearest"> (x, , , s) m = ReduceMean <axes = [2,3], keepdims = 0> (x)
            p = Reshape (m, t) y = Add (r, p) }""",
        "Resize",
        "may be meant so",
    ),
    "a Resize of an input with sizes of its own": (
        """g (float[n,1,h,w] x, float[n,1,p,q] z) => (float[a,b,c,d] y) <int64[4] s = {1,1,32,32}> {
            r = Resize <mode = "nearest"> (z, , , s) y = Add (r, x) }""",
        "Resize",
        "may be meant so",
    ),
    "a Resize that may be meant so": (
        """g (float[n,2,h,w] x) => (float[a,b,c,d] y)
            <int64[3] s = {1,2,1024}, int64[4] t = {1,2,32,32}, int64[4] u = {1,2,64,64}> {
            f = Reshape (x, s) q = Softmax <axis = 2> (f) r = Reshape (q, t)
            y = Resize <mode = "nearest"> (r, , , u) }""",
        "Resize",
        "may be meant so",
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_cannot_be_told_is_named_and_stays(name: str) -> None:
    text, op, said = DOUBTFUL[name]
    done = run_passes(parse(text), PASSES, RTX)
    assert done.edits == ()
    (refusal,) = Baked(parse(text)).refusals()
    assert refusal.node.op == op
    assert said in refusal.why
    assert [skip.reason for skip in done.skipped] == [refusal.why]
    (finding,) = run_rules(parse(text), RTX)
    assert finding.code == ("TC212" if op == "Resize" else "TC213")
    assert refusal.node.label in finding.message and refusal.why in finding.message


def test_of_several_resizes_the_first_is_named() -> None:
    text, _, _ = DOUBTFUL["a Resize of a known batch"]
    (refusal,) = Baked(parse(text.replace("y = Add (r", "q = Resize (r, , , s) y = Add (q"))).refusals()
    assert refusal.node.outputs == ("r",)


def test_what_cannot_be_freed_is_exported_again_by_the_command_that_is_printed() -> None:
    text, _, _ = DOUBTFUL["a constant of the example's size"]
    model = parse(text)
    bounds = {"n": Range(1, 1, 2), "h": Range(8, 8, 16), "w": Range(8, 8, 16)}
    place, *_ = settle(model, [make_profile(model.inputs, bounds)]).findings
    (rule,) = run_rules(model, RTX)
    for finding, (low, opt, high) in ((place, (8, 8, 16)), (rule, (4, 8, 16))):
        assert "--round" not in finding.fix
        command = shlex.split(finding.fix[finding.fix.index("trtconv export") :])
        (declared,) = parse_inputs([command[command.index("--input") + 1]])
        assert declared.name == "x"
        assert declared.shape == (1, 1, opt, opt)
        assert declared.bounds["h"] == Range(low, opt, high)


def test_a_shuffle_of_what_is_not_known_is_none() -> None:
    text, _, _, _ = CASES["pixel shuffle"]
    text = text.replace("r = Reshape (x, s)", "v = my.Strange (x) r = Reshape (v, s)")
    model = parse(text, HEADER.replace("17", '17, "my": 1'))
    assert Baked(model).shuffles() == []


def test_shuffles_behind_shuffles_are_found_at_once() -> None:
    text = """g (float[n,3,h,w] x) => (float[n,3,c,d] y)
        <int64[6] s = {1,3,8,2,12,2}, int64[4] t = {1,12,8,12}, int64[6] u = {1,3,2,2,8,12}, int64[4] v = {1,3,16,24}> {
        a = Reshape (x, s) b = Transpose <perm = [0,1,3,5,2,4]> (a) m = Reshape (b, t) k = Relu (m)
        p = Reshape (k, u) q = Transpose <perm = [0,1,4,2,5,3]> (p) y = Reshape (q, v) }"""
    baked = Baked(parse(text))
    assert [shuffle.op for shuffle in baked.shuffles()] == ["SpaceToDepth", "DepthToSpace"]
    assert baked.refusals() == []
    assert [dict(each.point) for each in baked.examples()] == [{"n": 1, "h": 16, "w": 24}]


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_rewrite_compares_where_the_model_was_traced(tmp_path: Path, batch: int) -> None:
    """Other sizes with as many elements run as well, and are scrambled by the original."""
    text, _, _, _ = CASES["pixel shuffle"]
    save(text.replace("{1,2", f"{{{batch},2"), tmp_path / "m.onnx")
    request = RewriteRequest(model=tmp_path / "m.onnx", output=tmp_path / "o.onnx", target=RTX)
    report = rewrite(request)
    assert (report.exit_code, report.verified.max_relative_error) == (0, 0.0)
    assert report.verified.inputs == {"x": (batch, 8, 16, 24)}
    assert len(report.verified.alone) == 7
    assert "baked into the original; the rewritten model also runs at 7 other sizes" in rewrite_text(report)


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


@pytest.mark.parametrize(
    ("name", "opset", "mode"),
    [
        ("pixel shuffle", 10, None),
        ("pixel shuffle", 11, b"CRD"),
        ("depth to space", 10, b""),
        ("depth to space", 11, b"DCR"),
    ],
)
def test_a_shuffle_is_written_as_its_opset_has_it(name: str, opset: int, mode: bytes | None) -> None:
    model = parse(CASES[name][0], f'<ir_version: 6, opset_import: ["": {opset}]>')
    run_passes(model, [each for each in PASSES if each.name == "restore-pixel-shuffle"], RTX)
    made = [node for node in model.proto.graph.node if node.op_type == "DepthToSpace"]
    modes = [next((each.s for each in node.attribute if each.name == "mode"), b"") for node in made]
    assert modes == ([] if mode is None else [mode])


def test_sizes_are_cheap_where_no_tensor_has_gigabytes() -> None:
    text = "g (float[h,4] x) => (float[a,b] y) { t = Transpose <perm = [1,0]> (x) y = MatMul (x, t) }"
    baked = Baked(parse(text))
    points = [{"h": size} for size in (0, 1, 8192, 8193)]
    assert baked.cheap(points) == [{"h": 1}, {"h": 8192}]
    assert Baked(parse(text.replace("[h,4]", "[h,8]").replace("(x, t)", "(x, x)"))).cheap(points) == []
    only = Baked(parse(text.replace("[h,4]", "[h,8]").replace("(x, t)", "(x, x)")))
    assert only.accepted([{"h": 7}, {"h": 8}]) == only.cheap([{"h": 7}, {"h": 8}]) == [{"h": 8}]


@pytest.mark.parametrize("opset", [5, 7, 13])
def test_targets_are_restored_from_the_opset_on_that_has_them_as_an_input(opset: int) -> None:
    model = parse(CASES["batch"][0], HEADER.replace("17", str(opset)))
    assert len(run_passes(model, (RestoreReshapeTarget(),), RTX).edits) == 1


@pytest.mark.parametrize("first", [-1, 0, 1])
@pytest.mark.parametrize("last", [-1, 0, 1])
def test_the_two_targets_of_a_shuffle_may_spell_the_batch_differently(first: int, last: int) -> None:
    text = CASES["depth to space"][0].replace("{-1,3,", f"{{{first},3,").replace("{-1,2,", f"{{{last},2,")
    model = parse(text)
    (edit,) = run_passes(model, PASSES, RTX).edits
    assert edit.pass_name == "restore-pixel-shuffle"


@pytest.mark.parametrize(("last", "found"), [("-1,2,24,36", 1), ("1,2,24,36", 1), ("1,-1,24,36", 1), ("1,2,48,18", 0)])
def test_the_last_target_of_a_shuffle_has_its_sizes(last: str, found: int) -> None:
    text = CASES["depth to space"][0].replace("{-1,2,24,36}", f"{{{last}}}")
    assert len(Baked(parse(text)).shuffles()) == found


@pytest.mark.parametrize(("height", "found"), [(1, 1), (2, 1), (-1, 0)])
def test_a_shuffle_has_sizes(height: int, found: int) -> None:
    text = CASES["pixel shuffle"][0].replace("16,24}", f"{height},24}}").replace("32,48}", f"{2 * height},48}}")
    assert len(Baked(parse(text)).shuffles()) == found


def test_a_resize_is_meant_so_where_only_a_batch_beside_it_is_fixed() -> None:
    text = """g (float[n,4,6] x, float[1,1,h,w] z) => (float[n,24] y) <int64[2] s = {1,24}, int64[4] t = {1,1,32,32}> {
        r = Reshape (x, s)  v = Resize <mode = "linear"> (z, , , t)
        m = ReduceMean <keepdims = 0> (v)  y = Add (r, m) }"""
    baked = Baked(parse(text))
    assert not baked.refusals()
    assert [target.new for target in baked.targets()] == [(0, 24)]
    assert [edit.pass_name for edit in run_passes(parse(text), PASSES, RTX).edits] == ["restore-reshape-target"]
