"""`--translate`: operators of the user's own, into a domain that plugins and references know."""

from __future__ import annotations

import functools
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import trtconv  # noqa: E402
from trtconv import ExportOptions, InputError  # noqa: E402
from trtconv.core.agreement import CodeFile  # noqa: E402

TRANSLATION = """import trtconv
@trtconv.translation("trtconv_test::swish")
def swish(x, beta: float):
    return trtconv.node("my.domain::SwishBeta", x, beta=beta)
"""
REFERENCE = """import numpy as np, trtconv
@trtconv.reference("my.domain::SwishBeta")
def swish(x, beta):
    return x / (1 + np.exp(-beta * x)) * {factor}
"""


@functools.cache
def _operator() -> object:
    @torch.library.custom_op("trtconv_test::swish", mutates_args=())
    def swish(x: torch.Tensor, beta: float) -> torch.Tensor:
        return x * torch.sigmoid(beta * x)

    swish.register_fake(lambda x, beta: torch.empty_like(x))
    return torch.ops.trtconv_test.swish


class Net(torch.nn.Module):
    """Uses the operator between two others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _operator()(x + 1, 1.5).mean(2)


def _export(tmp_path: Path, **files: str) -> trtconv.ExportReport:
    code = {}
    for field, text in files.items():
        path = tmp_path / f"{field}.py"
        path.write_text(text)
        code[field] = (CodeFile(path),)
    options = ExportOptions(check=False, exporter="torch.export", **code)
    axes, bounds = {"x": ("batch", None, "length")}, {"batch": (1, 4), "length": (4, 40)}
    return trtconv.export(Net().eval(), {"x": torch.randn(1, 3, 8)}, tmp_path / "m.onnx", axes, bounds, options)


def test_an_operator_is_written_into_a_plugins_domain_and_proven_by_a_reference(tmp_path: Path) -> None:
    _operator()
    report = _export(tmp_path, translations=TRANSLATION, references=REFERENCE.format(factor=1))
    assert report.exit_code == 0
    assert len(report.proof.runs) >= 3
    (node,) = [node for node in onnx.load(tmp_path / "m.onnx").graph.node if node.op_type == "SwishBeta"]
    assert (node.domain, [(a.name, a.f) for a in node.attribute]) == ("my.domain", [("beta", 1.5)])
    assert all(rule.takes(size) for rule in report.sizes for size in range(rule.min, (rule.max or 4) + 1))


def test_a_translation_that_a_reference_disproves_is_not_written(tmp_path: Path) -> None:
    _operator()
    report = _export(tmp_path, translations=TRANSLATION, references=REFERENCE.format(factor=2))
    assert report.exit_code == 1
    assert not (tmp_path / "m.onnx").exists()


def test_without_a_reference_the_report_says_that_nothing_was_compared(tmp_path: Path) -> None:
    _operator()
    report = _export(tmp_path, translations=TRANSLATION)
    assert not report.proof.runs
    assert "ONNX Runtime" in report.proof.why
    assert any("my.domain::SwishBeta" in note for note in report.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "no translation"),
        ("1 / 0", "does not run"),
        ("import trtconv\ntrtconv.translation('swish')", "not the name"),
        ("import trtconv\n@trtconv.translation('trtconv_test::gone')\ndef gone(x): ...", "no operator"),
    ],
)
def test_a_file_that_says_nothing_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        _export(tmp_path, translations=text)


@pytest.mark.parametrize(
    "text", ["raise SystemExit(0)", TRANSLATION.replace("return", "raise SystemExit(0)\n    return")]
)
def test_a_translation_that_ends_the_program_is_told(text: str, tmp_path: Path) -> None:
    _operator()
    with pytest.raises(InputError, match="end of the program"):
        _export(tmp_path, translations=text)
