"""What is found out of lists of offsets: whose length a number is, how many rows a tensor has, how large it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from support.onnx_models import parse, wrap
from trtconv.graph.scope import Scope
from trtconv.passes.spelling.offsets import capped, length_of, magnitude, row_count


def scope_of(nodes: str, **constants: np.ndarray) -> Scope:
    """Returns a graph of a list x, a list o of others, a tensor t, and what nodes make of them."""
    proto = parse(
        f"""<ir_version: 8, opset_import: ["": 17]>
        g (int64[n] x, int64[m] o, float[k,3] t, int64 which, float u) => (int64[?] y)
        <int64 nil = {{0}}, int64 one = {{1}}, int64[1] zero = {{0}}, int64[1] minus_one = {{-1}}> {{ {nodes} }}"""
    )
    proto.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    (scope,) = wrap(proto).scopes
    return scope


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        ("y = Size (x)", "x"),
        ("y = Shape (x)", "x"),
        ("s = Shape (x)  y = Gather (s, nil)", "x"),
        ("c = Reshape (x, minus_one)  s = Shape (c)  y = Gather (s, nil)", "x"),
        ("s = Shape (x)  y = Gather (s, which)", ""),
        ("s = Shape (t)  y = Gather (s, nil)", ""),
        ("s = Shape (t)  y = Gather (s, one)", ""),
        ("y = Size (t)", ""),
        ("y = Identity (which)", ""),
    ],
)
def test_a_number_is_the_length_of_a_list(nodes: str, known: str) -> None:
    assert length_of(scope_of(nodes), "y") == known


@pytest.mark.parametrize(
    ("nodes", "like"),
    [
        pytest.param("y = Cast <to = 1> (t)", "t", id="a copy"),
        pytest.param("y = Unsqueeze (x, minus_one)", "x", id="an axis behind"),
        pytest.param("y = Gather (t, x)", "x", id="rows looked up"),
        # These are of t's rows, which is not asked.
        pytest.param("y = Gather <axis = 1> (t, o)", None, id="columns looked up"),
        pytest.param("y = Reshape (x, minus_one)", "x", id="a list again"),
        pytest.param("y = Mul (t, t)", "t", id="a product"),
        pytest.param("s = Shape (x)  y = Expand (u, s)", None, id="a number expanded"),
        pytest.param("s = Shape (x)  v = Reshape (u, minus_one)  y = Expand (v, s)", "x", id="one of a list expanded"),
        # Of one x there are as many as o.
        pytest.param("s = Shape (x)  y = Expand (o, s)", None, id="a list expanded"),
        pytest.param("s = Shape <start = 1> (t)  v = Reshape (u, minus_one)  y = Expand (v, s)", None, id="columns"),
    ],
)
def test_a_tensor_has_the_rows_of_what_it_is_made_of(nodes: str, like: str | None) -> None:
    scope = scope_of(nodes)
    named = [row_count(scope, name) for name in ("x", "o", "t")]
    assert named == [("n",), ("m",), ("k",)]
    counted = row_count(scope, "y")
    assert counted == row_count(scope, like) if like else counted not in named


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([1, -7, 2], 7),
        ([-1, 7, 2], 7),
        ([], 0),
        ([65504], 65504),
        ([-65504], 65504),
        ([65536], np.inf),
        ([3, -np.inf], np.inf),
        ([np.nan, 1], np.inf),
    ],
)
def test_no_element_exceeds_the_magnitude(values: list[float], most: float) -> None:
    scope = scope_of("a = Unsqueeze (c, zero)  y = Mul (a, t)", c=np.array(values, np.float32))
    assert magnitude(scope, "c") == magnitude(scope, "a") == most
    assert magnitude(scope, "t") == magnitude(scope, "y") == np.inf


def test_a_product_has_the_product_of_the_magnitudes() -> None:
    scope = scope_of(
        "y = Mul (c, d)  z = Mul (y, d)", c=np.array([2, -3], np.float32), d=np.array([-200, 9], np.float32)
    )
    assert magnitude(scope, "y") == 600
    # Half precision has no 120,000.
    assert magnitude(scope, "z") == np.inf
    assert capped(65504.5) == np.inf
