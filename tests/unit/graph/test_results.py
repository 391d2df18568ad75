"""Softmax, sigmoid and argmax at the end of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtconv.core.errors import InputError
from trtconv.core.interface import Interface, read_results
from trtconv.graph.fitting import fit, reloaded
from trtconv.graph.model import OnnxModel

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
BODY = "g (float[n,3,4,5] x) => (float[n,3,4,5] y, float[n,3,4,5] z, int64[4] s) "
NODES = "{ y = Neg (x)  z = Abs (y)  s = Shape (y) }"


def fitted(folder: Path, *texts: str, opset: int = 13) -> OnnxModel:
    proto = onnx.parser.parse_model(f'<ir_version: 7, opset_import: ["": {opset}]> {BODY}{NODES}')
    onnx.save(proto, folder / "m.onnx")
    model = OnnxModel.load(folder / "m.onnx")
    fit(model, Interface(results=read_results(texts)))
    onnx.checker.check_model(model.proto, full_check=True)
    return model


def ran(model: OnnxModel) -> dict[str, NDArray[Any]]:
    session = onnxruntime.InferenceSession(model.serialize())
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, {"x": X}), strict=True))


def softmax(values: NDArray[Any], axis: int) -> NDArray[Any]:
    powers = np.exp(values - values.max(axis, keepdims=True))
    result: NDArray[Any] = powers / powers.sum(axis, keepdims=True)
    return result


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize(("text", "axis"), [("y=softmax", 1), ("y=softmax:-1", 3), ("y=softmax:0", 0)])
def test_a_softmax_is_along_its_axis_in_every_version(tmp_path: Path, opset: int, text: str, axis: int) -> None:
    made = ran(fitted(tmp_path, text, opset=opset))
    np.testing.assert_allclose(made["y"], softmax(-X, axis), atol=1e-6)
    # What reads the output inside still reads what it read.
    np.testing.assert_array_equal(made["z"], abs(X))
    assert made["s"].tolist() == [2, 3, 4, 5]


def test_an_argmax_is_int32_without_its_axis(tmp_path: Path) -> None:
    model = fitted(tmp_path, "y=argmax", "z=argmax:-2")
    made = ran(model)
    assert (made["y"].dtype, made["z"].dtype) == (np.int32, np.int32)
    np.testing.assert_array_equal(made["y"], (-X).argmax(1))
    np.testing.assert_array_equal(made["z"], abs(X).argmax(2))
    dims = [each.dim_value or each.dim_param for each in model.proto.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["n", 4, 5]
    assert reloaded(model.copy()).proto == model.proto


def test_a_sigmoid_needs_no_axis(tmp_path: Path) -> None:
    np.testing.assert_allclose(ran(fitted(tmp_path, "z=sigmoid"))["z"], 1 / (1 + np.exp(-abs(X))), atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["softmax"], "several outputs"),
        (["q=softmax"], "no output 'q'"),
        (["s=argmax"], "it is int64"),
        (["y=softmax:4"], "no axis 4"),
        (["y=softmax:-5"], "no axis -5"),
        (["y=softmax:a"], "not an axis"),
        (["y=sigmoid:1"], "not an axis"),
        (["y=softmx"], "'softmx' is unknown"),
        (["y=softmax", "y=argmax"], "names 'y' twice"),
    ],
)
def test_what_has_no_result_is_refused(tmp_path: Path, texts: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        fitted(tmp_path, *texts)


def test_the_only_output_needs_no_name(tmp_path: Path) -> None:
    text = '<ir_version: 7, opset_import: ["": 13]> g (float[2,3] x) => (float[2,3] y) { y = Neg (x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "o.onnx")
    model = OnnxModel.load(tmp_path / "o.onnx")
    fit(model, Interface(results=read_results(["argmax:0"])))
    assert [each.op_type for each in model.proto.graph.node] == ["Neg", "ArgMax", "Cast"]
