"""How TensorRT is to build: the options of its builder that people use, under one set of names."""

from __future__ import annotations

import dataclasses
import re

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import settle

HARDWARE = ("none", "ampere+", "same-compute-capability")
VERBOSITIES = ("none", "layer-names", "detailed")
_MOST_BYTES = 2**63 - 1
_LEAST_WORKSPACE = 1 << 20
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text: str) -> int:
    """Reads a size such as 512M, 2G or 16777216 (bytes).

    Raises:
        InputError: It is none.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if not 0 < size <= _MOST_BYTES:
        raise InputError(f"{text!r} is not a size", "Write it as in 512M or 2G.")
    return size


def parse_workspace(text: str) -> int:
    """Reads the size of a workspace, as `parse_bytes`.

    Raises:
        InputError: It is none, or so small that nobody means it: a number without a unit is of MiB for trtexec.
    """
    size = parse_bytes(text)
    if size >= _LEAST_WORKSPACE:
        return size
    if text.strip().isdecimal():
        raise InputError(
            f"--workspace {text} is {text} bytes, too little for any network",
            f"Say the unit: --workspace {text.strip()}M is that many MiB, as trtexec means it.",
        )
    raise InputError(f"--workspace {text} is less than 1 MiB, too little for any network", "Give more: --workspace 1G.")


@frozen
class BuilderOptions:
    """Options of TensorRT's builder; None leaves TensorRT's own default."""

    workspace_bytes: int | None = option(
        "--workspace",
        "Most scratch memory that a layer may use, such as 512M or 2G.",
        metavar="SIZE",
        default=None,
        read=parse_workspace,
        key="workspace",
        about="Most scratch memory of a layer: 512M, 2G.",
        schema={"type": ["string", "integer"]},
        load=lambda size: parse_workspace(str(size)),
    )
    optimization_level: int | None = option(
        "--optimization-level",
        "How long TensorRT looks for fast kernels; its default is 3.",
        metavar="0-5",
        takes=int,
        least=0,
        most=5,
        default=None,
        key="optimization-level",
        about="0 to 5; TensorRT's default is 3.",
    )
    share_profiles: bool = option(
        "--share-profiles",
        "Let several execution contexts use an optimization profile at a time; TensorRT 10 and newer always do.",
        default=False,
        key="share-profiles",
    )
    version_compatible: bool = option(
        "--version-compatible",
        "Make an engine that newer versions of TensorRT run too.",
        default=False,
        key="version-compatible",
    )
    exclude_lean_runtime: bool = option(
        "--exclude-lean-runtime",
        "Leave the lean runtime out of a version-compatible engine, which is smaller then, and takes --lean-runtime "
        "LIB where another version of TensorRT runs it.",
        default=False,
        key="exclude-lean-runtime",
    )
    hardware: str = option(
        "--hardware-compatibility",
        "On which other GPUs the engine runs.",
        takes=HARDWARE,
        default="none",
        key="hardware-compatibility",
    )
    strip_weights: bool = option(
        "--strip-weights", "Leave the weights out; refitting puts them back.", default=False, key="strip-weights"
    )
    refittable: bool = option(
        "--refittable", "Make an engine whose weights can be replaced.", default=False, key="refittable"
    )
    weight_streaming: bool = option(
        "--weight-streaming",
        "Let weights stay in host memory while the engine runs.",
        default=False,
        key="weight-streaming",
    )
    sparsity: bool = option("--sparsity", "Allow kernels for weights with 2:4 sparsity.", default=False, key="sparsity")
    tf32: bool | None = option(
        "--tf32/--no-tf32",
        "Compute float32 in TF32 where the GPU has it; the default is yes.",
        default=None,
        key="tf32",
    )
    max_aux_streams: int | None = option(
        "--max-aux-streams",
        "Most streams that the engine runs layers on beside its own; 0 for none. The default is TensorRT's guess.",
        metavar="N",
        takes=int,
        least=0,
        most=128,
        default=None,
        key="max-aux-streams",
        about="Most streams that the engine runs layers on beside its own; default: TensorRT's guess.",
    )
    profiling_verbosity: str | None = option(
        "--profiling-verbosity",
        "What the engine tells of its layers; TensorRT's default is layer-names.",
        takes=VERBOSITIES,
        default=None,
        key="profiling-verbosity",
    )
    keep_tactics: bool = option(
        "--keep-tactics",
        "Keep in the report which tactic each layer got, for build --as. The build then measures anew, with no timing "
        "cache but its own. On TensorRT 8.6 it needs an optimization level of 1 or more.",
        default=False,
        key="keep-tactics",
        about="Keep in the report which tactic each layer got; default: false.",
    )
    error_on_timing_cache_miss: bool = option(
        "--error-on-timing-cache-miss",
        "Measure nothing: what the timing cache lacks ends the build. The same kernels are taken as where the cache is "
        "from. Best with --timing-cache FILE; TensorRT 10 and newer.",
        default=False,
        key="error-on-timing-cache-miss",
        about="End where the timing cache lacks a measurement, rather than measure; default: false.",
    )
    direct_io: bool = option(
        "--direct-io",
        "Take inputs and give outputs without copies into other formats; refused where a kernel lacks the format.",
        default=False,
        key="direct-io",
    )
    debug_tensors: tuple[str, ...] = option(
        "--debug-tensor",
        "A tensor inside the network that the engine can show, by its name in the model, a pattern such as "
        "'/decoder/*', or type:OPERATOR; run --tensor and verify --save-tensors have its values. Layers are not fused "
        "across it. TensorRT 10 and newer, and TensorRT-RTX. Repeatable.",
        metavar="TENSOR",
        many=True,
        default=(),
        key="debug-tensors",
        about="Tensors inside the network that the engine can show: names, patterns or type:OPERATOR.",
        schema={"type": "array", "items": {"type": "string"}},
        load=tuple,
    )
    compute_capabilities: tuple[str, ...] = option(
        "--compute-capability",
        "Build for this GPU, such as 8.9; TensorRT-RTX only. Repeatable. 7.5 must be asked for.",
        metavar="X.Y",
        many=True,
        default=(),
        key="compute-capabilities",
        about="GPUs to build for, such as 7.5; TensorRT-RTX only.",
        schema={
            "type": "array",
            "items": {"type": "string", "pattern": r"^\d{1,2}\.\d$", "description": "As 7.5 or 12.0."},
        },
        load=tuple,
    )

    def __post_init__(self) -> None:
        settle(self)
        if self.workspace_bytes is not None and not 0 < self.workspace_bytes <= _MOST_BYTES:
            raise InputError(f"{self.workspace_bytes} bytes cannot be a workspace", "Give 1 to 2**63 - 1 bytes.")
        if self.exclude_lean_runtime and not self.version_compatible:
            raise InputError(
                "--exclude-lean-runtime is about engines that other versions run", "Add --version-compatible."
            )
        for text in self.compute_capabilities:
            if not re.fullmatch(r"\d{1,2}\.\d", text):
                match = re.fullmatch(r"(?:sm_?|compute_?)?(\d{1,2})(\d)", text)
                hint = f"Did you mean {match[1]}.{match[2]}?" if match else "Write it as in 7.5 or 12.0."
                raise InputError(f"{text!r} is not a compute capability", hint)

    @property
    def refits(self) -> bool:
        """Whether the engine takes weights after it was built."""
        return self.refittable or self.strip_weights

    def to_json(self) -> dict[str, object]:
        """Returns what differs from TensorRT's defaults, as plain JSON values."""
        document = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                document[field.name] = list(value) if isinstance(value, tuple) else value
        return document
