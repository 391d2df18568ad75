"""From a float model to an int8 one that TensorRT takes as it is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.float_nets import ATTENTION, GROUPED, RESIDUAL, UNET, VOLUME, saved_net, saved_samples
from support.onnx_models import RTX, TENSORRT_8
from trtconv.core.dims import Range
from trtconv.core.documents.quantize import QuantizeReport
from trtconv.core.errors import InputError
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.graph.model import OnnxModel
from trtconv.passes import passes_for, run_passes
from trtconv.pipeline.quantizing import quantize

SIZES = {"batch": [(1, 3, 8, 8), (1, 3, 16, 12)]}


def request(text: str, folder: Path, shapes: list[tuple[int, ...]], **more: object) -> QuantizeRequest:
    asked = QuantizeRequest(
        model=saved_net(text, folder),
        output=folder / "int8.onnx",
        data=str(saved_samples(folder, shapes)),
        target=RTX,
        tolerance=0.5,
    )
    return dataclasses.replace(asked, **more)


def worst(report: QuantizeReport) -> float:
    return max(each.rms for each in report.error.values())


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (UNET, [(1, 3, 8, 8), (1, 3, 16, 12)]),
        (RESIDUAL, [(1, 4, 8, 8)]),
        (VOLUME, [(1, 4, 4, 4, 4)]),
        (GROUPED, [(1, 4, 8, 8)]),
        (ATTENTION, [(1, 6, 8), (3, 6, 8)]),
    ],
    ids=["unet", "residual", "volume", "grouped", "attention"],
)
def test_nothing_is_left_for_the_passes_to_mend(text: str, shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    report = quantize(request(text, tmp_path, shapes))
    assert report.exit_code == 0
    assert 0 < worst(report) < 0.1
    model = OnnxModel.load(tmp_path / "int8.onnx")
    assert {finding.code for finding in report.findings} <= {"TC311"}
    assert bool(report.notes) == any("no int8" in each.reason for each in report.left_in_float)
    assert not run_passes(model, passes_for("int8"), RTX).edits


def test_what_the_build_makes_a_conv_stays_in_float_under_its_own_name(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((512, 4, 1)), "v": random.standard_normal((512, 1, 512))}
    inside = "a = Conv<kernel_shape=[1]>(x, w) y = ConvTranspose<kernel_shape=[512], strides=[128]>(a, v)"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1,4,7] x) => (float[1,1,n] y) {{ {inside} }}'
    )
    proto.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items())
    onnx.save(proto, tmp_path / "istft.onnx")
    asked = dataclasses.replace(
        request(GROUPED, tmp_path, [(1, 4, 7)]), model=tmp_path / "istft.onnx", target=TENSORRT_8
    )
    report = quantize(asked)
    assert [each.op for each in report.quantized] == ["Conv"]
    assert ["from 512 to 1 channels" in each.reason for each in report.left_in_float] == [True]
    (edit,) = run_passes(OnnxModel.load(tmp_path / "int8.onnx"), passes_for("int8"), TENSORRT_8).edits
    assert edit.pass_name == "overlap-add"


def test_the_report_says_what_became_of_each_layer(tmp_path: Path) -> None:
    report = quantize(request(GROUPED, tmp_path, [(1, 4, 8, 8)], in_float=("c2",), method="min-max"))
    assert [each.node for each in report.quantized] == ["c1"]
    assert {each.node: each.reason for each in report.left_in_float} == {
        "up": "TensorRT has no int8 deconvolution with 2 groups",
        "c2": "asked for",
    }
    (note,) = report.notes
    assert "may not pay" in note
    assert "up runs in float" in note
    # 18432 of c1; 4096 each of up and c2.
    assert report.int8_share == pytest.approx(18432 / 26624)
    document = report.to_json()
    assert document["int8_share"] == report.int8_share
    assert set(document) >= {"schema", "quantized", "left_in_float", "error", "per_layer", "calibration", "exit_code"}
    assert [each["node"] for each in document["per_layer"]] == ["c1"]
    assert set(document["error"]["y"]) >= {"rms", "cosine"}
    assert document["calibration"]["samples"] == 6


def test_above_the_tolerance_nothing_is_written(tmp_path: Path) -> None:
    report = quantize(request(RESIDUAL, tmp_path, [(1, 4, 8, 8)], tolerance=1e-6, method="min-max"))
    assert report.exit_code == 1 and not report.output
    assert not (tmp_path / "int8.onnx").exists()


def test_a_budget_is_met_by_leaving_layers_in_float(tmp_path: Path) -> None:
    asked = request(RESIDUAL, tmp_path, [(1, 4, 8, 8)])
    whole = worst(quantize(asked))
    report = quantize(dataclasses.replace(asked, error_budget=whole / 2))
    assert report.budget is not None and report.budget.met
    assert worst(report) <= whole / 2
    assert len(report.budget.alone) == 4
    assert all("for the budget" in each.reason for each in report.left_in_float)


def test_calibration_is_kept_by_content(tmp_path: Path) -> None:
    asked = request(RESIDUAL, tmp_path, [(1, 4, 8, 8)], cache=tmp_path / "cache", method="min-max")
    first = quantize(asked)
    written = (tmp_path / "int8.onnx").read_bytes()
    second = quantize(asked)
    assert (first.calibration.cached, second.calibration.cached) == (False, True)
    assert (tmp_path / "int8.onnx").read_bytes() == written
    np.savez(tmp_path / "samples" / "0.npz", x=np.ones((1, 4, 8, 8), np.float32))
    assert quantize(asked).calibration.cached is False


def test_a_function_is_asked_at_opt_min_and_max(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text(
        "import numpy as np\ndef make(shapes, seed):\n"
        "    return {'x': np.random.default_rng(seed).standard_normal(shapes['x']).astype('f4')}\n"
    )
    dims = {"n": Range(1, 1, 1), "h": Range(4, 8, 16), "w": Range(8, 8, 8)}
    asked = request(UNET, tmp_path, [(1, 3, 8, 8)], data=f"{path}:make", dims=dims, samples=12, method="min-max")
    report = quantize(asked)
    assert sorted(size["x"][2] for size in report.calibration.sizes) == [4, 8, 16]


def test_a_quantised_model_is_refused(tmp_path: Path) -> None:
    asked = request(RESIDUAL, tmp_path, [(1, 4, 8, 8)], method="min-max")
    quantize(asked)
    again = dataclasses.replace(asked, model=tmp_path / "int8.onnx", output=tmp_path / "other.onnx")
    with pytest.raises(InputError, match="is quantised already"):
        quantize(again)


def test_a_layer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--float 'nobody': there is no such node"):
        quantize(request(RESIDUAL, tmp_path, [(1, 4, 8, 8)], in_float=("nobody",)))


def test_the_float_model_is_not_written_over(tmp_path: Path) -> None:
    asked = request(RESIDUAL, tmp_path, [(1, 4, 8, 8)])
    with pytest.raises(InputError, match="is the model itself"):
        quantize(dataclasses.replace(asked, output=asked.model))


def test_samples_at_a_size_that_the_network_does_not_take_are_named(tmp_path: Path) -> None:
    asked = request(UNET, tmp_path, [(1, 3, 7, 7)])
    with pytest.raises(InputError, match=r"does not run on a sample \(x \[1, 3, 7, 7\]\)"):
        quantize(asked)


def test_a_budget_that_leaves_all_in_float_writes_nothing(tmp_path: Path) -> None:
    report = quantize(request(RESIDUAL, tmp_path, [(1, 4, 8, 8)], error_budget=0.0, method="min-max"))
    assert (report.exit_code, report.quantized, report.output) == (1, (), None)
    assert report.budget is not None and report.budget.met
    assert not (tmp_path / "int8.onnx").exists()
