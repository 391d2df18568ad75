"""A model in parts, run from the first to the last: engines on the GPU, the rest on ONNX Runtime."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.dims import InputSpec, ShapeProfile
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.pipeline import PartKind, PartRecord, PartTensor, SavedPipeline, load_document
from trtconv.core.documents.saved import load_report
from trtconv.core.errors import EngineFailed, EnvironmentMissing, InputError
from trtconv.core.files import report_beside
from trtconv.core.frozen import frozen
from trtconv.core.typed import argument
from trtconv.engine.opening import EngineFile, load_into, read_engine, require_machine
from trtconv.engine.profiles import inputs_of, profile_for, profiles_of
from trtconv.engine.runs import WAYS_TO_LOAD, CannotRun, EngineRuns, OnnxRuns, Runs
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.inputs import checked_inputs
from trtconv.runtimes.onnxruntime import numpy_type
from trtconv.runtimes.tensorrt import load_engines

Tensors = dict[str, NDArray[Any]]
ENGINES = ("tensorrt", "onnxruntime")
"""What runs the parts that are engines: TensorRT, or ONNX Runtime their ONNX form, as on a machine without a GPU."""


@frozen
class OpenPart:
    """A part that can run.

    Args:
        record: What the document says of it.
        runs: What runs it.
        profiles: Of its engine, also where ONNX Runtime stands for it; empty of what is no engine.
        subject: The file of its engine; None where ONNX Runtime runs it.
    """

    record: PartRecord
    runs: Runs
    profiles: tuple[ShapeProfile, ...] = ()
    subject: EngineFile | None = None

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> tuple[Tensors, int]:
        """Returns what it makes of the tensors that it reads, and the profile that it ran with.

        Raises:
            InputError: A tensor is in no profile of its engine.
            EngineFailed: It does not run.
        """
        feeds = {tensor.name: tensors[tensor.name] for tensor in self.record.inputs}
        try:
            shapes = {name: values.shape for name, values in feeds.items()}
            profile = profile_for(self.profiles, shapes) if self.profiles else 0
            results = self.runs.run(profile, feeds)
        except InputError as error:
            raise InputError(f"{self.record.file}: {error.message}", error.hint) from error
        except CannotRun as error:
            raise EngineFailed(f"{self.record.file}: {error}") from error
        # An engine may have int32 where the model has int64.
        return {tensor.name: _as_declared(results[tensor.name], tensor) for tensor in self.record.outputs}, profile


def _as_declared(values: Any, tensor: PartTensor) -> Any:
    if not isinstance(values, np.ndarray) or not tensor.dtype or values.dtype.kind in "OSU":
        return values
    return values.astype(numpy_type(InputSpec(tensor.name, tensor.dtype, ())), copy=False)


@frozen
class PartRun:
    """How a part ran.

    Args:
        part: What ran.
        profile: With which profile.
        seconds: Wall time, with the copies from and to the host.
    """

    part: PartRecord
    profile: int
    seconds: float


class Pipeline:
    """A model in parts. Made by `load_pipeline`; a context manager, which gives the engines' memory back.

    Args:
        saved: Its document.
        parts: Its parts.
        runtime: What runs its engines; None where ONNX Runtime does.
    """

    def __init__(self, saved: SavedPipeline, parts: Sequence[OpenPart], runtime: RuntimeIdentity | None) -> None:
        self.saved = saved
        self.parts = tuple(parts)
        self.runtime = runtime
        self.inputs = tuple(
            InputSpec(tensor.name, tensor.dtype, tensor.shape or ()) for tensor in saved.document.inputs
        )
        self.outputs = tuple(tensor.name for tensor in saved.document.outputs)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> Tensors:
        """Runs all parts once.

        Args:
            inputs: Name of each input to its values, as of the model.

        Returns:
            Name of each output to its values.

        Raises:
            InputError: The inputs do not fit the model, or the profiles of an engine.
            EngineFailed: A part does not run.
        """
        tensors, _ = self.run_all(inputs)
        return {name: tensors[name] for name in self.outputs}

    def run_all(self, inputs: Mapping[str, NDArray[Any]]) -> tuple[Tensors, list[PartRun]]:
        """Does as `run`, and returns all tensors that go into or out of parts, and how each part ran."""
        tensors: Tensors = dict(checked_inputs(self.inputs, dict(inputs), "the call"))
        ran = []
        for part in self.parts:
            started = time.perf_counter()
            results, profile = part.run(tensors)
            tensors.update(results)
            ran.append(PartRun(part.record, profile, time.perf_counter() - started))
        return tensors, ran

    def close(self) -> None:
        """Gives the memory of the engines back; it does not run any more."""
        for part in self.parts:
            if isinstance(part.runs, EngineRuns):
                part.runs.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_pipeline(
    path: str | Path, *, engines: str = "tensorrt", trust: bool = False, key: Path | None = None
) -> Pipeline:
    """Opens a model in parts, as `trtconv build --partition` wrote it.

    Args:
        path: The `MODEL.pipeline.json`; its files lie beside it.
        engines: "tensorrt", or "onnxruntime" to run the engines' parts on the CPU instead, for tests.
        trust: Whether the caller vouches for engines that bring code for the host.
        key: A public key whose owner must have signed the engines.

    Raises:
        InputError: A file cannot be read, or is not the one that was written.
        EnvironmentMissing: There is no GPU, or the engines were built for another TensorRT or GPU.
        EngineFailed: TensorRT does not load an engine, or ONNX Runtime another part.
    """
    file: Path = argument("load_pipeline", "path", Path, path)
    trust = argument("load_pipeline", "trust", bool, trust)
    key = argument("load_pipeline", "key", Path | None, key)
    if engines not in ENGINES:
        raise InputError(f"engines={engines!r} is unknown", f"Give one of {', '.join(ENGINES)}.")
    saved = load_document(file)
    saved.require_data()
    on_gpu = engines == "tensorrt"
    loader: Any = None
    parts = []
    # Whether a machine can run engines is known before anything is loaded into it.
    if on_gpu and any(part.kind is PartKind.ENGINE for part in saved.document.parts):
        loader = load_engines(None if saved.document.runtime is None else saved.document.runtime.family)
    for part in saved.document.parts:
        if part.kind is PartKind.ENGINE and on_gpu:
            subject = read_engine(saved.file(part.runs), None, trust=trust, key=key)
            if subject.sha256 != part.sha256:
                raise InputError(f"{subject.path} was changed while it was read", "Open it again.")
            require_machine(subject, loader)
            engine = load_into(loader, subject)
            profiles = profiles_of(subject, engine, inputs_of(subject, engine))
            parts.append(OpenPart(part, EngineRuns(engine), tuple(profiles), subject))
        else:
            parts.append(OpenPart(part, _on_onnxruntime(saved.file(part.model)), _promised(saved, part)))
    runtime = None if loader is None else RuntimeIdentity(loader.family, loader.version, loader.gpu_name)
    return Pipeline(saved, parts, runtime)


def _promised(saved: SavedPipeline, part: PartRecord) -> tuple[ShapeProfile, ...]:
    """Returns the profiles that an engine's report tells of; none of what is no engine, or has no report here."""
    report = report_beside(saved.path.parent / part.file)
    return load_report(report).profiles if part.kind is PartKind.ENGINE and report.is_file() else ()


def _on_onnxruntime(path: Path) -> OnnxRuns:
    try:
        return OnnxRuns(OnnxModel.load(path))
    except CannotRun as error:
        raise EngineFailed(f"{path}: {error}", WAYS_TO_LOAD) from error


@contextlib.contextmanager
def opened(path: Path, **options: Any) -> Iterator[tuple[Pipeline, str | None]]:
    """Opens a pipeline with its engines, or on ONNX Runtime where these cannot be run here.

    Yields:
        The pipeline; and why its engines are not run, None where they are.
    """
    why = None
    try:
        pipeline = load_pipeline(path, **options)
    except EnvironmentMissing as error:
        pipeline, why = load_pipeline(path, engines="onnxruntime"), error.message
    with pipeline:
        yield pipeline, why
