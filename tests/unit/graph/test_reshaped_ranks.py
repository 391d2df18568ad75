"""How many axes a Reshape makes, where its sizes are known only at run time."""

from __future__ import annotations

import pytest

from support.onnx_models import parse, wrap

MODEL = """<ir_version: 8, opset_import: ["": 13]>
g (float[n,4] x, int64[3] s, int64[m] t, bool c) => (float[a,b,d] y) {
    r = Reshape (x, s)  q = Shape (r)  k = ConstantOfShape (q)  z = Add (r, k)
    f = Reshape (x, t)
    y = If (c) <then_branch = one () => (float[h,i,j] u) { u0 = Reshape (z, s)  u = Relu (u0) },
                else_branch = two () => (float[h,i,j] v) { v = Relu (z) }>
}"""


def test_a_list_of_known_length_says_the_rank() -> None:
    main, *bodies = wrap(parse(MODEL)).scopes
    assert {name: main.shape(name) for name in "rkz"} == dict.fromkeys("rkz", (None, None, None))
    assert main.shape("f") is None
    assert (None, None, None) in [body.shape("u0") for body in bodies]


@pytest.mark.parametrize("length", [-1, 0, 65, 1 << 40])
def test_a_list_of_any_other_length_says_nothing(length: int) -> None:
    proto = parse(MODEL.replace("int64[3] s", f"int64[{length}] s"))
    assert wrap(proto).scopes[0].shape("r") is None
