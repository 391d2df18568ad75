"""What `trtconv quantize` is asked."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.dim_flags import parse_dims
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.requests.base import Bounds, Request
from trtconv.core.requests.common import TARGET
from trtconv.core.requests.measured import DATA, METRIC, PREPROCESS, attention, error_budget
from trtconv.core.target import Target

_TOLERANCE = 0.1
"""Of the error, where nothing else is said."""
QUANTIZE_KINDS = ("int8", "fp8", "int4-weights", "int8-weights")
QUANTIZE_METHODS = ("auto", "min-max", "percentile", "mse", "entropy")


@frozen
class QuantizeRequest(Request):
    """A call of `trtconv quantize`.

    Args:
        model: The float .onnx file; never written.
        output: Where the quantised model goes.
        error_budget: Error (rms) to meet by leaving layers in float; None quantises all that can be.
        tolerance: Error (rms) above which the result is refused, or the worst value of the metric; None: 0.1, with a
            metric the budget.
        metric: What counts in place of the error: a built-in name, or FILE.py:FUNCTION.
        random: Whether random data is meant where there is no other.
        dims: Bounds of the dynamic dimensions: the sizes at which a function, or random data, is asked for.
        samples: How many samples a function is asked for, or are made at random.
        held_out: Share of the samples that calibration does not see, on which the error is measured.
        kind: What layers are quantised to, one of `QUANTIZE_KINDS`.
        attention: Whether products of two computed matrices are quantised too.
        method: One of `QUANTIZE_METHODS`; "auto" takes that with the smallest error on samples that it has not seen.
        percentile: Share of the values, in percent, that "percentile" covers.
        calibration: A calibration cache of TensorRT, whose scales are taken; None calibrates.
        in_float: Names of nodes that stay in float.
        target: None picks the installed runtime.
        seed: Of the first sample of a function, or of random data.
        cache: Folder that keeps what calibration found, by content; None keeps nothing.
    """

    model: Path = Path()
    output: Path = Path()
    data: str | None = DATA._replace(requires=None)
    preprocess: str | None = PREPROCESS._replace(requires=None)
    # What `--budget` is for other commands, a limit of resources, is not asked here.
    error_budget: float | None = error_budget("--budget --error-budget")
    metric: str | None = METRIC._replace(requires=None)
    tolerance: float | None = option(
        "--tolerance",
        "Fail where the error (rms) of the quantised model on held-out samples is above E (0.1 unless given), or where "
        "--metric has a worse value than E.",
        metavar="E",
        takes=float,
        least=0,
        default=None,
    )
    random: bool = option(
        "--random",
        "Calibrate with random inputs, to see whether a network can be quantised; never to deploy it.",
        default=False,
    )
    dims: Bounds = option(
        "--dim",
        "Sizes at which FUNC, or random data, is asked for; NAME=N fixes one. Repeatable.",
        metavar="NAME=MIN:OPT:MAX",
        many=True,
        default={},
        read=parse_dims,
    )
    samples: int = option(
        "--samples",
        "Samples that FUNC is asked for, or that are made at random.",
        metavar="N",
        takes=int,
        least=2,
        default=64,
    )
    held_out: float = option(
        "--held-out",
        "Share of the samples that calibration does not see, on which the error is measured.",
        metavar="X",
        takes=float,
        above=0,
        most=0.9,
        default=0.2,
    )
    kind: str = option(
        "--kind",
        "What layers are quantised to: int8; fp8 (E4M3) of Conv, MatMul and Gemm; int4 or int8 of the weights of "
        "MatMul and Gemm alone, inputs staying in float. All but int8 are for TensorRT 10 and TensorRT-RTX.",
        takes=QUANTIZE_KINDS,
        default="int8",
    )
    attention: bool = attention()
    method: str = option(
        "--method",
        "How ranges are taken. auto: by that of the others which errs least on samples that it has not seen.",
        takes=QUANTIZE_METHODS,
        default="auto",
    )
    percentile: float = option(
        "--percentile",
        "Share of the values, in percent, that --method percentile covers.",
        metavar="P",
        takes=float,
        least=50,
        most=100,
        default=99.99,
    )
    calibration: Path | None = option(
        "--cache",
        "Take the scales of a calibration cache that TensorRT up to 10 wrote (trtexec --calib, Polygraphy); samples "
        "then only measure the error.",
        metavar="CALIB.cache",
        default=None,
        reads="the cache",
    )
    in_float: tuple[str, ...] = option(
        "--float", "Leave this layer in float. Repeatable.", metavar="NODE", many=True, default=()
    )
    target: Target | None = TARGET
    seed: int = option("--seed", "Seed of the first sample.", takes=int, least=0, default=0)
    cache: Path | None = None

    @property
    def limit(self) -> float:
        """The error above which the result is refused; with a metric its worst value.

        Raises:
            InputError: A metric has none.
        """
        if self.metric is None:
            return _TOLERANCE if self.tolerance is None else self.tolerance
        limit = self.error_budget if self.tolerance is None else self.tolerance
        if limit is None:
            raise InputError(
                f"--metric {self.metric} says what counts, and not what is good enough",
                "Add --tolerance E, the worst value that is allowed: --metric psnr --tolerance 35, or iou and 0.95.",
            )
        return limit
