"""What TensorRT 8.6 tells of the layers of an engine: kernels, formats, and how long each takes."""

from __future__ import annotations

import collections
import json
from typing import Any

RUNS = 200
Row = dict[str, Any]


def telling(trt: Any) -> Any:
    """Returns a builder (trt86.TensorRT) whose engines tell all of their layers."""
    from trt86 import TensorRT

    class Telling(TensorRT):
        def _configure(self, config: Any, network: Any, options: Any) -> None:
            super()._configure(config, network, options)
            config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED

    return Telling(trt)


def layers_of(trt: Any, engine: Any) -> list[Row]:
    """Returns what TensorRT tells of each layer: name, kind, kernel, tactic, formats and shapes."""
    inspector = engine._engine.create_engine_inspector()
    document = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON), strict=False)
    return [_told(layer) for layer in document["Layers"] if isinstance(layer, dict)]


def _told(layer: Row) -> Row:
    tensors = [*layer.get("Inputs", []), *layer.get("Outputs", [])]
    return {
        "name": layer["Name"],
        "kind": layer.get("LayerType"),
        "kernel": layer.get("TacticName", ""),
        "tactic": layer.get("TacticValue", ""),
        "formats": [each["Format/Datatype"] for each in tensors],
        "shapes": [each.get("Dimensions") for each in tensors],
    }


def layer_times(trt: Any, engine: Any) -> dict[str, float]:
    """Returns the mean microseconds of each layer by TensorRT's profiler, by its name; each has some overhead."""
    spent: dict[str, float] = collections.defaultdict(float)

    class Profiler(trt.IProfiler):  # type: ignore[misc]
        def report_layer_time(self, layer_name: str, ms: float) -> None:
            spent[layer_name] += ms * 1000 / RUNS

    profiler = Profiler()
    for _ in range(20):
        engine.enqueue()
    engine.stream.wait()
    engine._context.profiler = profiler
    for _ in range(RUNS):
        engine.enqueue()
        engine.stream.wait()
    return {name: round(us, 2) for name, us in spent.items()}
