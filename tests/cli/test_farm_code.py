"""Code of a user's own on a farm: jobs name it by SHA-256, and who builds has the same file or says that it has not."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.farm import LocalFarm, write_project
from support.paths import ROOT
from support.slurm import put_up_sbatch
from trtconv.engine.farm import slurm

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths and signals"),
]
REFERENCE = "import trtconv\n@trtconv.reference('my::Shift')\ndef shift(x):\n    return x + 1\n"
EXTENSION = (ROOT / "tests" / "data" / "extension.py").read_text(encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    config = 'targets = ["rtx"]\nreferences = ["mine.py"]\nextend = ["acme.py"]\ndims = { n = "1:2:4" }\n'
    folder = write_project(tmp_path / "project", ("a", "c"), config)
    (folder / "mine.py").write_text(REFERENCE)
    (folder / "acme.py").write_text(EXTENSION)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, Path]:
    """The same files where somebody else has them, under other names."""
    (tmp_path / "elsewhere").mkdir()
    files = {"--reference": (REFERENCE, "theirs.py"), "--extend": (EXTENSION, "added.py")}
    for text, name in files.values():
        (tmp_path / "elsewhere" / name).write_text(text)
    return {flag: tmp_path / "elsewhere" / name for flag, (_, name) in files.items()}


def agreements() -> list[str]:
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (REFERENCE, EXTENSION)]
    return [word for digest in digests for word in ("--agree", digest)]


def flags(files: dict[str, Path]) -> list[str]:
    return [word for flag, path in files.items() for word in (flag, str(path))]


def document(call: Any, *arguments: str) -> dict[str, Any]:
    ended = call(*arguments, "-q", "--format", "json")
    found: dict[str, Any] = json.loads(ended.out)
    assert found["exit_code"] == ended.code
    return found


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[LocalFarm]:
    (tmp_path / "farm").mkdir()
    with LocalFarm(tmp_path / "farm") as started:
        yield started


def test_a_worker_that_has_the_files_builds_and_one_that_has_not_says_which(
    call: Any, farm: LocalFarm, project: Path, elsewhere: dict[str, Path]
) -> None:
    farm.worker("without", "--extend", str(elsewhere["--extend"]))
    told = document(call, "build", *farm.flags, *agreements())
    assert told["exit_code"] == 4
    for run in told["runs"]:
        assert "reference mine.py" in run["error"]["message"] and "--reference mine.py" in run["error"]["hint"]
    assert not list(project.glob("*.engine"))
    farm.worker("with", *flags(elsewhere))
    told = document(call, "build", *farm.flags, *agreements())
    assert told["exit_code"] == 0, told
    plans = [json.loads(path.read_text())["plan"] for path in project.glob("*.engine.json")]
    assert [[each["file"] for each in plan["references"]] for plan in plans] == [["mine.py"]] * 2
    # It is as if it had been built here.
    assert all(run["up_to_date"] for run in document(call, "build", "--on", "here", *agreements())["runs"])


def test_without_agreement_nothing_is_sent(call: Any, project: Path) -> None:
    ended = call("plan", "--write", "jobs", "-q")
    assert ended.code == 2 and "--agree" in ended.out + ended.err
    assert not list(project.glob("jobs/*.json"))


def test_a_job_in_a_file_is_built_with_the_same_files(
    call: Any, project: Path, elsewhere: dict[str, Path], tmp_path: Path
) -> None:
    assert call("plan", "--write", "jobs", "-q", *agreements()).code == 0
    jobs = sorted(str(path) for path in project.glob("jobs/*.json"))
    assert len(jobs) == 2
    without = document(call, "run-job", jobs[0], str(tmp_path / "out"))
    assert without["exit_code"] == 4 and "which is not here" in without["error"]["message"]
    # Relative to where run-job is called, not to the folder of a job.
    near = {flag: Path(os.path.relpath(path)) for flag, path in elsewhere.items()}
    for job in jobs:
        assert call("run-job", job, str(tmp_path / "out"), "-q", *flags(near)).code == 0
    assert call("collect", str(tmp_path / "out"), "-q", *agreements()).code == 0
    assert len(list(project.glob("*.engine"))) == 2


def test_tasks_of_slurm_are_given_the_files(
    call: Any, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "_GRACE_SECONDS", 0.0)
    put_up_sbatch(tmp_path, monkeypatch)
    told = document(call, "build", "--on", "slurm", "--store", str(tmp_path / "shared"), *agreements())
    assert told["exit_code"] == 0, told
    assert len(list(project.glob("*.engine"))) == 2
