"""An EyeLike of sizes that only the run time knows compares positions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes

CODES = {"": 1, "dtype = 1, ": 1, "dtype = 7, ": 7, "dtype = 6, ": 6}


@pytest.mark.parametrize("dtype", CODES)
@given(st.integers(-4, 4), st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from(["h,w", "h,3", "2,w"]))
def test_a_diagonal_of_any_size(dtype: str, k: int, shape: tuple[int, int], dims: str) -> None:
    kind = {1: "float", 6: "int32", 7: "int64"}[CODES[dtype]]
    text = f"g (float[{dims}] x) => ({kind}[{dims}] y) {{ y = EyeLike <{dtype}k = {k}> (x) }}"
    proto = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    rewritten = wrap(proto)
    assert [edit.pass_name for edit in run_passes(rewritten, PASSES, RTX).edits] == ["compare-positions"]
    sizes = [size if name.isalpha() else int(name) for name, size in zip(dims.split(","), shape, strict=True)]
    feeds = {"x": np.zeros(sizes, np.float32)}
    (expected,), (got,) = run(proto, feeds), run(rewritten.proto, feeds)
    np.testing.assert_array_equal(got, expected)
    assert got.dtype == expected.dtype


def test_a_diagonal_of_known_size_is_left() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) { y = EyeLike (x) }"
    rewritten = wrap(parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}'))
    assert not run_passes(rewritten, PASSES, RTX).edits
