"""What torch needs to export torchvision's operators without their compiled part: shapes, and ONNX's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

TRANSLATIONS: dict[Any, Callable[..., Any]] = {}
"""How torch.export's operators are written in ONNX, for those that the exporter lacks."""
_KEPT: list[torch.library.Library] = []
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)


def declare() -> None:
    """Declares torchvision's operators, which compute zeros: what is exported counts, and ONNX Runtime runs that."""
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    for name, zeros in (("roi_align", _regions), ("deform_conv2d", _deformed)):
        library.impl(name, zeros, "CPU")
        library.impl(name, zeros, "Meta")
    _KEPT.append(library)
    import torchvision.extension

    torchvision.extension._has_ops = torchvision.ops.roi_align.__globals__["_assert_has_ops"] = lambda: True
    for module in ("roi_align", "deform_conv", "boxes"):
        __import__(f"torchvision.ops.{module}", fromlist=["x"])._assert_has_ops = lambda: None
        __import__(f"torchvision.ops.{module}", fromlist=["x"])._has_ops = lambda: True
    from onnxscript import opset20

    def deform_conv(x, weight, offset, mask, bias, *numbers):  # type: ignore[no-untyped-def]
        (sh, sw, ph, pw, dh, dw, group, offset_group, use_mask) = numbers
        attrs = {"strides": [sh, sw], "pads": [ph, pw, ph, pw], "dilations": [dh, dw], "group": group}
        more = [mask] if use_mask else []
        return opset20.DeformConv(x, weight, offset, bias, *more, offset_group=offset_group, **attrs)

    TRANSLATIONS[torch.ops.torchvision.deform_conv2d.default] = deform_conv
    torch.onnx.register_custom_op_symbolic("torchvision::deform_conv2d", _symbolic, 19)


def _regions(x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    return x.new_zeros(rois.shape[0], x.shape[1], height, width)


def _deformed(x: Tensor, weight: Tensor, offset: Tensor, *rest: Any) -> Tensor:
    return x.new_zeros(x.shape[0], weight.shape[0], *offset.shape[2:])


def _symbolic(g: Any, x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any) -> Any:
    sh, sw, ph, pw, dh, dw, group, offset_group, _ = (int(each.node().t("value")) for each in numbers)
    attrs = {"strides_i": [sh, sw], "pads_i": [ph, pw, ph, pw], "dilations_i": [dh, dw]}
    return g.op("DeformConv", x, weight, offset, bias, mask, group_i=group, offset_group_i=offset_group, **attrs)
