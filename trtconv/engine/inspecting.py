"""What is in an engine, a report or an ONNX file. Runs in a process of its own; see `trtconv.engine.inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core import signatures
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.process import Tell
from trtconv.core.reading import open_plain, sha256_of
from trtconv.core.requests.engine import InspectRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.engine.benching import make_inputs
from trtconv.engine.layers import has_details, read_layers, summary
from trtconv.engine.opening import EngineFile, load_into, read_engine, require_machine
from trtconv.engine.profiles import inputs_of, profiles_of, shapes_at
from trtconv.graph.model import OnnxModel
from trtconv.graph.types import dtype_name
from trtconv.runtimes.tensorrt import Engine, load_engines

_NO_LAYERS = {"layers": None, "details": None, "summary": None, "time": None}


def serve(request: InspectRequest, tell: Tell) -> dict[str, Any]:
    """Looks into a file; returns a document without `schema` and `exit_code`."""
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
        if kind == "onnx":
            return {"kind": kind, **_onnx(path)}
        if kind == "report":
            report = load_report(path)
            file = _file(path)
            if request.key is not None:
                file["signed_by"] = signatures.require_signature(report.document, request.key, path)
            return {"kind": kind, "file": file, "loaded": False, **_NO_LAYERS, **_of_report(report.document)}
        return {"kind": kind, **_engine(request)}


def kind_of(path: Path) -> str:
    """Returns what a file is, by its name and first byte: "onnx", "report" or "engine"."""
    if path.suffix.lower() == ".onnx":
        return "onnx"
    with open_plain(path) as file:
        return "report" if file.read(1) == b"{" else "engine"


def _file(path: Path) -> dict[str, Any]:
    return {"path": str(path), "sha256": sha256_of(path), "bytes": path.stat().st_size}


_TAKEN = ("model", "runtime", "plan", "profiles", "dims", "io", "edits", "findings", "notes")


def _of_report(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a report knows of its engine."""
    return {"why_not_loaded": None, "built": document.get("engine"), **{key: document.get(key) for key in _TAKEN}}


def _engine(request: InspectRequest) -> dict[str, Any]:
    subject = read_engine(request.path, request.report, trust=request.trust, key=request.key)
    told = dict.fromkeys(_TAKEN) if subject.report is None else _of_report(subject.report.document)
    known = {**told, "file": subject.identity()}
    try:
        loader = load_engines(subject.family)
        require_machine(subject, loader)
    except EnvironmentMissing as error:
        if subject.report is None:
            raise
        return {**known, "loaded": False, **_NO_LAYERS, "why_not_loaded": error.message}
    engine = load_into(loader, subject)
    runtime = {"family": loader.family, "version": loader.version, "gpu": loader.gpu_name}
    profiles = [{name: shapes.to_json() for name, shapes in profile.items()} for profile in engine.profiles]
    return {
        **known,
        "loaded": True,
        "why_not_loaded": None,
        "runtime": runtime,
        "io": [tensor.to_json() for tensor in engine.tensors],
        "profiles": profiles,
        "activation_memory_bytes": engine.memory_bytes,
        "profile_memory_bytes": list(engine.profile_memory_bytes),
        **_layers(request, subject, engine),
    }


def _layers(request: InspectRequest, subject: EngineFile, engine: Engine) -> dict[str, Any]:
    """Returns the layers, with their times where the engine is run: at opt of its first profile."""
    times: dict[str, float] = {}
    time, information = None, engine.information()
    if request.times:
        try:
            time, times, information = _run(subject, engine)
        except EnvironmentMissing as error:
            time = {"profile": 0, "size": "opt", "shapes": None, "layers_us": None, "why": error.message}
    layers = read_layers(information)
    listed = [{**layer.to_json(), "time_us": _rounded(times.get(layer.name))} for layer in layers]
    details = "full" if has_details(information) else "names"
    return {"layers": listed, "details": details, "summary": summary(layers), "time": time}


def _rounded(us: float | None) -> float | None:
    return None if us is None else round(us, 3)


def _run(subject: EngineFile, engine: Engine) -> tuple[dict[str, Any], dict[str, float], dict[str, Any]]:
    profiles = profiles_of(subject, engine, inputs_of(subject, engine))
    shapes = shapes_at(profiles[0], "opt")
    values = {name: bounds.opt for name, bounds in profiles[0].values.items()}
    execution = engine.open(0)
    try:
        execution.feed(make_inputs(engine, shapes, values))
        execution.run()
        found = dict(execution.layer_times())
        information = execution.information()
    finally:
        execution.close()
    said = {
        "profile": 0,
        "size": "opt",
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "layers_us": round(sum(found.values()), 2),
        "why": "",
    }
    return said, found, information


def _onnx(path: Path) -> dict[str, Any]:
    model = OnnxModel.load(path)
    ops = Counter(node.op_type for scope in model.scopes for node in scope.graph.node)
    graph = model.proto.graph
    return {
        "file": {"path": str(path), "sha256": model.digest(), "bytes": path.stat().st_size},
        "opset": model.opset,
        "ir_version": model.proto.ir_version,
        "producer": f"{model.proto.producer_name} {model.proto.producer_version}".strip(),
        "inputs": [{"name": s.name, "dtype": s.dtype, "dims": list(s.dims)} for s in model.inputs],
        "outputs": [_output(value) for value in graph.output],
        "nodes": dict(ops.most_common()),
        "weights": {
            "count": len(graph.initializer),
            "elements": sum(_elements(tensor.dims) for tensor in graph.initializer),
            "external_files": [str(file) for file in model.external_files],
        },
    }


def _output(value: Any) -> dict[str, Any]:
    """Returns what a graph says of an output; unlike an input's, its type and shape may be left out (null)."""
    tensor = value.type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
    return {
        "name": value.name,
        "dtype": dtype_name(tensor.elem_type) if tensor.elem_type else None,
        "dims": dims if tensor.HasField("shape") else None,
    }


def _elements(dims: Any) -> int:
    count = 1
    for size in dims:
        count *= size
    return count
