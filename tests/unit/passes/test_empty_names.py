"""Names that are empty: inputs that are not there, and outputs that nobody reads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes, select
from trtconv.runtimes.proof.version import Version

NAME = "settle-empty-names"


def settled(text: str, opset: int = 18) -> tuple[onnx.ModelProto, onnx.NodeProto]:
    """Returns a model, and its node as the pass leaves it."""
    model = wrap(parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}'))
    run_passes(model, select(PASSES, [NAME], []), RTX)
    (node,) = model.proto.graph.node
    return model.proto, node


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ('(float[2,3] x) => (float[2,3] y) { y = Clip (x, "", "") }', ["x"]),
        ('(float[2,3] x, float h) => (float[2,3] y) { y = Clip (x, "", h) }', ["x", "", "h"]),
        ('(float[2,3] x, int64[1] s) => (float[2,3] y) { y = Slice (x, s, s, "", "") }', ["x", "s", "s"]),
        ("(float[2,3] x) => (float[2,3] y) { y = Relu (x) }", ["x"]),
        # Every exporter writes it so, and every parser reads it.
        ('(float[2] x, int64[2] p) => (float[n] y) { y = Pad (x, p, "") }', ["x", "p", ""]),
    ],
)
def test_inputs_that_are_not_there(text: str, inputs: list[str]) -> None:
    assert settled(text)[1].input == inputs


def test_of_another_domain_nothing_is_known() -> None:
    text = '(float[2] x) => (float[2] y) { y = acme.Op (x, "") }'
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "acme": 1]> g {text}')
    model = wrap(proto)
    run_passes(model, select(PASSES, [NAME], []), RTX)
    assert model.proto.graph.node[0].input == ["x", ""]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        # Optional, and last: it is not asked for.
        ('(float[1,1,4,4] x) => (float[1,1,3,3] y) { y, "" = MaxPool <kernel_shape = [2, 2]> (x) }', [True]),
        ('(float[2] x) => (float[2] y) { y, "" = Dropout (x) }', [True]),
        # A part that nobody reads is a part.
        ('(float[4] x) => (float[2] y) { y, "" = Split <num_outputs = 2> (x) }', [True, True]),
        ('(float[4] x) => (float[2] y) { "", y = Split <num_outputs = 2> (x) }', [True, True]),
        ('(float[4] x, int64[1] k) => (float[2] y) { y, "" = TopK (x, k) }', [True, True]),
        # Optional, and before one that is read: it stays unnamed, so that nothing computes it.
        (
            '(float[3,1,2] x, float[1,8,2] w) => (float[1,1,2] h) { "", h = LSTM <hidden_size = 2> (x, w, w) }',
            [False, True],
        ),
    ],
)
def test_outputs_that_nobody_reads(text: str, named: list[bool]) -> None:
    proto, node = settled(text)
    assert [bool(name) for name in node.output] == named
    assert len({*node.output}) == len(node.output)
    onnx.checker.check_model(proto, full_check=True)


def test_a_split_has_its_parts() -> None:
    proto, _ = settled('(float[6] x) => (float[2] y) { "", y, "" = Split <num_outputs = 3> (x) }')
    np.testing.assert_array_equal(run(proto, {"x": np.arange(6, dtype=np.float32)})[0], [2, 3])


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ('y = Clip (x, "", "")', "y = Clip (x)", True),
        ('y = Clip (x, "", x)', "y = Clip (x)", False),
        ('y, "" = Split <num_outputs = 2> (x)', "y = Split <num_outputs = 1> (x)", False),
        ('y, "" = Split (x)', "y = Split (x)", False),
    ],
)
def test_the_proof_knows_which_names_say_nothing(one: str, other: str, alike: bool) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[n] y) {{ {} }}'
    sides = [Version(wrap(parser.parse_model(text.format(body)))) for body in (one, other)]
    assert sides[0].makes_alike(sides[1], "y") is alike


def test_a_loop_without_end_keeps_the_names_that_it_must_have() -> None:
    bare = """(float[2] x) => (float[k,2] y) {
      y = Loop ("", "") <body = b (int64 i, bool c) => (bool d, float[2] z) { d = Identity (c)  z = Identity (x) }>
    }"""
    assert settled(bare)[1].input == ["", ""]
