"""What trtconv needs of a TensorRT, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.tactics import Tactic
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.encode import Document
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt.engine_base import EngineLoader
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

BuildMonitor = Callable[[str, int, int], bool]
"""Called as (phase, step, steps) while TensorRT builds, from TensorRT's own thread; False asks it to stop."""


@frozen
class Capabilities:
    """What the installed runtime has, each found by looking for the attribute, never by version arithmetic.

    Args:
        builder_precision_flags: Precision is a builder flag (8.6), not a property of the graph.
        explicit_batch_flag: Networks need the EXPLICIT_BATCH creation flag.
        progress_monitor: `IProgressMonitor` exists.
        parser_node_names: Parser errors name their node.
        builds_without_gpu: Engines can be built on a machine without a GPU.
        timing_cache: What was measured in one build can be used by another.
        algorithm_selector: A selector says which tactic each layer gets, and is told.
        editable_timing_cache: The timing cache tells which tactic each layer got, and can be given such.
    """

    builder_precision_flags: bool
    explicit_batch_flag: bool
    progress_monitor: bool
    parser_node_names: bool
    builds_without_gpu: bool
    timing_cache: bool = False
    algorithm_selector: bool = False
    editable_timing_cache: bool = False

    @property
    def takes_tactics(self) -> bool:
        """Whether it can be said which tactics layers get."""
        return self.algorithm_selector or self.editable_timing_cache

    def casts(self, precision: str, nodes: Mapping[str, str]) -> bool:
        """Whether a precision, or that of single nodes, is had by casting the graph."""
        return (precision != "as-is" or bool(nodes)) and not self.builder_precision_flags


@frozen
class PluginCreator(Document):
    """What makes a plugin.

    Args:
        name: Its name, which nodes have as their operator.
        version: Its version.
        namespace: Its namespace; mostly empty.
        fields: Names of what it is configured by, in its order.
    """

    name: str
    version: str
    namespace: str
    fields: tuple[str, ...]


@frozen
class RuntimeStatus(Document):
    """Whether one family of TensorRT can be used here.

    Args:
        family: "rtx" or "tensorrt".
        installed: Whether its Python package is there.
        version: Its version string, or None where it cannot be told.
        works: Whether it loads and can make a builder.
        why: Why it does not work; empty where it does.
        install: The command that installs it.
        plugins: What its networks can have of plugins.
    """

    family: str
    installed: bool
    version: str | None
    works: bool
    why: str
    install: str
    plugins: tuple[PluginCreator, ...] = ()


@frozen
class RuntimeInfo:
    """An installed runtime.

    Args:
        family: "rtx" or "tensorrt".
        version: Full version string, for example "1.7.1.116".
        gpu: Name of the GPU that it would use, or None.
        capabilities: What it has.
    """

    family: str
    version: str
    gpu: str | None
    capabilities: Capabilities

    @property
    def identity(self) -> RuntimeIdentity:
        """What documents say of it."""
        return RuntimeIdentity(self.family, self.version, self.gpu)

    @property
    def target(self) -> Target:
        """The target that this runtime is: its family and (major, minor)."""
        return Target.of(self.family, self.version)


@frozen
class ParserIssue:
    """One node that the ONNX parser refused.

    Args:
        node_index: Position in the main graph's node list; -1 where unknown.
        node_name: Name of the node, possibly empty; of a node without a name "node_of_" and its first output.
        op: Operator type, possibly empty.
        message: The parser's reason, cleaned of source locations.
        inside: What the node sits in where it is not in the main graph, outermost first: ("if (If)",
            "then (then_branch)") or ("call1 (Up)",). `node_index` is then the node of the main graph that holds it.
    """

    node_index: int
    node_name: str
    op: str
    message: str
    inside: tuple[str, ...] = ()


