"""What several requests and reports share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trtconv.core.dim_flags import parse_bounds, parse_profiles, parse_values, write_bounds, write_values
from trtconv.core.dims import Range
from trtconv.core.encode import plain
from trtconv.core.errors import InputError
from trtconv.core.findings import Severity
from trtconv.core.options import Flag, Option, Requirement, option
from trtconv.core.requests.base import Bounds
from trtconv.core.rewrite_rules import KEY, RULE_SCHEMA, read_files, rules_of
from trtconv.core.selection import Selection
from trtconv.core.target import FAMILIES, Target

PRECISIONS = ("as-is", "fp16", "bf16", "int8", "auto")
NODE_PRECISIONS = ("fp32", "fp16", "bf16")
"""What single nodes can be computed in."""
PROOFS = ("none", "quick", "full", "required")
"""How much is proven: nothing; every piece, by its definition or else by a run, and with runs the whole at one size;
every piece by a run, and the whole at min, opt and max of every profile; the same; what is not shown is an error."""


def _bounds(dims: Mapping[str, str | int]) -> Bounds:
    return {name: Range.parse(str(text)) for name, text in dims.items()}


def _severity(text: str) -> Severity | None:
    return None if text == "never" else Severity(text)


BOUNDS_PATTERN = r"^\d+(:\d+){0,2}$"
TARGET_PATTERN = rf"^(auto|({'|'.join(FAMILIES)})(-\d+(\.\d+)*)?(@.+)?)$"
_DIMS_SCHEMA = {
    "type": "object",
    "description": "Dimension name, or INPUT:AXIS, to its bounds: MIN:OPT:MAX, MIN:MAX or N.",
    "additionalProperties": {"type": ["string", "integer"], "pattern": BOUNDS_PATTERN},
}

DIMS: Any = Option(
    {},
    (
        Flag(
            "--dim",
            "Bound a dynamic dimension everywhere it occurs; NAME=N fixes it. NAME is the dimension's name in the "
            "model, or INPUT:AXIS (x:2) for one without a name. Repeatable.",
            metavar="NAME=MIN:OPT:MAX",
            many=True,
            absent=(),
        ),
        Flag(
            "--input",
            "Bound all axes of an input at once, as in x=1:1:4,3,64:256:512,64:256:512, or a plain shape, x=1x3x64x64; "
            "_ leaves an axis out. "
            "Repeatable.",
            metavar="INPUT=BOUNDS,...",
            many=True,
            absent=(),
        ),
    ),
    read=parse_bounds,
    write=write_bounds,
    settings={"dims": _DIMS_SCHEMA},
    load=_bounds,
)
"""Bounds that hold in every profile."""

PROFILES: Any = Option(
    (),
    (
        Flag(
            "--profile",
            "Make one optimization profile with these bounds, laid over those of --dim. Repeatable.",
            metavar="NAME=MIN:OPT:MAX,...",
            many=True,
            absent=(),
        ),
        Flag(
            "--minShapes",
            "trtexec's spelling of a single profile: smallest shapes, such as x:1x3x64x64.",
            metavar="INPUT:SHAPE,...",
        ),
        Flag(
            "--optShapes",
            "Shapes to optimize for. Alone, without the other two: the only shapes.",
            metavar="INPUT:SHAPE,...",
        ),
        Flag("--maxShapes", "Largest shapes.", metavar="INPUT:SHAPE,..."),
    ),
    read=parse_profiles,
    write=lambda profiles: [",".join(write_bounds(profile)) for profile in profiles],
    settings={
        "profiles": {
            "type": "array",
            "items": _DIMS_SCHEMA,
            "description": "One entry an optimization profile, each laid over dims.",
        }
    },
    load=lambda profiles: tuple(_bounds(profile) for profile in profiles),
    save=lambda profiles: ([plain(profile) for profile in profiles],),
)
"""One entry an optimization profile, each laid over `dims`; empty means one profile from `dims`."""

VALUES: Any = option(
    "--value",
    "Bound the elements of an integer input that holds a shape or a count: size=64x64:128x128:256x256. Repeatable.",
    metavar="INPUT=MIN:OPT:MAX",
    many=True,
    default={},
    read=parse_values,
    write=write_values,
    key="values",
    schema={
        "type": "object",
        "description": "Input that holds a shape or a count to the bounds of its elements, as --value takes them.",
        "additionalProperties": {"type": ["string", "integer"]},
    },
    load=lambda table: parse_values([f"{name}={text}" for name, text in table.items()]),
    save=lambda values: (dict(text.rsplit("=", 1) for text in write_values(values)),),
)
"""Bounds of the elements of inputs that hold shapes or counts."""

TARGET: Any = option(
    "--target",
    "auto (the installed tensorrt if it works here, else rtx), rtx, tensorrt, or a version to check against, such "
    "as tensorrt-8.6; with @ and a GPU, tensorrt-10@rtx-4090 or @cc8.9, to build on that GPU alone.",
    metavar="TARGET",
    default=None,
    absent="auto",
    read=Target.of_flag,
    key="targets",
    schema={
        "type": "array",
        "items": {"type": "string", "pattern": TARGET_PATTERN},
        "minItems": 1,
        "description": "What to check against and build for; default: auto, the TensorRT that is installed.",
    },
    load=lambda targets: Target.of_flag(targets[0]),
    save=lambda target: ([str(target)],),
)
"""None picks the installed runtime."""

PRECISION: Any = option(
    "--precision",
    "What to compute in; the same meaning in every TensorRT version. as-is: as the model says; int8: its quantised "
    "layers in int8, the rest in float16; auto: the fastest mix of types within --tolerance, measured on --data.",
    takes=PRECISIONS,
    default="as-is",
    key="precision",
    about="What to compute in; default: as-is.",
)
"""One of `PRECISIONS`."""

PROVE: Any = option(
    "--prove",
    "Compare what TensorRT parsed with the model, without a GPU: not at all; piece by piece, by definition or run, "
    "then as a whole too, at the smallest sizes; all of it run, as a whole at min, opt and max of every profile; the "
    "same, and whatever is not shown is an error.",
    takes=PROOFS,
    default="quick",
    key="prove",
    about="How much of the parsed network is proven: none, quick (the default), full or required.",
)
"""How much of the parsed network is proven."""

PROVE_TIME: Any = option(
    "--prove-time",
    "How many seconds the proof may take beyond the build; what it has not shown by then is told.",
    metavar="S",
    takes=float,
    least=0,
    default=60,
    key="prove-time",
    about="How many seconds the proof may take beyond the build; default: 60. More than 600 is for the command line.",
    schema={"type": "number", "minimum": 0, "maximum": 600},
    load=float,
)
"""How long the proof may take."""

REWRITE: Any = option(
    "--no-rewrite",
    "Hand the model to TensorRT as it is.",
    default=True,
    key="rewrite",
    about="Whether the passes run; default: true.",
)
"""Whether the passes run."""

REWRITTEN = Requirement(
    frozenset({"no_rewrite"}),
    lambda request: request.rewrite,
    "{flag} is about what the rewrite does, and --no-rewrite leaves it out",
    "Leave out {flag} or --no-rewrite (in trtconv.toml: {key} = true or rewrite = false).",
)
_SUBSTITUTES = ("efficient-nms", "deformable-attention")


def _substitutes(names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in _SUBSTITUTES:
            raise InputError(f"{name!r} is not a substitute", f"Substitutes: {', '.join(_SUBSTITUTES)}.")
    return tuple(dict.fromkeys(names))


REQUANTIZE: Any = option(
    "--requantize",
    "Requantise asymmetric tensors symmetrically in int8. Changes numbers, by at most what the edits state; without "
    "it such tensors are computed in float, bit for bit.",
    default=False,
    key="requantize",
    about="Requantise asymmetric tensors symmetrically; default: false.",
    requires=REWRITTEN,
)
"""Whether asymmetric tensors are requantised symmetrically in int8, which changes numbers."""

REWRITE_RULES: Any = option(
    "--rewrite-rules",
    "Rewrite the model by these rules too, before the passes: TOML with ONNX texts, which is no code. Each is shown to "
    "keep the numbers before it is used. Repeatable.",
    metavar="FILE.toml",
    many=True,
    default=(),
    read=read_files,
    write=lambda rules: [],
    key=KEY,
    about="Rules of rewriting: tables as docs/extending.md shows them, or files that hold such tables.",
    schema={"type": "array", "items": RULE_SCHEMA},
    load=rules_of,
    save=lambda rules: ([rule.to_json() for rule in rules],),
    requires=REWRITTEN,
)
"""Rules of rewriting without code."""

SUBSTITUTE: Any = option(
    "--substitute",
    "Put a plugin of the full TensorRT where it computes the same: efficient-nms (EfficientNMS_TRT, the end of a "
    "detector) or deformable-attention (MultiscaleDeformableAttnPlugin_TRT). check offers what it finds. Repeatable.",
    metavar="NAME",
    many=True,
    default=(),
    read=_substitutes,
    load=_substitutes,
    key="substitute",
    about="Plugins that are put in the place of what computes the same: efficient-nms, deformable-attention.",
    schema={"type": "array", "items": {"enum": list(_SUBSTITUTES)}},
    requires=REWRITTEN,
)
"""Plugins that stand for what a model computes otherwise."""

FAIL_ON: Any = option(
    "--fail-on",
    "Exit with 1 where a finding is at least this bad.",
    takes=("error", "warning", "never"),
    default=Severity.ERROR,
    absent="error",
    read=_severity,
    key="fail-on",
    about="Lowest severity of a finding that fails; default: error.",
    load=_severity,
    save=lambda severity: ("never" if severity is None else severity.value,),
)
"""Lowest severity of a finding that fails; None: never."""

SELECTION: Any = Option(
    Selection(),
    (
        Flag("--select", "Let only these findings count. TC3 means all TC3xx.", metavar="CODE", many=True, absent=()),
        Flag("--ignore", "Leave these findings out. Repeatable, as --select is.", metavar="CODE", many=True, absent=()),
    ),
    read=Selection.parse,
    settings={
        "select": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Rule codes, beginnings of codes (TC3) or rule names that count; default: all.",
        },
        "ignore": {
            "type": "array",
            "description": "Findings that are known and accepted.",
            "items": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "description": "A rule code, the beginning of one, or a rule name."},
                    "reason": {"type": "string", "minLength": 1, "description": "Why it is accepted."},
                },
                "required": ["code", "reason"],
                "additionalProperties": False,
            },
        },
    },
    load=lambda select, ignore: Selection(
        tuple(select or ()), {entry["code"]: entry["reason"] for entry in ignore or ()}
    ),
    save=lambda selection: (
        list(selection.select),
        [{"code": code, "reason": reason or "asked for"} for code, reason in selection.ignore.items()],
    ),
)
"""Which findings count."""


PARTITION: Any = option(
    "--partition",
    "Build engines of the parts that TensorRT takes, leave the rest to ONNX Runtime, and write MODEL.pipeline.json, "
    "which run and verify take (docs/partition.md).",
    default=False,
)

PARTITIONED = Requirement(
    frozenset({"partition"}),
    lambda request: request.partition,
    "{flag} says what --partition leaves to ONNX Runtime",
    "Add --partition, or leave out {flag}.",
)

LEAVE: Any = option(
    "--leave",
    "With --partition: leave these nodes to ONNX Runtime too; a name or type:OPERATOR, with * and ?. Repeatable.",
    metavar="PATTERN",
    many=True,
    default=(),
    absent=(),
    read=tuple,
    requires=PARTITIONED,
)
