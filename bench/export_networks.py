"""The networks of `bench/export_architectures.py`: small ones of public packages, and one of our own."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.torchvision_operators import make_importable

PLANE, SPACE, LINE = (
    ("batch", None, "height", "width"),
    ("batch", None, "depth", "height", "width"),
    ("batch", None, "length"),
)

IMAGE = (1, 3, 64, 64), PLANE, (32, 160)
"""Shape of an example, axes and span of most classifiers."""


class Case(NamedTuple):
    """One network.

    Args:
        name: The package and the network.
        make: Makes it.
        shape: The example's shape.
        axes: The names of its axes.
        span: Bounds of all dimensions but the batch.
        lengths: Whether a second input says how long each sequence is, of which one is as long as the example.
    """

    name: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    span: tuple[int, int]
    lengths: bool = False


def cases() -> Iterator[Case]:
    """Yields the networks of all packages that are installed, and says on stderr which are not."""
    own = (_restoring, _operators, _torchvision, _nnunet, _detecting, _hearing, _own)
    yield from (Case(*row) for library in own for row in installed(library))
    yield from (Case(*row) for row in of_images_and_sound())


def of_images_and_sound() -> Iterator[tuple[Any, ...]]:
    """Yields name, maker, shape of an example, axes and span of networks of public packages."""
    for library in (_monai, _smp, _spandrel, _timm, _diffusers, _transformers):
        yield from installed(library)


def installed(library: Callable[[], Iterator[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """Yields the networks of a package; says on stderr where it is not installed."""
    try:
        yield from library()
    except Exception as error:
        print(f"left out {library.__name__[1:]}: {type(error).__name__}: {error}", file=sys.stderr)


def _monai() -> Iterator[tuple[Any, ...]]:
    from monai.networks import nets

    io = {"in_channels": 1, "out_channels": 2}
    unet = {**io, "channels": (4, 8, 16), "strides": (2, 2)}
    kernels = {"kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "filters": [4, 8, 16]}
    span = (16, 96)
    small, large = ((1, 1, 32, 32), PLANE, span), ((1, 1, 64, 64), PLANE, (32, 128))
    yield "monai UNet", lambda: nets.UNet(spatial_dims=2, **unet), *small
    yield "monai UNet residual", lambda: nets.UNet(2, **unet, num_res_units=2), *small
    yield "monai UNet stride 3", lambda: nets.UNet(2, **{**unet, "strides": (3, 2)}), (1, 1, 36, 36), PLANE, span
    yield "monai UNet 3-D", lambda: nets.UNet(3, **unet), (1, 1, 16, 16, 16), SPACE, (8, 32)
    yield "monai AttentionUnet", lambda: nets.AttentionUnet(2, **unet), *small
    features = {"features": (4, 4, 8, 8, 16, 4)}
    yield "monai BasicUNet", lambda: nets.BasicUNet(2, **io, **features), *large
    yield "monai DynUNet", lambda: nets.DynUNet(2, **io, **kernels), *small
    yield "monai SegResNet", lambda: nets.SegResNet(2, init_filters=8, **io), *small
    yield "monai AutoEncoder", lambda: nets.AutoEncoder(2, **{**unet, "strides": (2, 2, 1)}), *small
    yield "monai VNet", lambda: nets.VNet(2, 1, 2), *small
    quicknat = {"num_classes": 3, "num_channels": 1, "num_filters": 8, "se_block": "None"}
    yield "monai QuickNAT", lambda: nets.Quicknat(**quicknat), *large
    yield "monai HighResNet", lambda: nets.HighResNet(2, 1, 2), *small
    yield "monai BasicUNet++", lambda: nets.BasicUNetPlusPlus(2, 1, 2, **features), *large
    deep = {"init_filters": 8, **io}
    yield "monai SegResNetDS", lambda: nets.SegResNetDS(2, blocks_down=(1,) * 3, **deep), *small
    blocks = {f"{place}_expansion_ratio": 2 for place in ("encoder", "decoder", "bottleneck")}
    counts = {"blocks_down": (1,) * 4, "blocks_bottleneck": 1, "blocks_up": (1,) * 4}
    yield "monai MedNeXt", lambda: nets.MedNeXt(2, **deep, **blocks, **counts), (1, 1, 32, 32), PLANE, span


def _smp() -> Iterator[tuple[Any, ...]]:
    make_importable()
    import segmentation_models_pytorch as smp

    for name in (
        "Unet",
        "UnetPlusPlus",
        "Linknet",
        "FPN",
        "PSPNet",
        "DeepLabV3Plus",
        "MAnet",
        "PAN",
        "UPerNet",
        "Segformer",
    ):
        encoder = "mit_b0" if name == "Segformer" else "resnet18"
        size = 128 if name == "PAN" else 64  # PAN pools away what is smaller
        yield (
            f"smp {name}",
            lambda name=name, encoder=encoder: getattr(smp, name)(encoder, encoder_weights=None, classes=2),
            (1, 3, size, size),
            PLANE,
            (size // 2, size * 5 // 2),
        )


def _spandrel() -> Iterator[tuple[Any, ...]]:
    make_importable()

    def take(module: str, name: str, **arguments: Any) -> Callable[[], Any]:
        owner = importlib.import_module(f"spandrel.architectures.{module}")
        return lambda: getattr(owner, name)(**arguments)

    span = (16, 96)
    small = (1, 3, 32, 32), PLANE, span
    yield "spandrel ESRGAN x2", take("ESRGAN", "ESRGAN", scale=2, num_blocks=2, num_filters=8), *small
    yield "spandrel Compact", take("Compact", "Compact", num_feat=8, num_conv=2), *small
    yield "spandrel SPAN", take("SPAN", "SPAN", num_in_ch=3, num_out_ch=3, feature_channels=16), *small
    yield "spandrel RealCUGAN x2", take("RealCUGAN", "UpCunet2x"), (1, 3, 33, 35), PLANE, (24, 96)
    yield "spandrel DRUNet", take("DRUNet", "DRUNet", in_nc=3, out_nc=3, nc=(8, 8, 8, 8), nb=1), *small
    nafnet = {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]}
    yield "spandrel NAFNet", take("NAFNet", "NAFNet", **nafnet), *small
    swinir = {"img_size": 32, "embed_dim": 12, "depths": [1], "num_heads": [2], "window_size": 8, "upscale": 2}
    static = (None, None, "height", "width")
    yield "spandrel SwinIR", take("SwinIR", "SwinIR", **swinir, upsampler="pixelshuffle"), (1, 3, 32, 32), static, span
    rcan = {"n_resgroups": 1, "n_resblocks": 1, "n_feats": 8, "reduction": 4}
    yield "spandrel RCAN x2", take("RCAN", "RCAN", scale=2, **rcan), *small
    plksr = {"dim": 16, "n_blocks": 1, "upscaling_factor": 2}
    yield "spandrel PLKSR x2", take("PLKSR", "PLKSR", **plksr), *small
    omnisr = {"num_feat": 16, "block_num": 1, "res_num": 1, "window_size": 8, "up_scale": 2, "pe": True, "bias": True}
    yield (
        "spandrel OmniSR x2",
        take("OmniSR", "OmniSR", num_in_ch=3, num_out_ch=3, **omnisr),
        (1, 3, 32, 32),
        static,
        span,
    )
    scunet = take("SCUNet", "SCUNet", in_nc=3, config=(1,) * 7, dim=64)
    yield "spandrel SCUNet", scunet, (1, 3, 64, 64), static, (64, 160)
    lama = take("LaMa", "LaMa", in_nc=4, out_nc=3)
    yield (
        "spandrel LaMa",
        lambda: Without(lama(), lambda net, x: net(x[:, :3], (x[:, 3:] > 0).to(x.dtype))),
        (1, 4, 32, 32),
        PLANE,
        (24, 64),
    )
    yield "spandrel SAFMN", take("SAFMN", "SAFMN", dim=8, n_blocks=1), (1, 3, 32, 32), PLANE, span


def _timm() -> Iterator[tuple[Any, ...]]:
    make_importable()
    import timm

    for name in ("resnet18", "mobilenetv3_small_050", "convnext_atto", "regnetx_002"):
        yield f"timm {name}", lambda name=name: timm.create_model(name), *IMAGE
    yield (
        "timm ViT dynamic_img_size",
        lambda: timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, dynamic_img_size=True),
        *IMAGE,
    )
    features = {"features_only": True, "out_indices": (1, 2)}
    yield "timm features", lambda: timm.create_model("efficientnet_lite0", **features), *IMAGE


def _diffusers() -> Iterator[tuple[Any, ...]]:
    import diffusers

    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    small = {"block_out_channels": (16, 32), "norm_num_groups": 8, **blocks}
    yield (
        "diffusers AutoencoderKL decoder",
        lambda: diffusers.AutoencoderKL(**small).decoder,
        (1, 4, 16, 16),
        PLANE,
        (8, 48),
    )
    yield "diffusers VQModel decoder", lambda: diffusers.VQModel(**small).decoder, (1, 3, 16, 16), PLANE, (8, 48)
    tiny = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    counts = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    yield (
        "diffusers AutoencoderTiny",
        lambda: diffusers.AutoencoderTiny(**tiny, **counts),
        (1, 3, 32, 32),
        PLANE,
        (16, 96),
    )
    oobleck = {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2]}
    decoder = {"decoder_channels": 8, "decoder_input_channels": 4}
    yield (
        "diffusers Oobleck decoder",
        lambda: diffusers.AutoencoderOobleck(**oobleck, **decoder).decoder,
        (1, 4, 16),
        LINE,
        (8, 64),
    )


def _transformers() -> Iterator[tuple[Any, ...]]:
    import transformers as hf

    hifigan = {"model_in_dim": 20, "upsample_initial_channel": 32}
    frames = ("batch", "length", None)
    yield (
        "transformers SpeechT5HifiGan",
        lambda: hf.SpeechT5HifiGan(hf.SpeechT5HifiGanConfig(**hifigan)),
        (1, 20, 20),
        frames,
        (8, 64),
    )
    vits = {"hidden_size": 32, "num_hidden_layers": 1, "upsample_initial_channel": 64}
    yield "transformers VITS decoder", lambda: hf.VitsModel(hf.VitsConfig(**vits)).decoder, (1, 192, 20), LINE, (8, 64)
    dac = {
        "encoder_hidden_size": 8,
        "decoder_hidden_size": 32,
        "downsampling_ratios": [2, 2],
        "upsampling_ratios": [2, 2],
    }
    yield "transformers DAC decoder", lambda: hf.DacModel(hf.DacConfig(**dac)).decoder, (1, 32, 16), LINE, (8, 64)
    encodec = {"num_filters": 4, "hidden_size": 8, "upsampling_ratios": [2, 2], "num_lstm_layers": 1}
    yield (
        "transformers EnCodec decoder",
        lambda: hf.EncodecModel(hf.EncodecConfig(**encodec)).decoder,
        (1, 8, 16),
        LINE,
        (8, 64),
    )
    segformer = {
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
        "decoder_hidden_size": 16,
    }
    yield "transformers SegFormer", lambda: hf.SegformerForSemanticSegmentation(hf.SegformerConfig(**segformer)), *IMAGE


class Without(nn.Module):
    """Calls a network with what an example does not give.

    Args:
        inner: The network.
        call: Calls it with a tensor.
    """

    def __init__(self, inner: nn.Module, call: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.inner = inner
        self.call = call

    def forward(self, x: Tensor) -> Any:
        """Calls it."""
        return self.call(self.inner, x)


class PackedLstm(nn.Module):
    """A bidirectional LSTM over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Returns scores for each step; those behind a sequence's end are the bias."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], True, total_length=x.shape[1])
        scores: Tensor = self.head(padded)
        return scores


