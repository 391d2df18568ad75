"""What ONNX's checker says of a file that work has failed on."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.graph.complaint import complaint

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def saved(folder: Path, text: str) -> str:
    (folder / "m.onnx").write_bytes(onnx.parser.parse_model(HEAD + text).SerializeToString())
    return str(folder / "m.onnx")


def test_a_right_model_has_none(tmp_path: Path) -> None:
    assert complaint(saved(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu (x) }")) == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("g (float[2] x) => (float[2] y) { y = Nonsense (x) }", "Nonsense"),
        # Only inference of shapes sees that.
        ("g (float[2] x, float[3] z) => (float[2] y) { y = Add (x, z) }", "Add"),
        ("g (float[2] x, int64[2] z) => (float[2] y) { y = Add (x, z) }", "Add"),
    ],
)
def test_a_wrong_one_is_named_by_its_operator(tmp_path: Path, text: str, word: str) -> None:
    assert word in complaint(saved(tmp_path, text))


def test_what_is_long_is_cut(tmp_path: Path) -> None:
    assert len(complaint(saved(tmp_path, f"g (float[2] x) => (float[2] y) {{ y = {'N' * 900} (x) }}"))) == 300


@pytest.mark.parametrize("data", [b"", b"\xff\xff nothing", onnx.ModelProto(ir_version=8).SerializeToString()])
def test_of_what_is_not_a_model_it_says_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(data)
    assert complaint(str(tmp_path / "m.onnx")) == ""


def test_of_a_file_that_is_gone_it_says_nothing(tmp_path: Path) -> None:
    assert complaint(str(tmp_path / "gone.onnx")) == ""
