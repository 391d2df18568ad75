"""What no exporter follows: values and sizes written as text, looked up, or met as errors that the code catches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv import ExportFailed, ExportOptions, ExportReport  # noqa: E402

Body = Callable[..., object]


class Net(torch.nn.Module):
    """A module whose forward is a function."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.conv = torch.nn.Conv2d(1, 1, 3, padding=1)
        self.table = torch.nn.Embedding(8, 4)
        self.grids: dict[object, torch.Tensor] = {}

    def forward(self, *inputs: object) -> object:
        return self.body(self, *inputs)


def _export(body: Body, path: Path, accepted: tuple[str, ...] = ()) -> ExportReport:
    torch.manual_seed(0)
    options = ExportOptions(check=False, accepted=accepted)
    axes, bounds = {"x": (None, None, "height", "width")}, {"height": (8, 40), "width": (8, 40)}
    return trtconv.export(Net(body).eval(), {"x": torch.randn(1, 1, 16, 16)}, path, axes, bounds, options)


def _place(body: Body, lines: int = 1) -> str:
    return f"{Path(__file__).name}:{body.__code__.co_firstlineno + lines}"


def _caught(net, x):
    try:
        row = net.table(x[0, 0, 0, :2].abs().long())
    except IndexError:
        row = torch.zeros(1)
    return net.conv(x) + row.mean()


def _text(net, x):
    return net.conv(x) * (3 if "nan" in str(x.sum()) else 1)


def _text_that_chooses(net, x):
    y = net.conv(x)
    return [y, y + 1][int("inf" in repr(x.flatten()[:2]))]


VALUES = {"an error": (_caught, 2), "a text": (_text, 1), "a text that chooses": (_text_that_chooses, 2)}


@pytest.mark.parametrize("kind", VALUES)
def test_values_that_no_exporter_sees_are_refused_until_accepted(kind: str, tmp_path: Path) -> None:
    body, lines = VALUES[kind]
    with pytest.raises(ExportFailed) as caught:
        _export(body, tmp_path / "m.onnx")
    assert _place(body, lines) in caught.value.message
    assert not (tmp_path / "m.onnx").exists()
    report = _export(body, tmp_path / "m.onnx", (_place(body, lines),))
    assert [branch.at.rpartition("/")[2] for branch in report.branches] == [_place(body, lines)]


def test_a_text_for_people_is_no_branch(tmp_path: Path) -> None:
    def shown(net, x):
        net.seen = f"{x.sum()} {x}"
        return net.conv(x)

    assert _export(shown, tmp_path / "m.onnx").branches == ()


def _by_key(net, x):
    return net.conv(x) * {(24, 16): 5.0}.get(tuple(x.shape[2:]), 1.0)


def _by_text(net, x):
    y = net.conv(x)
    return y * 2 if "33" in str(tuple(x.shape)) else y


@pytest.mark.parametrize("body", [_by_key, _by_text])
def test_sizes_that_are_looked_up_or_written_are_refused_with_their_line(body: Body, tmp_path: Path) -> None:
    with pytest.raises(ExportFailed) as caught:
        _export(body, tmp_path / "m.onnx")
    assert _place(body, 2 if body is _by_text else 1) in caught.value.message


def test_what_is_kept_for_each_size_loses_none(tmp_path: Path) -> None:
    def kept(net, x):
        key = tuple(x.shape[2:])
        if key not in net.grids:
            net.grids[key] = torch.linspace(0, 1, key[1])
        return net.conv(x) + net.grids[key]

    report = _export(kept, tmp_path / "m.onnx")
    assert report.exit_code == 0
    assert all(rule.takes(size) for rule in report.sizes for size in range(8, 41))


def test_a_trace_that_would_end_the_process_is_not_begun(tmp_path: Path) -> None:
    """torch's tracer does not survive an operation that raises inside it."""

    def viewed(net, x):
        try:
            return x.view(1, 1, x.shape[2] // 3, 3, x.shape[3]).mean(3)
        except RuntimeError:
            return net.conv(x) * float(x.shape[2])

    options = ExportOptions(check=False, exporter="torchscript")
    axes, bounds = {"x": (None, None, "height", "width")}, {"height": (8, 40), "width": (8, 40)}
    net, example = Net(viewed).eval(), {"x": torch.randn(1, 1, 16, 16)}
    report = trtconv.export(net, example, tmp_path / "m.onnx", axes, bounds, options)
    assert _place(viewed, 2) in report.attempts[0].outcome
