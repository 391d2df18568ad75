"""Public architectures with random weights: a smoke test, skipped for each package that is missing.

What fails upstream is listed in docs/export.md; here it must fail with a line of Python, not with a stack trace.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import trtconv  # noqa: E402
from support.torchvision_operators import make_importable  # noqa: E402

pytestmark = [pytest.mark.architectures, pytest.mark.filterwarnings("ignore")]
PLANE = ("batch", None, "height", "width")
SPACE = ("batch", None, "depth", "height", "width")


def _monai(name: str, **arguments: Any) -> Callable[[], Any]:
    def make() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nets = pytest.importorskip("monai.networks.nets", exc_type=ImportError)
        return getattr(nets, name)(**arguments)

    return make


def _transformers(name: str, config: str, **arguments: Any) -> Callable[[], Any]:
    def make() -> Any:
        make_importable()
        library = pytest.importorskip("transformers", exc_type=ImportError)
        return getattr(library, name)(getattr(library, config)(**arguments))

    return make


def _vae_decoder() -> Any:
    library = pytest.importorskip("diffusers", exc_type=ImportError)
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    return library.AutoencoderKL(block_out_channels=(32, 64), norm_num_groups=8, **blocks).decoder


def _vits_decoder() -> Any:
    return _transformers(
        "VitsModel", "VitsConfig", hidden_size=32, num_hidden_layers=1, upsample_initial_channel=64
    )().decoder


def _encodec_decoder() -> Any:
    small = {"num_filters": 4, "hidden_size": 8, "upsampling_ratios": [2, 2], "num_lstm_layers": 1}
    return _transformers("EncodecModel", "EncodecConfig", **small)().decoder


def _upernet() -> Any:
    make_importable()
    library = pytest.importorskip("transformers", exc_type=ImportError)
    stages = [f"stage{number}" for number in range(1, 5)]
    backbone = library.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1] * 4, out_features=stages)
    small = {"hidden_size": 16, "auxiliary_channels": 8, "auxiliary_in_channels": 24, "num_labels": 2}
    return _transformers("UperNetForSemanticSegmentation", "UperNetConfig", backbone_config=backbone, **small)()


UNET = {"in_channels": 1, "out_channels": 2, "channels": (8, 16, 32), "strides": (2, 2)}
WORKS: dict[str, tuple[Callable[[], Any], str, tuple[int, ...], Any, dict[str, int]]] = {
    "monai UNet 2-D": (_monai("UNet", spatial_dims=2, **UNET), "x", (1, 1, 32, 32), PLANE, {"height": 4}),
    "monai UNet 3-D": (_monai("UNet", spatial_dims=3, **UNET), "x", (1, 1, 16, 16, 16), SPACE, {"depth": 4}),
    "monai AttentionUnet": (_monai("AttentionUnet", spatial_dims=2, **UNET), "x", (1, 1, 32, 32), PLANE, {"width": 4}),
    "monai SegResNet": (
        _monai("SegResNet", spatial_dims=2, init_filters=8, in_channels=1, out_channels=2),
        "x",
        (1, 1, 32, 32),
        PLANE,
        {"height": 8},
    ),
    "monai BasicUNet": (
        _monai("BasicUNet", spatial_dims=2, in_channels=1, out_channels=2, features=(8, 8, 16, 16, 32, 8)),
        "x",
        (1, 1, 64, 64),
        PLANE,
        {"height": 16},
    ),
    "monai DynUNet": (
        _monai(
            "DynUNet",
            spatial_dims=2,
            in_channels=1,
            out_channels=2,
            kernel_size=[3, 3, 3],
            strides=[1, 2, 2],
            upsample_kernel_size=[2, 2],
            filters=[8, 16, 32],
        ),
        "x",
        (1, 1, 32, 32),
        PLANE,
        {"height": 4},
    ),
    "transformers SpeechT5HifiGan": (
        _transformers("SpeechT5HifiGan", "SpeechT5HifiGanConfig", model_in_dim=80, upsample_initial_channel=64),
        "spectrogram",
        (1, 20, 80),
        ("batch", "frames", None),
        {"frames": 1},
    ),
    "transformers VITS decoder": (
        _vits_decoder,
        "hidden_states",
        (1, 192, 20),
        ("batch", None, "frames"),
        {"frames": 1},
    ),
    "transformers SegFormer": (
        _transformers(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 1, 2, 2],
            decoder_hidden_size=16,
        ),
        "pixel_values",
        (1, 3, 64, 64),
        PLANE,
        {},
    ),
    "transformers UperNet": (_upernet, "pixel_values", (1, 3, 64, 64), PLANE, {"height": 1, "width": 1}),
    "transformers EnCodec decoder": (
        _encodec_decoder,
        "hidden_states",
        (1, 8, 16),
        ("batch", None, "frames"),
        {"frames": 1},
    ),
    "diffusers AutoencoderKL decoder": (_vae_decoder, "sample", (1, 4, 16, 16), PLANE, {"height": 1}),
}


@pytest.mark.parametrize("name", WORKS)
def test_exports(name: str, tmp_path: Path) -> None:
    make, given, shape, axes, steps = WORKS[name]
    torch.manual_seed(0)
    module = make().eval()
    options = trtconv.ExportOptions(check=False)
    report = trtconv.export(module, {given: torch.randn(shape)}, tmp_path / "m.onnx", {given: axes}, None, options)
    assert report.exit_code == 0
    assert len(report.proof.runs) >= 4
    found = {rule.name: rule.step for rule in report.sizes}
    assert {dim: found[dim] for dim in steps} == steps


def test_a_fixed_position_table_names_its_line(tmp_path: Path) -> None:
    pytest.importorskip("einops")
    make = _monai(
        "UNETR",
        in_channels=1,
        out_channels=2,
        img_size=64,
        feature_size=8,
        hidden_size=32,
        mlp_dim=64,
        num_heads=2,
        spatial_dims=2,
    )
    with pytest.raises(trtconv.ExportFailed, match=r"height must be 64: from .* at monai/"):
        trtconv.export(make().eval(), {"x_in": torch.randn(1, 1, 64, 64)}, tmp_path / "m.onnx", {"x_in": PLANE})
