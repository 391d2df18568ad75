"""Several modules in one go, on the command line: export, build and verify of the manifest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from support import export_parts as nets
from trtconv.core.documents.pipeline import PartKind, load_document


@pytest.fixture
def exported(call, tmp_path: Path) -> Path:
    flags = f"{nets.__file__}:speech -o {tmp_path / 'm.onnx'} --dim batch=1:1:4 --dim length=4:12:40"
    ended = call("export", *flags.split(), "--target", "rtx", "-q")
    assert ended.code == 0, ended.err or ended.out
    assert "stored once" in ended.out
    assert ended.out.splitlines()[-1] == f"wrote {tmp_path / 'm.pipeline.json'}"
    return tmp_path


def test_engines_are_built_and_verified_from_the_manifest(exported: Path, call) -> None:
    pytest.importorskip("tensorrt_rtx")
    manifest = str(exported / "m.pipeline.json")
    beyond = call("build", manifest, "--target", "rtx", "-q", "--dim", "length=4:12:41")
    assert (beyond.code, "beyond" in beyond.err) == (2, True)
    assert call("build", manifest, "--target", "rtx", "-q", "-o", str(exported / "m.engine")).code == 2
    assert call("build", manifest, "--target", "rtx", "-q", "--dim", "batch=1:1:2").code == 0
    document = load_document(exported / "m.pipeline.json").document
    assert {part.kind for part in document.parts} == {PartKind.ENGINE}
    assert document.profiles[0]["batch"].max == 2
    assert json.loads((exported / "m.vocoder.engine.json").read_bytes())["proof"]["agrees"] is True
    assert call("verify", manifest, "-q").code == 0
    again = call("build", manifest, "--target", "rtx", "-q", "--dim", "batch=1:1:2")
    assert (again.code, "kept" in again.out) == (0, True)


def test_inputs_of_parts_are_said_in_python(call, tmp_path: Path) -> None:
    spec = f"{nets.__file__}:speech"
    ended = call("export", spec, "-o", str(tmp_path / "m.onnx"), "--input", "ids=1x4:int64", "-q")
    assert (ended.code, list(tmp_path.iterdir())) == (2, [])
    assert "--input" in ended.err
