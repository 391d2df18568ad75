"""What ONNX Runtime has no kernels for is compared in float32, and what it cannot load is not handed out."""

from __future__ import annotations

import contextlib
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip("torch")

import trtconv  # noqa: E402
from trtconv import ExportFailed, ExportOptions  # noqa: E402
from trtconv.exporter.file import writers  # noqa: E402

AXES, BOUNDS = {"x": ("batch", None, "height", "width")}, {"batch": (1, 3), "height": (8, 32), "width": (8, 32)}


class Halves(torch.nn.Module):
    """Has constants, a cast and a choice of its type."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up = torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.ConvTranspose2d(4, 2, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).softmax(1) * torch.full((4, 1, 1), 0.5, dtype=x.dtype)
        z = self.up(y) - (x.mean() > 9).to(x.dtype)
        return torch.where(x.mean() > -9, z, -z)


def _export(dtype: torch.dtype, path: Path) -> trtconv.ExportReport:
    torch.manual_seed(0)
    net, x = Halves().to(dtype).eval(), torch.randn(1, 2, 16, 16, dtype=dtype)
    return trtconv.export(net, {"x": x}, path, AXES, BOUNDS, ExportOptions(check=False))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_type_without_kernels_is_compared_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    report = _export(dtype, tmp_path / "m.onnx")
    assert report.exit_code == 0
    assert len(report.proof.runs) >= 4
    assert report.proof.worst is not None
    assert report.proof.widened
    assert report.to_json()["proof"]["widened"] is True
    written = onnx.load(tmp_path / "m.onnx").graph
    assert written.input[0].type.tensor_type.elem_type == {torch.float64: 11, torch.bfloat16: 16}[dtype]


def test_a_wrong_file_in_float64_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = writers.write_program

    def wrong(*arguments: object) -> Path:
        path = plain(*arguments)
        proto = onnx.load(path)
        (one,) = [node for node in proto.graph.node if node.op_type == "Softmax"]
        one.op_type = "Hardmax"
        onnx.save(proto, path)
        return path

    monkeypatch.setattr(writers, "write_program", wrong)
    monkeypatch.setattr(writers, "write_trace", lambda *_: (_ for _ in ()).throw(RuntimeError("no")))
    with contextlib.suppress(ExportFailed):
        assert _export(torch.float64, tmp_path / "m.onnx").exit_code == 1
    assert not (tmp_path / "m.onnx").exists()


def test_a_file_that_cannot_be_loaded_is_not_written(tmp_path: Path) -> None:
    class Invalid(torch.nn.Module):
        """Its number of classes is that of the largest value, which torch's exporter writes as -1."""

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(ids).float()

    with pytest.raises(ExportFailed):
        trtconv.export(Invalid().eval(), torch.arange(5), tmp_path / "m.onnx", options=ExportOptions(check=False))
    assert not (tmp_path / "m.onnx").exists()
