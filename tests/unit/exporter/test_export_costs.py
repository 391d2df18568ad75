"""What is left out while ONNX is written: nothing that comes out."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv.exporter.file import writers  # noqa: E402
from trtconv.exporter.patches.onnxscript_costs import idle_work_left_out  # noqa: E402


class Folded(torch.nn.Module):
    """Has what onnxscript's patterns find: a normalisation behind a convolution, casts, reshapes, transposes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.full = torch.nn.LayerNorm(4)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(torch.nn.functional.pad(x, (1, 1, 1, 1)))))
        y = y.flatten(2).transpose(1, 2).transpose(1, 2).reshape(y.shape).to(torch.float64).to(torch.float32)
        first, second = y.split(2, 1)
        return self.full(torch.cat([second, first], 1).permute(0, 2, 3, 1)).clamp(min=0).clamp(max=1) + 0


def test_the_file_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, example = Folded().eval(), torch.zeros(1, 3, 32, 32)
    axes, options = {"x": ("batch", None, "height", "width")}, trtconv.ExportOptions(check=False)
    trtconv.export(module, {"x": example}, tmp_path / "short.onnx", axes, None, options)
    monkeypatch.setattr(writers, "idle_work_left_out", contextlib.nullcontext)
    trtconv.export(module, {"x": example}, tmp_path / "long.onnx", axes, None, options)
    assert (tmp_path / "short.onnx").read_bytes() == (tmp_path / "long.onnx").read_bytes()


def test_operators_are_read_where_more_than_their_domain_is_asked_for() -> None:
    from onnxscript import TracedOnnxFunction, opset18

    def double(x):
        return opset18.Add(x, x)

    operator = TracedOnnxFunction(opset18, double)
    read = operator.function_ir
    with idle_work_left_out():
        unread = operator.function_ir
        assert unread.domain == read.domain
        assert unread.name == read.name == "double"
