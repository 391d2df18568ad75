"""What every executor keeps to, wherever it runs builds: processes of this machine, a farm, a batch system.

Whoever writes one enters it into `EXECUTORS`: how it is opened for a folder, and closed again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import inspect
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trtconv.engine.farm
import trtconv.pipeline
from support.farm import LocalFarm, write_project
from support.paths import ROOT
from support.slurm import put_up_sbatch
from trtconv.cli.commands import farming, plan
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildReport
from trtconv.core.documents.check import FailedRun
from trtconv.core.options import flags
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.target import Target
from trtconv.pipeline.batch import Executor, LocalPool, Result, run_all

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths and signals"),
]

Makes = Callable[..., Executor]
"""Makes an executor for one use; of a farm's, `then` says what follows the build."""
Opened = contextlib.AbstractContextManager[Makes]
"""Makes executors while it is entered."""


@contextlib.contextmanager
def local(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Makes]:
    yield lambda: LocalPool(2)


@contextlib.contextmanager
def farm(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Makes]:
    from trtconv.engine.farm.cluster import Farm

    with LocalFarm(folder) as started:
        started.worker("one")
        yield lambda then=(): Farm(FarmRequest(on=started.address, keys=started.keys, then=then))


@contextlib.contextmanager
def slurm(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Makes]:
    from trtconv.engine.farm.slurm import Slurm

    put_up_sbatch(folder, patch)
    patch.setattr("trtconv.engine.farm.slurm._GRACE_SECONDS", 0.0)
    yield lambda then=(): Slurm(FarmRequest(on="slurm", store=folder / "shared", then=then))


EXECUTORS: dict[str, Callable[[Path, pytest.MonkeyPatch], Opened]] = {
    "LocalPool": local,
    "Farm": farm,
    "Slurm": slurm,
}
"""Every class that runs builds, by its name."""


@pytest.fixture(params=EXECUTORS)
def executors(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Makes]:
    folder = tmp_path / "executor"
    folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    with EXECUTORS[request.param](folder, monkeypatch) as opened:
        yield opened


def builds(folder: Path, *names: str) -> list[BuildRequest]:
    dims = {"n": Range(1, 2, 4)}
    return [BuildRequest(folder / f"{name}.onnx", dims=dims, target=Target("rtx"), prove="none") for name in names]


def children() -> set[int]:
    """Returns the processes that this one has started and that still run."""
    found = set()
    for tasks in Path("/proc/self/task").glob("*/children"):
        for number in tasks.read_text().split():
            with contextlib.suppress(OSError):  # It may end meanwhile.
                found |= set() if "State:\tZ" in Path(f"/proc/{number}/status").read_text() else {int(number)}
    return found


def test_every_executor_is_held_to_this() -> None:
    """One that is written and not entered would be held to nothing."""
    for package in (trtconv.engine.farm, trtconv.pipeline):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    rooms = ("trtconv.engine.", "trtconv.pipeline.")
    loaded = [module for name, module in sys.modules.items() if name.startswith(rooms)]
    kinds: set[Any] = {kind for module in loaded for kind in vars(module).values() if isinstance(kind, type)} - {
        Executor
    }
    takes = list(inspect.signature(Executor.run).parameters)
    methods = {kind.__name__: kind.run for kind in kinds if hasattr(kind, "run")}
    runs = {
        name
        for name, method in methods.items()
        if inspect.isgeneratorfunction(method) or list(inspect.signature(method).parameters) == takes
    }
    assert runs == set(EXECUTORS), "enter it into EXECUTORS of this file"


def test_each_build_has_one_result_in_its_place(executors: Makes, tmp_path: Path) -> None:
    """What fails is a result too, and takes none of the others along."""
    project = write_project(tmp_path / "project", ("a", "c"), "")
    (project / "b.onnx").write_bytes(b"no model")
    requests = builds(project, "a", "b", "c", "missing")
    a, b, c, missing = run_all(requests, executors())
    for built, request in ((a, requests[0]), (c, requests[2])):
        assert isinstance(built, BuildReport)
        assert (built.exit_code, built.up_to_date, built.engine is not None) == (0, False, True)
        assert request.engine_path.stat().st_size == (built.engine.bytes if built.engine else 0)
        assert request.report_path.exists()
    for failed, request in ((b, requests[1]), (missing, requests[3])):
        assert isinstance(failed, FailedRun)
        assert (failed.exit_code, failed.kind) == (2, "InputError")
        assert request.model.name in failed.message
        assert not request.engine_path.exists() and not request.report_path.exists()

    local_engine = project / "local.engine"
    (here,) = run_all([dataclasses.replace(requests[0], engine=local_engine)], LocalPool(1))
    assert here.exit_code == 0
    assert local_engine.read_bytes() == requests[0].engine_path.read_bytes(), "the same plan, the same engine"

    again = run_all(builds(project, "a", "c"), executors())
    assert [isinstance(each, BuildReport) and each.up_to_date for each in again] == [True, True]
    assert run_all([], executors()) == []


def test_every_executor_is_opened_by_a_word_that_is_told() -> None:
    source = inspect.getsource(farming.opened)
    closed = [name for name in EXECUTORS if name != "LocalPool" and f"{name}(" not in source]
    assert not closed, f"open these in `opened` of trtconv/cli/commands/farming.py: {closed}"
    words = {name: word for name, word in vars(farming).items() if name.isupper() and isinstance(word, str)}
    (text,) = (flag.help for flag in flags(FarmRequest) if flag.option == "--on")
    page = (ROOT / "docs" / "farm.md").read_text(encoding="utf-8")
    untold = [word for word in words.values() if f"{word}:" not in text or f"--on {word}" not in page]
    assert not untold, f"name in the help of --on (trtconv/core/requests/farm.py) and docs/farm.md: {untold}"
    unplanned = [name for name in words if name != "HERE" and name not in inspect.getsource(plan._machines)]
    assert not unplanned, f"say in trtconv/cli/commands/plan.py what `plan` does with {unplanned}"


@pytest.mark.parametrize("executors", sorted(EXECUTORS.keys() - {"LocalPool"}), indirect=True)
def test_what_follows_a_build_is_done_where_it_was_built(executors: Makes, tmp_path: Path) -> None:
    """Of an engine that is up to date, too; `--then` goes with a farm, so that `LocalPool` is not asked."""
    (request,) = builds(write_project(tmp_path / "project", ("a",), ""), "a")
    for then in ((), ("verify",)):
        (report,) = run_all([request], executors(then=then))
        assert report.exit_code == 0
        assert request.beside("verify").path.exists() == bool(then), "--then: give `then` of the request to `prepare`"


def test_to_stop_early_leaves_nothing_half_written(executors: Makes, tmp_path: Path) -> None:
    project = write_project(tmp_path / "project", ("a", "b", "c"), "")
    requests = builds(project, "a", "b", "c")
    before, waiting = {str(path) for path in project.iterdir()}, children()
    running = executors().run(requests)
    first: tuple[int, Result] = next(running)
    running.close()
    left = time.monotonic() + 1
    while (started := children() - waiting) and time.monotonic() < left:
        time.sleep(0.1)
    assert not started, "to close what `run` returned ends what still runs: these processes do"
    assert first[1].exit_code == 0
    assert requests[first[0]].engine_path.exists()
    for request in requests:
        assert request.engine_path.exists() == request.report_path.exists()
    written = {str(path) for request in requests for path in (request.engine_path, request.report_path)}
    assert {str(path) for path in project.iterdir()} - before <= written
