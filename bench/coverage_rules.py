"""How many of ONNX's own node tests no rule speaks against, for TensorRTs that are not here: raw, and after the passes.

    python bench/coverage_rules.py [--targets tensorrt-8.6,tensorrt-10,tensorrt-11]      # some minutes, no TensorRT

An upper bound: rules and tables of operators judge, and nothing is parsed. bench/coverage.py builds and proves what the
TensorRT-RTX takes that is installed. Writes bench/results/coverage-rules.json.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import onnx
from onnx.backend.test.case.node import collect_testcases

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trtconv.core.errors import TrtconvError  # noqa: E402
from trtconv.core.findings import Severity  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.graph.operators import lacks_operator  # noqa: E402
from trtconv.graph.types import ONNX_DOMAINS  # noqa: E402
from trtconv.graph.walk import all_nodes  # noqa: E402
from trtconv.passes import passes_for, run_passes  # noqa: E402
from trtconv.rules import run_rules  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "coverage-rules.json"
_UNBOUND = frozenset(("STRING", "INT16", "UINT16", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"))
"""Types that no binding has."""


def reason(proto: onnx.ModelProto, target: Target, rewritten: bool) -> str:
    """Returns what speaks against a model, in a word; empty where nothing does."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    model = OnnxModel(copy, ROOT / "suite.onnx")
    try:
        if rewritten:
            run_passes(model, passes_for("as-is"), target)
        errors = [each.code for each in run_rules(model, target) if each.severity is Severity.ERROR]
    except TrtconvError as error:
        return type(error).__name__
    values = [each.type for each in (*model.proto.graph.input, *model.proto.graph.output)]
    nodes = list(all_nodes(model.proto.graph.node))
    foreign = next((node.op_type for node in nodes if node.domain not in ONNX_DOMAINS), "")
    lacking = next((node.op_type for node in nodes if lacks_operator(node.op_type, target)), "")
    if any(each.WhichOneof("value") != "tensor_type" for each in values):
        return "sequences and optionals"
    names = {onnx.TensorProto.DataType.Name(each.tensor_type.elem_type) for each in values}
    return next(iter(sorted(names & _UNBOUND)), "") or foreign or lacking or next(iter(errors), "")


def measure(targets: list[Target]) -> dict[str, Any]:
    """Returns the counts by target, and what is left after the passes."""
    tests = [(case.name, case.model) for case in collect_testcases(None)]
    found: dict[str, Any] = {"onnx": onnx.__version__, "tests": len(tests)}
    for target in targets:
        raw = sum(not reason(model, target, False) for _, model in tests)
        left = {name: why for name, model in tests if (why := reason(model, target, True))}
        reasons = dict(collections.Counter(left.values()).most_common())
        found[str(target)] = {"raw": raw, "trtconv": len(tests) - len(left), "reasons": reasons, "left": sorted(left)}
        print(target, raw, len(tests) - len(left), flush=True)
    return found


def main() -> None:
    """Judges the tests for each target."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--targets", default="tensorrt-8.6,tensorrt-10,tensorrt-11")
    options = arguments.parse_args()
    warnings.simplefilter("ignore")
    targets = [target for each in options.targets.split(",") if (target := Target.parse(each)) is not None]
    RESULTS.write_text(json.dumps(measure(targets), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
