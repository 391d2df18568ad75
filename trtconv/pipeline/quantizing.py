"""The way of a float model to an int8 one: fold, rewrite, calibrate, quantise, spend the budget, measure, write."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence

from trtconv.core.bounds import make_profile
from trtconv.core.dims import dynamic_dims
from trtconv.core.documents.doubts import Doubt, DoubtKind
from trtconv.core.documents.metric_result import MetricResult
from trtconv.core.documents.parts import FileIdentity
from trtconv.core.documents.quantize import Distance, LayerError, Layerwise, QuantizeReport
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.outputs import Output, check_all
from trtconv.core.preprocessing import parse_preprocessing
from trtconv.core.progress import Progress
from trtconv.core.requests.files import files_read
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.core.stages import Stage
from trtconv.core.stopwatch import Stopwatch
from trtconv.core.target import Target
from trtconv.graph.external_data import data_path
from trtconv.graph.functions import UnsupportedFunctions
from trtconv.graph.model import OnnxModel
from trtconv.graph.weight_file import WeightFile
from trtconv.passes import PassResult, passes_for
from trtconv.passes.fold_batch_norm import FoldBatchNorm
from trtconv.passes.overlap_add import OverlapAdd
from trtconv.pipeline.calibrating import ENOUGH, JUDGING, MOST_JUDGED, FloatSource, RangeChoice, choose_ranges
from trtconv.pipeline.checking import target_and_runtime
from trtconv.pipeline.outputs import model_identity, protect_data
from trtconv.pipeline.preparation import Preparation
from trtconv.precision.quantize.biases import correct_biases
from trtconv.precision.quantize.budget import Spending, spend
from trtconv.precision.quantize.facts import doubts_about
from trtconv.precision.quantize.kernel_shapes import write_kernel_shapes
from trtconv.precision.quantize.kinds import KINDS
from trtconv.precision.quantize.lanes import fill_channels
from trtconv.precision.quantize.layers import NEEDS_QUANTIZER, WeightedLayer, find_layers, slows_down
from trtconv.precision.quantize.measure import Reference, worst
from trtconv.precision.quantize.metrics import Goal, Metric
from trtconv.precision.quantize.operators import WEIGHTED, bias_of
from trtconv.precision.quantize.opset import of_opset
from trtconv.precision.quantize.placement import Placement, place_of
from trtconv.precision.quantize.refusal import require_layers
from trtconv.precision.quantize.samples import InputSamples, Shapes, random_samples, read_samples
from trtconv.precision.quantize.stored import store_weights
from trtconv.precision.quantize.weights import QuantizedWeights
from trtconv.precision.quantize.work import work_of
from trtconv.precision.quantize.write import quantized
from trtconv.rules import run_rules

_FEW = 0.25
"""Standard error over error from which on more samples are asked for."""
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "ConvInteger", "DynamicQuantizeLinear")


def quantize(request: QuantizeRequest, progress: Progress | None = None) -> QuantizeReport:
    """Quantises a float model in int8, as TensorRT takes it, and measures what that costs.

    Args:
        request: The model, the data, and how far the result may be from the float model.
        progress: Told of the stages.

    Returns:
        The report; its exit_code is 1 where the error is above the tolerance, or the budget leaves no layer to quantise
        (nothing is written then).

    Raises:
        InputError: A bad request, an unreadable model or one without a layer to quantise, samples that do not fit it,
            or an output that cannot be written.
        EnvironmentMissing: No runtime is here and no target was named; ONNX Runtime does not load the model.
    """
    clock = Stopwatch(progress)
    with clock.stage(Stage.RUNTIME):
        target = request.target or target_and_runtime(None)[0]
        KINDS[request.kind].require(target, request.method, request.attention)
    ready = _ready(request, target, clock)
    choice = choose_ranges(request, ready.model, ready.layers, ready.calibration, clock, ready.source)
    with clock.stage(Stage.MEASURE):
        measured = _measured(request, choice, ready, clock)
    with clock.stage(Stage.WRITE):
        output = _write(measured.model, request) if measured.within(request.limit) else None
    spending, placement, doubts = measured.spending, measured.placement, _doubts(ready, measured.error)
    return QuantizeReport(
        model=ready.source.identity,
        output=output,
        target=target,
        edits=ready.rewrite.edits + choice.edits,
        skipped=ready.rewrite.skipped,
        quantized=_quantized(ready, placement),
        left_in_float=_float_layers(ready, placement, spending, choice.lacking),
        notes=slows_down(ready.layers),
        error=measured.error,
        metric=measured.metric,
        per_layer=_per_layer(choice.model, measured.model, placement, ready.held_out),
        calibration=dataclasses.replace(choice.calibration, biases_corrected=measured.mended, doubts=doubts),
        budget=None if spending is None else spending.record(request.error_budget or 0.0),
        findings=run_rules(measured.model, target),
        tolerance=request.limit,
        seconds=clock.seconds,
        exit_code=0 if output else 1,
        cache=choice.cache,
        kind=request.kind,
    )


@frozen
class _Ready:
    """A model that is rewritten, and its samples.

    Args:
        source: The model as it is in its file.
        model: The model to quantise.
        samples: All that were given.
        calibration: Those to calibrate with.
        held_out: Those to measure on.
        rewrite: What was rewritten.
        layers: The layers with weights.
        work: Position of a layer to its multiply-adds.
    """

    source: FloatSource
    model: OnnxModel
    samples: InputSamples
    calibration: InputSamples
    held_out: InputSamples
    rewrite: PassResult
    layers: tuple[WeightedLayer, ...]
    work: Mapping[int, int]


def _ready(request: QuantizeRequest, target: Target, clock: Stopwatch) -> _Ready:
    with clock.stage(Stage.LOAD):
        source, model = _loaded(request, target)
        samples = _samples(request, source.model)
        calibration, held_out = _parted(request, samples)
    with clock.stage(Stage.REWRITE):
        result, layers = _prepared(request, model, source)
        work = work_of(model, layers, held_out)
    return _Ready(source, model, samples, calibration, held_out, result, layers, work)


@frozen
class _Measurement:
    """A quantised model and what was found of it.

    Args:
        model: The model.
        spending: What the budget came to; None without one.
        placement: Where its quantisers stand.
        mended: Whether its biases are corrected.
        error: Output to how far it is from that of the float model.
        metric: What counts, where that is not the error.
    """

    model: OnnxModel
    spending: Spending | None
    placement: Placement
    mended: bool
    error: Mapping[str, Distance]
    metric: MetricResult | None

    def within(self, limit: float) -> bool:
        """Whether the error is at most the limit, or the metric's, and a budget has not left all layers in float."""
        if self.spending is not None and self.spending.steps and not self.placement.layers:
            return False
        return worst(self.error) <= limit if self.metric is None else self.metric.met


