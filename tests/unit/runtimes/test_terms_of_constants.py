"""What nodes make of constants is worked out as ONNX Runtime does, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.session import session
from support.term_values import term_of
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.terms.term import Term

FOLDED: list[tuple[str, str, dict[str, Any]]] = [
    *(
        (f"y = {op} (a, b)", kind, {"a": [7, -7, 7, -7, 6, 0], "b": [2, 2, -2, -2, 3, 5]})
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "GreaterOrEqual", "Less", "Mod")
        for kind in ("int64", "int32")
    ),
    *(
        (f"y = {op} (a, b)", "float32", {"a": [[7], [-0.5]], "b": [0.25, -2, 7]})
        for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "LessOrEqual")
    ),
    ("y = Div (a, b)", "int64", {"a": [2**62 + 1, -(2**62) - 1], "b": [1, 1]}),
    *((f"y = {op} (a, b)", "bool", {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}) for op in ("And", "Or")),
    *((f"y = {op} (a)", "float32", {"a": [2.5, -1.5, 9, 0.25]}) for op in ("Abs", "Ceil", "Floor", "Neg", "Sqrt")),
    ("y = Not (a)", "bool", {"a": [0, 1]}),
    *((f"y = Cast <to = {to}> (a)", "float32", {"a": [2.5, -1.5, 0]}) for to in (1, 6, 7, 9, 10)),
    ("y = Cast <to = 1> (a)", "int64", {"a": [2, -1]}),
    ("y = Gather (a, b)", "int64", {"a": [[5, 6], [7, 8], [9, 1]], "b": [-1, 0]}),
    ("y = Gather <axis = 1> (a, b)", "int64", {"a": [[5, 6], [7, 8]], "b": [[1, -2, 1]]}),
    ("y = GatherElements (a, b)", "int64", {"a": [[5, 6, 1], [7, 8, 2]], "b": [[1, -2]]}),
    ("y = GatherElements <axis = -1> (a, b)", "int64", {"a": [[5, 6, 1], [7, 8, 2]], "b": [[2, -2, 0, 1]]}),
    ("c = Equal (a, b) y = Where (c, a, d)", "int64", {"a": [1, 2], "b": [1, 3], "d": [[8], [9]]}),
    *(
        ("y = Range (a, b, c)", kind, dict(zip("abc", map(np.int64, ends), strict=True)))
        for ends in ((1, 9, 2), (1, 10, 2), (9, 1, -3), (1, 1, 1), (4, 1, 1))
        for kind in ("int64", "int32")
    ),
    ("y = ConstantOfShape (a)", "int64", {"a": [2, 3]}),
    ("y = ConstantOfShape (a)", "int64", {"a": np.zeros(0)}),
    ("y = ConstantOfShape (a)", "int64", {"a": [0, 2]}),
    ("y = ConstantOfShape <value = int64[1] {7}> (a)", "int64", {"a": [2]}),
    ("y = Expand (a, b)", "int64", {"a": [[1], [2]], "b": [3, 1, 4]}),
    ("y = Expand (a, b)", "int64", {"a": [[1], [2]], "b": [1]}),
    ("y = Expand (a, b)", "int64", {"a": [1, 2], "b": np.zeros(0)}),
    ("t = Transpose (a) y = Reshape (t, b)", "int64", {"a": [[1, 2, 3], [4, 5, 6]], "b": [2, 3]}),
    ("y = Tile (a, b)", "int64", {"a": [[1, 2]], "b": [2, 3]}),
    ("y = Constant <value = float[2] {1, 2}> ()", "float32", {}),
    ("y = Transpose (a)", "int64", {"a": [[1, 2]]}),
    ("y = Concat <axis = 0> (a, b)", "int64", {"a": [1, 2], "b": [3]}),
    ("y = Slice (a, b, c, d, e)", "int64", {"a": [1, 2, 3, 4], "b": [3], "c": [0], "d": [0], "e": [-2]}),
    ("y = Slice (a, b, c, d, e)", "int64", {"a": [1, 2, 3, 4], "b": [3], "c": [-9], "d": [0], "e": [-1]}),
    ("y = Slice (a, b, c, d, e)", "int64", {"a": [1, 2, 3, 4], "b": [3], "c": [0], "d": [0], "e": [-1]}),
    ("y = Reshape (a, b)", "int64", {"a": [1, 2, 3, 4], "b": [2, 2]}),
]  # fmt: skip
"""Nodes that read constants of a type alone."""
UNFOLDED: list[tuple[str, str, dict[str, Any]]] = [
    ("y = Div (a, b)", "int64", {"a": [1, 2], "b": [1, 0]}),
    ("y = Mod (a, b)", "int64", {"a": [1, 2], "b": [1, 0]}),
    ("y = Mod <fmod = 1> (a, b)", "int64", {"a": [-7, 7], "b": [2, -2]}),
    ("y = Mod <fmod = 1> (a, b)", "float32", {"a": [-7, 7], "b": [2, -2]}),
    ("y = Gather (a, b)", "int64", {"a": [1, 2], "b": [2]}),
    ("y = Gather (a, b)", "int64", {"a": [1, 2], "b": [-3]}),
    ("y = GatherElements (a, b)", "int64", {"a": [1, 2], "b": [2]}),
    ("y = Range (a, b, c)", "int64", {"a": np.int64(1), "b": np.int64(9), "c": np.int64(0)}),
    ("y = Range (a, b, c)", "float32", {"a": np.float32(0), "b": np.float32(1), "c": np.float32(0.1)}),
    ("y = ConstantOfShape (a)", "int64", {"a": [2, -1]}),
    ("y = Expand (a, b)", "int64", {"a": [1, 2], "b": [3]}),
    ("y = Tile (a, b)", "int64", {"a": [[1, 2]], "b": [2]}),
    ("y = Tile (a, b)", "int64", {"a": [1, 2], "b": [-1]}),
    ("y = Cast <to = 8> (a)", "int64", {"a": [1, 2]}),
    ("y = Cast (a)", "int64", {"a": [1, 2]}),
    ("y = Identity (a)", "object", {"a": ["text"]}),
    ("y = Expand (a, b)", "int64", {"a": [1, 2], "b": [-1]}),
    ("y = Cast <to = 3> (a)", "float32", {"a": [300, -1.5]}),
    ("y = Constant <value_floats = [1.0, 2.0]> ()", "float32", {}),
]  # fmt: skip
"""Those that have no result, or one that is not worked out here."""


def folding(body: str, kind: str, constants: dict[str, Any]) -> tuple[Term | None, OnnxModel]:
    """Returns what `y` is written down as where nodes read constants alone, and their model."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g () => (float y) {{ {body} }}')
    held = [numpy_helper.from_array(np.asarray(values).astype(kind), name) for name, values in constants.items()]
    proto.graph.initializer.extend(held)
    proto.graph.output[0].ClearField("type")
    model = OnnxModel(onnx.shape_inference.infer_shapes(proto), Path("m.onnx"))
    return term_of(model), model


@pytest.mark.parametrize("case", FOLDED, ids=str)
def test_what_nodes_make_of_constants_is_worked_out(case: tuple[Any, ...]) -> None:
    term, model = folding(*case)
    (expected,) = session(model.proto, sized=False).run(["y"], {})
    assert term is not None and term.array is not None
    assert term.array.dtype == expected.dtype == term.dtype
    np.testing.assert_array_equal(term.array, expected)
    assert term.sizes == expected.shape


@pytest.mark.parametrize("case", UNFOLDED, ids=str)
def test_what_has_no_result_is_not_worked_out(case: tuple[Any, ...]) -> None:
    assert folding(*case)[0] is None
