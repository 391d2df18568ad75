"""Engines that take weights: their networks are what TensorRT-RTX parses here, and they run on ONNX Runtime."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import trtconv.engine.refitting
from support import engines
from support.gpu import FakeDriver, engine_bytes, fake_tensorrt
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.parts import EngineIdentity
from trtconv.core.documents.saved import load_report
from trtconv.core.stopwatch import Stopwatch
from trtconv.engine.rebuilding import Recipe, subject_as_built
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.parse import parse_model
from trtconv.runtimes import tensorrt
from trtconv.runtimes.network_record import ROLES, record
from trtconv.runtimes.plugin_layers import with_meanings
from trtconv.runtimes.proof.weights import accounts
from trtconv.runtimes.tensorrt.engine import Engines
from trtconv.runtimes.tensorrt.logger import Log

CASTS = dataclasses.replace(tensorrt.load(None).info.capabilities, builder_precision_flags=True)
"""What TensorRT 8.6, whose engines these play, does with types."""

NET = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 5, 5] x) => (float[1, 2, 9, 9] y)
<float[2, 2, 3, 3] k = {@k}, float[2] b = {@b}, float[2, 2, 3, 3] w = {@w}, float[2, 1, 1] c = {@c}>
{
  up = ConvTranspose <strides = [2, 2], pads = [1, 1, 1, 1]> (x, k, b)
  r = Relu (up)
  s = Add (r, c)
  y = Conv <pads = [1, 1, 1, 1]> (s, w)
}
"""


def net(seed: int, text: str = NET, **same: int) -> str:
    """The network with weights of a seed; `same` names seeds of single ones."""
    for name, size in (("k", 36), ("b", 2), ("w", 36), ("c", 2)):
        values = np.random.default_rng([same.get(name, seed), size]).normal(size=size)
        text = text.replace(f"@{name}", ", ".join(f"{value:.4f}" for value in values))
    return text


def refittable(folder: Path, text: str, name: str = "net", options: BuilderOptions | None = None) -> engines.Built:
    """Writes a model, an engine of it that takes weights, and the report, as a build does."""
    built = engines.build(folder, text, dims=({},), name=name)
    saved = load_report(built.report)
    given = subject_as_built(OnnxModel.load(built.model), Recipe.of(saved), CASTS).parsed
    network, _ = parse_model(given, tensorrt.load(None), Stopwatch(None))
    assert network is not None
    read = with_meanings(network.read_back(), given)
    refits = {
        (each.weight.layer.name, ROLES[each.weight.attribute]): each.sources[0]
        for each in accounts(read, given)
        if each.sources
    }
    profiles = [profile.inputs for profile in saved.profiles]
    data = engine_bytes(onnx.load_model_from_string(given.serialize()), profiles, refits=refits)
    built.engine.write_bytes(data)
    report = saved.report
    report = dataclasses.replace(
        report,
        plan=dataclasses.replace(report.plan, options=options or BuilderOptions(refittable=True)),
        engine=EngineIdentity(str(built.engine), hashlib.sha256(data).hexdigest(), len(data)),
        network=record(read),
    )
    built.report.write_text(json.dumps(report.to_json()))
    return built


def give_refitter(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeDriver, Any]:
    """Gives this process a GPU whose engines take weights; returns its driver and its TensorRT."""
    driver = engines.give_gpu(monkeypatch)
    trt = fake_tensorrt(driver)
    log, real = Log(trt), tensorrt.load(None)
    info = dataclasses.replace(real.info, capabilities=CASTS)
    fake = SimpleNamespace(parse=real.parse, info=info, engines=lambda: Engines("tensorrt", trt, log))
    monkeypatch.setattr(trtconv.engine.refitting, "load", lambda target: fake)
    return driver, trt
