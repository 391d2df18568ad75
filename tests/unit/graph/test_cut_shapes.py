"""Shapes of tensors at which a model is cut: by inference, as a run saw them, and those that only values tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from onnx import TensorProto

from support.onnx_models import parse, wrap
from trtconv.core.bounds import make_profile
from trtconv.core.dims import Range, Shape
from trtconv.graph.cut_shapes import BY_VALUES, CutShapes, Run, Seen
from trtconv.graph.divisible import Divisible

HEAD = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
SHAPED_BY = {
    0: "ConstantOfShape BlackmanWindow HammingWindow HannWindow EyeLike Range",
    1: "Reshape Expand Tile TopK Pad OneHot Split Squeeze Unsqueeze ReduceSum ReduceMean ReduceMax ReduceMin"
    " ReduceProd AffineGrid CenterCropPad Range Slice Upsample Col2Im",
    2: "Range Slice Resize Col2Im MaxUnpool",
    3: "Slice Resize",
    4: "Slice",
}
"""Which inputs' values make an operator's shape, as its ONNX documentation has it."""
FINDERS = ("NonZero", "NonMaxSuppression", "Unique", "Compress")
PLAIN = ("Add", "Conv", "Gather", "Concat", "Relu", "Where")


class Runs:
    """Stands for runs of the model: tensors have sizes by those of the input x.

    Args:
        sizes: Tensor to its shape, of the shape of x.
    """

    def __init__(self, **sizes: Callable[[Shape], Shape | None]) -> None:
        self.sizes = sizes
        self.names: list[str] = []
        self.points: list[Shape] = []

    def __call__(self, names: Sequence[str], points: Sequence[Mapping[str, Shape]]) -> list[Seen]:
        self.names += names
        self.points = [point["x"] for point in points]
        shapes = [{name: self.sizes[name](x) for name in names if name in self.sizes} for x in self.points]
        return [{name: (TensorProto.FLOAT, s) for name, s in seen.items() if s is not None} for seen in shapes]


def shapes_of(
    text: str,
    *dims: Mapping[str, str],
    run: Run | None = None,
    bounds: Mapping[str, Range] | None = None,
    inside: Sequence[Sequence[Mapping[str, int]]] = (),
) -> CutShapes:
    model = wrap(parse(f"{HEAD} {text}"))
    profiles = [make_profile(model.inputs, {k: Range.parse(v) for k, v in each.items()}) for each in dims or ({},)]
    return CutShapes(Divisible(model, ()), profiles, bounds or {}, run or Runs(), inside)


def places(op: str) -> set[int]:
    """Returns the inputs of an operator whose values make its shape: with these a run's shape does not count."""
    settled = set()
    for place in range(5):
        inputs = ", ".join("u" if each == place else "f" for each in range(5))
        text = f"g (float[2] x) => (float y) <float[1] k = {{1}}> {{ u = my.U (x)  f = my.F (k)  t = {op} ({inputs})"
        shapes = shapes_of(f"{text}  y = my.V (t) }}", run=Runs(t=lambda _: (7,)))
        shapes.observe(["t"])
        settled |= set() if shapes.axes("t") == (7,) else {place}
    return settled


@pytest.mark.parametrize("op", sorted({*" ".join(SHAPED_BY.values()).split(), *PLAIN}))
def test_a_result_s_size_hangs_on_the_values_of_these_inputs(op: str) -> None:
    assert places(op) == {place for place, ops in SHAPED_BY.items() if op in ops.split()}


@pytest.mark.parametrize("op", FINDERS)
def test_operators_that_return_what_they_find_have_sizes_by_values_always(op: str) -> None:
    assert places(op) == set(range(5))


@pytest.mark.parametrize("inside", ["NonZero (a)", "my.inner (a)"])
def test_functions_that_return_what_they_find_do_too(inside: str) -> None:
    text = f"""g (float[3] x) => (float[] y) {{ t = my.outer (x)  r = my.other (x)  y = my.V (t, r) }}
        <domain: "my", opset_import: ["": 17]> inner (a) => (b) {{ b = NonZero (a) }}
        <domain: "my", opset_import: ["": 17]> other (a) => (b) {{ b = my.Unknown (a) }}
        <domain: "my", opset_import: ["": 17, "my": 1]> outer (a) => (b) {{ b = {inside} }}"""
    shapes = shapes_of(text, run=Runs(t=lambda _: (7,), r=lambda _: (7,)))
    shapes.observe(["t", "r"])
    assert shapes.axes("t") != (7,)
    assert shapes.axes("r") == (7,)


