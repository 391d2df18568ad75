"""Nodes of a newer opset, written for an older one: the same result, or the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from support.onnx_models import parse, wrap
from support.session import run
from trtconv.graph.model import OnnxModel
from trtconv.graph.older_opset import LOWERED, lowered
from trtconv.runtimes.definition import write_out


def older(text: str) -> onnx.ModelProto | str:
    """Returns a model with one node as it is in the older opset, or why it has none there."""
    model = wrap(parse(text))
    (node,) = model.proto.graph.node
    changes = lowered(model.main, node, model.opset)
    if isinstance(changes, str):
        return changes
    for change in changes:
        change()
    for opset in model.proto.opset_import:
        opset.version = LOWERED
    return model.proto


@pytest.mark.parametrize("parts", [2, 3, 4])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_split_into_parts_has_the_same_parts(parts: int, axis: int) -> None:
    outputs = ", ".join(f"float[a{n},b{n}] y{n}" for n in range(parts))
    names = ", ".join(f"y{n}" for n in range(parts))
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[7,10] x) => ({outputs})
        {{ {names} = Split <axis = {axis}, num_outputs = {parts}> (x) }}"""
    model = older(text)
    assert not isinstance(model, str)
    x = np.random.default_rng(0).normal(size=(7, 10)).astype(np.float32)
    expected = run(parse(text), {"x": x})
    got = run(model, {"x": x})
    assert all(np.array_equal(a, b) for a, b in zip(expected, got, strict=True))


def test_a_split_of_a_size_that_is_not_known_says_so() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[n,10] x) => (float[a,10] y, float[b,10] z)
        { y, z = Split <axis = 0, num_outputs = 2> (x) }"""
    assert older(text) == "the size that it splits is not known"


def test_an_input_without_a_name_is_as_if_it_were_not() -> None:
    text = '<ir_version: 8, opset_import: ["": 20]> g (float[2,3] x) => (float y) { y = ReduceMin <keepdims = 0> (x) }'
    proto = parse(text)
    proto.graph.node[0].input.append("")
    model = wrap(proto)
    changes = lowered(model.main, model.proto.graph.node[0], model.opset)
    assert not isinstance(changes, str)
    for change in changes:
        change()
    assert list(model.proto.graph.node[0].input) == ["x"]


@pytest.mark.parametrize("axes", ["{0}", "{1,-1}", None])
def test_a_reduction_over_axes_that_were_an_input_is_the_same(axes: str | None) -> None:
    stored = "" if axes is None else f"<int64[{axes.count(',') + 1}] axes = {axes}>"
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[2,3,4] x) => (float[a,b,c] y) {stored}
        {{ y = ReduceMax (x{"" if axes is None else ", axes"}) }}"""
    model = older(text)
    assert not isinstance(model, str)
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    assert np.array_equal(run(parse(text), {"x": x})[0], run(model, {"x": x})[0])


def node(
    op: str, opset: int, inputs: str = "float[2,3,4,6] x", constants: str = "", outputs: str = "float[a,b,c,d] y"
) -> str:
    """Returns a model of one node; `op` is all that stands behind the equals sign."""
    stored = f"<{constants}>" if constants else ""
    made = ", ".join(each.split()[-1] for each in outputs.split(", "))
    return f'<ir_version: 9, opset_import: ["": {opset}]> g ({inputs}) => ({outputs}) {stored} {{ {made} = {op} }}'


UNKNOWN = """<ir_version: 9, opset_import: ["": 20, "my": 1]> g (float[2,8,6,1] x) => (float[] y)
    <int64 plus = {{1}}, int64 minus = {{-3}}> {{ t = my.Op (x) y = {} }}"""


@pytest.mark.parametrize(("axis", "place"), [(", , plus", 1), ("", None), (", , minus", None)])
def test_an_axis_from_the_first_needs_no_number_of_axes(axis: str, place: int | None) -> None:
    model = wrap(parse(UNKNOWN.format(f"DFT (t{axis})")))
    dft = model.proto.graph.node[1]
    changes = lowered(model.main, dft, model.opset)
    if place is None:
        assert changes == "how many axes its input has is not known"
        return
    assert not isinstance(changes, str)
    for change in changes:
        change()
    assert list(filter(None, dft.input)) == ["t"] and [(entry.name, entry.i) for entry in dft.attribute] == [
        ("axis", place)
    ]


