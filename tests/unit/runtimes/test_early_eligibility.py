"""Which builds are begun early: those of one file as it is, by TensorRT-RTX."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from trtconv.core.builder_options import BuilderOptions
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt.early import runtime

PLAIN = BuildRequest(Path("m.onnx"), target=Target("rtx"))


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The families of TensorRT that are installed."""
    installed = {"rtx"}
    monkeypatch.setattr(runtime, "is_installed", lambda target: target.family in installed)
    return installed


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"engine": Path("e.engine"), "report": Path("r.json")},
        {"dims": {"n": 2}},
        {"prove": "none"},
        {"target": None},
        {"target": Target("rtx", (1, 7))},
        {"rewrite": False},
        {"rounded": True, "split": "2"},
        {"timing_folder": Path("folder")},
    ],
)
def test_plain_builds_are_begun(changes: dict[str, Any]) -> None:
    assert runtime.is_eligible(dataclasses.replace(PLAIN, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"target": Target("tensorrt")},
        {"precision": "fp16"},
        {"precision": "auto"},
        {"node_precisions": {"a": "fp16"}},
        {"options": BuilderOptions(refittable=True)},
        {"tune": True},
        {"best_of": 2},
        {"io": {"x": "fp16"}},
        {"images": "image=8x8"},
        {"substitute": ("efficient-nms",)},
        {"plugins": ("p.so",)},
        {"references": ("r.py",)},
        {"extend": ("e.py",)},
        {"timing_cache": Path("t.cache")},
        {"tactics_of": Path("e.engine.json")},
        {"partition": True},
    ],
)
def test_others_are_not(changes: dict[str, Any]) -> None:
    assert not runtime.is_eligible(dataclasses.replace(PLAIN, **changes))


def test_tensorrt_itself_comes_first_where_it_is_there(families: set[str]) -> None:
    families.add("tensorrt")
    assert not runtime.is_eligible(dataclasses.replace(PLAIN, target=None))
    assert runtime.is_eligible(PLAIN)


def test_without_tensorrt_rtx_nothing_is_begun(families: set[str]) -> None:
    families.clear()
    assert not runtime.is_eligible(PLAIN)
    assert not runtime.is_eligible(dataclasses.replace(PLAIN, target=None))


def test_who_has_begun_nothing_has_no_runtime() -> None:
    assert runtime.early_runtime(PLAIN) is None
