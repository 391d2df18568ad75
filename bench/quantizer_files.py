"""Writes the files that the quantisers of other people make of small networks with random weights.

    PYTHON bench/quantizer_files.py FOLDER [--seed N] [--only TEXT]

PYTHON has torch, onnxruntime, and those of nvidia-modelopt, nncf, brevitas, amd-quark, aimet-onnx and
onnx-neural-compressor that are to be tried. FOLDER gets NETWORK__TOOL-SETTING.onnx, and failed.json with what a tool
itself refused. Each is made in a process of its own; bench/quantizers.py judges the files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import quantize_networks  # noqa: E402
from measuring import told  # noqa: E402

_CALIBRATING = 8
_LIMIT = 240.0
"""Seconds that a tool may take for one file."""
_ATTENTION = ("ViT", "ViT + deconvolutions", "BERT", "SegFormer-like", "U-Net with attention", "perceptron")
"""Networks of quantize_networks.py that are taken besides."""
Feeds = dict[str, Any]


class Source(NamedTuple):
    """A float network.

    Args:
        path: Its .onnx file.
        feeds: Inputs to calibrate with.
        module: The module that it was exported from, where there is one.
    """

    path: Path
    feeds: list[Feeds]
    module: nn.Module | None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The inputs, for a module."""
        return [torch.from_numpy(each["x"]) for each in self.feeds]


class Reader:
    """Hands inputs to calibrators of ONNX Runtime and those built on it."""

    def __init__(self, feeds: list[Feeds]) -> None:
        self._feeds = feeds
        self.rewind()

    def rewind(self) -> None:
        """Begins again."""
        self._left = iter(self._feeds)

    def get_next(self) -> Feeds | None:
        """Returns the next input."""
        return next(self._left, None)


class UNet(nn.Module):
    """Two levels with skips that are joined."""

    def __init__(self, kernel: int, rank: int = 2) -> None:
        super().__init__()
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if rank == 2 else (nn.Conv3d, nn.BatchNorm3d)
        up, pool = (nn.ConvTranspose2d, nn.MaxPool2d) if rank == 2 else (nn.ConvTranspose3d, nn.MaxPool3d)
        extra = {"padding": 1, "output_padding": 1} if kernel == 3 else {}

        def block(ins: int, outs: int) -> nn.Module:
            return nn.Sequential(conv(ins, outs, 3, padding=1), norm(outs), nn.ReLU())

        self.one, self.two, self.middle = block(3, 16), block(16, 32), block(32, 64)
        self.pool = pool(2)
        self.up2, self.up1 = up(64, 32, kernel, 2, **extra), up(32, 16, kernel, 2, **extra)
        self.back2, self.back1, self.head = block(64, 32), block(32, 16), conv(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.one(x)
        two = self.two(self.pool(one))
        y = self.back2(torch.cat([self.up2(self.middle(self.pool(two))), two], 1))
        return self.head(self.back1(torch.cat([self.up1(y), one], 1)))


class Residual(nn.Module):
    """A decoder whose deconvolutions are added to what they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU())
        self.two = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32))
        self.head = nn.ConvTranspose2d(32, 8, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.one(x)
        return self.head(torch.relu(self.up(self.two(one)) + one))


def _chain(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*layers)


def modules() -> Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Returns name to what makes a module, and the shape of its input."""
    image = (1, 3, 32, 32)
    relu = nn.ReLU()
    down = nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), relu, nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), relu
    op = {"stride": 2, "output_padding": 1}
    deep = nn.ConvTranspose1d(20, 64, 16, 8, 4), nn.LeakyReLU(0.1), nn.ConvTranspose1d(64, 32, 4, 2, 1)
    groups = nn.ConvTranspose2d(32, 32, 4, 2, 1, groups=4), relu, nn.ConvTranspose2d(32, 32, 2, 2, groups=32)
    return {
        "unet_k2": (lambda: UNet(2), image),
        "unet_k3op1": (lambda: UNet(3), image),
        "unet3d": (lambda: UNet(2, 3), (1, 3, 8, 16, 16)),
        "ae_k4": (_chain(*down, nn.ConvTranspose2d(64, 32, 4, 2, 1), relu, nn.ConvTranspose2d(32, 4, 4, 2, 1)), image),
        "ae_k3p0op1": (
            _chain(nn.Conv2d(3, 32, 3, 2), relu, nn.ConvTranspose2d(32, 16, 3, **op), relu, nn.Conv2d(16, 4, 1)),
            image,
        ),
        "dw": (_chain(nn.Conv2d(3, 32, 3, 2, 1), relu, *groups, relu, nn.Conv2d(32, 4, 1)), image),
        "last10": (_chain(*down, nn.ConvTranspose2d(64, 64, 2, 2), relu, nn.ConvTranspose2d(64, 10, 2, 2)), image),
        "resdec": (Residual, image),
        "voc1d": (_chain(*deep, nn.LeakyReLU(0.1), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh()), (1, 20, 24)),
    }


