"""Models in parts, run on a GPU that is played, and on ONNX Runtime."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from support.engines import RUNTIME, give_gpu
from support.gpu import FakeDriver, engine_bytes
from support.partition_nets import BOUNDS, write
from support.session import Array, run
from trtconv.core.agreement import CodeFile
from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputRange, Range
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.pipeline import PartFile, PartKind, PartRecord, PartTensor, PipelineDocument
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.requests.engine import RunRequest, VerifyRequest
from trtconv.core.target import Target
from trtconv.engine import run_pipeline, verify_pipeline
from trtconv.engine.pipelines import load_pipeline
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.cutting import Cutting
from trtconv.pipeline.refusals import matching
from trtconv.runtimes.observed import observe

REFUSED = {"detector": "type:NonMaxSuppression", "packer": "type:NonZero", "matcher": "type:CDist"}
FEEDS: Mapping[str, Callable[[np.random.Generator], dict[str, Array]]] = {
    "detector": lambda random: {"images": random.standard_normal((1, 3, 48, 64)).astype(np.float32)},
    "packer": lambda random: {
        "embeddings": random.standard_normal((2, 9, 32)).astype(np.float32),
        "mask": random.random((2, 9)) > 0.4,
    },
    "matcher": lambda random: {"x": random.standard_normal((1, 3, 9, 12)).astype(np.float32)},
}


def build(folder: Path, name: str, faults: Mapping[str, float] | None = None, late: tuple[str, ...] = ()) -> Path:
    """Cuts a network, and writes it with engines of the TensorRT that is played; returns the document's path."""
    path = write(name, folder)
    model = OnnxModel.load(path)
    dims = {dim: Range.parse(text) for dim, text in BOUNDS[name].items()}
    if name == "packer":
        dims["packed:0"] = Range(1, 16, 128)
    own = {dim: bound for dim, bound in dims.items() if ":" not in dim}
    profile = make_profile(model.inputs, own)
    refused = dict.fromkeys(matching(model, [REFUSED[name]]), "as the test has it")
    others = {dim: bound for dim, bound in dims.items() if dim not in own}
    cutting = Cutting(model, refused, [profile], others, lambda names, points: observe(model, names, points))
    parts = []
    for number, part in enumerate(cutting.slices, 1):
        proto = cutting.model_of(part).proto
        file = folder / f"{name}.{number}.part.onnx"
        onnx.save(proto, file)
        alone = PartFile(file.name, hashlib.sha256(file.read_bytes()).hexdigest())
        kind, runs, form = PartKind.ONNX, alone, None
        if part.is_engine:
            kind, form = PartKind.ENGINE, alone
            runs = _engine(folder, file, proto, part.dims, faults or {}, late)
        parts.append(PartRecord(kind, runs.file, runs.sha256, part.inputs, part.outputs, form, len(part.nodes)))
    made = {tensor.name: tensor for part in parts for tensor in part.outputs}
    document = PipelineDocument(
        FileIdentity(str(path), model.digest()),
        tuple(parts),
        tuple(PartTensor(spec.name, spec.dtype, tuple(spec.dims)) for spec in model.inputs),
        tuple(made[output] for output in model.outputs),
        RuntimeIdentity(**RUNTIME),
        BuildPlan(Target("tensorrt", (8, 6)), (profile,)),
        profiles=(own,),
    )
    written = folder / f"{name}.pipeline.json"
    written.write_text(json.dumps(document.to_json()))
    return written


def _engine(
    folder: Path,
    file: Path,
    proto: onnx.ModelProto,
    dims: tuple[Mapping[str, Range], ...],
    faults: Mapping[str, float],
    late: tuple[str, ...],
) -> PartFile:
    """Writes the engine of a part, and its report."""
    model = OnnxModel.load(file)
    profiles = tuple(make_profile(model.inputs, each) for each in dims)
    outputs = {value.name for value in proto.graph.output}
    own = {name: fault for name, fault in faults.items() if name in outputs}
    inputs: list[Mapping[str, InputRange]] = [profile.inputs for profile in profiles]
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    data = engine_bytes(shown, inputs, faults=own, late=tuple(name for name in late if name in outputs))
    path = folder / file.name.replace(".onnx", ".engine")
    path.write_bytes(data)
    identity = FileIdentity(str(path), hashlib.sha256(data).hexdigest(), len(data))
    report = BuildReport(
        model=FileIdentity(str(file), model.digest()),
        plan=BuildPlan(Target("tensorrt", (8, 6)), profiles),
        runtime=RuntimeIdentity(**RUNTIME),
        engine=identity,
        inputs=model.inputs,
    )
    Path(f"{path}.json").write_text(json.dumps(report.to_json()))
    return PartFile(path.name, str(identity.sha256))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    return give_gpu(monkeypatch)


