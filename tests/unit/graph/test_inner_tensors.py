"""Inner tensors are meant by name, by pattern and by the operator that makes them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.core.errors import InputError
from trtconv.graph.inner_tensors import tensors_meant
from trtconv.graph.model import OnnxModel

MODEL = OnnxModel(
    onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y, float[2] z)
        { head = Relu (x)  mid = Neg (head)  heat = Relu (mid)  y = Abs (heat)  z, = Split <axis = 0> (y) }""".replace(
            "z, = Split <axis = 0> (y)", "z, rest = Split <axis = 0> (y)"
        )
    ),
    Path("net.onnx"),
)


@pytest.mark.parametrize(
    ("patterns", "meant"),
    [
        (["mid"], ("mid",)),
        (["he*"], ("head", "heat")),
        (["type:Relu"], ("head", "heat")),
        (["heat", "mid"], ("mid", "heat")),
        (["type:Split", "heat"], ("heat", "rest")),
    ],
)
def test_what_patterns_mean_is_in_the_order_of_the_graph(patterns: list[str], meant: tuple[str, ...]) -> None:
    assert tensors_meant(MODEL, patterns, "--tensor") == meant


@pytest.mark.parametrize("pattern", ["y", "x", "z", "Hed", "type:Conv"])
def test_outputs_and_what_there_is_not_are_refused_with_the_flag_and_the_file(pattern: str) -> None:
    with pytest.raises(InputError) as caught:
        tensors_meant(MODEL, ["mid", pattern], "--debug-tensor")
    assert all(word in caught.value.message for word in ("--debug-tensor", pattern, "net.onnx"))
    assert "head" in caught.value.hint


def test_nothing_asked_means_nothing() -> None:
    assert tensors_meant(MODEL, [], "--tensor") == ()
