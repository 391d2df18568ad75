"""Engines built by a farm: a real scheduler and real workers on this machine, with TLS; and jobs without a farm."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.farm import LocalFarm, write_project
from support.slurm import put_up_sbatch
from trtconv.core.documents.farm import JobResult
from trtconv.engine.farm import cluster, slurm
from trtconv.engine.farm.store import Store

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths and signals"),
]

MODELS = ("a", "b", "c", "d", "e", "f")
CONFIG = 'prove = "none"\ntargets = ["rtx", "rtx@card"]\ndims = { n = "1:2:4" }\n'
HOLD = """
import pathlib, time
from trtconv.engine.farm.running import JobRunner
real = JobRunner.run
def held(self, job, fetch, unwanted=None):
    pathlib.Path("begun").touch()
    while not unwanted() and not pathlib.Path("go").exists():
        time.sleep(0.02)
    pathlib.Path("ended").touch()
    return real(self, job, fetch, unwanted)
JobRunner.run = held
"""
"""A worker whose builds take until a file `go` is there."""
SECONDS = 300.0


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LocalFarm]:
    folder = tmp_path / "farm"
    folder.mkdir()
    with LocalFarm(folder) as started:
        yield started


def document(call: Any, *arguments: str) -> dict[str, Any]:
    ended = call(*arguments, "-q", "--format", "json")
    found: dict[str, Any] = json.loads(ended.out)
    assert found["exit_code"] == ended.code
    return found


def until(path: Path) -> None:
    end = time.monotonic() + SECONDS
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} does not come"
        time.sleep(0.02)


def test_a_farm_builds_what_a_machine_of_its_own_would(
    call: Any, farm: LocalFarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = write_project(tmp_path / "project", MODELS, CONFIG)
    monkeypatch.chdir(project)
    store = ("--store", str(tmp_path / "store"))
    farm.begin("one", *store)
    farm.begin("two", *store, "--gpu", "Some CARD")
    assert farm.wait_for("one").split(" offers ")[1].startswith("rtx-1")
    assert "on some-card to tls://127.0.0.1" in farm.wait_for("two")
    (project / "trtconv.toml").write_text((project / "trtconv.toml").read_text().replace("@card", "@some-card"))

    states = [job["state"] for job in document(call, "plan", *farm.flags)["jobs"]]
    assert states == ["to-build"] * 12
    built = document(call, "build", *farm.flags)
    assert built["summary"] == {"runs": 12, "ok": 12, "up_to_date": 0, "failed": 0, "exit_code": 0}
    assert {run["worker"] for run in built["runs"][1::2]} == {"two"}
    assert {run["worker"] for run in built["runs"]} == {"one", "two"}
    engines = {path.name: path.read_bytes() for path in project.glob("*.engine")}
    assert len(engines) == 12

    again = document(call, "build", *farm.flags)
    assert again["summary"]["up_to_date"] == 12
    assert [job["state"] for job in document(call, "plan", *farm.flags)["jobs"]] == ["up-to-date"] * 12
    assert document(call, "build", "--on", "here", "a.onnx", "--target", "rtx")["up_to_date"]

    for name in ("a", "b"):
        local = document(call, "build", f"{name}.onnx", "--target", "rtx", "-o", "local.engine")
        assert local["worker"] is None
        assert (
            (project / "local.engine").read_bytes()
            == engines[f"{name}.rtx.engine"]
            == engines[f"{name}.rtx@some-card.engine"]
        )

    verified = document(call, "build", "c.onnx", "--target", "rtx", *farm.flags, "--then", "verify")
    assert (verified["exit_code"], verified["up_to_date"]) == (0, False)
    proof = json.loads((project / "c.rtx.engine.verify.json").read_text())
    assert (proof["exit_code"], proof["model"]["path"], proof["engine"]["path"]) == (0, "c.onnx", "c.rtx.engine")
    assert proof["engine"]["sha256"] == verified["engine"]["sha256"]

    (project / "d.onnx").write_bytes(b"no model")
    (project / "e.rtx.engine").unlink()
    broken = document(call, "build", *farm.flags)
    assert [run["exit_code"] for run in broken["runs"]] == [0] * 6 + [2, 2] + [0] * 4
    assert (project / "e.rtx.engine").read_bytes() == engines["e.rtx.engine"]

    # Larger than what is sent: by way of the store, which then has the engine.
    monkeypatch.setattr(cluster, "MOST_BYTES_INSIDE", 0)
    large = ("build", "f.onnx", "--target", "rtx", *farm.flags)
    refused = call(*large, "--force", "-q")
    assert (refused.code, "--store" in refused.err) == (2, True)
    first = document(call, *large, *store, "--force")
    Path("f.rtx.engine").unlink()
    second = document(call, *large, *store)
    assert (first["seconds"], second["up_to_date"]) == (second["seconds"], False)
    assert Path("f.rtx.engine").read_bytes() == engines["f.rtx.engine"]

    lacking = call("build", "a.onnx", "--target", "rtx@h100", *farm.flags, "-q")
    assert lacking.code == 4
    assert "nobody in the farm can build for rtx@h100; there is rtx-1" in lacking.err
    seen = document(call, "farm", "status", farm.address, "--keys", str(farm.keys), "--page", "farm.html")
    assert {worker["name"]: worker["state"] for worker in seen["workers"]} == {"one": "idle", "two": "idle"}
    assert sum(worker["done"] for worker in seen["workers"]) >= 12
    assert "some-card" in call("farm", "status", farm.address, "--keys", str(farm.keys)).out
    assert '<th scope="row">two<br>' in Path("farm.html").read_text()
    assert "a.onnx for rtx: built" in call("farm", "log", farm.address, "--keys", str(farm.keys)).out
    assert "a.onnx for rtx: built" in (farm.folder / "one.log").read_text() + (farm.folder / "two.log").read_text()
    # Of several, what somebody can do is done.
    (project / "trtconv.toml").write_text((project / "trtconv.toml").read_text().replace("@some-card", "@h100"))
    (project / "a.rtx.engine").unlink()
    partly = document(call, "build", *farm.flags, *store)
    assert [run["exit_code"] for run in partly["runs"]] == [0, 4] * 3 + [2, 4] + [0, 4] * 2
    assert (project / "a.rtx.engine").read_bytes() == engines["a.rtx.engine"]
    chosen = document(call, "build", "--target", "rtx", *farm.flags, *store)
    assert [run["exit_code"] for run in chosen["runs"]] == [0] * 3 + [2] + [0] * 2
    assert call("build", "--target", "rtx@l4", *farm.flags, "-q").code == 2


def test_whoever_is_killed_costs_no_more_than_what_it_was_at(farm: LocalFarm, tmp_path: Path) -> None:
    project = write_project(tmp_path / "project", ("a", "b"), CONFIG)
    config = (project / "trtconv.toml").read_text()
    (project / "trtconv.toml").write_text(config.replace('path = "b.onnx"', 'path = "b.onnx"\ntargets = ["rtx"]'))
    farm.begin("fast")
    farm.begin("slow", "--gpu", "card", code=HOLD)
    farm.wait_for("fast")
    farm.wait_for("slow")
    # Of the two that can build for rtx, the one that is not held.
    (farm.folder / "go").touch()
    with farm.client(project) as client:
        out, _ = client.communicate(timeout=SECONDS)
    assert json.loads(out)["summary"]["ok"] == 3
    for name in ("go", "begun", "ended"):
        (farm.folder / name).unlink(missing_ok=True)
    (project / "a.rtx@card.engine").unlink()

    # A client that is interrupted or killed: what it waits for is ended, and what was finished stays.
    for number in (signal.SIGINT, signal.SIGKILL):
        with farm.client(project) as client:
            until(farm.folder / "begun")
            client.send_signal(number)
            client.communicate(timeout=SECONDS)
        assert client.returncode == (130 if number == signal.SIGINT else -number)
        until(farm.folder / "ended")
        for name in ("begun", "ended"):
            (farm.folder / name).unlink()
    assert not (project / "a.rtx@card.engine").exists()

    # A worker that is killed: one row fails, and is not tried anywhere else; what waited behind it is.
    (project / "trtconv.toml").write_text(config)
    with farm.client(project) as client:
        until(farm.folder / "begun")
        farm.worker("spare", "--gpu", "card")
        farm.kill("slow")
        out, _ = client.communicate(timeout=SECONDS)
    found = json.loads(out)
    assert (client.returncode, found["summary"]["up_to_date"], found["summary"]["failed"]) == (1, 1, 1)
    (failed,) = [run for run in found["runs"] if run["exit_code"]]
    assert (failed["model"]["path"], failed["target"]) == ("a.onnx", "rtx@card")
    assert (project / "b.rtx@card.engine").exists()
    assert "the worker slow died" in failed["error"]["message"]
    assert not (project / "a.rtx@card.engine").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_ends_well_where_its_scheduler_says_that_it_ends(farm: LocalFarm, number: signal.Signals) -> None:
    farm.worker("one", "--reconnect", "0")
    farm.processes["scheduler"].send_signal(number)
    assert farm.processes["scheduler"].wait(SECONDS) == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert farm.processes["one"].wait(SECONDS) == 0, (farm.folder / "one.log").read_text()
    assert "the scheduler has ended" in (farm.folder / "one.log").read_text()


INTERRUPTED = """
import signal
from trtconv.engine.farm.{module} import {owner}
real = {owner}.{method}
def interrupted(*arguments):
    signal.raise_signal({number})
    return real(*arguments)
{owner}.{method} = interrupted
"""
"""A member of a farm that a signal meets while it reads what another said."""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_interrupts_no_talk(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Whoever is just being talked with hears of the end too: as an error it would be told of nothing."""
    interrupted = INTERRUPTED.format(module="dispatch", owner="Dispatch", method="offers", number=int(number))
    with LocalFarm(tmp_path, interrupted) as farm:
        farm.begin("one", "--reconnect", "0")
        assert farm.processes["scheduler"].wait(SECONDS) == code
        assert farm.processes["one"].wait(SECONDS) == 0, (farm.folder / "one.log").read_text()


