"""The first tensor that diverges, in a rewritten model and in an engine."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import trtconv.engine.bisecting as bisecting
import trtconv.engine.verifying as verifying
from support.engines import NET, build, call_here, give_gpu
from support.gpu import FakeDriver, engine_bytes, fake_tensorrt
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.verify import Bisection
from trtconv.core.requests.engine import Limits, VerifyRequest
from trtconv.core.target import Target
from trtconv.engine import verify
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.tensorrt import EngineBlob
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log

Break = Callable[[onnx.ModelProto], None]


def pool_otherwise(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "AveragePool":
            node.op_type = "MaxPool"


class BrokenRuntime:
    """A TensorRT that builds what `breaks` makes of a model."""

    def __init__(self, driver: FakeDriver, breaks: Break) -> None:
        self._trt = fake_tensorrt(driver)
        self._breaks = breaks
        self.info = types.SimpleNamespace(
            capabilities=types.SimpleNamespace(builder_precision_flags=True), target=Target("tensorrt", (8, 6))
        )
        self.plans: list[BuildPlan] = []

    def engines(self) -> Engines:
        return Engines("tensorrt", self._trt, Log(self._trt))

    def parse(self, model: bytes, path: Path) -> Any:
        proto = onnx.load_model_from_string(model)
        self._breaks(proto)

        def make(plan: BuildPlan) -> EngineBlob:
            self.plans.append(plan)
            return EngineBlob(memoryview(engine_bytes(proto, [p.inputs for p in plan.profiles])), ())

        return types.SimpleNamespace(build=make)


def test_the_first_tensor_of_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = give_gpu(monkeypatch)
    runtime = BrokenRuntime(driver, pool_otherwise)
    monkeypatch.setattr(bisecting, "load", lambda target: runtime)
    built = build(tmp_path, computes=NET.replace("AveragePool", "MaxPool"), precision="fp16")
    report = verify(VerifyRequest(built.model, bisect=True))
    assert report.exit_code == 1
    assert report.bisect is not None
    assert (report.bisect.tensor, report.bisect.node.op) == ("b", "AveragePool")
    assert "its input a is within the tolerance" in report.bisect.said[1]
    (plan,) = runtime.plans
    assert plan.precision == "fp16"
    assert plan.profiles[0].inputs["x"].min == plan.profiles[0].inputs["x"].max == (1, 3, 4, 4), (
        "the smallest that fails"
    )


def test_a_fault_that_a_fusion_makes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def breaks(model: onnx.ModelProto) -> None:
        # Right where all tensors are outputs.
        if len(model.graph.output) <= 3:
            pool_otherwise(model)

    driver = give_gpu(monkeypatch)
    monkeypatch.setattr(bisecting, "load", lambda target: BrokenRuntime(driver, breaks))
    built = build(tmp_path, computes=NET.replace("AveragePool", "MaxPool"))
    report = verify(VerifyRequest(built.model, bisect=True))
    assert report.bisect is not None
    assert report.bisect.tensor == "b"
    assert "fusion" in report.bisect.said[-1]


def test_the_first_tensor_of_a_rewritten_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(model: OnnxModel, *_: Any, **__: Any) -> tuple[OnnxModel, dict[str, str]]:
        proto = onnx.load(model.path)
        pool_otherwise(proto)
        return OnnxModel(proto, model.path), {}

    call_here(monkeypatch)
    monkeypatch.setattr(bisecting, "as_built", broken)
    monkeypatch.setattr(verifying, "as_built", broken)
    report = verify(VerifyRequest(build(tmp_path).model, bisect=True))
    assert (report.exit_code, report.ran) == (1, "rewritten model")
    assert report.bisect is not None
    assert report.bisect.tensor == "b"
    assert [each.tensor for each in report.bisect.differences] == ["a", "b", "c", "y", "z"]


def test_a_cast_renames_tensors_and_they_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    call_here(monkeypatch)
    built = build(tmp_path, precision="fp16")
    report = verify(VerifyRequest(built.model, bisect=True, limits=Limits(relative=1e-9)))
    assert (report.exit_code, report.ran) == (1, "rewritten model")
    assert report.bisect is not None
    assert [each.tensor for each in report.bisect.differences] == ["a", "b", "c", "y", "z"]
    assert report.bisect.tensor == "a"


@pytest.mark.parametrize("by_flags", [True, False])
def test_engines_are_built_with_what_decides_their_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_flags: bool
) -> None:
    driver = give_gpu(monkeypatch)
    runtime = BrokenRuntime(driver, pool_otherwise)
    runtime.info.capabilities.builder_precision_flags = by_flags
    monkeypatch.setattr(bisecting, "load", lambda target: runtime)
    built = build(tmp_path, computes=NET.replace("AveragePool", "MaxPool"))
    built.change_report(plan__options={"tf32": False, "version_compatible": True})
    report = verify(VerifyRequest(built.model, bisect=True, trust=True))
    assert report.bisect is not None
    assert report.bisect.tensor == "b"
    assert [plan.options for plan in runtime.plans] == [BuilderOptions(tf32=False)]


def test_nothing_is_looked_for_where_nothing_diverges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    give_gpu(monkeypatch)
    assert verify(VerifyRequest(build(tmp_path).model, bisect=True)).bisect is None


def test_a_search_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver = give_gpu(monkeypatch)
    runtime = BrokenRuntime(driver, pool_otherwise)
    runtime.parse = lambda model, path: (types.SimpleNamespace(message="no outputs for you"),)  # type: ignore[method-assign]
    monkeypatch.setattr(bisecting, "load", lambda target: runtime)
    built = build(tmp_path, computes=NET.replace("AveragePool", "MaxPool"))
    report = verify(VerifyRequest(built.model, bisect=True))
    assert report.exit_code == 1
    assert report.bisect == Bisection(why=report.bisect.why)
    assert "no outputs for you" in report.bisect.why


def test_marked_outputs_say_their_types(tmp_path: Path) -> None:
    """TensorRT 8.6 refuses those that do not."""
    model = OnnxModel.load(build(tmp_path).model)
    marked = bisecting.marked(model, ["a", "b"]).proto
    assert {value.name: value.type.tensor_type.elem_type for value in marked.graph.output} == dict.fromkeys(
        ("y", "z", "a", "b"), onnx.TensorProto.FLOAT
    )


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_first_tensor_of_a_cast_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, precision: str) -> None:
    """A cast gives tensors other names."""
    call_here(monkeypatch)
    built = build(tmp_path, precision=precision)
    limits = Limits(relative=1e-7)
    report = verify(VerifyRequest(built.model, limits=limits, bisect=True))
    assert (report.ran, report.exit_code) == ("rewritten model", 1)
    assert report.bisect is not None
    assert report.bisect.tensor == "a"
