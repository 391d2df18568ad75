"""An engine run once, on inputs of a file. Runs in a process of its own; see `trtconv.engine.run`."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import InputSpec, times
from trtconv.core.documents.images import ImageInput
from trtconv.core.documents.inspect import RunReport, TensorRecord
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.pipeline_verify import PartTime, PipelineRunReport
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_write
from trtconv.core.node_patterns import matches
from trtconv.core.outputs import Output, check_all
from trtconv.core.preprocessing import Preprocessing, parse_preprocessing
from trtconv.core.process import Tell
from trtconv.core.reading import sha256_of
from trtconv.core.requests.engine import RunRequest
from trtconv.core.requests.files import files_read
from trtconv.core.samples import IMAGES
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch, ToldProgress
from trtconv.engine.layers import read_layers
from trtconv.engine.loading import open_engine
from trtconv.engine.opening import EngineFile, read_engine, require_machine, require_stripped
from trtconv.engine.pipelines import load_pipeline
from trtconv.engine.profiles import inputs_of, profile_for, profiles_of
from trtconv.engine.saving import plain
from trtconv.engine.tracing import trace
from trtconv.precision.quantize.images import read_image, read_taken
from trtconv.runtimes.inputs import Feeds, checked_inputs, read_inputs
from trtconv.runtimes.onnxruntime import numpy_type
from trtconv.runtimes.tensorrt import EngineLoader, Execution, load_engines


def serve(request: RunRequest, tell: Tell) -> dict[str, object]:
    """Runs the engine and writes its outputs; returns the JSON of a `RunReport`."""
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        _check_output(request)
        subject = read_engine(request.engine, request.report, trust=request.trust, key=request.key)
        runtime = load_engines(subject.family)
        require_stripped([subject], request.weights)
        require_machine(subject, runtime, with_weights=request.weights is None)
        engine = open_engine(subject, runtime, request.weights, clock)
        inputs = inputs_of(subject, engine)
        feeds = _feeds(request, inputs, None if subject.build is None else subject.build.images)
        profile = profile_for(profiles_of(subject, engine, inputs), {name: a.shape for name, a in feeds.items()})
    with clock.stage(Stage.ENGINE):
        execution = engine.open(profile)
        try:
            execution.feed(feeds)
            inner: Mapping[str, NDArray[Any]] = {}
            if request.tensors:
                inner = execution.watch(lambda name: _is_meant(name, request.tensors))
            outputs = {name: plain(values) for name, values in execution.run().items()}
            outputs |= _selection(request, inner)
            traced = None if request.trace is None else _traced(subject, runtime, execution, feeds)
        finally:
            execution.close()
    with clock.stage(Stage.WRITE):
        _write(request.output, outputs)
        if request.trace is not None and traced is not None:
            atomic_write(request.trace, traced, through_links=True)
    report = RunReport(
        engine=subject.identity(),
        runtime=RuntimeIdentity(runtime.family, runtime.version, runtime.gpu_name),
        profile=profile,
        inputs={name: _described(values) for name, values in feeds.items()},
        outputs={name: _described(values) for name, values in outputs.items()},
        output=str(request.output),
        seconds=clock.seconds,
    )
    return report.to_json()


def _is_meant(name: str, patterns: Sequence[str]) -> bool:
    return any(matches(pattern, name, "") for pattern in patterns)


def _selection(request: RunRequest, inner: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns the tensors that were asked for.

    Raises:
        InputError: The engine does not show one.
    """
    for pattern in request.tensors:
        if not any(_is_meant(name, [pattern]) for name in inner):
            raise InputError(
                f"--tensor {pattern!r} means no tensor that {request.engine} shows",
                "Build it with --debug-tensor, for TensorRT 10 or newer; names are those of the rewritten model.",
            )
    return {name: plain(values) for name, values in inner.items()}


