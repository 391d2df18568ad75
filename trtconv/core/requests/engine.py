"""What verify, run, refit, inspect and warm are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trtconv.core.agreement import CodeFile
from trtconv.core.dim_flags import parse_dims
from trtconv.core.files import with_ending
from trtconv.core.frozen import frozen
from trtconv.core.options import Requirement, group, option
from trtconv.core.requests.base import Bounds, Request, settle
from trtconv.core.requests.code import EXTEND, LEAN_RUNTIME, PLUGINS, REFERENCES
from trtconv.core.requests.common import PROOFS, PROVE, PROVE_TIME

REPORT: Any = option(
    "--report", "The engine's report. Default: ENGINE.json.", metavar="FILE", default=None, reads="the report"
)
TRUST: Any = option(
    "--trust",
    "Load an engine that has no report, or another one. Loading an engine runs code that is in it.",
    default=False,
)
KEY: Any = option(
    "--key",
    "Public key (PEM) whose owner must have signed the engine (build --sign); it is then trusted.",
    metavar="PUB",
    default=None,
    reads="a key",
)
WEIGHTS: Any = option(
    "--weights",
    "The .onnx file that an engine was built from with --strip-weights: it gets its weights, in memory alone.",
    metavar="MODEL.onnx",
    default=None,
    reads="the weights",
)
PLUGINS_HERE: Any = PLUGINS._replace(settings={}, load=None, save=None)
"""Libraries of plugins that the engine needs."""
REFERENCES_HERE: Any = REFERENCES._replace(settings={}, load=None, save=None)
"""Files with references."""
EXTEND_HERE: Any = EXTEND._replace(settings={}, load=None, save=None)
"""Files of passes of the user's own, with which the engine was built."""
TIME_LIMIT: Any = option(
    "--time-limit", "Seconds after which it ends, whatever it is at.", metavar="S", takes=float, least=1, default=600
)


def dims_option(help: str) -> Any:
    """Returns the declaration of sizes that replace those of an engine's profiles."""
    return option("--dim", help, metavar="NAME=MIN:OPT:MAX", many=True, default={}, read=parse_dims)


@frozen
class Limits:
    """Tolerances that replace the usual ones; None keeps those of the precision."""

    relative: float | None = option(
        "--tolerance",
        "Largest difference of an element, as a part of the output's largest magnitude. Default: by precision "
        "(float32 1e-4, tf32 2e-2, fp16 2e-2, int8 5e-2, bf16 1e-1, requantized 1e-1, "
        "quantized 2e-1).",
        metavar="X",
        takes=float,
        least=0,
        default=None,
    )
    cosine: float | None = option(
        "--cosine", "Smallest cosine similarity of an output.", metavar="X", takes=float, least=-1, most=1, default=None
    )
    mismatches: float | None = option(
        "--mismatches",
        "Share of the elements that may be beyond. Default: 0.",
        metavar="X",
        takes=float,
        least=0,
        most=1,
        default=None,
    )

    def __post_init__(self) -> None:
        settle(self)


_WITHOUT_INPUTS = Requirement(
    frozenset({"inputs"}),
    lambda request: request.inputs is None,
    "{flag} would not be called: --inputs has the inputs",
    "Leave out {flag} or --inputs.",
)


