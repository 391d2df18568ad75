"""Every ConvTranspose test of ONNX's own backend suite: rewritten, run, and built with TensorRT-RTX."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case import node as suite
from onnx.reference import ReferenceEvaluator

import trtconv
from support.onnx_models import RTX, TENSORRT_8, assert_equal, rewritten, wrap
from support.session import run
from trtconv.rules.base import ModelView

# collect_testcases would make all 1,884 tests, which takes seconds; this makes the ones of one operator.
importlib.import_module("onnx.backend.test.case.node.convtranspose")
CASES = list(suite._NodeTestCases)


def constant_weights(case: Any) -> onnx.ModelProto:
    """Returns the model of a case with the weight and bias, which the suite feeds, as initializers."""
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    arrays = case.data_sets[0][0]
    for value, array in list(zip(proto.graph.input, arrays, strict=True))[1:]:
        proto.graph.initializer.append(numpy_helper.from_array(array, value.name))
        proto.graph.input.remove(value)
    return proto


def test_the_suite_has_the_tests_that_it_had() -> None:
    assert len(CASES) >= 11


@pytest.mark.parametrize("weights", ["inputs", "initializers"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestCase:
    def proto(self, case: Any, weights: str) -> onnx.ModelProto:
        proto = case.model if weights == "inputs" else constant_weights(case)
        # ONNX Runtime reads operator sets up to 23.
        proto.opset_import[0].version = min(proto.opset_import[0].version, 22)
        proto.ir_version = min(proto.ir_version, 10)
        return proto

    @pytest.mark.parametrize("target", [RTX, TENSORRT_8], ids=str)
    def test_it_computes_what_the_suite_expects(self, case: Any, weights: str, target: trtconv.Target) -> None:
        proto = self.proto(case, weights)
        model, result = rewritten(proto, target)
        assert not result.skipped
        names = [value.name for value in case.model.graph.input]
        inputs, expected = case.data_sets[0]
        feeds = {n: a for n, a in zip(names, inputs, strict=True) if n in {v.name for v in proto.graph.input}}
        assert_equal(expected, run(model.proto, feeds))
        assert_equal(expected, ReferenceEvaluator(model.proto).run(None, feeds))
        for deconv in ModelView(model).deconvs:
            assert not isinstance(deconv.geometry, str)
            assert deconv.geometry.is_explicit

    def test_it_builds(self, case: Any, weights: str, tmp_path: Path) -> None:
        path = tmp_path / "model.onnx"
        onnx.save(self.proto(case, weights), path)
        report = trtconv.build(trtconv.BuildRequest(path, target=trtconv.Target("rtx")))
        assert report.exit_code == 0, report.findings
        assert path.with_suffix(".engine").stat().st_size > 0
        assert wrap(onnx.load(path)).inputs[0].dims == tuple(case.data_sets[0][0][0].shape)
