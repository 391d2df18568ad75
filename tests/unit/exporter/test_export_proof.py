"""A file against PyTorch where PyTorch's own outputs hang on the last digits of the inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def test_large_weights_are_left_in_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mapped, not copied; what is compared is the same."""
    asked = []
    made = running.session_of

    def session_of(path: Path, folder: Path, mapped: bool = False) -> Any:
        asked.append(mapped)
        return made(path, folder, mapped=mapped)

    monkeypatch.setattr(running, "session_of", session_of)
    options = trtconv.ExportOptions(check=False)
    net = torch.nn.Linear(64, 64).eval()
    errors: list[float] = []
    for limit in (1 << 30, 1 << 10):
        monkeypatch.setattr(running, "_MAPPED", limit)
        report = trtconv.export(
            net, torch.randn(2, 64), tmp_path / f"{limit}.onnx", {"input": ("n", None)}, {"n": (1, 9)}, options
        )
        errors.append(report.proof.worst or 0.0)
        assert set(asked) == {limit == 1 << 10}
        asked.clear()
    assert max(errors) < 1e-5
