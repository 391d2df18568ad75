"""Exports of networks of public packages by both of torch's exporters, for `bench/run.py exports`.

    python bench/real_exports.py FOLDER [NAME...]

takes the networks below, small ones and some of 10 to 100 MB, at fixed sizes, as torch.onnx.export writes them:
NAME.dynamo.onnx and NAME.script.onnx. Those that an exporter does not take are left out and said so; those that are
there are kept.
`make test-architectures` installs the packages.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import torch
from architectures import architectures
from export_networks import make_importable

SMALL = (
    "monai UNet residual",
    "monai AttentionUnet",
    "smp Unet",
    "spandrel ESRGAN x2",
    "spandrel SwinIR",
    "timm mobilenetv3_small_050",
    "timm convnext_atto",
    "diffusers AutoencoderKL decoder",
    "transformers SpeechT5HifiGan",
    "transformers SegFormer",
    "torchvision LRASPP",
    "timm swin_tiny_patch4_window7_224",
    "transformers DETR",
    "transformers Bert",
    "transformers GPT-2",
)
"""Of 20 kB to 4 MB, most of them."""
FORMS = {"dynamo": True, "script": False}
Network = tuple[str, Callable[[], torch.nn.Module], torch.Tensor]


def networks() -> Iterator[Network]:
    """Yields name, maker and input of all networks."""
    small = {each.name: each for each in architectures() if each.name in SMALL}
    for name in SMALL:
        yield name, small[name].make, small[name].example()
    yield from large()


def large() -> Iterator[Network]:
    """Yields networks of 10 to 100 MB."""
    make_importable()
    import transformers as hf
    from torchvision import models

    yield "resnet50", lambda: models.resnet50(weights=None), torch.randn(1, 3, 224, 224)
    yield "resnet18", lambda: models.resnet18(weights=None), torch.randn(1, 3, 224, 224)
    yield "mobilenet_v3_large", lambda: models.mobilenet_v3_large(weights=None), torch.randn(1, 3, 224, 224)
    bert = hf.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048, vocab_size=8000
    )
    yield "bert small", lambda: hf.BertModel(bert), torch.randint(1, 1000, (1, 128))
    yield "vit_small", _vit, torch.randn(1, 3, 224, 224)


def _vit() -> torch.nn.Module:
    import timm

    module: torch.nn.Module = timm.create_model("vit_small_patch16_224")
    return module


def export(folder: Path, names: Collection[str] = ()) -> Iterator[Path]:
    """Exports networks, all where no names are given, and yields the files."""
    for name, make, example in networks():
        for form, dynamo in FORMS.items() if not names or name in names else ():
            path = folder / f"{name.replace(' ', '_')}.{form}.onnx"
            if not path.exists() and (why := _export(make, example, path, dynamo)):
                path.unlink(missing_ok=True)
                print(f"left out {path.name}: {why}", file=sys.stderr)
                continue
            yield path


def _export(make: Callable[[], torch.nn.Module], example: torch.Tensor, path: Path, dynamo: bool) -> str:
    """Exports a network; returns why it could not be done."""
    torch.manual_seed(0)
    given: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False} if dynamo else {"dynamo": False}
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(make().eval(), (example,), str(path), **given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return ""


if __name__ == "__main__":
    for file in export(Path(sys.argv[1]), sys.argv[2:]):
        print(file.name, file.stat().st_size)