FOUND = """g (float[n,4] x) => (int64[2,m] t, float[n,4] y, int64[2] s)
    { t = NonZero (x)  q = Transpose (t)  c = Neg (q)  y = Relu (x)  s = Shape (q) }"""


def test_what_follows_from_sizes_by_values_has_them_too() -> None:
    shapes = shapes_of(FOUND, {"n": "1:2:3"})
    assert [shapes.axes(name) for name in "tqcysx"] == [
        (2, BY_VALUES),
        (BY_VALUES, 2),
        (BY_VALUES, 2),
        ("n", 4),
        (2,),
        ("n", 4),
    ]
    assert [name for name in "tqcysx" if shapes.is_settled(name)] == ["y", "s", "x"]
    assert shapes.axes("nothing") is None
    assert not shapes.is_settled("nothing")
    assert shapes.ranges == ({"n": Range(1, 2, 3)},)


@pytest.mark.parametrize("key", ["m", "t:1"])
def test_bounds_of_sizes_by_values_are_by_declared_name_or_place(key: str) -> None:
    bound = Range(1, 5, 12)
    shapes = shapes_of(FOUND, {"n": "1:2:3"}, {"n": "4:5:6"}, bounds={key: bound})
    assert shapes.axes("t") == (2, key)
    assert shapes.is_settled("t")
    assert not shapes.is_settled("q")
    assert [ranges[key] for ranges in shapes.ranges] == [bound, bound]


@pytest.mark.parametrize("bounds", [{}, {"t:1": Range(1, 2, 4)}])
def test_sizes_of_the_inputs_beside_sizes_by_values_have_their_range(bounds: Mapping[str, Range]) -> None:
    text = """g (float[n,4] x, bool[4] c) => (float[n,m] y) {
        t = Compress <axis = 1> (x, c)  u = Concat <axis = 0> (t, t)  y = Neg (t) }"""
    shapes = shapes_of(text, {"n": "1:2:3"}, bounds=bounds)
    assert shapes.axes("t") == ("n", "t:1" if bounds else BY_VALUES)
    assert shapes.axes("u") == ("size0", BY_VALUES)
    assert shapes.ranges[0]["size0"] == Range(2, 4, 6)


def test_nodes_behind_what_no_engine_takes() -> None:
    text = """g (float[n,4] x) => (float[n,4] y, int64[p,2] c, int64[2] s)
        { t = NonZero (x)  q = Transpose (t)  c = Neg (q)  y = Relu (x)  z = Cast <to = 1> (q)
          s = ReduceMax <axes = [0], keepdims = 0> (c) }"""
    shapes = shapes_of(text, {"n": "1:2:3"})
    assert shapes.behind(["t"], [0, 1, 2, 3]) == {1, 2}
    assert shapes.behind(["t"], [0, 2, 3]) == set()
    assert shapes.behind(["x"], [0, 3]) == {0, 3}
    assert shapes.unbounded(1) == ["t:1"]
    assert shapes.unbounded(2) == ["q:0"]
    assert shapes.unbounded(3) == []


TWO = """g (float[n,4] x, float[m,4] w) => (float[p,4] c, float[q,8] d)
    { c = Concat <axis = 0> (x, w)  d = Concat <axis = 1> (x, x)  r = Neg (w) }"""


def test_sizes_have_the_names_of_inputs_or_new_ones_with_their_range() -> None:
    shapes = shapes_of(TWO, {"n": "1:2:4", "m": "1:2:4"})
    # Both range alike, and are told apart.
    assert (shapes.axes("r"), shapes.axes("d")) == (("m", 4), ("n", 8))
    assert shapes.axes("c") == ("size0", 4)
    assert shapes.axes("c") == ("size0", 4)
    assert shapes.ranges == ({"n": Range(1, 2, 4), "m": Range(1, 2, 4), "size0": Range(2, 4, 8)},)
    again = shapes_of(TWO.replace("[n,", "[size0,"), {"size0": "1:2:4", "m": "3"})
    assert (again.axes("c"), again.axes("r")) == (("size1", 4), (3, 4))
    assert again.ranges[0]["size1"] == Range(4, 5, 7)


def test_sizes_are_told_apart_where_the_smallest_is_the_usual_one() -> None:
    shapes = shapes_of(TWO, {"n": "1:1:4", "m": "1:1:4"})
    assert (shapes.axes("r"), shapes.axes("d")) == (("m", 4), ("n", 8))


