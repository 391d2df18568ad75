"""Draws models of one operator each, of any attributes, sizes and types that ONNX Runtime runs, for node_suite.py.

    python bench/gpu/operator_draws.py FOLDER [--each 12] [--seed 1] [--only Resize ...]

Writes FOLDER/OPERATOR_NUMBER.pickle: the model's bytes, its inputs, its outputs. ONNX's own node tests show every
operator in a few forms; these are the other forms. A draw that ONNX Runtime refuses is none. Where ONNX's reference
differs from ONNX Runtime, it is left out too: whoever is right, such a case would prove nothing.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

from operator_forms import FORMS, Form, Hand  # noqa: E402

_TRIES = 6
"""Draws for each case that is to be."""
_TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}
_OPSETS = (9, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23)


def main() -> int:
    """Draws; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for op in options.only or FORMS:
        # Each operator draws its own numbers, so that one more changes none of the others.
        r = random.Random(zlib.crc32(f"{op} {options.seed}".encode()))
        cases: list[tuple[bytes, list[Any], list[Any]]] = []
        for _ in range(options.each * _TRIES):
            if len(cases) < options.each and (case := draw(op, FORMS[op], r)) is not None:
                cases.append(case)
        for number, case in enumerate(cases):
            (options.folder / f"{op}_{options.seed}_{number}.pickle").write_bytes(pickle.dumps(case))
        print(f"{op:28} {len(cases)}")
    return 0


def draw(op: str, form: Callable[[Hand], Form], r: random.Random) -> tuple[bytes, list[Any], list[Any]] | None:
    """Returns a model, what goes in and what comes out; None where it is not one."""
    hand = Hand(r, r.choice(_OPSETS))
    try:
        drawn = form(hand)
        model = model_of(op, drawn, hand)
        onnx.checker.check_model(model, full_check=True)
    except Exception:  # Of any kind: what was drawn makes no sense.
        return None
    feeds = {name: array for name, array in drawn.named() if name in {value.name for value in model.graph.input}}
    if not feeds or not (outputs := _right(model, feeds)):
        return None
    return model.SerializeToString(), list(feeds.values()), outputs


def model_of(op: str, drawn: Form, hand: Hand) -> onnx.ModelProto:
    """Returns the model of a form: its first input runs, the others are constants or run too, sizes may be dynamic."""
    r = hand.random
    names = [name for name, _ in drawn.named()]
    inputs, initializers = [], []
    for place, (name, array) in enumerate(drawn.named()):
        constant = 0.9 if array.dtype.kind in "iu" else 0.6
        if place and (place in drawn.constants or r.random() < constant):
            initializers.append(numpy_helper.from_array(array, name))
            continue
        free = r.random() < (0.15 if place else 0.4)
        sizes = [f"{name}{axis}" if free and r.random() < 0.6 else size for axis, size in enumerate(array.shape)]
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
    places = iter(names)
    node = helper.make_node(
        op,
        ["" if array is None else next(places) for array in drawn.inputs],
        [f"y{number}" for number in range(drawn.outputs)],
        "node",
        **drawn.attributes,
    )
    graph = helper.make_graph([node], "drawn", inputs, [], initializers)
    versions = {9: 4, 11: 6, 12: 7, 13: 7, 14: 7, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 10}
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", hand.opset)], ir_version=versions[hand.opset]
    )
    typed = {value.name: value for value in _typed(model, node.output)}
    graph.output.extend(typed[name] for name in node.output)
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _typed(model: onnx.ModelProto, names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    inferred = onnx.shape_inference.infer_shapes(copy, data_prop=True)
    return list(inferred.graph.output)


def _right(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any] | None:
    """Returns the outputs, where ONNX Runtime has some, and ONNX's reference no others."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        outputs = session.run(None, dict(feeds))
    except Exception:  # It has classes of its own for all that can be wrong.
        return None
    with np.errstate(all="ignore"):
        try:
            others = ReferenceEvaluator(model).run(None, dict(feeds))
        except Exception:  # It lacks operators, and fails at some forms.
            return list(outputs)
    same = all(_same(a, b) for a, b in zip(outputs, others, strict=True))
    return list(outputs) if same else None


def _same(a: Any, b: Any) -> bool:
    if a.shape != np.shape(b):
        return False
    coarse = a.dtype == np.float16
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if coarse else _TOLERANCE
    return bool(np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), equal_nan=True, **tolerance))


if __name__ == "__main__":
    sys.exit(main())
