"""Every node test of ONNX's backend suite goes through the passes: it computes what it did, where they act.

Run as a script, as `RECORDING` says, it records on how many tests of each operator which pass acts.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import json
import pkgutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as suite
import pytest
from onnx import numpy_helper

from support.onnx_models import RTX, TENSORRT_8, rewritten
from support.session import session
from trtconv.core.target import Target
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.passes import passes_for

RECORD = Path(__file__).parents[2] / "data" / "passes-node-suite.json"
TARGETS = (RTX, TENSORRT_8)
MODULES = sorted(module.name for module in pkgutil.iter_modules(suite.__path__))
RECORDING = "PYTHONPATH=tests .venv/bin/python tests/unit/passes/test_passes_node_suite.py"
RANDOM = ("bernoulli", "dropout", "random", "training")


@functools.cache
def cases(module: str) -> list[Any]:
    """Returns the tests of one operator: all 1,900 take seconds to make."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        loaded = importlib.import_module(f"{suite.__name__}.{module}")
        # Importing it made them, if nothing else had imported it: made again, into lists of their own.
        made: list[Any] = []
        patch.setattr(suite, "_NodeTestCases", made)
        patch.setattr(suite, "_existing_names", {}, raising=False)
        importlib.reload(loaded)
    return [case for case in made if case.model is not None and not any(word in case.name for word in RANDOM)]


def variants(case: Any) -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    """Yields the model as it is, and with all inputs but the first as constants, each with what it is fed."""
    feeds = dict(zip((value.name for value in case.model.graph.input), case.data_sets[0][0], strict=False))
    yield "inputs", case.model, feeds
    constant = {name: array for name, array in list(feeds.items())[1:] if isinstance(array, np.ndarray)}
    if constant:
        proto = onnx.ModelProto()
        proto.CopyFrom(case.model)
        kept = [value for value in proto.graph.input if value.name not in constant]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constant.items())
        yield "constants", proto, {value.name: feeds[value.name] for value in kept}


def computes(proto: onnx.ModelProto, feeds: dict[str, Any], expected: Sequence[Any]) -> bool:
    """Whether a model has these results: on ONNX Runtime, or on ONNX's reference where that lacks or fails a kernel."""
    for load in (functools.partial(session, sized=False), reference_evaluator):
        # They raise whatever their operators do.
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            if all(map(agree, expected, load(proto).run(None, feeds))):
                return True
    return False


def agree(expected: Any, got: Any) -> bool:
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return not isinstance(expected, np.ndarray)
    close = 2e-2 if expected.dtype.itemsize < 4 and expected.dtype.kind not in "iub" else 1e-3
    if expected.dtype.kind in "OUS" or expected.shape != got.shape:
        return expected.shape == got.shape
    return np.allclose(got.astype(np.complex128), expected.astype(np.complex128), close, close, equal_nan=True)


@functools.cache
def acting(module: str) -> dict[str, int]:
    counts: collections.Counter[str] = collections.Counter()
    for case in cases(module):
        for _, proto, _ in variants(case):
            for target in TARGETS:
                counts.update({edit.pass_name for edit in rewritten(proto, target, passes_for("fp16"))[1].edits})
    return dict(sorted(counts.items()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("module", MODULES)
def test_rewritten_models_compute_what_the_suite_expects(module: str, target: Target) -> None:
    wrong = []
    for case in cases(module):
        for variant, proto, feeds in variants(case):
            model, result = rewritten(proto, target, passes_for("fp16"))
            expected = case.data_sets[0][1]
            if result.edits and computes(proto, feeds, expected) and not computes(model.proto, feeds, expected):
                wrong.append(f"{case.name}, {variant}, after {sorted({edit.pass_name for edit in result.edits})}")
    assert wrong == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module", MODULES)
def test_the_passes_act_where_they_acted(module: str) -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    if onnx.__version__ != record["onnx"]:
        pytest.skip(f"recorded with the tests of ONNX {record['onnx']}")
    assert acting(module) == record["acting"].get(module, {}), f"if that is meant: {RECORDING}"


if __name__ == "__main__":
    made = {module: counts for module in MODULES if (counts := acting(module))}
    RECORD.write_text(json.dumps({"onnx": onnx.__version__, "acting": made}, indent=1) + "\n", "utf-8")