def test_each_profile_has_its_own_range() -> None:
    profiles = [{"n": "1:2:4", "m": "1"}, {"n": "5:5:8", "m": "1"}, {"n": "9:10:12", "m": "2"}]
    shapes = shapes_of(TWO, *profiles)
    assert shapes.axes("c") == ("size0", 4)
    assert [ranges["size0"] for ranges in shapes.ranges] == [Range(2, 3, 5), Range(6, 6, 9), Range(11, 12, 14)]


def test_sizes_that_follow_from_others_are_not_mixed() -> None:
    proto = parse(f"{HEAD} {TWO}")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2*n"
    model = wrap(proto)
    profile = make_profile(model.inputs, {"n": Range(1, 2, 4)})
    shapes = CutShapes(Divisible(model, ()), [profile], {}, Runs())
    assert (shapes.axes("r"), shapes.axes("c")) == (("2*n", 4), ("size0", 4))
    assert shapes.ranges[0]["size0"] == Range(3, 6, 12)


SEEN = "g (float[n,4] x) => (float[n] y) { t = my.U (x)  u = my.V (x)  r = Relu (x)  y = my.W (t, u, r) }"


def test_what_inference_does_not_tell_is_run() -> None:
    run = Runs(t=lambda x: (x[0] + 1, 5), u=lambda x: (9 - x[0],), y=lambda x: x[:1])
    shapes = shapes_of(SEEN, {"n": "1:2:4"}, {"n": "5:6:8"}, run=run)
    assert shapes.axes("t") is None
    shapes.observe(["x", "r"])
    assert run.names == [], "inference tells of these"
    shapes.observe(["t", "u", "x", "r"])
    shapes.observe(["t"])
    assert run.names == ["t", "u"], "once"
    assert [x[0] for x in run.points] == [1, 2, 4, 5, 6, 8]
    assert (shapes.axes("t"), shapes.axes("u")) == (("size0", 5), ("size1",))
    assert [ranges["size0"] for ranges in shapes.ranges] == [Range(2, 3, 5), Range(6, 7, 9)]
    assert [ranges["size1"] for ranges in shapes.ranges] == [Range(5, 7, 8), Range(1, 3, 4)]
    tensor = shapes.tensor("t")
    assert (tensor.name, tensor.dtype, tensor.shape) == ("t", "float", ("size0", 5))
    assert shapes.is_settled("t")


LONGER = "g (float[n,m] x) => (float[n] y) { t = my.U (x)  y = my.W (t) }"


