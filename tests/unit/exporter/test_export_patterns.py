"""Ways of writing modules that public packages have: what is exported, for which sizes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import trtconv  # noqa: E402
from support import export_patterns as patterns  # noqa: E402
from trtconv import ExportFailed, ExportOptions  # noqa: E402
from trtconv.core.documents.export import SizeRule  # noqa: E402
from trtconv.exporter.inputs import InputDecl  # noqa: E402
from trtconv.exporter.module.torch_module import prepare  # noqa: E402
from trtconv.exporter.request import plan_axes  # noqa: E402
from trtconv.exporter.sizing.sizes import find_rules  # noqa: E402
from trtconv.exporter.sizing.trials import Trials  # noqa: E402

QUICK = ExportOptions(check=False)
AXES = ("batch", None, "height", "width")


def _export(module, path: Path, size: int = 32, axes=AXES, dims=None) -> dict[str, SizeRule]:
    torch.manual_seed(0)
    report = trtconv.export(module.eval(), torch.randn(1, 3, size, size), path, {"x": axes}, dims, QUICK)
    assert report.exit_code == 0
    return {rule.name: rule for rule in report.sizes}


def _differences(module, path: Path, sizes) -> list[float]:
    """Returns the relative difference between PyTorch and the file at sizes of the tests' own."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found = []
    for height, width in sizes:
        x = torch.randn(1, 3, height, width)
        with torch.no_grad():
            wanted = module(x).numpy()
        (got,) = session.run(None, {"x": x.numpy()})
        assert got.shape == wanted.shape
        found.append(float(np.abs(got - wanted).max() / np.abs(wanted).max()))
    return found


def test_what_the_meta_device_refuses_is_no_rule(tmp_path: Path) -> None:
    module, path = patterns.CachedAnchors(), tmp_path / "m.onnx"
    rules = _export(module, path, 64, dims={"height": "32:128", "width": "32:128"})
    assert [rules[name].step for name in ("batch", "height", "width")] == [1, 1, 1]
    assert max(_differences(module, path, [(33, 128), (64, 50), (90, 47)])) < 1e-5


def test_padding_to_a_multiple_loses_no_size(tmp_path: Path) -> None:
    module, path = patterns.PadToMultiple(), tmp_path / "m.onnx"
    rules = _export(module, path, 64, dims={"height": "32:160", "width": "32:160"})
    assert (rules["height"].step, rules["height"].min, rules["height"].max) == (1, 32, 160)
    assert max(_differences(module, path, [(55, 64), (61, 35), (64, 64), (127, 129)])) < 1e-5


def test_a_file_that_is_right_at_multiples_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    module, path = patterns.PooledToPart(), tmp_path / "m.onnx"
    rules = _export(module, path, dims={"height": "16:64", "width": "16:64"})
    assert [(rules[name].step, rules[name].min, rules[name].max) for name in ("batch", "height", "width")] == [
        (1, 1, None),
        (4, 16, 64),
        (4, 16, 64),
    ]
    assert "what the exporter writes differs" in rules["height"].remark
    assert max(_differences(module, path, [(16, 64), (36, 20), (60, 44)])) < 1e-5
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("exporter", ["torch.export", "torchscript"])
def test_adaptive_pooling_holds_for_every_size(exporter: str, tmp_path: Path) -> None:
    module, path = patterns.Pyramid().eval(), tmp_path / "m.onnx"
    dims, options = {"height": "16:64", "width": "16:64"}, ExportOptions(check=False, exporter=exporter)
    report = trtconv.export(module, torch.randn(1, 3, 32, 32), path, {"x": AXES}, dims, options)
    assert [(rule.step, rule.offset) for rule in report.sizes] == [(1, 0)] * 3
    assert max(_differences(module, path, [(16, 16), (29, 64), (42, 31)])) < 1e-5


