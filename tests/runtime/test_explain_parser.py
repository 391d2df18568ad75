"""What explain shows of the installed TensorRT-RTX's parser."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed: pip install tensorrt-rtx")

from support.onnx_models import PLACES, Layer, make
from trtconv.cli.formats.explain import explain_text
from trtconv.core.documents.explain import Explanation, Layers
from trtconv.core.requests.explain import ExplainRequest
from trtconv.core.target import Target
from trtconv.explainer.node import explain

UP = Layer(sizes=(5, 5), kernel=(3, 3), strides=(2, 2), bias="initializer")


def parsed(layer: Layer, folder: Path) -> tuple[Explanation, Layers, Layers]:
    """Returns the explanation, and what the parser made of the node before and after the passes."""
    path = folder / "model.onnx"
    path.write_bytes(make(layer)[0].SerializeToString())
    report = explain(ExplainRequest(path, "", Target("rtx")))
    node = report.explanation
    assert node is not None
    assert node.parser.layers is not None
    assert node.rewrite.layers is not None
    assert explain_text(report).isascii()
    return node, node.parser.layers, node.rewrite.layers


def test_right_as_it_is(tmp_path: Path) -> None:
    _, raw, made = parsed(dataclasses.replace(UP, pads=(1, 1, 1, 1)), tmp_path)
    assert raw == made
    assert (raw.refused, raw.others, raw.differences) == ("", (), ())
    assert raw.deconvolution["pre_padding"] == raw.deconvolution["post_padding"] == (1, 1)


@pytest.mark.parametrize("place", PLACES)
def test_zero_fill_goes_away(tmp_path: Path, place: str) -> None:
    layer = dataclasses.replace(UP, output_padding=(1, 1), place=place, weight="identity")
    _, raw, made = parsed(layer, tmp_path)
    assert "SLICE" in raw.others
    assert not raw.deconvolution["has_bias"]
    assert (made.others, made.differences, made.refused) == ((), (), "")
    assert (made.deconvolution["kernel"], made.deconvolution["has_bias"]) == ((4, 4), True)


@pytest.mark.parametrize(
    "changes", [{"auto_pad": "SAME_UPPER", "output_padding": (1, 1)}, {"output_shape": (10, 10)}], ids=str
)
def test_misread_silently(tmp_path: Path, changes: dict[str, object]) -> None:
    node, raw, made = parsed(dataclasses.replace(UP, **changes), tmp_path)  # type: ignore[arg-type]
    assert [axis.begin for axis in node.axes] == [1, 1]
    assert raw.differences == (
        "TensorRT crops [0, 0] at the low and [1, 1] at the high ends, the model means [1, 1] and [0, 0]",
    )
    assert made.differences == ()
    assert made.deconvolution["pre_padding"] == (1, 1)


def test_refused(tmp_path: Path) -> None:
    _, raw, made = parsed(dataclasses.replace(UP, pads=(-1, 0, 0, 0)), tmp_path)
    assert raw.refused
    assert not made.refused