@frozen
class VerifyRequest(Request):
    """A call of `trtconv verify`.

    Args:
        model: The .onnx file that the engine was built from.
        engine: The engine; default: the model's path with the suffix .engine.
        report: Its report; default: the engine's path with ".json" appended.
        against: Another .onnx file with the same inputs and outputs to compare with, such as the float model that
            `model` is the quantised form of; None: `model` itself.
        dims: Bounds that replace those of the report.
        inputs: An .npz file with values of every input; these alone are then run.
        generator: "FILE.py:FUNCTION", called as FUNCTION(shapes, seed), which returns {input: array}.
        limits: How far the outputs may be off.
        self_check: Also compare the engine with itself; needs a GPU, and no reference.
        prove: One of `PROOFS`: also prove what TensorRT parses of the model as it was built, as `build` does.
        prove_time: How many seconds that may take.
        require_engine: Raise where the engine cannot be run here, instead of comparing the rewritten model.
        seconds: How long all of it may take.
    """

    model: Path
    engine: Path | None = None
    dims: Bounds = dims_option("Run at these sizes instead of those of the profiles; NAME=N is one size. Repeatable.")
    report: Path | None = REPORT
    against: Path | None = option(
        "--against",
        "Compare with this model instead of MODEL, which may then be the engine: that of its report is taken.",
        metavar="FLOAT.onnx",
        default=None,
        reads="what is compared with",
    )
    inputs: Path | None = option(
        "--inputs",
        "Run with these inputs alone, one array for each input by name.",
        metavar="FILE.npz",
        default=None,
        reads="the inputs",
    )
    generator: str | None = option(
        "--generator",
        "Make inputs with FUNC(shapes, seed); its code is run.",
        metavar="FILE.py:FUNC",
        default=None,
        reads="what makes inputs",
        requires=_WITHOUT_INPUTS,
    )
    seed: int = option("--seed", "Seed of inputs and random sizes.", takes=int, least=0, default=0)
    random: int = option("--random", "Random sizes of each profile.", takes=int, least=0, most=1000, default=2)
    limits: Limits = group(Limits)
    save_tensors: Path | None = option(
        "--save-tensors",
        "Write inputs, the model's outputs and the engine's into this new folder, an .npz file a size.",
        metavar="FOLDER",
        default=None,
        writes=True,
    )
    tensors: tuple[str, ...] = option(
        "--tensor",
        "With --save-tensors: inner tensors of the model too, and of what TensorRT parsed where that is run. A name, a "
        "pattern such as '/decoder/*', or type:OPERATOR. Repeatable.",
        metavar="PATTERN",
        many=True,
        default=(),
        read=tuple,
    )
    bisect: bool = option("--bisect", "On failure, look for the first tensor that diverges.", default=False)
    extend: tuple[CodeFile, ...] = EXTEND_HERE
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    lean_runtime: tuple[CodeFile, ...] = LEAN_RUNTIME
    references: tuple[CodeFile, ...] = REFERENCES_HERE
    require_engine: bool = option(
        "--require-engine", "Fail (exit 4) where the engine cannot be run here, as without a GPU.", default=False
    )
    self_check: bool = option(
        "--self-check",
        "Also hold the engine against itself: twice the same, equal rows of a batch, one size in two profiles.",
        default=False,
    )
    prove: str = option(
        "--prove",
        "Also prove what TensorRT parses of the model as it was built, as build does; needs no GPU.",
        takes=PROOFS,
        default="none",
    )
    prove_time: float = option(
        "--prove-time", "How many seconds that proof may take.", metavar="S", takes=float, least=0, default=60
    )
    seconds: float = TIME_LIMIT

    @property
    def engine_path(self) -> Path:
        """Where the engine is."""
        return self.engine or with_ending(self.model, ".engine")


