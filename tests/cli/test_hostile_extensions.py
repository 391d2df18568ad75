"""Configurations and folders that name somebody's code: nothing is run, nor imported, unless the call agrees."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from pathlib import Path

import onnx
import onnx.parser
import pytest

from support.paths import ROOT
from trtconv.pipeline.extending import added

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="needs tensorrt-rtx")
ACME = (ROOT / "tests" / "data" / "extension.py").read_text(encoding="utf-8")
MODEL = (
    '<ir_version: 8, opset_import: ["": 17]> g (float[2, 2] x) => (float[2, 3] y) '
    "<float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[3] s = {2, 3, 4}> { t = MatMul (x, w)  u = Mul (t, s)  y = Tanh (u) }"
)
CONFIG = """
targets = ["rtx"]
extend = ["acme.py"]
[[models]]
path = "m.onnx"
"""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose extension leaves a file behind where it is run."""
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    (tmp_path / "acme.py").write_text(f"open({str(tmp_path / 'trap')!r}, 'w').close()\n{ACME}", encoding="utf-8")
    (tmp_path / "trtconv.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(added, "_AGREED", {})
    return tmp_path


def assert_refused(project: Path, ended, *words: str) -> None:
    assert ended.code == 2, ended
    assert all(word in ended.out + ended.err for word in words), ended
    assert not (project / "trap").exists() and not list(project.glob("*.engine"))


COMMANDS = [["check"], ["check", "m.onnx"], ["build"], ["build", "m.onnx"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_configuration_alone_runs_nothing(call, project: Path, command: list[str]) -> None:
    assert_refused(project, call(*command, "-q"), "acme.py", f"--agree {sha256(project / 'acme.py')}")


@pytest.mark.parametrize("command", COMMANDS[:2], ids=" ".join)
def test_with_the_agreement_it_is_run(call, project: Path, command: list[str]) -> None:
    ended = call(*command, "-q", "--agree", sha256(project / "acme.py"))
    assert ended.code == 0 and "ACME101" in ended.out, ended
    assert (project / "trap").exists()


def test_the_hash_of_another_file_is_none(call, project: Path) -> None:
    (project / "good.py").write_text(ACME)
    assert_refused(project, call("check", "-q", "--agree", sha256(project / "good.py")), "acme.py")


def test_a_link_in_place_of_the_file(call, project: Path) -> None:
    """What was agreed to was another content, wherever the link leads."""
    (project / "good.py").write_text(ACME)
    agreed = sha256(project / "good.py")
    (project / "evil.py").write_bytes((project / "acme.py").read_bytes())
    (project / "acme.py").unlink()
    (project / "acme.py").symlink_to("evil.py")
    assert_refused(project, call("check", "-q", "--agree", agreed), "acme.py")


@pytest.mark.parametrize("command", [["check", "m.onnx"], ["build", "m.onnx"]], ids=" ".join)
def test_a_file_that_is_changed_after_the_agreement(
    call, project: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    agree = added.agreed
    file = project / "acme.py"

    def swapped(files, agreements):
        codes = agree(files, agreements)
        file.write_text(file.read_text() + "\n")
        return codes

    monkeypatch.setattr(added, "agreed", swapped)
    assert_refused(project, call(*command, "-q", "--agree", sha256(file)), "changed")


@pytest.mark.parametrize("kind", ["pipe", "folder", "missing"])
def test_what_is_no_file(call, project: Path, kind: str) -> None:
    (project / "acme.py").unlink()
    if kind == "pipe":
        os.mkfifo(project / "acme.py")
    if kind == "folder":
        (project / "acme.py").mkdir()
    assert_refused(project, call("check", "-q"), "acme.py")


@pytest.mark.parametrize("line", ['agree = ["{}"]', 'agree = "{}"', 'options = {{ agree = "{}" }}'])
def test_a_configuration_cannot_agree(call, project: Path, line: str) -> None:
    (project / "trtconv.toml").write_text(line.format(sha256(project / "acme.py")) + CONFIG)
    assert_refused(project, call("check", "-q"), "agree")


def package(folder: Path, name: str, trap: Path) -> Path:
    """Writes an installed package that offers an extension."""
    folder.mkdir(exist_ok=True)
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"open({str(trap)!r}, 'w').close()\n")
    (folder / name / "extension.py").write_text(f"open({str(trap)!r}, 'w').close()\n{ACME}")
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[trtconv.extensions]\n{name} = {name}.extension\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/extension.py,,\n{name}-1.2.dist-info/METADATA,,\n")
    return folder / name / "extension.py"


@pytest.fixture
def site(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Site packages with one that offers an extension; its file."""
    folder = tmp_path_factory.mktemp("site")
    file = package(folder, "acmepack", project / "trap")
    monkeypatch.syspath_prepend(folder)
    (project / "trtconv.toml").unlink()
    return file


def test_what_packages_offer_is_listed_and_not_imported(call, project: Path, site: Path) -> None:
    listed = json.loads(call("extension", "list", "--format", "json").out)["extensions"]
    assert listed == [
        {"name": "acmepack", "package": "acmepack 1.2", "module": "acmepack.extension", "sha256": sha256(site)}
    ]
    doctor = json.loads(call("doctor", "--format", "json").out)
    assert [each["name"] for each in doctor["extensions"]] == ["acmepack"]
    assert call("check", "m.onnx", "-q").code == 0
    assert not (project / "trap").exists()


def test_a_configuration_that_names_a_package_needs_the_agreement(call, project: Path, site: Path) -> None:
    (project / "trtconv.toml").write_text(CONFIG.replace("acme.py", "acmepack"))
    assert_refused(project, call("check", "-q"), "acmepack", sha256(site))
    assert call("check", "-q", "--agree", sha256(site)).code == 0


def test_a_package_that_is_named_is_run(call, project: Path, site: Path) -> None:
    ended = call("check", "m.onnx", "-q", "--extend", "acmepack")
    assert ended.code == 0 and "ACME101" in ended.out


def test_packages_of_the_working_directory_are_none(call, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(project, "evil", project / "trap")
    monkeypatch.syspath_prepend(project)
    assert json.loads(call("extension", "list", "--format", "json").out)["extensions"] == []
    (project / "trtconv.toml").unlink()
    assert_refused(project, call("check", "m.onnx", "-q", "--extend", "evil"), "evil")