def _restoring() -> Iterator[tuple[Any, ...]]:
    make_importable()
    from deepinv import models
    from torchsr import models as torchsr

    span = (16, 96)
    small = (1, 3, 32, 32), PLANE, span
    yield "torchsr NinaSR-B0 x2", lambda: torchsr.ninasr_b0(2), *small
    yield "torchsr CARN-M x2", lambda: torchsr.carn_m(2), *small
    drunet = {"nc": (8, 8, 8, 8), "nb": 1, "pretrained": None}
    yield "deepinv DRUNet", lambda: Without(models.DRUNet(3, 3, **drunet), lambda net, x: net(x, 0.1)), *IMAGE
    yield "deepinv UNet", lambda: models.UNet(3, 3, scales=3), *small
    restormer = {"dim": 8, "num_blocks": (1,) * 4, "num_refinement_blocks": 1, "heads": (1, 1, 2, 2)}
    yield "deepinv Restormer", lambda: models.Restormer(3, 3, pretrained=None, **restormer), *small
    yield "deepinv DnCNN", lambda: models.DnCNN(3, 3, depth=5, nf=8, pretrained=None), (1, 3, 32, 32), PLANE, span


def _operators() -> Iterator[tuple[Any, ...]]:
    from neuralop import models

    fno = {"n_modes": (8, 8), "in_channels": 1, "out_channels": 1, "hidden_channels": 8, "n_layers": 2}
    yield "neuraloperator FNO", lambda: models.FNO(**fno), (1, 1, 32, 32), PLANE, (16, 96)