def test_a_size_that_only_a_corner_shows_is_no_fixed_one() -> None:
    """Images whose shorter side is brought to one size: their height is that size wherever they are no taller."""
    run = Runs(t=lambda x: (10 * max(x[0], x[1]) // x[1], 10 * max(x[0], x[1]) // x[0], 10))
    shapes = shapes_of(LONGER, {"n": "1:2:4", "m": "1:2:4"}, {"n": "2", "m": "3"}, run=run)
    shapes.observe(["t"])
    assert {(1, 4), (4, 1)} <= set(run.points)
    assert shapes.axes("t") == ("size0", "size1", 10)
    assert [ranges["size0"] for ranges in shapes.ranges] == [Range(10, 10, 40), Range(10, 10, 10)]
    assert [ranges["size1"] for ranges in shapes.ranges] == [Range(10, 10, 40), Range(15, 15, 15)]


def test_corners_that_the_model_does_not_take_are_left_out() -> None:
    run = Runs(t=lambda x: None if x == (4, 1) else x)
    shapes = shapes_of(LONGER, {"n": "1:2:4", "m": "1:2:4"}, run=run)
    shapes.observe(["t"])
    assert shapes.axes("t") == ("n", "m")


def test_sizes_that_are_alike_at_the_ends_are_told_apart_between() -> None:
    """Rounded down and up, and a remainder."""
    run = Runs(t=lambda x: (x[0] // 2, -(-x[0] // 2), x[0] % 4 + 1, 7))
    text = "g (float[n] x) => (float[n] y) { t = my.U (x)  y = my.W (t) }"
    for inside, axes in (
        ((), ("size0", "size0", 1, 7)),
        (([{"n": 7}, {"n": 9}],), ("size0", "size1", "size2", 7)),
        (([{"n": 6}], [{"n": 18}]), ("size0", "size0", "size1", 7)),
    ):
        shapes = shapes_of(text, {"n": "4:8:16"}, {"n": "16:16:20"}, run=run, inside=inside)
        shapes.observe(["t"])
        assert shapes.axes("t") == axes
        assert [ranges["size0"] for ranges in shapes.ranges] == [Range(2, 4, 8), Range(8, 8, 10)]


@pytest.mark.parametrize(("most", "axes"), [(2, None), (3, None), (4, ("size0", "size1")), (5, ("size0", "size1"))])
def test_runs_that_end_early_tell_what_they_saw_if_it_is_enough(most: int, axes: tuple[str | int, ...] | None) -> None:
    run = Runs(t=lambda x: (x[0] // 2, x[0] % 4 + 1))
    text = "g (float[n] x) => (float[n] y) { t = my.U (x)  y = my.W (t) }"
    inside = ([{"n": 7}, {"n": 9}],)
    shapes = shapes_of(text, {"n": "4:8:16"}, run=lambda names, points: run(names, points)[:most], inside=inside)
    shapes.observe(["t"])
    assert shapes.axes("t") == axes


def test_no_engine_takes_a_size_that_may_be_0() -> None:
    text = "g (float[n] x) => (float[n] y) { t = my.U (x)  y = my.W (t) }"
    shapes = shapes_of(text, {"n": "4:8:16"}, run=Runs(t=lambda x: (x[0] % 4, 0)), inside=([{"n": 7}],))
    shapes.observe(["t"])
    assert (shapes.axes("t"), shapes.is_settled("t")) == ((BY_VALUES, 0), False)
    bounds = {"t:0": Range(1, 2, 3)}
    run = Runs(t=lambda x: (x[0] % 4, 0))
    shapes = shapes_of(text, {"n": "4:8:16"}, run=run, inside=([{"n": 7}],), bounds=bounds)
    shapes.observe(["t"])
    assert (shapes.axes("t"), shapes.ranges[0]["t:0"]) == (("t:0", 0), Range(1, 2, 3))


def test_corners_of_many_profiles_are_shared_out() -> None:
    run = Runs(t=lambda x: (10 * max(x[0], x[1]) // x[1], 10))
    profiles = [{"n": f"{k}:{2 * k}:{4 * k}", "m": f"{k}:{2 * k}:{4 * k}"} for k in range(1, 9)]
    shapes = shapes_of(LONGER, *profiles, run=run)
    shapes.observe(["t"])
    assert shapes.axes("t") == ("size0", 10)
    assert [ranges["size0"] for ranges in shapes.ranges] == [Range(10, 10, 40)] * 8


def test_each_dimension_is_alone_at_an_end_in_turn() -> None:
    run = Runs(t=lambda x: x)
    text = "g (float[a,b,c,d] x) => (float[n] y) { t = my.U (x)  y = my.W (t) }"
    shapes = shapes_of(text, {"a": "1:2:3", "b": "4:5:6", "c": "7", "d": "8:8:9"}, run=run)
    shapes.observe(["t"])
    corners = {(1, 6, 7, 9), (3, 4, 7, 8), (3, 4, 7, 9), (1, 6, 7, 8), (3, 6, 7, 8), (1, 4, 7, 9)}
    assert set(run.points[3:]) == corners


@pytest.mark.parametrize("last", [1, 2, 4])
def test_what_is_not_seen_at_every_size_is_not_known(last: int) -> None:
    shapes = shapes_of(SEEN, {"n": "1:2:4"}, run=Runs(t=lambda x: None if x[0] == last else (5,)))
    shapes.observe(["t"])
    assert shapes.axes("t") is None
    assert not shapes.is_settled("t")
    assert (shapes.tensor("t").dtype, shapes.value("t").HasField("type")) == ("", False)


def test_tensors_as_onnx_describes_them() -> None:
    shapes = shapes_of(FOUND, {"n": "1:2:3"})
    kinds = {"x": TensorProto.FLOAT, "t": TensorProto.INT64, "y": TensorProto.FLOAT}
    for name, kind in kinds.items():
        assert shapes.value(name).type.tensor_type.elem_type == kind
    dims = shapes.value("t").type.tensor_type.shape.dim
    assert (dims[0].dim_value, dims[1].WhichOneof("value")) == (2, None)
    assert [d.dim_param for d in shapes.value("y").type.tensor_type.shape.dim] == ["n", ""]
    # A result of the model is as the model declares it.
    assert [d.dim_param for d in shapes.result("t").type.tensor_type.shape.dim] == ["", "m"]
    assert shapes.result("q").type.tensor_type.shape.dim[1].dim_value == 2
    assert shapes.tensor("x").shape == ("n", 4)
