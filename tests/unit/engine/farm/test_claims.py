"""What a result says of an engine's inputs and outputs is held to the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import parser

from trtconv.core.documents.tensors import TensorInfo
from trtconv.engine.farm.claims import check_tensors
from trtconv.graph.model import OnnxModel

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[n,3,h,w] x) => (float[n,3,h,w] y, float z) { y = Relu (x)  z = ReduceMean <keepdims = 0> (x) }"""
INPUT = {"kind": "input", "name": "x", "dtype": "float32", "shape": (-1, 3, -1, -1)}
OUTPUT = {"kind": "output", "name": "y", "dtype": "float32", "shape": (-1, 3, -1, -1)}
SCALAR = {"kind": "output", "name": "z", "dtype": "float32", "shape": ()}


@pytest.mark.parametrize(
    ("x", "y", "z", "said"),
    [
        ({}, {}, {}, None),
        # Sizes that are the same at all that an engine is built for, and such as TensorRT has not worked out.
        ({"shape": (1, 3, 8, 8)}, {"shape": (1, 3, 8, 8)}, {}, None),
        ({}, {"shape": (-1, -1, -1, -1)}, {}, None),
        ({"shape": (-1, 4, -1, -1)}, {}, {}, "input 'x' of its engine has another shape"),
        ({"shape": (-1, -1, -1, -1)}, {}, {}, "input 'x' of its engine has another shape"),
        ({}, {"shape": (-1, 5, -1, -1)}, {}, "output 'y' of its engine has another shape"),
        ({}, {"shape": (-1,)}, {}, "output 'y' of its engine has another shape"),
        ({}, {"shape": (-2, 3, -1, -1)}, {}, "output 'y' of its engine has another shape"),
        ({}, {}, {"shape": (1,)}, "output 'z' of its engine has another shape"),
        ({}, {"dtype": "int8"}, {}, "output 'y' of its engine is 'int8'"),
        ({}, {"name": "other"}, {}, "other inputs or outputs"),
    ],
)
def test_claims(x: dict[str, Any], y: dict[str, Any], z: dict[str, Any], said: str | None, tmp_path: Path) -> None:
    model = OnnxModel(parser.parse_model(TEXT), tmp_path / "m.onnx")
    tensors = [TensorInfo(**{**one, **change}) for one, change in ((INPUT, x), (OUTPUT, y), (SCALAR, z))]
    if said is None:
        check_tensors(model, tensors, cast=False, retyped=False)
        return
    with pytest.raises(ValueError, match=said):
        check_tensors(model, tensors, cast=False, retyped=False)
