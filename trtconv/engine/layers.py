"""What TensorRT's inspector says of an engine's layers, made one shape of the shapes that it has in each version.

8.6 and 10 write a tensor's type and memory format into one text ("Format/Datatype"), 11 apart ("Format", "DataType").
An engine that was built without details has the names of its layers alone, in every version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.core.encode import Document
from trtconv.core.frozen import frozen

_TYPES = {
    "fp32": "float32",
    "float32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "fp8": "float8",
    "fp4": "float4",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "uint8": "uint8",
    "int4": "int4",
}
_TYPE = re.compile(r"\b(" + "|".join(sorted(_TYPES, key=len, reverse=True)) + r")\b", re.IGNORECASE)
_METADATA = re.compile(r"\[ONNX Layer: (.*?)\](?=$|[^\]\w])", re.DOTALL)
_QUANTIZER = re.compile(r"(?:De)?[Qq]uantize(?:Linear)?", re.ASCII)
_REFORMAT_NAME = re.compile(r"^Reformatting CopyNode\b")
_NARROW = ("int4", "float4", "int8", "float8", "float16", "bfloat16", "float32")
"""Types that a layer may compute in, the narrowest first."""


@frozen
class Layer(Document):
    """One layer of an engine.

    Args:
        name: Its name.
        type: Its kind, such as "CaskConvolution"; empty where the engine does not tell.
        precision: Narrowest type of its inputs, which is what it computes in; None where the engine does not tell.
        inputs: `name`, `shape`, `dtype`, `format` of each.
        outputs: Likewise.
        nodes: Names of the ONNX nodes that it does the work of.
        tactic: Name of the kernel, or empty.
        origin: Why the layer is there, such as "REFORMAT" or "QDQ", or empty.
    """

    name: str
    type: str = ""
    precision: str | None = None
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    nodes: tuple[str, ...] = ()
    tactic: str = ""
    origin: str = ""

    @property
    def is_quantizer(self) -> bool:
        """Whether it does nothing but quantise or dequantise."""
        if self.type in ("Quantize", "Dequantize", "Scale") and self.nodes and all(map(is_quantizer, self.nodes)):
            return True
        if self.origin == "QDQ" or self.type in ("Quantize", "Dequantize"):
            return True
        return not self.type and bool(self.nodes) and all(map(is_quantizer, self.nodes))

    @property
    def is_reformat(self) -> bool:
        """Whether it only moves a tensor into another memory format."""
        if self.is_quantizer:
            return False
        return self.type == "Reformat" or bool(_REFORMAT_NAME.match(self.name))


def read_layers(information: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Reads the document of an EngineInspector; what it does not know of a layer is left empty."""
    entries = information.get("Layers") or ()
    return tuple(_layer(entry) for entry in entries)


def has_details(information: Mapping[str, Any]) -> bool:
    """Whether an engine tells more of its layers than their names."""
    return any(isinstance(entry, Mapping) for entry in information.get("Layers") or ())


def _layer(entry: Any) -> Layer:
    if not isinstance(entry, Mapping):
        return Layer(str(entry), nodes=_nodes("", str(entry)))
    name = str(entry.get("Name", ""))
    inputs = tuple(_tensor(each) for each in _listed(entry.get("Inputs")))
    outputs = tuple(_tensor(each) for each in _listed(entry.get("Outputs")))
    return Layer(
        name=name,
        type=str(entry.get("LayerType", "")),
        precision=_precision(entry, inputs, outputs),
        inputs=inputs,
        outputs=outputs,
        nodes=_nodes(str(entry.get("Metadata", "")), name),
        tactic=str(entry.get("TacticName", "")),
        origin=str(entry.get("Origin", "")),
    )


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _tensor(entry: Mapping[str, Any]) -> dict[str, Any]:
    form = str(entry.get("Format/Datatype") or entry.get("Format") or "")
    dtype = type_in(str(entry.get("DataType") or entry.get("Datatype") or form))
    shape = entry.get("Dimensions")
    return {
        "name": str(entry.get("Name", "")),
        "shape": list(shape) if isinstance(shape, list) else None,
        "dtype": dtype,
        "format": form,
    }


def type_in(text: str) -> str | None:
    """Returns the type that a text names, as NumPy would: "Channel major FP16 format" has float16."""
    found = _TYPE.search(text)
    return _TYPES[found[1].lower()] if found else None


def _precision(
    entry: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]], outputs: Sequence[Mapping[str, Any]]
) -> str | None:
    weights = entry.get("Weights")
    told = [type_in(str(weights.get("Type", "")))] if isinstance(weights, Mapping) else []
    types = [*told, *(each["dtype"] for each in inputs)]
    found = next((each for each in _NARROW if each in types), None)
    return found or next((each["dtype"] for each in (*outputs, *inputs) if each["dtype"]), None)


def _nodes(metadata: str, name: str) -> tuple[str, ...]:
    """Returns the ONNX nodes of a layer: from its metadata, else from its name, which joins theirs."""
    told = [match.partition(" | ")[0] for match in _METADATA.findall(metadata)]
    if told:
        return tuple(dict.fromkeys(told))
    if _REFORMAT_NAME.match(name):
        return ()
    return tuple(part.strip() for part in name.split(" + ") if part.strip())


def is_quantizer(node: str) -> bool:
    """Whether the name of an ONNX node is that of a QuantizeLinear or DequantizeLinear, as exporters name them."""
    return bool(_QUANTIZER.search(node.rpartition("/")[2]))


def summary(layers: Sequence[Layer]) -> dict[str, Any]:
    """Counts what matters of the layers.

    Returns:
        `layers`, `reformats`; `precisions` (how many layers compute in each type); `quantizers`: `fused` (the ONNX
        quantisers that are part of another layer), `alone` (the layers that do nothing else).
    """
    alone = [layer for layer in layers if layer.is_quantizer]
    inside = {node for layer in layers if not layer.is_quantizer and len(layer.nodes) > 1 for node in layer.nodes}
    precisions: dict[str, int] = {}
    for layer in layers:
        if layer.precision is not None and not layer.is_reformat:
            precisions[layer.precision] = precisions.get(layer.precision, 0) + 1
    return {
        "layers": len(layers),
        "reformats": sum(layer.is_reformat for layer in layers),
        "precisions": precisions,
        "quantizers": {
            "fused": sorted(node for node in inside if is_quantizer(node)),
            "alone": [layer.name for layer in alone],
        },
    }
