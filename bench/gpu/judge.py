"""Examines one case: the raw model and the one that trtconv's passes make of it, on ONNX Runtime and on TensorRT."""

from __future__ import annotations

import dataclasses
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from cases import EXACT, Case
from nets import Sample, run_onnx
from numpy.typing import NDArray
from trt86 import Engine, Options, Refused, TensorRT, gpu, race

from trtconv.core.errors import BuildFailed
from trtconv.core.findings import Severity
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.passes import PassResult, passes_for, run_passes
from trtconv.rules import run_rules
from trtconv.runtimes import tensorrt
from trtconv.runtimes.compare import relative_error
from trtconv.runtimes.tensorrt.audit import audit

Array = NDArray[Any]
Row = dict[str, Any]

BACKENDS = ("tensorrt", "rtx", "none")
_MODULES = {"tensorrt": "tensorrt", "rtx": "tensorrt_rtx"}
_FLAGS = {"fp32": (), "fp16": ("FP16",), "int8": ("INT8",)}
_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_MESSAGE = 400


@dataclasses.dataclass
class Pair:
    """A case, its two models and what they compute on ONNX Runtime.

    Args:
        expected: Result of the original.
        rewritten_result: Result of the rewritten model.
        noise: Relative error of the original itself where its inputs change by 1e-5: what rounding that falls
            the other way here and there adds up to in a deep int8 network.
    """

    case: Case
    sample: Sample
    original: OnnxModel
    rewritten: OnnxModel
    done: PassResult
    expected: list[Array]
    rewritten_result: list[Array]
    noise: float = 0.0

    @property
    def is_edited(self) -> bool:
        """Whether the passes changed anything."""
        return bool(self.done.edits)

    @property
    def reference(self) -> list[Array]:
        """What the rewritten engine is held to."""
        return self.expected if self.case.against == "original" else self.rewritten_result


def prepare(case: Case, threads: int = 0) -> Pair:
    """Makes the models of a case and runs both on ONNX Runtime."""
    sample = case.make()
    original, rewritten, done = rewrite(sample, case.target, case.precision)
    expected = run_onnx(original.proto, sample.feeds, threads)
    got = run_onnx(rewritten.proto, sample.feeds, threads) if done.edits else expected
    noise = _noise(sample, expected, threads) if case.section == "networks" and case.precision == "int8" else 0.0
    return Pair(case, sample, original, rewritten, done, expected, got, noise)


def _noise(sample: Sample, expected: list[Array], threads: int) -> float:
    """Returns how far rounding alone takes the result: the worst of ten tries with inputs moved by 1e-5.

    That is about what the float32 sums of some twenty layers of 432 terms each differ by. The result moves by whole
    steps of its quantiser, so a float's rounding is added.
    """
    random = np.random.default_rng(3)
    worst = 0.0
    for _ in range(10):
        feeds = {
            name: (values * (1 + 1e-5 * random.standard_normal(values.shape))).astype(values.dtype)
            for name, values in sample.feeds.items()
        }
        worst = max(worst, _worst(expected, run_onnx(sample.model, feeds, threads)) or 0.0)
    return worst + EXACT


def _wrap(model: onnx.ModelProto) -> OnnxModel:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return OnnxModel(copy, Path("model.onnx"))