@frozen
class DeconvLayer:
    """One `IDeconvolutionLayer` of a parsed network, as TensorRT will compute it.

    All tuples have one entry a spatial axis (2 or 3; a 1-D ConvTranspose is lifted to 2-D by the parser).

    Args:
        name: Layer name.
        onnx_node: Name of the ONNX node that it came from (from the layer's metadata, else its name); of a
            node without a name "node_of_" and its first output.
        pre_padding: Rows cropped at the low end.
        post_padding: Rows cropped at the high end.
        padding_mode: "EXPLICIT_ROUND_DOWN", "SAME_UPPER" and so on; pads are unused in the SAME modes.
        groups: Number of groups.
        out_channels: `num_output_maps`.
        has_bias: Whether a bias is added inside the layer.
        input_shape: (N, C, spatial...), -1 where dynamic.
        output_shape: (N, C, spatial...), -1 where dynamic.
        output: Name of the output tensor.
        inside: What the ONNX node sits in, as in `ParserIssue`; empty also in Loop and Scan bodies, where the parser
            does not say it. A layer's `onnx_node` need not be unique: branches and calls repeat names.
    """

    name: str
    onnx_node: str
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pre_padding: tuple[int, ...]
    post_padding: tuple[int, ...]
    padding_mode: str
    groups: int
    out_channels: int
    has_bias: bool
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    output: str
    inside: tuple[str, ...] = ()


@frozen
class EngineBlob:
    """A serialized engine and what the builder said while making it.

    Args:
        data: The engine file's content.
        warnings: Messages of severity WARNING and above, in order.
        findings: What is worth knowing of how it was built.
        tactics: Which tactic each layer got; None where that was not kept.
        seconds: What it took where it was built before it was asked for.
    """

    data: memoryview
    warnings: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    tactics: tuple[Tactic, ...] | None = None
    seconds: float = 0.0


class ParsedNetwork(Protocol):
    """A network that the parser accepted."""

    @property
    def layer_types(self) -> Sequence[str]:
        """Type of every layer in order, for example ("DECONVOLUTION", "ACTIVATION")."""

    @property
    def layer_count(self) -> int:
        """Number of layers; cheaper than counting their types."""

    @property
    def deconvolutions(self) -> Sequence[DeconvLayer]:
        """Every deconvolution, in the order of the network."""

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        """The network's inputs, with the data types that an engine will have."""

    @property
    def outputs(self) -> Sequence[TensorInfo]:
        """The network's outputs."""

    @property
    def shape_inputs(self) -> Sequence[str]:
        """Names of the inputs whose values are shapes."""

    def read_back(self) -> ReadNetwork:
        """Reads every layer with its attributes and weights, so that the network can be run without TensorRT."""

    def faults(self, plan: BuildPlan) -> tuple[Finding, ...]:
        """Says what the builder refuses before it starts: types, inputs that hold shapes, profiles. Takes milliseconds.

        Args:
            plan: Profiles and precision.
        """

    def build(self, plan: BuildPlan, monitor: BuildMonitor | None = None) -> EngineBlob:
        """Builds a serialized engine.

        Args:
            plan: Profiles and precision.
            monitor: Told of phases where the runtime reports any; what it raises is raised here.

        Raises:
            BuildFailed: The builder refused; the message has its reasons and the findings are TC403 (refused), TC404 (a
                profile whose shapes do not fit the network, also where TensorRT only warns) or TC205; without findings
                where the monitor asked to stop.
            EnvironmentMissing: This runtime cannot build in that precision.
            InputError: A profile lacks an input that has a dynamic dimension.
        """


class Runtime(Protocol):
    """A TensorRT that is installed and works here."""

    @property
    def info(self) -> RuntimeInfo:
        """Family, version, GPU and capabilities."""

    def creators(self) -> tuple[PluginCreator, ...]:
        """Returns the plugins that networks can have, by name.

        Raises:
            EnvironmentMissing, InputError: A library of plugins does not load.
        """

    def engines(self) -> EngineLoader:
        """Returns what runs the engines that are built here.

        Raises:
            EnvironmentMissing: There is no GPU, or no binding to it.
        """

    def parse(self, model: bytes, path: Path) -> ParsedNetwork | tuple[ParserIssue, ...]:
        """Parses an ONNX model with TensorRT's own parser.

        Args:
            model: Serialized ModelProto; external data is referred to, not contained.
            path: Where the model lies: external data is looked up beside it.

        Returns:
            The network, or every node that the parser refused.

        Raises:
            BuildFailed: The parser itself broke down.
            EnvironmentMissing, InputError: A library of plugins does not load.
        """
