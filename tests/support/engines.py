"""Engines with their models and reports, made without TensorRT, and a machine that runs them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

import trtconv.engine
from support.gpu import VERSION, FakeDriver, engine_bytes, fake_tensorrt
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range
from trtconv.core.documents.build import BuildPlan, BuildReport
from trtconv.core.documents.parts import EngineIdentity, FileIdentity, RuntimeIdentity
from trtconv.core.documents.signed import CHECKSUM, checksum
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.tensorrt import device
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log

GPU = "Fake GPU"
RUNTIME = {"family": "tensorrt", "version": "8.6.0", "gpu": GPU}
NET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3, h, w] x) => (float[n, 3, p, q] y, float[n, 3, h, w] z)
<float[3, 3, 2, 2] k = {0.3, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5,
 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1, 0.5, -0.5, 0.25, 1}>
{
  a = Relu (x)
  b = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (a)
  c = ConvTranspose <strides = [2, 2]> (b, k)
  y = Tanh (c)
  z = Add (x, c)
}
"""
DIMS = ({"n": Range(1, 1, 2), "h": Range(4, 8, 12), "w": Range(4, 8, 12)},)


@dataclasses.dataclass(frozen=True)
class Built:
    """An engine and what belongs to it."""

    model: Path
    engine: Path
    report: Path

    def change_report(self, **changes: Any) -> None:
        document = json.loads(self.report.read_text())
        for key, value in changes.items():
            outer, _, inner = key.partition("__")
            if inner:
                document[outer][inner] = value
            else:
                document[outer] = value
        document[CHECKSUM] = checksum(document)
        self.report.write_text(json.dumps(document))


def build(
    folder: Path,
    text: str = NET,
    dims: tuple[Mapping[str, Range], ...] = DIMS,
    *,
    name: str = "net",
    computes: str | None = None,
    precision: str = "as-is",
    runtime: Mapping[str, Any] = RUNTIME,
    **engine: Any,
) -> Built:
    """Writes a model, its engine and its report; `computes` is what the engine computes instead of the model."""
    model = folder / f"{name}.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    loaded = OnnxModel.load(model)
    profiles = tuple(make_profile(loaded.inputs, each) for each in dims)
    data = engine_bytes(onnx.parser.parse_model(computes or text), [profile.inputs for profile in profiles], **engine)
    path = folder / f"{name}.engine"
    path.write_bytes(data)
    report = BuildReport(
        model=FileIdentity(str(model), loaded.digest()),
        plan=BuildPlan(Target("tensorrt", (8, 6)), profiles, precision=precision),
        runtime=RuntimeIdentity(**runtime),
        engine=EngineIdentity(str(path), hashlib.sha256(data).hexdigest(), len(data)),
        inputs=loaded.inputs,
    )
    beside = folder / f"{name}.engine.json"
    beside.write_text(json.dumps(report.to_json()))
    return Built(model, path, beside)


def give_gpu(monkeypatch: pytest.MonkeyPatch, surface: str = "tensorrt-8.6.0", **driver: Any) -> FakeDriver:
    """Gives this process a GPU, and lets its workers run in this process."""
    fake = FakeDriver(**driver)
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setattr(device, "gpu_name", lambda: GPU)
    trt = fake_tensorrt(fake, surface)
    trt.__version__ = VERSION
    log = Log(trt)
    for module in ("verifying", "benching", "inspecting", "running", "pipelines"):
        name = f"trtconv.engine.{module}"
        __import__(name)
        if hasattr(sys.modules[name], "load_engines"):
            monkeypatch.setattr(sys.modules[name], "load_engines", lambda family: Engines("tensorrt", trt, log))
    call_here(monkeypatch)
    return fake


def call_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the workers run in this process, so that what a test replaces is replaced for them too."""

    def call(task: str, argument: object, seconds: float, tell: Callable[[dict[str, Any]], None]) -> Any:
        module, _, function = task.partition(":")
        __import__(module)
        heard = lambda event: tell(json.loads(json.dumps(event)))  # noqa: E731
        return json.loads(json.dumps(getattr(sys.modules[module], function)(argument, heard)))

    monkeypatch.setattr(trtconv.engine, "call", call)