def test_a_single_size_that_is_special_is_met(tmp_path: Path) -> None:
    rules = _export(patterns.SpecialSize(), tmp_path / "m.onnx", dims={"height": "16:96", "width": "16:96"})
    assert rules["height"].step == 1
    assert not rules["width"].takes(77)
    assert rules["width"].takes(64)


def test_inputs_by_keyword_alone(tmp_path: Path) -> None:
    example = {"x": torch.randn(1, 3, 8, 8), "mask": torch.randn(1, 1, 8, 8)}
    report = trtconv.export(patterns.KeywordOnly().eval(), example, tmp_path / "m.onnx", None, None, QUICK)
    assert report.exit_code == 0
    assert list(report.inputs) == ["x", "mask"]


def test_what_forward_writes_is_not_changed_by_trials() -> None:
    module = patterns.Written().eval()
    inputs = (InputDecl("x", (1, 3, 16, 16), "float32"),)
    axes = plan_axes(inputs, {"x": AXES}, {})
    trials = Trials(prepare(module, inputs, (), None), axes)
    before = int(module.runs)
    find_rules(trials)
    assert trials.meta
    assert int(module.runs) == before


def test_hooks_that_forward_installs_are_taken_off_again(tmp_path: Path) -> None:
    module, path = patterns.HookedLater(), tmp_path / "m.onnx"
    rules = _export(module, path)
    assert [rules[name].step for name in ("batch", "height", "width")] == [1, 1, 1]
    assert max(_differences(module, path, [(32, 32), (17, 46)])) < 1e-5


def test_inputs_in_a_fixed_proportion(tmp_path: Path) -> None:
    example = {"x": torch.randn(1, 3, 32, 32), "low": torch.randn(1, 3, 16, 16)}
    dynamic = {"x": ("batch", None, "H", "W"), "low": ("batch", None, "h", "w")}
    dims = {"H": "16:64", "W": "16:64", "h": "8:40", "w": "8:32"}
    report = trtconv.export(patterns.TwoScales().eval(), example, tmp_path / "m.onnx", dynamic, dims, QUICK)
    assert report.joint == ("2*h == H", "2*w == W")
    assert [(r.step, r.min, r.max) for r in report.sizes] == [
        (1, 1, None),
        (2, 16, 64),
        (2, 16, 64),
        (1, 8, 32),
        (1, 8, 32),
    ]
    assert report.outputs == {"output": ("batch", 4, "h", "w")}
    assert {run.inputs["x"][2] - 2 * run.inputs["low"][2] for run in report.proof.runs} == {0}


def test_buffers_that_forward_writes_are_put_back(tmp_path: Path) -> None:
    module, path = patterns.Counting().eval(), tmp_path / "m.onnx"
    report = trtconv.export(module, torch.randn(1, 3, 32, 32), path, {"x": AXES}, None, QUICK)
    assert report.exit_code == 0
    assert "forward writes into runs, mean: every run of the file starts from the values of now" in report.notes
    assert (float(module.runs), float(module.mean)) == (0.0, 0.0)


def test_random_numbers_are_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match=r"draws random numbers, .* from `return y \+ 0.5 \* torch.randn_like"):
        _export(patterns.Noisy(), tmp_path / "m.onnx")


def test_parts_that_are_torchscript(tmp_path: Path) -> None:
    module, path = patterns.PartlyScripted(), tmp_path / "m.onnx"
    rules = _export(module, path)
    assert [rules[name].step for name in ("batch", "height", "width")] == [1, 1, 1]
    assert max(_differences(module, path, [(16, 32), (33, 21)])) < 1e-5


def test_a_half_precision_module_says_its_type(tmp_path: Path) -> None:
    module = torch.nn.Conv2d(3, 4, 3).half()
    with pytest.raises(trtconv.InputError) as caught:
        _export(module, tmp_path / "m.onnx")
    assert caught.value.hint == "Its weights are float16: write input=1x3x32x32:float16."
    report = trtconv.export(module, torch.randn(1, 3, 32, 32).half(), tmp_path / "m.onnx", None, None, QUICK)
    assert report.exit_code == 0