def _measured(request: QuantizeRequest, choice: RangeChoice, ready: _Ready, clock: Stopwatch) -> _Measurement:
    reference = Reference(ready.source.model, ready.held_out, ready.source.goal)
    spending, placement = _spent(request, choice, ready.source.weights, reference, clock)
    result, mended = _with_biases(choice, placement, ready.source, ready.calibration, clock)
    error = reference.distances(result) if len(ready.held_out) else {}
    return _Measurement(result, spending, placement, mended, error, reference.judged(result))


def _loaded(request: QuantizeRequest, target: Target) -> tuple[FloatSource, OnnxModel]:
    """Returns the model, and a copy of it to be rewritten; the large weights of both are in a file."""
    original = _checked(request)
    goal = None if request.metric is None else Goal(Metric(request.metric), request.limit)
    identity = model_identity(original)
    kind = KINDS[request.kind]
    model = of_opset(original, kind.opset)
    file = WeightFile(request.model.name)
    file.move(original)
    if model is original:
        return FloatSource(original, identity, target, file, QuantizedWeights(file, kind), goal), model.copy()
    file.move(model)
    return FloatSource(original, identity, target, file, QuantizedWeights(file, kind), goal), model


def _checked(request: QuantizeRequest) -> OnnxModel:
    """Returns the model; raises InputError where it or the request is no good."""
    model = OnnxModel.load(request.model, hashed=True)
    lacking = request.data is None and not request.random and request.calibration is None
    if lacking or (request.data is not None and request.random):
        raise InputError(
            "quantizing needs samples of what the network will see",
            "Give --data DIR, FILE.npz or FILE.py:FUNC; or --random, to try whether it works at all.",
        )
    if request.metric is not None and request.data is None and not request.random:
        raise InputError("--metric needs samples to measure on", "Add --data, or leave out --metric.")
    if request.calibration is not None and request.kind != "int8":
        raise InputError(
            f"a calibration cache has scales of int8, not of {request.kind}", "Leave out --cache or --kind."
        )
    if request.calibration is not None and request.error_budget is not None:
        raise InputError(
            "--error-budget needs ranges that a cache does not have", "Leave it out, or name layers: --float."
        )
    check_all([Output(request.output, "the quantised model")], files_read(request))
    protect_data(model, request.output, data_path(request.output))
    foreign = [spec.name for spec in model.inputs if spec.dtype == "undefined"]
    if foreign:
        raise InputError(f"input {foreign[0]!r} of {request.model} is not a tensor", "Quantise a model of tensors.")
    if model.has(_QUANTIZERS):
        raise InputError(
            f"{request.model} is quantised already",
            "Build it with --precision int8, or quantise the float model that it was made of.",
        )
    return model


