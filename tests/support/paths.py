"""Where things lie in the repository."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
MODELS = ROOT / "models"
DATA = TESTS / "data"
SURFACES = DATA / "tensorrt-api"
"""The public surface of each TensorRT's Python bindings."""
