"""What TensorRT's inspector says of an engine's layers, made one shape of the shapes that it has in each version.

8.6 and 10 write a tensor's type and memory format into one text ("Format/Datatype"), 11 apart ("Format", "DataType").
An engine that was built without details has the names of its layers alone, in every version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.core.decode import decoded
from trtconv.core.documents.inspect import REFORMAT_NAME, Layer, LayerSummary, LayerTensor, Quantizers, is_quantizer
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.runtimes.tensorrt.layers import ONNX_LAYER

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
_NARROW = ("int4", "float4", "int8", "float8", "float16", "bfloat16", "float32")
"""Types that a layer may compute in, the narrowest first."""


@frozen
class _Information(Document, keys="Layers=layers?"):
    """The document of an inspector; a layer is its name, or an object."""

    layers: tuple[Any, ...] = ()


@frozen
class _InspectedLayer(
    Document,
    keys="Name=name LayerType=type Inputs=inputs Outputs=outputs Metadata=metadata TacticName=tactic Origin=origin"
    " Weights=weights",
):
    """A layer of an engine that was built with details. Other versions of TensorRT may write anything anywhere."""

    name: object = ""
    type: object = ""
    inputs: object = None
    outputs: object = None
    metadata: object = ""
    tactic: object = ""
    origin: object = ""
    weights: object = None


@frozen
class _InspectedTensor(
    Document,
    keys="Name=name Dimensions=sizes Format/Datatype=form_and_type Format=form DataType=type Datatype=type_of_layer",
):
    """An input or output of a layer; 8.6 and 10 write its memory format and its type as one text."""

    name: object = ""
    sizes: object = None
    form_and_type: object = None
    form: object = None
    type: object = None
    type_of_layer: object = None


@frozen
class _InspectedWeights(Document, keys="Type=type"):
    """The weights of a layer."""

    type: object = ""


def read_layers(information: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Reads the document of an EngineInspector; what it does not know of a layer is left empty."""
    return tuple(_layer(entry) for entry in decoded(_Information, information).layers)


def has_details(information: Mapping[str, Any]) -> bool:
    """Whether an engine tells more of its layers than their names."""
    return any(isinstance(entry, Mapping) for entry in decoded(_Information, information).layers)


def _layer(entry: Any) -> Layer:
    if not isinstance(entry, Mapping):
        return Layer(str(entry), nodes=_nodes("", str(entry)))
    detailed = decoded(_InspectedLayer, entry)
    name = str(detailed.name)
    inputs = tuple(_tensor(tensor) for tensor in _listed(detailed.inputs))
    outputs = tuple(_tensor(tensor) for tensor in _listed(detailed.outputs))
    return Layer(
        name=name,
        type=str(detailed.type),
        precision=_precision(detailed.weights, inputs, outputs),
        inputs=inputs,
        outputs=outputs,
        nodes=_nodes(str(detailed.metadata), name),
        tactic=str(detailed.tactic),
        origin=str(detailed.origin),
    )


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _tensor(entry: Mapping[str, Any]) -> LayerTensor:
    tensor = decoded(_InspectedTensor, entry)
    form = str(tensor.form_and_type or tensor.form or "")
    dtype = type_in(str(tensor.type or tensor.type_of_layer or form))
    sizes = tuple(tensor.sizes) if isinstance(tensor.sizes, list) else None
    return LayerTensor(str(tensor.name), sizes, dtype, form)


def type_in(text: str) -> str | None:
    """Returns the type that a text names, as NumPy would: "Channel major FP16 format" has float16."""
    match = _TYPE.search(text)
    return _TYPES[match[1].lower()] if match else None


def _precision(weights: object, inputs: Sequence[LayerTensor], outputs: Sequence[LayerTensor]) -> str | None:
    weight_types = [type_in(str(decoded(_InspectedWeights, weights).type))] if isinstance(weights, dict) else []
    types = [*weight_types, *(tensor.dtype for tensor in inputs)]
    narrowest = next((name for name in _NARROW if name in types), None)
    return narrowest or next((tensor.dtype for tensor in (*outputs, *inputs) if tensor.dtype), None)


def _nodes(metadata: str, name: str) -> tuple[str, ...]:
    """Returns the ONNX nodes of a layer: from its metadata, else from its name, which joins theirs."""
    nodes = [match.partition(" | ")[0] for match in ONNX_LAYER.findall(metadata)]
    if nodes:
        return tuple(dict.fromkeys(nodes))
    if REFORMAT_NAME.match(name):
        return ()
    return tuple(part.strip() for part in name.split(" + ") if part.strip())


def summary(layers: Sequence[Layer]) -> LayerSummary:
    """Counts what matters of the layers."""
    inside = {node for layer in layers if not layer.is_quantizer and len(layer.nodes) > 1 for node in layer.nodes}
    computing = [layer.precision for layer in layers if layer.precision is not None and not layer.is_reformat]
    quantizers = Quantizers(
        fused=tuple(sorted(node for node in inside if is_quantizer(node))),
        alone=tuple(layer.name for layer in layers if layer.is_quantizer),
    )
    return LayerSummary(len(layers), sum(layer.is_reformat for layer in layers), dict(Counter(computing)), quantizers)
