"""torchvision beside a torch that its compiled part is not for: no test calls that part."""

from __future__ import annotations

import importlib.util
import sys

import torch

_KEPT: list[torch.library.Library] = []


def make_importable() -> None:
    """Declares the operators that torchvision wants to find, where it is installed and cannot be imported."""
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
