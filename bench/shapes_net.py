"""A small network, trained here: noisy pictures of drawn shapes in, clean pictures and a class for each pixel out."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import recipes
import torch
from numpy.typing import NDArray
from torch import nn

_CLASSES = 4
"""Background, disc, square, cross."""
_SIZE, _STEPS, _BATCH = 64, 700, 16
_SEED = 3


class Net(nn.Module):
    """A U-Net with two deconvolutions; three channels of the result are the clean picture, four the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = _block(3, 16), _block(16, 32), _block(32, 64)
        self.pool = nn.MaxPool2d(2)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1)
        self.down2, self.down1 = _block(64, 32), _block(32, 16)
        self.head = nn.Conv2d(16, 3 + _CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the clean picture and the classes, (N, 7, H, W)."""
        one = self.first(x)
        two = self.second(self.pool(one))
        low = self.third(self.pool(two))
        two = self.down2(torch.cat([self.up2(low), two], 1))
        return self.head(self.down1(torch.cat([self.up1(two), one], 1)))


def _block(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def draw(random: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Draws a few shapes of random colours, and adds noise."""
    clean = np.broadcast_to(random.uniform(0, 0.3, (3, 1, 1)), (3, _SIZE, _SIZE)).astype(np.float32).copy()
    classes = np.zeros((_SIZE, _SIZE), np.int64)
    rows, columns = np.mgrid[:_SIZE, :_SIZE]
    for _ in range(random.integers(2, 6)):
        kind, radius = int(random.integers(1, _CLASSES)), int(random.integers(5, 14))
        y, x = random.integers(0, _SIZE, 2)
        down, right = np.abs(rows - y), np.abs(columns - x)
        disc, square = down**2 + right**2 <= radius**2, np.maximum(down, right) <= radius
        inside = {1: disc, 2: square, 3: square & (np.minimum(down, right) <= radius // 3)}[kind]
        clean[:, inside] = random.uniform(0.3, 1, (3, 1))
        classes[inside] = kind
    noisy = clean + random.normal(0, 0.15, clean.shape)
    return {"x": noisy[None].astype(np.float32), "clean": clean[None], "classes": classes[None]}


def trained() -> tuple[onnx.ModelProto, list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
    """Returns the network, pictures to calibrate with, and others."""
    torch.manual_seed(_SEED)
    torch.set_num_threads(2)
    random = np.random.default_rng(_SEED)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    # Most of a picture is background.
    weights = torch.tensor([0.2, 1, 1, 1])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=_STEPS)
    for _ in range(_STEPS):
        drawn = [draw(random) for _ in range(_BATCH)]
        batch = {name: torch.from_numpy(np.concatenate([each[name] for each in drawn])) for name in drawn[0]}
        result = net(batch["x"])
        loss = nn.functional.mse_loss(result[:, :3], batch["clean"]) * 20
        loss = loss + nn.functional.cross_entropy(result[:, 3:], batch["classes"], weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    file = io.BytesIO()
    example = torch.from_numpy(draw(random)["x"])
    axes = {"x": {0: "batch", 2: "height", 3: "width"}}
    torch.onnx.export(
        net.eval(), (example,), file, input_names=["x"], output_names=["y"], dynamic_axes=axes, opset_version=17,
        dynamo=False,
    )  # fmt: skip
    pictures = [draw(random) for _ in range(96)]
    return onnx.load_model_from_string(file.getvalue()), pictures[:64], pictures[64:]


def judged(net: onnx.ModelProto, pictures: Sequence[dict[str, NDArray[Any]]]) -> dict[str, float]:
    """Returns how good a network is: PSNR of the clean picture in dB, and the mean IoU of the shapes."""
    squared, hits, union = [], np.zeros(_CLASSES), np.zeros(_CLASSES)
    for each in pictures:
        (result,) = recipes.outputs(net, {"x": each["x"]})
        squared.append(float(np.square(np.clip(result[:, :3], 0, 1) - each["clean"]).mean()))
        found = result[:, 3:].argmax(1)
        for kind in range(_CLASSES):
            hits[kind] += ((found == kind) & (each["classes"] == kind)).sum()
            union[kind] += ((found == kind) | (each["classes"] == kind)).sum()
    return {"psnr_db": float(-10 * np.log10(np.mean(squared))), "mean_iou": float((hits / union).mean())}
