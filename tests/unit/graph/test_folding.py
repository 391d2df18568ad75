"""What constants and sizes make, evaluated within a budget; and models that would make too much of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from support.onnx_models import parse, wrap
from support.session import Array
from trtconv.core.budget import Budget, BudgetExceeded, allowed
from trtconv.graph.folding import evaluate, spend_on_constants

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
FEEDS = {
    "v": np.arange(6, dtype=np.float32).reshape(2, 3),
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "k": np.array([2, 3]),
    "many": np.ones(2000, np.float32),
}


def folded(nodes: str, output: str = "y", **budget: int) -> Array | None:
    proto = parse(f"{HEAD} g (float[2,3] v) => (float[a] y) {{ {nodes} }}")
    with allowed(Budget(**budget)):
        return evaluate(proto.graph.node, FEEDS, output, proto.opset_import)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Neg (v) y = Abs (a)", FEEDS["v"]),
        ("y = MatMul (v, w)", FEEDS["v"] @ FEEDS["w"]),
        ("a = Constant <value_floats = [1.0, 2.0, 3.0]> () y = MatMul (v, a)", FEEDS["v"] @ np.float32([1, 2, 3])),
        ("y = ConstantOfShape (k)", np.zeros((2, 3), np.float32)),
        ("y = Clip (v, , )", FEEDS["v"]),
        ("y, z = Split <axis = 1> (v2, parts)", None),
        ("y = Reshape (many, k)", None),
        ("y = my.Neg (v)", None),
        ("y = Conv (v, w)", None),
        ("y = Neg (nowhere)", None),
        ("y = NonZero (v)", None),
        ("z = Neg (v)", None),
    ],
)
def test_what_nodes_make_of_constants(nodes: str, expected: Array | None) -> None:
    values = folded(nodes)
    assert (values is None) == (expected is None)
    if values is not None and expected is not None:
        np.testing.assert_array_equal(values, expected)


def test_more_elements_than_the_budget_has_are_refused_before_they_are_made() -> None:
    assert folded("y = ConstantOfShape (k)", elements=6) is not None
    with pytest.raises(BudgetExceeded):
        folded("y = ConstantOfShape (k)", elements=5)


SUM_OF_4_MEGABYTES = """
import resource
import numpy as np
from onnx import helper
from trtconv.graph.folding import evaluate

def sums(size):
    node = helper.make_node("Add", ["a", "a"], ["y"])
    return evaluate([node], {"a": np.ones(size, np.int8)}, "y", [helper.make_opsetid("", 17)])

assert sums(1) is not None
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sums(1 << 22) is not None
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_how_many_there_are_is_known_without_a_list_of_them() -> None:
    """Inference that follows values writes down each element, in some 150 bytes."""
    grown = subprocess.run([sys.executable, "-c", SUM_OF_4_MEGABYTES], capture_output=True, text=True, check=True)
    assert int(grown.stdout) < 100


def test_products_have_a_budget_of_their_own() -> None:
    """Of 2 x 3 and 3 x 4: eight elements of three products each."""
    assert folded("y = MatMul (v, w)", candidates=24) is not None
    assert folded("y = MatMul (v, w)", candidates=23) is None


@pytest.mark.parametrize(
    ("nodes", "elements"),
    [
        ("y = Expand (one, big)", 1000),
        ("s = Shape (x) t = Slice (s, zero, one_i) y = Expand (one, t)", 0),
        ("s = Shape (x) y = Neg (x)", 2),
        ("y = ConstantOfShape (given)", 0),
        ("a = Expand (one, big) b = Concat <axis = 0> (a, a) y = Neg (b)", 2000),
        ("a = Add (x, one) y = Expand (a, big)", 0),
        ("a = my.F (one) y = Expand (a, big)", 0),
    ],
)
def test_constants_that_a_model_computes_are_counted(nodes: str, elements: int) -> None:
    """Against the budget and the model's own weights together, which are five elements here."""
    text = f"""{HEAD} g (float[n,4] x, int64[1] given) => (float[a] y)
        <float[1] one = {{1}}, int64[1] big = {{1000}}, int64[1] zero = {{0}}, int64[1] one_i = {{1}},
         float[1] w = {{2}}> {{
        {nodes} }}"""
    scopes, weights = wrap(parse(text)).scopes, 5
    with allowed(Budget(elements=max(0, elements - weights))):
        spend_on_constants(scopes)
    if elements > weights:
        with allowed(Budget(elements=elements - weights - 1)), pytest.raises(BudgetExceeded):
            spend_on_constants(scopes)


@pytest.mark.parametrize("count", [1, 3])
def test_weights_of_all_graphs_allow_for_what_a_body_computes(count: int) -> None:
    bodies = "  ".join(
        f"""y{i} = If (c) <
        then_branch = t{i} () => (float[k] a{i}) <int64[1] m{i} = {{{1000 + 2 * i}}}>
        {{ h{i} = Expand (one, m{i})  a{i} = Neg (h{i}) }},
        else_branch = e{i} () => (float[k] b{i}) {{ b{i} = Neg (one) }}>"""
        for i in range(count)
    )
    text = f"{HEAD} g (bool c) => (float[k] y0) <float[1] one = {{1}}, float[3] w = {{1, 2, 3}}> {{ {bodies} }}"
    scopes = wrap(parse(text)).scopes
    # The last, which is the largest, sees those of the main graph and of the bodies before it.
    least = 1000 + 2 * (count - 1) - (4 + count)
    with allowed(Budget(elements=least)):
        spend_on_constants(scopes)
    with allowed(Budget(elements=least - 1)), pytest.raises(BudgetExceeded):
        spend_on_constants(scopes)
