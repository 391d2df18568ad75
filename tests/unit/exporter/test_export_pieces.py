"""Files in one piece, written without holding the weights. Needs no torch."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from trtconv.core.errors import InputError
from trtconv.exporter.file import write


def _model(folder: Path) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Returns a model and the same with its large weights in a file beside it."""
    weights = {
        "w": np.arange(300_000, dtype=np.float32).reshape(3, 100_000),
        "empty": np.zeros((0, 4), np.float32),
        "ints": np.arange(5, dtype=np.int64),
        "half": np.ones((7, 11), np.float16),
    }
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    nodes = [helper.make_node("Identity", ["w"], ["y"], name="n", doc_string="kept")]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 100_000])
    graph = helper.make_graph(nodes, "g", [], [output], tensors)
    whole = helper.make_model(graph, producer_name="p", ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    split = onnx.ModelProto()
    split.CopyFrom(whole)
    onnx.save(split, folder / "raw.onnx", save_as_external_data=True, size_threshold=64, location="raw.data")
    return whole, onnx.load(folder / "raw.onnx", load_external_data=False)


def _values(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def test_one_piece(tmp_path: Path) -> None:
    whole, split = _model(tmp_path)
    output = tmp_path / "deep" / "out.onnx"
    write.write_model(split, tmp_path, output)
    (tmp_path / "raw.data").unlink()
    got = onnx.load(output)
    onnx.checker.check_model(got)
    assert [p.name for p in output.parent.iterdir()] == ["out.onnx"]
    assert got.graph.node[0].doc_string == "kept"
    assert {n: v.tolist() for n, v in _values(got).items()} == {n: v.tolist() for n, v in _values(whole).items()}
    assert got.producer_name == "p"


def _replace_nearby(source: Path, target: Path) -> None:
    """Is `Path.replace`, of folders on several file systems."""
    if source.parent != target.parent:
        raise OSError(errno.EXDEV, "Invalid cross-device link")
    os.replace(source, target)  # noqa: PTH105


@pytest.mark.parametrize("kind", ["all of it", "more in the file", "a file system apart"])
def test_two_pieces_where_one_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Weights are moved where they are all that lies in a file, and copied elsewhere."""
    whole, split = _model(tmp_path)
    monkeypatch.setattr(write, "ONE_PIECE_LIMIT", 1000)
    output = tmp_path / "deep" / "out.onnx"
    inode = (tmp_path / "raw.data").stat().st_ino
    if kind == "a file system apart":
        monkeypatch.setattr(Path, "replace", _replace_nearby)
    elif kind == "more in the file":
        with (tmp_path / "raw.data").open("ab") as file:
            file.write(bytes(1 << 19))
    write.write_model(split, tmp_path, output)
    moved = kind == "all of it"
    assert ((output.parent / "out.onnx.data").stat().st_ino == inode) is moved
    (tmp_path / "raw.data").unlink(missing_ok=moved)
    got = onnx.load(output)
    assert sorted(p.name for p in output.parent.iterdir()) == ["out.onnx", "out.onnx.data"]
    assert {n: v.tolist() for n, v in _values(got).items()} == {n: v.tolist() for n, v in _values(whole).items()}


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    _, split = _model(tmp_path)
    (tmp_path / "raw.data").write_bytes(b"short")
    output = tmp_path / "out.onnx"
    output.write_bytes(b"old")
    with pytest.raises(EOFError):
        write.write_model(split, tmp_path, output)
    assert output.read_bytes() == b"old"
    assert not list(tmp_path.glob(".*"))


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    _, split = _model(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError):
        write.write_model(split, tmp_path, tmp_path / "file" / "out.onnx")
