"""How many of ONNX's own node tests TensorRT-RTX builds and is proven to compute: raw, and through trtconv.

    python bench/coverage.py [--only OP] [--target rtx] [--out FILE]      # some minutes, no GPU; needs tensorrt-rtx

Each test is taken as it is, and with its inputs but the first as constants, where networks have axes, sizes and
counts. What the parser accepts is built, read back, run by trtconv's interpreter and compared with the suite's own
outputs. What is done is kept beside the result, so that a call that was ended goes on; delete it to begin again.

Written is bench/results/coverage-rtx.json: counts, and each test that is not proven, with its reason.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import proof_suite
from measuring import kept_rows

from trtconv.core.target import Target

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "coverage-rtx.json"
_TEXT = 200

Row = dict[str, Any]


class Builder(proof_suite.Suite):
    """TensorRT-RTX, whose builder is asked too."""

    def refusal(self, model: onnx.ModelProto) -> str:
        """Returns what the parser says against a model."""
        network = self._builder.create_network(0)
        parser = self._trt.OnnxParser(network, self._logger)
        parser.parse(model.SerializeToString())
        errors = [parser.get_error(number) for number in range(parser.num_errors)]
        return "; ".join(f"{each.node_operator()}: {each.desc()}" for each in errors)

    def judged(self, model: onnx.ModelProto, feeds: proof_suite.Feeds, expected: Mapping[str, Any]) -> tuple[str, str]:
        """Returns what became of a model ("proven", "refused", "not built", "unproven", "differs"), and why."""
        verdict, why = self.verdict(model, feeds, expected)
        if verdict in ("refused", "differs", "unproven"):
            return verdict, (why or self.refusal(model))[:_TEXT]
        return ("proven", "") if self._builds(self._kept[0], feeds) else ("not built", "the builder refuses it")

    def _builds(self, network: Any, feeds: proof_suite.Feeds) -> bool:
        config = self._builder.create_builder_config()
        profile = self._builder.create_optimization_profile()
        for number in range(network.num_inputs):
            tensor = network.get_input(number)
            if tensor.is_shape_tensor:
                values = feeds[tensor.name].reshape(-1).tolist()
                profile.set_shape_input(tensor.name, values, values, values)
            if -1 in tensor.shape:
                profile.set_shape(tensor.name, *[feeds[tensor.name].shape] * 3)
        config.add_optimization_profile(profile)
        return self._builder.build_serialized_network(network, config) is not None


_UNBOUND = frozenset({"DOUBLE", "INT16", "UINT16", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128"})


def kind(model: onnx.ModelProto, row: Row) -> str:
    """Returns the class of the reason why a test is not proven."""
    values = [*model.graph.input, *model.graph.output]
    types = {
        onnx.TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in values if v.type.HasField("tensor_type")
    }
    domains = {node.domain for node in model.graph.node}
    ops = {node.op_type for node in model.graph.node}
    if any(not value.type.HasField("tensor_type") for value in values) or any(
        "Sequence" in op or "Optional" in op for op in ops
    ):
        return "sequences and optionals"
    if "STRING" in types or ops & {"TfIdfVectorizer", "RegexFullMatch", "ImageDecoder"}:
        return "strings and files"
    if "ai.onnx.preview.training" in domains or row["test"].startswith("test_training") or "training" in row["test"]:
        return "training"
    if ops & {"Bernoulli", "RandomUniformLike", "RandomNormalLike", "Multinomial"}:
        return "random"
    if any(domain not in ("", "ai.onnx", "ai.onnx.preview") for domain in domains):
        return "other domains"
    if any(re.match(r"FLOAT[468]|U?INT[24]", each) for each in types) or types & _UNBOUND:
        return "a type that no binding has"
    if (
        ops & {"Unique", "NonZero", "NonMaxSuppression", "Compress"}
        or "run time" in row["why"]
        or "build-time" in row["why"]
    ):
        return "known at run time only"
    return "no operator or form of TensorRT"


def jobs(only: str) -> Iterator[tuple[str, str, onnx.ModelProto, proof_suite.Feeds, dict[str, Any]]]:
    """Yields test, variant, model, feeds and expected outputs."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if only and only not in {case.name, *(node.op_type for node in case.model.graph.node)}:
            continue
        inputs, outputs = case.data_sets[0]
        names = [value.name for value in case.model.graph.input]
        if not all(isinstance(each, (np.ndarray, np.generic, onnx.TensorProto)) for each in inputs):
            yield case.name, "as is", case.model, {}, {}
            continue
        arrays = [proof_suite._array(each) for each in inputs]
        feeds = dict(zip(names, arrays, strict=True))
        expected = dict(
            zip((v.name for v in case.model.graph.output), (proof_suite._array(o) for o in outputs), strict=False)
        )
        yield case.name, "as is", case.model, feeds, expected
        constant = proof_suite.constant_inputs(case.model, arrays)
        if constant is not None:
            yield case.name, "constant inputs", constant, {names[0]: arrays[0]}, expected


