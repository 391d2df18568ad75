"""An engine run once, from a file of arrays to another."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from support.engines import build, give_gpu
from support.gpu import FakeDriver, fake_tensorrt
from support.paths import ROOT
from trtconv.core.dims import Range
from trtconv.core.documents.inspect import TensorRecord
from trtconv.core.errors import InputError
from trtconv.core.requests.engine import RunRequest
from trtconv.engine import run
from trtconv.engine.tracing import trace


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return give_gpu(monkeypatch)


def request(folder: Path, **arrays: np.ndarray) -> RunRequest:
    engine = build(folder).engine
    np.savez(folder / "in.npz", **arrays)
    return RunRequest(engine, inputs=folder / "in.npz", output=folder / "y.npz")


def test_outputs_are_those_of_the_engine(gpu: FakeDriver, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(1, 3, 6, 8)).astype(np.float32)
    document = run(request(tmp_path, x=x))
    assert (document.profile, document.exit_code) == (0, 0)
    assert document.inputs == {"x": TensorRecord("float32", (1, 3, 6, 8))}
    with np.load(tmp_path / "y.npz") as made:
        assert set(made.files) == {"y", "z"}
        # z = x + c and y = tanh(c), by the network's definition.
        np.testing.assert_allclose(np.tanh(made["z"] - x), made["y"], atol=1e-5)
        assert document.outputs["y"] == TensorRecord("float32", made["y"].shape)


def test_tensors_inside_are_written_beside_the_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpu(monkeypatch, "tensorrt-11.4.0")
    x = np.random.default_rng(0).normal(size=(1, 3, 6, 8)).astype(np.float32)
    asked = request(tmp_path, x=x)
    build(tmp_path, debug=("a", "b"))
    run(dataclasses.replace(asked, tensors=("a*",)))
    with np.load(tmp_path / "y.npz") as made:
        assert set(made.files) == {"y", "z", "a"}
        np.testing.assert_array_equal(made["a"], np.maximum(x, 0))
    (tmp_path / "y.npz").unlink()
    with pytest.raises(InputError, match="--tensor 'c' means no tensor"):
        run(dataclasses.replace(asked, tensors=("a", "c")))
    assert not (tmp_path / "y.npz").exists()


def test_layers_are_traced(gpu: FakeDriver, tmp_path: Path) -> None:
    layer = {
        "Name": "layer",
        "LayerType": "CaskConvolution",
        "Inputs": [{"Name": "x", "Dimensions": [1, 3, 6, 8], "Format/Datatype": "Row major linear FP16 format"}],
        "Outputs": [],
        "TacticName": "sm80_xmma",
    }
    asked = request(tmp_path, x=np.zeros((1, 3, 6, 8), np.float32))
    build(tmp_path, information={"Layers": [layer]}, us=250.0)
    run(dataclasses.replace(asked, trace=tmp_path / "trace.json"))
    document = json.loads((tmp_path / "trace.json").read_text())
    (event,) = document["traceEvents"]
    assert {key: event[key] for key in ("name", "cat", "ph", "ts", "dur")} == {
        **{"name": "layer", "cat": "CaskConvolution", "ph": "X"},
        **{"ts": 0, "dur": 250},
    }
    assert event["args"]["kernel"] == "sm80_xmma"
    assert event["args"]["input 0"].startswith("x 1x3x6x8 float16")
    assert document["otherData"]["inputs"] == "x 1x3x6x8"
    with pytest.raises(InputError, match=r"in\.npz"):
        run(dataclasses.replace(asked, trace=asked.inputs))


def test_layers_follow_each_other_in_a_trace() -> None:
    document = json.loads(trace([], {"first": 2.5, "second": 1.0}, {}))
    assert [(each["name"], each["ts"], each["dur"]) for each in document["traceEvents"]] == [
        ("first", 0, 2.5),
        ("second", 2.5, 1.0),
    ]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "no values for input 'x'"),
        ({"w": np.zeros(1, np.float32)}, "'w', which is not an input"),
        ({"x": np.zeros((1, 3, 6, 8))}, "is float32 in the model, and float64 here"),
        ({"x": np.zeros((1, 3, 6, 99), np.float32)}, "no profile of the engine contains x 1x3x6x99"),
    ],
)
def test_inputs_that_do_not_fit(gpu: FakeDriver, tmp_path: Path, arrays: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        run(request(tmp_path, **arrays))
    assert not (tmp_path / "y.npz").exists()


def test_an_image_is_an_input(gpu: FakeDriver, tmp_path: Path) -> None:
    asked = request(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    (tmp_path / "cat.ppm").write_bytes(b"P6 6 8 255\n" + pixels.tobytes())
    given = dataclasses.replace(asked, inputs=tmp_path / "cat.ppm", preprocess="scale=1/255,mean=0.5")
    assert run(given).inputs == {"x": TensorRecord("float32", (1, 3, 8, 6))}
    x = pixels.transpose(2, 0, 1)[np.newaxis] / np.float32(255) - np.float32(0.5)
    with np.load(tmp_path / "y.npz") as made:
        np.testing.assert_allclose(np.tanh(made["z"] - x), made["y"], atol=1e-5)
    with pytest.raises(InputError, match="--preprocess is about images"):
        run(dataclasses.replace(asked, preprocess="scale=1/255"))


TAKES_IMAGES = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[n,h,w,3] x) => (float[n,h,w,3] y) { y = Cast <to = 1> (x) }
"""


