"""Models with their narrow floats in float32."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from trtconv.graph.model import OnnxModel
from trtconv.graph.reference_evaluator import reference_evaluator
from trtconv.graph.wide_floats import emulation_in_float32, in_float32
from trtconv.runtimes.onnxruntime import session

TEXT = """<ir_version: 9, opset_import: ["": 19]> g (TYPE[2] x, bool c, int64[1] n) => (TYPE[2] y, float[2] z)
    <TYPE[2] w = {ONE, THREE}> {
      k = ConstantOfShape <value: tensor = TYPE[1] {TWO}> (n)
      i = If (c) <then_branch = a () => (TYPE[2] t) { b = Constant <value = TYPE[2] {FIVE, SIX}> ()  t = Add (x, b) },
                  else_branch = e () => (TYPE[2] f) { f = Neg (x) }>
      s = Mul (i, w)  y = Add (s, k)  z = Cast <to = 1> (y)  h = Cast <to = NUMBER> (z)
    }"""


# ONNX's texts write narrow floats as their bits.
HALF = {"ONE": 0x3C00, "TWO": 0x4000, "THREE": 0x4200, "FIVE": 0x4500, "SIX": 0x4600, "NUMBER": TensorProto.FLOAT16}
BFLOAT = {"ONE": 0x3F80, "TWO": 0x4000, "THREE": 0x4040, "FIVE": 0x40A0, "SIX": 0x40C0, "NUMBER": TensorProto.BFLOAT16}


@pytest.mark.parametrize(("name", "numbers"), [("float16", HALF), ("bfloat16", BFLOAT)])
def test_all_that_is_narrow_is_wide(name: str, numbers: dict[str, int]) -> None:
    text = TEXT.replace("TYPE", name)
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    proto = parser.parse_model(text)
    before = proto.SerializeToString()
    wide = in_float32(OnnxModel(proto, Path("m.onnx"))).proto
    assert proto.SerializeToString() == before
    onnx.checker.check_model(wide, full_check=True)
    feeds = {"x": np.array([0.1, 1e6], np.float32), "c": np.array(True), "n": np.array([2])}
    y, z = reference_evaluator(wide).run(None, feeds)
    assert y.dtype == z.dtype == np.float32
    np.testing.assert_allclose(y, [7.1, 3 * (1e6 + 6) + 2], rtol=1e-6)


def test_constants_of_a_cast_have_the_values_that_it_rounded() -> None:
    text = """<ir_version: 9, opset_import: ["": 19]> g (float[3] x) => (float[3] y)
        <float[3] w = {0.1, 1e-9, 7}, float[3] v = {1, 2, 3}> { p = Mul (x, w)  y = Add (p, v) }"""
    before = OnnxModel(parser.parse_model(text), Path("m.onnx"))
    cast = before.copy()
    rounded = {"w_fp16": [0.1, 6e-8, 7], "v_fp16": [1, 2, 3.5]}
    del cast.proto.graph.initializer[:]
    for name, values in rounded.items():
        cast.proto.graph.initializer.append(numpy_helper.from_array(np.array(values, np.float16), name))
    cast.touch()
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in in_float32(cast, before).proto.graph.initializer}
    np.testing.assert_array_equal(held["w_fp16"], np.array([0.1, 1e-9, 7], np.float32))
    np.testing.assert_array_equal(held["v_fp16"], [1, 2, 3.5], "these are not what was rounded")


@pytest.mark.parametrize(("name", "numbers"), [("float16", HALF), ("bfloat16", BFLOAT)])
def test_what_nodes_make_is_rounded_to_the_type_that_it_had(name: str, numbers: dict[str, int]) -> None:
    text = TEXT.replace("TYPE", name)
    for word, number in numbers.items():
        text = text.replace(word, str(number))
    wide = emulation_in_float32(OnnxModel(parser.parse_model(text), Path("m.onnx")))
    loaded = session(wide)
    assert not isinstance(loaded, str), loaded
    y, _ = loaded.run(None, {"x": np.array([0.1, 100], np.float32), "c": np.array(True), "n": np.array([2])})
    dtype = helper.tensor_dtype_to_np_dtype(numbers["NUMBER"])

    def narrow(values: np.ndarray) -> np.ndarray:
        return values.astype(dtype).astype(np.float32)

    sums = narrow(np.array([0.1, 100], np.float32) + np.array([5, 6], np.float32))
    np.testing.assert_array_equal(y, narrow(narrow(sums * np.array([1, 3], np.float32)) + np.float32(2)))
