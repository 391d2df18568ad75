"""What may be written: nothing of a stranger's folder or configuration makes a command replace what is not its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trtconv.core import config
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_stream, atomic_write
from trtconv.core.outputs import Output, check_all
from trtconv.core.requests.build import BuildRequest
from trtconv.pipeline.outputs import check_outputs

ENGINE = b"ftrt" + bytes(60)
REPORT = '{\n  "schema": 1,\n  "trtconv": "0.1.0"\n}\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a configuration's models, and what belongs to others; outside of it, a file of the user's."""
    (tmp_path / "victim").write_text("mine")
    folder = tmp_path / "checkout"
    for name in ("g.onnx", "h.onnx", "package.json", "notes", ".git/config", ".github/workflows/ci.yml", "sub/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("theirs")
    return folder


def load(folder: Path, *models: tuple[str, str]) -> config.Config:
    text = "".join(f"[[models]]\npath = '{path}'\nengine = '{engine}'\n" for path, engine in models)
    (folder / "trtconv.toml").write_text(text)
    return config.load(folder / "trtconv.toml")


def _link(name: str, to: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(to)


REFUSED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "link of the engine": ("r.engine", _link("r.engine", "../victim")),
    "link of the report": ("r.engine", _link("r.engine.json", "../victim")),
    "link of the report to nothing": ("r.engine", _link("r.engine.json", "../new")),
    "link inside the folder": ("r.engine", _link("r.engine.json", "notes")),
    "link in a circle": ("r.engine", _link("r.engine", "r.engine")),
    "folder that is a link": ("out/r.engine", _link("out", "..")),
    "outside": ("../r.engine", lambda _: None),
    "absolute": ("/tmp/r.engine", lambda _: None),
    "folder of Git": (".git/config", lambda _: None),
    "hook of Git": (".git/hooks/pre-commit", lambda _: None),
    "another tool's folder": (".github/workflows/ci.yml", lambda _: None),
    "hidden file": (".envrc", lambda _: None),
    "folder of Git by a link": ("out/hooks", _link("out", ".git")),
    "the configuration": ("trtconv.toml", lambda _: None),
    "the model itself": ("g.onnx", lambda _: None),
    "another model": ("h.onnx", lambda _: None),
    "another model by a detour": ("sub/../h.onnx", lambda _: None),
    "another model by a hard link": ("hard.engine", lambda folder: os.link(folder / "h.onnx", folder / "hard.engine")),
    "a file of somebody else": ("notes", lambda _: None),
    "a report that is a file of somebody else": ("package", lambda _: None),
}


@pytest.mark.parametrize("detour", ["", "none/../", "none/none/../../"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_configuration_may_not_replace(checkout: Path, name: str, detour: str) -> None:
    engine, prepare = REFUSED[name]
    prepare(checkout)
    with pytest.raises(InputError):
        load(checkout, ("g.onnx", str(Path(detour) / engine)), ("h.onnx", "h.engine"))


@pytest.mark.parametrize(
    ("one", "other", "prepare"),
    [
        ("a.engine", "sub/../a.engine", lambda _: None),
        ("a.engine", "./a.engine", lambda _: None),
        ("a.engine", "none/../a.engine", lambda _: None),
        ("a.engine", "out/a.engine", _link("out", ".")),
        ("a.engine", "a.engine.json", lambda _: None),
        ("a.engine.json", "a.engine", lambda _: None),
        ("a.engine", "b.engine", lambda f: ((f / "a.engine").touch(), os.link(f / "a.engine", f / "b.engine"))),
        ("a.engine", "b.engine", _link("b.engine", "a.engine")),
    ],
)
def test_entries_do_not_share_a_file(checkout: Path, one: str, other: str, prepare: Callable[[Path], object]) -> None:
    prepare(checkout)
    with pytest.raises(InputError):
        load(checkout, ("g.onnx", one), ("h.onnx", other))


def test_what_a_configuration_may_replace(checkout: Path) -> None:
    """An engine, by what it begins with or by its report; and its report, whatever became of that."""
    (checkout / "g.engine").write_bytes(ENGINE)
    (checkout / "g.engine.json").write_text("damaged")
    (checkout / "out").mkdir()
    (checkout / "out" / "h.bin").write_bytes(b"old")
    named = REPORT.replace("}", f', "sha256": "{hashlib.sha256(b"old").hexdigest()}"}}')
    (checkout / "out" / "h.bin.json").write_text(named)
    found = load(checkout, ("g.onnx", "g.engine"), ("h.onnx", "out/h.bin"))
    assert [build.engine_path.name for build in found.builds] == ["g.engine", "h.bin"]
    for build in found.builds:
        check_outputs(build)


@pytest.mark.parametrize("name", ["keep.engine", "keep.plan", "keep.trt", "keep.int8.onnx", "keep.1.part.onnx"])
@pytest.mark.parametrize("report", [None, "{}", REPORT, REPORT + hashlib.sha256(b"another").hexdigest()])
def test_what_trtconv_did_not_write_is_not_replaced_whatever_it_is_called(
    checkout: Path, name: str, report: str | None
) -> None:
    (checkout / name).write_bytes(b"mine")
    if report is not None:
        (checkout / f"{name}.json").write_text(report)
    with pytest.raises(InputError, match="was not written by trtconv"):
        load(checkout, ("g.onnx", name), ("h.onnx", "h.engine"))


@pytest.mark.parametrize(("engine", "content"), [("package", ENGINE), ("new.engine", b"mine")])
def test_a_report_that_trtconv_did_not_write_is_not_replaced(checkout: Path, engine: str, content: bytes) -> None:
    (checkout / engine).write_bytes(content)
    (checkout / f"{engine}.json").write_text("mine")
    with pytest.raises(InputError, match="was not written by trtconv"):
        load(checkout, ("g.onnx", engine), ("h.onnx", "h.engine"))


def test_a_link_that_appears_after_the_configuration_was_read_is_refused(checkout: Path) -> None:
    (build,) = load(checkout, ("g.onnx", "g.engine")).builds
    (checkout / "g.engine.json").symlink_to("../victim")
    with pytest.raises(InputError, match="is a link"):
        check_outputs(build)


@pytest.mark.parametrize("link", ["m.engine", "m.engine.json"])
def test_paths_that_nobody_typed_are_no_links(tmp_path: Path, link: str) -> None:
    (tmp_path / link).symlink_to("victim")
    with pytest.raises(InputError, match="is a link"):
        check_outputs(BuildRequest(tmp_path / "m.onnx"))


def test_a_report_that_nobody_typed_replaces_only_reports(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")
    with pytest.raises(InputError, match="was not written by trtconv"):
        check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "package"))
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "package", report=tmp_path / "package.json"))


