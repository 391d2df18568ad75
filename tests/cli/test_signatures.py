"""build --sign and --key: engines that are loaded only where a key's owner signed them."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from support.onnx_models import parse
from support.paths import ROOT
from trtconv.core.documents.signed import checksum

pytest.importorskip("tensorrt_rtx")
pytest.importorskip("cryptography")
MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
READING = ["verify m.onnx", "inspect m.engine", "inspect m.engine.json", "bench m.engine", "warm m.engine -o c"]
READING += ["run m.engine --inputs in.npz -o out.npz"]


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with keys of two owners, and an engine that the first has signed."""
    folder = tmp_path_factory.mktemp("signed")
    onnx.save(parse(MODEL), folder / "m.onnx")
    for owner in ("mine", "other"):
        run(folder, "farm", "signing-keys", owner)
    run(folder, "build", "m.onnx", "--target", "rtx", "--sign", "mine/private.pem", "-q", "--prove", "none")
    return folder


@pytest.fixture
def folder(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a copy that a test may spoil, as the working directory."""
    shutil.copytree(signed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import trtconv.cli as c; c.run()"]
    subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)


def spoil(name: str) -> Callable[[Path], None]:
    """Returns what changes one value of the report, and its checksum with it."""

    def change(folder: Path) -> None:
        report = folder / "m.engine.json"
        document = json.loads(report.read_text())
        document[name] = ["changed"] if isinstance(document.get(name), list) else "ed25519:AAAA"
        report.write_text(json.dumps({**document, "body_sha256": checksum(document)}))

    return change


def replace_engine(folder: Path) -> None:
    (folder / "m.engine").write_bytes(bytes(range(256)))


def drop_signature(folder: Path) -> None:
    report = folder / "m.engine.json"
    document = json.loads(report.read_text())
    del document["signature"]
    report.write_text(json.dumps(document))


def test_the_signed_engine_is_taken(call: Callable[..., Any], folder: Path) -> None:
    ended = call("verify", "m.onnx", "--key", "mine/public.pem", "-q")
    assert ended.code == 0, ended.err
    assert call("inspect", "m.engine.json", "--key", "mine/public.pem", "-q").code == 0


@pytest.mark.parametrize("command", READING)
def test_another_owner_is_refused(call: Callable[..., Any], folder: Path, command: str) -> None:
    ended = call(*command.split(), "--key", "other/public.pem", "-q")
    assert ended.code == 2
    assert "is not signed by the owner of other/public.pem" in ended.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (spoil("notes"), "or was changed since"),
        (spoil("signature"), "or was changed since"),
        (drop_signature, "is not signed"),
        (replace_engine, "is not the engine"),
        (lambda folder: (folder / "m.engine.json").unlink(), "has no report"),
        (lambda folder: (folder / "m.engine").unlink(), "cannot be read"),
    ],
)
def test_what_was_changed_is_refused(
    call: Callable[..., Any], folder: Path, change: Callable[[Path], None], said: str
) -> None:
    change(folder)
    ended = call("verify", "m.onnx", "--key", "mine/public.pem", "--trust", "-q")
    assert ended.code == 2
    assert said in ended.err


def test_an_engine_that_somebody_else_signed_is_built_again(call: Callable[..., Any], folder: Path) -> None:
    def build(*more: str) -> bool:
        ended = call("build", "m.onnx", "--target", "rtx", "-q", "--prove", "none", "--format", "json", *more)
        assert ended.code == 0, ended.err
        return bool(json.loads(ended.out)["up_to_date"])

    assert build()
    assert build("--sign", "mine/private.pem")
    assert not build("--sign", "other/private.pem")
    assert build("--sign", "other/private.pem")
    assert call("inspect", "m.engine.json", "--key", "other/public.pem", "-q").code == 0


@pytest.mark.parametrize("key", ["mine/public.pem", "m.onnx", "missing.pem", "mine", "/dev/zero"])
def test_what_cannot_sign(call: Callable[..., Any], folder: Path, key: str) -> None:
    ended = call("build", "m.onnx", "--target", "rtx", "-q", "--sign", key, "--force")
    assert ended.code == 2
    assert "signing-keys" in ended.err


def test_a_private_key_is_not_overwritten(call: Callable[..., Any], folder: Path) -> None:
    key = folder / "mine" / "private.pem"
    before = key.read_bytes()
    for flag in ("-o", "--page"):
        assert call("build", "m.onnx", "--target", "rtx", "-q", "--sign", str(key), flag, str(key)).code == 2
        assert key.read_bytes() == before


def test_without_cryptography_the_package_is_named(
    call: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    ended = call("build", "m.onnx", "--target", "rtx", "-q", "--sign", "mine/private.pem")
    assert ended.code == 4
    assert "pip install cryptography" in ended.err


def test_who_signed_is_told(call: Callable[..., Any], folder: Path) -> None:
    der = base64.b64decode("".join((folder / "mine" / "public.pem").read_text().splitlines()[1:-1]))
    mine = f"sha256:{hashlib.sha256(der).hexdigest()}"
    asked = ("build", "m.onnx", "--target", "rtx", "-q", "--prove", "none", "--sign", "mine/private.pem")
    for flags, kept in (((), True), (("--force",), False)):
        ended = call(*asked, *flags)
        assert f"signed by key {mine}" in ended.out.splitlines(), ended
        assert ("is up to date" in ended.out) == kept
    assert json.loads(call(*asked, "--format", "json").out)["signed_by"] == mine
    assert json.loads((folder / "m.engine.json").read_text())["signed_by"] == mine
    assert f"signature of {mine} is good" in call("verify", "m.onnx", "--key", "mine/public.pem", "-q").out.splitlines()
    for command, key in (("verify m.onnx", "engine"), ("inspect m.engine", "file"), ("inspect m.engine.json", "file")):
        known = call(*command.split(), "--key", "mine/public.pem", "-q", "--format", "json").out
        assert json.loads(known)[key]["signed_by"] == mine
        assert "signed_by" not in json.loads(call(*command.split(), "-q", "--format", "json").out)[key]
    assert "signature of" not in call("verify", "m.onnx", "-q").out


def test_without_a_report_there_is_no_signature_and_it_is_said_where_to_get_it(
    call: Callable[..., Any], folder: Path
) -> None:
    (folder / "m.engine.json").unlink()
    ended = call("verify", "m.onnx", "--key", "mine/public.pem", "-q")
    assert ended.code == 2
    assert "has no report m.engine.json, which the signature would be in" in " ".join(ended.err.split())
    assert "Take it from where the engine was built" in " ".join(ended.err.split())
    assert "--trust" not in ended.err
