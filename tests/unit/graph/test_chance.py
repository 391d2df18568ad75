"""What hangs on operators that make other numbers with each run."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.graph.chance import RANDOM, random_outputs
from trtconv.graph.model import OnnxModel

HEADER = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'


def outputs_of(text: str) -> dict[str, str]:
    return random_outputs(OnnxModel(onnx.parser.parse_model(f"{HEADER} {text}"), Path("m.onnx")))


@pytest.mark.parametrize("op", sorted(RANDOM - {"RandomNormal", "RandomUniform"}))
def test_what_reads_random_numbers_hangs_on_them(op: str) -> None:
    text = f"g (float[2,3] x) => (float[2,3] y, float[2,3] z) {{ e = {op} (x) y = Neg (e) z = Neg (x) }}"
    assert outputs_of(text) == {"y": op}


def test_nodes_stand_in_any_order() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z)
    { y = Neg (b) b = Add (a, e) a = Neg (x) e = RandomUniform <shape = [2]> () z = Neg (a) }"""
    assert outputs_of(text) == {"y": "RandomUniform"}


def test_an_output_may_be_an_input_or_the_random_numbers() -> None:
    text = "g (float[2] x) => (float[2] x, float[2] e) { e = RandomNormal <shape = [2]> () }"
    assert outputs_of(text) == {"e": "RandomNormal"}


def test_graphs_inside_nodes_are_looked_into_and_what_they_read_from_outside() -> None:
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z, float[2] v) {
      e = RandomNormalLike (x)
      y = If (c) <then_branch = t () => (float[2] a) { a = RandomUniformLike (x) },
                  else_branch = u () => (float[2] b) { b = Neg (x) }>
      z = If (c) <then_branch = p () => (float[2] q) { q = Neg (e) },
                  else_branch = r () => (float[2] s) { s = Neg (x) }>
      v = Neg (x)
    }"""
    assert outputs_of(text) == {"y": "RandomUniformLike", "z": "RandomNormalLike"}


def test_functions_are_looked_into_also_those_that_they_call() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) { y = my.Outer (x) z = my.Plain (x) }
    <domain: "my", opset_import: ["": 17, "my": 1]> Outer (a) => (b) { b = my.Inner (a) }
    <domain: "my", opset_import: ["": 17]> Inner (a) => (b) { b = RandomNormalLike (a) }
    <domain: "my", opset_import: ["": 17]> Plain (a) => (b) { b = Neg (a) }"""
    assert outputs_of(text) == {"y": "RandomNormalLike"}


def test_operators_of_others_are_not_meant() -> None:
    assert outputs_of("g (float[2] x) => (float[2] y) { y = my.RandomNormalLike (x) }") == {}
