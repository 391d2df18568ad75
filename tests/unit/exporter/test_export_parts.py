"""Several modules in one go: each file, the whole of them, what flows between them, and the manifest."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from torch import nn  # noqa: E402

import trtconv  # noqa: E402
from support import export_parts as nets  # noqa: E402
from trtconv import ExportOptions, ExportPart, ExportRequest, OutputOf  # noqa: E402
from trtconv.core.documents.pipeline import PartKind, load_document  # noqa: E402
from trtconv.exporter import export_spec  # noqa: E402

FILE = Path(nets.__file__)
QUICK = ExportOptions(check=False)


def _export(folder: Path, name: str, dims: dict[str, str] | None = None, **changes: object) -> trtconv.ExportReport:
    request = ExportRequest(f"{FILE}:{name}", folder / "m.onnx", options=QUICK)
    bounds = {key: trtconv.Range.of(text) for key, text in (dims or {}).items()}
    return export_spec(dataclasses.replace(request, dims=bounds, **changes))


def _inputs(length: int, batch: int = 2) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(length)
    ids = generator.integers(0, 50, (batch, length), dtype=np.int64)
    return {"ids": ids, "mask": generator.random((batch, length), dtype=np.float32)}


def _by_torch(parts: list[ExportPart], inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    encoder, decoder, vocoder = (part.module for part in parts)
    ids, mask = (torch.from_numpy(inputs[name]) for name in ("ids", "mask"))
    with torch.no_grad():
        made = decoder(encoder(ids, mask), mask, ids)
        return {"decoder.energy": made["energy"].numpy(), "vocoder.output": vocoder(made["mel"]).numpy()}


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    report = _export(folder, "speech", {"batch": "1:1:4", "length": "4:12:40"})
    assert (report.exit_code, list(report.parts)) == (0, ["encoder", "decoder", "vocoder"])
    return folder


def test_the_files_are_those_of_the_manifest(speech: Path) -> None:
    document = load_document(speech / "m.pipeline.json").document
    assert sorted(each.name for each in speech.iterdir()) == [
        "m.data",
        "m.decoder.onnx",
        "m.encoder.onnx",
        "m.onnx",
        "m.pipeline.json",
        "m.vocoder.onnx",
    ]
    assert [part.file for part in document.parts] == ["m.encoder.onnx", "m.decoder.onnx", "m.vocoder.onnx"]
    assert {part.kind for part in document.parts} == {PartKind.ONNX}
    flows = [(each.name, each.source, each.target) for each in document.crossings]
    assert flows == [("encoder.output", 1, 2), ("decoder.mel", 2, 3)]
    assert [each.name for each in document.inputs] == ["ids", "mask"]
    assert [each.name for each in document.outputs] == ["decoder.energy", "vocoder.output"]


@pytest.mark.parametrize("length", [4, 11, 40])
def test_parts_and_whole_compute_what_torch_does(speech: Path, length: int) -> None:
    inputs = _inputs(length)
    expected = _by_torch(nets.speech(), inputs)
    whole = onnxruntime.InferenceSession(speech / "m.onnx")
    names = [each.name for each in whole.get_outputs()]
    with trtconv.load_pipeline(speech / "m.pipeline.json", engines="onnxruntime") as pipeline:
        parts = pipeline.run(inputs)
    for name, got in zip(names, whole.run(None, inputs), strict=True):
        np.testing.assert_allclose(got, expected[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(parts[name], expected[name], rtol=1e-4, atol=1e-5)


def test_weights_of_two_parts_are_stored_once(speech: Path) -> None:
    places = [
        {entry.key: entry.value for entry in tensor.external_data}
        for part in ("encoder", "decoder")
        for tensor in onnx.load(speech / f"m.{part}.onnx", load_external_data=False).graph.initializer
        if list(tensor.dims) == [50, 32]
    ]
    assert len(places) == 2
    assert places[0] == places[1]
    table = nets.speech()[0].module.table.weight.detach().numpy().tobytes()
    assert (speech / "m.data").read_bytes().count(table) == 1


def test_bounds_of_what_flows_follow(speech: Path) -> None:
    for name, dim, bounds in (("encoder", "length", [4, 12, 40]), ("vocoder", "frames", [8, 24, 80])):
        props = {each.key: each.value for each in onnx.load(speech / f"m.{name}.onnx").metadata_props}
        assert json.loads(props["trtconv.dims"])[dim]["bounds"] == bounds


def test_the_rule_of_the_whole_has_that_of_every_part(tmp_path: Path) -> None:
    report = _export(tmp_path, "speech", {"length": "4:12:40"}, arguments={"step": 4})
    assert report.parts["vocoder"].rules["frames"].step == 4
    assert report.parts["encoder"].rules["length"].step == 1
    assert report.rules["length"].step == 2


def test_a_branch_of_a_later_part_narrows_the_whole(tmp_path: Path) -> None:
    with pytest.raises(trtconv.ExportFailed) as failed:
        _export(tmp_path, "branching", {"length": "2:12:20"})
    assert "export_parts.py:" in failed.value.message
    assert not list(tmp_path.iterdir())


def test_a_changed_file_is_refused(speech: Path, tmp_path: Path) -> None:
    for each in speech.iterdir():
        (tmp_path / each.name).write_bytes(each.read_bytes())
    data = bytearray((tmp_path / "m.data").read_bytes())
    data[100] ^= 1
    (tmp_path / "m.data").write_bytes(data)
    with pytest.raises(trtconv.InputError, match=r"m\.data is not the file"):
        trtconv.load_pipeline(tmp_path / "m.pipeline.json", engines="onnxruntime")


X = torch.ones(1, 4)
KEEP = nn.Identity().eval()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            [ExportPart("a", KEEP, {"input": OutputOf("b")}), ExportPart("b", KEEP, {"input": X})],
            "no part before it makes 'b'",
        ),
        (
            [ExportPart("a", KEEP, {"input": X}), ExportPart("b", KEEP, {"input": OutputOf("a.mel")})],
            "a makes no 'a.mel'",
        ),
        ([ExportPart("a", KEEP, {"input": X}), ExportPart("a", KEEP, {"input": X})], "two parts are called a"),
        ([ExportPart("a/b", KEEP, {"input": X})], "not a word"),
        ([ExportPart("a", KEEP, {})], "has no inputs"),
        ([ExportPart("a", KEEP, {"input": 3})], "input is no tensor"),
        (
            [ExportPart("a", KEEP, {"input": X}), ExportPart("b", KEEP, {"input": X.double()})],
            "another input than in an earlier",
        ),
        ([ExportPart("a", nn.Dropout(), {"input": X})], "train mode"),
        ([ExportPart("a", KEEP, {"input": X}, {"input": ("batch",)})], "has 2 axes, not 1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[ExportPart], said: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(nets, "given", lambda: parts, raising=False)
    monkeypatch.syspath_prepend(FILE.parent)
    with pytest.raises(trtconv.InputError) as refused:
        export_spec(ExportRequest("support.export_parts:given", tmp_path / "m.onnx", options=QUICK))
    assert said in refused.value.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes",
    [
        {"build": True},
        {"weights": Path("w.pt")},
        {"options": ExportOptions(split_branches=True)},
        {"dims": {"w": (1, 2)}},
    ],
)
def test_what_is_about_one_module_is_refused(changes: dict[str, object], tmp_path: Path) -> None:
    request = ExportRequest(f"{FILE}:branching", tmp_path / "m.onnx", options=QUICK)
    with pytest.raises(trtconv.InputError):
        export_spec(dataclasses.replace(request, **changes))
    assert not list(tmp_path.iterdir())