@pytest.mark.parametrize("name", REFUSED)
def test_engine_and_onnx_runtime_in_turns_compute_the_model(gpu: FakeDriver, tmp_path: Path, name: str) -> None:
    path = build(tmp_path, name)
    random = np.random.default_rng(0)
    with load_pipeline(path) as pipeline:
        assert pipeline.runtime == RuntimeIdentity(**RUNTIME)
        for _ in range(3):
            feeds = FEEDS[name](random)
            expected = run(tmp_path / f"{name}.onnx", feeds)
            for values, made in zip(expected, pipeline.run(feeds).values(), strict=True):
                assert values.dtype == made.dtype
                np.testing.assert_allclose(values, made, atol=1e-5)
    assert gpu.used == 0, "memory of the GPU was kept"


def test_without_a_gpu_onnx_runtime_runs_all_if_asked(tmp_path: Path) -> None:
    path = build(tmp_path, "matcher")
    feeds = FEEDS["matcher"](np.random.default_rng(1))
    with pytest.raises(EnvironmentMissing):
        load_pipeline(path)
    with pytest.raises(InputError):
        load_pipeline(path, engines="cpu")
    with load_pipeline(path, engines="onnxruntime") as pipeline:
        (expected,) = run(tmp_path / "matcher.onnx", feeds)
        np.testing.assert_array_equal(pipeline.run(feeds)["y"], expected)


@pytest.mark.parametrize("engines", ["tensorrt", "onnxruntime"])
def test_inputs_have_to_fit_the_model_and_every_engine(gpu: FakeDriver, tmp_path: Path, engines: str) -> None:
    """Also where ONNX Runtime stands for the engines: what runs there runs on a GPU."""
    random = np.random.default_rng(2)
    with load_pipeline(build(tmp_path, "packer"), engines=engines) as pipeline:
        feeds = FEEDS["packer"](random)
        with pytest.raises(InputError):
            pipeline.run({"embeddings": feeds["embeddings"]})
        wide = {"embeddings": np.zeros((4, 99, 32), np.float32), "mask": np.ones((4, 99), bool)}
        with pytest.raises(InputError) as raised:
            pipeline.run(wide)
        assert "packer.1.part.engine" in raised.value.message
        # More tokens than the second engine was built for.
        full = {"embeddings": np.zeros((4, 32, 32), np.float32), "mask": np.zeros((4, 32), bool)}
        with pytest.raises(InputError) as raised:
            pipeline.run(full)
        assert "packer.3.part.engine" in raised.value.message


def test_a_part_that_was_changed_is_not_run(gpu: FakeDriver, tmp_path: Path) -> None:
    path = build(tmp_path, "matcher")
    part = tmp_path / "matcher.2.part.onnx"
    part.write_bytes(part.read_bytes() + b"\0")
    with pytest.raises(InputError):
        load_pipeline(path)


