"""`trtconv export` on networks of public packages, by brute force against PyTorch and the plain exporter.

    python bench/export_architectures.py [--only TEXT] [--missing] [-o bench/results/export_architectures.json]

Every network has random weights and is small. Its rule is held against PyTorch at 20 sizes of a seeded choice within
the bounds, off the lattice as well as on it, and its file is run there on ONNX Runtime; so is the file of
torch.onnx.export(dynamo=True) with named dimensions. Ends with 1 where a file is wrong at a size that the rule takes,
where the rule takes a size that PyTorch refuses, or where the plain file is right at a size that the rule loses.
Processor time is without our proof, after one export of a small network, whose imports would burden whoever comes
first, and after a search for what the other left behind. "ratio" is against the plain exporter at the network's own
size, whatever its file takes; "ratio_alike" against a plain file that is right wherever ours is, traced at the
network's own size or at an uneven one beside it ("plain_beside_seconds"), and left out where neither is. What is in
the output file already is kept. Needs the packages of `make test-architectures`; those that are missing are left out
and said so.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import trtconv
from trtconv.exporter.file import proof

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.torchvision_operators import make_importable

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "bench" / "results" / "export_architectures.json"
SIZES, SECONDS, RIGHT = 20, 400, 1e-3
AGAIN, ROUNDS = 1.3, 3
"""Where ours takes so many times as long, both are timed up to so often: shared cores make processor time longer."""
CRASHES = ("spandrel SPAN",)
"""Networks on which torch.onnx.export ends with a segmentation fault (torch 2.13), so that there is nothing beside."""
PLANE, SPACE, LINE = (
    ("batch", None, "height", "width"),
    ("batch", None, "depth", "height", "width"),
    ("batch", None, "length"),
)
Case = tuple[str, Callable[[], torch.nn.Module], tuple[int, ...], tuple[str | None, ...], tuple[int, int]]


def main() -> int:
    """Runs the cases and writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="names that contain this text")
    parser.add_argument("--missing", action="store_true", help="only what is not in the output file")
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    old = json.loads(arguments.output.read_text())["cases"] if arguments.output.exists() else {}
    results: dict[str, Any] = dict(old)
    torch.set_num_threads(1)
    _warm_up()
    for name, *case in _cases():
        if arguments.only in name and not (arguments.missing and name in results):
            results[name] = _limited(*case, name in CRASHES)
            print(name, _line(results[name]), flush=True)
            _write(arguments.output, results)
    bad = [n for n, r in results.items() if r.get("wrong") or r.get("too_many") or r.get("lost")]
    _print_times("all", [r["ratio"] for r in results.values() if r.get("ratio")])
    _print_times(
        "beside a file that takes the same", [r["ratio_alike"] for r in results.values() if r.get("ratio_alike")]
    )
    print(f"bad: {bad or 'none'}")
    return 1 if bad else 0


def _print_times(which: str, ratios: list[float]) -> None:
    if ratios:
        print(f"processor time, {which}: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")


def _warm_up() -> None:
    _plain(lambda: torch.nn.Conv2d(3, 3, 3), (1, 3, 8, 8), PLANE)


def _write(path: Path, results: dict[str, Any]) -> None:
    about = {
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "onnxruntime": onnxruntime.__version__,
        "trtconv": trtconv.__version__,
        "sizes": SIZES,
    }
    path.write_text(json.dumps({**about, "cases": results}, indent=1) + "\n")


def _line(result: dict[str, Any]) -> str:
    keys = (
        "exported",
        "rules",
        "taken",
        "right",
        "wrong",
        "too_many",
        "lost",
        "plain_right",
        "ratio",
        "ratio_alike",
        "why",
    )
    return ", ".join(f"{key} {result[key]}" for key in keys if result.get(key) is not None)[:400]


class _Over(BaseException):
    """No Exception: exporters take those for a question that has no answer, and go on."""


