"""`--split-branches`: a file for each side of a branch on sizes; together they take every size, and each is right."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from torch import nn  # noqa: E402

import trtconv  # noqa: E402
from support import branch_grammar as grammar  # noqa: E402
from support.branch_grammar import HIGH, LOW, Branching, SizeCondition  # noqa: E402
from trtconv.core.documents.export import SizeRule  # noqa: E402
from trtconv.graph.stored_bounds import DIMS_KEY  # noqa: E402

AXES = {"x": (None, None, "height", "width")}
SPLIT = trtconv.ExportOptions(split_branches=True, check=False)


def _exported(module: nn.Module, folder: Path, options: trtconv.ExportOptions = SPLIT) -> trtconv.ExportReport:
    bounds = {"height": (LOW, HIGH), "width": (LOW, HIGH)}
    return trtconv.export(module.eval(), torch.ones(1, 1, 16, 16), folder / "m.onnx", AXES, bounds, options)


def _takes(report: trtconv.ExportReport, height: int, width: int) -> bool:
    rules = report.rules
    return rules["height"].takes(height) and rules["width"].takes(width)


def _assert_right(module: nn.Module, report: trtconv.ExportReport) -> None:
    """Every size that a branch decides about is in one file, which is right there, compared outside of trtconv."""
    files = [report, *report.sides]
    sessions = [onnxruntime.InferenceSession(each.output.path) for each in files]
    sizes = [(h, w) for h in range(LOW, HIGH + 1) for w in range(LOW, HIGH + 1)]
    taking = {at: [n for n, each in enumerate(files) if _takes(each, *at)] for at in sizes}
    assert all(len(numbers) <= 1 for numbers in taking.values())
    parted = all(rule.narrowed or (rule.min, rule.max, rule.step) == (LOW, HIGH, 1) for f in files for rule in f.sizes)
    assert not parted or all(taking.values())
    ends = [(h, w) for h in (LOW, HIGH) for w in (LOW, HIGH)]
    for h, w in [at for at in (*ends, *random.Random(5).sample(sizes, 25)) if taking[at]]:
        x = torch.randn(1, 1, h, w)
        (got,) = sessions[taking[h, w][0]].run(None, {"x": x.numpy()})
        np.testing.assert_allclose(got, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("h >= 30", 2),
        ("12 <= h <= 20", 2),
        ("w % 7 == 5", 2),
        ("h % 2", 2),
        ("h == 37", 2),
        ("w == 16", 2),
        ("h >= 20 and w < 30", 3),
        ("h > 0", 1),
    ],
)
def test_each_side_has_a_file_of_its_own(condition: str, files: int, tmp_path: Path) -> None:
    module = Branching(SizeCondition(condition))
    report = _exported(module, tmp_path)
    assert report.exit_code == 0
    assert 1 + len(report.sides) == files
    names = ["m.onnx"] if files == 1 else [f"m.{n}.onnx" for n in range(1, files + 1)]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert all(rule.narrowed or rule.step == 1 for each in (report, *report.sides) for rule in each.sizes)
    _assert_right(module, report)


@given(grammar.size_conditions())
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
def test_generated_conditions_are_split_or_refused(tmp_path_factory, condition: SizeCondition) -> None:
    module = Branching(condition)
    try:
        report = _exported(module, tmp_path_factory.mktemp("split"))
    except trtconv.ExportFailed as error:
        assert "branch_grammar.py:" in error.message
        return
    _assert_right(module, report)


def test_the_example_of_a_side_is_inside_it_and_in_the_file(tmp_path: Path) -> None:
    report = _exported(Branching(SizeCondition("h >= 20")), tmp_path)
    (other,) = report.sides
    rule = other.rules["height"]
    assert (rule.min, rule.example, rule.max) == (20, 30, HIGH)
    kept = {each.key: each.value for each in onnx.load(other.output.path).metadata_props}
    assert json.loads(kept[DIMS_KEY])["height"]["bounds"] == [20, 30, HIGH]
    assert "m.2.onnx" in report.rules["height"].remark
    assert "m.1.onnx" in rule.remark
    assert rule.narrowed == report.rules["height"].narrowed
    assert rule.narrowed is not None


class Plain(nn.Module):
    """Takes its height as a number: every size is a side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * [n * n + 1 for n in range(99)][int(x.shape[2])]


class Joint(nn.Module):
    """Other code where it is wide: no rule of height or width alone says so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[3] > 2 * x.shape[2] else x


@pytest.mark.parametrize("kind", [Plain, Joint])
def test_what_no_files_can_have_is_refused(kind: type[nn.Module], tmp_path: Path) -> None:
    with pytest.raises(trtconv.ExportFailed) as failed:
        _exported(kind(), tmp_path)
    assert "test_export_sides.py:" in failed.value.message
    assert not list(tmp_path.iterdir())


def test_without_the_flag_the_example_alone_is_refused_with_it_named(tmp_path: Path) -> None:
    with pytest.raises(trtconv.ExportFailed) as failed:
        _exported(Branching(SizeCondition("h >= 20")), tmp_path, trtconv.ExportOptions(check=False))
    assert "--split-branches" in failed.value.hint


def test_one_model_is_converted_at_a_time(tmp_path: Path) -> None:
    request = trtconv.BuildRequest(tmp_path / "m.onnx")
    with pytest.raises(trtconv.InputError):
        trtconv.convert(nn.Identity().eval(), torch.ones(1, 2), request, options=SPLIT)


def test_a_report_has_all_files_and_the_worst_exit_code(tmp_path: Path) -> None:
    report = _exported(Branching(SizeCondition("h >= 30")), tmp_path)
    written = report.to_json()
    assert Path(written["output"]["path"]).name == "m.1.onnx"
    assert [Path(each["output"]["path"]).name for each in written["sides"]] == ["m.2.onnx"]
    assert isinstance(report.sides[0].sizes[0], SizeRule)


class Remainders(nn.Module):
    """Other code at odd sizes of both together: a file for even sizes is right, and no rule says all of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[2] % 4 == 1 and x.shape[3] % 4 == 3 else x + 0


def test_sizes_that_a_line_takes_from_a_file_are_told_with_the_line(tmp_path: Path) -> None:
    report = _exported(Remainders(), tmp_path, trtconv.ExportOptions(check=False))
    assert not _takes(report, 17, 19)
    for rule in report.sizes:
        assert rule.narrowed is not None
        assert "x.shape[2] % 4 == 1" in rule.narrowed.code
        assert "other code" in rule.remark


def test_sides_of_remainders_together_are_refused_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(trtconv.ExportFailed) as failed:
        _exported(Remainders(), tmp_path)
    assert "test_export_sides.py:" in failed.value.message
