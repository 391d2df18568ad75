"""verify, bench and inspect on a real GPU, with the TensorRT that is installed beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.paths import MODELS, ROOT
from trtconv.core.documents.signed import CHECKSUM, checksum

SMALL = ("--dim", "batch=1:1:2", "--dim", "height=32:64:64", "--dim", "width=32:64:64")

pytestmark = pytest.mark.gpu


def trtconv(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Runs a command; returns its exit status and its JSON document."""
    quiet = [] if arguments[0] == "doctor" else ["-q"]
    command = [sys.executable, "-m", "trtconv", *map(str, arguments), *quiet, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def family() -> str:
    code, document = trtconv("doctor")
    assert code == 0, document
    return next(str(runtime["family"]) for runtime in document.runtimes if runtime["works"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, family: str) -> Path:
    """Returns a folder with the U-Net's engine in float16."""
    folder = tmp_path_factory.mktemp("engines")
    code, report = trtconv(
        "build", MODELS / "unet.onnx", *SMALL, "--precision", "fp16", "--target", family, "-o", folder / "unet.engine"
    )
    assert code == 0, report
    assert report.runtime.gpu
    return folder


def test_the_engine_computes_its_model(folder: Path) -> None:
    code, report = trtconv("verify", MODELS / "unet.onnx", folder / "unet.engine", "--require-engine")
    assert (code, report.ran, report.verified) == (0, "engine", True), report
    assert [case.size for case in report.cases][:3] == ["min", "opt", "max"]
    assert 1e-6 < report.worst.max_rel < 2e-2, "float16, and not more"


def test_inputs_of_the_user(folder: Path) -> None:
    inputs = folder / "inputs.npz"
    np.savez(inputs, x=np.random.default_rng(1).standard_normal((1, 3, 64, 32)).astype(np.float32))
    code, report = trtconv(
        "verify", MODELS / "unet.onnx", folder / "unet.engine", "--inputs", inputs, "--require-engine"
    )
    assert (code, len(report.cases)) == (0, 1), report


def test_it_is_timed(folder: Path) -> None:
    engine = folder / "unet.engine"
    code, report = trtconv("bench", engine, "--vs", engine, "--warmup", "0.05", "--duration", "0.1")
    assert code == 0, report
    sizes = {row.size for row in report.rows}
    assert len(report.rows) == len(sizes) * 4 * 2, "graph or not, copies or not, two engines"
    assert all(row.median_us > 1 for row in report.rows if row.runs)
    assert all(row.p99_us >= row.median_us >= row.min_us for row in report.rows if row.runs)
    ratios = [ratio.ratio for ratio in report.ratios]
    assert 0.5 < float(np.median(ratios)) < 2, "an engine against itself"


def test_its_layers_are_told_and_timed(folder: Path) -> None:
    code, report = trtconv("inspect", folder / "unet.engine")
    assert (code, report.loaded) == (0, True), report
    assert report.summary.layers == len(report.layers) > 0
    assert report.time.layers_us > 0
    assert any(layer.time_us for layer in report.layers)


def test_an_engine_of_another_network_is_found_out(folder: Path, family: str) -> None:
    """The engine of a network with one weight changed, with a report that says that it is of this one."""
    changed = onnx.load(MODELS / "unet.onnx")
    tensor = max(changed.graph.initializer, key=lambda each: len(each.dims))
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 1.5, tensor.name))
    onnx.save(changed, folder / "changed.onnx")
    arguments = ("--target", family, "-o", folder / "changed.engine")
    assert trtconv("build", folder / "changed.onnx", *SMALL, *arguments)[0] == 0
    path = folder / "changed.engine.json"
    report = json.loads(path.read_text())
    report.model = json.loads((folder / "unet.engine.json").read_text())["model"]
    path.write_text(json.dumps({**report, CHECKSUM: checksum(report)}))
    code, found = trtconv("verify", MODELS / "unet.onnx", folder / "changed.engine")
    assert (code, found.verified, found.ran) == (1, False, "engine"), found


def test_the_first_tensor_that_loses_precision(folder: Path) -> None:
    engine = folder / "unet.engine"
    code, found = trtconv("verify", MODELS / "unet.onnx", engine, "--tolerance", "1e-6", "--bisect")
    assert code == 1, found
    assert found.bisect.tensor, found.bisect
    assert found.bisect.node.op


@pytest.mark.parametrize("command", ["verify", "bench", "inspect"])
def test_a_damaged_engine_is_refused_also_with_trust(folder: Path, tmp_path: Path, command: str) -> None:
    path = tmp_path / "damaged.engine"
    path.write_bytes((folder / "unet.engine").read_bytes()[:2000])
    model = [MODELS / "unet.onnx"] if command == "verify" else []
    code, report = trtconv(command, *model, path, "--trust")
    assert (code, report.error.type) == (1, "EngineFailed"), report


def test_the_quantised_network(folder: Path, family: str) -> None:
    model = MODELS / "quantized_autoencoder.onnx"
    arguments = ("--precision", "int8", "--target", family, "-o", folder / "q.engine")
    assert trtconv("build", model, *SMALL, *arguments)[0] == 0
    code, report = trtconv("verify", model, folder / "q.engine", "--require-engine")
    assert (code, report.precision) == (0, "int8"), report


def test_the_engine_of_a_mix_is_within_the_tolerance(tmp_path: Path, family: str) -> None:
    """On TensorRT 8.6 all in float16 is not, though the emulation says so: kernels add in float16 too."""
    engine, data = tmp_path / "unet.engine", tmp_path / "x.npz"
    sizes = ("--dim", "batch=1", "--dim", "height=64", "--dim", "width=64")
    np.savez(data, x=np.random.default_rng(5).random((1, 3, 64, 64), np.float32))
    flags = ("--precision", "auto", "--tolerance", "1.5e-3", "--data", data, "--no-tf32", "--target", family)
    code, report = trtconv("build", MODELS / "unet.onnx", *sizes, *flags, "-o", engine)
    assert code == 0, report
    mix = report.mix
    assert mix["engine_missing"] == ""
    assert 0 <= mix["engine_error"] <= mix["tolerance"] == 1.5e-3


def test_forms_are_timed_and_the_fastest_computes_the_same(tmp_path: Path, family: str) -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[1,64,h,32] x) => (float[1,32,p,q] y)
        { [up] u = ConvTranspose <kernel_shape=[2,2], strides=[2,2], output_padding=[1,1]> (x, w) y = Relu (u) }"""
    )
    weights = np.random.default_rng(4).standard_normal((64, 32, 2, 2)).astype(np.float32) / 16
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(proto, tmp_path / "up.onnx")
    asked = ("build", tmp_path / "up.onnx", "--dim", "h=16:32:64", "--precision", "fp16", "--tune", "--target", family)
    cache = ("--timing-cache", tmp_path / "cache")
    code, report = trtconv(*asked, *cache)
    assert code == 0, report
    (tuned,) = report.tuned
    assert all(us and us > 0 for us in tuned["us"].values()), tuned
    assert tuned["us"][tuned["form"]] <= tuned["us"][tuned["usual"]]
    code, again = trtconv(*asked, *cache, "--force")
    assert (code, again["tuned"]) == (0, [{**tuned, "known": True}])
    code, verified = trtconv("verify", tmp_path / "up.onnx", tmp_path / "up.engine", "--require-engine")
    assert (code, verified["verified"]) == (0, True), verified
