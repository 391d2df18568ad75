"""Skips that share the scale of the Concat that takes them, which TensorRT 8.6 misreads."""

from __future__ import annotations

import numpy as np
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
