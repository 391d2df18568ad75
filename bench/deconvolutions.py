"""Deconvolutions with all sizes dynamic and no bounds: are they rewritten and checked, and how long does it take?

    python bench/deconvolutions.py [--every 7]

1-D, 2-D and 3-D, kernels of 1 to 7, strides of 1 to 5, 1 to 64 channels; --every 7 takes every seventh. Prints what is
not compared, or takes more than 2 s, twice, in one process; and the processor time that the slowest took.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import trtconv  # noqa: E402

LIMIT_SECONDS = 2.0
CHANNELS = ((8, 12), (64, 64), (3, 1), (32, 16))


def grid() -> Iterator[tuple[int, int, int, int, int]]:
    """Yields rank, kernel, stride and channels of each."""
    for rank, kernel, stride, (ins, outs) in itertools.product((1, 2, 3), range(1, 8), range(1, 6), CHANNELS):
        yield rank, kernel, stride, ins, outs


def deconvolution(rank: int, kernel: int, stride: int, ins: int, outs: int) -> onnx.ModelProto:
    """Makes a model of one deconvolution, spelled as the passes rewrite it: with output_padding and no pads."""
    weight = np.random.default_rng(0).standard_normal((ins, outs, *[kernel] * rank)).astype(np.float32)
    node = helper.make_node(
        "ConvTranspose", ["x", "w"], ["y"], "up", strides=[stride] * rank, output_padding=[stride - 1] * rank
    )
    sizes = ["depth", "height", "width"][-rank:]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", ins, *sizes])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def processor_seconds() -> float:
    """Returns the processor time that this process and those that it started took."""
    return time.process_time() + sum(os.times()[2:4])


def judge(path: Path) -> dict[str, Any]:
    """Rewrites and checks a model; returns whether each compared, how long it took, and how long of the processor."""
    started = time.perf_counter(), processor_seconds()
    rewritten = trtconv.rewrite(trtconv.RewriteRequest(path, path.with_suffix(".new.onnx")))
    between = time.perf_counter(), processor_seconds()
    report = trtconv.check(trtconv.CheckRequest(path))
    ended = time.perf_counter(), processor_seconds()
    error = rewritten.verified.max_relative_error
    return {
        "rewrite": rewritten.exit_code == 0 and (error is not None or not rewritten.edits),
        "check": bool(report.proof and report.proof.agrees),
        "seconds": [round(between[0] - started[0], 2), round(ended[0] - between[0], 2)],
        "processor": [round(between[1] - started[1], 2), round(ended[1] - between[1], 2)],
        "why": [rewritten.verified.why, report.proof and report.proof.why],
    }


def main() -> None:
    """Goes over the grid."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--every", type=int, default=1)
    options = arguments.parse_args()
    count, bad, slowest, processor = 0, 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        for case in itertools.islice(grid(), 0, None, options.every):
            path = Path(folder) / "m.onnx"
            onnx.save_model(deconvolution(*case), path)
            found = judge(path)
            if max(found["seconds"]) > LIMIT_SECONDS:
                # Others may have been at work on this machine.
                found = min(found, judge(path), key=lambda each: max(each["seconds"]))
            count += 1
            slowest = max(slowest, *found["seconds"])
            processor = max(processor, *found["processor"])
            if not (found["rewrite"] and found["check"]) or max(found["seconds"]) > LIMIT_SECONDS:
                bad += 1
                print(case, json.dumps(found), flush=True)
    print(json.dumps({"cases": count, "beyond": bad, "slowest_seconds": slowest, "most_processor_seconds": processor}))


if __name__ == "__main__":
    main()
