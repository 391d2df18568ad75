"""The second attack, replayed whole: configurations, outputs, peers, shells and caches around a model that is harmless.

Each test is a row of what was found, by the commands that found it; what holds the class lies beside the module that
does.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from support.paths import MODELS, ROOT
from trtconv.core.documents.signed import checksum

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="POSIX files, shells and limits")

DATA = ROOT / "tests" / "data" / "attack2"
CONSOLE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from trtconv.cli import run; run()"
COMMAND = [sys.executable, "-I", "-c", CONSOLE]
SECONDS = 120
"""After which a command hangs; an undisturbed one takes a few."""
DEAD = 4_194_305
"""The number of a process that no Linux has."""


def run(
    folder: Path, *args: str, prepare: Callable[[], None] | None = None, stdin: int = subprocess.DEVNULL
) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder; one that hangs, breaks down or has a bug fails."""
    done = subprocess.run(
        [*COMMAND, *args],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder.parent / "tmp"), "XDG_CACHE_HOME": str(folder.parent / "cache")},
        stdin=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS,
        check=False,
        preexec_fn=prepare,
    )
    assert done.returncode in (0, 1, 2, 4), done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout with a model, beside a file of the user's."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "checkout").mkdir()
    shutil.copy(MODELS / "gan_generator.onnx", tmp_path / "checkout" / "g.onnx")
    return tmp_path / "checkout"


def configure(folder: Path, *models: str, head: str = "") -> None:
    """Writes a configuration whose entries are lines of TOML."""
    entries = "".join(f"[[models]]\ndims = {{ batch = 1 }}\n{model}\n" for model in models)
    (folder / "trtconv.toml").write_text(f'targets = ["rtx"]\n{head}{entries}')


