"""CodeFile that a call names may be loaded; code that a configuration names, where the call agrees by its SHA-256."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from trtconv.core.agreement import AGREE, AgreedCode, CodeFile, agreed, code_option
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.options import of_flags, of_settings, to_settings

CODE = b"print(1)\n"
SHA256 = hashlib.sha256(CODE).hexdigest()


@frozen
class Request:
    files: tuple[CodeFile, ...] = code_option("--file", "Load it.", metavar="FILE", key="files", about="Files.")
    agree: tuple[str, ...] = AGREE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_bytes(CODE)
    return path


def test_the_command_line_needs_no_agreement(file: Path) -> None:
    request = Request(**of_flags(Request, {"file": (str(file), str(file)), "agree": ()}))
    assert agreed(request.files, request.agree) == (AgreedCode(file, SHA256),)


def test_a_configuration_needs_it(file: Path) -> None:
    request = Request(**of_settings(Request, {"files": ["code.py"]}))
    files = [each.of(file.with_name("trtconv.toml")) for each in request.files]
    with pytest.raises(InputError) as refused:
        agreed(files, request.agree)
    assert str(file) in refused.value.message and f"--agree {SHA256}" in refused.value.hint
    assert agreed(files, [SHA256]) == (AgreedCode(file, SHA256),)


def test_a_setting_that_nobody_located_is_a_configuration_s_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    with pytest.raises(InputError, match="names code"):
        agreed(of_settings(Request, {"files": ["code.py"]})["files"], ())


@pytest.mark.parametrize("digits", [SHA256.upper(), f"sha256:{SHA256}", f" {SHA256}\n"])
def test_spellings_of_a_hash(digits: str) -> None:
    assert of_flags(Request, {"file": (), "agree": (digits,)})["agree"] == (SHA256,)


@pytest.mark.parametrize("digits", ["", SHA256[:63], SHA256 + "0", "md5:" + SHA256, SHA256[:16], "all", "*"])
def test_what_is_no_hash(digits: str) -> None:
    with pytest.raises(InputError, match="SHA-256"):
        of_flags(Request, {"file": (), "agree": (digits,)})


def test_no_configuration_can_agree() -> None:
    assert "agree" not in {key for each in Request.__dataclass_fields__.values() for key in keys(each)}  # type: ignore[attr-defined]


def keys(field: Any) -> list[str]:
    return list(field.metadata["option"].settings)


def test_what_was_agreed_to_is_what_is_read(file: Path) -> None:
    (code,) = agreed(CodeFile.named([file]), ())
    assert code.read() == CODE.decode()
    file.write_bytes(CODE + b"#")
    with pytest.raises(InputError, match="changed"):
        code.read()


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe"])
def test_what_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "code.py"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match="cannot be read"):
        agreed(CodeFile.named([path]), ())


def test_files_travel_as_settings(file: Path) -> None:
    request = Request(files=CodeFile.named([file]))
    assert to_settings(request, Request) == {"files": [str(file)]}
