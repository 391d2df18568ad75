"""Operators of classical machine learning, in those of ONNX: the numbers that ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from support.onnx_models import RTX, wrap
from support.session import Array, run
from trtconv.passes import passes_for, run_passes

SIZES = st.integers(1, 4)


def model(op: str, inputs: dict[str, Array], constants: dict[str, Array], **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node(op, [*inputs, *constants], ["y"], domain="ai.onnx.ml", **attrs)
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), ["n", *array.shape[1:]])
        for name, array in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", values, [result], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets)


@given(SIZES, SIZES, st.sampled_from((np.float32, np.int64, np.float64)), st.data())
def test_they_compute_what_onnx_runtime_does(rows: int, columns: int, dtype: type, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    row = random.standard_normal(columns).astype(np.float32)
    scales = row[:1] if data.draw(st.booleans()) else row
    forms: dict[str, dict[str, Any]] = {
        "Scaler": {"offset": scales, "scale": scales + 1},
        "Normalizer": {"norm": data.draw(st.sampled_from(("L1", "L2", "MAX")))},
        "LinearRegressor": {"coefficients": np.tile(row, 2), "targets": 2, "intercepts": [0.5, -1.0]},
        "Imputer": {"imputed_value_floats": row, "replaced_value_float": data.draw(st.sampled_from((np.nan, 0.0)))},
        "Binarizer": {"threshold": 0.25},
        "FeatureVectorizer": {"inputdimensions": [columns, 3]},
        "ArrayFeatureExtractor": {},
    }
    op = data.draw(st.sampled_from(sorted(forms)))
    if op in ("Imputer", "Binarizer", "ArrayFeatureExtractor"):
        dtype = np.float32
    x = random.integers(-3, 4, (rows, columns)).astype(dtype)
    if dtype is np.float32:
        x[random.random(x.shape) < 0.2] = np.nan if op == "Imputer" else 0.7
    inputs = {"x": x} | ({"z": np.ones((rows, 3), dtype)} if op == "FeatureVectorizer" else {})
    constants = {"i": random.integers(0, columns, (3,))} if op == "ArrayFeatureExtractor" else {}
    proto = model(op, inputs, constants, **forms[op])
    rewritten = wrap(proto)
    result = run_passes(rewritten, passes_for("as-is"), RTX)
    if dtype is not np.float32 or forms[op].get("norm") == "MAX":
        # What float32 has not all of, and a maximum that is read in several ways, is left.
        assert not result.edits
        assert result.skipped
        return
    assert {edit.pass_name for edit in result.edits} == {"expand-learned"}
    (expected,), (got,) = run(proto, inputs), run(rewritten.proto, inputs)
    assert expected.shape == got.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_trees_are_left() -> None:
    proto = model("TreeEnsembleRegressor", {"x": np.ones((2, 2), np.float32)}, {})
    assert not run_passes(wrap(proto), passes_for("as-is"), RTX).edits


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_rows_of_zeros_stay(norm: str) -> None:
    proto = model("Normalizer", {"x": np.zeros((2, 3), np.float32)}, {}, norm=norm)
    rewritten = wrap(proto)
    assert run_passes(rewritten, passes_for("as-is"), RTX).edits
    (expected,), (got,) = (run(each, {"x": np.zeros((2, 3), np.float32)}) for each in (proto, rewritten.proto))
    np.testing.assert_array_equal(got, expected)
