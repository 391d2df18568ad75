"""Networks of public packages, small and with random weights. Packages that are not installed are left out and said so:
`make test-architectures` installs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from export_networks import PLANE, installed, of_images_and_sound

from support.torchvision_operators import make_importable

Axes = tuple[str | None, ...]
WORDS: Axes = ("batch", "length")
FIXED_PLANE: Axes = ("batch", None, None, None)


class Architecture(NamedTuple):
    """A network of a package.

    Args:
        name: The package and the network.
        make: Makes it.
        shape: Of an example of its input.
        axes: Names of the axes that are to be dynamic.
        span: The smallest and the largest size of these, but for the batch.
        words: Size of the vocabulary where the input holds numbers of words; 0 where it holds floats.
    """

    name: str
    make: Callable[[], torch.nn.Module]
    shape: tuple[int, ...]
    axes: Axes
    span: tuple[int, int]
    words: int = 0

    def example(self) -> torch.Tensor:
        """Returns an input."""
        return torch.randint(1, self.words, self.shape) if self.words else torch.randn(self.shape)


def architectures() -> Iterator[Architecture]:
    """Yields all networks whose packages are installed."""
    yield from (Architecture(*row) for row in of_images_and_sound())
    for library in (_torchvision, _timm_classifiers, _encoders, _of_words):
        yield from (Architecture(*row) for row in installed(library))


def _torchvision() -> Iterator[tuple[Any, ...]]:
    make_importable()
    from torchvision import models

    span = (32, 160)
    for name in ("shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "googlenet"):
        extra = {"init_weights": False} if name == "googlenet" else {}
        yield (
            f"torchvision {name}",
            lambda name=name, extra=extra: getattr(models, name)(weights=None, **extra),
            (1, 3, 64, 64),
            PLANE,
            span,
        )
    yield (
        "torchvision LRASPP",
        lambda: models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None),
        (1, 3, 64, 64),
        PLANE,
        span,
    )


def _timm_classifiers() -> Iterator[tuple[Any, ...]]:
    make_importable()
    import timm

    sized = {"img_size": 64}
    swin = {**sized, "window_size": 4, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2)}
    made: list[tuple[str, dict[str, Any], Axes]] = [
        ("swin_tiny_patch4_window7_224", swin, FIXED_PLANE),
        ("vit_tiny_patch16_224", {**sized, "depth": 1}, FIXED_PLANE),
        ("deit_tiny_distilled_patch16_224", {**sized, "depth": 1}, FIXED_PLANE),
        ("mixer_s32_224", sized, FIXED_PLANE),
        ("cait_xxs24_224", {**sized, "depth": 1, "depth_token_only": 1}, FIXED_PLANE),
        ("beit_base_patch16_224", {**sized, "depth": 1, "embed_dim": 48, "num_heads": 2}, FIXED_PLANE),
        ("ghostnet_050", {}, PLANE),
        ("mobilevit_xxs", {}, PLANE),
        ("edgenext_xx_small", {}, PLANE),
        ("poolformer_s12", {"layers": (1, 1, 1, 1), "embed_dims": (8, 16, 24, 32)}, PLANE),
        ("efficientformerv2_s0", sized, FIXED_PLANE),
        ("semnasnet_075", {}, PLANE),
        ("fastvit_t8", {}, PLANE),
    ]
    for name, arguments, axes in made:
        yield (
            f"timm {name}",
            lambda name=name, arguments=arguments: timm.create_model(name, **arguments),
            (1, 3, 64, 64),
            axes,
            (32, 160),
        )


def _hf(model: str, config: str, **arguments: Any) -> Callable[[], Any]:
    def make() -> Any:
        import transformers as hf

        return getattr(hf, model)(getattr(hf, config)(**arguments))

    return make


_TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}


def _encoders() -> Iterator[tuple[Any, ...]]:
    make_importable()
    import diffusers
    import transformers as hf

    image, span = (1, 3, 64, 64), (32, 160)
    seen = {**_TINY, "image_size": 64, "patch_size": 16}
    yield "transformers ViT", _hf("ViTModel", "ViTConfig", **seen), image, FIXED_PLANE, span
    yield "transformers CLIP vision", _hf("CLIPVisionModel", "CLIPVisionConfig", **seen), image, FIXED_PLANE, span
    yield "transformers YOLOS", _hf("YolosModel", "YolosConfig", **{**seen, "image_size": [64, 64]}), image, PLANE, span
    yield "transformers DINOv2", _hf("Dinov2Model", "Dinov2Config", **seen), image, PLANE, span
    small = {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}
    yield "transformers ResNet", _hf("ResNetModel", "ResNetConfig", **small), image, PLANE, span
    next_ = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
    yield "transformers ConvNeXt", _hf("ConvNextModel", "ConvNextConfig", **next_), image, PLANE, span

    def detr() -> Any:
        backbone = hf.ResNetConfig(**small, out_features=["stage2"])
        layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        wide = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "num_queries": 5}
        own = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
        return hf.DetrForObjectDetection(hf.DetrConfig(backbone_config=backbone, **own, **layers, **wide))

    yield "transformers DETR", detr, image, PLANE, span
    heard = {"conv_dim": (8, 8), "conv_stride": (4, 2), "conv_kernel": (8, 4), "num_feat_extract_layers": 2}
    positions = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    wav = _hf("Wav2Vec2Model", "Wav2Vec2Config", **_TINY, **heard, **positions)
    yield "transformers Wav2Vec2", wav, (1, 400), WORDS, (200, 900)
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    unet = {"in_channels": 3, "out_channels": 3, "block_out_channels": (8, 16), "norm_num_groups": 4}

    class Denoise(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = diffusers.UNet2DModel(**unet, **blocks, layers_per_block=1, attention_head_dim=4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x, 10).sample

    yield "diffusers UNet2DModel", Denoise, (1, 3, 32, 32), PLANE, (16, 96)


def _of_words() -> Iterator[tuple[Any, ...]]:
    make_importable()
    import transformers as hf

    short = {"vocab_size": 60, "max_position_embeddings": 64}
    for name in ("Bert", "Roberta", "Electra", "Albert", "MobileBert", "Camembert"):
        extra = {"embedding_size": 16} if name in ("Electra", "Albert") else {}
        if name == "MobileBert":
            extra = {"embedding_size": 32, "intra_bottleneck_size": 32, "num_feedforward_networks": 1}
        if name in ("Roberta", "Camembert"):
            extra = {"pad_token_id": 1}
        make = _hf(f"{name}Model", f"{name}Config", **{**_TINY, **short, **extra})
        yield f"transformers {name}", make, (1, 12), WORDS, (4, 48), 60
    distil = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 48}
    yield (
        "transformers DistilBert",
        _hf("DistilBertModel", "DistilBertConfig", **distil, **short),
        (1, 12),
        WORDS,
        (4, 48),
        60,
    )
    gpt = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64, "vocab_size": 60, "use_cache": False}
    yield "transformers GPT-2", _hf("GPT2Model", "GPT2Config", **gpt), (1, 12), WORDS, (4, 48), 60
    t5 = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 1, "num_heads": 2, "vocab_size": 60}
    yield "transformers T5 encoder", lambda: hf.T5EncoderModel(hf.T5Config(**t5)), (1, 12), WORDS, (4, 48), 60