def test_what_the_user_typed_goes_where_he_says_but_over_no_input(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"model")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "m.engine").symlink_to(tmp_path / "victim")
    check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / "m.engine"))
    (tmp_path / "link").symlink_to("m.onnx")
    os.link(tmp_path / "m.onnx", tmp_path / "hard")
    for typed in ("m.onnx", "link", "hard", "none/../m.onnx", "none/../link"):
        with pytest.raises(InputError):
            check_outputs(BuildRequest(tmp_path / "m.onnx", tmp_path / typed))


def test_inputs_that_are_not_there_stand_in_nobodys_way(tmp_path: Path) -> None:
    check_all([Output(tmp_path / "out", "the page")], [("a key", None), ("a report", tmp_path / "none")])
    with pytest.raises(InputError, match="is a report, and the page would replace it"):
        check_all([Output(tmp_path / "none", "the page")], [("a report", tmp_path / "none")])


def test_a_link_is_replaced_where_it_is_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    link.symlink_to(victim)
    atomic_write(link, b"new", through_links=False)
    assert (victim.read_text(), link.read_bytes(), link.is_symlink()) == ("mine", b"new", False)
    link.unlink()
    link.symlink_to(victim)
    with atomic_stream(link) as file:
        file.write(b"followed")
    assert (victim.read_bytes(), link.is_symlink()) == (b"followed", True)


def test_stdout_is_not_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not written to stdout"):
        check_outputs(BuildRequest(tmp_path / "m.onnx", Path("-")))
