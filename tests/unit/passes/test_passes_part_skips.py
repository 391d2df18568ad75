"""Skips that share the scale of the Concat that takes them, which TensorRT 8.6 misreads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from support.onnx_models import RTX, TENSORRT_8, parse, wrap
from support.session import run
from trtconv.core.target import Target
from trtconv.passes import run_passes
from trtconv.passes.part_skips import PartSkipScales
from trtconv.rules import run_rules

SCALE = 0.05
HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[1,2,8,8] x) => '
NET = f"""{HEAD} (float[1,2,4,4] p, float[1,4,8,8] y) <float s = {{{SCALE}}}, float other = {{OTHER}}, int8 z = {{0}}>
{{ r = Relu (x)
   [q] a = QuantizeLinear (r, s, z)  [d] b = DequantizeLinear (a, s, z)
   m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b)
   [qm] e = QuantizeLinear (m, s, z)  [dm] p = DequantizeLinear (e, s, z)
   n = Neg (READER)
   [qn] f = QuantizeLinear (n, s, z)  [dn] h = DequantizeLinear (f, s, z)
   [join] c = Concat <axis = 1> (h, b)
   [qc] k = QuantizeLinear (c, other, z)  [dc] y = DequantizeLinear (k, other, z) }}"""


def net(other: float = SCALE, reader: str = "b") -> str:
    return NET.replace("OTHER", str(other)).replace("READER", reader)


ALONE = f"""{HEAD} (float[1,4,8,8] y) <float s = {{{SCALE}}}, int8 z = {{0}}>
{{ a = QuantizeLinear (x, s, z)  b = DequantizeLinear (a, s, z)
   n = Neg (x)
   f = QuantizeLinear (n, s, z)  h = DequantizeLinear (f, s, z)
   c = Concat <axis = 1> (h, b)
   k = QuantizeLinear (c, s, z)  y = DequantizeLinear (k, s, z) }}"""


@pytest.mark.parametrize("reader", ["b", "r"])
def test_the_skip_and_what_is_pooled_of_it_get_a_scale_a_step_larger(reader: str) -> None:
    model = wrap(parse(net(reader=reader)))
    before = run(model.proto, feeds := {"x": np.random.default_rng(1).standard_normal((1, 2, 8, 8)).astype(np.float32)})
    (edit,) = run_passes(model, (PartSkipScales(),), TENSORRT_8).edits
    assert (edit.pass_name, edit.node) == ("part-skip-scales", "q")
    scales = {
        node.name: float(model.main.values(node.input[1])) for node in model.proto.graph.node if len(node.input) == 3
    }
    own = np.float32(SCALE) * np.float32(128 / 127)
    assert scales == {
        name: pytest.approx(own if name in ("q", "d", "qm", "dm") else SCALE)
        for name in ("q", "d", "qm", "dm", "qn", "dn", "qc", "dc")
    }
    after = run(model.proto, feeds)
    assert all(np.abs(a - b).max() <= 1.01 * own for a, b in zip(before, after, strict=True))
    assert not run_passes(model, (PartSkipScales(),), TENSORRT_8).edits


@pytest.mark.parametrize(
    ("text", "target"),
    [
        (net(other=0.0501), TENSORRT_8),
        (net(), RTX),
        (net(), Target("tensorrt", (10, 3))),
    ],
    ids=["another scale", "rtx", "10"],
)
def test_what_is_computed_rightly_stays_as_it_is(text: str, target: Target) -> None:
    model = wrap(parse(text))
    assert not run_passes(model, (PartSkipScales(),), target).edits
    assert "TC314" not in {each.code for each in run_rules(model, target)}


def test_a_tensor_that_only_the_concat_reads_is_no_skip() -> None:
    model = wrap(parse(ALONE.replace("Neg (x)", "Relu (w)").replace("x) =>", "x, float[1,2,8,8] w) =>")))
    assert not run_passes(model, (PartSkipScales(),), TENSORRT_8).edits


def test_the_rule_names_the_quantiser_and_the_concat() -> None:
    model = wrap(parse(net()))
    (finding,) = (each for each in run_rules(model, TENSORRT_8) if each.code == "TC314")
    assert finding.location.node == "q" and "join" in finding.message


@pytest.mark.parametrize("skip", ["a0", "x"])
@pytest.mark.parametrize("reads", [True, False])
def test_an_input_of_the_graph_is_a_skip_where_something_else_reads_it(skip: str, reads: bool) -> None:
    text = ALONE.replace(" x) =>", f" {skip}, float[1,2,8,8] a) =>").replace("(x", f"({skip}")
    text = text.replace("{ a =", "{ q =").replace("(a, s", "(q, s")
    if not reads:
        text = text.replace(f"Neg ({skip})", "Neg (a)")
    assert bool(run_passes(wrap(parse(text)), (PartSkipScales(),), TENSORRT_8).edits) == reads


FLOAT = f"""{HEAD} (float[1,2,4,4] p, float[1,4,H,H] y) <float s = {{{SCALE}}}, float o = {{OTHER}}, int8 z = {{0}}>
{{ r = Relu (x)  n = Neg (x)
   [qn] f = QuantizeLinear (n, s, z)  [dn] h = DequantizeLinear (f, s, z)
   [join] c = Concat <axis = 1> (h, SKIP)
   BODY BEHIND }}"""
READ = "[q] a = QuantizeLinear (SKIP, s, z) [d] b = DequantizeLinear (a, s, z) "
HALF = "MaxPool <kernel_shape = [2,2], strides = [2,2]>"
POOLED = f"m = {HALF} (FROM) [qm] e = QuantizeLinear (m, s, z) [dm] p = DequantizeLinear (e, s, z) "
BARE = f"p = {HALF} (b) "
DIRECT = "k = QuantizeLinear (c, o, z)  y = DequantizeLinear (k, o, z)"
THEN_POOLED = f"g = {HALF} (c)  k = QuantizeLinear (g, o, z)  y = DequantizeLinear (k, o, z)"


def in_float(body: str, behind: str = DIRECT, skip: str = "r", other: float = SCALE) -> str:
    text = FLOAT.replace("BODY", body).replace("BEHIND", behind).replace("FROM", skip).replace("SKIP", skip)
    return text.replace("OTHER", str(other)).replace("[1,4,H,H]", "[1,4,4,4]" if "g =" in behind else "[1,4,8,8]")


@pytest.mark.parametrize("skip", ["r", "x"])
@pytest.mark.parametrize("behind", [DIRECT, THEN_POOLED], ids=["quantised", "pooled and quantised"])
@pytest.mark.parametrize("body", [READ + POOLED.replace("FROM", "b"), READ + BARE], ids=["both", "read"])
def test_a_skip_in_float_is_read_quantised_by_a_scale_of_its_own(body: str, behind: str, skip: str) -> None:
    """What is quantised behind the Concat TensorRT quantises in front of it: both are one scale there."""
    model = wrap(parse(in_float(body, behind, skip)))
    assert "TC314" in {each.code for each in run_rules(model, TENSORRT_8)}
    before = run(model.proto, feeds := {"x": np.random.default_rng(1).standard_normal((1, 2, 8, 8)).astype(np.float32)})
    assert len(run_passes(model, (PartSkipScales(),), TENSORRT_8).edits) == 1
    own = np.float32(SCALE) * np.float32(128 / 127)
    main = model.main
    (concat,) = (node for node in model.proto.graph.node if node.op_type == "Concat")
    real = main.producer(concat.input[1])
    assert real.op_type == "DequantizeLinear" and main.producer(real.input[0]).input[0] == skip
    quantisers = [node for node in model.proto.graph.node if node.op_type == "QuantizeLinear"]
    assert sum(node.input[0] == skip for node in quantisers) == 1
    scales = {node.input[0]: float(main.values(node.input[1])) for node in quantisers}
    behind_concat = {"c", "g", "n"}
    assert scales == {name: pytest.approx(SCALE if name in behind_concat else own) for name in scales}
    after = run(model.proto, feeds)
    assert all(np.abs(a - b).max() <= 1.51 * own for a, b in zip(before, after, strict=True))
    assert not run_passes(model, (PartSkipScales(),), TENSORRT_8).edits
    assert "TC314" not in {each.code for each in run_rules(model, TENSORRT_8)}


@pytest.mark.parametrize(
    "text",
    [in_float(READ + BARE, other=0.051), in_float(POOLED, other=0.051), in_float(POOLED.replace("FROM", "x"))],
    ids=["read with another scale", "pooled with another scale", "pooled of something else"],
)
def test_a_skip_in_float_of_another_scale_stays(text: str) -> None:
    assert not run_passes(wrap(parse(text)), (PartSkipScales(),), TENSORRT_8).edits


def test_two_inputs_that_are_skips_in_float_are_both_parted() -> None:
    text = in_float(READ + BARE, skip="x").replace("(h, x)", "(h, x, w)").replace(" x) =>", " x, float[1,2,8,8] w) =>")
    text = text.replace("[1,4,8,8]", "[1,6,8,8]").replace("{ r =", "{ v = QuantizeLinear (w, s, z) r =")
    text = text.replace("p = MaxPool", "aw = DequantizeLinear (v, s, z) at = Add (aw, b) p = MaxPool").replace(
        "(b)", "(at)"
    )
    model = wrap(parse(text))
    assert len(run_passes(model, (PartSkipScales(),), TENSORRT_8).edits) == 2
    (concat,) = (node for node in model.proto.graph.node if node.op_type == "Concat")
    sources = [model.main.producer(model.main.producer(name).input[0]).input[0] for name in concat.input]
    assert sources == ["n", "x", "w"]
    onnx.checker.check_model(model.proto)


@pytest.mark.parametrize("behind", [DIRECT, THEN_POOLED], ids=["quantised", "pooled and quantised"])
def test_a_skip_of_which_only_the_pooled_is_quantised_is_right_as_it_is(behind: str) -> None:
    """As in models/quantized_autoencoder.onnx, which TensorRT 8.6 computed right."""
    model = wrap(parse(in_float(POOLED, behind)))
    assert "TC314" not in {each.code for each in run_rules(model, TENSORRT_8)}
    assert not run_passes(model, (PartSkipScales(),), TENSORRT_8).edits
