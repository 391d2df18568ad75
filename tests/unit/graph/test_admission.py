"""Files that are read again: the same bytes are admitted once, under one budget."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.core import budget
from trtconv.core.budget import BudgetExceeded
from trtconv.core.errors import InputError
from trtconv.graph import admission, checker
from trtconv.graph import model as model_module
from trtconv.graph.model import OnnxModel

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { a = Relu (x)  y = Neg (a) }"""


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Operators of each model that is examined."""
    operators: list[str] = []
    original = checker.examine

    def examine(proto: onnx.ModelProto) -> object:
        operators.append(" ".join(node.op_type for node in proto.graph.node))
        return original(proto)

    monkeypatch.setattr(checker, "examine", examine)
    monkeypatch.setattr(admission, "_admitted", ())
    return operators


def written(path: Path, text: str = TEXT) -> Path:
    """Writes a model."""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_the_same_bytes_are_examined_once(tmp_path: Path, examined: list[str]) -> None:
    path = written(tmp_path / "m.onnx")
    first, again = OnnxModel.load(path), OnnxModel.load(path)
    OnnxModel.load(written(tmp_path / "other_name.onnx"), hashed=True)
    assert examined == ["Relu Neg"]
    assert first.main.columns.ops == again.main.columns.ops == ["Relu", "Neg"]
    assert again.main.columns.nodes[0] is not first.main.columns.nodes[0]


def test_other_bytes_are_examined(tmp_path: Path, examined: list[str]) -> None:
    path = written(tmp_path / "m.onnx")
    OnnxModel.load(path)
    OnnxModel.load(written(path, TEXT.replace("Relu", "Sqrt")))
    OnnxModel.load(written(path))
    assert examined == ["Relu Neg", "Sqrt Neg"]


def test_what_is_refused_is_refused_again(tmp_path: Path, examined: list[str]) -> None:
    path = written(tmp_path / "m.onnx", TEXT.replace("Neg (a)", "Neg (b)"))
    for _ in range(2):
        with pytest.raises(InputError, match="reads 'b', which nothing makes"):
            OnnxModel.load(path)
    assert len(examined) == 2


def test_another_budget_counts_anew(tmp_path: Path, examined: list[str]) -> None:
    path = written(tmp_path / "m.onnx")
    OnnxModel.load(path)
    with budget.allowed(budget.parse("nodes=1")), pytest.raises(BudgetExceeded):
        OnnxModel.load(path)
    assert len(examined) == 1


def test_names_that_mean_nothing_are_forgotten_each_time(tmp_path: Path, examined: list[str]) -> None:
    path = written(tmp_path / "m.onnx", TEXT.replace("float[2,3] x", "float[unk,3] x"))
    assert [OnnxModel.load(path).inputs[0].dims for _ in range(2)] == [("x:0", 3)] * 2
    assert len(examined) == 1


def test_few_are_remembered(tmp_path: Path, examined: list[str]) -> None:
    path = tmp_path / "m.onnx"
    for name in "abcde":
        OnnxModel.load(written(path, TEXT.replace("g (", f"{name} (")))
    for name in "bcdea":
        OnnxModel.load(written(path, TEXT.replace("g (", f"{name} (")))
    assert len(examined) == 6


def test_a_large_file_is_hashed_only_where_somebody_asks(
    tmp_path: Path, examined: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "_SMALL_FILE", 1)
    path = written(tmp_path / "m.onnx")
    for _ in range(2):
        OnnxModel.load(path)
    assert len(examined) == 2
    for _ in range(2):
        OnnxModel.load(path, hashed=True)
    assert len(examined) == 3


def test_a_digest_is_that_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx")
    light = OnnxModel.load(path, data=path.read_bytes() + b"\x32\x00")
    assert light.digest() == OnnxModel.load(path, hashed=True).digest()


def test_the_same_model_is_inferred_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    original = onnx.shape_inference.infer_shapes

    def infer(data: bytes, **options: bool) -> onnx.ModelProto:
        asked.append(len(data))
        return original(data, **options)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    monkeypatch.setattr("trtconv.graph.inference._recent", ())
    path = written(tmp_path / "m.onnx")
    first, again = OnnxModel.load(path), OnnxModel.load(path)
    assert first.main.shapes["a"] == again.main.shapes["a"] == (2, 3)
    once = len(asked)
    other = OnnxModel.load(written(path, TEXT.replace("float[2,3]", "float[4,3]")))
    assert other.main.shapes["a"] == (4, 3)
    assert again.main.shapes["a"] == (2, 3) and len(asked) == 2 * once
    again.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    again.touch()
    assert again.main.shapes["a"] == (5, 3)
    # Of two others since.
    assert OnnxModel.load(written(path)).main.shapes["a"] == (2, 3)
    assert len(asked) == 4 * once
