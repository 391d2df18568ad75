"""Libraries loaded without what they load for nothing.

Onnx loads `importlib.metadata`, and with that Python's mail and archives, to find its own version: a third of its time,
and 2.5 MB. Only for a process that has no other thread, which might find what stands in for it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path

_METADATA = "importlib.metadata"


def load(name: str) -> None:
    """Imports a module; onnx without what it has no use for.

    Raises:
        ImportError: As an import.
    """
    light = name == "onnx" and not {name, _METADATA} & sys.modules.keys()
    with _known_version(name) if light else contextlib.nullcontext():
        importlib.import_module(name)


@contextlib.contextmanager
def _known_version(package: str) -> Iterator[None]:
    """Has whoever asks for the version of a package find it without metadata, where its folder's name says it."""
    spec = importlib.util.find_spec(package)
    folder = Path(spec.origin).parents[1] if spec is not None and spec.origin else Path()
    records = list(folder.glob(f"{package}-*.dist-info"))
    if len(records) != 1:
        yield
        return
    version = records[0].name.removesuffix(".dist-info").partition("-")[2]
    stand_in = types.ModuleType(_METADATA)
    vars(stand_in).update(
        version=lambda _: version, PackageNotFoundError=type("PackageNotFoundError", (ImportError,), {})
    )
    sys.modules[_METADATA] = stand_in
    vars(importlib)["metadata"] = stand_in
    try:
        yield
    finally:
        del sys.modules[_METADATA]
        del vars(importlib)["metadata"]
