"""An engine loaded with its weights, which may be in its ONNX file alone."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.stopwatch import Stopwatch
from trtconv.engine.opening import EngineFile, load_into
from trtconv.runtimes.tensorrt import Engine, EngineLoader


def open_engine(subject: EngineFile, engines: EngineLoader, weights: Path | None, clock: Stopwatch) -> Engine:
    """Loads an engine that was checked; one that was built without its weights gets them, in memory alone.

    Args:
        subject: The engine file.
        engines: What runs it.
        weights: The .onnx file that has them; not read where the engine has its own. None: it has.

    Raises:
        InputError: They do not belong together, or cannot be read.
        EngineFailed: TensorRT does not take the engine, or not all of its weights.
    """
    if weights is None or not subject.options.strip_weights:
        return load_into(engines, subject)
    # Loaded only here: most engines have their weights.
    from trtconv.engine.refitting import with_weights

    return with_weights(subject, engines, weights, clock)
