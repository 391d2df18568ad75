"""What the terms of an element of a sum add up to without their signs: as far as rounding may take it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof import models
from trtconv.runtimes.proof.feeds import InputKind, Source, make
from trtconv.runtimes.proof.task import Look, Task

RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'
PIECES = {
    "an int8 kernel": "{ k = DequantizeLinear <axis = 0> (codes, scales, zeros)  y = Conv (x, k) }",
    "an exchanged sign": "{ k = DequantizeLinear <axis = 0> (codes, scales, zeros)  n = Neg (k)  y = Conv (x, n) }",
    "a log": "{ k = DequantizeLinear <axis = 0> (codes, scales, zeros)  a = Abs (x)  l = Log (a)  y = Conv (l, k) }",
}


@pytest.mark.parametrize("body", PIECES.values(), ids=PIECES.keys())
def test_terms_do_not_cancel(body: str, tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(HEADER + "g (float[1,3,8,8] x) => (float[1,4,6,6] y) " + body)
    constants = {"codes": CODES, "scales": np.full(4, 0.01, np.float32), "zeros": np.zeros(4, np.int8)}
    proto.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    source, shapes, kind = Source("x", "float32"), {"x": (1, 3, 8, 8)}, InputKind.ORDINARY
    nodes, look = tuple(range(len(proto.graph.node))), Look.TERMS
    task = Task(0, nodes, (source,), "y", shapes, (), 1.0, (kind,), 2.0**-23, False, look=look)
    arrays, calm, why = models._run(OnnxModel(proto, tmp_path / "m.onnx"), task)
    assert (calm, why) == ({"0": 0}, "")
    x = np.abs(make([source], shapes, kind, (), 1.0)["x"]).astype(np.float64)
    x = np.abs(np.log(x)) if "Log" in body else x
    columns = np.lib.stride_tricks.sliding_window_view(x[0], (3, 3), (1, 2))
    expected = np.einsum("chwij,ocij->ohw", columns, 0.01 * np.abs(CODES.astype(np.float64)))
    np.testing.assert_allclose(arrays["terms 0"][0], expected, 1e-5)
    assert (np.abs(arrays["value 0"]) < arrays["terms 0"]).all()


@pytest.mark.parametrize("writeable", [True, False])
def test_magnitudes_take_the_place_of_weights_that_may_be_written(writeable: bool, tmp_path: Path) -> None:
    """The largest weight of a network is what the process takes most memory for; what is read alone stays as it is."""
    kernel = RANDOM.standard_normal((128, 128)).astype(np.float32)
    proto = onnx.parser.parse_model(HEADER + "g (float[1,128] x) => (float[1,128] y) { y = MatMul (x, k) }")
    proto.graph.initializer.append(numpy_helper.from_array(kernel, "k"))
    values = kernel.copy()
    values.flags.writeable = writeable
    weights = {"k": values}
    models._absolute(proto, OnnxModel(proto, tmp_path / "m.onnx"), weights)
    np.testing.assert_array_equal(weights["k"], np.abs(kernel))
    assert np.shares_memory(weights["k"], values) is writeable
    np.testing.assert_array_equal(values, np.abs(kernel) if writeable else kernel)
