"""Finds the TensorRT to use. Nothing here imports one before it is asked to."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trtconv.core.background import Background
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.process import address_space
from trtconv.core.target import FAMILIES, Target
from trtconv.runtimes.tensorrt.base import Runtime, RuntimeStatus
from trtconv.runtimes.tensorrt.engine_base import EngineLoader
from trtconv.runtimes.tensorrt.messages import clean

# A stub package without its libraries, a library without its driver, a foreign package of the same name.
_IMPORT_FAILURES = (ImportError, OSError, RuntimeError, AttributeError, TypeError)
_keeps_network = False


def keep_network() -> None:
    """Has the last network that is parsed live as long as the process; for one that ends when it has its result.

    To take a network apart takes a quarter of the time that it takes to parse it. Call it before the first `load`.
    """
    global _keeps_network
    _keeps_network = True


_LEAST_ADDRESS_SPACE = 1280 << 20
"""Virtual memory to build a small network: 930 MiB were too little on two cores, 1,460 enough."""


def available() -> tuple[RuntimeStatus, ...]:
    """Tries every family. Imports what is installed.

    Returns:
        One status a family, in the order in which `load(None)` tries them.
    """
    pairs = [_try(family) for family in FAMILIES]
    return tuple(
        status if runtime is None else dataclasses.replace(status, plugins=runtime.creators())
        for status, runtime in pairs
    )


def is_installed(target: Target | None) -> bool:
    """Whether `load` has anything to try; imports nothing.

    Args:
        target: What is asked for; None: any family.
    """
    families = tuple(FAMILIES) if target is None else (target.family,)
    return any(_installed(FAMILIES[family].module) for family in families)


def open_libraries(target: Target | None) -> None:
    """Has the system open the libraries of the TensorRT that `load` will try first, beside all that Python does.

    It takes as long as a third of onnx's import, and longer where they lie on a disk still. Python itself opens
    libraries with its lock held. Nothing is told of what fails: `load` will.

    Args:
        target: As for `load`.
    """
    families = tuple(FAMILIES) if target is None else (target.family,)
    module = next((FAMILIES[family].module for family in families if _installed(FAMILIES[family].module)), "")
    package = f"{module}_libs"
    if not module or not _installed(package) or sys.platform != "linux" or address_space() is not None:
        return
    libraries = importlib.util.find_spec(package)
    if libraries is not None:
        Background(lambda: _open_in(libraries.submodule_search_locations or ()))


def _open_in(folders: Iterable[str]) -> None:
    """Opens libraries as the packages of TensorRT do when they are imported."""
    system = ctypes.CDLL(None)
    for library in sorted(path for folder in folders for path in Path(folder).glob("*.so*")):
        system.dlopen(os.fsencode(library), os.RTLD_NOW | os.RTLD_LOCAL)


def load(target: Target | None) -> Runtime:
    """Loads the runtime for a target.

    Args:
        target: What is asked for; None takes the installed `tensorrt` if it works here, else `tensorrt_rtx`.

    Returns:
        The runtime.

    Raises:
        EnvironmentMissing: It is not installed, does not work on this machine, or has another version than was asked
            for. The hint says what to install or use instead.
    """
    _require_address_space()
    families = tuple(FAMILIES) if target is None else (target.family,)
    pairs = [_try(family) for family in families]
    for status, runtime in pairs:
        if runtime is not None:
            _require_version(target, status)
            return runtime
    raise _missing(target, [status for status, _ in pairs])


def load_engines(family: str | None) -> EngineLoader:
    """Loads a TensorRT to run engines with; unlike `load`, it makes no builder, which would take seconds.

    Use one of the two in a process: TensorRT keeps one logger for good.

    Args:
        family: "rtx" or "tensorrt"; None takes the installed `tensorrt`, else `tensorrt_rtx`.

    Raises:
        EnvironmentMissing: It is not installed, or there is no GPU that it could run on.
    """
    installed = [name for name in (FAMILIES if family is None else (family,)) if _installed(FAMILIES[name].module)]
    if not installed:
        facts = FAMILIES[family or "tensorrt"]
        raise EnvironmentMissing(f"{facts.product} is not installed", f"Install it: {facts.install}.")
    first = installed[0]
    try:
        trt = importlib.import_module(FAMILIES[first].module)
        from trtconv.runtimes.tensorrt.engine import Engines
        from trtconv.runtimes.tensorrt.logger import Log

        return Engines(first, trt, Log(trt))
    except _IMPORT_FAILURES as error:
        why = clean(str(error)) or type(error).__name__
        raise EnvironmentMissing(
            f"{FAMILIES[first].product} does not work here: {why}", "trtconv doctor says more."
        ) from error


def _require_address_space() -> None:
    """Raises EnvironmentMissing where TensorRT and ONNX Runtime would run out of virtual memory.

    With less, some of their threads and allocations fail, now here and now there, and what waits for them may wait
    forever.
    """
    limit = address_space()
    if limit is not None and limit < _LEAST_ADDRESS_SPACE:
        raise EnvironmentMissing(
            f"virtual memory is limited to {limit >> 20} MiB, and TensorRT takes {_LEAST_ADDRESS_SPACE >> 20}",
            "Raise the limit: ulimit -v unlimited.",
        )


@functools.cache
def _try(family: str) -> tuple[RuntimeStatus, Runtime | None]:
    """Imports one family and makes its adapter, once a process: TensorRT keeps one logger for good."""
    module = FAMILIES[family].module
    install = FAMILIES[family].install
    if not _installed(module):
        return RuntimeStatus(family, False, None, False, f"{module} is not installed", install), None
    trt: Any = None
    try:
        trt = importlib.import_module(module)
        # The adapter needs TensorRT's own attributes in place, so it is imported only now.
        from trtconv.runtimes.tensorrt.adapter import Installed

        runtime = Installed(family, trt, _keeps_network)
    except _IMPORT_FAILURES as error:
        why = clean(str(error)) or type(error).__name__
        return RuntimeStatus(family, True, _version(trt), False, why, install), None
    return RuntimeStatus(family, True, _version(trt), True, "", install), runtime


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # A module without a spec, as tests put into sys.modules.
        return True


def _version(trt: Any) -> str | None:
    version = getattr(trt, "__version__", None)
    return version if isinstance(version, str) else None


def _require_version(target: Target | None, status: RuntimeStatus) -> None:
    if target is None or target.version is None:
        return
    parts = (status.version or "").split(".")
    prefix = [str(part) for part in target.version]
    if parts[: len(prefix)] != prefix:
        raise EnvironmentMissing(
            f"{target} was asked for, but {FAMILIES[status.family].product} {status.version} is installed",
            f"Install it ({_install(target)}), or use --target {status.family}.",
        )


def _install(target: Target) -> str:
    """Returns the command that installs what a target asks for."""
    command = FAMILIES[target.family].install
    if target.version is None:
        return command
    if target.family == "tensorrt" and target.version[:2] == (8, 6):
        return f"{command}==8.6.0, on CPython 3.10 or older"
    return f"{command}=={'.'.join(str(part) for part in target.version)}.*"


def _missing(target: Target | None, statuses: list[RuntimeStatus]) -> EnvironmentMissing:
    reasons = "; ".join(
        f"{FAMILIES[s.family].product} {'does not work here: ' + s.why if s.installed else 'is not installed'}"
        for s in statuses
    )
    goal = target or Target("rtx")
    hint = f"Install it: {_install(goal)}"
    if goal.family == "tensorrt":
        hint += "; or use --target rtx, which builds without a GPU; trtconv check --target tensorrt-10 needs neither"
    return EnvironmentMissing(reasons, hint + ".")