def exported(module: nn.Module, x: torch.Tensor, path: Path) -> None:
    """Writes a module as torch's exporter by tracing does, with all sizes but the channels free."""
    axes = {axis: name for axis, name in enumerate(("batch", None, "height", "width", "depth")) if name}
    axes = {axis: name for axis, name in axes.items() if axis < x.ndim}
    torch.onnx.export(module, (x,), path, dynamo=False, opset_version=17, input_names=["x"], dynamic_axes={"x": axes})


def sources(folder: Path, seed: int) -> Iterator[tuple[str, Source]]:
    """Yields name and network."""
    random = np.random.default_rng(seed)
    for name, (make, shape) in modules().items():
        torch.manual_seed(seed)
        module = make().eval()
        for each in module.modules():
            if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
                each.running_mean.normal_(0, 0.3)
                each.running_var.uniform_(0.5, 2)
        feeds = [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(_CALIBRATING)]
        exported(module, torch.from_numpy(feeds[0]["x"]), folder / f"{name}.onnx")
        yield name, Source(folder / f"{name}.onnx", feeds, module)
    for name in _ATTENTION:
        model = quantize_networks.NETWORKS[name](seed)
        short = name.replace(" ", "").lower()
        onnx.save(model, folder / f"{short}.onnx")
        yield short, Source(folder / f"{short}.onnx", quantize_networks.samples(model, _CALIBRATING, seed + 1), None)


def by_onnxruntime(source: Source, output: Path, *, folded: bool = True, **settings: Any) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    ready = source.path.with_suffix(".ready.onnx")
    if folded:
        quant_pre_process(str(source.path), str(ready), skip_symbolic_shape=True)
    made = {
        "activation_type": QuantType[settings.pop("x", "QUInt8")],
        "weight_type": QuantType[settings.pop("w", "QInt8")],
        "quant_format": QuantFormat[settings.pop("format", "QDQ")],
        "calibrate_method": CalibrationMethod[settings.pop("method", "MinMax")],
    }
    if "QFLOAT8E4M3FN" in made["activation_type"].name:
        made["calibrate_method"] = CalibrationMethod.Distribution
    # Operators of an opset that has the types.
    if settings.pop("newest", False):
        model = onnx.version_converter.convert_version(onnx.load(ready), 21)
        onnx.save(model, ready)
    quantize_static(str(ready if folded else source.path), str(output), Reader(source.feeds), **made, **settings)


def by_modelopt(source: Source, output: Path, **settings: Any) -> None:
    from modelopt.onnx.quantization import quantize

    data = {"x": np.concatenate([each["x"] for each in source.feeds])}
    quantize(
        str(source.path),
        quantize_mode="int8",
        calibration_data=data,
        output_path=str(output),
        log_level="ERROR",
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        **settings,
    )