def test_a_part_that_onnx_runtime_does_not_load_is_told(tmp_path: Path) -> None:
    path = build(tmp_path, "matcher")
    part = tmp_path / "matcher.2.part.onnx"
    model = onnx.load(part)
    model.graph.node[0].domain = "nobody"
    model.opset_import.append(onnx.helper.make_opsetid("nobody", 1))
    onnx.save(model, part)
    document = json.loads(path.read_text())
    document["parts"][1]["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))
    with pytest.raises(EngineFailed) as raised:
        load_pipeline(path, engines="onnxruntime")
    assert "matcher.2.part.onnx" in raised.value.message and "--reference" in raised.value.hint
    reference = tmp_path / "mine.py"
    text = """
import trtconv

@trtconv.reference("nobody::CDist")
def distances(a, b, **_):
    return a[:, :1] + b[:, 0]
"""
    reference.write_text(text)
    feeds = FEEDS["matcher"](np.random.default_rng(1))
    np.savez(tmp_path / "in.npz", **feeds)
    inputs, output = tmp_path / "in.npz", tmp_path / "y.npz"
    request = RunRequest(path, inputs=inputs, output=output, engines="onnxruntime")
    with pytest.raises(EngineFailed):
        run_pipeline(request)
    run_pipeline(dataclasses.replace(request, references=CodeFile.named([reference])))
    (expected,) = run(tmp_path / "matcher.onnx", feeds)
    with np.load(output) as made:
        assert made["y"].shape == expected.shape and not np.allclose(made["y"], expected)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_right_is_verified_at_ten_sizes(gpu: FakeDriver, tmp_path: Path, name: str) -> None:
    report = verify_pipeline(VerifyRequest(model=build(tmp_path, name)))
    assert (report.ran, report.exit_code, len(report.cases)) == ("engines", 0, 10)
    assert all(case.engines and case.cut for case in report.cases)


@pytest.mark.parametrize(("name", "tensor"), [("detector", "boxes"), ("packer", "logits"), ("matcher", "pixels")])
def test_an_engine_that_computes_something_else_is_caught(
    gpu: FakeDriver, tmp_path: Path, name: str, tensor: str
) -> None:
    report = verify_pipeline(VerifyRequest(model=build(tmp_path, name, faults={tensor: 50.0})))
    assert report.exit_code == 1
    wrong = {each.name for case in report.cases for each in case.engines if not each.passed}
    assert wrong == {tensor}


def test_a_cut_that_is_wrong_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpu(monkeypatch)
    path = build(tmp_path, "packer")
    part = tmp_path / "packer.2.part.onnx"
    model = onnx.load(part)
    # The last of the parts takes other tokens than the model does.
    nonzero = next(node for node in model.graph.node if node.op_type == "NonZero")
    model.graph.node.insert(0, onnx.helper.make_node("Not", [nonzero.input[0]], ["inverse"]))
    nonzero = next(node for node in model.graph.node if node.op_type == "NonZero")
    nonzero.input[0] = "inverse"
    onnx.save(model, part)
    document = json.loads(path.read_text())
    document["parts"][1]["sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    path.write_text(json.dumps(document))
    report = verify_pipeline(VerifyRequest(model=path))
    assert report.exit_code == 1
    assert not all(each.passed for case in report.cases for each in case.cut)


def test_a_rounding_that_selects_otherwise_is_no_fault_of_a_part(gpu: FakeDriver, tmp_path: Path) -> None:
    # A score that is off by less than the tolerance of TF32 moves a box across the threshold at some size.
    report = verify_pipeline(VerifyRequest(model=build(tmp_path, "detector", faults={"scores": 5e-3})))
    assert report.exit_code == 0
    for case in report.cases:
        assert case.case.passed
        assert case.selects_otherwise == (not all(each.passed for each in case.case.outputs))


@pytest.mark.parametrize("digit", ["0", "f"])
def test_another_version_of_the_model_is_not_compared(gpu: FakeDriver, tmp_path: Path, digit: str) -> None:
    path = build(tmp_path, "matcher")
    document = json.loads(path.read_text())
    document["model"]["sha256"] = digit * 64
    path.write_text(json.dumps(document))
    with pytest.raises(InputError):
        verify_pipeline(VerifyRequest(model=path))
    with pytest.raises(InputError):
        verify_pipeline(VerifyRequest(model=path, bisect=True))


def test_a_file_of_arrays_goes_in_and_another_comes_out(gpu: FakeDriver, tmp_path: Path) -> None:
    path = build(tmp_path, "packer")
    feeds = FEEDS["packer"](np.random.default_rng(4))
    np.savez(tmp_path / "in.npz", **feeds)
    request = RunRequest(path, inputs=tmp_path / "in.npz", output=tmp_path / "y.npz")
    report = run_pipeline(request)
    assert [part.kind for part in report.parts] == ["engine", "onnx", "engine"]
    with np.load(tmp_path / "y.npz") as made:
        np.testing.assert_allclose(made["logits"], run(tmp_path / "packer.onnx", feeds)[0], atol=1e-5)
    with pytest.raises(InputError):
        run_pipeline(dataclasses.replace(request, output=path))
