"""Values that are computed from constants and known sizes, and those that are not."""

from __future__ import annotations

import json

import onnx
import pytest

from support.onnx_models import parse, wrap
from trtconv.core.dims import Range
from trtconv.core.requests.check import CheckRequest
from trtconv.graph.model import OnnxModel
from trtconv.graph.places import products_before
from trtconv.graph.resolve import _MAX_CONE, resolved
from trtconv.graph.stored_bounds import DIMS_KEY, stored_bounds
from trtconv.pipeline.outputs import asked_profiles

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'


def net(nodes: str) -> OnnxModel:
    return wrap(
        parse(
            f"""{HEAD} g (float[2,h,4] x, int64[1] given) => (float[a] y)
            <int64[2] c = {{3,5}}, int64[1] one = {{1}}, int64[2] two = {{-1,0}}, int64 first = {{0}}>
            {{ {nodes} y = Relu (x) }}"""
        )
    )


@pytest.mark.parametrize("place", ["h", "x:1"])
def test_bounds_of_a_request_come_before_those_of_the_file(place: str) -> None:
    model = net("")
    model.proto.metadata_props.add(key=DIMS_KEY, value=json.dumps({"h": {"bounds": [1, 4, 9]}}))
    (profile,) = asked_profiles(model, CheckRequest("m.onnx", dims={place: Range(2, 3, 4)}))
    assert profile.dims == {"h": Range(2, 3, 4)}


def value(nodes: str, name: str = "r") -> list[int] | int | None:
    model = net(nodes)
    found = resolved(model.main, name, model.proto.opset_import)
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("r = Add (c, c)", [6, 10]),
        ("t = Mul (c, one) r = Concat <axis = 0> (t, one)", [3, 5, 1]),
        ("r = Shape <start = 0, end = 1> (x)", [2]),
        ("r = Shape <start = -1> (x)", [4]),
        ("r = Shape <start = 2> (x)", [4]),
        ("s = Shape <end = 1> (x) r = Add (s, one)", [3]),
        ("r = Size (c)", 2),
        ("r = Shape (c)", [2]),
        ("s = Shape (c) t = Cast <to = 1> (s) r = Cast <to = 7> (t)", [2]),
        ("a = Add (c, c) b = Add (a, a) r = Sub (b, a)", [6, 10]),
        ("s = Shape (x) r = Gather (s, two)", [4, 2]),
        ("s = Shape (x) t = Gather (s, first) r = Equal (t, first)", False),
        ("s = Shape <start = 2> (x) r = Gather (s, first)", 4),
        # What only the run time knows.
        ("s = Shape (x) r = Gather (s, one)", None),
        ("s = Shape (x) r = Gather (s, given)", None),
        ("s = Shape <end = 1> (x) r = Gather (s, one)", None),
        ("r = Gather (given, first)", None),
        ("r = Shape (x)", None),
        ("r = Size (x)", None),
        ("r = Shape <start = 0, end = 2> (x)", None),
        ("r = Add (given, one)", None),
        ("s = Shape <end = 1> (x) r = Add (s, given)", None),
        ("r = my.Add (c, c)", None),
        ("r = RandomNormalLike <dtype = 1> (c)", None),
    ],
)
def test_what_follows_from_constants_and_known_sizes(nodes: str, expected: list[int] | None) -> None:
    assert value(nodes) == expected


def test_constants_and_names_that_there_are_not() -> None:
    assert value("", "c") == [3, 5]
    assert value("", "x") is None
    assert value("", "") is None
    assert value("", "nowhere") is None


@pytest.mark.parametrize(("count", "known"), [(_MAX_CONE, True), (_MAX_CONE + 1, False), (3_000, False)])
def test_no_further_than_a_number_of_nodes(count: int, known: bool) -> None:
    chain = "t0 = Add (c, c) " + " ".join(f"t{n} = Add (t{n - 1}, c)" for n in range(1, count))
    assert value(chain, f"t{count - 1}") == ([3 * (count + 1), 5 * (count + 1)] if known else None)


BOUNDS = {"bounds": [1, 4, 9]}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps({"h": BOUNDS}), {"h": Range(1, 4, 9)}),
        (json.dumps({"h": BOUNDS, "gone": BOUNDS}), {"h": Range(1, 4, 9)}),
        (json.dumps({"h": {**BOUNDS, "step": 2}, "other": 3}), {"h": Range(1, 4, 9)}),
        ("", {}),
        ("{", {}),
        ("[" * 100_000, {}),
        ("[]", {}),
        ('"h"', {}),
        *(
            (json.dumps({"h": {"bounds": bounds}}), {})
            for bounds in ([1, 4], [1, 4, 9, 9], "149", [1, 4, "9"], [1, 4, 9.0], [True, 4, 9], [9, 4, 1], [0, 4, 9])
        ),
        (json.dumps({"h": [1, 4, 9]}), {}),
    ],
)
def test_bounds_that_an_export_left_in_a_file(text: str, found: dict[str, Range]) -> None:
    model = net("")
    model.proto.metadata_props.add(key="other", value="{}")
    assert stored_bounds(model) == {}
    model.proto.metadata_props.add(key=DIMS_KEY, value=text)
    assert stored_bounds(model) == found


def test_products_that_places_are_made_of() -> None:
    proto = parse(
        f"""{HEAD} g (float[1,1,4,4] x, float[n,4] m, float[2,n,4] stack, float[4,4] w, float[1] s)
            => (float[a,b,c,d] y) <int64[4] to = {{1,2,2,2}}> {{
        flat = MatMul (m, w) gemm = Gemm (flat, w) stacked = MatMul (stack, w) odd = my.Op (m) unknown = MatMul (odd, w)
        beside = MatMul (m, w) sum = Add (gemm, stacked) more = Add (sum, unknown)
        grid = Reshape (more, to) t = Add (x, beside) y = GridSample (t, grid) }}"""
    )
    model = wrap(proto)
    names = [node.output[0] for node in proto.graph.node]
    found = products_before(model.main, names.index("y"))
    assert {names[index] for index in found} == {"flat", "gemm", "unknown"}


def test_a_shape_of_nothing_is_of_no_size() -> None:
    scalar = onnx.parser.parse_model(f"{HEAD} g (float x) => (float[1] y) {{ r = Shape (x) n = Size (x) y = Neg (x) }}")
    model = wrap(scalar)
    sizes, number = (resolved(model.main, name, scalar.opset_import) for name in "rn")
    assert sizes is not None
    assert number is not None
    assert (sizes.tolist(), number.tolist()) == ([], 1)
