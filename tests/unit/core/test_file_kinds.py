"""Files that are taken for models, and what is said of them."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pytest

from trtconv.core.errors import InputError
from trtconv.core.file_kinds import kind_of
from trtconv.graph.model import OnnxModel

STARTS = {
    "plan.engine": (b"vtrt\0\0\0\0" + bytes(64), "a TensorRT engine", "built from"),
    "z.onnx": (gzip.compress(b"x"), "a gzip archive", "gunzip"),
    "m.h5": (b"\x89HDF\r\n\x1a\n" + bytes(8), "an HDF5 file", "tf2onnx"),
    "m.tflite": (b"\x1c\0\0\0TFL3" + bytes(8), "a TensorFlow Lite model", "tf2onnx"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"),
    "old.pt": (b"\x80\x02\x8a\nl\xfc\x9cF", "a Python pickle", "trtconv export"),
    "page.onnx": (b"<!DOCTYPE html><html>", "a web page", "Download"),
    "report.json": (b'{"schema": 1}', "a JSON document", ".onnx"),
    "w.safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"a": {}}', "a safetensors file", "trtconv export"),
    "saved_model.pb": (b"\x08\x01", "a TensorFlow SavedModel", "tf2onnx"),
}


@pytest.mark.parametrize("name", STARTS)
def test_each_kind_gets_its_advice(tmp_path: Path, name: str) -> None:
    data, said, advice = STARTS[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError) as caught:
        OnnxModel.load(tmp_path / name)
    assert f"{name} is {said}" in caught.value.message
    assert advice in caught.value.hint


@pytest.mark.parametrize(
    ("names", "said"),
    [(("w/data.pkl", "w/data/0"), "a PyTorch file"), (("x.npy",), "a NumPy .npz file"), (("a",), "a zip archive")],
)
def test_zips_are_told_apart(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        for name in names:
            archive.writestr(name, b"")
    kind = kind_of(tmp_path / "w.pt")
    assert kind is not None
    assert kind.name == said


def test_addresses_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^https://example.com/unet.onnx is an address") as caught:
        OnnxModel.load(Path("https://example.com/unet.onnx"))
    assert "Download" in caught.value.hint
    (tmp_path / "saved").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        OnnxModel.load(tmp_path / "saved")
    (tmp_path / "saved" / "saved_model.pb").touch()
    with pytest.raises(InputError, match="SavedModel"):
        OnnxModel.load(tmp_path / "saved")


def test_a_near_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "unet.onnx").touch()
    with pytest.raises(InputError, match=r"unett.onnx: no such file; did you mean .*unet.onnx\?"):
        OnnxModel.load(tmp_path / "unett.onnx")


@pytest.mark.parametrize("name", ["none.onnx", "*.onnx", "dead.onnx", "u.onnx"])
def test_what_shares_the_suffix_alone_or_leads_nowhere_is_not_suggested(tmp_path: Path, name: str) -> None:
    (tmp_path / "un.onnx").touch()
    (tmp_path / "dead.onnx").symlink_to(tmp_path / "gone.onnx")
    with pytest.raises(InputError, match=r"onnx: no such file\n"):
        OnnxModel.load(tmp_path / name)


def test_what_is_not_known_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\x08\x07\x12")
    assert kind_of(tmp_path / "a") is None
    assert kind_of(tmp_path / "b") is None
