"""What a run may make infinite or NaN, documents hold and read again."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from trtconv.core import documents
from trtconv.core.decode import Measured, decoded
from trtconv.core.documents.mix import Mix, TypedPart
from trtconv.core.encode import Document, plain, strict

_OF_RUNS = ("cosine", "difference", "max_abs", "max_rel", "psnr", "rms")
"""Fields that hold how far numbers of a run are off, besides those that are called errors."""


def _classes() -> Iterator[type[Any]]:
    for module in pkgutil.iter_modules(documents.__path__, f"{documents.__name__}."):
        members = vars(importlib.import_module(module.name)).values()
        yield from (
            each
            for each in members
            if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.name
        )


def _plain_floats() -> Iterator[str]:
    for each in _classes():
        for name, hint in typing.get_type_hints(each, include_extras=True).items():
            is_of_run = name in _OF_RUNS or "error" in name.split("_")
            if is_of_run and float in (hint, *typing.get_args(hint)) and Measured not in (hint, *typing.get_args(hint)):
                yield f"{each.__name__}.{name}"


def test_errors_may_be_infinite() -> None:
    # A limit is what the user says.
    assert set(_plain_floats()) <= {"Tolerance.cosine"}


@pytest.mark.parametrize("error", [float("inf"), float("nan"), 0.25])
def test_a_mix_of_a_network_that_16_bits_break(error: float) -> None:
    part = TypedPart(("log",), 1.0, 0.5, error)
    mix = Mix("as-is", {}, 1e-3, 0.0, error, None, "", 1.0, None, "no GPU", 2, "random", (part,))
    written = strict(plain(mix))
    assert strict(plain(Mix.from_json(written))) == written


def test_what_is_a_document() -> None:
    assert sum(issubclass(each, Document) for each in _classes()) > 50
    assert decoded(TypedPart, {"nodes": [], "time": 1, "saved": 0, "error": "inf"}).error == float("inf")
