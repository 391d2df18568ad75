from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trtconv.core.errors import EnvironmentMissing
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt import RuntimeStatus, adapter, available, is_installed, load, loader, open_libraries

Put = Callable[..., None]


class FakeLogger:
    """TensorRT's own logger."""

    INTERNAL_ERROR = 0

    def __init__(self, severity: int) -> None:
        assert severity == self.INTERNAL_ERROR


def module(version: str, builder: Callable[..., Any] = lambda logger: object()) -> Any:
    """As much of a TensorRT as it takes to be loaded."""
    return types.SimpleNamespace(
        __version__=version,
        ILogger=type("ILogger", (), {}),
        Logger=FakeLogger,
        Builder=builder,
        BuilderFlag=types.SimpleNamespace(),
        NetworkDefinitionCreationFlag=types.SimpleNamespace(),
        ParserError=types.SimpleNamespace(),
        OnnxParser=types.SimpleNamespace(),
        IBuilderConfig=types.SimpleNamespace(),
    )


def without_gpu(logger: Any) -> None:
    """What `tensorrt` 8.6 does where there is no GPU."""
    severity = types.SimpleNamespace(name="ERROR", value=1)
    logger.log(severity, "6: CUDA initialization failure with error: 35. Please check your CUDA installation")
    raise TypeError("pybind11::init(): factory function returned nullptr")


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Decides what is installed: keyword by module name; a module, an exception that importing raises, or None."""
    installed: dict[str, Any] = {"tensorrt": None, "tensorrt_rtx": None}

    def importing(name: str) -> Any:
        if isinstance(installed[name], BaseException):
            raise installed[name]
        return installed[name]

    monkeypatch.setattr(loader, "_installed", lambda name: installed.get(name) is not None)
    # What the adapter needs is imported as always.
    assert adapter.Installed
    monkeypatch.setattr(loader.importlib, "import_module", importing)
    loader._try.cache_clear()
    yield lambda **modules: installed.update(modules)
    loader._try.cache_clear()


def test_nothing_installed_says_what_to_install(put: Put) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        load(None)
    assert caught.value.exit_code == 4
    assert "TensorRT is not installed; TensorRT-RTX is not installed" in caught.value.message
    assert "pip install tensorrt-rtx" in caught.value.hint


def test_auto_prefers_a_tensorrt_that_works(put: Put) -> None:
    put(tensorrt=module("10.16.1.9"), tensorrt_rtx=module("1.7.1.116"))
    assert load(None).info.target == Target("tensorrt", (10, 16))
    assert load(Target("rtx")).info.version == "1.7.1.116"


def test_auto_falls_back_to_rtx_where_tensorrt_has_no_gpu(put: Put) -> None:
    put(tensorrt=module("8.6.0", without_gpu), tensorrt_rtx=module("1.7.1.116"))
    assert load(None).info.family == "rtx"


def test_a_target_that_does_not_work_here_says_why_and_what_else(put: Put) -> None:
    put(tensorrt=module("8.6.0", without_gpu), tensorrt_rtx=module("1.7.1.116"))
    with pytest.raises(EnvironmentMissing, match="error: 35") as caught:
        load(Target("tensorrt"))
    assert "--target rtx" in caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libnvinfer.so.10: cannot open shared object file"),
        OSError("libcudart.so.12 is missing"),
        RuntimeError("stub package"),
        FileNotFoundError("nvinfer"),
    ],
)
def test_a_package_without_its_libraries_does_not_work(put: Put, error: Exception) -> None:
    put(tensorrt=error)
    tensorrt, rtx = available()
    assert tensorrt == RuntimeStatus("tensorrt", True, None, False, str(error), "pip install tensorrt")
    assert not rtx.installed
    assert rtx.to_json()["install"] == "pip install tensorrt-rtx"


def test_a_foreign_package_of_that_name_does_not_work(put: Put) -> None:
    put(tensorrt=types.SimpleNamespace())
    assert not available()[0].works


@pytest.mark.parametrize("version", [(10,), (10, 16), (10, 16, 1)])
def test_only_the_numbers_asked_for_are_compared(put: Put, version: tuple[int, ...]) -> None:
    put(tensorrt=module("10.16.1.9"))
    assert load(Target("tensorrt", version)).info.version == "10.16.1.9"


@pytest.mark.parametrize("version", [(1,), (10, 1), (11,), (8, 6)])
def test_another_version_is_refused(put: Put, version: tuple[int, ...]) -> None:
    put(tensorrt=module("10.16.1.9"))
    target = Target("tensorrt", version)
    with pytest.raises(EnvironmentMissing, match=rf"{target} was asked for, but TensorRT 10\.16\.1\.9") as caught:
        load(target)
    assert "--target tensorrt" in caught.value.hint


def test_86_needs_an_old_python(put: Put) -> None:
    with pytest.raises(EnvironmentMissing) as caught:
        load(Target("tensorrt", (8, 6)))
    assert "pip install tensorrt==8.6.0, on CPython 3.10 or older" in caught.value.hint


def test_a_runtime_is_made_once(put: Put) -> None:
    put(tensorrt_rtx=module("1.7.1.116"))
    assert load(None) is load(Target("rtx"))


def test_no_tensorrt_is_imported_before_it_is_asked_for() -> None:
    import subprocess

    code = (
        "import sys, trtconv.runtimes.tensorrt; "
        "sys.exit(any(m in sys.modules for m in ('tensorrt', 'tensorrt_rtx', 'onnx')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_installed_is_known_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_installed", lambda module: module == "tensorrt_rtx")
    assert loader.is_installed(None)
    assert loader.is_installed(Target("rtx", (1, 7)))
    assert not loader.is_installed(Target("tensorrt", (10,)))


OPENED = """
import sys, threading
from pathlib import Path
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt import open_libraries
open_libraries(Target("rtx"))
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
print("libtensorrt_rtx" in Path("/proc/self/maps").read_text(), "tensorrt_rtx" in sys.modules)
"""


@pytest.mark.skipif(not is_installed(Target("rtx")) or sys.platform != "linux", reason="no such libraries here")
def test_libraries_are_opened_before_python_asks_for_them() -> None:
    found = subprocess.run([sys.executable, "-c", OPENED], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False"]


@pytest.mark.parametrize("spec", [None, types.SimpleNamespace(submodule_search_locations=["/nowhere"])])
def test_no_libraries_to_open_are_no_fault(put: Put, monkeypatch: pytest.MonkeyPatch, spec: Any) -> None:
    put(tensorrt=module("10.13.3"), tensorrt_libs=spec)
    monkeypatch.setattr(loader.importlib.util, "find_spec", lambda name: spec)
    open_libraries(None)
    open_libraries(Target("rtx"))
    assert load(None).info.version == "10.13.3"
