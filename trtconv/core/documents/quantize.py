"""What `trtconv quantize` found."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import Shape
from trtconv.core.documents.doubts import Doubt
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.rewrite import Edit, Skip
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.target import Target


@frozen
class Layerwise(Document):
    """A layer, and what became of it.

    Args:
        node: Its name.
        op: Its operator.
        reason: Why it is in float; empty where it is quantised.
        multiply_adds: How many it takes, at the sizes of the first sample; None where its sizes are not known.
    """

    node: str
    op: str
    reason: str = ""
    multiply_adds: int | None = None


@frozen
class Distance(Document, keys="rms cosine standard_error"):
    """How far the values of a tensor are apart.

    Args:
        rms: Root of the mean squared difference over that of the float values; of integers and booleans the share
            that differs.
        cosine: Cosine similarity.
        standard_error: Of `rms`, by how the samples differ; None where one sample cannot tell.
    """

    rms: Measured
    cosine: Measured
    standard_error: Measured | None = None


@frozen
class LayerError(Document):
    """How far the result of a quantised layer is from that of the float model; `rms` and `cosine` as in `Distance`."""

    node: str
    op: str
    rms: Measured
    cosine: Measured


@frozen
class Step(Document):
    """A layer that was left in float.

    Args:
        node: Its name.
        error: Error of the network without it, beside what was left out before.
        gain: By how much the error fell.
    """

    node: str
    error: Measured
    gain: Measured


@frozen
class BudgetRecord(Document):
    """What `--budget` came to.

    Args:
        asked: The error to meet, or the value of the metric. Errors are then by how much its value is worse.
        met: Whether it is met.
        error_of_all: With every layer quantised.
        alone: Layer to the error where it alone is left in float.
        left_in_float: The layers left in float, in the order in which they were.
    """

    asked: float
    met: bool
    error_of_all: Measured
    alone: Mapping[str, Measured]
    left_in_float: tuple[Step, ...]


@frozen
class OtherScale(Document):
    """A tensor that could not keep its scale, since it shares one with others or must not.

    Args:
        tensor: Its name.
        cached: The scale in the cache.
        written: The scale in the quantised model.
    """

    tensor: str
    cached: float
    written: float


@frozen
class CacheRecord(Document):
    """A calibration cache of TensorRT.

    Args:
        file: Its path.
        scales: How many tensors it has.
        used: How many of them are quantised.
        unknown: Names that no tensor of the model has.
        other: Tensors whose scale is another one now.
    """

    file: str
    scales: int
    used: int
    unknown: tuple[str, ...]
    other: tuple[OtherScale, ...]


@frozen
class Calibration(Document):
    """How a model was calibrated.

    Args:
        samples: How many there were.
        source: Where they come from.
        sizes: Their different shapes.
        method: By which the ranges were taken.
        methods: Each that was tried to the error that it makes.
        equalized: Whether channels were brought to one size before.
        cached: Whether all that was kept by an earlier call.
        biases_corrected: Whether biases were corrected.
        doubts: What misleads in the samples.
    """

    samples: int
    source: str
    sizes: tuple[Mapping[str, Shape], ...]
    method: str
    methods: Mapping[str, Measured]
    equalized: bool
    cached: bool
    biases_corrected: bool = False
    doubts: tuple[Doubt, ...] = ()


@frozen
class QuantizeReport(
    Document,
    keys="schema trtconv model output target=target_name kind edits skipped quantized left_in_float int8_share notes "
    "error metric- per_layer calibration cache- budget findings tolerance seconds exit_code",
):
    """What `trtconv quantize` did.

    Args:
        model: Path and SHA-256 of the float model.
        output: The file written; None where the error is above the tolerance.
        target: What it is for.
        edits: What was rewritten before quantising.
        skipped: What passes left alone, and why.
        quantized: Layers in int8.
        left_in_float: Layers with weights that stay in float, and why.
        notes: What is to be known of the engine's speed, in words.
        error: Output to how far it is from that of the float model, on samples that calibration did not see.
        kind: What layers are quantised to, as --kind has it.
        metric: What counts where that is not the error, on the same samples; None where it is.
        per_layer: The error of the result of every quantised layer, in the order of the graph.
        calibration: Samples, their sizes, the method, and the error of each method that was tried.
        cache: What became of a calibration cache of TensorRT; None without one.
        budget: What `--budget` came to; None where it was not asked for.
        findings: What check says of the quantised model.
        tolerance: The error (rms) that was allowed, or the worst value of the metric.
    """

    model: FileIdentity
    output: FileIdentity | None
    target: Target
    edits: tuple[Edit, ...]
    skipped: tuple[Skip, ...]
    quantized: tuple[Layerwise, ...]
    left_in_float: tuple[Layerwise, ...]
    notes: tuple[str, ...]
    error: Mapping[str, Distance]
    per_layer: tuple[LayerError, ...]
    calibration: Calibration
    budget: BudgetRecord | None
    findings: tuple[Finding, ...]
    tolerance: float
    seconds: Mapping[str, float]
    exit_code: int = 0
    cache: CacheRecord | None = None
    metric: MetricResult | None = None
    kind: str = "int8"

    def to_json(self) -> dict[str, object]:
        """Returns the report as plain JSON values; `output` is empty where nothing was written."""
        return {**super().to_json(), "output": {} if self.output is None else self.output.to_json()}

    @property
    def int8_share(self) -> float | None:
        """Share of the multiply-adds of all layers with weights, and of products of computed matrices, in int8.

        None where they are not known, or there are none.
        """
        counts = [[layer.multiply_adds for layer in layers] for layers in (self.quantized, self.left_in_float)]
        if any(None in numbers for numbers in counts):
            return None
        inside, outside = (sum(count or 0 for count in numbers) for numbers in counts)
        return inside / (inside + outside) if inside + outside else None

    @property
    def target_name(self) -> str:
        """The target as text."""
        return str(self.target)
