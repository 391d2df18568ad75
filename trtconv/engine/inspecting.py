"""What is in an engine, a report or an ONNX file. Runs in a process of its own; see `trtconv.engine.inspect`."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

from trtconv.core import signatures
from trtconv.core.documents.build import BuildReport, InputProfile
from trtconv.core.documents.inspect import EngineInspection, LayerTime, ModelInspection, OutputSpec, WeightCount
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.process import Tell
from trtconv.core.reading import open_plain
from trtconv.core.requests.engine import InspectRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.engine.layers import has_details, read_layers, summary
from trtconv.engine.loading import open_engine
from trtconv.engine.opening import EngineFile, read_engine, require_machine, require_stripped
from trtconv.engine.profiles import inputs_of, profiles_of, shapes_at
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.runtimes.inputs import inputs_at
from trtconv.runtimes.tensorrt import Engine, load_engines


def serve(request: InspectRequest, tell: Tell) -> dict[str, object]:
    """Looks into a file; returns the JSON of an inspection."""
    clock = Stopwatch(ToldProgress(tell))
    path = request.path
    if not path.is_file():
        raise InputError(f"{path}: no such file", "Give an engine, its report, or an .onnx file.")
    with clock.stage(Stage.LOAD):
        try:
            kind = kind_of(path)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", "Check its permissions.") from error
        if kind == "onnx" and request.key is not None:
            raise InputError(f"{path} is a model, and models are not signed", "Leave out --key.")
        if kind != "engine":
            _require_nothing_to_load_with(request)
        if kind == "onnx":
            return _onnx(path).to_json()
        if kind == "report":
            saved = load_report(path)
            signed_by = None if request.key is None else signatures.require_signature(saved.document, request.key, path)
            file = FileIdentity.of(path, signed_by)
            return _of_report(kind, file, saved.report).to_json()
        return _engine(request, clock).to_json()


def _require_nothing_to_load_with(request: InspectRequest) -> None:
    """Raises InputError where something is given that only an engine is loaded with."""
    options = {
        "--weights": request.weights,
        "--report": request.report,
        "--plugin": request.plugins,
        "--lean-runtime": request.lean_runtime,
    }
    for flag, files in options.items():
        if files:
            raise InputError(f"{request.path} is no engine, and is read without {flag}", f"Leave out {flag}.")


def kind_of(path: Path) -> str:
    """Returns what a file is, by its name and first byte: "onnx", "report" or "engine"."""
    if path.suffix.lower() == ".onnx":
        return "onnx"
    with open_plain(path) as file:
        return "report" if file.read(1) == b"{" else "engine"


def _of_report(kind: str, file: FileIdentity, report: BuildReport | None) -> EngineInspection:
    """Returns what a report knows of its engine; nothing where there is none."""
    if report is None:
        return EngineInspection(kind, file, None)
    return EngineInspection(
        kind,
        file,
        None,
        built=report.engine,
        model=report.model,
        runtime=report.runtime,
        plan=report.plan,
        profiles=report.profile_records,
        dims=tuple(report.dims),
        io=report.io,
        edits=report.edits,
        findings=report.findings,
        notes=report.notes,
    )


def _engine(request: InspectRequest, clock: Stopwatch) -> EngineInspection:
    subject = read_engine(request.path, request.report, trust=request.trust, key=request.key)
    inspection = _of_report("engine", subject.identity(), subject.build)
    try:
        loader = load_engines(subject.family)
        require_stripped([subject], request.weights)
        require_machine(subject, loader, with_weights=request.weights is None)
    except EnvironmentMissing as error:
        if subject.report is None:
            raise
        return dataclasses.replace(inspection, why_not_loaded=error.message)
    engine = open_engine(subject, loader, request.weights, clock)
    loaded = dataclasses.replace(
        inspection,
        loaded=True,
        runtime=RuntimeIdentity(loader.family, loader.version, loader.gpu_name),
        io=tuple(engine.tensors),
        profiles=tuple(
            {name: InputProfile(shapes.min, shapes.opt, shapes.max) for name, shapes in profile.items()}
            for profile in engine.profiles
        ),
        activation_memory_bytes=engine.memory_bytes,
        profile_memory_bytes=tuple(engine.profile_memory_bytes),
    )
    return _with_layers(loaded, request, subject, engine)


def _with_layers(
    inspection: EngineInspection, request: InspectRequest, subject: EngineFile, engine: Engine
) -> EngineInspection:
    """Adds the layers, with their times where the engine is run: at opt of its first profile."""
    times: dict[str, float] = {}
    time, information = None, engine.information()
    if request.times:
        try:
            time, times, information = _run(subject, engine)
        except EnvironmentMissing as error:
            time = LayerTime(why=error.message)
    layers = read_layers(information)
    return dataclasses.replace(
        inspection,
        layers=tuple(dataclasses.replace(layer, time_us=_rounded(times.get(layer.name))) for layer in layers),
        details="full" if has_details(information) else "names",
        summary=summary(layers),
        time=time,
    )


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 3)


def _run(subject: EngineFile, engine: Engine) -> tuple[LayerTime, dict[str, float], dict[str, object]]:
    profiles = profiles_of(subject, engine, inputs_of(subject, engine))
    shapes = shapes_at(profiles[0], "opt")
    values = {name: bounds.opt for name, bounds in profiles[0].values.items()}
    execution = engine.open(0)
    try:
        execution.feed(inputs_at(engine.tensors, shapes, values))
        execution.run()
        times = dict(execution.layer_times())
        information = execution.information()
    finally:
        execution.close()
    return LayerTime(shapes=shapes, layers_us=round(sum(times.values()), 2)), times, information


def _onnx(path: Path) -> ModelInspection:
    model = OnnxModel.load(path)
    ops = Counter(node.op_type for scope in model.scopes for node in scope.graph.node)
    graph = model.proto.graph
    return ModelInspection(
        file=FileIdentity(str(path), model.digest(), path.stat().st_size),
        opset=model.opset,
        ir_version=model.proto.ir_version,
        producer=f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        inputs=model.inputs,
        outputs=tuple(_output(value) for value in graph.output),
        nodes=dict(ops.most_common()),
        weights=WeightCount(
            len(graph.initializer),
            sum(math.prod(tensor.dims) for tensor in graph.initializer),
            tuple(str(file) for file in model.external_files),
        ),
    )


def _output(value: Any) -> OutputSpec:
    """Returns what a graph says of an output."""
    tensor = value.type.tensor_type
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim)
    dtype = dtype_name(tensor.elem_type) if tensor.elem_type else None
    return OutputSpec(value.name, dtype, dims if tensor.HasField("shape") else None)
