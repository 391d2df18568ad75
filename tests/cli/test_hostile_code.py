"""Configurations that name libraries, references and extensions which leave a file behind where they are loaded."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
    pytest.mark.skipif(sys.platform == "win32", reason="a library of Linux"),
]
LIBRARY = """
#include <cstdio>
__attribute__((constructor)) static void loaded() { if (FILE* file = fopen(TRAP, "w")) fclose(file); }
"""
PYTHON = """
open({trap!r}, "w").close()
import trtconv
owner = "EVIL"
@trtconv.reference("my::Shift")
def shift(x, by=1.0):
    return x
"""
OWN = """<ir_version: 8, opset_import: ["": 17, "my": 1]>
g (float[2,3] x) => (float[2,3] y) { a = my.Shift <by = 2.0> (x)  y = Relu (a) }"""
PLAIN = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }"""
SETTINGS = {
    "a library": 'plugins = ["libtrap.so"]',
    "a library for the engine": 'plugins-to-serialize = ["libtrap.so"]',
    "references": 'references = ["trap.py"]',
    "an extension": 'extend = ["trap.py"]',
    "all, from another folder": 'plugins = ["{0}/libtrap.so"]\nreferences = ["{0}/trap.py"]\nextend = ["{0}/trap.py"]',
}
COMMANDS = [
    "build",
    "build plain.onnx",
    "build own.onnx --force",
    "check",
    "check own.onnx",
    "plan",
    "plan --write jobs",
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A library, and the file that it leaves."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "trap.cpp").write_text(LIBRARY)
    made, trap = folder / "libtrap.so", folder / "trap"
    command = ["g++", "-shared", "-fPIC", f'-DTRAP="{trap}"', str(folder / "trap.cpp"), "-o", str(made)]
    subprocess.run(command, check=True)
    subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(made)!r})"], check=True)
    assert trap.exists(), "the trap does not work"
    trap.unlink()
    return made, trap


@pytest.fixture
def project(tmp_path: Path, library: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    shutil.copy(library[0], folder)
    (folder / "trap.py").write_text(PYTHON.format(trap=str(library[1])))
    for name, text in {"own": OWN, "plain": PLAIN}.items():
        onnx.save(onnx.parser.parse_model(text), folder / f"{name}.onnx")
    monkeypatch.chdir(folder)
    return folder


def configure(project: Path, setting: str, models: Sequence[str] = ("own", "plain")) -> None:
    tables = [f'[[models]]\npath = "{name}.onnx"\ntargets = ["rtx"]\n{setting}\n' for name in models]
    (project / "trtconv.toml").write_text("".join(tables))


@pytest.mark.parametrize("setting", SETTINGS)
def test_nothing_is_loaded(call: Any, project: Path, library: tuple[Path, Path], setting: str) -> None:
    folder = project.parent / "elsewhere"
    folder.mkdir()
    for name in ("libtrap.so", "trap.py"):
        shutil.copy(project / name, folder)
    configure(project, SETTINGS[setting].format(folder))
    for command in COMMANDS:
        ended = call(*command.split(), "-q")
        if "serialize" not in SETTINGS[setting] or "check" not in command:
            assert ended.code == 2 and "names code" in ended.out + ended.err, (command, ended)
        assert not library[1].exists(), command
    assert not list(project.glob("**/*.engine")) and not list(project.glob("jobs/*.json"))


def test_one_message_has_all_that_is_to_be_agreed_to(call: Any, project: Path, library: tuple[Path, Path]) -> None:
    configure(project, SETTINGS["all, from another folder"].format("."), ["plain"])
    first = call("check", "plain.onnx", "-q")
    flags = re.findall(r"--agree ([0-9a-f]{64})", first.err)
    files = (project / "libtrap.so", project / "trap.py")
    assert {*flags} == {hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    agreed = call("check", "plain.onnx", "-q", *(word for flag in flags for word in ("--agree", flag)))
    assert "names code" not in agreed.err
    library[1].unlink(missing_ok=True)


@pytest.mark.parametrize("flag", ["--plugin", "--dynamicPlugins", "--setPluginsToSerialize"])
def test_rtx_takes_no_plugins_and_loads_none(call: Any, project: Path, library: tuple[Path, Path], flag: str) -> None:
    for model in ("own.onnx", "plain.onnx"):
        ended = call("build", model, "--target", "rtx", flag, "libtrap.so", "-q")
        assert ended.code == 4 and "takes no plugins" in ended.err, ended
    assert not library[1].exists() and not list(project.glob("*.engine"))


def test_several_libraries_are_each_looked_at(call: Any, project: Path, library: tuple[Path, Path]) -> None:
    ended = call("build", "own.onnx", "--target", "rtx", "--plugin", "libtrap.so", "--plugin", "libgone.so", "-q")
    assert ended.code == 2 and "libgone.so" in ended.err
    assert not library[1].exists()
