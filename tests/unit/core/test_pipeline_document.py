"""MODEL.pipeline.json: read back as it was written, and refused where a stranger made it up."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.pipeline import (
    PartFile,
    PartKind,
    PartRecord,
    PartTensor,
    PipelineDocument,
    is_pipeline,
    load_document,
)
from trtconv.core.errors import InputError

SHA = hashlib.sha256(b"engine").hexdigest()
X, A, Y = PartTensor("x", "float", (1, "height")), PartTensor("a", "float", (1, "size0")), PartTensor("y", "int64")
DOCUMENT = PipelineDocument(
    FileIdentity("net.onnx", SHA),
    (
        PartRecord(PartKind.ENGINE, "net.1.part.engine", SHA, (X,), (A,), PartFile("net.1.part.onnx", SHA), 3),
        PartRecord(PartKind.ONNX, "net.2.part.onnx", SHA, (A, X), (Y,), None, 1),
    ),
    (X,),
    (Y,),
)


def written(folder: Path, document: object) -> Path:
    path = folder / "net.pipeline.json"
    path.write_text(json.dumps(document))
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    assert load_document(written(tmp_path, DOCUMENT.to_json())).document == DOCUMENT


def test_what_crosses_is_told_with_its_parts() -> None:
    (crossing,) = DOCUMENT.crossings
    assert (crossing.name, crossing.source, crossing.target) == ("a", 1, 2)


@pytest.mark.parametrize("name", ["../net.engine", "/etc/passwd", "a/../../b", "", ".", "a//b", "c:b", "a\\b", "a\0b"])
@pytest.mark.parametrize("which", ["file", "onnx"])
def test_files_are_inside_the_folder(tmp_path: Path, name: str, which: str) -> None:
    document = DOCUMENT.to_json()
    part = document["parts"][0]
    if which == "file":
        part["file"] = name
    else:
        part["onnx"]["file"] = name
    with pytest.raises(InputError) as raised:
        load_document(written(tmp_path, document))
    assert "parts[0]" in raised.value.message


def _swapped(document: dict[str, Any]) -> None:
    document["parts"].reverse()


def _made_twice(document: dict[str, Any]) -> None:
    document["parts"][1]["outputs"].append({"name": "a"})


def _same_file(document: dict[str, Any]) -> None:
    document["parts"][1]["file"] = "net.1.part.onnx"


def _engine_alone(document: dict[str, Any]) -> None:
    del document["parts"][0]["onnx"]


def _no_parts(document: dict[str, Any]) -> None:
    document["parts"] = []


def _unmade(document: dict[str, Any]) -> None:
    document["outputs"].append({"name": "z"})


def _no_sha(document: dict[str, Any]) -> None:
    document["parts"][0]["sha256"] = SHA[:-1]


def _kind(document: dict[str, Any]) -> None:
    document["parts"][0]["kind"] = "python"


def _schema(document: dict[str, Any]) -> None:
    document["schema"] = 99


@pytest.mark.parametrize(
    "spoil",
    [_swapped, _made_twice, _same_file, _engine_alone, _no_parts, _unmade, _no_sha, _kind, _schema],
)
def test_parts_that_do_not_fit_together_are_refused(tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> None:
    document = DOCUMENT.to_json()
    spoil(document)
    with pytest.raises(InputError):
        load_document(written(tmp_path, document))


def test_a_file_is_the_one_that_was_written(tmp_path: Path) -> None:
    saved = load_document(written(tmp_path, DOCUMENT.to_json()))
    file = saved.document.parts[0].runs
    with pytest.raises(InputError):
        saved.file(file)
    (tmp_path / file.file).write_bytes(b"engine")
    assert saved.file(file) == tmp_path / file.file
    (tmp_path / file.file).write_bytes(b"another")
    with pytest.raises(InputError):
        saved.file(file)


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"engine")
    (inside / "net.1.part.engine").symlink_to(tmp_path / "secret")
    saved = load_document(written(inside, DOCUMENT.to_json()))
    with pytest.raises(InputError):
        saved.file(saved.document.parts[0].runs)


def test_the_model_may_lie_beside_it(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(DOCUMENT, model=FileIdentity("/nowhere/net.onnx", SHA))
    assert load_document(written(tmp_path, elsewhere.to_json())).model() == tmp_path / "net.onnx"


def test_what_is_missing_is_no_pipeline(tmp_path: Path) -> None:
    assert is_pipeline("a.pipeline.json")
    assert not is_pipeline("a.engine.json")
    with pytest.raises(InputError):
        load_document(tmp_path / "net.pipeline.json")
