"""action.yml, the script behind it, and the pre-commit hook."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import MODELS, ROOT

SCRIPT = ROOT / ".ci" / "action.sh"

pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None or sys.platform == "win32", reason="needs bash"),
    pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx"),
]


def _run(tmp_path: Path, **inputs: str) -> tuple[int, str, str]:
    trtconv = tmp_path / "trtconv"
    trtconv.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trtconv "$@"\n')
    trtconv.chmod(0o755)
    output = tmp_path / "output"
    output.write_text("")
    defaults = {"MODELS": "", "ARGS": "", "FAIL_ON": "error", "SARIF": ""}
    environment = {**os.environ, **defaults, "PYTHONPATH": str(ROOT), "TRTCONV": str(trtconv), **inputs}
    environment["GITHUB_OUTPUT"] = str(output)
    ended = subprocess.run(
        ["bash", str(SCRIPT)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stdout + ended.stderr, output.read_text()


def test_action_checks_models_and_writes_sarif(tmp_path: Path) -> None:
    for name in ("a b.onnx", "c.onnx"):
        shutil.copy(MODELS / "unet.onnx", tmp_path / name)
    sizes = "--dim batch=1 --dim 'height=64' --dim width=64 --target rtx"
    code, said, output = _run(tmp_path, MODELS="a b.onnx\nc.onnx\n", ARGS=sizes, SARIF="log.sarif")
    assert (code, output) == (0, "exit-code=0\n"), said
    assert said.count("::notice ") == 2
    assert len(json.loads((tmp_path / "log.sarif").read_text())["runs"][0]["artifacts"]) == 2


def test_action_fails_with_the_models(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"x")
    code, said, output = _run(tmp_path, MODELS="broken.onnx")
    assert (code, output) == (2, "exit-code=2\n"), said


def test_action_runs_nothing_of_its_inputs(tmp_path: Path) -> None:
    _run(tmp_path, MODELS="$(touch pwned1)\n`touch pwned2`", ARGS="$(touch pwned3); touch pwned4 `touch pwned5`")
    assert not list(tmp_path.glob("pwned*"))


def test_action_without_models_takes_the_configuration(tmp_path: Path) -> None:
    shutil.copy(MODELS / "unet.onnx", tmp_path / "u.onnx")
    (tmp_path / "trtconv.toml").write_text('targets = ["rtx"]\n[[models]]\npath = "u.onnx"\n')
    code, said, _ = _run(tmp_path)
    assert code == 0, said
    assert "u.onnx: 1 info" in said


def test_every_input_of_the_action_is_used() -> None:
    text = (ROOT / "action.yml").read_text()
    declared = text.partition("inputs:\n")[2].partition("outputs:\n")[0]
    names = [
        line.strip()[:-1] for line in declared.splitlines() if line.startswith("  ") and not line.startswith("   ")
    ]
    assert names
    for name in names:
        assert f"inputs.{name}" in text


def test_action_refuses_arguments_that_end_inside_a_quote(tmp_path: Path) -> None:
    shutil.copy(MODELS / "unet.onnx", tmp_path / "u.onnx")
    code, said, _ = _run(tmp_path, MODELS="u.onnx", ARGS='--dim batch=1 "--thorough')
    assert code == 2, said
    assert "quote" in said


def _recipes() -> list[tuple[str, str]]:
    """Returns every line that starts Python with a module or code, of what users copy or CI runs: file and command."""
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docker/*"), *ROOT.glob("trtconv/**/*.py")]
    files += [ROOT / "action.yml", ROOT / ".pre-commit-hooks.yaml", *ROOT.glob(".ci/*")]
    starts = re.compile(r"\bpython[0-9.]*((?: +-[A-Za-z]+)* +-[mc]\b[^|;&\n]*)")
    texts = ((path, path.read_text(encoding="utf-8")) for path in files if path.is_file())
    return [(str(path.relative_to(ROOT)), found[0]) for path, text in texts for found in starts.finditer(text)]


def test_no_recipe_takes_a_module_from_the_working_directory() -> None:
    recipes = [(path, command) for path, command in _recipes() if path != "trtconv/__main__.py"]
    assert {path for path, _ in recipes} >= {"action.yml", "docs/ci.md", "README.md"}
    for path, command in recipes:
        assert re.match(r"python[0-9.]* +-[IP]\b", command), f"{path}: {command}: -I is missing"


def test_the_action_installs_itself_with_nothing_of_the_checkout(tmp_path: Path) -> None:
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    programs.mkdir()
    for name in ("venv", "ensurepip", "pip", "subprocess", "logging", "sitecustomize", "runpy", "encodings"):
        (checkout / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'a').write({name!r} + '\\n')\n")
    (programs / "python").symlink_to(sys.executable)
    (command,) = (command for file, command in _recipes() if file == "action.yml")
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path)}
    ended = subprocess.run(["bash", "-c", command], cwd=checkout, env=environment, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert not (tmp_path / "sprung").exists(), (tmp_path / "sprung").read_text()