class Bench:
    """TensorRT in this process; trtconv's adapter parses for the audit alone.

    Args:
        backend: "tensorrt", "rtx" (builds only) or "none" (neither).
        threads: Threads of ONNX Runtime; 0 is all.
    """

    def __init__(self, backend: str, threads: int = 0) -> None:
        self.backend = backend
        self.threads = threads
        self.plain: TensorRT | None = None
        if backend != "none":
            # First, so that its logger becomes the one that TensorRT keeps.
            self.plain = TensorRT(importlib.import_module(_MODULES[backend]))
            self._adapter = tensorrt.load(Target("rtx" if backend == "rtx" else "tensorrt"))

    def versions(self) -> dict[str, str]:
        """Returns the versions that only this process knows."""
        found = {"tensorrt": self.plain.version if self.plain else "none"}
        if self.backend == "tensorrt":
            found["cuda_driver"] = gpu().driver_version
        return found

    def examine(self, case: Case) -> Row:
        """Returns the row of a case, without latencies."""
        started = time.perf_counter()
        row = describe(case)
        pair = prepare(case, self.threads)
        row["edits"] = [{"pass": e.pass_name, "node": e.node, "what": e.what} for e in pair.done.edits]
        row["skipped"] = [{"pass": s.pass_name, "node": s.node, "reason": s.reason} for s in pair.done.skipped]
        row["findings"] = error_codes(pair.original, case.target)
        row["findings_after"] = error_codes(pair.rewritten, case.target)
        row["expected_shape"] = [list(each.shape) for each in pair.expected]
        row["rewrite_error"] = _worst(pair.expected, pair.rewritten_result)
        row["limit"] = max(case.limit, pair.noise)
        if case.refused_by:
            row["refused"] = case.refused_by in row["findings"]
        if self.plain is not None:
            row["raw"] = self._side(pair, pair.original, pair.expected)
            row["rewritten"] = self._side(pair, pair.rewritten, pair.reference) if pair.is_edited else row["raw"]
        row["seconds"] = round(time.perf_counter() - started, 2)
        return row

    def time(self, case: Case, rebuilds: int = 2) -> Row:
        """Returns latencies of a case's two engines; builds them anew where the ratio is beyond its limit."""
        assert self.plain is not None
        pair = prepare(case, self.threads)
        if not pair.is_edited:
            return {"same_network": True}
        tries: list[Row] = []
        while len(tries) <= rebuilds and (not tries or tries[-1]["ratio"] > case.max_ratio):
            tries.append(self._race(pair, keep_timings=not tries))
        best = {side: min(each[side]["us"] for each in tries) for side in ("raw", "rewritten")}
        ratio = round(best["rewritten"] / best["raw"], 4)
        return {**best, "ratio": ratio, "tries": tries, "same_network": False}

    def _race(self, pair: Pair, *, keep_timings: bool) -> Row:
        assert self.plain is not None
        engines: list[Engine] = []
        try:
            for model in (pair.original, pair.rewritten):
                plan = self.plain.build(model.serialize(), options_of(pair, model), keep_timings=keep_timings)
                engines.append(self.plain.engine(plan))
                engines[-1].load(pair.sample.feeds)
            (raw, rewritten), how = race(engines)
        finally:
            for engine in engines:
                engine.free()
        ratio = round(rewritten.us / raw.us, 4)
        return {"raw": dataclasses.asdict(raw), "rewritten": dataclasses.asdict(rewritten), "ratio": ratio, **how}

    def _side(self, pair: Pair, model: OnnxModel, reference: list[Array]) -> Row:
        """Parses, audits, builds, runs and compares one model."""
        assert self.plain is not None
        side: Row = {"audit": self._audit(model)}
        started = time.perf_counter()
        try:
            plan = self.plain.build(model.serialize(), options_of(pair, model))
            side["build_seconds"] = round(time.perf_counter() - started, 2)
            if self.backend == "rtx":
                return {**side, "verdict": "builds"}
            got = self._run(plan, pair.sample)
        except Refused as error:
            return {**side, "verdict": f"{error.stage} error", "message": error.message[:_MESSAGE]}
        return {**side, **_compare(pair, got, reference)}

    def _run(self, plan: Any, sample: Sample) -> list[Array]:
        assert self.plain is not None
        engine = self.plain.engine(plan)
        try:
            engine.load(sample.feeds)
            return [each.astype(np.float32) for each in engine.run()]
        finally:
            engine.free()

    def _audit(self, model: OnnxModel) -> list[str] | str:
        """Returns what trtconv's own adapter and audit say: differences, or the parser's refusal."""
        named = _wrap(model.proto)
        named.name_nodes("ConvTranspose")
        try:
            parsed = self._adapter.parse(named.serialize(), named.path)
        except BuildFailed as error:
            return f"the parser broke down: {error.message[:_MESSAGE]}"
        if isinstance(parsed, tuple):
            return "refused: " + "; ".join(f"{i.op} {i.node_name}: {i.message}" for i in parsed)[:_MESSAGE]
        return [f"{finding.location}: {finding.message}"[:_MESSAGE] for finding in audit(named, parsed)]


def describe(case: Case) -> Row:
    """Returns what a row says before anything has run."""
    return {
        "name": case.name,
        "section": case.section,
        "title": case.title,
        "precision": case.precision,
        "limit": case.limit,
        "against": case.against,
        "target": case.target,
        "max_ratio": round(case.max_ratio, 4) if np.isfinite(case.max_ratio) else None,
    }


def options_of(pair: Pair, model: OnnxModel) -> Options:
    """Returns how an engine of a case is built: int8 where it has Q/DQ, float16 beside that where it is about speed."""
    flags = [name for name in _FLAGS[pair.case.precision] if name != "INT8"]
    flags += ["FP16"] if pair.case.section == "speed" else []
    flags += ["INT8"] if any(node.op_type in _LINEAR for node in model.proto.graph.node) else []
    return Options(tuple(dict.fromkeys(flags)), pair.case.half_io, pair.sample.profile)


def error_codes(model: OnnxModel, target: str) -> list[str]:
    """Returns the codes of the errors that trtconv's rules find for a target."""
    parsed = Target.parse(target)
    assert parsed is not None
    return sorted({finding.code for finding in run_rules(model, parsed) if finding.severity is Severity.ERROR})


def rewrite(sample: Sample, target: str, precision: str) -> tuple[OnnxModel, OnnxModel, PassResult]:
    """Returns the original, what the passes make of it for a target, and what they did."""
    parsed = Target.parse(target)
    assert parsed is not None
    original, rewritten = _wrap(sample.model), _wrap(sample.model)
    return original, rewritten, run_passes(rewritten, passes_for(precision), parsed)


def _worst(expected: list[Array], got: list[Array]) -> float | None:
    """Returns the largest relative error, or None where shapes differ or something is not finite."""
    errors = [relative_error(a, b) for a, b in zip(expected, got, strict=True)]
    worst = max(errors, default=0.0)
    return worst if np.isfinite(worst) else None


def _compare(pair: Pair, got: list[Array], reference: list[Array]) -> Row:
    shapes = [list(each.shape) for each in got]
    if shapes != [list(each.shape) for each in reference]:
        return {"verdict": "wrong shape", "shape": shapes}
    error = _worst(reference, got)
    right = error is not None and error <= max(pair.case.limit, pair.noise)
    found: Row = {"verdict": "right" if right else "wrong numbers", "shape": shapes, "error": error}
    if reference is not pair.expected:
        found["error_against_original"] = _worst(pair.expected, got)
    return found
