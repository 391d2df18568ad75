"""How much work a network is, counted by hand: operations where they take longer than what is moved, else bytes."""

from __future__ import annotations

import numpy as np
import pytest

from support.sizes import parse
from trtconv.shapes.lattice import Sizes
from trtconv.shapes.planning.work import work

LEAST = 2e6
"""Of a call, and of each kernel."""
A_BYTE = 100
"""Operations that take as long as to move a byte."""


def done(body: str, *sizes: int) -> list[float]:
    """Returns the work of a network beyond the least, at some sizes of h."""
    found = work(Sizes(parse(body)), [{"h": size} for size in sizes])
    return np.asarray(found - LEAST).tolist()


@pytest.mark.parametrize(
    ("node", "inputs", "operations"),
    [
        ("MatMul (x, z)", "float[h,4096] x, float[4096,512] z", lambda h: 2 * h * 512 * 4096),
        ("Gemm (x, z)", "float[h,4096] x, float[4096,512] z", lambda h: 2 * h * 512 * 4096),
        ("Gemm <transA = 1> (x, z)", "float[4096,h] x, float[4096,512] z", lambda h: 2 * h * 512 * 4096),
        (
            "Conv <pads = [1,1,1,1]> (x, z)",
            "float[1,256,h,64] x, float[512,256,3,3] z",
            lambda h: 2 * h * 64 * 512 * 256 * 9,
        ),
        (
            "ConvTranspose <strides = [2,2]> (x, z)",
            "float[1,256,h,64] x, float[256,512,2,2] z",
            lambda h: 2 * 256 * h * 64 * 512 * 4,
        ),
    ],
)
def test_products_take_their_multiplications_and_additions(node: str, inputs: str, operations) -> None:
    body = f"g ({inputs}) => (float[a,b] y) {{ y = {node} }}"
    for size, found in zip((512, 1024), done(body, 512, 1024), strict=True):
        assert found == pytest.approx(LEAST + operations(size) / A_BYTE)


def test_recurrent_layers_multiply_their_weights_at_each_step() -> None:
    body = """g (float[h,64,512] x, float[1,2048,512] w, float[1,2048,512] r) => (float[a,b,c,d] y)
    { y, l = LSTM <hidden_size = 512> (x, w, r) }"""
    (found,) = done(body, 300)
    assert found == pytest.approx(LEAST + 2 * (2 * 2048 * 512) * 300 * 64 / A_BYTE)


def test_what_only_moves_takes_its_bytes() -> None:
    kinds = {"float": 4, "float16": 2, "int64": 8}
    for kind, size in kinds.items():
        (found,) = done(f"g ({kind}[h,1000] x) => ({kind}[1000,h] y) {{ y = Transpose (x) }}", 3000)
        assert found == pytest.approx(LEAST + 2 * 3000 * 1000 * size)


def test_small_products_take_what_they_move() -> None:
    (found,) = done("g (float[h,8] x, float[8,8] z) => (float[a,b] y) { y = MatMul (x, z) }", 100_000)
    assert found == pytest.approx(LEAST + 4 * (2 * 8 * 100_000 + 64))


def test_what_runs_inside_another_kernel_takes_nothing() -> None:
    body = (
        "g (float[h,9] x) => (float[a,b] y) { r = Relu (x)  i = Identity (r)  c = Cast <to = 1> (i)  y = Add (c, x) }"
    )
    assert done(body, 1000) == [0]


def test_products_of_what_has_no_sizes_take_no_operations() -> None:
    body = "g (float x, float[h,4] z) => (float[a,b] y) { t = MatMul (x, z)  y = Relu (t) }"
    assert all(np.isfinite(done(body, 4)))


def test_each_kernel_takes_something() -> None:
    one, two = (
        done(f"g (float[h,2] x) => (float[a,b] y) {{ {body} }}", 1)[0]
        for body in (
            "y = Softmax (x)",
            "t = Softmax (x)  y = Softmax (t)",
        )
    )
    assert two - one == pytest.approx(LEAST, rel=1e-3)
