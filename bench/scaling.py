"""Many nodes: passes and rules on ten times as many, and `trtconv check` against a script that only parses."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import networks
import onnx
from measuring import PYTHON, ROOT, TRTCONV, Comparison, in_turns, median, process_seconds

from trtconv.cli.process.boundary import COLLECT_EVERY
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PASSES, run_passes
from trtconv.rules import run_rules

ROUNDS = 5
CHAINS = (
    ("10,000 nodes, 1 deconvolution", 1, 9_998, 1.5),
    ("10,000 nodes, 100 deconvolutions", 100, 98, 1.5),
    # Every other node is rewritten: that is work which the script does not do.
    ("10,000 nodes, 5,000 deconvolutions", 5_000, 0, 4.0),
)
"""What it is, deconvolutions, other nodes behind each, and the ratio that is good."""
PROOF_LIMIT = 4.0
"""ONNX Runtime alone takes longer to load 10,000 nodes than TensorRT's parser."""


def passes_and_rules(proto: onnx.ModelProto) -> Callable[[], float]:
    """Returns a task: seconds for rules, passes, and rules again, as check and build do it."""
    target = Target("rtx", (1, 7))

    def task() -> float:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        started = time.perf_counter()
        model = OnnxModel(copy, Path("chain.onnx"))
        run_rules(model, target)
        done = run_passes(model, PASSES, target)
        run_rules(model, target)
        seconds = time.perf_counter() - started
        assert len(done.edits) == sum(node.op_type == "ConvTranspose" for node in proto.graph.node)
        return seconds

    return task


def measure() -> Iterator[Comparison]:
    # As the command does.
    gc.set_threshold(COLLECT_EVERY)
    costs = in_turns({str(n): passes_and_rules(networks.chain(n)) for n in (1_000, 10_000)}, ROUNDS)
    name = "passes and rules, 10,000 / 1,000 ConvTranspose"
    yield Comparison(name, min(costs["10000"]), min(costs["1000"]), "s", 12, f"minimum of {ROUNDS}")
    for name, deconvolutions, between, limit in CHAINS:
        yield from _check(name, networks.chain(deconvolutions, between), limit)


def _check(name: str, proto: onnx.ModelProto, limit: float) -> Iterator[Comparison]:
    # The script proves nothing, so it is compared with `--prove none`; what the quick proof costs is a line of its own.
    with tempfile.TemporaryDirectory() as folder:
        model = f"{folder}/chain.onnx"
        onnx.save_model(proto, model)
        proved = [TRTCONV, "check", model, "--target", "rtx", "--fail-on", "never"]
        costs = in_turns(
            {
                "trtconv": process_seconds([*proved, "--prove", "none"]),
                "proved": process_seconds(proved),
                "bare": process_seconds([PYTHON, str(ROOT / "bench" / "bare.py"), "parse", model]),
            },
            ROUNDS,
        )
    ours, method = median(costs["trtconv"]), f"median of {ROUNDS}"
    yield Comparison(f"trtconv check / onnx.load and parse, {name}", ours, median(costs["bare"]), "s", limit, method)
    quick = f"trtconv check with the quick proof / without, {name}"
    yield Comparison(quick, median(costs["proved"]), ours, "s", PROOF_LIMIT, method)
