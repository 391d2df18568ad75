"""Shapes that trials are told on the meta device, against what eager PyTorch makes or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from trtconv.exporter.patches.garbage import old_objects_left_out  # noqa: E402
from trtconv.exporter.patches.meta_shapes import MetaShapes  # noqa: E402

SHAPES = [(1, 8, 1, 1), (2, 8, 5, 7), (2, 4, 5, 7), (2, 8), (2, 8, 3), (1, 8, 1), (1, 8, 3, 4, 5), (3, 1, 8)]
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "batch_norm": lambda x, w: F.batch_norm(x, w, w, w, w),
    "batch_norm training": lambda x, w: F.batch_norm(x, w.clone(), w.clone(), training=True),
    "batch_norm bare": lambda x, w: F.batch_norm(x, None, None),
    "layer_norm": lambda x, w: F.layer_norm(x, (8,), w, w),
    "layer_norm of the rest": lambda x, w: F.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x, w: F.group_norm(x, 2, w, w),
    "group_norm of 3": lambda x, w: F.group_norm(x, 3),
    "instance_norm": lambda x, w: F.instance_norm(x),
    "instance_norm tracked": lambda x, w: F.instance_norm(x, w, w, w, w, use_input_stats=False),
    "gelu": lambda x, w: F.gelu(x, approximate="tanh"),
    "leaky_relu in place": lambda x, w: F.leaky_relu(x, 0.1, True),
    "hardtanh in place": lambda x, w: F.hardtanh(x, inplace=True),
    "add": lambda x, w: x + w,
    "add with alpha": lambda x, w: torch.add(x, x, alpha=2),
    "mul": lambda x, w: (x * 2).mul(x),
    "div to integers": lambda x, w: torch.div(x, 2, rounding_mode="floor"),
    "sub transposed": lambda x, w: x - x.transpose(0, -1),
    **{
        f"{mode} {named}": lambda x, w, mode=mode, named=named: F.interpolate(x, mode=mode, **named)
        for mode in ("linear", "bilinear", "bicubic", "trilinear")
        for named in (
            {"scale_factor": 2.0},
            {"scale_factor": 0.3},
            {"scale_factor": 1.37, "recompute_scale_factor": True},
            {"size": 7, "align_corners": True},
            {"size": (3, 4)},
            {"size": 0},
            {},
        )
    },
}


def _outcome(call: Callable[[Any, Any], Any], x: Any, w: Any) -> tuple[Any, ...]:
    try:
        result = call(x, w)
    except (RuntimeError, ValueError, NotImplementedError):
        return ("refused",)
    return tuple(result.shape), result.dtype, result.is_contiguous(), result is x


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("transposed", [False, True])
def test_shapes_are_those_of_eager_pytorch(name: str, transposed: bool) -> None:
    for shape in SHAPES:
        outcomes = []
        for device in ("cpu", "meta"):
            x, w = torch.empty(shape, device=device).zero_(), torch.empty(8, device=device).zero_()
            x = x.transpose(0, 1) if transposed else x
            with torch.no_grad(), torch.device(device), MetaShapes():
                outcomes.append(_outcome(CALLS[name], x, w))
        assert outcomes[1] == outcomes[0], shape


def test_a_resize_is_answered_without_its_decomposition() -> None:
    x = torch.empty(1, 2, 8, 8, device="meta")
    with torch.profiler.profile() as seen, torch.device("meta"), MetaShapes():
        F.interpolate(x, scale_factor=2.0, mode="bilinear")
    assert {event.key for event in seen.key_averages()} & {"aten::upsample_nearest2d"}


def test_what_was_there_before_is_searched_again_afterwards() -> None:
    import gc

    with old_objects_left_out():
        assert gc.get_freeze_count() > 0
        with old_objects_left_out():  # frozen already: whoever did it melts it
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
