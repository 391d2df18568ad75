"""What `build` is asked (`BuildRequest`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.agreement import AGREE, CodeFile
from trtconv.core.builder_options import BuilderOptions
from trtconv.core.dims import InputRange
from trtconv.core.documents.before import BuiltBefore
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside, with_ending
from trtconv.core.findings import Severity
from trtconv.core.frozen import frozen
from trtconv.core.interface import Interface, Result, Results, read_results
from trtconv.core.options import Flag, Option, Requirement, group, option
from trtconv.core.outputs import Output
from trtconv.core.preprocessing import EXAMPLE, Preprocessing, parse_images
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.code import EXTEND, PLUGINS, REFERENCES, SERIALIZED_PLUGINS
from trtconv.core.requests.common import (
    DIMS,
    FAIL_ON,
    LEAVE,
    NODE_PRECISIONS,
    PARTITION,
    PRECISION,
    PROFILES,
    PROVE,
    PROVE_TIME,
    REQUANTIZE,
    REWRITE,
    REWRITE_RULES,
    REWRITTEN,
    SELECTION,
    SUBSTITUTE,
    TARGET,
    VALUES,
)
from trtconv.core.requests.measured import DATA, MEASURED, METRIC, PREPROCESS, attention, error_budget
from trtconv.core.rewrite_rules import RewriteRule
from trtconv.core.selection import Selection
from trtconv.core.target import Target
from trtconv.core.tensor_io import TensorIo, TensorIos, read_io

_MOST_PROFILES = 9999


def _split(text: str | int) -> str:
    """Reads `--split`.

    Raises:
        InputError: It is neither a number above 0 nor auto.
    """
    text = str(text)
    if text == "auto" or (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= _MOST_PROFILES):
        return text
    raise InputError(
        f"--split {text!r} is neither a number of profiles (1 to {_MOST_PROFILES}) nor auto",
        "Write --split 3 or --split auto.",
    )


def _node_precisions(texts: Sequence[str]) -> Mapping[str, str]:
    """Reads `--node-precision`.

    Raises:
        InputError: One is not NODE=TYPE.
    """
    precisions = {}
    for text in texts:
        name, _, kind = text.rpartition("=")
        if not name or kind not in NODE_PRECISIONS:
            raise InputError(
                f"--node-precision {text!r} is not NODE=TYPE", f"TYPE is one of {', '.join(NODE_PRECISIONS)}."
            )
        precisions[name] = kind
    return precisions


QUANTIZED = Requirement(
    frozenset({"precision", "data"}),
    lambda request: request.precision == "int8" and request.data is not None,
    "{flag} goes with --precision int8 and --data; the precision is {precision}",
    "Add them, or leave out {flag}. --tolerance says which error --precision auto may make.",
)


_IO: Any = Option(
    {},
    (
        Flag(
            "--io",
            "Type of an input or output, and how its elements lie in memory: x=fp16, x=fp16:hwc8, y=int8:chw32. "
            "NAME may be inputs or outputs, for all that can. uint8 takes numbers 0 to 255, int8 the codes of the "
            "quantiser there. Repeatable.",
            metavar="NAME=TYPE[:FORMAT]",
            many=True,
            absent=(),
        ),
        Flag(
            "--inputIOFormats",
            "trtexec's spelling for inputs, in the model's order; one alone is for all.",
            metavar="TYPE:FORMAT,...",
        ),
        Flag("--outputIOFormats", "The same of outputs.", metavar="TYPE:FORMAT,..."),
    ),
    read=read_io,
    write=lambda io: [f"{name}={what}" for name, what in io.items()],
    settings={
        "io": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Input or output to TYPE[:FORMAT], as --io has it.",
        }
    },
    load=lambda io: {name: TensorIo.parse(text) for name, text in io.items()},
    save=lambda io: ({name: str(what) for name, what in io.items()},),
)
"""What inputs and outputs are to be; the rest stays as in the model."""


_CHANCE = Requirement(
    frozenset({"strip_weights"}),
    lambda request: not request.options.strip_weights,
    "{flag} has engines run, and with --strip-weights there is nothing to run",
    "Leave out {flag}, or the other.",
)
"""What it takes for several builds to be worth it."""


@frozen
class BuildSettings:
    """What of a request decides what the engine is."""

    _: dataclasses.KW_ONLY
    precision: str = PRECISION
    node_precisions: Mapping[str, str] = option(
        "--node-precision",
        "Compute nodes in another type than --precision says: fp32, fp16 or bf16. NODE is a name, a pattern such as "
        "'/decoder/*', or an operator, type:Softmax; the nearest counts. Repeatable.",
        metavar="NODE=TYPE",
        many=True,
        default={},
        read=_node_precisions,
        write=lambda types: [f"{name}={kind}" for name, kind in types.items()],
        key="node-precisions",
        schema={"type": "object", "additionalProperties": {"type": "string", "enum": list(NODE_PRECISIONS)}},
        load=dict,
        about="Node, pattern or type:OPERATOR to its type, whatever precision says: fp32, fp16 or bf16.",
    )
    tolerance: float = option(
        "--tolerance",
        "Largest error (rms) of an output, or the worst value of --metric. --precision auto stays within it, 0.001 "
        "unless given; the int8 model that is made with --data fails above it on held-out samples, 0.1 unless given.",
        metavar="E",
        takes=float,
        least=0,
        default=1e-3,
        absent=None,
        key="tolerance",
        about="Error (rms) that precision auto may make of an output, over its values; usually 0.001.",
        schema={"type": "number", "minimum": 0},
        requires=MEASURED,
    )
    metric: str | None = METRIC
    data: str | None = DATA
    preprocess: str | None = PREPROCESS
    rewrite: bool = REWRITE
    requantize: bool = REQUANTIZE
    rewrite_rules: tuple[RewriteRule, ...] = REWRITE_RULES
    substitute: tuple[str, ...] = SUBSTITUTE
    rounded: bool = option(
        "--round",
        "Move min, opt and max to sizes that the network accepts: min down, max up, opt to the nearest.",
        default=False,
        key="round",
        about="Move sizes that the network does not accept; default: false.",
    )
    split: str | None = option(
        "--split",
        "Divide the ranges into N optimization profiles, equal factors apart, at sizes that the network accepts; "
        "auto makes one for the opt and each of its halves and doubles. The batch is divided only where nothing else "
        "ranges.",
        metavar="N|auto",
        default=None,
        read=_split,
        key="split",
        about="Divide the ranges into that many profiles, or auto.",
        schema={"type": ["string", "integer"], "pattern": r"^(auto|[1-9]\d*)$"},
        load=_split,
    )
    options: BuilderOptions = group(
        BuilderOptions, "options", "How TensorRT's builder works, as the flags of build of the same names."
    )
    tune: bool = option(
        "--tune",
        "Time the forms that the rewrite of a transposed convolution can take on the GPU here, and take the fastest, "
        "in a network built as with --best-of 4; what was measured is kept beside the timing cache.",
        default=False,
        key="tune",
        about="Time the forms of transposed convolutions on the GPU, and take the fastest; default: false.",
        requires=REWRITTEN,
    )
    best_of: int = option(
        "--best-of",
        "Build the network N times, run the engines in turns on the GPU here, and keep the fastest: of kernels that "
        "are alike by themselves TensorRT takes one by chance.",
        metavar="N",
        takes=int,
        least=1,
        most=32,
        default=1,
        key="best-of",
        about="Build so often, and keep the fastest engine; default: 1, and 4 with tune.",
        requires=_CHANCE,
    )
    io: TensorIos = _IO
    images: Preprocessing | None = option(
        "--images",
        "Let the engine take images, uint8 in NHWC, and put what makes an input of them into the network; "
        "--preprocess without --data says the same. As --preprocess, with filter=bicubic|bilinear|linear|nearest, "
        "letterbox=FILL, and image=HxW[+HxW], pixels=rgb|bgr|rgba|bgra|gray|nv12|nv12-bt709, input=NAME of what it "
        "takes.",
        metavar="KEY=VALUE,...",
        default=None,
        read=parse_images,
        load=parse_images,
        key="images",
        save=lambda how: (str(how),),
        about=f"What becomes of the images that the engine then takes, such as {EXAMPLE}; default: it takes none.",
    )
    results: Results = option(
        "--postprocess",
        "Let an output be what it stands for: softmax, sigmoid or argmax (int32), along axis 1 or :AXIS. OUTPUT= may "
        "be left out where there is one. Repeatable.",
        metavar="[OUTPUT=]OPERATION[:AXIS]",
        many=True,
        default={},
        read=read_results,
        write=lambda results: [f"{name}={what}" for name, what in results.items()],
        key="postprocess",
        schema={"type": "object", "additionalProperties": {"type": "string"}},
        load=lambda results: {name: Result.parse(text) for name, text in results.items()},
        save=lambda results: ({name: str(what) for name, what in results.items()},),
        about="Output to softmax, sigmoid or argmax, with :AXIS where that is not 1.",
    )
    cast_interface: bool = option(
        "--cast-io",
        "Give inputs and outputs the precision too; they keep theirs otherwise. --io names them one by one.",
        default=False,
        key="cast-io",
        about="Cast inputs and outputs to the precision too; default: false.",
    )

    @property
    def interface(self) -> Interface:
        """What the engine is to take and to return."""
        return Interface(self.images, self.io, self.results)


@frozen
class BuildRequest(BuildSettings, Request):
    """A call of `trtconv build`.

    Args:
        model: The .onnx file; never written.
        engine: Where the engine goes; default: the model's path with the suffix .engine.
        report: Where the report goes; default: the engine's path with ".json" appended.
        timing_cache: File of TensorRT's timing cache.
        tactics_of: Report of a build whose tactics are taken.
        before: What is taken of it, where the report is on another machine.
        timing_folder: Folder for one such file a version and GPU, where no file is given. None of both: no cache.
        within: Folder of the configuration that names the engine; None: none does.
    """

    model: Path
    engine: Path | None = option(
        "-o --output",
        "Where the engine goes. Default: MODEL with the suffix .engine.",
        metavar="ENGINE",
        default=None,
        writes=True,
    )
    dims: Bounds = DIMS
    profiles: tuple[Bounds, ...] = PROFILES
    values: Mapping[str, InputRange] = VALUES
    target: Target | None = TARGET
    fail_on: Severity | None = FAIL_ON
    selection: Selection = SELECTION._replace(flags=())
    report: Path | None = option(
        "--report", "Where the report goes. Default: ENGINE.json.", metavar="FILE", default=None, writes=True
    )
    sign: Path | None = option(
        "--sign",
        "Sign engine and report with this private Ed25519 key (PEM). What is there and is not signed by it is built "
        "again.",
        metavar="KEY",
        default=None,
        reads="the key to sign with",
    )
    extend: tuple[CodeFile, ...] = EXTEND
    mend: bool = option(
        "--no-mend",
        "Where the builder refuses a node, do not try it in other forms.",
        default=True,
        key="mend",
        about="Whether nodes that the builder refuses are tried in other forms; default: true.",
    )
    prove: str = PROVE
    prove_time: float = PROVE_TIME
    plugins: tuple[CodeFile, ...] = PLUGINS
    serialized_plugins: tuple[CodeFile, ...] = SERIALIZED_PLUGINS
    references: tuple[CodeFile, ...] = REFERENCES
    agree: tuple[str, ...] = AGREE
    error_budget: float | None = error_budget("--error-budget", QUANTIZED)
    attention: bool = attention(QUANTIZED)
    force: bool = option("--force", "Build even where model, plan and runtime have not changed.", default=False)
    timing_cache: Path | None = option(
        "--timing-cache",
        "Where TensorRT keeps what it measured, which later builds need not measure again. auto: the user's cache "
        "folder, a file for each version and GPU. TensorRT-RTX measures nothing and has none.",
        metavar="FILE|auto|none",
        default=None,
        absent="auto",
        read=lambda text: None if text == "none" else text,
        writes=True,
    )
    tactics_of: Path | None = option(
        "--as",
        "Build with the tactics that the layers of another engine got, by its report: the same kernels, so the same "
        "speed and the same numbers. Layers that do not get theirs are named (TC413).",
        metavar="ENGINE.json",
        default=None,
        reads="the report whose tactics are taken",
    )
    partition: bool = PARTITION
    leave: tuple[str, ...] = LEAVE
    timing_folder: Path | None = None
    before: BuiltBefore | None = None
    within: Path | None = dataclasses.field(default=None, compare=False)

    @functools.cached_property
    def engine_path(self) -> Path:
        """Where the engine goes."""
        return self.engine or with_ending(self.model, ".engine")

    @functools.cached_property
    def report_path(self) -> Path:
        """Where the report goes."""
        return self.report or report_beside(self.engine_path)

    @property
    def outputs(self) -> tuple[Output, Output]:
        """The engine and the report, and who named them."""
        engine = Output(self.engine_path, "the engine", self.engine is not None and self.within is None, self.within)
        within = None if self.report is not None else self.within
        return engine, Output(self.report_path, "the report", self.report is not None, within)

    def beside(self, kind: str) -> Output:
        """Returns where what verify or bench found of the engine goes."""
        path = self.engine_path.with_name(f"{self.engine_path.name}.{kind}.json")
        return Output(path, f"what {kind} found", typed=False, within=self.within)
