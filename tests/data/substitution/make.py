"""Writes the models beside it: ends of detectors and deformable attention, written as frameworks write them.

python tests/data/substitution/make.py      needs torch 2.13
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).resolve().parent


class Suppression(torch.autograd.Function):
    """ONNX's NonMaxSuppression."""

    @staticmethod
    def forward(ctx: Any, boxes: Any, scores: Any, most: int, iou: float, least: float) -> Any:
        return torch.stack([torch.zeros(5).long(), torch.zeros(5).long(), torch.arange(5)], 1)

    @staticmethod
    def symbolic(g: Any, boxes: Any, scores: Any, most: int, iou: float, least: float) -> Any:
        numbers = [g.op("Constant", value_t=torch.tensor([each])) for each in (most, iou, least)]
        return g.op("NonMaxSuppression", boxes, scores, *numbers)


class ClassesMovedApart(nn.Module):
    """One class a box, all classes in one suppression; rows (image, box, class, score)."""

    def forward(self, x: Any) -> Any:
        middle, half, scores = x[..., :2], x[..., 2:4] / 2, x[..., 5:] * x[..., 4:5]
        boxes = torch.cat([middle - half, middle + half], -1)
        best, kind = scores.max(2, keepdim=True)
        kept = Suppression.apply(boxes + kind.float() * 4096, best.transpose(1, 2), 100, 0.45, 0.25)
        image, box = kept[:, 0], kept[:, 2]
        found = [image.unsqueeze(1).float(), boxes[image, box], kind[image, box].float(), best[image, box]]
        return torch.cat(found, 1)


class PaddedByTopK(nn.Module):
    """Every class of a box; boxes with scores (images, 50, 5), and classes (images, 50), -1 beyond the last."""

    def forward(self, boxes: Any, scores: Any) -> Any:
        turned = scores.permute(0, 2, 1)
        kept = Suppression.apply(boxes, turned, 200, 0.5, 0.05)
        image, kind, box = kept[:, 0], kept[:, 1], kept[:, 2]
        images = boxes.shape[0]
        found = torch.cat([boxes[image, box], turned[image, kind, box].unsqueeze(1)], 1).unsqueeze(0)
        own = image == torch.arange(images).unsqueeze(1)
        found = found.repeat(images, 1, 1).where(own.unsqueeze(-1), found.new_zeros(1))
        kinds = kind.unsqueeze(0).repeat(images, 1).where(own, kind.new_ones(1) * -1)
        found = torch.cat((found, found.new_zeros((images, 60, 5))), 1)
        kinds = torch.cat((kinds, -kinds.new_ones((images, 60))), 1)
        best = found[:, :, -1].topk(50, dim=1)[1]
        at = torch.arange(images).view(-1, 1)
        return found[at, best], kinds[at, best]


class FilteredFirst(nn.Module):
    """One picture: boxes above a score, classes moved apart by the largest coordinate, the best 30; as torchvision."""

    def forward(self, boxes: Any, scores: Any) -> Any:
        best, kind = scores.max(1)
        passed = torch.nonzero(best > 0.3).squeeze(1)
        boxes, best, kind = boxes[passed], best[passed], kind[passed]
        moved = boxes + (kind.to(boxes) * (boxes.max() + 1))[:, None]
        kept = Suppression.apply(moved[None], best[None, None], 100000, 0.5, 0.0)[:, 2][:30]
        return boxes[kept], best[kept], kind[kept]


class Attention(nn.Module):
    """As its authors wrote it in PyTorch, over two levels."""

    levels = ((6, 8), (3, 4))

    def forward(self, value: Any, places: Any, weights: Any) -> Any:
        images, _, heads, channels = value.shape
        _, queries, _, levels, points, _ = places.shape
        pictures = value.split([h * w for h, w in self.levels], dim=1)
        grids, sampled = 2 * places - 1, []
        for level, (height, width) in enumerate(self.levels):
            picture = pictures[level].flatten(2).transpose(1, 2).reshape(images * heads, channels, height, width)
            grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
            sampled.append(F.grid_sample(picture, grid, mode="bilinear", padding_mode="zeros", align_corners=False))
        by_head = weights.transpose(1, 2).reshape(images * heads, 1, queries, levels * points)
        added = (torch.stack(sampled, dim=-2).flatten(-2) * by_head).sum(-1)
        return added.view(images, heads * channels, queries).transpose(1, 2).contiguous()


class AttentionByConcat(Attention):
    """Softmax inside, levels joined on the points' axis, and multiplied as a sum of products."""

    def forward(self, value: Any, places: Any, weights: Any) -> Any:
        images, _, heads, channels = value.shape
        queries, levels, points = places.shape[1], places.shape[3], places.shape[4]
        weights = weights.softmax(-1)
        sampled, start = [], 0
        for level, (height, width) in enumerate(self.levels):
            picture = value[:, start : start + height * width].permute(0, 2, 3, 1)
            start += height * width
            grid = places[:, :, :, level].permute(0, 2, 1, 3, 4).reshape(images * heads, queries, points, 2)
            grid = (grid - 0.5) * 2
            sampled.append(F.grid_sample(picture.reshape(-1, channels, height, width), grid, align_corners=False))
        joined = torch.cat(sampled, -1).view(images, heads, channels, queries, levels * points)
        added = (joined * weights.permute(0, 2, 1, 3).unsqueeze(2)).sum(-1)
        return added.permute(0, 3, 1, 2).reshape(images, queries, heads * channels)


def _write(name: str, module: nn.Module, *inputs: Any, dynamic: Any = None) -> None:
    names = [f"x{number}" for number in range(len(inputs))]
    axes = {each: {0: "images"} for each in names} if dynamic else None
    torch.onnx.export(
        module, inputs, str(HERE / f"{name}.onnx"), input_names=names, dynamic_axes=axes, opset_version=17, dynamo=False
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _write("moved-apart", ClassesMovedApart(), torch.rand(1, 300, 9))
    _write("moved-apart-batch", ClassesMovedApart(), torch.rand(2, 300, 9), dynamic=True)
    _write("padded", PaddedByTopK(), torch.rand(2, 120, 4), torch.rand(2, 120, 3))
    _write("filtered-first", FilteredFirst(), torch.rand(150, 4), torch.rand(150, 5))
    value, places = torch.rand(1, 60, 2, 8), torch.rand(1, 9, 2, 2, 4, 2)
    _write("attention", Attention(), value, places, torch.rand(1, 9, 2, 2, 4))
    _write("attention-by-concat", AttentionByConcat(), value, places, torch.rand(1, 9, 2, 8))
