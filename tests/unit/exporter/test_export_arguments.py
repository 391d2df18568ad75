"""What `export` and `convert` are given in place of what they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trtconv

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("module", lambda x: x),
        ("example", 3),
        ("example", "abc"),
        ("output", 3),
        ("dynamic", [1]),
        ("dynamic", {"input": 3}),
        ("dynamic", {"input": "batch"}),
        ("dynamic", {"input": (1, 2)}),
        ("dims", [("batch", 1)]),
        ("dims", {"batch": None}),
        ("options", {}),
        ("progress", print),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(name: str, value: Any, tmp_path: Path) -> None:
    given = {"module": torch.nn.ReLU().eval(), "example": torch.ones(1, 3), "output": tmp_path / "net.onnx"}
    with pytest.raises(trtconv.InputError, match=f"{name} of export|{name} takes|bounds of 'batch'"):
        trtconv.export(**{**given, name: value})
    if name not in ("output", "dims"):
        given["build"] = trtconv.BuildRequest(given.pop("output"))
        with pytest.raises(trtconv.InputError):
            trtconv.convert(**{**given, name: value})


def test_a_dimension_that_is_not_there_is_answered_with_the_one_that_was_meant(tmp_path: Path) -> None:
    module, example = torch.nn.ReLU().eval(), torch.ones(1, 3, 8, 8)
    dynamic = {"input": ("batch", None, "height", "width")}
    with pytest.raises(trtconv.InputError) as refused:
        trtconv.export(module, example, tmp_path / "net.onnx", dynamic, {"heigth": (8, 64)})
    assert "Did you mean height?" in refused.value.python_hint
    assert 'dynamic={"NAME": ("batch", None, "height", "width")}, or write INPUT:AXIS' in refused.value.python_hint


def test_convert_takes_a_request(tmp_path: Path) -> None:
    with pytest.raises(trtconv.InputError, match="build of convert takes a BuildRequest"):
        trtconv.convert(torch.nn.ReLU().eval(), torch.ones(1, 3), str(tmp_path / "net.onnx"))  # type: ignore[arg-type]
