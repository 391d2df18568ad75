"""An input's whole shape in one flag."""

from __future__ import annotations

import pytest

from support.paths import MODELS
from trtconv.core.bounds import make_profile
from trtconv.core.dim_flags import parse_bounds
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel

UNET = OnnxModel.load(MODELS / "unet.onnx")


def test_an_input_as_a_whole() -> None:
    bounds = parse_bounds(["batch=1"], ["x=1:1:4,3,64:256:512,_"])
    assert bounds == {"batch": Range(1, 1, 1), "x:0": Range(1, 1, 4), "x:1": Range(3, 3, 3), "x:2": Range(64, 256, 512)}
    assert parse_bounds([], ["x=2x3x64x64"]) == parse_bounds([], ["x=2,3,64,64"])
    assert list(make_profile(UNET.inputs, parse_bounds([], ["x=2,3,64,64"])).inputs["x"].opt) == [2, 3, 64, 64]


def test_an_input_with_names_as_export_has_them() -> None:
    named = parse_bounds([], ["x=batch=1:1:4,3,height=64:256:512,_"])
    assert named == {"batch": Range(1, 1, 4), "x:1": Range(3, 3, 3), "height": Range(64, 256, 512)}


@pytest.mark.parametrize("text", ["x", "x=batch=,3", "x=", "=1", "x=1,,3", "x=1,a", "x=4:1"])
def test_an_input_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError):
        parse_bounds([], [text])
