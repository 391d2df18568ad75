"""Onnx loaded without metadata: the same module, and nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

CODE = """
import sys
from trtconv.cli.process.loading import load
{before}
load("onnx")
import onnx
print(onnx.__version__, "email" in sys.modules, "importlib.metadata" in sys.modules)
import importlib.metadata
print(importlib.metadata.version("onnx"), importlib.metadata.version("click") != onnx.__version__)
"""


@pytest.mark.parametrize(
    ("before", "is_light"),
    [
        ("", True),
        ("import importlib.metadata", False),
        ("import onnx", False),
        ("from pathlib import Path; Path.glob = lambda *_: iter(())", False),
    ],
)
def test_onnx_knows_its_version_and_metadata_is_as_ever(spawn: Callable[..., Any], before: str, is_light: bool) -> None:
    process = spawn(CODE.replace("{before}", before))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    first, second = (line.split() for line in out.splitlines())
    assert first[1:] == (["False", "False"] if is_light else [first[1], "True"])
    assert second == [first[0], "True"]
