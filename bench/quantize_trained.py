"""int8 of a transformer that was trained for its task, by the task's own measure, beside other recipes.

    python bench/quantize_trained.py [--seed N] [--steps 500] [--modelopt PYTHON] [--out FOLDER]     minutes, no GPU

A segmenter (patches, two blocks of attention, two deconvolutions) is trained to tell drawn discs, squares and bars from
a noisy ground. The recipes of bench/quantize.py quantise it from 32 pictures. A row has the mean IoU over the classes
of 128 other pictures, against what was drawn, the error of the scores (root mean square, relative), and the share of
multiply-adds in int8. Writes FOLDER/quantize-trained.json. Exit status: 0 where trtconv loses at most 0.01 of IoU; else
1.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from quantize import OURS, Row, outputs, quantised, recipes, rms, share
from torch import nn
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
_SIDE, _CLASSES, _WIDTH, _HEADS = 64, 4, 64, 4
_CALIBRATING, _HELD_OUT, _BATCH = 32, 128, 16
_LOSS = 0.01


class Block(nn.Module):
    """Attention and a perceptron, each behind a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.mix, self.out = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.up, self.down = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, _ = x.shape
        parts = self.mix(self.before(x)).reshape(batch, count, 3, _HEADS, _WIDTH // _HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, count, _WIDTH))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Segmenter(nn.Module):
    """Scores of each class for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        side = _SIDE // 4
        self.patches = nn.Conv2d(3, _WIDTH, 4, 4)
        self.places = nn.Parameter(0.02 * torch.randn(1, side * side, _WIDTH))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(_WIDTH)
        self.first = nn.ConvTranspose2d(_WIDTH, 32, 2, 2)
        self.second = nn.ConvTranspose2d(32, 16, 2, 2)
        self.head = nn.Conv2d(16, _CLASSES, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.patches(x)
        tokens = self.norm(self.blocks(image.flatten(2).transpose(1, 2) + self.places))
        y = tokens.transpose(1, 2).reshape(image.shape)
        return self.head(torch.relu(self.second(torch.relu(self.first(y)))))


def drawn(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns pictures (count, 3, side, side) and the class of each pixel."""
    down, right = np.mgrid[:_SIDE, :_SIDE]
    pictures = random.normal(0, 0.6, (count, 3, _SIDE, _SIDE)).astype(np.float32)
    classes = np.zeros((count, _SIDE, _SIDE), np.int64)
    for picture, kinds in zip(pictures, classes, strict=True):
        picture += random.uniform(-1, 1, (3, 1, 1))
        for _ in range(random.integers(2, 6)):
            y, x, size, kind = *random.integers(6, _SIDE - 6, 2), random.integers(5, 13), int(random.integers(1, 4))
            far, tall = np.abs(down - y), np.abs(right - x)
            shape = {
                1: far**2 + tall**2 <= size**2,
                2: np.maximum(far, tall) <= size,
                3: (far <= 3) & (tall <= 2 * size),
            }
            # What is drawn later covers what is there.
            picture[:, shape[kind]] += random.uniform(-2, 2, (3, 1))
            kinds[shape[kind]] = kind
    return pictures, classes


def trained(seed: int, steps: int) -> Segmenter:
    """Returns the network after as many steps."""
    torch.manual_seed(seed)
    random, net = np.random.default_rng(seed), Segmenter()
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        pictures, classes = drawn(_BATCH, random)
        loss = F.cross_entropy(net(torch.from_numpy(pictures)), torch.from_numpy(classes))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    return net.eval()


def exported(net: nn.Module) -> onnx.ModelProto:
    """Returns a module as ONNX, of one picture."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = torch.zeros(1, 3, _SIDE, _SIDE)
        torch.onnx.export(net, (example,), file, dynamo=False, opset_version=17, input_names=["x"])
    return onnx.load_from_string(file.getvalue())


def mean_iou(scores: list[Any], classes: np.ndarray) -> float:
    """Returns the mean over the classes of intersection over union, of all pictures together."""
    said = np.concatenate([each.argmax(1) for each in scores])
    found = []
    for kind in range(_CLASSES):
        both, either = ((said == kind) & (classes == kind)).sum(), ((said == kind) | (classes == kind)).sum()
        found.append(both / max(1, either))
    return round(float(np.mean(found)), 4)


def main() -> int:
    """Prints a line for each recipe; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--modelopt", metavar="PYTHON")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    given = parser.parse_args()
    net = exported(trained(given.seed, given.steps))
    random = np.random.default_rng(given.seed + 1)
    calibrating = [{"x": each[None]} for each in drawn(_CALIBRATING, random)[0]]
    pictures, classes = drawn(_HELD_OUT, random)
    held_out = [{"x": each[None]} for each in pictures]
    expected = outputs(net, held_out)
    rows: Row = {"float": {"iou": mean_iou(expected, classes)}}
    for recipe, make in recipes(given.modelopt).items():
        try:
            model = quantised(net, calibrating, make)
            got = outputs(model, held_out)
            part = round(share(model, held_out[0]), 3)
            rows[recipe] = {"iou": mean_iou(got, classes), "rms": rms(expected, got), "int8_share": part}
        except Exception as error:
            rows[recipe] = {"failed": f"{type(error).__name__}: {error}"[:200]}
        print(recipe, json.dumps(rows[recipe]), flush=True)
        document = {"date": str(datetime.date.today()), "seed": given.seed, "steps": given.steps, "recipes": rows}
        (given.out / "quantize-trained.json").write_text(json.dumps(document, indent=1) + "\n")
    print("float", rows["float"])
    return 0 if rows[OURS].get("iou", 0.0) >= rows["float"]["iou"] - _LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