@pytest.mark.parametrize("kind", [patterns.Permute, patterns.Crop, patterns.Buffer])
def test_values_that_no_input_decides_may_be_constants(kind, tmp_path: Path) -> None:
    module, path = kind(), tmp_path / "m.onnx"
    rules = _export(module, path)
    assert {rules[name].step for name in ("batch", "height", "width")} <= {1, 2}
    assert max(_differences(module, path, [(32, 32), (18, 46), (50, 34)])) < 1e-5


@pytest.mark.parametrize(
    ("kind", "line"),
    [(patterns.QuantizedBranch, "if y.abs().max() > 3.0:"), (patterns.SymbolicBranch, "if x.max() > 20.0:")],
)
def test_a_branch_on_values_is_refused_where_it_would_be_traced(kind, line: str, tmp_path: Path) -> None:
    with pytest.raises(ExportFailed) as caught:
        _export(kind(), tmp_path / "m.onnx")
    assert "the values of the inputs decide" in caught.value.message
    assert f"`{line}` at " in caught.value.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bounds", ["16:64", "17:63"])
def test_a_traced_file_says_what_it_takes(bounds: str, tmp_path: Path) -> None:
    module, path = patterns.OddSizes(), tmp_path / "m.onnx"
    rules = _export(module, path, dims={"height": bounds, "width": bounds})
    assert [(rules[name].step, rules[name].offset) for name in ("height", "width")] == [(2, 0), (2, 0)]
    assert max(_differences(module, path, [(18, 62), (48, 20)])) < 5e-2


def test_a_step_that_is_asked_for(tmp_path: Path) -> None:
    rules = _export(patterns.PadToMultiple(), tmp_path / "m.onnx", dims={"height": "16:64:/16", "width": "16:64"})
    assert (rules["height"].step, rules["width"].step) == (16, 1)


@pytest.mark.parametrize("kind", [patterns.TrainedMask, patterns.TrainedPositions])
def test_the_example_may_have_the_trained_size(kind, tmp_path: Path) -> None:
    module, path = kind(), tmp_path / "m.onnx"
    rules = _export(module, path, axes=(None, None, "height", "width"), dims={"height": "16:96", "width": "16:96"})
    assert all((rules[name].step, rules[name].min, rules[name].max) == (1, 16, 96) for name in ("height", "width"))
    assert max(_differences(module, path, [(32, 32), (40, 64), (33, 57), (96, 16)])) < 1e-4


def test_a_threshold_in_a_trace_is_met_by_the_proof(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match=r"holds for height from 32 to 100 only, from `return y"):
        _export(patterns.LargeOnly(), tmp_path / "m.onnx", dims={"height": "32:104"})


def test_masks_of_transformers_are_applied_without_a_look_at_their_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, path = patterns.CausalEncoder().eval(), tmp_path / "m.onnx"
    report = trtconv.export(module, torch.randn(2, 6, 8), path, {"x": ("batch", "length", None)}, None, QUICK)
    assert (report.exit_code, report.exporter) == (0, "torch.export")
    assert [rule.step for rule in report.sizes] == [1, 1]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for batch, length in [(1, 2), (3, 11), (2, 30)]:
        x = torch.randn(batch, length, 8)
        with torch.no_grad():
            wanted = module(x).numpy()
        (got,) = session.run(None, {"x": x.numpy()})
        assert np.abs(got - wanted).max() / np.abs(wanted).max() < 1e-5


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_a_refusal_without_a_line_says_what_each_exporter_said(tmp_path: Path) -> None:
    with pytest.raises(ExportFailed, match=r"length becomes a constant(.|\n)*LSTMs with projections"):
        trtconv.export(
            patterns.ProjectedLstm().eval(),
            torch.randn(2, 6, 8),
            tmp_path / "m.onnx",
            {"x": (None, "length", None)},
            None,
            QUICK,
        )
