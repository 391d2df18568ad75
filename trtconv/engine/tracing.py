"""The layers of a run one after the other, as a file that Perfetto and chrome://tracing draw."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from trtconv.core.documents.inspect import Layer, LayerTensor


def trace(layers: Sequence[Layer], microseconds: Mapping[str, float], about: Mapping[str, str]) -> bytes:
    """Returns a document in Chrome's trace event format.

    Args:
        layers: What the engine tells of its layers.
        microseconds: Layer to its time, in the order in which they ran.
        about: What the file says of the run.
    """
    by_name = {layer.name: layer for layer in layers}
    events, begin = [], 0.0
    for name, spent in microseconds.items():
        events.append(_event(by_name.get(name, Layer(name)), begin, spent))
        begin += spent
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(about)}, indent=1).encode()


def _event(layer: Layer, begin: float, spent: float) -> dict[str, object]:
    details = {
        "precision": layer.precision or "",
        "kernel": layer.tactic,
        "nodes": ", ".join(layer.nodes),
        **{f"input {number}": _tensor(tensor) for number, tensor in enumerate(layer.inputs)},
        **{f"output {number}": _tensor(tensor) for number, tensor in enumerate(layer.outputs)},
    }
    event = _Event(
        layer.name, layer.type or "layer", round(begin, 3), round(spent, 3), {k: v for k, v in details.items() if v}
    )
    return dataclasses.asdict(event)


def _tensor(tensor: LayerTensor) -> str:
    shape = "" if tensor.shape is None else "x".join(map(str, tensor.shape))
    return " ".join(filter(None, (tensor.name, shape, tensor.dtype or "", tensor.format)))


@dataclasses.dataclass(frozen=True)
class _Event:
    """A span of time: "X" in the format, with its begin and length in microseconds."""

    name: str
    cat: str
    ts: float
    dur: float
    args: Mapping[str, str]
    ph: str = "X"
    pid: int = 0
    tid: int = 0
