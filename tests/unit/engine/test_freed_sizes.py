"""Where a file that fixes its exporter's sizes takes others for these, it is no reference for what was freed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from support.session import Array, run
from trtconv.core.documents.build import BuildPlan
from trtconv.core.target import Target
from trtconv.engine.freed_sizes import means_otherwise
from trtconv.graph.model import OnnxModel

TEXT = """<ir_version: 8, opset_import: ["": 17], producer_name: "pytorch">
    g (float[1,8,h,w] x) => (float[p,q,r,s] y) <int64[3] flat = {1,8,384}, int64[4] full = {1,8,16,24}> {
        a = Relu (x)  f = Reshape (a, flat)  g = Tanh (f)  i = Reshape (g, full)  y = Neg (i)
    }"""
PLAN = BuildPlan(Target("rtx", (1, 7)), ())


def outputs(height: int, width: int) -> tuple[OnnxModel, dict[str, Array], dict[str, Array]]:
    model = OnnxModel(onnx.parser.parse_model(TEXT), Path("m.onnx"))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 8, height, width)).astype(np.float32)}
    return model, feeds, {"y": run(model.proto, feeds)[0]}


def test_another_shape_of_as_many_elements_is_what_was_freed() -> None:
    model, feeds, expected = outputs(24, 16)
    assert expected["y"].shape == (1, 8, 16, 24)
    freed = expected["y"].reshape(1, 8, 24, 16)
    assert means_otherwise(model, PLAN, feeds, {"y": freed}, expected)
    assert not means_otherwise(model, PLAN, feeds, {"y": expected["y"].reshape(1, 8, 12, 32)}, expected), (
        "an engine's fault"
    )
    assert not means_otherwise(model, PLAN, feeds, {"y": expected["y"] + 1}, expected), "wrong numbers are wrong"
    assert not means_otherwise(model, PLAN, feeds, {}, expected)


@pytest.mark.parametrize("plan", [BuildPlan(Target("rtx", (1, 7)), (), rewrite=False)])
def test_what_no_pass_freed_is_as_the_file_has_it(plan: BuildPlan) -> None:
    model, feeds, expected = outputs(24, 16)
    assert not means_otherwise(model, plan, feeds, {"y": expected["y"].reshape(1, 8, 24, 16)}, expected)


def test_at_the_exporters_size_there_is_nothing_else() -> None:
    model, feeds, expected = outputs(16, 24)
    assert not means_otherwise(model, PLAN, feeds, expected, expected)
    assert not means_otherwise(model, PLAN, feeds, {"y": expected["y"].reshape(1, 8, 24, 16)}, expected)
