"""Whether a change of a parsed network changes what it computes: the network before and after it, on many inputs.

Where the change has a twin in the model (the same weight, attribute or operator of the ONNX node), ONNX Runtime runs
the model before and after that, and the interpreter of the proof has no say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtconv.core.dims import InputSpec
from trtconv.core.frozen import frozen
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import numpy_type, session
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import Malformed, NotProven, ReadNetwork

RELATIVE = 1e-4
_OF_PEAK = 1e-6
_INTEGERS = (2, 4, 30)
_MEGABYTES = 2000.0

Feeds = dict[str, Any]


@frozen
class Verdict:
    """What a change does: "different", "equivalent" or "not known", by which oracle, and where it shows."""

    says: str
    by: str = "interpreter"
    where: str = ""


def feeds(inputs: Sequence[InputSpec], sizes: Sequence[Mapping[str, int]], seed: int) -> Iterator[tuple[str, Feeds]]:
    """Yields inputs of many kinds, at all sizes, as (in words, values)."""
    random = np.random.default_rng(seed)
    named = {each for spec in inputs for each in spec.dims if isinstance(each, str)}
    for number, size in enumerate(sizes):
        at = ", ".join(f"{name} {size[name]}" for name in sorted(named & size.keys()))
        for kind in ("normal", "small", "large", "images", "negative", "ties", "zeros"):
            limit = _INTEGERS[number % len(_INTEGERS)] if kind != "normal" else _INTEGERS[-1 - number % 2]
            yield (
                f"{kind} at {at}" if at else kind,
                {each.name: _value(each, size, kind, limit, random) for each in inputs},
            )


def _value(spec: InputSpec, size: Mapping[str, int], kind: str, limit: int, random: np.random.Generator) -> Any:
    shape = tuple(each if isinstance(each, int) else size.get(each, 6) for each in spec.dims)
    dtype = numpy_type(spec)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return random.integers(0, limit, shape).astype(dtype)
    normal = random.standard_normal(shape)
    made = {
        "normal": normal,
        "small": normal * 0.003,
        "large": normal * 100,
        "images": random.integers(0, 256, shape),
        "negative": -np.abs(normal) - 0.5,
        "ties": np.round(normal * 2) / 2,
        "zeros": normal * 0,
    }[kind]
    return np.asarray(made).astype(dtype)


def judge(before: ReadNetwork, after: ReadNetwork, tried: Sequence[tuple[str, Feeds]]) -> Verdict:
    """Runs both networks on the interpreter."""
    failed = ""
    for where, values in tried:
        expected = _outputs(before, values)
        if isinstance(expected, (str, Malformed)):
            continue
        got = _outputs(after, values)
        if isinstance(got, Malformed):
            return Verdict("different", where=f"{where}: {got.reason}")
        if isinstance(got, str):
            failed = got
        elif differ(expected, got):
            return Verdict("different", where=where)
    return Verdict("not known", where=failed) if failed else Verdict("equivalent")


def _outputs(network: ReadNetwork, values: Feeds) -> Feeds | Malformed | str:
    """Returns what a network computes, or why it computes nothing: it cannot, or it is not known."""
    run = Run(network, values, megabytes=_MEGABYTES)
    try:
        found = run.outputs()
    except NotProven as error:
        return error.reason
    if run.malformed and len(found) < len(network.outputs):
        return Malformed(run.unproven[min(run.malformed)])
    if len(found) < len(network.outputs):
        return next(iter(run.unproven.values()), "an output is missing")
    return found


def judge_models(before: bytes, after: bytes, path: Path, tried: Sequence[tuple[str, Feeds]]) -> Verdict | None:
    """Runs both models on ONNX Runtime; returns None where it does not run the second."""
    with contextlib.suppress(Exception):
        sessions = [session(OnnxModel(onnx.load_model_from_string(data), path)) for data in (before, after)]
        names = [each.name for each in sessions[0].get_outputs()]
        for where, values in tried:
            try:
                expected = sessions[0].run(names, values)
            except Exception:  # Indices beyond the table; it raises its own types.
                continue
            got = sessions[1].run(names, values)
            if differ(dict(zip(names, expected, strict=True)), dict(zip(names, got, strict=True))):
                return Verdict("different", "ONNX Runtime", where)
        return Verdict("equivalent", "ONNX Runtime")
    return None


def differ(expected: Feeds, got: Feeds) -> bool:
    """Whether an element of an output is another one."""
    return any(_differs(np.asarray(values), np.asarray(got[name])) for name, values in expected.items())


def _differs(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind in "iub":
        return not np.array_equal(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return True
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return True
    a, b = a[finite], b[finite]
    floor = _OF_PEAK * float(np.abs(a).max(initial=0.0))
    return bool((np.abs(a - b) > RELATIVE * np.maximum(np.abs(a), np.abs(b)) + floor).any())