def test_an_engine_that_takes_images_is_given_a_picture(gpu: FakeDriver, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    dims = ({"n": Range(1, 1, 2), "h": Range(4, 8, 12), "w": Range(4, 6, 12)},)
    built = build(tmp_path, TAKES_IMAGES, dims)
    taken = {"name": "x", "pixels": "bgr", "sizes": [[8, 6]], "resized_to": [4, 4], "network_input": "z"}
    built.change_report(images=taken)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "cat.png")
    asked = RunRequest(built.engine, inputs=tmp_path / "cat.png", output=tmp_path / "y.npz")
    assert run(asked).inputs == {"x": TensorRecord("uint8", (1, 8, 6, 3))}
    with np.load(asked.output) as made:
        np.testing.assert_array_equal(made["y"][0], pixels[..., ::-1].astype(np.float32))
    asked.output.unlink()
    with pytest.raises(InputError, match="would do so twice"):
        run(dataclasses.replace(asked, preprocess="scale=1/255"))
    image.fromarray(pixels[:4]).save(tmp_path / "cat.png")
    with pytest.raises(InputError, match=r"4x6 pixels .* takes 8x6"):
        run(asked)
    assert not asked.output.exists()
    assert run(dataclasses.replace(asked, preprocess="size=8x6")).inputs["x"].shape == (1, 8, 6, 3)


def test_an_engine_that_takes_planes_is_given_a_picture(gpu: FakeDriver, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (uint8[n,8,6,1] x, uint8[n,4,3,2] x_uv) => (float[n,8,6,1] y, float[n,4,3,2] z) {
            y = Cast <to = 1> (x)  z = Cast <to = 1> (x_uv) }"""
    built = build(tmp_path, text, ({"n": Range(1, 1, 2)},))
    taken = {"name": "x", "pixels": "nv12", "sizes": [[8, 6]], "resized_to": None, "network_input": "a"}
    built.change_report(images={**taken, "chroma": "x_uv"})
    # 75 % gray is level 180 of video, without color.
    image.fromarray(np.full((8, 6, 3), 191, np.uint8)).save(tmp_path / "gray.png")
    run(RunRequest(built.engine, inputs=tmp_path / "gray.png", output=tmp_path / "y.npz"))
    with np.load(tmp_path / "y.npz") as made:
        assert (made["y"] == 180).all()
        assert (made["z"] == 128).all()


def test_nothing_that_is_read_is_overwritten(gpu: FakeDriver, tmp_path: Path) -> None:
    asked = request(tmp_path, x=np.zeros((1, 3, 6, 8), np.float32))
    for path in (asked.engine, asked.inputs):
        with pytest.raises(InputError, match="would replace it"):
            run(RunRequest(asked.engine, inputs=asked.inputs, output=path))
        with pytest.raises(InputError, match="the trace would replace it") as told:
            run(RunRequest(asked.engine, inputs=asked.inputs, output=tmp_path / "y.npz", trace=path))
        assert "--trace" in told.value.hint


def test_the_example_of_the_page_runs(gpu: FakeDriver, tmp_path: Path, monkeypatch, capsys) -> None:
    request(tmp_path, x=np.zeros((1, 3, 8, 8), np.float32))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    example, _ = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(example, "running.md", "exec"), {})
    assert capsys.readouterr().out == "0 (1, 3, 8, 8)\n"


@pytest.mark.parametrize("surface", ["tensorrt-8.6.0", "tensorrt-10.16.1", "tensorrt-11.4.0", "tensorrt-rtx-1.7.1"])
def test_the_program_of_the_page_runs(
    gpu: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], surface: str
) -> None:
    build(tmp_path)
    monkeypatch.chdir(tmp_path)
    played = fake_tensorrt(gpu, surface)
    played.Logger = type("Logger", (played.ILogger,), {})
    played.nptype = lambda dtype: {"FLOAT": np.float32}[dtype.name]
    monkeypatch.setitem(sys.modules, "tensorrt", played)
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    _, program = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(program, "running.md", "exec"), {})
    assert capsys.readouterr().out == "{'y': (1, 3, 8, 8), 'z': (1, 3, 8, 8)}\n"
