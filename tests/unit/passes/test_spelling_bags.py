"""EmbeddingBag as torch 2.13 exports it, in both ways, beside ONNX Runtime's loop (tests/data/bags)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.passes import PASSES, run_passes, select

DATA = Path(__file__).parents[2] / "data" / "bags"
FILES = sorted(path.stem for path in DATA.glob("*.onnx"))
Feed = dict[str, np.ndarray]


def rewritten(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = wrap(onnx.ModelProto.FromString(proto.SerializeToString()))
    result = run_passes(model, select(PASSES, ["reduce-bags", "leave-out-unread"], []), RTX)
    # Whatever a model is, as long as it is valid: nothing goes wrong while it is looked at.
    assert not any("fit together" in skip.reason for skip in result.skipped)
    onnx.checker.check_model(model.proto)
    return model.proto


def has_loop(proto: onnx.ModelProto) -> bool:
    return any(node.op_type in ("Loop", "ConcatFromSequence") for node in proto.graph.node)


def feeds(proto: onnx.ModelProto, *, empty: bool = True) -> Iterator[Feed]:
    """Yields inputs: numbers of rows, where bags begin, weights of rows."""
    r = np.random.default_rng(5)
    names = [value.name for value in proto.graph.input]
    is_grid = len(proto.graph.input[0].type.tensor_type.shape.dim) == 2
    # Of bags without rows a reduction of torch's older exporter makes what ONNX leaves open.
    for count, offsets in ((6, [0, 2, 3]), (9, [0, 3, 3, 7] if empty else [0, 3, 4, 7]), (1, [0])):
        x = r.integers(0, 50, (len(offsets), 5) if is_grid else count)
        feed = {names[0]: x}
        if "o" in names:
            feed["o"] = np.array(offsets + ([count] if is_last(proto) else []))
        if len(names) > len(feed):
            feed[names[-1]] = r.normal(size=x.shape).astype(np.float32)
        yield feed


def is_last(proto: onnx.ModelProto) -> bool:
    """Whether the last offset is given, too."""
    return any(dim.dim_param == "nb" for value in proto.graph.input for dim in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize("name", FILES)
def test_all_bags_at_once_are_what_the_loop_makes_of_each(name: str) -> None:
    proto = onnx.load(DATA / f"{name}.onnx")
    other = rewritten(proto)
    assert not has_loop(other)
    # Bags of one length have an axis, and no matrix as wide as all rows.
    assert ("2d" in name) != any(node.op_type == "And" for node in other.graph.node)
    for feed in feeds(proto, empty="dynamo" in name or "sum" in name):
        for expected, got in zip(run(proto, feed), run(other, feed), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs(attribute.g)


EXCHANGES = {
    **{"ReduceSum": "ReduceMax", "ReduceMean": "ReduceSum", "ReduceMax": "ReduceMean", "Add": "Sub", "Sub": "Add"},
    **{"Less": "Greater", "Equal": "Less", "Greater": "Less", "Mul": "Add", "Div": "Mul"},
}


def variants(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yields models that are otherwise in one place: a small constant, an attribute, an operator, two inputs."""
    for place, graph in enumerate(graphs(proto.graph)):
        for index, tensor in enumerate(graph.initializer):
            for step in (-1, 1):
                values = numpy_helper.to_array(tensor)
                if (values.size < 20 and tensor.data_type == onnx.TensorProto.INT64) or place:
                    copy = onnx.ModelProto.FromString(proto.SerializeToString())
                    changed = numpy_helper.from_array((values + step).astype(values.dtype), tensor.name)
                    list(graphs(copy.graph))[place].initializer[index].CopyFrom(changed)
                    yield copy
        for index in range(len(graph.node)):
            for change in range(3):
                copy = onnx.ModelProto.FromString(proto.SerializeToString())
                if changes(list(graphs(copy.graph))[place].node[index], change):
                    yield copy


def changes(node: onnx.NodeProto, change: int) -> bool:
    """Changes a node; returns whether that can be."""
    numbers = [attribute for attribute in node.attribute if attribute.name in ("axis", "keepdims", "value", "axes")]
    if change == 0 and node.op_type in EXCHANGES:
        node.op_type = EXCHANGES[node.op_type]
    elif change == 1 and len(node.input) > 1 and all(node.input[:2]):
        node.input[0], node.input[1] = node.input[1], node.input[0]
    elif change == 2 and numbers and numbers[0].HasField("t"):
        values = numpy_helper.to_array(numbers[0].t)
        numbers[0].t.CopyFrom(numpy_helper.from_array((values + 1).astype(values.dtype)))
    elif change == 2 and numbers:
        numbers[0].i = 1 - numbers[0].i
    else:
        return False
    return True