WRITTEN = {
    "scales of an axis": node("Resize <axes = [-1]> (x, , s)", 18, constants="float[1] s = {2}"),
    "scales of two axes, turned": node("Resize <axes = [3,2]> (x, , s)", 19, constants="float[2] s = {2, 3}"),
    "sizes of an axis": node('Resize <axes = [2], mode = "linear"> (x, , , s)', 18, constants="int64[1] s = {7}"),
    "a region of an axis": node(
        'Resize <axes = [2], coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, , s)',
        18,
        constants="int64[1] s = {7}, float[2] r = {0.25, 0.75}",
    ),
    "nothing newer in a Resize": node("Resize (x, , s)", 18, constants="float[4] s = {1, 1, 2, 2}"),
    "its default in a Resize": node("Resize <antialias = 0> (x, , s)", 18, constants="float[4] s = {1, 1, 2, 2}"),
    "pads of an axis": node("Pad (x, p, , axes)", 18, constants="int64[2] p = {1, 2}, int64[1] axes = {-2}"),
    "pads of two axes, turned": node(
        "Pad (x, p, v, axes)", 19, constants="int64[4] p = {1, 2, 3, 0}, int64[2] axes = {3, 0}, float v = {7}"
    ),
    "pads of all axes": node("Pad (x, p)", 18, constants="int64[8] p = {0, 1, 0, 0, 0, 0, 2, 0}"),
    "a mean over axes": node("ReduceMean (x, axes)", 18, constants="int64[2] axes = {1, -1}"),
    "a mean over all": node("ReduceMean <noop_with_empty_axes = 0> (x)", 18),
    "a mean over no axes that means all": node("ReduceMean (x, axes)", 18, constants="int64[0] axes = {}"),
    "a largest without its axis": node(
        "ReduceMax <keepdims = 0> (x, axes)", 18, constants="int64[1] axes = {1}", outputs="float[a,b,c] y"
    ),
    "linear samples": node('GridSample <mode = "linear"> (x, g)', 20, inputs="float[2,3,4,6] x, float[2,5,5,2] g"),
    "nearest samples": node('GridSample <mode = "nearest"> (x, g)', 20, inputs="float[2,3,4,6] x, float[2,5,5,2] g"),
    "cubic samples": node('GridSample <mode = "cubic"> (x, g)', 20, inputs="float[2,3,4,6] x, float[2,5,5,2] g"),
    "averages without gaps": node("AveragePool <kernel_shape = [2,2], dilations = [1,1]> (x)", 19),
    "frequencies of the last but one": node("DFT (x)", 20, inputs="float[2,8,1] x", outputs="float[a,b,c] y"),
    "frequencies of an axis": node("DFT (x, , axis)", 20, inputs="float[2,8,6,1] x", constants="int64 axis = {-2}"),
    "frequencies of the first": node("DFT (x, , axis)", 20, inputs="float[2,8,6,1] x", constants="int64 axis = {1}"),
    "added up where it is scattered": node(
        'ScatterND <reduction = "add"> (x, i, u)',
        18,
        inputs="float[4,3] x, float[2,3] u",
        constants="int64[2,1] i = {1, 3}",
        outputs="float[a,b] y",
    ),
    "what was so before": node("Relu (x)", 20),
    "a split of the first axis": node("Split <num_outputs = 2> (x)", 18, outputs="float[a,b,c,d] y, float[e,f,g,i] z"),
    "a split of the last axis": node(
        "Split <axis = 3, num_outputs = 3> (x)", 18, outputs="float[a,b,c,d] y, float[e,f,g,i] z, float[j,k,l,m] w"
    ),
    "a split of the first from the end": node(
        "Split <axis = -4, num_outputs = 2> (x)", 18, outputs="float[a,b,c,d] y, float[e,f,g,i] z"
    ),
    "a split as told": node(
        "Split <axis = 1> (x, s)", 18, constants="int64[2] s = {1, 2}", outputs="float[a,b,c,d] y, float[e,f,g,i] z"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_can_be_written_is_the_same(name: str) -> None:
    text = WRITTEN[name]
    model = older(text)
    assert not isinstance(model, str), model
    onnx.checker.check_model(model, full_check=True)
    random = np.random.default_rng(0)
    feeds = {
        value.name: random.uniform(-1, 1, [dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for value in parse(text).graph.input
    }
    newer = OnnxModel(parse(text), Path("model.onnx"))
    write_out(newer)
    for before, after in zip(run(newer.proto, feeds), run(model, feeds), strict=True):
        assert before.shape == after.shape
        np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-5)


GIVEN = "float[2,3,4,6] x, int64[n] given"
REFUSED = {
    "a split of what has fewer axes": node(
        "Split <axis = 4, num_outputs = 2> (x)", 18, outputs="float[a,b,c,d] y, float[e,f,g,i] z"
    ),
    "bits": node("BitwiseNot (x)", 18, inputs="int32[2] x", outputs="int32[a] y"),
    "less of what lies beside": node("Resize <antialias = 1> (x, , s)", 18, constants="float[4] s = {1, 1, 2, 2}"),
    "a policy": node(
        'Resize <keep_aspect_ratio_policy = "not_larger"> (x, , , s)', 18, constants="int64[4] s = {2, 3, 8, 8}"
    ),
    "a mode of coordinates": node(
        'Resize <coordinate_transformation_mode = "half_pixel_symmetric"> (x, , s)',
        19,
        constants="float[4] s = {1, 1, 2, 2}",
    ),
    "sizes of an axis beside one that is not known": node(
        "Resize <axes = [2]> (x, , , s)", 18, inputs="float[2,3,4,n] x", constants="int64[1] s = {7}"
    ),
    "sizes that are computed": node("Resize <axes = [2]> (x, , , given)", 18, inputs=GIVEN),
    "axes that are computed": node("ReduceMax (x, given)", 18, inputs=GIVEN),
    "no axes": node("ReduceMax <noop_with_empty_axes = 1> (x)", 18),
    "no axes, as an input": node("ReduceMax <noop_with_empty_axes = 1> (x, e)", 18, constants="int64[0] e = {}"),
    "pads that are computed": node("Pad (x, given, , axes)", 18, inputs=GIVEN, constants="int64[1] axes = {1}"),
    "pads round and round": node('Pad <mode = "wrap"> (x, p)', 19, constants="int64[8] p = {0,0,0,0,0,0,1,0}"),
    "samples of a volume": node(
        "GridSample (x, g)",
        20,
        inputs="float[1,1,3,3,3] x, float[1,2,2,2,3] g",
        outputs="float[a,b,c,d,e] y",
    ),
    "averages with gaps": node("AveragePool <kernel_shape = [2,2], dilations = [2,1]> (x)", 19),
    "the largest where it is scattered": node(
        'ScatterND <reduction = "max"> (x, i, u)',
        18,
        inputs="float[4,3] x, float[2,3] u",
        constants="int64[2,1] i = {1, 3}",
        outputs="float[a,b] y",
    ),
    "frequencies of an axis that is computed": node("DFT (x, , a)", 20, inputs="float[2,8,6,1] x, int64 a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_there_is_not_in_the_older_opset(name: str) -> None:
    assert isinstance(older(REFUSED[name]), str)


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (WRITTEN["pads of an axis"], "y.1"),
        (WRITTEN["scales of an axis"], "y.2"),
        (node("Split <num_outputs = 2> (x)", 18, outputs="float[a,b,c,d] y, float[e,f,g,i] z"), "y.sizes"),
    ],
)
@pytest.mark.parametrize("by_node", [False, True])
def test_a_name_that_is_taken_is_not_given_again(text: str, taken: str, by_node: bool) -> None:
    proto = parse(text)
    if by_node:
        proto.graph.node.append(onnx.helper.make_node("Relu", ["x"], [taken]))
    else:
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1, np.float32), taken))
    model = wrap(proto)
    assert lowered(model.main, model.proto.graph.node[0], model.opset) == f"the name {taken!r} is taken"
