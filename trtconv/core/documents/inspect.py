"""What inspect saw in an engine, its report, or an ONNX file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import InputSpec, Range, Shape
from trtconv.core.documents.build import BuildPlan, ProfileRecord
from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.rewrite import Edit
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen

_QUANTIZER = re.compile(r"(?:De)?[Qq]uantize(?:Linear)?", re.ASCII)
REFORMAT_NAME = re.compile(r"^Reformatting CopyNode\b")
"""How the name of a layer begins that TensorRT put in to change a memory format."""


@frozen
class LayerTensor(Document):
    """An input or output of a layer.

    Args:
        name: Its name.
        shape: Its sizes; None where the engine does not tell.
        dtype: Its type; None where the engine does not tell.
        format: Its memory format, in TensorRT's words.
    """

    name: str = ""
    shape: tuple[int | str, ...] | None = None
    dtype: str | None = None
    format: str = ""


@frozen
class Layer(Document):
    """One layer of an engine.

    Args:
        name: Its name.
        type: Its kind, such as "CaskConvolution"; empty where the engine does not tell.
        precision: Narrowest type of its inputs, which is what it computes in; None where the engine does not tell.
        inputs: Its inputs.
        outputs: Its outputs.
        nodes: Names of the ONNX nodes that it does the work of.
        tactic: Name of the kernel, or empty.
        origin: Why the layer is there, such as "REFORMAT" or "QDQ", or empty.
        time_us: What it takes, in microseconds; None where it was not timed.
    """

    name: str
    type: str = ""
    precision: str | None = None
    inputs: tuple[LayerTensor, ...] = ()
    outputs: tuple[LayerTensor, ...] = ()
    nodes: tuple[str, ...] = ()
    tactic: str = ""
    origin: str = ""
    time_us: Measured | None = None

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
        return self.type == "Reformat" or bool(REFORMAT_NAME.match(self.name))


def is_quantizer(node: str) -> bool:
    """Whether the name of an ONNX node is that of a QuantizeLinear or DequantizeLinear, as exporters name them."""
    return bool(_QUANTIZER.search(node.rpartition("/")[2]))


@frozen
class Quantizers(Document):
    """The ONNX quantisers that are part of another layer, and the layers that do nothing else."""

    fused: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()


@frozen
class LayerSummary(Document):
    """How many layers there are, how many only change a format, and how many compute in each type."""

    layers: int = 0
    reformats: int = 0
    precisions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    quantizers: Quantizers = Quantizers()


@frozen
class LayerTime(Document):
    """What all layers took at one size; None, and why, where the engine was not run."""

    profile: int = 0
    size: str = "opt"
    shapes: Mapping[str, Shape] | None = None
    layers_us: Measured | None = None
    why: str = ""


@frozen
class Inspected(Document):
    """What an inspection tells of first: "onnx", "engine" or "report"."""

    kind: str


@frozen
class EngineInspection(
    Document,
    keys="schema kind why_not_loaded built- model runtime plan profiles dims io edits findings notes file loaded "
    "activation_memory_bytes- profile_memory_bytes- layers details summary time exit_code",
):
    """What an engine, or the report of one, tells.

    Args:
        kind: "engine" or "report".
        file: The file that was looked into.
        loaded: Whether the engine was loaded.
        why_not_loaded: Why not; None where it was, or nobody asked.
        built: The engine that the report tells of.
        details: "full" or "names": what the engine tells of its layers; None where it was not loaded.

    What else there is has the names and meanings of the report of a build; None where it is not known.
    """

    kind: str
    file: FileIdentity
    layers: tuple[Layer, ...] | None
    loaded: bool = False
    why_not_loaded: str | None = None
    built: FileIdentity | None = None
    model: FileIdentity | None = None
    runtime: RuntimeIdentity | None = None
    plan: BuildPlan | None = None
    profiles: tuple[ProfileRecord, ...] | None = None
    dims: tuple[Mapping[str, Range], ...] | None = None
    io: tuple[TensorInfo, ...] | None = None
    edits: tuple[Edit, ...] | None = None
    findings: tuple[Finding, ...] | None = None
    notes: tuple[str, ...] | None = None
    activation_memory_bytes: int | None = None
    profile_memory_bytes: tuple[int, ...] | None = None
    details: str | None = None
    summary: LayerSummary | None = None
    time: LayerTime | None = None
    exit_code: int = 0


@frozen
class OutputSpec(Document):
    """An output of a model; unlike an input's, its type and shape may be left out (None)."""

    name: str
    dtype: str | None
    dims: tuple[int | str | None, ...] | None


@frozen
class WeightCount(Document):
    """The weights of a model: tensors, their elements, and the files beside it that hold them."""

    count: int
    elements: int
    external_files: tuple[str, ...] = ()


@frozen
class ModelInspection(
    Document, keys="schema kind file opset ir_version producer inputs outputs nodes weights exit_code"
):
    """What an ONNX file has.

    Args:
        producer: What wrote it; may be empty.
        nodes: Operator to how many there are, the most frequent first.
    """

    file: FileIdentity
    opset: int
    ir_version: int
    producer: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    nodes: Mapping[str, int]
    weights: WeightCount
    kind: str = "onnx"
    exit_code: int = 0


@frozen
class TensorRecord(Document):
    """Type and shape of an array that was read or written."""

    dtype: str
    shape: Shape


@frozen
class RunReport(Document, keys="schema engine runtime profile inputs outputs output seconds exit_code"):
    """What `trtconv run` did.

    Args:
        profile: Index of the optimization profile that it ran with.
        output: The file that the outputs were written to.
    """

    engine: FileIdentity
    runtime: RuntimeIdentity
    profile: int
    inputs: Mapping[str, TensorRecord]
    outputs: Mapping[str, TensorRecord]
    output: str
    seconds: Mapping[str, float]
    exit_code: int = 0


@frozen
class WarmedSize(Document):
    """A size at which an engine was run, and the shapes of its inputs there."""

    size: str
    shapes: Mapping[str, Shape]


@frozen
class WarmReport(Document, keys="schema engine cache sizes incomplete? exit_code"):
    """What `trtconv warm` did; `incomplete` says why not all sizes were run."""

    engine: FileIdentity
    cache: FileIdentity
    sizes: tuple[WarmedSize, ...]
    incomplete: str = ""
    exit_code: int = 0