def by_modelopt_torch(source: Source, output: Path, *, mended: bool = False) -> None:
    import copy

    import modelopt.torch.quantization as mtq

    assert source.module is not None
    settings = copy.deepcopy(mtq.INT8_DEFAULT_CFG)
    if mended:
        for rank in (1, 2, 3):
            right = {"parent_class": f"nn.ConvTranspose{rank}d", "quantizer_name": "*weight_quantizer"}
            settings["quant_cfg"].append({**right, "cfg": {"num_bits": 8, "axis": 1}})
    module = mtq.quantize(source.module, settings, lambda m: [m(each) for each in source.tensors])
    exported(module, source.tensors[0], output)


def by_nncf(source: Source, output: Path, **settings: Any) -> None:
    import nncf

    picked = {"target_device": nncf.TargetDevice.GPU} if settings.get("gpu") else {}
    if settings.get("mixed"):
        picked["preset"] = nncf.QuantizationPreset.MIXED
    model = onnx.load(source.path)
    onnx.save(nncf.quantize(model, nncf.Dataset(source.feeds), subset_size=len(source.feeds), **picked), output)


def by_brevitas(source: Source, output: Path, *, channels: bool) -> None:
    from brevitas.export import export_onnx_qcdq
    from brevitas.graph.calibrate import calibration_mode
    from brevitas.graph.quantize import LAYERWISE_COMPUTE_LAYER_MAP, layerwise_quantize
    from brevitas.quant import Int8WeightPerChannelFloat

    assert source.module is not None
    layers = {kind: (row[0], dict(row[1])) if row else None for kind, row in LAYERWISE_COMPUTE_LAYER_MAP.items()}
    for row in layers.values():
        if row and channels and "weight_quant" in row[1] and "Conv" in row[0].__name__:
            row[1]["weight_quant"] = Int8WeightPerChannelFloat
    module = layerwise_quantize(source.module, layers)
    with torch.no_grad(), calibration_mode(module):
        for each in source.tensors:
            module(each)
    export_onnx_qcdq(module, args=(source.tensors[0],), export_path=str(output), opset_version=17, dynamo=False)


def by_quark(source: Source, output: Path, *, setting: str) -> None:
    from quark.onnx import ModelQuantizer
    from quark.onnx.quantization.config import Config, get_default_config

    config = Config(global_quant_config=get_default_config(setting))
    ModelQuantizer(config).quantize_model(str(source.path), str(output), Reader(source.feeds))


def by_aimet(source: Source, output: Path, *, symmetric: bool) -> None:
    from aimet_onnx import QuantizationSimModel

    simulated = QuantizationSimModel(onnx.load(source.path))
    if symmetric:
        for each in simulated.qc_quantize_op_dict.values():
            each.use_symmetric_encodings = True
    simulated.compute_encodings(source.feeds)
    onnx.save(simulated.to_onnx_qdq(), output)


def by_compressor(source: Source, output: Path, **settings: Any) -> None:
    from onnx_neural_compressor.quantization import config, quantize
    from onnxruntime.quantization import QuantFormat

    made = {**settings, "quant_format": QuantFormat[settings.get("quant_format", "QDQ")]}
    quantize(str(source.path), str(output), config.StaticQuantConfig(Reader(source.feeds), **made))


