"""Options of what is measured on samples: which samples, what counts, and how far it may be off."""

from __future__ import annotations

from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.options import Requirement, option
from trtconv.core.suggest import did_you_mean

MEASURED = Requirement(
    frozenset({"precision"}),
    lambda request: request.precision == "auto",
    "{flag} goes with --precision auto, or with int8 and --data on the command line; the precision is {precision}",
    "Leave out {flag} (in trtconv.toml: {key}), or say --precision auto.",
)
SAMPLED = Requirement(
    # Samples are for precision auto alone, and of no use to other precisions.
    frozenset({"precision", "data"}),
    lambda request: request.data is not None,
    "{flag} goes with --data, and there is none",
    "Add --data, or leave out {flag} (in trtconv.toml: data and {key}; images says it of the engine).",
)

DATA: Any = option(
    "--data",
    "Samples to calibrate with and to measure on: a folder of .npz or .npy files or of images, one .npz file, or "
    "FUNC(shapes, seed), which returns {input: array}; its code is run.",
    metavar="DIR|FILE.npz|FILE.py:FUNC",
    default=None,
    key="data",
    about="Folder or .npz file of samples that precision auto measures on; default: random ones.",
    requires=MEASURED,
    reads="the samples",
)
"""A folder of samples, an .npz file, or FILE.py:FUNCTION; None for random data."""

PREPROCESS: Any = option(
    "--preprocess",
    "How images become inputs: size=HxW[+HxW], scale=1/255, mean=A:B:C, std=A:B:C, color=rgb|bgr|gray, "
    "layout=nchw|nhwc, crop or letterbox=FILL, filter=bicubic|bilinear|linear|nearest.",
    metavar="KEY=VALUE,...",
    default=None,
    key="preprocess",
    about="What becomes of images in data, as --preprocess.",
    requires=SAMPLED,
)
"""What becomes of images among the samples."""


_METRICS = ("psnr", "iou", "top1", "cosine")


def _metric(text: str) -> str:
    """Reads `--metric`.

    Raises:
        InputError: It is neither a metric nor a function in a file.
    """
    if text not in _METRICS and ":" not in text:
        hint = "Write --metric psnr, or --metric measures.py:recall."
        raise InputError(
            f"--metric {text!r} is neither {', '.join(_METRICS)} nor FILE.py:FUNC", did_you_mean(text, _METRICS, hint)
        )
    return text


METRIC: Any = option(
    "--metric",
    "What counts in place of the error (rms): psnr, iou, top1, cosine, or FUNC(outputs, reference), which makes a "
    "number of a sample's outputs and the float network's; its code is run. --tolerance is then the worst value of it "
    "that is allowed, on the worse side of what the float network has.",
    metavar="NAME|FILE.py:FUNC",
    default=None,
    key="metric",
    about="What counts in place of the error: psnr, iou, top1 or cosine; tolerance is then its worst value.",
    read=_metric,
    schema={"type": "string", "enum": list(_METRICS)},
    load=str,
    requires=MEASURED,
    reads="the metric",
)
"""A built-in metric, or FILE.py:FUNCTION; None for the root mean square of the error."""


def attention(requires: Requirement | None = None) -> Any:
    """Declares whether products of two computed matrices are quantised too."""
    text = "Quantise the products of two computed matrices too, as in attention."
    return option("--attention", text, default=False, requires=requires)


def error_budget(names: str, requires: Requirement | None = None) -> Any:
    """Declares the error (rms) to meet by leaving layers in float; None quantises all that can be."""
    text = (
        "Leave layers in float, the one that costs most first, until the error (rms) is at most E, or --metric has E."
    )
    return option(names, text, metavar="E", takes=float, least=0, default=None, requires=requires)
