"""`trtconv build` against `polygraphy convert`: the same network, profile and runtime, whole processes.

Polygraphy proves nothing, so it is compared with `--prove none`; what the quick proof costs is a line of its own.
"""

from __future__ import annotations

import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from measuring import TRTCONV, Comparison, in_turns, median, process_seconds

ROUNDS = 9
MODEL = "models/unet.onnx"
SIZES = ["--dim", "batch=1:1:4", "--dim", "height=64:256:512", "--dim", "width=64:256:512"]
SHAPES = {"min": "[1,3,64,64]", "opt": "[1,3,256,256]", "max": "[4,3,512,512]"}


def measure() -> Iterator[Comparison]:
    with tempfile.TemporaryDirectory() as folder:
        ours = [TRTCONV, "build", MODEL, *SIZES, "--target", "rtx", "--force", "-o", f"{folder}/ours.engine"]
        polygraphy = str(Path(sysconfig.get_path("scripts")) / "polygraphy")
        theirs = [polygraphy, "convert", MODEL, "--convert-to", "trt", "-o", f"{folder}/theirs.engine"]
        for bound, shape in SHAPES.items():
            theirs += [f"--trt-{bound}-shapes", f"x:{shape}"]
        costs = in_turns(
            {
                "trtconv": process_seconds([*ours, "--prove", "none"]),
                "proved": process_seconds(ours),
                "polygraphy": process_seconds(theirs, {"POLYGRAPHY_USE_TENSORRT_RTX": "1"}),
            },
            ROUNDS,
        )
    name = f"trtconv build / polygraphy convert, {MODEL}"
    yield Comparison(name, median(costs["trtconv"]), median(costs["polygraphy"]), "s", 1.0, f"median of {ROUNDS}")
    name = f"trtconv build with the quick proof / without, {MODEL}"
    yield Comparison(name, median(costs["proved"]), median(costs["trtconv"]), "s", 2.0, f"median of {ROUNDS}")
