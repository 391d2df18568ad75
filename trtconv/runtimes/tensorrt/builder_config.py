"""Sets `BuilderOptions` on TensorRT's builder config, and says what the installed version lacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from trtconv.core import codes
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import InputError
from trtconv.core.findings import Finding, Severity
from trtconv.core.frozen import frozen
from trtconv.runtimes.tensorrt.debug_tensors import can_show
from trtconv.runtimes.tensorrt.tactics import has_editable_cache, has_selector

_HARDWARE = {"ampere+": "AMPERE_PLUS", "same-compute-capability": "SAME_COMPUTE_CAPABILITY"}
_VERBOSITY = {"none": "NONE", "layer-names": "LAYER_NAMES_ONLY", "detailed": "DETAILED"}
_SHARING = "PROFILE_SHARING_0806"
"""What 8.6 has to be told; later ones share anyway, and in the end no longer have the name."""
_TURING = "7.5"
_NO_FP8 = ("7.5", "8.0", "8.6")


@frozen
class _Option:
    """One option that not every TensorRT has.

    Args:
        flag: As on the command line.
        is_set: Whether it was asked for.
        has: Whether a TensorRT module has it.
        where: Which TensorRT has it.
    """

    flag: str
    is_set: Callable[[BuilderOptions], bool]
    has: Callable[[Any], bool]
    where: str


def _flag(name: str) -> Callable[[Any], bool]:
    return lambda trt: hasattr(trt.BuilderFlag, name)


def _not_rtx(trt: Any) -> bool:
    # Its interface has what these options are set with, and its documents and messages say that it takes no notice.
    return not _is_rtx(trt)


def _is_rtx(trt: Any) -> bool:
    return hasattr(trt.IBuilderConfig, "set_compute_capability")


_OPTIONS = (
    _Option(
        "--optimization-level",
        lambda o: o.optimization_level is not None,
        lambda trt: hasattr(trt.IBuilderConfig, "builder_optimization_level"),
        "TensorRT 8.6 and newer",
    ),
    _Option(
        "--version-compatible",
        lambda o: o.version_compatible,
        lambda trt: _flag("VERSION_COMPATIBLE")(trt) and _not_rtx(trt),
        "TensorRT 8.6 and newer (not TensorRT-RTX)",
    ),
    _Option(
        "--hardware-compatibility ampere+",
        lambda o: o.hardware == "ampere+",
        lambda trt: hasattr(trt, "HardwareCompatibilityLevel") and _not_rtx(trt),
        "TensorRT 8.6 and newer; engines of TensorRT-RTX run on Ampere and newer anyway",
    ),
    _Option(
        "--hardware-compatibility same-compute-capability",
        lambda o: o.hardware == "same-compute-capability",
        lambda trt: hasattr(trt.HardwareCompatibilityLevel, "SAME_COMPUTE_CAPABILITY") and _not_rtx(trt),
        "TensorRT 10.16 and 11; engines of TensorRT-RTX run on Ampere and newer anyway",
    ),
    _Option(
        "--strip-weights", lambda o: o.strip_weights, _flag("STRIP_PLAN"), "TensorRT 10 and newer, and TensorRT-RTX"
    ),
    _Option(
        "--weight-streaming",
        lambda o: o.weight_streaming,
        _flag("WEIGHT_STREAMING"),
        "TensorRT 10 and newer, and TensorRT-RTX",
    ),
    _Option(
        "--error-on-timing-cache-miss",
        lambda o: o.error_on_timing_cache_miss,
        lambda trt: _flag("ERROR_ON_TIMING_CACHE_MISS")(trt) and _not_rtx(trt),
        "TensorRT 10 and newer; TensorRT-RTX measures nothing",
    ),
    _Option(
        "--keep-tactics",
        lambda o: bool(o.keep_tactics),
        lambda trt: has_selector(trt) or has_editable_cache(trt),
        "TensorRT, which chooses kernels while it builds; TensorRT-RTX does where the engine runs",
    ),
    _Option("--debug-tensor", lambda o: bool(o.debug_tensors), can_show, "TensorRT 10 and newer, and TensorRT-RTX"),
    _Option(
        "--compute-capability",
        lambda o: bool(o.compute_capabilities),
        _is_rtx,
        "TensorRT-RTX; TensorRT builds for the GPU that it runs on",
    ),
)


def lacking(trt: Any, product: str, options: BuilderOptions) -> tuple[Finding, ...]:
    """Says what was asked for and the installed TensorRT does not have.

    Args:
        product: Its name and version, for the message.
        options: What was asked for.
    """
    findings = [
        _lacks(option.flag, product, option.where)
        for option in _OPTIONS
        if option.is_set(options) and not option.has(trt)
    ]
    if _is_rtx(trt):
        findings += [
            _lacks(
                f"--compute-capability {text}", product, f"it knows {', '.join(_capabilities(trt))}", only_value=True
            )
            for text in options.compute_capabilities
            if text not in _capabilities(trt)
        ]
    return tuple(findings)


def _lacks(flag: str, product: str, where: str, *, only_value: bool = False) -> Finding:
    fix = f"Leave it out: {where}." if only_value else f"Leave it out, or build with what has it: {where}."
    return codes.OPTION_MISSING.finding(f"{product} has no {flag}", fix=fix)


def _capabilities(trt: Any) -> list[str]:
    """Returns the compute capabilities that a TensorRT-RTX can build for, as they are written: "8.6"."""
    names = [name for name in trt.ComputeCapability.__members__ if name.startswith("SM")]
    return sorted((f"{name[2:-1]}.{name[-1]}" for name in names), key=float)


def limits(options: BuilderOptions, dtypes: set[str]) -> Iterator[Finding]:
    """Yields what GPUs that were asked for cannot do. Source: TensorRT-RTX 1.5 support matrix.

    Args:
        options: What was asked for.
        dtypes: Types of the network's tensors, by TensorRT's names.
    """
    capabilities = options.compute_capabilities
    if _TURING in capabilities:
        for dtype, name in (("BF16", "bfloat16"), ("INT4", "int4 weights"), ("FP4", "float4")):
            if dtype in dtypes:
                yield _cannot(f"compute capability 7.5 does not compute {name}", Severity.ERROR)
        if options.tf32:
            yield _cannot("compute capability 7.5 has no TF32; float32 is computed as such", Severity.WARNING)
        if len(capabilities) > 1:
            text = "an engine for compute capability 7.5 and others is slower on the others"
            yield _cannot(text, Severity.WARNING, "Build one engine for 7.5 and one for the others.")
    for text in sorted(set(capabilities) & set(_NO_FP8)):
        if "FP8" in dtypes:
            yield _cannot(f"compute capability {text} does not compute float8", Severity.ERROR)


def _cannot(message: str, severity: Severity, fix: str = "Use another precision, or leave that GPU out.") -> Finding:
    return codes.GPU_LIMIT.finding(message, severity, fix=fix)


def require_timings(plan: BuildPlan) -> None:
    """Raises InputError where nothing may be measured, and no file has what was."""
    if not plan.options.error_on_timing_cache_miss or plan.trial:
        return
    if plan.tactics or plan.options.keep_tactics:
        what = "--as and --keep-tactics measure anew, and --error-on-timing-cache-miss allows nothing to be measured"
        raise InputError(what, "Leave out one of them.")
    if plan.timing_cache is None or not plan.timing_cache.exists():
        where = "there is none" if plan.timing_cache is None else f"{plan.timing_cache} is not there"
        raise InputError(
            f"--error-on-timing-cache-miss takes all timings from the timing cache, and {where}",
            "Build once without it, with the same --timing-cache FILE.",
        )


def refused(plan: BuildPlan, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Returns why the builder refused, and what to do where it may be that a timing was not there."""
    if not plan.options.error_on_timing_cache_miss or plan.trial:
        return findings
    fix = "Where the timing cache lacks something, build once on this GPU without --error-on-timing-cache-miss."
    return tuple(dataclasses.replace(finding, fix=f"{finding.fix} {fix}".strip()) for finding in findings)