@frozen
class RunRequest(Request):
    """A call of `trtconv run`.

    Args:
        engine: The engine.
        inputs: An .npz file with values of every input, or an image for the only one.
        output: Where the outputs go, as an .npz file.
        tensors: Debug tensors that are written beside the outputs.
        trace: Where the layers' times go, in Chrome's trace event format.
        preprocess: What becomes of an image, as `trtconv quantize` takes it.
        report: Its report; default: the engine's path with ".json" appended.
        seconds: How long all of it may take.
    """

    engine: Path
    inputs: Path = option(
        "--inputs",
        "One array for each input, by name; or an image, for an engine with one input.",
        metavar="IN.npz|IMAGE",
        default=None,
        reads="the inputs",
    )
    preprocess: str = option(
        "--preprocess",
        "How an image becomes an input: size=HxW, scale=1/255, mean=A:B:C, std=A:B:C, color=rgb|bgr|gray, "
        "layout=nchw|nhwc, crop or letterbox=FILL, filter=bicubic|bilinear|linear|nearest. Of an engine that takes "
        "images (build --preprocess), size, crop, letterbox and filter alone.",
        metavar="KEY=VALUE,...",
        default="",
        absent=None,
    )
    output: Path = option("-o --output", "Where the outputs go, by name.", metavar="OUT.npz", default=None, writes=True)
    tensors: tuple[str, ...] = option(
        "--tensor",
        "Write a tensor inside the network too, of an engine that was built with --debug-tensor: a name, or a pattern "
        "such as '/decoder/*'. Repeatable.",
        metavar="TENSOR",
        many=True,
        default=(),
        read=tuple,
    )
    trace: Path | None = option(
        "--trace",
        "Write the layers, one after the other with their times, kernels and tensors, for Perfetto or "
        "chrome://tracing; a mean of ten runs.",
        metavar="TRACE.json",
        default=None,
        writes=True,
    )
    engines: str = option(
        "--engines",
        "What runs the engines of a MODEL.pipeline.json: onnxruntime runs their parts of the model on the CPU, for "
        "tests without a GPU.",
        takes=("tensorrt", "onnxruntime"),
        default="tensorrt",
    )
    report: Path | None = REPORT
    weights: Path | None = WEIGHTS
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    references: tuple[CodeFile, ...] = REFERENCES_HERE
    lean_runtime: tuple[CodeFile, ...] = LEAN_RUNTIME
    seconds: float = TIME_LIMIT


@frozen
class RefitRequest(Request):
    """A call of `trtconv refit`.

    Args:
        engine: The engine, built with --refittable or --strip-weights.
        model: The .onnx file whose weights it is to have; of the same graph as the one that it was built from.
        output: Where the new engine goes; default: the model's path with the suffix .engine.
        report: The engine's report; default: the engine's path with ".json" appended. That of the new one is written
            beside it.
        seconds: How long all of it may take.
    """

    engine: Path
    model: Path
    output: Path | None = option(
        "-o --output",
        "Where the new engine goes; ENGINE itself may be named. Default: MODEL with the suffix .engine.",
        metavar="OUT",
        default=None,
        writes=True,
    )
    report: Path | None = REPORT
    sign: Path | None = option(
        "--sign",
        "Sign the new engine and report with this private Ed25519 key (PEM).",
        metavar="KEY",
        default=None,
        reads="the key to sign with",
    )
    prove: str = PROVE._replace(settings={}, load=None, save=None)
    prove_time: float = PROVE_TIME._replace(settings={}, load=None, save=None)
    extend: tuple[CodeFile, ...] = EXTEND_HERE
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    references: tuple[CodeFile, ...] = REFERENCES_HERE
    seconds: float = TIME_LIMIT

    @property
    def output_path(self) -> Path:
        """Where the new engine goes."""
        return self.output or with_ending(self.model, ".engine")


@frozen
class InspectRequest(Request):
    """A call of `trtconv inspect`.

    Args:
        path: An engine, the report of one, or an .onnx file.
        report: Report of the engine; default: the engine's path with ".json" appended.
        times: Run the engine at its first profile's opt, to time its layers.
        seconds: How long all of it may take.
    """

    path: Path
    report: Path | None = REPORT
    times: bool = option("--no-times", "Do not run the engine to time its layers.", default=True)
    weights: Path | None = WEIGHTS
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    lean_runtime: tuple[CodeFile, ...] = LEAN_RUNTIME
    seconds: float = TIME_LIMIT.defaulting(120)


@frozen
class WarmRequest(Request):
    """A call of `trtconv warm`.

    Args:
        engine: The engine, of TensorRT-RTX.
        cache: The runtime cache; what is there already is kept and added to.
        seconds: How long all of it may take.
    """

    engine: Path
    cache: Path = option("-o --output", "Where the runtime cache goes.", metavar="CACHE", default=None, writes=True)
    dims: Bounds = dims_option("Run at these sizes instead of those of the profiles; NAME=N is one size. Repeatable.")
    report: Path | None = REPORT
    trust: bool = TRUST
    key: Path | None = KEY
    plugins: tuple[CodeFile, ...] = PLUGINS_HERE
    seconds: float = TIME_LIMIT
