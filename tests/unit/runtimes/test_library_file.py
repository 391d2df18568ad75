"""Libraries of plugins that are none, or cut short: told before the system's loader breaks down on them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtconv.runtimes.tensorrt.library_file import broken, why_refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="libraries of Linux")
_SPEC = importlib.util.find_spec("google._upb._message") or importlib.util.find_spec("_ctypes")
assert _SPEC is not None and _SPEC.origin is not None
LIBRARY = Path(_SPEC.origin).read_bytes()
"""A library that there is."""


def written(folder: Path, data: bytes) -> Path:
    path = folder / "lib.so"
    path.write_bytes(data)
    return path


def test_a_whole_library_is_tried(tmp_path: Path) -> None:
    assert broken(written(tmp_path, LIBRARY)) == ""


@pytest.mark.parametrize("part", [0.1, 0.4, 0.7])
def test_one_that_is_cut_short_is_not(tmp_path: Path, part: float) -> None:
    assert "cut short" in broken(written(tmp_path, LIBRARY[: int(len(LIBRARY) * part)]))


@pytest.mark.parametrize("data", [b"", b"text", b"MZ" + bytes(100), b"\x7fELF"])
def test_what_is_no_library_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    assert "no shared library" in broken(written(tmp_path, data))


def test_a_library_of_another_processor(tmp_path: Path) -> None:
    assert "processor" in broken(written(tmp_path, LIBRARY[:4] + b"\x01" + LIBRARY[5:]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 63), value=st.integers(0, 255), length=st.integers(0, 4096))
def test_no_header_breaks_the_look_at_it(tmp_path: Path, at: int, value: int, length: int) -> None:
    data = bytearray(LIBRARY[: 64 + length])
    data[at] = value
    assert isinstance(broken(written(tmp_path, bytes(data))), str)


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"..getPluginCreators..", "there already"), (b"..getCreators..", "there already"), (b"..", "exports")],
)
def test_what_tensorrt_does_not_say(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in why_refused(written(tmp_path, data))
