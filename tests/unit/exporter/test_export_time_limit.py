"""`--time-limit`: one budget for all ways to a file, with the best so far and what was not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv import ExportFailed, ExportOptions, ExportReport  # noqa: E402
from trtconv.exporter import job  # noqa: E402
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


class Padded(torch.nn.Module):
    """Runs other code at sizes that are no multiple of 4, which the example is."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        length = input.shape[2]
        if length % 4:
            return torch.nn.functional.pad(input, (0, -length % 4))[:, :, :length] * 2.0
        return input


def test_better_files_get_a_share_of_the_time_that_a_right_one_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right file for some sizes is there at once; ways to better ones are not begun when their share is spent."""
    bounds = {"batch": (1, 4), "length": (4, 40)}
    axes = {"input": ("batch", None, "length")}
    outcomes = {}
    for least in (-1.0, 60.0):
        monkeypatch.setattr(job, "_PART", 0.0)
        monkeypatch.setattr(job, "_LEAST", least)
        options = ExportOptions(check=False)
        path = tmp_path / f"{least}.onnx"
        report = trtconv.export(Padded().eval(), {"input": torch.randn(1, 2, 8)}, path, axes, bounds, options)
        outcomes[least] = {str(each.exporter): each.outcome for each in report.attempts}
        assert report.rules["length"].takes(8)
        assert not report.rules["length"].takes(9)
    assert "not tried" in outcomes[-1.0]["torch.export at other sizes"]
    assert "not tried" not in outcomes[-1.0]["torchscript"]
    assert not any("not tried" in each for each in outcomes[60.0].values())


def test_what_is_over_ends_the_writing_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise candidates.ExportTimeOver

    monkeypatch.setattr(candidates.writers, "write_program", never)
    report = _export(tmp_path / "m.onnx")
    assert "torch.onnx.export took more than" in report.attempts[0].outcome
    assert report.exporter == "torchscript"