def contents(folder: Path) -> Mapping[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("link", ["r.engine", "r.engine.json"])
def test_c1_nothing_is_written_through_a_link(folder: Path, link: str) -> None:
    (folder / "g.onnx").rename(folder / "g$(touch PWNED).onnx")
    configure(folder, 'path = "g$(touch PWNED).onnx"\nengine = "r.engine"')
    (folder / link).symlink_to("../victim")
    assert run(folder, "build", "-q").returncode == 2
    assert (folder.parent / "victim").read_text() == "mine"


def test_c2_completion_offers_none_of_the_names(folder: Path) -> None:
    shutil.copy(DATA / "tab.onnx", folder)
    for shell in ("bash", "zsh", "fish"):
        for words in ("trtconv explain tab.onnx ", "trtconv check tab.onnx --dim "):
            place = "" if shell == "fish" else str(words.count(" "))
            asked = {"COMP_WORDS": words, "COMP_CWORD": place, "_TRTCONV_COMPLETE": f"{shell}_complete"}
            environment = os.environ | asked
            done = subprocess.run(
                COMMAND,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert not set(";$`(|&\n") & set("".join(done.stdout.split("\n"))), done.stdout


def test_c4_an_address_in_a_file_leads_nowhere(folder: Path) -> None:
    configure(folder, 'path = "g.onnx"')
    with (folder / "trtconv.toml").open("a") as file:
        file.write('[farm]\naddress = "tcp://127.0.0.1:18999"\n')
    done = run(folder, "build", "-q")
    assert done.returncode == 2
    assert not (folder / "g.engine").exists()


def test_h1_h2_pipes_among_temporary_files_stop_nobody(folder: Path) -> None:
    os.mkfifo(folder.parent / "tmp" / f"trtconv-proof-{DEAD}-x")
    os.mkfifo(folder / f".o.engine.{DEAD}.abc.part")
    assert run(folder, "build", "g.onnx", "--dim", "batch=1", "--target", "rtx", "-q", "-o", "o.engine").returncode == 0
    assert run(folder, "check", "g.onnx", "--target", "rtx", "-q").returncode == 0


@pytest.mark.parametrize("data", ["/dev/stdin", "link", "pipe", "/"])
def test_h3_samples_are_files(folder: Path, data: str) -> None:
    (folder / "link").symlink_to("/dev/stdin")
    os.mkfifo(folder / "pipe")
    configure(folder, f'path = "g.onnx"\nprecision = "auto"\ndata = "{data}"')
    reading, writing = os.pipe()
    try:
        assert run(folder, "build", "-q", stdin=reading).returncode in (2, 4)
    finally:
        os.close(reading)
        os.close(writing)


def _many(path: Path, inputs: int) -> None:
    names = [f"i{number}" for number in range(inputs)]
    values = [helper.make_tensor_value_info(name, 1, [1]) for name in names]
    graph = helper.make_graph(
        [helper.make_node("Relu", [names[0]], ["y"])], "g", values, [helper.make_tensor_value_info("y", 1, [1])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_h4_many_inputs_end(folder: Path) -> None:
    _many(folder / "many.onnx", 100_000)
    done = run(folder, "check", "many.onnx", "--target", "rtx", "-q", "--format", "json")
    assert done.returncode == 1
    assert "TC408" in done.stdout


@pytest.mark.parametrize("profiles", [3_000, 60_000])
def test_h5_many_profiles_end(folder: Path, profiles: int) -> None:
    configure(folder, f'path = "g.onnx"\nprofiles = [{",".join(["{batch=1}"] * profiles)}]')
    done = run(folder, "build", "-q", "--format", "json")
    assert done.returncode == 1
    assert "TC408" in done.stdout


@pytest.mark.parametrize("engine", ["h.onnx", ".git/config", "trtconv.toml", "sub/../h.onnx", "package"])
def test_h6_nothing_of_the_checkout_is_replaced(folder: Path, engine: str) -> None:
    shutil.copy(folder / "g.onnx", folder / "h.onnx")
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    (folder / ".git" / "config").write_text("theirs")
    (folder / "package.json").write_text("{}")
    configure(folder, f'path = "g.onnx"\nengine = "{engine}"', 'path = "h.onnx"')
    before = contents(folder)
    assert run(folder, "build", "-q").returncode == 2
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [("a.engine", "sub/../a.engine"), ("a.engine", "link"), ("a.engine", "a.engine.json"), ("a.engine", "./a.engine")],
)
def test_h7_two_entries_have_two_engines(folder: Path, one: str, other: str) -> None:
    shutil.copy(folder / "g.onnx", folder / "h.onnx")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("a.engine")
    configure(folder, f'path = "g.onnx"\nengine = "{one}"', f'path = "h.onnx"\nengine = "{other}"')
    assert run(folder, "build", "-q").returncode == 2
    assert not (folder / "a.engine").exists()


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the result of its job in out/."""
    folder = tmp_path_factory.mktemp("farm") / "checkout"
    folder.mkdir()
    (folder.parent / "tmp").mkdir()
    shutil.copy(MODELS / "gan_generator.onnx", folder / "g.onnx")
    configure(folder, 'path = "g.onnx"')
    run(folder, "plan", "--write", "jobs")
    (job,) = (path for path in (folder / "jobs").glob("*.json"))
    assert run(folder, "run-job", str(job), "out").returncode == 0
    return folder


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *keys, last, value = path

    def change(document: dict[str, Any]) -> None:
        for key in keys:
            document = document[key]
        document[last] = value

    return change


SPOILED: dict[str, Callable[[dict[str, Any]], None]] = {
    "no engine": _set("report", "engine", None),
    **{f"verify ends with {code}": _set("then", {"verify": {"exit_code": code}}) for code in (7, -1, 2**70, True, "0")},
    **{f"the report ends with {code}": _set("report", "exit_code", code) for code in (5, -7)},
    "other profiles": _set("report", "profiles", [{"z": {"min": [9, 9], "opt": [9, 9], "max": [9, 9]}}]),
    "another version": _set("report", "runtime", "version", "9.9.9"),
    "no report": _set("report", None),
}


@pytest.mark.parametrize("name", SPOILED)
def test_h8_h9_a_spoiled_result_is_no_success(farm: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(farm, folder)
    (tmp_path / "tmp").mkdir()
    (path,) = (folder / "out").glob("*.result.json")
    document = copy.deepcopy(json.loads(path.read_text()))
    SPOILED[name](document)
    if document["report"] is not None:
        document["report"]["body_sha256"] = checksum(document["report"])
    path.write_text(json.dumps(document))
    assert run(folder, "collect", "out", "-q").returncode != 0
    assert not (folder / "g.engine").exists()


def test_a_result_as_it_came_is_a_success(farm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(farm, folder)
    (tmp_path / "tmp").mkdir()
    assert run(folder, "collect", "out", "-q").returncode == 0
    assert (folder / "g.engine").exists()


def test_a_stored_engine_of_another_size_is_not_read(farm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkout"
    shutil.copytree(farm, folder)
    (tmp_path / "tmp").mkdir()
    (path,) = (folder / "out").glob("*.result.json")
    sha = json.loads(path.read_text())["report"]["engine"]["sha256"]
    (stored,) = (folder / "out").rglob(sha)
    os.truncate(stored, 1 << 40)
    assert run(folder, "collect", "out", "-q").returncode == 2


@pytest.mark.parametrize("kilobytes", [250_000, 614_400])
@pytest.mark.parametrize("command", [["build", "--dim", "batch=1"], ["check"]])
def test_h10_too_little_memory_ends_with_4(folder: Path, kilobytes: int, command: list[str]) -> None:
    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (kilobytes << 10, kilobytes << 10))

    assert run(folder, *command, "g.onnx", "--target", "rtx", "-q", prepare=limit).returncode == 4


def test_one_hostile_report_leaves_the_page_of_the_others(folder: Path) -> None:
    shutil.copy(DATA / "findings.engine.json", folder / "bad.engine.json")
    os.mkfifo(folder / "pipe.json")
    done = run(folder, "report", ".", "-o", "page.html")
    assert done.returncode == 0
    assert "bad.engine.json" in (folder / "page.html").read_text()
    assert run(folder, "report", "pipe.json", "-o", "page.html").returncode == 2


@pytest.mark.parametrize("address", ["tcp://user@127.0.0.1:1", "tls://user:word@127.0.0.1:1"])
def test_an_address_has_no_user(folder: Path, address: str) -> None:
    configure(folder, 'path = "g.onnx"')
    assert run(folder, "build", "-q", "--on", address).returncode == 2


def test_a_detour_by_a_folder_that_is_not_there_leads_where_it_says(folder: Path) -> None:
    target = ("--target", "rtx", "-q")
    for name, command in {
        "r.onnx": ("rewrite", "g.onnx", *target, "-o", "none/../r.onnx"),
        "q.onnx": (
            "quantize",
            "g.onnx",
            "-q",
            "--random",
            "--samples",
            "2",
            "--dim",
            "batch=1",
            "-o",
            "none/../q.onnx",
        ),
        "e.engine": ("build", "g.onnx", *target, "--dim", "batch=1", "--prove", "none", "-o", "none/../e.engine"),
    }.items():
        done = run(folder, *command, "--format", "json")
        assert done.returncode == 0, done.stderr
        assert (folder / name).is_file()
        assert f'"{name}"' in done.stdout
        assert "none" not in done.stdout.replace('"none"', "")
    # What it says can be opened, so that the next build finds it.
    again = run(folder, *command, "--format", "json")
    assert json.loads(again.stdout)["up_to_date"] is True