def _torchvision() -> Iterator[tuple[Any, ...]]:
    make_importable()
    from torchvision import models

    bare = {"weights": None, "weights_backbone": None, "num_classes": 3}
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        yield f"torchvision {name}", lambda name=name: getattr(models.segmentation, name)(**bare), *IMAGE
    swin = {"embed_dim": 12, "depths": [1, 2], "num_heads": [1, 2], "window_size": [4, 4], "num_classes": 5}
    yield "torchvision Swin", lambda: models.SwinTransformer(patch_size=[4, 4], **swin), *IMAGE
    for name in ("shufflenet_v2_x0_5", "squeezenet1_1"):
        yield f"torchvision {name}", lambda name=name: getattr(models, name)(weights=None), *IMAGE


def _nnunet() -> Iterator[tuple[Any, ...]]:
    from dynamic_network_architectures.architectures import unet

    layers = {"norm_op": nn.InstanceNorm2d, "nonlin": nn.LeakyReLU}
    for name in ("PlainConvUNet", "ResidualEncoderUNet"):
        yield (
            f"nnU-Net {name}",
            lambda name=name: getattr(unet, name)(1, 3, (4, 8, 16), nn.Conv2d, 3, (1, 2, 2), 1, 2, 1, **layers),
            (1, 1, 32, 32),
            PLANE,
            (16, 96),
        )


