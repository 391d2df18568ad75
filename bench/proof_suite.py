"""Reads back and runs what TensorRT-RTX's parser makes of ONNX's own node tests, and writes the misreadings down.

    python bench/proof_suite.py              # some minutes, no GPU; needs tensorrt-rtx

Each test is parsed as it is; with all inputs but the first made constants; with the sizes of its float inputs dynamic;
with both; as a single node with every attribute dropped that has its default value; and at every older opset that has
the operator in another version. What the parser accepts is read back, run by trtconv's interpreter, and compared with
the suite's own outputs (with ONNX Runtime's at older opsets). What differs goes through trtconv's rules and passes for
TensorRT-RTX, and the same again.

Written are bench/results/proof-suite-rtx.json and the table of misreadings in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trtconv.core.documents.verify import Tolerance  # noqa: E402
from trtconv.core.findings import Finding, Severity  # noqa: E402
from trtconv.core.target import Target  # noqa: E402
from trtconv.graph.model import OnnxModel  # noqa: E402
from trtconv.passes import PassResult, passes_for, run_passes  # noqa: E402
from trtconv.rules import run_rules  # noqa: E402
from trtconv.runtimes.compare import compare  # noqa: E402
from trtconv.runtimes.onnxruntime import session  # noqa: E402
from trtconv.runtimes.tensorrt.readback.execute import Run  # noqa: E402
from trtconv.runtimes.tensorrt.readback.read import read  # noqa: E402
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork  # noqa: E402

RESULTS = ROOT / "bench" / "results" / "proof-suite-rtx.json"
DOCUMENT = ROOT / "docs" / "compatibility.md"
TARGET = Target("rtx", (1, 7))
TOLERANCE = Tolerance(1e-3, 0.9999)
COARSE = Tolerance(2e-2, 0.999)
VARIANTS = ("as is", "constant inputs", "dynamic sizes", "both", "defaults dropped", "older opsets")
MARKS = ("<!-- misreadings: begin -->", "<!-- misreadings: end -->")

Feeds = dict[str, Any]


class Suite:
    """ONNX's node tests on one parser."""

    def __init__(self) -> None:
        import tensorrt_rtx as trt

        self._trt = trt
        self._logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
        self._builder = trt.Builder(self._logger)
        self.version = trt.__version__

    def parse(self, model: onnx.ModelProto) -> ReadNetwork | None:
        """Returns what the parser makes of a model, None where it refuses."""
        network = self._builder.create_network(0)
        parser = self._trt.OnnxParser(network, self._logger)
        data = model.SerializeToString()
        if not parser.parse(data) or not network.num_outputs:
            return None
        self._kept = (network, parser, data)
        return read(self._trt, network)

    def verdict(self, model: onnx.ModelProto, feeds: Feeds, expected: Mapping[str, Any]) -> tuple[str, str]:
        """Returns what became of a model ("refused", "agrees", "unproven", "differs", "type") and why."""
        network = self.parse(model)
        if network is None:
            return "refused", ""
        named = {network.tensors[number].name for number in network.inputs}
        if named - feeds.keys():
            return "differs", f"{', '.join(named - feeds.keys())} became an input of the network"
        run = Run(network, feeds)
        got = run.outputs()
        if run.unproven:
            reasons = {f"{network.layers[index].kind}: {reason}" for index, reason in run.unproven.items()}
            return "unproven", "; ".join(sorted(reasons))
        return self._compared(got, expected)

    def _compared(self, got: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[str, str]:
        verdict = "agrees"
        for name, value in expected.items():
            if not isinstance(value, np.ndarray):
                return "unproven", f"{name} is no tensor"
            narrow = value.dtype.itemsize < 4 and value.dtype.kind not in "iub"
            found = compare(name, value, got.get(name), COARSE if narrow else TOLERANCE)
            if not found.passed and not found.why.startswith("the model itself") and not same_rows(value, got[name]):
                return "differs", f"{name}: {found.why}"
            if got[name].dtype != value.dtype:
                verdict = "type"
        return verdict, ""


def same_rows(expected: Any, got: Any) -> bool:
    """Whether two tables have the same rows: TensorRT sorts boxes by score, ONNX by class."""
    boxes = expected.ndim == 2 and expected.shape == got.shape and expected.shape[1] == 3 and expected.dtype == np.int64
    return boxes and np.array_equal(np.unique(expected, axis=0), np.unique(got, axis=0))


def cases() -> Iterator[tuple[str, onnx.ModelProto, list[Any], list[Any]]]:
    """Yields the suite's tests with the first of their data sets."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        inputs, outputs = case.data_sets[0]
        if all(isinstance(each, (np.ndarray, np.generic, onnx.TensorProto)) for each in inputs):
            yield case.name, case.model, [_array(each) for each in inputs], [_array(each) for each in outputs]


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def constant_inputs(model: onnx.ModelProto, inputs: Sequence[Any]) -> onnx.ModelProto | None:
    """Returns a model whose inputs but the first are initializers."""
    if len(model.graph.input) < 2:
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value, array in list(zip(model.graph.input, inputs, strict=True))[1:]:
        made.graph.initializer.append(numpy_helper.from_array(array, value.name))
    del made.graph.input[1:]
    return made


def dynamic_sizes(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Returns a model whose float inputs have sizes that are known only at run time."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    changed = False
    for value in made.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        for axis, dim in enumerate(kind.shape.dim):
            dim.Clear()
            dim.dim_param = f"{value.name}_{axis}"
            changed = True
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made if changed else None


def defaults_dropped(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Returns a model of one node without the attributes that have their default values."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if len(made.graph.node) != 1:
        return None
    node = made.graph.node[0]
    try:
        schema = onnx.defs.get_schema(node.op_type, _opset(made), node.domain)
    except onnx.defs.SchemaError:
        return None
    dropped = [
        each
        for each in node.attribute
        if each.name in schema.attributes
        and schema.attributes[each.name].default_value.name
        and helper.get_attribute_value(each) == helper.get_attribute_value(schema.attributes[each.name].default_value)
    ]
    for each in dropped:
        node.attribute.remove(each)
    return made if dropped else None


def _opset(model: onnx.ModelProto) -> int:
    return next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)


def older_opsets(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yields a model of one node at the newest opset of each older version of its operator."""
    if len(model.graph.node) != 1 or model.graph.node[0].domain not in ("", "ai.onnx"):
        return
    node = model.graph.node[0]
    version = _opset(model)
    while version > 1:
        try:
            since = onnx.defs.get_schema(node.op_type, version).since_version
        except onnx.defs.SchemaError:
            return
        version = since - 1
        made = onnx.ModelProto()
        made.CopyFrom(model)
        made.ir_version = 8
        for each in made.opset_import:
            each.version = version
        try:
            onnx.checker.check_model(made, full_check=True)
        except Exception:
            continue
        yield made


def by_runtime(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any] | None:
    """Returns what ONNX Runtime computes, None where it does not."""
    loaded = session(OnnxModel(model, ROOT / "suite.onnx"))
    if isinstance(loaded, str):
        return None
    try:
        return list(loaded.run(None, {v.name: each for v, each in zip(model.graph.input, inputs, strict=True)}))
    except Exception:
        return None


def variants(model: onnx.ModelProto, inputs: list[Any], outputs: list[Any]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields (variant, model, feeds, expected outputs)."""
    names = [value.name for value in model.graph.input]
    feeds = dict(zip(names, inputs, strict=True))
    expected = dict(zip((value.name for value in model.graph.output), outputs, strict=False))
    constant, dynamic = constant_inputs(model, inputs), dynamic_sizes(model)
    both = None if constant is None else dynamic_sizes(constant)
    made = {"as is": model, "constant inputs": constant, "dynamic sizes": dynamic, "both": both}
    for variant, each in {**made, "defaults dropped": defaults_dropped(model)}.items():
        if each is not None:
            yield variant, each, {name: feeds[name] for name in (v.name for v in each.graph.input)}, expected
    for each in older_opsets(model):
        found = by_runtime(each, inputs)
        if found is not None:
            yield "older opsets", each, feeds, dict(zip(expected, found, strict=False))


def prepared(model: onnx.ModelProto, target: Target) -> tuple[onnx.ModelProto, PassResult, list[Finding]]:
    """Returns a model as trtconv makes it, what its passes did, and what its rules still say against it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rewritten = OnnxModel(copy, ROOT / "suite.onnx")
    done = run_passes(rewritten, passes_for("as-is"), target)
    return rewritten.proto, done, [f for f in run_rules(rewritten, target) if f.severity is Severity.ERROR]


def remedy(suite: Suite, model: onnx.ModelProto, feeds: Feeds, expected: Mapping[str, Any]) -> str:
    """Returns what trtconv makes of a model that is misread: "mended", "error TCnnn", or "misread"."""
    made, _, errors = prepared(model, TARGET)
    if errors:
        return f"error {errors[0].code}"
    verdict, _ = suite.verdict(made, feeds, expected)
    # What still differs is what the proof compares in every build: it fails with TC402.
    return {"agrees": "mended", "type": "mended", "refused": "error TC401"}.get(verdict, "error TC402")


def main() -> None:
    """Runs the suite, and writes results and table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", help="Run the tests whose name has this in it, and write nothing.")
    only = arguments.parse_args().only
    warnings.simplefilter("ignore")
    suite, started = Suite(), time.perf_counter()
    counts: dict[str, collections.Counter[str]] = {variant: collections.Counter() for variant in VARIANTS}
    kinds: collections.Counter[str] = collections.Counter()
    rows: list[dict[str, str]] = []
    for name, model, inputs, outputs in cases():
        if only and only not in name:
            continue
        for variant, each, feeds, expected in variants(model, inputs, outputs):
            verdict, why = suite.verdict(each, feeds, expected)
            counts[variant]["tried"] += 1
            counts[variant][verdict] += 1
            kinds.update([why.partition(":")[0]] if verdict == "unproven" else [])
            if verdict in ("differs", "unproven"):
                op = each.graph.node[0].op_type if len(each.graph.node) == 1 else f"{len(each.graph.node)} nodes"
                row = {"test": name, "variant": variant, "op": op, "verdict": verdict, "why": why}
                if verdict == "differs":
                    row["trtconv"] = remedy(suite, each, feeds, expected)
                rows.append({**row, "opset": str(_opset(each))})
                if only:
                    print(rows[-1])
    report = {
        "tensorrt_rtx": suite.version,
        "onnx": onnx.__version__,
        "seconds": round(time.perf_counter() - started, 1),
        "counts": {variant: dict(found) for variant, found in counts.items()},
        "not_proven_by_kind": dict(kinds),
        "rows": rows,
    }
    print(json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1))
    if not only:
        RESULTS.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        write_table(report)


def table(report: Mapping[str, Any]) -> str:
    """Returns the section of docs/compatibility.md."""
    lines = [
        MARKS[0],
        "## What TensorRT-RTX reads otherwise than ONNX, of ONNX's own node tests",
        "",
        f"Written by `python bench/proof_suite.py`: TensorRT-RTX {report['tensorrt_rtx']}, tests of onnx"
        f" {report['onnx']}. What the parser accepts without an error is read back, run and compared; nothing was run"
        " on a GPU.",
        "",
        "| variant | tried | accepted | agree | other type | differ | not proven |",
        "|---|---|---|---|---|---|---|",
    ]
    for variant, found in report["counts"].items():
        accepted = found.get("tried", 0) - found.get("refused", 0)
        cells = (found.get("agrees", 0), found.get("type", 0), found.get("differs", 0), found.get("unproven", 0))
        lines.append(f"| {variant} | {found.get('tried', 0)} | {accepted} | {' | '.join(map(str, cells))} |")
    lines += ["", "| misread | variants | what trtconv makes of it |", "|---|---|---|"]
    grouped: dict[str, list[Mapping[str, str]]] = {}
    for row in report["rows"]:
        if row["verdict"] == "differs":
            grouped.setdefault(row["test"], []).append(row)
    for test, found in grouped.items():
        seen = ", ".join(dict.fromkeys(row["variant"] for row in found))
        lines.append(f"| `{test}` | {seen} | {', '.join(dict.fromkeys(row['trtconv'] for row in found))} |")
    return "\n".join([*lines, MARKS[1]]) + "\n"


def write_table(report: Mapping[str, Any]) -> None:
    """Puts the section into docs/compatibility.md, in the place of the one that is there."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1] + "\n")
    DOCUMENT.write_text(before.rstrip("\n") + "\n\n" + table(report) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