def _limited(*case: Any) -> dict[str, Any]:
    def over(*_: Any) -> None:
        raise _Over(f"more than {SECONDS} s of processor time")

    signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return _measure(*case)
    except (Exception, _Over) as error:
        return {"exported": False, "why": f"{type(error).__name__}: {error}"[:600]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _measure(
    make: Callable[[], torch.nn.Module],
    shape: tuple[int, ...],
    axes: tuple[str | None, ...],
    span: tuple[int, int],
    alone: bool = False,
) -> dict[str, Any]:
    names = [axis for axis in axes if axis is not None and axis != "batch"]
    plain, plain_seconds, plain_why = (None, None, "a segmentation fault") if alone else _plain(make, shape, axes)
    ours, seconds, report, why, module = _ours(make, shape, axes, dict.fromkeys(names, span))
    for _ in range(1, ROUNDS):
        if ours is None or plain_seconds is None or seconds < AGAIN * plain_seconds:
            break
        plain_seconds = min(plain_seconds, _plain(make, shape, axes)[1] or plain_seconds)
        seconds = min(seconds, _ours(make, shape, axes, dict.fromkeys(names, span))[1])
    counts = _against_pytorch(module, shape, axes, span, ours, plain, report)
    rules = {} if report is None else {rule.name: rule.sentence().partition(":")[0] for rule in report.sizes}
    alike = ours is not None and plain is not None and counts["plain_right"] >= counts["right"]
    elsewhere = None
    if ours is not None and plain is not None and not alike:
        other, elsewhere, _ = _plain(make, _beside(shape, axes), axes)
        right = _against_pytorch(module, shape, axes, span, None, other, None)["plain_right"]
        elsewhere = elsewhere if right >= counts["right"] else None
    same = plain_seconds if alike else elsewhere
    return {
        "exported": ours is not None,
        "exporter": None if report is None else report.exporter,
        "why": why,
        "rules": rules or None,
        **counts,
        "seconds": round(seconds, 2),
        "plain_seconds": plain_seconds and round(plain_seconds, 2),
        "plain_beside_seconds": elsewhere and round(elsewhere, 2),
        "plain_why": plain_why,
        "ratio": round(seconds / plain_seconds, 2) if ours is not None and plain_seconds else None,
        "ratio_alike": round(seconds / same, 2) if same else None,
    }


def _beside(shape: tuple[int, ...], axes: tuple[str | None, ...]) -> tuple[int, ...]:
    """Returns an example of uneven sizes about a third larger: a network may run other code at its own size."""
    names = [axis for axis in axes if axis is not None and axis != "batch"]
    return tuple(n + (names.index(a) + 1) * -(-n // 3) if a in names else n for n, a in zip(shape, axes, strict=True))


def _made(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    torch.manual_seed(0)
    return make().eval()


def _ours(make: Any, shape: Any, axes: Any, dims: Any) -> tuple[Any, float, Any, str | None, torch.nn.Module]:
    """Exports; returns the session, processor time without the proof, the report, why not, and the module."""
    module = _made(make)
    with tempfile.TemporaryDirectory() as folder:
        return *_timed(module, shape, axes, dims, Path(folder) / "ours.onnx"), module


def _timed(module: Any, shape: Any, axes: Any, dims: Any, path: Path) -> tuple[Any, float, Any, str | None]:
    spent = [0.0]
    prove = proof.prove

    def timed(*arguments: Any) -> Any:
        started = time.process_time()
        try:
            return prove(*arguments)
        finally:
            spent[0] += time.process_time() - started

    proof.prove = timed
    gc.collect()
    started = time.process_time()
    try:
        name = _input(module)
        options = trtconv.ExportOptions(check=False)
        report = trtconv.export(module, {name: torch.randn(shape)}, path, {name: axes}, dims, options)
    except trtconv.TrtconvError as error:
        return None, time.process_time() - started - spent[0], None, error.message[:600]
    finally:
        proof.prove = prove
    seconds = time.process_time() - started - spent[0]
    if report.exit_code:
        return None, seconds, None, report.attempts[-1].outcome[:600]
    return _session(path), seconds, report, None


def _input(module: Any) -> str:
    import inspect

    return next(iter(inspect.signature(module.forward).parameters))


def _plain(make: Any, shape: Any, axes: Any) -> tuple[Any, float | None, str | None]:
    # A module for each: torch.export leaves tensors without values in modules that write into their weights.
    module = _made(make)
    dims = {axis: torch.export.Dim.AUTO for axis, name in enumerate(axes) if name is not None}
    example = torch.randn(2 if axes[0] == "batch" else shape[0], *shape[1:])
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plain.onnx"
        started = time.process_time()
        try:
            torch.onnx.export(module, (example,), path, dynamic_shapes=(dims,), dynamo=True, verbose=False)
            return _session(path), time.process_time() - started, None
        except Exception as error:
            return None, None, f"{type(error).__name__}: {error}"[:200]


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _against_pytorch(
    module: Any, shape: Any, axes: Any, span: tuple[int, int], ours: Any, plain: Any, report: Any
) -> dict[str, Any]:
    generator = random.Random(19)
    counts = dict.fromkeys(("taken", "valid", "right", "wrong", "too_many", "lost", "plain_right"), 0)
    worst = 0.0
    for number in range(SIZES):
        sizes = {name: generator.randint(*span) for name in axes if name is not None and name != "batch"}
        if number % 2:
            step = 8 if number % 4 == 1 else 32
            sizes = {name: max(size // step * step, span[0]) for name, size in sizes.items()}
        sizes["batch"] = 1 + number % 2
        x = torch.randn([sizes[name] if name is not None else n for name, n in zip(axes, shape, strict=True)])
        try:
            with torch.no_grad():
                wanted = list(_tensors(module(x.clone())))
        except Exception:
            wanted = None
        valid = report is not None and all(r.takes(sizes[r.name]) for r in report.sizes)
        error, theirs = (_error(session, x, wanted) for session in (ours, plain))
        plain_right = theirs is not None and theirs <= RIGHT
        counts["taken"] += wanted is not None
        counts["valid"] += valid
        counts["plain_right"] += plain_right
        counts["too_many"] += valid and wanted is None
        counts["lost"] += ours is not None and wanted is not None and not valid and plain_right
        right = valid and error is not None and error <= RIGHT
        counts["right"] += right
        counts["wrong"] += valid and wanted is not None and not right
        worst = max(worst, error or 0.0) if valid else worst
    return {**counts, "worst": float(f"{worst:.1e}")}


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "values"):
        yield from (t for item in value.values() for t in _tensors(item))
    elif isinstance(value, tuple | list):
        yield from (t for item in value for t in _tensors(item))
    elif hasattr(value, "__dataclass_fields__"):
        yield from (t for key in value.__dataclass_fields__ for t in _tensors(getattr(value, key)))


def _error(session: Any, x: torch.Tensor, wanted: list[torch.Tensor] | None) -> float | None:
    if session is None or wanted is None:
        return None
    try:
        got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    except Exception:
        return float("inf")
    if [a.shape for a in got] != [tuple(b.shape) for b in wanted]:
        return float("inf")
    pairs = zip(got, (b.numpy() for b in wanted), strict=True)
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)


def _cases() -> Iterator[Case]:
    for library in (_monai, _smp, _spandrel, _timm, _diffusers, _transformers):
        try:
            yield from library()
        except Exception as error:
            print(f"left out {library.__name__[1:]}: {type(error).__name__}: {error}", file=sys.stderr)


def _monai() -> Iterator[Case]:
    from monai.networks import nets

    io = {"in_channels": 1, "out_channels": 2}
    unet = {**io, "channels": (4, 8, 16), "strides": (2, 2)}
    kernels = {"kernel_size": [3, 3, 3], "strides": [1, 2, 2], "upsample_kernel_size": [2, 2], "filters": [4, 8, 16]}
    span = (16, 96)
    yield "monai UNet", lambda: nets.UNet(spatial_dims=2, **unet), (1, 1, 32, 32), PLANE, span
    yield "monai UNet residual", lambda: nets.UNet(2, **unet, num_res_units=2), (1, 1, 32, 32), PLANE, span
    yield "monai UNet stride 3", lambda: nets.UNet(2, **{**unet, "strides": (3, 2)}), (1, 1, 36, 36), PLANE, span
    yield "monai UNet 3-D", lambda: nets.UNet(3, **unet), (1, 1, 16, 16, 16), SPACE, (8, 32)
    yield "monai AttentionUnet", lambda: nets.AttentionUnet(2, **unet), (1, 1, 32, 32), PLANE, span
    features = {"features": (4, 4, 8, 8, 16, 4)}
    yield "monai BasicUNet", lambda: nets.BasicUNet(2, **io, **features), (1, 1, 64, 64), PLANE, (32, 128)
    yield "monai DynUNet", lambda: nets.DynUNet(2, **io, **kernels), (1, 1, 32, 32), PLANE, span
    yield "monai SegResNet", lambda: nets.SegResNet(2, init_filters=8, **io), (1, 1, 32, 32), PLANE, span
    yield (
        "monai AutoEncoder",
        lambda: nets.AutoEncoder(2, **{**unet, "strides": (2, 2, 1)}),
        (1, 1, 32, 32),
        PLANE,
        span,
    )
    yield "monai VNet", lambda: nets.VNet(2, 1, 2), (1, 1, 32, 32), PLANE, span


def _smp() -> Iterator[Case]:
    make_importable()
    import segmentation_models_pytorch as smp

    for name in ("Unet", "Linknet", "FPN", "PSPNet", "DeepLabV3Plus", "MAnet", "PAN", "Segformer"):
        encoder = "mit_b0" if name == "Segformer" else "resnet18"
        size = 128 if name == "PAN" else 64  # PAN pools away what is smaller
        yield (
            f"smp {name}",
            lambda name=name, encoder=encoder: getattr(smp, name)(encoder, encoder_weights=None, classes=2),
            (1, 3, size, size),
            PLANE,
            (size // 2, size * 5 // 2),
        )


def _spandrel() -> Iterator[Case]:
    make_importable()
    import importlib

    def take(module: str, name: str, **arguments: Any) -> Callable[[], Any]:
        owner = importlib.import_module(f"spandrel.architectures.{module}")
        return lambda: getattr(owner, name)(**arguments)

    span = (16, 96)
    yield (
        "spandrel ESRGAN x2",
        take("ESRGAN", "ESRGAN", scale=2, num_blocks=2, num_filters=8),
        (1, 3, 32, 32),
        PLANE,
        span,
    )
    yield "spandrel Compact", take("Compact", "Compact", num_feat=8, num_conv=2), (1, 3, 32, 32), PLANE, span
    yield (
        "spandrel SPAN",
        take("SPAN", "SPAN", num_in_ch=3, num_out_ch=3, feature_channels=16),
        (1, 3, 32, 32),
        PLANE,
        span,
    )
    yield "spandrel RealCUGAN x2", take("RealCUGAN", "UpCunet2x"), (1, 3, 33, 35), PLANE, (24, 96)
    yield (
        "spandrel DRUNet",
        take("DRUNet", "DRUNet", in_nc=3, out_nc=3, nc=(8, 8, 8, 8), nb=1),
        (1, 3, 32, 32),
        PLANE,
        span,
    )
    nafnet = {"width": 8, "middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]}
    yield "spandrel NAFNet", take("NAFNet", "NAFNet", **nafnet), (1, 3, 32, 32), PLANE, span
    swinir = {"img_size": 32, "embed_dim": 12, "depths": [1], "num_heads": [2], "window_size": 8, "upscale": 2}
    static = (None, None, "height", "width")
    yield "spandrel SwinIR", take("SwinIR", "SwinIR", **swinir, upsampler="pixelshuffle"), (1, 3, 32, 32), static, span
    yield "spandrel SAFMN", take("SAFMN", "SAFMN", dim=8, n_blocks=1), (1, 3, 32, 32), PLANE, span


def _timm() -> Iterator[Case]:
    make_importable()
    import timm

    for name in ("resnet18", "mobilenetv3_small_050", "convnext_atto", "regnetx_002"):
        yield f"timm {name}", lambda name=name: timm.create_model(name), (1, 3, 64, 64), PLANE, (32, 160)
    yield (
        "timm ViT dynamic_img_size",
        lambda: timm.create_model("vit_tiny_patch16_224", img_size=64, depth=1, dynamic_img_size=True),
        (1, 3, 64, 64),
        PLANE,
        (32, 160),
    )
    features = {"features_only": True, "out_indices": (1, 2)}
    yield "timm features", lambda: timm.create_model("efficientnet_lite0", **features), (1, 3, 64, 64), PLANE, (32, 160)


def _diffusers() -> Iterator[Case]:
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


def _transformers() -> Iterator[Case]:
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
    yield (
        "transformers SegFormer",
        lambda: hf.SegformerForSemanticSegmentation(hf.SegformerConfig(**segformer)),
        (1, 3, 64, 64),
        PLANE,
        (32, 160),
    )


if __name__ == "__main__":
    sys.exit(main())
