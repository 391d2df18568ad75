"""Sizes that passes free, at which the file itself runs and means another shape."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes
from trtconv.pipeline.freed import freed_otherwise


def freed(folder: Path) -> OnnxModel:
    """Returns a model whose Reshape keeps the sizes of the exporter's example, as the passes leave it."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[n,6,h,w] x) => (float[n,6,3,2] y) <int64[4] s = {0,6,3,2}> { y = Reshape (x, s) }"""
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    model = OnnxModel.load(folder / "m.onnx")
    (edit,) = run_passes(model, PASSES, Target("rtx", (1, 7))).edits
    assert edit.pass_name == "restore-reshape-target"
    return model


@pytest.mark.parametrize(
    ("height", "width", "says"),
    [
        (Range(2, 2, 2), Range(3, 3, 3), "at n 1, h 2, w 3 the file itself returns 'y' of 1x6x3x2, not 1x6x2x3"),
        (Range(1, 3, 6), Range(1, 2, 6), ""),
        (Range(3, 3, 3), Range(2, 2, 2), ""),
        # Which the file refuses: that is what was freed.
        (Range(5, 5, 5), Range(2, 3, 4), ""),
        (Range(1, 6, 6), Range(1, 1, 4), "at n 1, h 6, w 1 the file itself returns 'y' of 1x6x3x2, not 1x6x6x1"),
    ],
)
def test_where_the_file_runs_it_is_told_that_it_means_another_shape(
    tmp_path: Path, height: Range, width: Range, says: str
) -> None:
    model = freed(tmp_path)
    profile = make_profile(model.inputs, {"n": Range(1, 1, 1), "h": height, "w": width})
    findings = freed_otherwise(model, [profile])
    assert [finding.message for finding in findings] == ([says] if says else [])
    assert all(finding.code == "TC213" and finding.severity.value == "warning" for finding in findings)
    (tmp_path / "m.onnx").unlink()
    assert freed_otherwise(model, [profile]) == ()
