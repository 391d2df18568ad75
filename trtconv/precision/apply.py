"""What `--precision` makes of a model, with one meaning on every TensorRT.

fp16, bf16: what can be computed in that type is. int8: the model's quantised layers are computed in int8, and the rest
in float16. TensorRT 8.6 gets builder flags. Newer ones and TensorRT-RTX compute in the types of the graph, so the graph
is cast (`casting`): where the values that a run of the model shows do not fit, layers stay in float32, and the cast is
compared with the original.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import math
from collections.abc import Callable, Mapping

from trtconv.core import codes
from trtconv.core.dims import ShapeProfile
from trtconv.core.documents.build import CastCheck, CastRecord
from trtconv.core.documents.rewrite import Edit
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.graph.functions import UnsupportedFunctions
from trtconv.graph.interface import cast_floats
from trtconv.graph.model import OnnxModel
from trtconv.graph.operators import OF_FEWER_TYPES, lacks_type
from trtconv.graph.types import dtype_name
from trtconv.precision import Applied, Types, casting
from trtconv.precision.measure import Ranges, Referee
from trtconv.precision.pinned import refuse_idle, refuse_kept, refuse_unknown
from trtconv.precision.schemas import BFLOAT, HALF, Kind
from trtconv.runtimes.compare import TOLERANCES
from trtconv.runtimes.tensorrt import Capabilities

_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
_KINDS = {"fp16": HALF, "bf16": BFLOAT, "int8": HALF}
_MARGIN = 4.0
"""Other inputs than those that were measured may make values so many times larger."""
_TRIGONOMETRY = frozenset({"Sin", "Cos", "Tan"})
_LARGEST_ANGLE = 32.0
"""Radians up to which 11 bits tell angles apart well enough."""


def tools() -> dict[str, str]:
    """Returns the versions of what the result of a cast depends on."""
    return {name: _version(*names) for name, names in _TOOLS.items()}


_TOOLS = {"onnx": ("onnx",), "onnxruntime": ("onnxruntime", "onnxruntime-gpu")}
"""Packages that bring a module along."""


def _version(*packages: str) -> str:
    """Returns the version of the first package that is installed."""
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
    return "unknown"


def apply_precision(
    model: OnnxModel, types: Types, capabilities: Capabilities, profile: ShapeProfile | None, *, interface: bool = False
) -> Applied:
    """Makes the model say what precision asks for, in place.

    Args:
        model: The model after the passes, all its nodes named where some have types of their own.
        types: What is computed in which type. With a sample, a search judged which values fit, and named a type for
            every node whose values do not.
        capabilities: Of the runtime that will build.
        profile: The sizes that the model is run at, to see which values it has; None: it is not run.
        interface: Whether the inputs and outputs are cast too.

    Raises:
        InputError: int8 was asked for and the model has no quantisers; there is no node of that name, or none that
            can have that type.
    """
    refuse_unknown(model, types.nodes)
    if types.sample is None:
        refuse_idle(model, types.required, by_flags=capabilities.builder_precision_flags)
    if types.precision == "int8":
        require_quantizers(model)
    if not capabilities.casts(types.precision, types.nodes) or not kinds_of(types.precision, types.nodes):
        return Applied()
    _inline(model)
    with Referee(model) as referee:
        inputs = profile if types.sample is None else types.sample
        ranges = _NO_SIZES if inputs is None else referee.measure(model, inputs)
        # What was judged on all samples holds, whatever this one shows.
        cast_ranges = ranges if types.sample is None else Ranges({}, ranges.why)
        return _cast(model, types, cast_ranges, referee, interface)


def recast(
    model: OnnxModel, types: Types, profile: ShapeProfile | None, *, interface: bool = False, emulated: bool = False
) -> Mapping[str, str]:
    """Casts a model, in place, as `apply_precision` does for a strongly typed runtime, and compares nothing.

    Args:
        model: As for `apply_precision`.
        types: What is computed in which type.
        profile: The sizes that it was measured at; None: it was not.
        interface: Whether the inputs and outputs are cast too.
        emulated: Compute in float32 and round, so that ONNX Runtime can run it.

    Returns:
        Tensors of the main graph that go by another name now, by the one that they had.

    Raises:
        InputError: There is no node of a name.
    """
    refuse_unknown(model, types.nodes)
    if not kinds_of(types.precision, types.nodes):
        return {}
    _inline(model)
    ranges = _NO_SIZES
    if profile is not None:
        with Referee(model) as referee:
            ranges = referee.measure(model, profile)
    cast, emulate = casters(model, types.precision, types.nodes, ranges)
    result = (emulate if emulated else cast)(model)
    _cast_ends(model, types, interface)
    return result.lowered


_NO_SIZES = Ranges({}, "no sizes are known")


def _inline(model: OnnxModel) -> None:
    """What stays in a function stays in float32."""
    with contextlib.suppress(UnsupportedFunctions):
        model.inline_functions()


def _cast_ends(model: OnnxModel, types: Types, interface: bool) -> None:
    if interface and types.precision in _KINDS:
        cast_floats(model, _KINDS[types.precision].code)


def require_quantizers(model: OnnxModel) -> None:
    """Raises InputError where there is nothing to compute in int8."""
    if not any(True for _ in model.nodes(*_QUANTIZERS)):
        if model.has({"TRT_FP8QuantizeLinear", "TRT_FP8DequantizeLinear"}):
            raise InputError(
                f"{model.path} is quantised in float8, by TensorRT's own operators", "Leave out --precision int8."
            )
        raise InputError(
            f"{model.path}: --precision int8 needs QuantizeLinear and DequantizeLinear nodes, and the model has none",
            "Quantise it with samples of what it will see: trtconv quantize MODEL --data DIR -o OUT.onnx; or do both at"
            " once: --data.",
        )


def _cast(model: OnnxModel, types: Types, ranges: Ranges, referee: Referee, interface: bool) -> Applied:
    kind = max(kinds_of(types.precision, types.nodes), key=lambda candidate: candidate.largest)
    cast, emulate = casters(model, types.precision, types.nodes, ranges)
    why = ranges.why
    if kind is BFLOAT and model.opset < BFLOAT_SINCE:
        why = why or f"ONNX casts to bfloat16 since opset {BFLOAT_SINCE} only, and the model has {model.opset}"
    uncast = None if why else model.copy()
    result = cast(model)
    refuse_kept(types.required, result.refused, "random inputs of the optimal sizes", sampled=False)
    verified = CastCheck(why=why) if uncast is None else _verify(uncast, referee, emulate)
    _cast_ends(model, types, interface)
    reasons = {why.value: count for why, count in _counts(result)}
    report = CastRecord(kind.name, result.cast, reasons, tuple(result.hot), verified)
    inputs = "random" if types.sample is None else "the first of those that the types were chosen on"
    return Applied(
        _edits(result, kind, interface, verified.max_relative_error),
        tuple(_findings(result, verified, kind.name, inputs)),
        report,
    )


def kinds_of(precision: str, nodes: Mapping[str, str]) -> list[Kind]:
    """Returns the types that there are besides float32."""
    return [kind for kind in (HALF, BFLOAT) if kind is _KINDS.get(precision) or kind.name in nodes.values()]


def casters(
    model: OnnxModel, precision: str, nodes: Mapping[str, str], ranges: Ranges
) -> tuple[Callable[[OnnxModel], casting.Casting], Callable[[OnnxModel], casting.Casting]]:
    """Returns what casts the model, and what does so in emulation.

    Args:
        model: The model, its nodes named where some have types of their own.
        precision: Of the others.
        nodes: Names of nodes to types of their own.
        ranges: Which values it has.
    """
    kinds = kinds_of(precision, nodes)
    hot = {kind.name: _hot(model, ranges, kind) for kind in kinds}

    def run(model: OnnxModel, stored: bool, emulated: bool) -> casting.Casting:
        results = []
        for kind in kinds:
            usual = kind.name if kind is _KINDS.get(precision) else "as-is"
            # No TensorRT has a deconvolution in bfloat16 (TC109).
            exceptions = casting.KEPT | ({"ConvTranspose"} if kind is BFLOAT else frozenset())
            exceptions |= {op for op in OF_FEWER_TYPES if lacks_type(op, dtype_name(kind.code))}

            def is_cast(name: str, kind: Kind = kind, usual: str = usual) -> bool:
                return nodes.get(name, usual) == kind.name

            how = {"stored": stored, "emulated": emulated}
            results.append(casting.cast(model, kind, hot[kind.name], exceptions, is_cast, **how))
        return casting.joined(results)

    # Weights that do not fit stay in their file, and TensorRT casts them once, while it builds. Those that are rounded
    # in emulation are float32, and as large as before.
    emulate = functools.partial(run, stored=not model.external_files, emulated=True)
    return functools.partial(run, stored=model.fits_halved(), emulated=False), emulate


def _verify(model: OnnxModel, referee: Referee, emulate: Callable[[OnnxModel], object]) -> CastCheck:
    """Casts a model in place, and compares it with the original.

    It is emulated: ONNX Runtime has hardly a kernel for bfloat16, and takes the rounding between two nodes of float16
    that it computes in float32 out again.
    """
    emulate(model)
    return referee.compare(model)


BFLOAT_SINCE = 13


def _hot(model: OnnxModel, ranges: Ranges, kind: Kind) -> frozenset[str]:
    """Returns the tensors whose values do not fit, and those that are angles too large to be told apart."""
    limit = kind.largest / _MARGIN
    hot = {name for name, largest in ranges.largest.items() if not largest <= limit}
    for node in model.proto.graph.node:
        if node.op_type in _TRIGONOMETRY and not ranges.largest.get(node.input[0], 0.0) <= _LARGEST_ANGLE:
            hot.add(node.input[0])
    return frozenset(hot)


def _edits(outcome: casting.Casting, kind: Kind, interface: bool, error: float | None) -> tuple[Edit, ...]:
    if not outcome.cast:
        return ()
    counts = ", ".join(f"{count} {why.value}" for why, count in _counts(outcome))
    places = "inputs and outputs too" if interface else "inputs and outputs kept"
    what = f"{outcome.cast} nodes cast to {kind.name}, {places}"
    what += f"; in float32: {counts}" if counts else ""
    what += "" if error is None else f"; relative error {error:.2g}"
    return (Edit(f"cast-to-{kind.name}", "graph", what),)


def _findings(outcome: casting.Casting, verified: CastCheck, kind: str, inputs: str) -> list[Finding]:
    error, allowed = verified.max_relative_error, TOLERANCES[kind].relative
    findings = []
    unable = [why.value for why in casting.UNABLE if why in outcome.floats]
    if not outcome.cast and unable:
        text = f"no node could be cast ({', '.join(unable)}): the engine computes in the types of the model"
        fix = "Export the model in a newer opset, or cast it where it is made."
        findings.append(codes.CAST_NOT_VERIFIED.finding(text, Severity.WARNING, fix=fix))
    if error is None:
        findings.append(_not_verified(f"the cast was not compared with the original: {verified.why}"))
    elif math.isinf(error):
        names = [name for name, deviation in verified.outputs.items() if math.isinf(deviation)]
        text = f"output {names[0]!r} is not finite, or has another shape, after the cast"
        fix = "Build as-is, or in bf16, which holds larger values."
        findings.append(codes.CAST_NOT_FINITE.finding(text, fix=fix))
    elif error > allowed:
        name = max(verified.outputs, key=lambda output: verified.outputs[output])
        text = f"output {name!r} is off by {error:.2g} of its largest value after the cast; {allowed:g} is usual"
        fix = f"Compare it on real data: the inputs here were {inputs}. Build as-is where it matters."
        findings.append(codes.CAST_INACCURATE.finding(text, Severity.WARNING, fix=fix))
    return findings


def _counts(outcome: casting.Casting) -> list[tuple[casting.WhyKept, int]]:
    return sorted(outcome.floats.items(), key=lambda pair: pair[0].value)


def _not_verified(why: str) -> Finding:
    fix = "Compare the engine's results with the model's."
    return codes.CAST_NOT_VERIFIED.finding(why, Severity.INFO, fix=fix)