NEWER = """
import dataclasses
from trtconv.engine.farm import worker
real = worker.look
def look(gpu):
    machine = real(gpu)
    newer = tuple(dataclasses.replace(info, version="99.1.0") for info in machine.runtimes)
    return dataclasses.replace(machine, runtimes=newer)
worker.look = look
"""
"""A worker that has a newer TensorRT, as far as it says."""


def test_an_upgraded_worker_makes_no_engine_stale(
    call: Any, farm: LocalFarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_project(tmp_path / "project", ("a",), CONFIG.replace(', "rtx@card"', "")))
    farm.worker("old")
    assert document(call, "build", *farm.flags)["summary"]["ok"] == 1
    (before,) = document(call, "plan", *farm.flags)["jobs"]
    farm.worker("new", code=NEWER)
    (after,) = document(call, "plan", *farm.flags)["jobs"]
    assert (before["state"], after["state"], after["version"]) == ("up-to-date", "up-to-date", "99.1.0")
    told = call("plan", *farm.flags).out
    assert f"rtx is built by 99.1.0; engines of {before['version']}, which is there too, are kept" in told
    assert document(call, "build", *farm.flags)["summary"]["up_to_date"] == 1
    # Once nobody has the version that built it, it is to be built.
    farm.kill("old")
    while document(call, "farm", "status", farm.address, *farm.flags[2:])["workers"][1:]:
        time.sleep(0.1)
    assert [job["state"] for job in document(call, "plan", *farm.flags)["jobs"]] == ["to-build"]


