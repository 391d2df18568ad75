"""Engines that were built with libraries of plugins: with which they are opened."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import engines
from trtconv.core import foreign
from trtconv.core.agreement import AgreedCode
from trtconv.core.errors import InputError
from trtconv.core.foreign import ForeignCode
from trtconv.engine.opening import load_into, read_engine, require_machine


class Loader:
    """A TensorRT that loads anything, and remembers whether code was allowed."""

    def __init__(self, built: Any) -> None:
        runtime = built.report.report.runtime
        self.family, self.version, self.gpu_name = runtime.family, runtime.version, runtime.gpu
        self.host_code: list[bool] = []

    def load(self, data: bytes, *, host_code: bool = False) -> object:
        self.host_code.append(host_code)
        return SimpleNamespace()


def opened(folder: Path, *, serialized: bool = False, trust: bool = False) -> Any:
    built = engines.build(folder)
    named: dict[str, Any] = {"file": "libmine.so", "sha256": hashlib.sha256(b"mine").hexdigest()}
    built.change_report(plan__plugins=[{**named, "serialized": True} if serialized else named])
    return read_engine(built.engine, None, trust=trust, key=None)


@pytest.mark.parametrize(("given", "said"), [((), "no library"), ((b"another",), "another library")])
def test_an_engine_is_opened_with_the_library_that_it_was_built_with(
    tmp_path: Path, given: tuple[bytes, ...], said: str
) -> None:
    subject = opened(tmp_path)

    def code(*contents: bytes) -> ForeignCode:
        return ForeignCode(tuple(AgreedCode(tmp_path / "l.so", hashlib.sha256(each).hexdigest()) for each in contents))

    with foreign.using(code(*given)), pytest.raises(InputError) as caught:
        require_machine(subject, Loader(subject))  # type: ignore[arg-type]
    assert said in caught.value.message and "libmine.so" in caught.value.message
    with foreign.using(code(*given, b"mine")):
        require_machine(subject, Loader(subject))  # type: ignore[arg-type]


@pytest.mark.parametrize("trust", [True, False])
def test_a_library_inside_an_engine_needs_trust_and_no_file(tmp_path: Path, trust: bool) -> None:
    subject = opened(tmp_path, serialized=True, trust=trust)
    loader: Any = Loader(subject)
    require_machine(subject, loader)
    if trust:
        load_into(loader, subject)
        assert loader.host_code == [True]
    else:
        with pytest.raises(InputError):
            load_into(loader, subject)
