"""Ways of writing forward that exporters get wrong: files right at every size, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import onnxruntime  # noqa: E402

import trtconv  # noqa: E402
from support import deceptive_nets as nets  # noqa: E402
from trtconv import ExportFailed, ExportOptions  # noqa: E402
from trtconv.exporter.module.torch_module import named_tensors  # noqa: E402

PLANE = ("batch", None, "height", "width")
SIZES = ((1, 16, 16), (2, 31, 17), (3, 18, 47), (1, 47, 37), (2, 16, 48))
QUICK = ExportOptions(check=False)


def _held(module: torch.nn.Module, file: Path, inputs: Sequence[Any]) -> None:
    """Runs a module and its file on some inputs and compares every output."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    with torch.no_grad():
        wanted = list(named_tensors(module(*(each.clone() for each in inputs)), ""))
    known = [value.name for value in session.get_inputs()]
    got = session.run(None, {name: each.numpy() for name, each in zip(known, inputs, strict=True)})
    shapes = [tuple(each.shape) for each in inputs]
    assert len(got) == len(wanted)
    for (name, tensor), array in zip(wanted, got, strict=True):
        np.testing.assert_allclose(array, tensor.numpy(), 1e-3, 1e-4, err_msg=f"{name} at {shapes}", equal_nan=True)


@pytest.mark.parametrize("group", nets.GROUPS)
def test_a_file_is_right_at_every_size_of_its_rule(group: str, tmp_path: Path) -> None:
    module, file = nets.Ways(nets.GROUPS[group]).eval(), tmp_path / "m.onnx"
    bounds = {"batch": (1, 3), "height": (16, 48), "width": (16, 48)}
    report = trtconv.export(module, torch.randn(1, 3, 32, 32), file, {"x": PLANE}, bounds, QUICK)
    assert report.exit_code == 0
    for batch, height, width in SIZES:
        fresh = nets.Ways(nets.GROUPS[group]).eval()
        assert all(rule.takes(n) for rule, n in zip(report.sizes, (batch, height, width), strict=True))
        _held(fresh, file, [torch.randn(batch, 3, height, width)])


@pytest.mark.parametrize("way", nets.REFUSED)
def test_what_no_file_can_have_is_refused_with_its_line(way: str, tmp_path: Path) -> None:
    module, file = nets.Ways({way: nets.REFUSED[way]}).eval(), tmp_path / "m.onnx"
    with pytest.raises(ExportFailed, match=r"deceptive_nets\.py:\d+"):
        trtconv.export(module, torch.randn(1, 3, 32, 32), file, {"x": PLANE}, None, QUICK)
    assert not file.exists()


def test_places_that_an_input_says(tmp_path: Path) -> None:
    module, file = nets.Indexed().eval(), tmp_path / "m.onnx"
    example = (torch.randn(1, 3, 20, 20), torch.randint(0, 16, (12,)))
    trtconv.export(module, example, file, {"x": PLANE, "idx": ("n",)}, {"height": (16, 40)}, QUICK)
    for height, count in ((16, 30), (33, 1), (40, 12)):
        _held(module, file, [torch.randn(1, 3, height, 20), torch.randint(0, 16, (count,))])


def test_masks_that_leave_nothing(tmp_path: Path) -> None:
    module, file = nets.Masked().eval(), tmp_path / "m.onnx"
    example = (torch.randn(2, 12, 4), torch.rand(2, 12) > 0.5, torch.tensor([12, 3]))
    axes = {"x": ("batch", "length", None), "mask": ("batch", "length"), "lengths": ("batch",)}
    trtconv.export(module, example, file, axes, {"batch": (1, 3), "length": (2, 40)}, QUICK)
    for length, share in ((40, 0.5), (7, 2.0), (2, -1.0)):
        _held(module, file, [torch.randn(3, length, 4), torch.rand(3, length) > share, torch.tensor([1, length, 0])])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_keywords_wrappers_and_other_types(tmp_path: Path) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, *, x, scale=2.0, mask=None):
            return (x.float() / 255).softmax(1) * scale

    file = tmp_path / "m.onnx"
    wrapped = torch.compile(torch.nn.DataParallel(Scaled()).eval())
    example = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    trtconv.export(wrapped, {"x": example}, file, {"x": PLANE}, None, QUICK)
    (got,) = onnxruntime.InferenceSession(file).run(None, {"x": example[..., :5].numpy()})
    np.testing.assert_allclose(got, Scaled()(x=example[..., :5]).numpy(), 1e-5)
