"""What a traced program relies on, asked at other sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

import trtconv  # noqa: E402
from trtconv.exporter.file.validate import Validated, export_program  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import prepare  # noqa: E402
from trtconv.exporter.request import plan_axes  # noqa: E402
from trtconv.exporter.sizing.sizes import find_rules  # noqa: E402
from trtconv.exporter.sizing.trials import Trials  # noqa: E402

AXES = ("batch", None, "height", None)


class Pooled(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 16)


class Squeezed(torch.nn.Module):
    def forward(self, x):
        return F.avg_pool2d(x, 16).squeeze(2)


class Branch(torch.nn.Module):
    def forward(self, x):
        y = F.avg_pool2d(x, 16)
        if y.shape[2] == 1:
            return y
        return 2 * y


def _guards(module, at: int):
    inputs = (InputDecl("x", (1, 3, 64, 64)),)
    subject = prepare(module.eval(), inputs, (), None)
    axes = plan_axes(inputs, {"x": AXES}, {})
    found = export_program(subject, axes, find_rules(Trials(subject, axes)), {"batch": 4, "height": at}, 60.0)
    assert isinstance(found, Validated)
    return found.guards


def test_a_computed_size_of_one_is_another_way() -> None:
    guards = _guards(Pooled(), 64)
    assert not guards.violated([(2, 3, 32, 64)])
    assert guards.violated([(2, 3, 31, 64)])
    assert not guards.violated([(1, 3, 64, 64)]), "the batch is the user's own size, and compared at its ends"


def test_so_is_one_of_several_where_one_was_traced() -> None:
    guards = _guards(Pooled(), 20)
    assert not guards.violated([(2, 3, 31, 64)])
    assert guards.violated([(2, 3, 32, 64)])


def test_a_branch_on_a_size_of_one_has_its_line() -> None:
    guards = _guards(Branch(), 64)
    blame = guards.blame(guards.violated([(2, 3, 16, 64)]))
    assert blame is not None
    assert blame.code == "if y.shape[2] == 1:"


def test_what_squeezes_some_sizes_only_is_compared_there(tmp_path: Path) -> None:
    example = torch.zeros(1, 3, 64, 64)
    options = trtconv.ExportOptions(check=False)
    module = Squeezed().eval()
    report = trtconv.export(module, {"x": example}, tmp_path / "x.onnx", {"x": AXES}, {"height": (16, 96)}, options)
    assert any(16 <= run.inputs["x"][2] < 32 for run in report.proof.runs)
    assert report.exit_code == 0
    assert all(run.passes(report.proof.tolerance) for run in report.proof.runs)