_SYMMETRIC = {"ActivationSymmetric": True, "WeightSymmetric": True}
_S8 = {"x": "QInt8", "w": "QInt8"}
_PLAIN = {**_SYMMETRIC, "QuantizeBias": False}
_OF_MODULES = ("modelopt-torch", "brevitas")
RECIPES: Mapping[str, tuple[Callable[..., None], Mapping[str, Any]]] = {
    "onnxruntime-default": (by_onnxruntime, {}),
    "onnxruntime-default_unfolded": (by_onnxruntime, {"folded": False}),
    "onnxruntime-s8s8": (by_onnxruntime, _S8),
    "onnxruntime-s8s8_channels": (by_onnxruntime, {**_S8, "per_channel": True}),
    "onnxruntime-u8u8_channels": (by_onnxruntime, {"w": "QUInt8", "per_channel": True}),
    "onnxruntime-u8u8_symmetric": (by_onnxruntime, {"w": "QUInt8", "extra_options": _SYMMETRIC}),
    "onnxruntime-recommended": (by_onnxruntime, {**_S8, "per_channel": True, "extra_options": _PLAIN}),
    "onnxruntime-percentile": (
        by_onnxruntime,
        {**_S8, "per_channel": True, "method": "Percentile", "extra_options": _PLAIN},
    ),
    "onnxruntime-entropy": (by_onnxruntime, {**_S8, "method": "Entropy"}),
    "onnxruntime-qoperator": (by_onnxruntime, {"format": "QOperator"}),
    "onnxruntime-qoperator_channels": (by_onnxruntime, {"format": "QOperator", "per_channel": True}),
    "onnxruntime-a16w8": (by_onnxruntime, {"x": "QUInt16", "newest": True}),
    "onnxruntime-w4": (by_onnxruntime, {"x": "QInt8", "w": "QInt4", "newest": True}),
    "onnxruntime-float8": (by_onnxruntime, {"x": "QFLOAT8E4M3FN", "w": "QFLOAT8E4M3FN", "newest": True}),
    "onnxruntime-pairs": (by_onnxruntime, {**_S8, "extra_options": {"AddQDQPairToWeight": True}}),
    "onnxruntime-dedicated": (by_onnxruntime, {**_S8, "extra_options": {"DedicatedQDQPair": True}}),
    "onnxruntime-reduced": (by_onnxruntime, {"reduce_range": True}),
    "modelopt-default": (by_modelopt, {}),
    "modelopt-skips": (
        by_modelopt,
        {"op_types_to_quantize": ["Conv", "ConvTranspose", "MatMul", "Gemm", "MaxPool", "Concat", "Add"]},
    ),
    "modelopt-entropy": (by_modelopt, {"calibration_method": "entropy"}),
    "modelopt-torch-default": (by_modelopt_torch, {}),
    "modelopt-torch-axis1": (by_modelopt_torch, {"mended": True}),
    "nncf-default": (by_nncf, {}),
    "nncf-gpu": (by_nncf, {"gpu": True}),
    "nncf-mixed": (by_nncf, {"mixed": True}),
    "brevitas-channels": (by_brevitas, {"channels": True}),
    "brevitas-tensor": (by_brevitas, {"channels": False}),
    "quark-XINT8": (by_quark, {"setting": "XINT8"}),
    "quark-A8W8": (by_quark, {"setting": "A8W8"}),
    "aimet-default": (by_aimet, {"symmetric": False}),
    "aimet-symmetric": (by_aimet, {"symmetric": True}),
    "compressor-qdq": (by_compressor, {}),
    "compressor-qdq_channels": (by_compressor, {"per_channel": True}),
    "compressor-qoperator": (by_compressor, {"quant_format": "QOperator"}),
}
"""Tool and setting to how a file is made."""


def _made(recipe: str, source: Source, output: Path, line: Any) -> None:
    """Makes a file, in a process of its own; tells what the tool raised, nothing where it did not."""
    logging.disable(logging.CRITICAL)
    # Some tools write files of their own where they are called.
    os.chdir(source.path.parent)
    make, settings = RECIPES[recipe]
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            make(source, output, **settings)
        line.send("" if output.exists() else "it wrote nothing")
    except Exception as error:  # tools refuse in many ways
        line.send(f"{type(error).__name__}: {str(error)[:200]}")


def main() -> int:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    output = args.folder.resolve()
    torch.set_num_threads(1)
    failed = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources(Path(folder), args.seed):
            for recipe in RECIPES:
                file = f"{name}__{recipe}.onnx"
                if args.only not in file or (source.module is None and recipe.startswith(_OF_MODULES)):
                    continue
                said, code = told(_made, (recipe, source, output / file), _LIMIT)
                ended = f"more than {_LIMIT:.0f} s" if code is None else f"exit status {code}"
                failed[file] = str(said[0]) if said else ended
                sys.stdout.write(f"{file}: {failed[file] or 'written'}\n")
                sys.stdout.flush()
    (args.folder / "failed.json").write_text(json.dumps({k: v for k, v in failed.items() if v}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