def _samples(request: QuantizeRequest, model: OnnxModel) -> InputSamples:
    shapes = functools.cache(functools.partial(_shapes, request, model))
    if request.data is None and not request.random:
        return InputSamples((), str(request.calibration))
    if request.data is None:
        return random_samples(model, shapes(), request.samples, request.seed)
    called = ".py" in request.data.rpartition("/")[2]
    preprocessing = None if request.preprocess is None else parse_preprocessing(request.preprocess)
    return read_samples(model, request.data, shapes() if called else (), request.samples, request.seed, preprocessing)


def _parted(request: QuantizeRequest, samples: InputSamples) -> tuple[InputSamples, InputSamples]:
    """Returns the samples to calibrate with and those that measure: all where nothing is calibrated."""
    if request.calibration is not None or not KINDS[request.kind].inputs:
        return samples[:0], samples
    distinct = samples.distinct()
    if len(distinct) == 1 < len(samples):
        raise InputError(
            f"{samples.source} has {len(samples)} samples that are all the same",
            "Give different ones: what measures must not be what calibrated.",
        )
    return distinct.parted(request.held_out)


def _doubts(ready: _Ready, error: Mapping[str, Distance]) -> tuple[Doubt, ...]:
    """Returns what misleads in the samples, and whether they are too few for what the error is told as."""
    doubts = doubts_about(ready.samples.facts, ready.samples.names)
    for name, distance in error.items():
        if distance.standard_error is not None and distance.standard_error > _FEW * distance.rms:
            share = 100 * distance.standard_error / distance.rms
            message = f"the error of output {name!r} is known to +- {share:.0f} % of it alone"
            few = f"{message}: the {len(ready.held_out)} samples that measure it differ too much for so few"
            doubts += (Doubt(DoubtKind.FEW, (), few),)
    return doubts


def _shapes(request: QuantizeRequest, model: OnnxModel) -> Sequence[Shapes]:
    """Returns the sizes at which samples are made: opt, min and max of the bounds."""
    if request.dims or dynamic_dims(model.inputs):
        profile = make_profile(model.inputs, request.dims)
        picks = (
            {name: getattr(bounds, pick) for name, bounds in profile.inputs.items()} for pick in ("opt", "min", "max")
        )
        return list({tuple(shapes.items()): shapes for shapes in picks}.values())
    return [{spec.name: tuple(int(size) for size in spec.dims) for spec in model.inputs}]


def _prepared(
    request: QuantizeRequest, model: OnnxModel, source: FloatSource
) -> tuple[PassResult, tuple[WeightedLayer, ...]]:
    """Makes a model what its scales have to be taken from, in place; returns what was done to it, and its layers."""
    with contextlib.suppress(UnsupportedFunctions):
        model.inline_functions()
    # What has no int8 kernel as a deconvolution stays in float as what it is; the build makes a Conv of it then.
    passes = [pass_ for pass_ in passes_for("int8") if not isinstance(pass_, OverlapAdd)]
    result = Preparation(model, source.target).rewrite((FoldBatchNorm(), *passes), WEIGHTED)
    # TensorRT-RTX may lay out tensors otherwise, and nothing was measured there.
    if source.target.family == "tensorrt" and KINDS[request.kind].name == "int8":
        result = dataclasses.replace(result, edits=result.edits + fill_channels(model))
    store_weights(model)
    if source.target.family == "tensorrt":
        write_kernel_shapes(model)
    source.file.move(model)
    kind, in_float = KINDS[request.kind], _checked_names(model, request.in_float, request.attention)
    layers = find_layers(model.main, in_float, kind, request.attention)
    require_layers(model, layers, kind, in_float, request.attention, path=request.model)
    return result, layers