def apply(trt: Any, config: Any, options: BuilderOptions, *, trial: bool = False) -> None:
    """Sets the options on a builder config of a TensorRT that has them all (`lacking`).

    Args:
        config: Its builder config.
        options: What was asked for.
        trial: Whether the engine is thrown away, and may be measured whatever the options say.
    """
    for flag in _flags(options, trial):
        config.set_flag(getattr(trt.BuilderFlag, flag))
    if options.tf32 is False:
        config.clear_flag(trt.BuilderFlag.TF32)
    if options.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.max_aux_streams is not None:
        config.max_aux_streams = options.max_aux_streams
    _set_previews(trt, config, options)
    if options.hardware != "none":
        config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, _HARDWARE[options.hardware])
    if options.profiling_verbosity is not None:
        config.profiling_verbosity = getattr(trt.ProfilingVerbosity, _VERBOSITY[options.profiling_verbosity])
    if options.compute_capabilities:
        config.num_compute_capabilities = len(options.compute_capabilities)
        for index, text in enumerate(options.compute_capabilities):
            config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{text.replace('.', '')}"), index)


def _set_previews(trt: Any, config: Any, options: BuilderOptions) -> None:
    """Switches features on, of a TensorRT where they are not yet usual."""
    feature = getattr(getattr(trt, "PreviewFeature", None), _SHARING, None)
    if options.share_profiles and feature is not None:
        config.set_preview_feature(feature, True)


def _flags(options: BuilderOptions, trial: bool) -> Iterator[str]:
    """Yields the names of the builder flags that are to be set."""
    flags = {
        "ERROR_ON_TIMING_CACHE_MISS": options.error_on_timing_cache_miss and not trial,
        "VERSION_COMPATIBLE": options.version_compatible,
        "EXCLUDE_LEAN_RUNTIME": options.exclude_lean_runtime,
        "STRIP_PLAN": options.strip_weights,
        # Without more, stripped weights are put back as they were; that leaves TensorRT all its optimisations.
        "REFIT_IDENTICAL": options.strip_weights and not options.refittable,
        "REFIT": options.refittable,
        "WEIGHT_STREAMING": options.weight_streaming,
        "SPARSE_WEIGHTS": options.sparsity,
        "TF32": options.tf32,
        "DIRECT_IO": options.direct_io,
    }
    yield from (name for name, is_set in flags.items() if is_set)
