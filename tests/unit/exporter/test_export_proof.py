"""A file against PyTorch where PyTorch's own outputs hang on the last digits of the inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv.exporter.file import proof, running  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import Subject, prepare  # noqa: E402

TIE = torch.tensor([[1.0, 1.0 + 2e-7], [5.0, 1.0]])
APART = torch.tensor([[1.0, 3.0], [5.0, 1.0]])


class Larger(torch.nn.Module):
    """Says which of two is larger, as max-unpooling does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x[:, 0] > x[:, 1]).float()


class Session:
    """Stands for a file: rounds more coarsely, and may be wrong besides."""

    def __init__(self, wrong: float = 0.0) -> None:
        self.wrong = wrong

    def run(self, names: object, feeds: dict[str, Any]) -> list[Any]:
        x = feeds["x"]
        return [(x[:, 0] + 1e-6 > x[:, 1]).astype("float32") + self.wrong]


def _subject() -> Subject:
    return prepare(Larger().eval(), (InputDecl("x", (2, 2)),), (), (APART,))


def _error(monkeypatch: pytest.MonkeyPatch, drawn: list[torch.Tensor], session: Session) -> float:
    """Returns the error that is found; `drawn` are the inputs, those that are left over were not asked for."""

    def draw(inputs: object, shapes: object, seed: int, run: Any) -> Any:
        tensors = (drawn.pop(0),)
        return tensors, run(tensors)

    monkeypatch.setattr(proof, "inputs_that_run", draw)
    loaded = SimpleNamespace(session=session, inputs=frozenset({"x"}), widened=False)
    error, _ = proof._compare_at(loaded, _subject(), [(2, 2)], 3, 1e-4)
    assert error is not None
    return error


def test_a_near_tie_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [TIE, APART]
    assert _error(monkeypatch, drawn, Session()) == 0.0
    assert not drawn


def test_a_wrong_file_is_wrong_at_once_where_pytorch_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [APART, APART]
    assert _error(monkeypatch, drawn, Session(0.5)) == 0.5
    assert len(drawn) == 1


def test_a_wrong_file_stays_wrong_behind_a_near_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _error(monkeypatch, [TIE, APART], Session(0.5)) == 0.5


def test_draws_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [TIE] * 9
    assert _error(monkeypatch, drawn, Session()) == 1.0
    assert len(drawn) == 5


class Noisy(torch.nn.Module):
    """Far less exact than the inputs, but its outputs do not hang on their last digits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (3 if x.shape[1] == 11 else 2)


def test_a_branch_is_no_near_tie(tmp_path: Path) -> None:
    options = trtconv.ExportOptions(check=False)
    report = trtconv.export(
        Noisy().eval(), torch.ones(1, 8), tmp_path / "m.onnx", {"x": (None, "n")}, {"n": (4, 20)}, options
    )
    assert not report.rules["n"].takes(11)


def _sessions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], bool]]:
    """Returns what is filled with the inputs of each session, weights among them, and whether its files are mapped."""
    made, asked = running.session_of, list[tuple[list[str], bool]]()

    def session_of(model: Path | bytes, folder: Path, mapped: bool = False) -> Any:
        session = made(model, folder, mapped=mapped)
        asked.append(([each.name for each in session.get_inputs()], mapped))
        return session

    monkeypatch.setattr(running, "session_of", session_of)
    return asked


def test_large_weights_are_not_loaded_a_second_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the module's own in memory; what is compared is the same."""
    asked = _sessions(monkeypatch)
    net, example = torch.nn.Conv2d(32, 32, 3).eval(), torch.randn(2, 32, 4, 4)
    for limit, session in ((1 << 30, (["input"], False)), (1 << 10, (["input", "weight"], True))):
        monkeypatch.setattr(running, "_MAPPED", limit)
        options = trtconv.ExportOptions(check=False)
        axes = {"input": ("n", None, None, None)}
        report = trtconv.export(net, example, tmp_path / "m.onnx", axes, {"n": (1, 9)}, options)
        assert (report.proof.worst or 0.0) < 1e-5
        assert asked
        assert all(each == session for each in asked)
        asked.clear()


def test_weights_in_memory_that_are_not_those_of_the_file_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last byte counts, and so does the type."""
    asked = _sessions(monkeypatch)
    monkeypatch.setattr(running, "_MAPPED", 1 << 10)
    own = np.random.default_rng(0).standard_normal((100, 100), np.float32)
    weights = [onnx.numpy_helper.from_array(own, "w"), onnx.numpy_helper.from_array(own[0], "small")]
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["z"]), onnx.helper.make_node("Add", ["z", "small"], ["y"])]
    ends = [onnx.helper.make_tensor_value_info(name, 1, [1, 100]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights), ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    x = np.ones((1, 100), np.float32)
    other = own.copy()
    other[-1, -1] += 1
    for held in ({}, {"w": other}, {"w": own.view(np.int32)}, {"w": own.T.copy().T}, {"w": own, "small": own[0]}):
        (got,) = running.run_file(path, lambda held=held: held).session.run(None, {"x": x})
        np.testing.assert_allclose(got, x @ own + own[0], rtol=1e-4, atol=1e-4)
    assert asked == [(["x"], True)] * 4 + [(["x", "w"], True)]


def test_nothing_is_loaded_where_nothing_is_compared(tmp_path: Path) -> None:
    assert not proof.prove(tmp_path / "none.onnx", _subject(), None, (), 1e-4).failed
