"""Fake-quantisation, which changes no shape, and which neither the meta device nor torch.export has."""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from trtconv.exporter.patches import patch


class _WithoutFakeQuantize(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_fake_quantize(func) and args:
            return args[0].clone()
        return func(*args, **(kwargs or {}))


@patch("fake_quantize")
def without_fake_quantize() -> TorchFunctionMode:
    """Leaves fake-quantisation out while it is active."""
    return _WithoutFakeQuantize()


def is_fake_quantize(func: Any) -> bool:
    """Whether a torch function rounds a tensor to the steps of an integer type."""
    return str(getattr(func, "__name__", "")).startswith("fake_quantize_per_")
