"""What inspect reads of engines, reports and models, and how it reads each version's words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from support.engines import build, call_here, give_gpu
from support.gpu import FakeDriver
from trtconv.cli.formats.inspection import inspect_text
from trtconv.core.agreement import CodeFile
from trtconv.core.dims import InputSpec
from trtconv.core.documents.build import InputProfile
from trtconv.core.documents.inspect import LayerSummary, Quantizers
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.engine import InspectRequest
from trtconv.engine import inspect
from trtconv.engine.layers import has_details, read_layers, summary, type_in

# Made by hand after each version's documentation; TensorRT 8.6 and 10 join type and format, 11 has them apart.
VERSION_8 = {
    "Layers": [
        {
            "Name": "Reformatting CopyNode for Input Tensor 0 to /in/QuantizeLinear",
            "LayerType": "Reformat",
            "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Row major linear FP32"}],
            "Outputs": [{"Name": "x'", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Channel major FP16 format"}],
            "Origin": "REFORMAT",
        },
        {
            "Name": "/in/QuantizeLinear",
            "LayerType": "Reformat",
            "Inputs": [{"Name": "x'", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Channel major FP16 format"}],
            "Outputs": [{"Name": "q", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Four wide channel Int8 format"}],
            "Origin": "QDQ",
        },
        {
            "Name": "/w/QuantizeLinear + /up/ConvTranspose",
            "LayerType": "CaskDeconvolutionV2",
            "Inputs": [{"Name": "q", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Four wide channel Int8 format"}],
            "Outputs": [{"Name": "y", "Dimensions": [1, 3, 16, 16], "Format/Datatype": "Row major linear FP32"}],
            "ParameterType": "Deconvolution",
            "Weights": {"Type": "Int8", "Count": 36},
            "TacticName": "sm80_deconv",
        },
    ],
    "Bindings": ["x", "y"],
}
VERSION_11 = {
    "Layers": [
        {
            "Name": entry["Name"],
            "LayerType": entry["LayerType"],
            **{
                side: [
                    {
                        "Name": tensor["Name"],
                        "Dimensions": tensor["Dimensions"],
                        "Format": "kLINEAR",
                        "DataType": {"float32": "Float", "float16": "Half", "int8": "Int8"}[
                            str(type_in(tensor["Format/Datatype"]))
                        ],
                    }
                    for tensor in entry[side]
                ]
                for side in ("Inputs", "Outputs")
            },
            "Origin": entry.get("Origin", ""),
            "Metadata": "[ONNX Layer: /w/QuantizeLinear]\x1e[ONNX Layer: /up/ConvTranspose | then (branch)]"
            if " + " in entry["Name"]
            else "",
        }
        for entry in VERSION_8["Layers"]
    ],
    "I/O Tensors": [{"Name": "x", "IOMode": "Input"}],
}
NAMES = {"Layers": [entry["Name"] for entry in VERSION_8["Layers"]], "Bindings": []}


@pytest.mark.parametrize("information", [VERSION_8, VERSION_11], ids=["8.6 and 10", "11"])
def test_versions_are_read_alike(information: dict[str, Any]) -> None:
    layers = read_layers(information)
    assert has_details(information)
    assert [layer.precision for layer in layers] == ["float32", "float16", "int8"]
    assert [layer.is_reformat for layer in layers] == [True, False, False]
    assert [layer.is_quantizer for layer in layers] == [False, True, False]
    assert layers[2].nodes == ("/w/QuantizeLinear", "/up/ConvTranspose")
    assert [tensor.dtype for layer in layers for tensor in layer.outputs] == ["float16", "int8", "float32"]
    assert summary(layers) == LayerSummary(
        layers=3,
        reformats=1,
        precisions={"float16": 1, "int8": 1},
        quantizers=Quantizers(fused=("/w/QuantizeLinear",), alone=("/in/QuantizeLinear",)),
    )


def test_names_alone_tell_what_they_can() -> None:
    layers = read_layers(NAMES)
    assert not has_details(NAMES)
    assert {layer.precision for layer in layers} == {None}
    found = summary(layers)
    assert (found.layers, found.reformats, found.precisions) == (3, 1, {})
    assert found.quantizers == Quantizers(("/w/QuantizeLinear",), ("/in/QuantizeLinear",))


@pytest.mark.parametrize("information", [{}, {"Layers": []}, {"Layers": [{}]}, {"Layers": [{"Inputs": "x"}]}])
def test_what_is_missing_is_left_empty(information: dict[str, Any]) -> None:
    assert all(layer.name == "" and layer.inputs == () for layer in read_layers(information))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("Thirty-two wide channel vectorized row major Int8 format.", "int8"),
        ("Row major linear FP16 format", "float16"),
        ("Row major linear BFloat16 format", "bfloat16"),
        ("Float", "float32"),
        ("Half", "float16"),
        ("FP8", "float8"),
        ("N/A due to dynamic shapes", None),
    ],
)
def test_types_in_words(text: str, dtype: str | None) -> None:
    assert type_in(text) == dtype


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return give_gpu(monkeypatch)


def test_an_engine_is_loaded_and_its_layers_timed(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path, information={"Layers": [{**VERSION_8["Layers"][2], "Name": "layer"}]}, us=50.0)
    document = inspect(InspectRequest(built.engine))
    assert (document.kind, document.loaded, document.details) == ("engine", True, "full")
    assert document.layers[0].time_us == 50
    assert document.time.layers_us == 50
    assert document.profiles[0]["x"] == InputProfile((1, 3, 4, 4), (1, 3, 8, 8), (2, 3, 12, 12))
    text = inspect_text(document)
    assert "CaskDeconvolutionV2" in text
    assert "1 layer (1 in int8); 0 reformats" in text
    untimed = inspect(InspectRequest(built.engine, times=False))
    assert (untimed.time, untimed.layers[0].time_us) == (None, None)


def test_an_engine_without_a_report_needs_trust(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.report.unlink()
    with pytest.raises(InputError, match="runs code"):
        inspect(InspectRequest(built.engine))
    document = inspect(InspectRequest(built.engine, trust=True))
    assert (document.loaded, document.plan) == (True, None)
    assert inspect_text(document)


def test_too_little_memory_to_time(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path, memory=10_000)
    gpu.total = 5_000
    document = inspect(InspectRequest(built.engine))
    assert document.layers is not None
    assert "GPU memory" in document.time.why


def test_where_it_cannot_be_loaded_its_report_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    built = build(tmp_path)
    document = inspect(InspectRequest(built.engine))
    assert (document.kind, document.loaded, document.layers) == ("engine", False, None)
    assert document.why_not_loaded
    assert "THE ENGINE WAS NOT LOADED" in inspect_text(document)
    built.report.unlink()
    with pytest.raises(EnvironmentMissing):
        inspect(InspectRequest(built.engine, trust=True))


def test_an_altered_engine_is_not_loaded(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.engine.write_bytes(built.engine.read_bytes() + b"x")
    with pytest.raises(InputError, match="altered"):
        inspect(InspectRequest(built.engine))


def test_an_engine_for_another_gpu_is_told_by_its_report(gpu: FakeDriver, tmp_path: Path) -> None:
    built = build(tmp_path)
    built.change_report(runtime__gpu="NVIDIA T4")
    document = inspect(InspectRequest(built.engine))
    assert "NVIDIA T4" in document.why_not_loaded


def test_a_report_and_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    built = build(tmp_path)
    report = inspect(InspectRequest(built.report))
    assert (report.kind, report.built.path) == ("report", str(built.engine))
    assert "read from the report alone" in inspect_text(report)
    # A report may hold any text for a type, but no text for a size.
    forged = TensorInfo("x", "input\nFORGED", "float\nFORGED", (1, 2))
    lines = inspect_text(dataclasses.replace(report, io=(forged,))).splitlines()
    assert not any(line.startswith("FORGED") for line in lines)
    built.change_report(io=[{"name": "x", "kind": "input", "dtype": "float", "shape": [1, "2"]}])
    with pytest.raises(InputError, match=r"net\.engine\.json .*key 'io\[0\]\.shape\[1\]': '2' is not an integer"):
        inspect(InspectRequest(built.report))
    model = inspect(InspectRequest(built.model))
    assert (model.kind, model.nodes["ConvTranspose"], model.opset) == ("onnx", 1, 17)
    assert model.inputs == (InputSpec("x", "float", ("n", 3, "h", "w")),)
    assert "5 nodes" in inspect_text(model)


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema": 5}'])
def test_files_that_are_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes) -> None:
    call_here(monkeypatch)
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError):
        inspect(InspectRequest(path))
    with pytest.raises(InputError, match="no such file"):
        inspect(InspectRequest(tmp_path / "none"))


def test_the_document_is_json(gpu: FakeDriver, tmp_path: Path) -> None:
    json.dumps(inspect(InspectRequest(build(tmp_path).engine)).to_json())


def test_what_is_no_engine_is_read_without_what_engines_are_loaded_with(tmp_path: Path) -> None:
    model, library = tmp_path / "net.onnx", tmp_path / "libnvinfer_lean.so"
    model.write_bytes(b"\x08\x08")
    library.write_bytes(b"library")
    code = (CodeFile(library),)
    for given, flag in (({"lean_runtime": code}, "--lean-runtime"), ({"plugins": code}, "--plugin")):
        with pytest.raises(InputError, match=f"is read without {flag}"):
            inspect(InspectRequest(model, **given))
