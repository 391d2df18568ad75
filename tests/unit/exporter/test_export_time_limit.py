"""`--time-limit`: one budget for all ways to a file, with the best so far and what was not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv import ExportFailed, ExportOptions, ExportReport  # noqa: E402
from trtconv.exporter.file import candidates  # noqa: E402
from trtconv.exporter.job import Job  # noqa: E402


def _export(path: Path, seconds: float = 600.0) -> ExportReport:
    options = ExportOptions(check=False, time_limit=seconds)
    axes, bounds = {"input": ("batch", None, "length")}, {"batch": (1, 4), "length": (4, 40)}
    net = torch.nn.Conv1d(2, 2, 3).eval()
    return trtconv.export(net, {"input": torch.randn(1, 2, 8)}, path, axes, bounds, options)


def test_no_way_is_begun_after_the_limit(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed) as caught:
        _export(tmp_path / "m.onnx", 1e-9)
    assert caught.value.message.count("not tried") >= 2
    assert "--time-limit" in (caught.value.hint or "")


def test_the_best_so_far_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first way gives a file for some sizes; the time is over before the second, which may give one for more."""
    monkeypatch.setattr(Job, "seconds_left", property(lambda job: 1.0 if not job.attempts else -1.0))
    monkeypatch.setattr(candidates, "_share", lambda rules, full: 0.5)
    report = _export(tmp_path / "m.onnx")
    first, *others = report.attempts
    assert first.used
    assert others
    assert all("not tried" in each.outcome for each in others)
    assert (tmp_path / "m.onnx").exists()


def test_what_is_left_is_what_torch_export_may_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def told(*arguments: float, **named: object) -> None:
        given.append(arguments[4])
        raise ExportFailed("no")

    monkeypatch.setattr(candidates, "export_program", told)
    monkeypatch.setattr(Job, "seconds_left", property(lambda job: 7.0))
    _export(tmp_path / "m.onnx")
    assert set(given) == {7.0}
