"""Element types without inference are those of ONNX's own node tests, and inference's where no definition tells."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from trtconv.graph import scope
from trtconv.graph.model import OnnxModel

HEAD = '<ir_version: 8, opset_import: ["": 17, "own": 1]>'


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases(None) if case.model is not None and not case.model.functions]


def model(text: str) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(f"{HEAD} g {text}"), Path("m.onnx"))


@pytest.mark.filterwarnings("ignore")
def test_every_node_test(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without inference: what is found is what definitions tell.
    monkeypatch.setattr(scope.Scope, "types", property(lambda _: {}))
    wrong, found = [], 0
    for case in cases():
        types = OnnxModel(case.model, Path("m.onnx")).whole.element_types
        for value, expected in zip(case.model.graph.output, case.data_sets[0][1], strict=True):
            if isinstance(expected, np.ndarray) and (kind := types[value.name]):
                found += 1
                if kind != helper.np_dtype_to_tensor_dtype(expected.dtype):
                    wrong.append((case.name, value.name, kind, expected.dtype))
    assert not wrong
    assert found > 1_200


def test_types_are_followed_through_casts_and_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope.Scope, "types", property(lambda _: {}))
    types = (
        model(
            """(float[n] x, int64[n] i) => (y) {
            a = Relu (x)  b = Cast <to = 10> (a)  c = Sigmoid (b)  d = Greater (c, c)  s = Shape (d)
            e = Where (d, i, s)  y = CastLike (e, c)  first, second = Split (c) }"""
        )
    ).whole.element_types
    expected = {"a": "FLOAT", "c": "FLOAT16", "d": "BOOL", "s": "INT64", "e": "INT64", "y": "FLOAT16"}
    expected |= {"first": "FLOAT16", "second": "FLOAT16"}
    assert {name: TensorProto.DataType.Name(types[name]) for name in expected} == expected


def test_what_no_definition_tells_is_what_the_graph_says() -> None:
    types = (
        model(
            "(float[n] x) => (float16[n] y) <float16[n] b> { a = own.Unheard (x)  b = own.Unheard (a)  y = Relu (a) }"
        )
    ).whole.element_types
    assert (types["a"], types["b"], types["y"]) == (0, TensorProto.FLOAT16, TensorProto.FLOAT16)


def test_a_change_of_the_graph_is_seen() -> None:
    given = model("(float[n] x) => (y) { y = Cast <to = 10> (x) }")
    assert given.whole.element_types["y"] == TensorProto.FLOAT16
    given.proto.graph.node[0].attribute[0].i = TensorProto.DOUBLE
    given.touch()
    assert given.whole.element_types["y"] == TensorProto.DOUBLE


def test_an_operator_set_that_is_none_says_nothing() -> None:
    given = model("(float[n] x) => (float[n] y) { y = Relu (x) }")
    given.proto.opset_import[0].version = 1 << 40
    assert OnnxModel(given.proto, given.path).whole.element_types["y"] in (0, TensorProto.FLOAT)


def test_nodes_that_wait_for_each_other_have_no_type() -> None:
    assert model("(float[n] x) => (y) { a = Relu (b)  b = Relu (a)  y = Add (a, x) }").whole.element_types["y"] == 0