def test_jobs_without_a_farm(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = write_project(tmp_path / "project", ("a", "b"), CONFIG)
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert call("plan").code == 4
    planned = document(call, "plan", "--write", "jobs")
    assert [job["state"] for job in planned["jobs"]] == ["to-build"] * 4
    keys = [job["key"] for job in planned["jobs"]]
    assert {path.stem for path in Path("jobs").glob("*.json")} == set(keys)

    assert call("collect", "out").code == 2
    Path("out").mkdir()
    missing = document(call, "collect", "out")
    assert (missing["exit_code"], missing["summary"]["failed"]) == (4, 4)
    assert call("run-job", f"jobs/{keys[0]}.json", "out").code == 0
    refused = call("run-job", f"jobs/{keys[1]}.json", "out")
    assert (refused.code, "is for rtx@card" in refused.err) == (4, True)
    assert call("run-job", f"jobs/{keys[1]}.json", "other", "--gpu", "card").code == 0
    some = document(call, "collect", "out", "other")
    assert [run["exit_code"] for run in some["runs"]] == [0, 0, 4, 4]
    assert Path("a.rtx.engine").read_bytes() == Path("a.rtx@card.engine").read_bytes()
    assert [job["state"] for job in document(call, "plan", "--write", "more")["jobs"]][:2] == ["up-to-date"] * 2
    assert "has the result" in call("run-job", f"jobs/{keys[0]}.json", "out").out


def test_what_was_changed_on_its_way_is_refused(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = write_project(tmp_path / "project", ("a",), CONFIG.replace(', "rtx@card"', ""))
    monkeypatch.chdir(project)
    (job,) = document(call, "plan", "--write", "jobs")["jobs"]
    path = Path("jobs", f"{job['key']}.json")
    assert call("run-job", str(path), "out").code == 0
    result = Path("out", f"{job['key']}.result.json")
    good = result.read_text()
    (engine,) = [each for each in Path("out", "sha256").rglob("*") if each.is_file()]

    engine.write_bytes(b"others")
    assert "SHA-256" in call("collect", "out").out
    for change in (("report", {}), ("job", "0" * 64), ("error", 7), ("report", None)):
        result.write_text(json.dumps({**json.loads(good), **dict([change])}))
        assert call("collect", "out").code in (1, 2)
        assert not Path("a.engine").exists()
    changed = json.loads(good)
    changed["report"]["plan"]["precision"] = "fp16"
    result.write_text(json.dumps(changed))
    assert "changed after it was written" in call("collect", "out").out

    text = path.read_text()
    path.write_text(text.replace('"1:2:4"', '"1:2:8"'))
    assert "was changed" in call("run-job", str(path), "out").err
    path.write_text(text)
    next(each for each in Path("jobs", "sha256").rglob("*") if each.is_file()).write_bytes(b"another model")
    ended = call("run-job", str(path), "new", "--format", "json")
    assert (ended.code, "SHA-256" in json.loads(ended.out)["error"]["message"]) == (2, True)
    assert "\n  hint: Copy the folder again" in call("run-job", str(path), "newer").out


@pytest.mark.parametrize("command", ["build", "plan"])
def test_an_address_without_tls_in_a_configuration_leads_nowhere(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project = write_project(tmp_path / "project", ("a",), CONFIG.replace(', "rtx@card"', ""))
    monkeypatch.chdir(project)
    text = Path("trtconv.toml").read_text()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.settimeout(0)
        port = stranger.getsockname()[1]
        for address in (f"tcp://127.0.0.1:{port}", f"tcp://localhost:{port}", f"TCP://127.0.0.1:{port}"):
            Path("trtconv.toml").write_text(f'{text}[farm]\naddress = "{address}"\n')
            for flags in ((), ("--insecure",), ("--keys", "keys")):
                ended = call(command, "-q", *flags)
                assert (ended.code, "without TLS" in ended.err) == (2, True)
        assert call(command, "-q", "--on", "here").code == 0
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_tasks_of_slurm(call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = write_project(tmp_path / "project", ("a", "b"), CONFIG)
    monkeypatch.chdir(project)
    refused = call("build", "--on", "slurm", "-q")
    assert (refused.code, "sbatch" in refused.err) == (4, True)
    put_up_sbatch(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(slurm, "_GRACE_SECONDS", 0.0)
    assert call("plan", "--on", "slurm").code == 2
    for flag in ("--retries=2", "--job-timeout=60", "--insecure", "--keys=.", "--reconnect=1"):
        unheard = call("build", "--on", "slurm", flag, "-q")
        assert unheard.code == 2 and f"{flag.partition('=')[0]} says nothing to Slurm" in unheard.err, unheard.err
    assert call("build", "--sbatch=-p gpu", "-q").code == 2

    built = document(call, "build", "--on", "slurm", "--sbatch", "rtx@card=--gres=gpu:card:1 -p fast")
    # The tasks for a GPU that is not here say so, in logs that the rows name.
    assert [run["exit_code"] for run in built["runs"]] == [0, 4, 0, 4]
    assert "trtconv-slurm/logs/78_2.log" in built["runs"][3]["error"]["hint"]
    assert "is for rtx@card" in Path("trtconv-slurm/logs/78_2.log").read_text()
    assert "b.onnx for rtx@card" in Path("trtconv-slurm/logs/78_2.log").read_text()
    first, second = (tmp_path / "log").read_text().splitlines()
    assert "--array=1-2 --job-name=trtconv-rtx " in first and "--gres=gpu:1 " in first
    assert "--job-name=trtconv-rtx@card " in second and "--gres=gpu:card:1 -p fast " in second
    kept = document(call, "build", "--on", "here", "--target", "rtx")
    assert (Path("a.rtx.engine").exists(), kept["summary"]["up_to_date"]) == (True, 2)
    rest = document(call, "build", "--on", "slurm", "--sbatch", "--refuse")
    assert [run["exit_code"] for run in rest["runs"]] == [0, 4, 0, 4]
    assert "no such partition" in rest["runs"][1]["error"]["message"]
    # Who stops a build where there is no scancel leaves the tasks to end by themselves.
    (tmp_path / "scancel").unlink()
    slurm._cancel("77")


def test_a_store_is_tidied(call: Any, tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = Store(root)
    good, bad, old, lone = (store.put(text) for text in (b"good", b"bad", b"old", b"lone"))
    for index, sha in enumerate((good, bad, old)):
        report = {"engine": {"path": "e", "sha256": sha, "bytes": 3}}
        store.put_result(JobResult(f"{index}" * 64, report))
    (root / "sha256" / bad[:2] / bad).write_bytes(b"bax")
    (root / "9999.result.json").write_text("{}")
    half = root / "sha256" / good[:2] / f".{good}.1.aabb.part"
    half.write_bytes(b"half")
    (root / f"{'5' * 64}.result.json").write_text("{")
    mine = root / "notes.txt"
    mine.write_text("mine")
    for path in (root / "sha256" / old[:2] / old, root / f"{'2' * 64}.result.json", half):
        os.utime(path, (1e9, 1e9))
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    (root / "sha256" / "00").mkdir(exist_ok=True)
    (root / "sha256" / "00" / ("0" * 64)).symlink_to(outside)

    assert call("farm", "store").code == 2
    assert call("farm", "store", str(tmp_path / "none")).code == 2
    before = sorted(path for path in root.rglob("*"))
    assert "would remove" in call("farm", "store", str(root)).out
    assert sorted(path for path in root.rglob("*")) == before
    ended = call("farm", "store", "--store", str(root), "--prune", "--unused-days", "30", "--format", "json")
    found = json.loads(ended.out)
    assert (ended.code, found["exit_code"]) == (0, 0)
    names = {Path(entry["file"]).name for entry in found["removed"]}
    assert names == {bad, old, half.name, *(f"{n * 64}.result.json" for n in "125")}
    assert store.has(good) and store.has(lone) and store.answer("0" * 64, ()) and mine.exists() and outside.exists()
    again = json.loads(call("farm", "store", str(root), "--prune", "--most-gb", "0", "--format", "json").out)
    assert (again["files"], again["bytes"], mine.exists()) == (0, 0, True)
