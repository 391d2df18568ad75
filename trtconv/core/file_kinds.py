"""What a file is that is not what was asked for, by its first bytes: for advice that fits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from trtconv.core.reading import open_plain

_HEAD_BYTES = 64


class FileKind(NamedTuple):
    """A kind of file that people mistake for an ONNX model or an engine.

    Args:
        name: With its article, as in "a gzip archive".
        advice: What to do with one where a model is wanted.
    """

    name: str
    advice: str


_EXPORT = "Export it: trtconv export --help shows how."
_CONVERT = "Convert it to ONNX first, with tf2onnx for example: python -I -m tf2onnx.convert --help."

ENGINE = FileKind(
    "a TensorRT engine",
    "Give the .onnx file that it was built from; engines are for trtconv inspect, verify, bench and run.",
)
PYTORCH = FileKind("a PyTorch file", _EXPORT)
URL = FileKind("an address", "Download the file first, then give its path.")
SAVED_MODEL = FileKind("a TensorFlow SavedModel", _CONVERT)

_STARTS = (
    (rb".trt\0", ENGINE),
    (rb"\x1f\x8b", FileKind("a gzip archive", "Unpack it first, with gunzip or tar -xzf.")),
    (rb"\x89HDF", FileKind("an HDF5 file, as Keras writes", _CONVERT)),
    (rb"....TFL3", FileKind("a TensorFlow Lite model", _CONVERT)),
    (rb"version https://git-lfs", FileKind("a Git LFS pointer", "Fetch the file itself: git lfs pull.")),
    (rb"\x80[\x02-\x05]", FileKind("a Python pickle, as PyTorch writes", _EXPORT)),
    (rb".{8}\{\s*\"", FileKind("a safetensors file", "It has weights alone: trtconv export makes a model with them.")),
    (rb"\s*<(!DOCTYPE|html|\?xml)", FileKind("a web page", "Download the file itself, not the page that shows it.")),
    (rb"\s*\{", FileKind("a JSON document", "Give an .onnx file.")),
    (rb"$", FileKind("an empty file", "Export the model again, or copy the file again.")),
    (rb"[\t\r\n -~]+$", FileKind("a text file", "Give an .onnx file, which is binary.")),
)


def kind_of(path: Path) -> FileKind | None:
    """Returns what a path leads to where that is known to be neither an ONNX model nor a folder of one.

    Args:
        path: A file, a folder or nothing; an address that was taken for a path has lost a slash.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path.as_posix()) and not path.exists():
        return URL
    if path.name == "saved_model.pb" or (path / "saved_model.pb").is_file():
        return SAVED_MODEL
    try:
        with open_plain(path) as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if head.startswith(b"PK\3\4"):
        return _kind_of_zip(path)
    return next((kind for start, kind in _STARTS if re.match(start, head, re.DOTALL | re.IGNORECASE)), None)


def _kind_of_zip(path: Path) -> FileKind:
    # Loaded only here: models are no archives.
    import zipfile

    try:
        with open_plain(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        names = []
    if any(name.endswith(("data.pkl", "models/model.json", "archive_format")) for name in names):
        return PYTORCH
    if names and all(name.endswith(".npy") for name in names):
        return FileKind("a NumPy .npz file", "Give an .onnx file; arrays are for --inputs.")
    return FileKind("a zip archive", "Unpack it first.")