def _traced(subject: EngineFile, runtime: EngineLoader, execution: Execution, feeds: Feeds) -> bytes:
    about = {
        "engine": str(subject.path),
        "TensorRT": f"{runtime.family} {runtime.version}",
        "GPU": runtime.gpu_name or "",
        "inputs": ", ".join(f"{name} {times(values.shape)}" for name, values in feeds.items()),
    }
    microseconds = dict(execution.layer_times())
    return trace(read_layers(execution.information()), microseconds, about)


def serve_pipeline(request: RunRequest, tell: Tell) -> dict[str, Any]:
    """Runs a model in parts and writes its outputs; returns the JSON of a `PipelineRunReport`."""
    clock = Stopwatch(ToldProgress(tell))
    with clock.stage(Stage.LOAD):
        _check_output(request)
        for flag, value in (
            ("--report", request.report),
            ("--weights", request.weights),
            ("--trace", request.trace),
            ("--tensor", request.tensors),
        ):
            if value:
                raise InputError(f"{flag} is about one engine", "Leave it out: the pipeline names its files.")
        pipeline = load_pipeline(request.engine, engines=request.engines, trust=request.trust, key=request.key)
    with pipeline:
        with clock.stage(Stage.LOAD):
            feeds = _feeds(request, pipeline.inputs, None)
        with clock.stage(Stage.ENGINE):
            tensors, ran = pipeline.run_all(feeds)
        outputs = dict(item for name in pipeline.outputs for item in _arrays(name, tensors[name]))
    with clock.stage(Stage.WRITE):
        _write(request.output, outputs)
    return PipelineRunReport(
        FileIdentity(str(request.engine), sha256_of(request.engine)),
        pipeline.runtime,
        tuple(PartTime(run.part.kind.value, run.part.file, run.profile, run.seconds) for run in ran),
        {name: _described(values) for name, values in feeds.items()},
        {name: _described(values) for name, values in outputs.items()},
        str(request.output),
        clock.seconds,
    ).to_json()


def _write(path: Path, outputs: Feeds) -> None:
    data = io.BytesIO()
    np.savez(data, **outputs)  # type: ignore[arg-type]
    atomic_write(path, data.getbuffer(), through_links=True)


def _check_output(request: RunRequest) -> None:
    """Raises InputError where the outputs cannot be written, or would overwrite what is read."""
    traced = (
        [] if request.trace is None else [Output(request.trace, "the trace", hint="Choose another path with --trace.")]
    )
    check_all([Output(request.output, "what it computes"), *traced], files_read(request))


def _feeds(request: RunRequest, inputs: Sequence[InputSpec], image: ImageInput | None) -> Feeds:
    """Reads the values of the inputs: arrays of a file, or an image, of which the engine may take the bytes."""
    if request.inputs.suffix.lower() not in IMAGES:
        if request.preprocess:
            raise InputError("--preprocess is about images", f"Leave it out: {request.inputs} holds arrays.")
        return read_inputs(inputs, request.inputs)
    if len(inputs) != 1 and (image is None or {spec.name for spec in inputs} != {image.name, image.chroma}):
        names = ", ".join(spec.name for spec in inputs)
        raise InputError(f"an image is one input, and the engine has {names}", "Give an .npz file with all of them.")
    preprocessing = parse_preprocessing(request.preprocess) if request.preprocess else Preprocessing()
    if image is None:
        values = {inputs[0].name: read_image(request.inputs, preprocessing, 0).astype(numpy_type(inputs[0]))}
    else:
        values = dict(read_taken(request.inputs, image, preprocessing))
    return checked_inputs(inputs, values, str(request.inputs))


def _arrays(name: str, values: Any) -> list[tuple[str, NDArray[Any]]]:
    """Returns an output as arrays with names: those of a sequence are numbered, and an optional may have none."""
    if values is None:
        return []
    if isinstance(values, list):
        return [(f"{name}:{number}", plain(np.asarray(tensor))) for number, tensor in enumerate(values)]
    return [(name, plain(values))]


def _described(values: NDArray[Any]) -> TensorRecord:
    return TensorRecord(str(values.dtype), values.shape)
