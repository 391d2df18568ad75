"""Versions of the packages that matter, read from their metadata without importing them."""

from __future__ import annotations

import importlib.metadata

from trtconv.core.version import __version__

PACKAGES = (
    "onnx",
    "onnxruntime",
    "onnx-graphsurgeon",
    "polygraphy",
    "numpy",
    "cuda-bindings",
    "tensorrt",
    "tensorrt-rtx",
    "torch",
)


def versions() -> dict[str, str | None]:
    """Returns each package's version, None where it is not installed; trtconv's own first."""
    result: dict[str, str | None] = {"trtconv": __version__}
    for package in PACKAGES:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = None
    return result
