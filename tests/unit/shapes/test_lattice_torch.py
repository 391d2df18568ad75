"""Size lattices of networks as torch's two exporters write them, against ONNX Runtime at many sizes."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

import onnx  # noqa: E402

from support import size_nets as nets  # noqa: E402
from support.sizes import assert_exact  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.shapes.lattice import Sizes  # noqa: E402

IMAGE = {"x": (1, 3, 48, 66)}
PLANE = {"x": {2: "height", 3: "width"}}
NETS: dict[str, tuple[Callable[[], Any], dict[str, tuple[int, ...]], dict[str, dict[int, str]], Any]] = {
    "nested U-Net": (nets.NestedUnet, {"x": (1, 3, 48, 64)}, PLANE, ("multiples of 4",) * 2),
    "pyramid": (nets.Pyramid, IMAGE, PLANE, ("every size",) * 2),
    "ViT": (nets.Vit, IMAGE, PLANE, ("every size",) * 2),
    "padded windows": (lambda: nets.Windows(True), IMAGE, PLANE, ("every size",) * 2),
    "whole windows": (
        lambda: nets.Windows(False),
        {"x": (1, 3, 48, 64)},
        PLANE,
        ("0 to 1 beyond a multiple of 8",) * 2,
    ),
    "patch merging": (nets.PatchMerging, IMAGE, PLANE, ("multiples of 2",) * 2),
    "YOLO": (nets.Yolo, {"x": (1, 3, 48, 64)}, PLANE, ("0 to 7 below a multiple of 16",) * 2),
    "normalised": (nets.Normalised, IMAGE, PLANE, ("multiples of 3",) * 2),
    "padded to 8": (nets.PaddedToEight, IMAGE, PLANE, ("every size",) * 2),
    "padded to the skip": (nets.PaddedToSkip, IMAGE, PLANE, ("every size",) * 2),
    "cropped skip": (nets.CroppedSkip, IMAGE, PLANE, ("every size",) * 2),
    "text": (
        nets.Text,
        {"ids": (1, 20), "mask": (1, 20)},
        {"ids": {1: "length"}, "mask": {1: "masked"}},
        None,
    ),
    "vocoder": (
        nets.Vocoder,
        {"mel": (1, 4, 8), "source": (1, 1, 960)},
        {"mel": {2: "frames"}, "source": {2: "samples"}},
        None,
    ),
}
"""The module, its example's shapes, its dynamic axes, and what `describe` must begin with from 16 to 96."""


def _exported(path: Path, name: str, dynamo: bool) -> OnnxModel:
    make, shapes, axes, _ = NETS[name]
    torch.manual_seed(0)
    example = tuple(torch.ones(s, dtype=torch.int64) if len(s) == 2 else torch.randn(s) for s in shapes.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            wild = {n: dict.fromkeys(dims, torch.export.Dim.DYNAMIC) for n, dims in axes.items()}
            options: dict[str, Any] = {"dynamic_shapes": wild, "verbose": False, "external_data": False}
        else:
            options = {"dynamic_axes": axes, "input_names": list(shapes), "opset_version": 18}
        torch.onnx.export(make().eval(), example, path, dynamo=dynamo, **options)
    proto = onnx.load(path)
    proto.ir_version = min(proto.ir_version, 10)
    proto.graph.ClearField("value_info")
    return OnnxModel(proto, path)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("dynamo", [True, False], ids=["torch.export", "tracing"])
@pytest.mark.parametrize("name", NETS)
def test_as_onnxruntime_says(tmp_path: Path, name: str, dynamo: bool) -> None:
    model = _exported(tmp_path / "m.onnx", name, dynamo)
    names = Sizes(model).names
    if name == "vocoder":
        pairs = [(f, 120 * f + more) for f in (4, 7, 10) for more in (-24, -1, 0, 1, 12)]
        points = [dict(zip(names, pair, strict=False)) for pair in pairs]
    else:
        sizes = [16, 33, 48, 50, 67, 72] if len(names) > 1 else range(16, 97)
        points = [dict(zip(names, pair, strict=True)) for pair in itertools.product(sizes, repeat=len(names))]
    assert assert_exact(model, points) > 0


@pytest.mark.parametrize("name", [name for name, net in NETS.items() if net[3] is not None])
def test_words(tmp_path: Path, name: str) -> None:
    model = _exported(tmp_path / "m.onnx", name, dynamo=False)
    sizes = Sizes(model)
    lattice = sizes.lattice(dict.fromkeys(sizes.names, (16, 96)))
    assert lattice.exact
    said = [dim.describe() for dim in lattice.dims.values()]
    assert all(text.startswith(start) for text, start in zip(said, NETS[name][3], strict=True)), said