def judge(suite: Builder, model: onnx.ModelProto, feeds: Any, expected: Any, target: Target) -> Row:
    """Returns what becomes of a test raw, and through trtconv."""
    if not feeds and model.graph.input:
        return {"raw": "refused", "trtconv": "refused", "why": "its inputs are sequences or optionals"}
    raw, why = suite.judged(model, feeds, expected)
    try:
        made, done, wrong = proof_suite.prepared(model, target)
    except Exception as error:  # A bug in trtconv: told, and the rest is tried.
        return {"raw": raw, "trtconv": "broke a contract", "why": str(error)[:_TEXT]}
    passes = sorted({edit.pass_name for edit in done.edits})
    errors = [f"{each.code}: {each.message}" for each in wrong]
    left = errors or [f"{skip.pass_name}: {skip.reason}" for skip in done.skipped]
    found, said = suite.judged(made, feeds, expected) if passes else (raw, why)
    if found == "proven" and errors:
        found, said = "refused", errors[0]
    reasons = "; ".join(filter(None, [*left[:2], said]))[: 2 * _TEXT]
    return {"raw": raw, "trtconv": found, "passes": passes, "why": "" if found == "proven" else reasons or why}


def main() -> None:
    """Runs what is left of the suite, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", default="", help="Run the tests of one operator, or one test; print them, write nothing."
    )
    parser.add_argument("--target", default="rtx-1.7", help="What the passes are told to write for.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    target = Target.parse(options.target)
    assert target is not None
    suite, started = Builder(), time.perf_counter()
    kept = options.out.with_suffix(".jsonl")
    done = {} if options.only else kept_rows(kept, "test", "variant")
    rows: list[Row] = []
    with contextlib.nullcontext(sys.stdout) if options.only else kept.open("a", encoding="utf-8") as file:
        for test, variant, model, feeds, expected in jobs(options.only):
            row = done.get((test, variant))
            if row is None:
                row = {"test": test, "variant": variant, **judge(suite, model, feeds, expected, target)}
                if row["trtconv"] != "proven":
                    row["kind"] = kind(model, row)
                print(json.dumps(row), file=file, flush=True)
            rows.append(row)
    report = summary(rows, suite.version, str(target), time.perf_counter() - started)
    print(json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1))
    if not options.only:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def summary(rows: list[Row], version: str, target: str, seconds: float) -> Row:
    """Returns counts by variant, and what is not proven."""
    report: Row = {"tensorrt_rtx": version, "onnx": onnx.__version__, "target": target, "seconds": round(seconds, 1)}
    by_test: dict[str, bool] = {}
    for row in rows:
        by_test[row["test"]] = by_test.get(row["test"], False) or row["trtconv"] == "proven"
    for variant in ("as is", "constant inputs"):
        found = [row for row in rows if row["variant"] == variant]
        report[variant] = {
            "tests": len(found),
            **{way: dict(collections.Counter(row[way] for row in found).most_common()) for way in ("raw", "trtconv")},
            "lost": [row["test"] for row in found if row["raw"] == "proven" != row["trtconv"]],
            "reasons": dict(collections.Counter(row["kind"] for row in found if "kind" in row).most_common()),
            "by pass": dict(
                collections.Counter(
                    name for row in found if row["trtconv"] == "proven" != row["raw"] for name in row["passes"]
                ).most_common()
            ),
        }
    report["tests"] = len(by_test)
    report["proven as they are, or with constants"] = sum(by_test.values())
    report["rows"] = [row for row in rows if row["trtconv"] != "proven"]
    return report


if __name__ == "__main__":
    main()