@pytest.mark.parametrize(
    "name", ["sum_offw_script", "max_2d_script", "mean_off_dynamo", "mean_offl_dynamo", "max_offl_dynamo"]
)
def test_what_is_otherwise_in_one_place_is_left_or_still_right(name: str) -> None:
    proto = onnx.load(DATA / f"{name}.onnx")
    count = 0
    for variant in variants(proto):
        try:
            onnx.checker.check_model(variant, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
            continue
        other = rewritten(variant)
        # Of what is left some never ends.
        if not has_loop(other):
            count += agree(variant, other, empty="dynamo" in name)
    assert count


def agree(proto: onnx.ModelProto, other: onnx.ModelProto, *, empty: bool) -> int:
    """Holds two models against each other where ONNX Runtime runs the first one; returns how often it does."""
    count = 0
    for feed in feeds(proto, empty=empty):
        try:
            expected = run(proto, feed)
        except Exception:  # It has many for what is wrong with a model.
            continue
        np.testing.assert_allclose(run(other, feed)[0], expected[0], rtol=1e-5, atol=1e-5)
        count += 1
    return count


STEP = """d = Identity (c)  j = Add (i, one)  p = Gather (o, i)  q = Gather (o, j)  s = Unsqueeze (p, zero)
    e = Unsqueeze (q, zero)  r = Slice (x, s, e, zero)  g = Gather (t, r)  z = ReduceSum <keepdims = 0> (g, zero)"""
MEAN = STEP.replace("z =", "f = Sub (q, p)  n = Cast <to = 1> (f)  k =") + "  z = Div (k, n)"
COLUMN = STEP.replace("s = Unsqueeze (p, zero)", "s = Identity (p)").replace(
    "e = Unsqueeze (q, zero)", "e = Identity (q)"
)
TRUTH = "b = Cast <to = 9> (f)  n = Cast <to = 1> (b)"
FLAG = "b = Cast <to = 9> (i)  h = Cast <to = 7> (b)  j ="


@pytest.mark.parametrize(
    ("step", "offsets", "last", "stays"),
    [
        pytest.param(STEP, [0, 2, 3, 6], 1, False, id="sum"),
        pytest.param(MEAN, [0, 2, 3, 6], 1, False, id="mean"),
        pytest.param(STEP, [-4, -2, 3, 6], 1, False, id="from the end of the rows"),
        pytest.param(STEP.replace("= Add", "= Sub"), [3, 4, 6, 0], 1, True, id="the last entry in the first step"),
        pytest.param(COLUMN, [[0], [2], [3], [6]], 1, True, id="offsets in a column"),
        pytest.param(MEAN.replace("n = Cast <to = 1> (f)", TRUTH), [0, 2, 3, 6], 1, True, id="divided by whether"),
        pytest.param(STEP.replace("j =", FLAG).replace("(o, i)", "(o, h)"), [0, 2, 3, 6], 1, True, id="by whether"),
        pytest.param(STEP, [0, 2, 3, 6], np.inf, False, id="infinite rows"),
    ],
)
def test_what_only_looks_like_bags_stays(step: str, offsets: list[int], last: float, stays: bool) -> None:
    proto = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> g (int64[6] x) => (float[3,2] y)
        <int64 three = {{3}}, bool on = {{1}}, int64[1] zero = {{0}}, int64 one = {{1}}>
        {{ y = Loop <body = b (int64 i, bool c) => (bool d, float[2] z) {{ {step} }}> (three, on) }}"""
    )
    table = np.arange(18, dtype=np.float32).reshape(9, 2)
    table[8, 1] *= last
    proto.graph.initializer.extend(
        [numpy_helper.from_array(np.array(offsets), "o"), numpy_helper.from_array(table, "t")]
    )
    other = rewritten(proto)
    assert has_loop(other) == stays
    feed = {"x": np.array([1, 2, 3, 4, 5, 8])}
    np.testing.assert_allclose(run(other, feed)[0], run(proto, feed)[0])
