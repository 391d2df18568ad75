"""A parsed network: its layers, and how an engine is built from it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Set
from typing import Any

from trtconv.core import codes
from trtconv.core.dim_flags import quoted
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import BuildFailed, EnvironmentMissing, InputError
from trtconv.core.findings import Finding, Location, Severity
from trtconv.core.frozen import frozen
from trtconv.core.tensor_io import FORMATS, LINEAR, TensorIos
from trtconv.runtimes.tensorrt import builder_config, layers, messages
from trtconv.runtimes.tensorrt.base import BuildMonitor, Capabilities, DeconvLayer, EngineBlob
from trtconv.runtimes.tensorrt.debug_tensors import mark, not_shown
from trtconv.runtimes.tensorrt.gpu import gpu_name
from trtconv.runtimes.tensorrt.logger import Log, Session
from trtconv.runtimes.tensorrt.monitor import BuildProgress, make_progress_monitor
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork
from trtconv.runtimes.tensorrt.tactics import Choices, TacticFollower
from trtconv.runtimes.tensorrt.timing_cache import TimingCache

# Which builder flags a precision means, and which ONNX element types need which flag to be honoured at all.
_PRECISION_FLAGS = {"as-is": (), "fp16": ("FP16",), "bf16": ("BF16",), "int8": ("INT8", "FP16")}
_DTYPE_FLAGS = {"HALF": "FP16", "BF16": "BF16", "FP8": "FP8"}
_NODE_DTYPES = {"fp32": "FLOAT", "fp16": "HALF", "bf16": "BF16"}
_UNTYPED = ("CONSTANT", "CAST", "SHAPE", "QUANTIZE", "DEQUANTIZE")
"""Layers that have no type to be computed in, or one by their meaning."""
_QUANTIZED_LAYERS = ("QUANTIZE", "DEQUANTIZE")


@frozen
class Handles:
    """TensorRT objects that need each other: the network dies with its builder, its weights with the parser."""

    builder: Any
    network: Any
    parser: Any


class Network:
    """A network that the parser accepted; implements `ParsedNetwork`.

    Args:
        trt: The TensorRT module.
        log: Its logger.
        capabilities: What it can do.
        handles: The objects.
        serialized: Libraries of plugins that go into the engine.
    """

    def __init__(
        self, trt: Any, log: Log, capabilities: Capabilities, handles: Handles, serialized: tuple[str, ...] = ()
    ) -> None:
        self._trt = trt
        self._log = log
        self._capabilities = capabilities
        self._handles = handles
        self._serialized = serialized

    def _layers(self) -> Iterator[Any]:
        network = self._handles.network
        return (network.get_layer(i) for i in range(network.num_layers))

    @functools.cached_property
    def layer_types(self) -> tuple[str, ...]:
        """Type of every layer in order, for example ("DECONVOLUTION", "ACTIVATION")."""
        return tuple(layers.enum_name(layer.type) for layer in self._layers())

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return int(self._handles.network.num_layers)

    @functools.cached_property
    def deconvolutions(self) -> tuple[DeconvLayer, ...]:
        """Every deconvolution, in order."""
        # TensorRT's enumerations tell their number in a third of the time that it takes to compare or to hash them.
        kind = self._trt.LayerType.DECONVOLUTION.value
        matches = (layer for layer in self._layers() if layer.type.value == kind)
        return tuple(layers.read_deconvolution(self._trt, layer) for layer in matches)

    @functools.cached_property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The network's inputs, with the data types that the engine will have."""
        return tuple(layers.tensor_info(tensor, "input") for tensor in self._input_tensors())

    @functools.cached_property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The network's outputs."""
        network = self._handles.network
        tensors = (network.get_output(i) for i in range(network.num_outputs))
        return tuple(layers.tensor_info(tensor, "output") for tensor in tensors)

    @functools.cached_property
    def shape_inputs(self) -> tuple[str, ...]:
        """Names of the inputs whose values are shapes."""
        # Shapes have one axis at most, and to ask the first tensor takes a look at the whole network.
        inputs = (tensor for tensor in self._input_tensors() if len(layers.shape_of(tensor)) <= 1)
        return tuple(tensor.name for tensor in inputs if tensor.is_shape_tensor)

    def _input_tensors(self) -> Iterator[Any]:
        network = self._handles.network
        return (network.get_input(i) for i in range(network.num_inputs))

    def read_back(self) -> ReadNetwork:
        """Reads every layer; see `ParsedNetwork.read_back`. What is returned keeps builder and parser alive."""
        from trtconv.runtimes.tensorrt.readback.read import read

        network = read(self._trt, self._handles.network)
        return dataclasses.replace(network, keep_alive=(self._handles, network.keep_alive))

    def build(self, plan: BuildPlan, monitor: BuildMonitor | None = None) -> EngineBlob:
        """Builds a serialized engine in the calling thread; see `ParsedNetwork.build`."""
        self._refuse_shape_inputs(plan.profiles)
        notes = self._check_options(plan)
        with self._log.session() as session:
            progress = BuildProgress(session, monitor)
            blob, more, choices = self._run(plan, session, progress)
        if progress.cancelled:
            raise BuildFailed("the build was cancelled")
        misfits = messages.profile_findings(session.records, len(plan.profiles))
        if misfits:
            raise _failed(misfits)
        if blob is None:
            messages.require_memory(session.records)
            raise _failed(builder_config.refused(plan, messages.refusal_findings(session.records)))
        tactics = None if choices is None or choices.trouble else choices.record
        return EngineBlob(memoryview(blob), session.warnings, notes + more + _of_tactics(choices), tactics)

    def faults(self, plan: BuildPlan) -> tuple[Finding, ...]:
        """Asks the builder whether it takes the network, without building; see `ParsedNetwork.faults`."""
        try:
            self._refuse_shape_inputs(plan.profiles)
        except BuildFailed as error:
            return tuple(f for f in error.findings if isinstance(f, Finding))
        builder = self._handles.builder
        with self._log.session() as session:
            config = builder.create_builder_config()
            self._set_types(config, plan)
            try:
                fits = self._add_profiles(config, plan.profiles)
            except BuildFailed as error:
                return tuple(f for f in error.findings if isinstance(f, Finding))
            if fits and builder.is_network_supported(self._handles.network, config):
                return ()
        messages.require_memory(session.records)
        misfits = messages.profile_findings(session.records, len(plan.profiles))
        return misfits or messages.refusal_findings(session.records)

    def _lay_out(self, io: TensorIos) -> None:
        """Says how inputs and outputs lie in memory, where that is not as usual."""
        network = self._handles.network
        outputs = (network.get_output(i) for i in range(network.num_outputs))
        for tensor in (*self._input_tensors(), *outputs):
            choice = io.get(tensor.name)
            if choice is not None and choice.format != LINEAR:
                tensor.allowed_formats = 1 << int(getattr(self._trt.TensorFormat, FORMATS[choice.format]))

    def _run(
        self, plan: BuildPlan, session: Session, progress: BuildProgress
    ) -> tuple[Any, tuple[Finding, ...], Choices | None]:
        """Configures and runs the builder.

        Returns:
            Its IHostMemory, or None where it refused; what to know; and which tactics its layers got, None where that
            is not kept.
        """
        builder = self._handles.builder
        config = builder.create_builder_config()
        self._set_types(config, plan)
        builder_config.apply(self._trt, config, plan.options, trial=plan.trial)
        self._lay_out(plan.io)
        marks = mark(self._handles.network, set(plan.options.debug_tensors)) if plan.options.debug_tensors else ()
        notes = not_shown(plan, marks)
        if self._serialized:
            config.plugins_to_serialize = list(self._serialized)
        if not self._add_profiles(config, plan.profiles):
            return None, (), None
        follower, cache = self._follower(config, plan), None
        if plan.timing_cache and self._capabilities.timing_cache and not (follower and follower.has_cache):
            cache = TimingCache(plan.timing_cache, config)
        if self._capabilities.progress_monitor:
            config.progress_monitor = make_progress_monitor(self._trt, progress)
        try:
            blob = builder.build_serialized_network(self._handles.network, config)
        except MemoryError as error:
            session.raise_failure()
            raise _broke_down("it ran out of host memory", session) from error
        except (RuntimeError, TypeError, ValueError) as error:
            session.raise_failure()
            raise _broke_down(str(error), session) from error
        choices = follower.finish() if follower and blob is not None else None
        if cache is None or blob is None or plan.trial:
            return blob, notes, choices
        return blob, (*notes, *_not_kept(cache.save(), str(plan.timing_cache))), choices

    def _follower(self, config: Any, plan: BuildPlan) -> TacticFollower | None:
        """Returns what notes which tactic each layer gets, where that is asked for."""
        can = self._capabilities
        if plan.tactics and not can.takes_tactics:
            raise EnvironmentMissing("this TensorRT cannot be told which tactics layers get", "Leave out --as.")
        if not can.takes_tactics or not (plan.tactics or (plan.options.keep_tactics and not plan.trial)):
            return None
        if can.algorithm_selector and plan.options.optimization_level == 0:
            # Executed on 8.6: with a selector, level 0 ends in "Could not find any implementation" for most networks.
            why = f"TensorRT {self._trt.__version__} finds no kernels at level 0 where tactics are kept or given"
            raise BuildFailed(why, "Give --optimization-level 1 or more, or leave out --as and --keep-tactics.")
        return TacticFollower(self._trt, config, plan.tactics)

    def _check_options(self, plan: BuildPlan) -> tuple[Finding, ...]:
        """Returns what is worth knowing of the options.

        Raises:
            BuildFailed: This TensorRT, or a GPU that was asked for, cannot do what was asked for.
            EnvironmentMissing: This machine cannot.
        """
        options = plan.options
        product = f"{'TensorRT-RTX' if self._capabilities.builds_without_gpu else 'TensorRT'} {self._trt.__version__}"
        findings = builder_config.lacking(self._trt, product, options)
        if options.compute_capabilities:
            findings += tuple(builder_config.limits(options, self._dtypes()))
        errors = tuple(finding for finding in findings if finding.severity is Severity.ERROR)
        if errors:
            raise _failed(errors)
        builder_config.require_timings(plan)
        if options.refits and self._capabilities.builds_without_gpu and gpu_name() is None:
            raise EnvironmentMissing(
                f"{product} builds engines that can be refitted, or that have no weights, only where there is a GPU",
                "Build on a machine with a GPU, or leave out --refittable and --strip-weights.",
            )
        return findings

    def _refuse_shape_inputs(self, profiles: tuple[ShapeProfile, ...]) -> None:
        findings = tuple(
            codes.SHAPE_TENSOR_INPUT.finding(
                f"input {name!r} holds a shape or a count, and its values have no bounds",
                place=Location(tensor=name),
                fix=f"Add --value {quoted(name)}=MIN:OPT:MAX, or make {name!r} a constant in the model.",
            )
            for name in self.shape_inputs
            if not profiles or any(name not in profile.values for profile in profiles)
        )
        if findings:
            raise _failed(findings)

    def _add_profiles(self, config: Any, profiles: tuple[ShapeProfile, ...]) -> bool:
        """Adds the profiles; False where TensorRT refused one (the log says why)."""
        dynamic = [tensor for tensor in self.inputs if -1 in tensor.shape]
        if not dynamic and not self.shape_inputs:
            profiles = (ShapeProfile({}, {}),) if self._lacks_profile() else ()
        try:
            return all(config.add_optimization_profile(self._profile(p, dynamic)) >= 0 for p in profiles)
        except (RuntimeError, TypeError, ValueError) as error:
            # Sizes beyond TensorRT's integers, or another number of axes than the parser made of the input.
            message = f"TensorRT does not take the profile's sizes: {messages.clean(str(error))}"
            raise _failed((codes.PROFILE_INCONSISTENT.finding(message),)) from error

    def _lacks_profile(self) -> bool:
        """Whether a network that has no use for a profile needs one: without it no context of TensorRT 8.6 runs an
        engine that says how many boxes it keeps (executed on 8.6.0)."""
        is_old = not self._capabilities.builds_without_gpu and int(self._trt.__version__.partition(".")[0]) < 9
        return is_old and "NMS" in self.layer_types

    def _profile(self, shapes: ShapeProfile, dynamic: list[TensorInfo]) -> Any:
        profile = self._handles.builder.create_optimization_profile()
        for tensor in dynamic:
            if tensor.name not in shapes.inputs:
                raise InputError(
                    f"the profile has no shapes for input {tensor.name!r} {tensor.shape}",
                    f"It has: {', '.join(shapes.inputs) or 'none'}.",
                )
            bounds = shapes.inputs[tensor.name]
            profile.set_shape(tensor.name, bounds.min, bounds.opt, bounds.max)
        for name in self.shape_inputs:
            values = shapes.values[name]
            profile.set_shape_input(name, values.min, values.opt, values.max)
        return profile

    def _set_types(self, config: Any, plan: BuildPlan) -> None:
        """Says what the builder may compute in, and what single nodes are to be computed in."""
        nodes = plan.node_precisions
        for flag in self._flags(plan.precision, set(nodes.values())):
            config.set_flag(flag)
        if not nodes:
            return
        config.set_flag(self._trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
        for layer in self._layers():
            kind = nodes.get(layers.onnx_origin(layer.metadata, layer.name)[0])
            outputs = list(_outputs(layer))
            floats = all(layers.enum_name(tensor.dtype) in _NODE_DTYPES.values() for tensor in outputs)
            if kind is None or not floats or layers.enum_name(layer.type) in _UNTYPED:
                continue
            layer.precision = getattr(self._trt.DataType, _NODE_DTYPES[kind])
            for index in range(len(outputs)):
                layer.set_output_type(index, layer.precision)

    def _flags(self, precision: str, of_nodes: Set[str]) -> list[Any]:
        """Chooses the builder flags of a precision.

        A strongly typed runtime has none: the graph says it all. The others compute in float32 whatever the graph
        says, unless they are allowed the types that occur in it.
        """
        if not self._capabilities.builder_precision_flags:
            if precision == "as-is" and not of_nodes:
                return []
            raise EnvironmentMissing(
                f"this runtime takes the precision from the model's own types, so it cannot build in {precision}",
                f"Convert the model to {precision} first and build it with --precision as-is.",
            )
        typed = (flag for kind in sorted(of_nodes) for flag in _PRECISION_FLAGS.get(kind, ()))
        names = dict.fromkeys((*_PRECISION_FLAGS[precision], *typed, *self._flags_of_graph()))
        available = self._trt.BuilderFlag
        missing = [name for name in names if not hasattr(available, name)]
        if missing:
            raise EnvironmentMissing(
                f"this TensorRT cannot compute in {', '.join(missing).lower()}",
                "Use another --precision, or a newer TensorRT.",
            )
        return [getattr(available, name) for name in names]

    def _dtypes(self) -> set[str]:
        """Returns the types of all tensors, by TensorRT's names."""
        dtypes = {layers.enum_name(t.dtype) for layer in self._layers() for t in _outputs(layer)}
        return dtypes | {layers.enum_name(tensor.dtype) for tensor in self._input_tensors()}

    def _flags_of_graph(self) -> list[str]:
        types = set(self.layer_types)
        flags = ["INT8"] if types.intersection(_QUANTIZED_LAYERS) else []
        dtypes = self._dtypes()
        return flags + [flag for dtype, flag in _DTYPE_FLAGS.items() if dtype in dtypes]


def _of_tactics(choices: Choices | None) -> tuple[Finding, ...]:
    """Says which layers did not get the tactic that they were to get."""
    if choices is None:
        return ()
    if choices.trouble:
        message = f"it is not known which tactics the layers got: {choices.trouble}"
        fix = "The engine is none the worse."
        return (codes.TACTIC_OTHER.finding(message, Severity.WARNING, fix=fix),)
    fix = "Build from the same model with the same TensorRT, options and kind of GPU, or accept another kernel there."
    message = "it did not get the tactic that the report of --as has for it, or that has none"
    return tuple(
        codes.TACTIC_OTHER.finding(message, Severity.WARNING, Location(node=layer), fix) for layer in choices.unmet
    )


def _not_kept(why: str, path: str) -> tuple[Finding, ...]:
    if not why:
        return ()
    message = f"the timing cache {path} was not written: {why}"
    fix = "Give another file with --timing-cache, or none."
    return (codes.TIMING_CACHE_UNUSED.finding(message, Severity.INFO, fix=fix),)


def _outputs(layer: Any) -> Iterator[Any]:
    return (layer.get_output(i) for i in range(layer.num_outputs))


def _failed(findings: tuple[Finding, ...]) -> BuildFailed:
    return BuildFailed("\n".join(f.message for f in findings), findings[0].fix, findings)


def _broke_down(reason: str, session: Session) -> BuildFailed:
    text = f"TensorRT's builder broke down: {messages.clean(reason)}"
    errors = messages.distinct(r.text for r in session.records if r.is_error)
    return _failed((codes.BUILDER_REFUSED.finding("\n".join([text, *errors]), fix=messages.NARROWER),))