def _detecting() -> Iterator[tuple[Any, ...]]:
    import transformers as hf

    resnet = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_queries": 5}
    detr = {**heads, **widths, "encoder_layers": 1, "decoder_layers": 1, "use_timm_backbone": False, "backbone": None}

    def make_detr() -> nn.Module:
        backbone = hf.ResNetConfig(**resnet, out_features=["stage2"])
        return hf.DetrForObjectDetection(hf.DetrConfig(backbone_config=backbone, **detr))

    yield "transformers DETR", make_detr, *IMAGE
    stages = [f"stage{number}" for number in range(1, 5)]

    def make_upernet() -> nn.Module:
        backbone = hf.ConvNextConfig(hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=stages)
        plain = {"hidden_size": 16, "use_auxiliary_head": False, "num_labels": 3}
        return hf.UperNetForSemanticSegmentation(hf.UperNetConfig(backbone_config=backbone, **plain))

    yield "transformers UPerNet", make_upernet, *IMAGE
    mobile = {"image_size": 64, "width_multiplier": 0.5, "n_attn_blocks": [1, 1, 1], "num_labels": 3}
    yield (
        "transformers MobileViTV2",
        lambda: hf.MobileViTV2ForSemanticSegmentation(hf.MobileViTV2Config(**mobile)),
        *IMAGE,
    )
    glpn = {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4, "num_attention_heads": [1, 1, 2, 2]}
    yield "transformers GLPN", lambda: hf.GLPNForDepthEstimation(hf.GLPNConfig(**glpn, decoder_hidden_size=8)), *IMAGE


def _hearing() -> Iterator[tuple[Any, ...]]:
    import transformers as hf

    layers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    front = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    place = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    yield (
        "transformers Wav2Vec2",
        lambda: hf.Wav2Vec2Model(hf.Wav2Vec2Config(**layers, **front, **place)),
        (1, 400),
        ("batch", "length"),
        (100, 1000),
    )


def _own() -> Iterator[tuple[Any, ...]]:
    yield "packed LSTM", PackedLstm, (2, 12, 6), ("batch", "length", None), (4, 40), True