def _checked_names(model: OnnxModel, names: Sequence[str], attention: bool) -> Sequence[str]:
    node_names = {node.name for node in model.proto.graph.node}
    for name in names:
        if name not in node_names:
            able = find_layers(model.main, attention=attention)
            choices = ", ".join(repr(layer.name) for layer in able if not layer.reason)
            raise InputError(f"--float {name!r}: there is no such node", f"Layers that are quantised: {choices}.")
    return names


def _spent(
    request: QuantizeRequest, choice: RangeChoice, weights: QuantizedWeights, reference: Reference, clock: Stopwatch
) -> tuple[Spending | None, Placement]:
    """Leaves layers in float until the budget is met, where there is one; returns where quantisers then stand."""
    scope = choice.model.main
    if request.error_budget is None:
        return None, place_of(weights.kind, scope, choice.layers)

    def judge(layers: Sequence[WeightedLayer]) -> float:
        return reference.error(quantized(choice.model, place_of(weights.kind, scope, layers), choice.ranges, weights))

    allowed = reference.allowed(request.error_budget)
    spending = spend(choice.layers, allowed, judge, functools.partial(clock.progress.phase, "layer"))
    return spending, place_of(weights.kind, scope, spending.layers)


def _with_biases(
    choice: RangeChoice, placement: Placement, source: FloatSource, calibration: InputSamples, clock: Stopwatch
) -> tuple[OnnxModel, bool]:
    """Returns the quantised model, with corrected biases where that brings it nearer, and whether it does."""
    result = quantized(choice.model, placement, choice.ranges, source.weights)
    if not len(calibration):
        return result, False
    samples, judging = calibration.parted(JUDGING) if len(calibration) >= ENOUGH else (calibration, calibration)
    biases = [bias for index in placement.layers if (bias := bias_of(choice.model.main, index))]
    tell = functools.partial(clock.progress.phase, "correcting biases")
    mended = correct_biases(choice.model, result, biases, samples[:MOST_JUDGED], tell)
    reference = Reference(choice.model, judging[:MOST_JUDGED], source.goal)
    nearer = reference.rank(mended) < reference.rank(result)
    return (mended if nearer else result), nearer


def _per_layer(
    model: OnnxModel, result: OnnxModel, placement: Placement, samples: InputSamples
) -> tuple[LayerError, ...]:
    if not len(samples):
        return ()
    nodes = [model.proto.graph.node[index] for index in placement.layers]
    distances: Mapping[str, Distance] = Reference(model, samples).inside(result, [node.output[0] for node in nodes])
    pairs = ((node, distances[node.output[0]]) for node in nodes)
    return tuple(LayerError(node.name, node.op_type, distance.rms, distance.cosine) for node, distance in pairs)


def _write(result: OnnxModel, request: QuantizeRequest) -> FileIdentity:
    result.save(request.output)
    return FileIdentity.of(request.output)


def _quantized(ready: _Ready, placement: Placement) -> tuple[Layerwise, ...]:
    inside = (layer for layer in ready.layers if layer.index in placement.layers)
    return tuple(Layerwise(layer.name, layer.node.op_type, "", ready.work.get(layer.index)) for layer in inside)


def _float_layers(
    ready: _Ready, placement: Placement, spending: Spending | None, lacking: Mapping[int, str]
) -> tuple[Layerwise, ...]:
    spared = {step.node: step for step in spending.steps} if spending is not None else {}
    layers = []
    for layer in ready.layers:
        if layer.index in placement.layers:
            continue
        reason = layer.reason
        if not reason and layer.index in lacking:
            reason = f"the cache has no scale of tensor {lacking[layer.index]!r}"
        elif not reason and layer.name in spared:
            reason = f"left out for the budget: the error falls by {spared[layer.name].gain:.2g}"
        elif not reason:
            reason = NEEDS_QUANTIZER
        layers.append(Layerwise(layer.name, layer.node.op_type, reason, ready.work.get(layer.index)))
    return tuple(layers)
