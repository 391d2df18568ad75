"""`trtconv collect` of results that somebody changed: each field is held against what was asked, nothing is written."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.onnx_models import parse
from trtconv.cli import main
from trtconv.core.dims import Range
from trtconv.core.documents.proof import BuildProof, PieceCounts
from trtconv.core.documents.signed import checksum
from trtconv.core.requests.build import BuildRequest
from trtconv.core.requests.farm import AFTERWARDS
from trtconv.core.target import Target
from trtconv.engine.farm.planning import prepare
from trtconv.engine.farm.store import Store

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(sys.platform == "win32", reason="POSIX paths"),
]
CONFIG = """
prove = "none"
targets = ["rtx"]
dims = { n = "1:2:4" }
[[models]]
path = "g.onnx"
"""
Change = Callable[[dict[str, Any]], None]


@dataclasses.dataclass
class Collected:
    """A folder with a configuration, and `out` with the result of its one build.

    Args:
        folder: Where.
        result: The file of the result.
        engine: The engine in `out`.
    """

    folder: Path
    result: Path
    engine: Path

    def change(self, change: Change) -> None:
        """Changes the result, whose report then has the right checksum again."""
        document = json.loads(self.result.read_text())
        change(document)
        report = document.get("report")
        if isinstance(report, dict):
            report["body_sha256"] = checksum(report)
        self.result.write_text(json.dumps(document))

    def written(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith("g.engine"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `run-job` made."""
    folder = tmp_path_factory.mktemp("built")
    proto = parse('<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }')
    (folder / "g.onnx").write_bytes(proto.SerializeToString())
    (folder / "trtconv.toml").write_text(CONFIG)
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["plan", "--write", "jobs", "-q"]) == 0
        (job,) = Path("jobs").glob("*.json")
        assert main(["run-job", str(job), "out"]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def collected(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collected:
    folder = tmp_path / "project"
    shutil.copytree(built, folder)
    monkeypatch.chdir(folder)
    (result,) = (folder / "out").glob("*.result.json")
    (engine,) = (each for each in (folder / "out" / "sha256").rglob("*") if each.is_file())
    return Collected(folder, result, engine)


def put(*path: Any) -> Change:
    """Returns what puts the last of the arguments where the others lead."""

    def change(document: dict[str, Any]) -> None:
        *way, name, value = path
        for each in way:
            document = document[each]
        document[name] = copy.deepcopy(value)

    return change


def test_what_nobody_changed_is_taken(call: Any, collected: Collected) -> None:
    collected.change(lambda _: None)
    assert call("collect", "out", "-q").code == 0
    assert collected.written() == ["g.engine", "g.engine.json"]


@pytest.mark.parametrize("then", [(), ("bench",), ("verify",), None])
def test_what_followed_is_taken_where_it_was_asked_for(collected: Collected, then: tuple[str, ...] | None) -> None:
    collected.change(put("then", {"verify": {"exit_code": 0}}))
    # The target of the configuration; with one alone, the engine is named after the model.
    request = BuildRequest(Path("g.onnx"), target=Target("rtx"), dims={"n": Range(1, 2, 4)}, prove="none")
    waiting, _ = prepare(request, None)
    assert waiting is not None
    waiting.job = dataclasses.replace(waiting.job, then=then or ())
    collected.change(put("job", waiting.job.name))
    document = json.loads(collected.result.read_text())
    taken = waiting.take(document, Store(collected.folder / "out").get, "w", None if then is not None else AFTERWARDS)
    assert taken.exit_code == 0
    after = ["g.engine.verify.json"] if then in (None, ("verify",)) else []
    assert collected.written() == ["g.engine", "g.engine.json", *after]


SHA = ("report", "engine", "sha256")
CHANGES: list[Change] = [
    put("report", "engine", None),
    put("report", None),
    put("report", []),
    put("report", "exit_code", 1),
    *(put("report", "exit_code", code) for code in (5, -7, 2, 2**70, True, 0.5, "0")),
    *(put("then", {"verify": {"exit_code": code}}) for code in (7, -1, 2**70, True, "0", 1.5, None)),
    put("then", {"../../x": {"exit_code": 0}}),
    put("then", {"verify": []}),
    put("error", {"type": "X", "message": "m", "hint": "", "exit_code": 1}),
    put("schema", 2.5),
    put("more", 1),
    put("job", "0" * 64),
    put(*SHA, "../../../../etc/passwd"),
    put(*SHA, "0" * 64),
    put("report", "engine", "bytes", 1),
    put("report", "engine", "bytes", -1),
    put("report", "engine", "bytes", 2**70),
    put("report", "runtime", "version", "99.9"),
    put("report", "runtime", "version", "1.7\n::error::x"),
    put("report", "runtime", "version", ""),
    put("report", "runtime", "family", "tensorrt"),
    put("report", "runtime", "family", "other"),
    put("report", "plan", "precision", "fp16"),
    put("report", "plan", "more", 1),
    put("report", "model", "sha256", "0" * 64),
    put("report", "profiles", [{"z": {"min": [1], "opt": [1], "max": [1]}}]),
    put("report", "profiles", []),
    put("report", "proof", BuildProof(agrees=False).to_json()),
    put("report", "proof", BuildProof(pieces=PieceCounts(3, 2)).to_json()),
    put("report", "io", 0, "name", "evil"),
    put("report", "io", []),
    put("report", "io", 0, "kind", "output"),
    put("report", "io", 1, "kind", "other"),
    put("report", "io", 0, "dtype", "float16"),
    put("report", "io", 1, "dtype", "int64"),
    put("report", "io", 0, "dtype", "\n::error::x"),
    put("report", "io", 0, "shape", [-1]),
    put("report", "io", 0, "shape", [-1, 5]),
    put("report", "io", 1, "shape", [-7, 4]),
    put("report", "lattice", "dims", "evil", {"min": 1, "max": 8}),
    put("report", "lattice", "dims", "n", "max", 999),
    put("report", "lattice", "dims", "n", "min", -5),
    put("report", "lattice", "dims", "n", "valid", [2, 2**40]),
    put("report", "profiles", 0, "x", "max", [8, 4]),
    put("report", "profiles", 0, "x", "max", [2**70, 4]),
    put("report", "profiles", 0, "x", "min", [1]),
    put("report", "dims", [{"n": "1:2:8"}]),
    put("report", "dims", [{"n": "x"}]),
    put("report", "seconds", {"a": float("nan")}),
    put("report", "seconds", {"a": float("inf")}),
    put("report", "seconds", {"a": -1}),
    put("report", "seconds", {"a": 1e300}),
    put("report", "seconds", {"a": "1"}),
    put("report", "findings", [{"code": 5}]),
    put("report", "lattice", {"dims": {"b": 5}, "joint": [], "imposed": []}),
    put("report", "tuned", [{}]),
    put("report", "io", [{"name": "z"}]),
    put("report", "edits", 7),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_refused_and_nothing_written(call: Any, collected: Collected, change: Change) -> None:
    collected.change(change)
    ended = call("collect", "out", "-q")
    assert ended.code in (1, 2, 4), ended.out
    assert collected.written() == []
    assert "\n::error::" not in ended.out + ended.err


@pytest.mark.parametrize("raw", [b"", b"\0" * 1000, b"[" * 200_000, b'{"report": NaN}', b"1" * 10_000, b"null"])
def test_what_is_no_result_is_refused(call: Any, collected: Collected, raw: bytes) -> None:
    collected.result.write_bytes(raw)
    assert call("collect", "out", "-q").code in (2, 4)
    assert collected.written() == []


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("of", ["result", "engine"])
@pytest.mark.parametrize("spoil", [as_fifo, as_device, as_folder, lambda path: os.truncate(path, 1 << 40)])
def test_files_that_do_not_end_are_not_read(
    call: Any, collected: Collected, of: str, spoil: Callable[[Path], None]
) -> None:
    spoil(collected.result if of == "result" else collected.engine)
    assert call("collect", "out", "-q").code in (2, 4)
    assert collected.written() == []


def test_one_changed_byte_is_built_again(call: Any, collected: Collected) -> None:
    good = collected.engine.read_bytes()
    collected.engine.write_bytes(b"\xff" + good[1:])
    assert call("collect", "out", "-q").code == 2
    (job,) = (each for each in Path("jobs").glob("*.json"))
    assert call("run-job", str(job), "out").code == 0
    assert hashlib.sha256(collected.engine.read_bytes()).hexdigest() == collected.engine.name
    assert call("collect", "out", "-q").code == 0


def test_run_job_names_the_file_that_is_no_job(call, tmp_path: Path) -> None:
    path = tmp_path / "trtconv.toml"
    path.write_text("targets = []")
    ended = call("run-job", str(path), str(tmp_path / "out"))
    assert ended.code == 2
    assert f"{path}: it is no job" in ended.err
