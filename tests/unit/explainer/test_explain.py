"""What explain says, held to ONNX Runtime and to counting by hand."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support import runtime as fakes
from support.onnx_models import (
    BIASES,
    PLACES,
    QUANTIZED,
    RTX,
    TENSORRT_8,
    WEIGHTS,
    Layer,
    full_sizes,
    make,
    parse,
    window,
)
from support.session import run
from trtconv.cli.formats.explain import explain_text
from trtconv.cli.formats.json import render
from trtconv.core.documents.explain import Axis, ExplainReport, Explanation
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.requests.explain import ExplainRequest
from trtconv.core.target import Target
from trtconv.explainer.axis import cycle_text, describe_axes, linear
from trtconv.explainer.node import explain
from trtconv.graph import deconv
from trtconv.graph.deconv import Geometry, geometry_of

RTX_NOT_HERE = Target("rtx", (1, 0))
"""Has no strided dilated deconvolution, and no parser that could be asked."""


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def explained(proto: onnx.ModelProto, folder: Path, node: str = "") -> Explanation:
    report = explain(ExplainRequest(saved(proto, folder), node, TENSORRT_8))
    assert report.explanation is not None
    return report.explanation


def geometry(layer: Layer) -> Geometry:
    found = geometry_of(layer.attributes(), (layer.channels[0] * layer.group, layer.channels[1], *layer.kernel))
    assert isinstance(found, Geometry)
    return found


@st.composite
def layers(draw: st.DrawFn, ranks: tuple[int, ...] = (1, 2, 3)) -> Layer:
    rank = draw(st.sampled_from(ranks))

    def ints(low: int, high: int, count: int = rank) -> st.SearchStrategy[tuple[int, ...]]:
        return st.tuples(*[st.integers(low, high)] * count)

    group, channels = draw(st.sampled_from([(1, (2, 3)), (1, (4, 4)), (2, (2, 2)), (3, (1, 1))]))
    layer = Layer(
        sizes=draw(ints(1, 6 if rank < 3 else 3)),
        kernel=draw(ints(1, 5 if rank < 3 else 3)),
        strides=draw(ints(1, 4)),
        dilations=draw(st.none() | ints(1, 3)),
        output_padding=draw(st.none() | ints(0, 3)),
        auto_pad=draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])),
        group=group,
        channels=channels,
        dynamic=draw(st.booleans()),
        spelled=draw(st.booleans()),
    )
    if layer.auto_pad == "NOTSET":
        layer = dataclasses.replace(layer, pads=draw(st.none() | ints(-2, 3, 2 * rank)))
    if draw(st.integers(0, 3)) == 0:
        layer = dataclasses.replace(layer, output_shape=draw(ints(1, 20)), pads=None)
    return layer


def value(formula: str, size: int) -> int:
    """Computes a formula as it is printed."""
    assert re.fullmatch(r"[-+*() \d]*", formula.replace("in", ""))
    return int(eval(formula.replace("in", str(size)), {}))


def counted(axis: Axis, size: int) -> list[int]:
    """Returns how many taps meet in each element of the output, by cutting the full result."""
    assert axis.begin is not None
    assert axis.end is not None
    counts = deconv.tap_counts(axis.kernel, axis.stride, axis.dilation, size)
    wide = [0] * max(0, -axis.begin) + list(counts) + [0] * max(0, -axis.end)
    return wide[max(0, axis.begin) : len(wide) - max(0, axis.end)]


@given(layers())
def test_formulas_give_the_sizes(layer: Layer) -> None:
    rows = zip(describe_axes(geometry(layer), layer.sizes), layer.sizes, full_sizes(layer), window(layer), strict=True)
    for axis, size, full, (begin, out) in rows:
        assert (axis.size, axis.full, axis.out, axis.begin) == (size, full, out, begin)
        assert axis.end == full - out - begin
        assert value(axis.full_formula, size) == full
        assert value(axis.out_formula, size) == out
        for filled, result in ((axis.full_filled, full), (axis.out_filled, out)):
            left, _, right = filled.partition(" = ")
            assert value(left, size) == int(right) == result


@given(layers())
def test_formulas_are_the_same_for_dynamic_sizes(layer: Layer) -> None:
    known = describe_axes(geometry(layer), layer.sizes)
    for dynamic, static, size in zip(describe_axes(geometry(layer), ()), known, layer.sizes, strict=True):
        assert (dynamic.size, dynamic.full, dynamic.full_formula) == (None, None, static.full_formula)
        assert dynamic.out_formula == static.out_formula
        if layer.output_shape is None:
            assert (dynamic.begin, dynamic.end, dynamic.out) == (static.begin, static.end, None)
            left, _, right = dynamic.out_filled.partition(" = ")
            assert value(left, size) == value(right, size) == static.out
        else:
            assert (dynamic.begin, dynamic.end) == (None, None)


@given(layers(ranks=(1,)))
def test_taps_are_what_onnx_runtime_adds_up(layer: Layer) -> None:
    """A convolution of ones counts its products."""
    (axis,) = describe_axes(geometry(layer), layer.sizes)
    assert axis.end is not None
    assert axis.begin is not None
    assert axis.full is not None
    assert axis.out is not None
    # ONNX Runtime is no reference for as many extra elements as the stride, or for nothing.
    extra = layer.output_padding or (0,)
    assume(axis.out >= 1 and max(extra[0], -axis.end) < axis.stride and axis.begin < axis.full)
    assume(axis.end < axis.full and axis.begin >= 0 and min(layer.pads or (0,)) >= 0)
    proto, feeds = make(dataclasses.replace(layer, group=1, channels=(1, 1), bias="none"))
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ones(tensor.dims, np.float32), tensor.name))
    (got,) = run(proto, {"x": np.ones_like(feeds["x"])})
    assert got[0, 0].tolist() == counted(axis, layer.sizes[0])


@given(layers(ranks=(1,)))
def test_taps_repeat_far_from_the_edges(layer: Layer) -> None:
    assume(layer.output_shape is None)
    (axis,) = describe_axes(geometry(layer), ())
    counts = counted(axis, 40)
    reach = axis.kernel * axis.dilation + axis.stride
    first = -(-reach // axis.stride) * axis.stride
    assert len(axis.taps) == axis.stride
    for index in range(first, 40 * axis.stride - 2 * reach - 8):
        assert counts[index] == axis.taps[index % axis.stride]
    assert any("gaps" in text for text in axis.advice) == (0 in axis.taps)
    uneven = 0 not in axis.taps and len(set(axis.taps)) > 1
    assert any("checkerboard" in text for text in axis.advice) == uneven
    assert any("that no tap" in part.meaning for part in axis.parts) == (
        (axis.end or 0) < 0 < max(layer.output_padding or (0,))
    )


@given(layers(ranks=(1,)))
def test_the_advised_kernel_is_even_and_gives_the_same_size(layer: Layer) -> None:
    (axis,) = describe_axes(geometry(layer), layer.sizes)
    advised = re.search(
        r"a kernel of (\d+)(?: and pads (\d+), (\d+))? .*every element (\d+) tap", " ".join(axis.advice)
    )
    assume(advised is not None)
    assert advised is not None
    kernel = int(advised[1])
    assert set(deconv.tap_cycle(kernel, axis.stride, 1)) == {int(advised[4])}
    if advised[2]:
        better = Geometry((kernel,), (axis.stride,), (1,), (int(advised[2]),), (int(advised[3]),), (0,))
        assert deconv.output_sizes(better, layer.sizes) == (axis.out,)


@given(layers(ranks=(1,)))
def test_samples_show_what_they_stand_for(layer: Layer) -> None:
    (axis,) = describe_axes(geometry(layer), layer.sizes)
    if axis.sample is not None:
        assert len(axis.sample.taps) == value(axis.full_formula, axis.sample.size)
        assert sum(axis.sample.taps) == axis.sample.size * axis.kernel


@given(
    layers(),
    st.sampled_from((*WEIGHTS, *QUANTIZED)),
    st.sampled_from(BIASES),
    st.sampled_from(PLACES),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([TENSORRT_8, RTX_NOT_HERE]),
)
def test_every_node_can_be_explained(
    tmp_path_factory: pytest.TempPathFactory,
    layer: Layer,
    weight: str,
    bias: str,
    place: str,
    axis: int | None,
    target: Target,
) -> None:
    layer = dataclasses.replace(layer, weight=weight, bias=bias, place=place, axis=axis)
    path = saved(make(layer)[0], tmp_path_factory.getbasetemp())
    report = explain(ExplainRequest(path, "", target))
    node = report.explanation
    assert node is not None
    # Where nothing says how large the kernel is, nothing can be said.
    assert not node.fault or not layer.spelled
    text = explain_text(report)
    assert text.isascii()
    assert all(line == line.rstrip() for line in text.splitlines())
    assert json.loads(render(report.to_json()))["explanation"]["place"] == node.place
    if not node.fault and not node.rewrite.behind and not node.rewrite.skipped:
        made = geometry_of(node.rewrite.attributes, node.rewrite.weight)
        assert isinstance(made, Geometry)
        assert made.is_explicit
        assert made == geometry(layer) or node.rewrite.why
        assert deconv.output_sizes(made, layer.sizes) == deconv.output_sizes(geometry(layer), layer.sizes)
    assert (node.quantization is None) == (weight not in QUANTIZED)


def of(path: Path, node: str = "", target: Target = TENSORRT_8) -> ExplainReport:
    return explain(ExplainRequest(path, node, target))


def layer_text(layer: Layer, folder: Path) -> str:
    return explain_text(of(saved(make(layer)[0], folder)))


UP = Layer(sizes=(3,), kernel=(3,), strides=(2,), pads=(1, 1), output_padding=(1,), bias="initializer")

UP_TEXT = """\
MODEL: graph/node[0] ConvTranspose "up", which makes y
  attributes  kernel_shape [3], strides [2], dilations [1], pads [1, 1], output_padding [1], group 1
  input       (2, 2, 3)
  weight      (2, 3, 3) = (C_in, C_out/group, kernel)

axis L
  full  = (in - 1)*stride + dilation*(kernel - 1) + 1
        = (3 - 1)*2 + 1*(3 - 1) + 1 = 7
  out   = (in - 1)*stride + dilation*(kernel - 1) + 1 - begin - end + output_padding
        = (3 - 1)*2 + 1*(3 - 1) + 1 - 1 - 1 + 1 = 6
        = full - 1 at the low end

  stride 2          puts 1 zero between input elements
  pads 1, 1         1 element cut at the low end of the full result, 1 element cut at the high end
  output_padding 1  takes back 1 of the 1 that the end pad cuts: nothing is cut at the high end

  taps that meet in successive output elements, far from the edges: 1, 2, 1, 2, ...

  in = 3
    full    0  1  2  3  4  5  6
    input   a  .  b  .  c
    a * w  w0 w1 w2
    b * w        w0 w1 w2
    c * w              w0 w1 w2
    taps    1  1  2  1  2  1  1
    out     x  0  1  2  3  4  5
    (. zero between input elements; w0.. kernel taps; x cut)

all axes
  bias  is added to every output element, also to those that no tap reaches

TensorRT's parser, of the node as it is (tensorrt-8.6)
  reads the node as it is meant: one deconvolution, with the crops above as its pre and post padding
  not asked: TensorRT is not here

what trtconv makes of it
  make-deconv-explicit: output_padding [1] written as pads [1, 0]
  node    kernel_shape [3], strides [2], dilations [1], pads [1, 0], output_padding [0], group 1
  weight  (2, 3, 3)
  why     L: pads 1, 0 cut the same window out of the same full result of 7 elements

advice
  - L: checkerboard: stride 2 does not divide kernel 3, so output elements get 1, 2, 1, 2, ... taps in turn,
    also for a constant input
  - L: a kernel of 4 and pads 1, 1 (output_padding 0) gives every element 2 taps at the same output size; a
    Resize and a Conv have no such pattern either. Both have to be trained anew"""


@pytest.fixture
def no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(target: Target | None) -> None:
        raise EnvironmentMissing("TensorRT is not here")

    monkeypatch.setattr("trtconv.runtimes.tensorrt.load", missing)


@pytest.mark.usefixtures("no_runtime")
def test_text_is_stable(tmp_path: Path) -> None:
    assert layer_text(UP, tmp_path).replace(str(tmp_path / "model.onnx"), "MODEL") == UP_TEXT


@pytest.mark.usefixtures("no_runtime")
def test_added_elements_are_drawn_beyond_the_full_result(tmp_path: Path) -> None:
    text = layer_text(dataclasses.replace(UP, pads=(-1, 0)), tmp_path)
    assert "    full       0  1  2  3  4  5  6\n    input      a  .  b  .  c\n" in text
    assert "    taps    0  1  1  2  1  2  1  1  0\n    out    +0  1  2  3  4  5  6  7 +8\n" in text
    assert "+ added, bias only" in text
    assert "the input is lengthened by zeros, 1 at the low end and 1 at the high end" in " ".join(text.split())
    assert "the crop (-1, -1) becomes (1, 1)" in " ".join(text.split())
    assert "the last output element holds only the bias" in text


@pytest.mark.usefixtures("no_runtime")
def test_a_longer_kernel_is_explained(tmp_path: Path) -> None:
    path = saved(make(dataclasses.replace(UP, pads=(-1, 0)))[0], tmp_path)
    text = " ".join(explain_text(of(path, target=RTX)).split())
    assert "zero-extended from 3 to 5 taps, 1 at the low end and 1 at the high end" in text
    assert "the crop (-1, -1) becomes (0, 0)" in text


@pytest.mark.usefixtures("no_runtime")
def test_without_a_runtime_the_target_is_a_guess_that_says_so(tmp_path: Path) -> None:
    report = explain(ExplainRequest(saved(make(UP)[0], tmp_path)))
    assert report.target == Target("tensorrt")
    assert report.explanation is not None
    assert report.explanation.parser.why_not == "TensorRT is not here"


@pytest.mark.usefixtures("no_runtime")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernel": (2,), "strides": (3,)}, "gaps: 1 of every 3 output elements gets no tap and holds only the bias"),
        (
            {"dilations": (2,)},
            "gaps: 1 of every 2 output elements gets no tap and holds only the bias (the taps miss them)",
        ),
        ({"kernel": (4,)}, "far from the edges: 2, 2, 2, 2, ..."),
        (
            {"pads": (0, 0)},
            "output_padding 1 is beyond the end pad: adds 1 element at the high end that no tap reaches",
        ),
        ({"pads": None, "auto_pad": "VALID"}, "auto_pad VALID nothing is cut"),
        ({"pads": None, "auto_pad": "SAME_UPPER"}, "pads 1, 1, so that out = in*stride: 2 in all, the smaller half"),
        (
            {"pads": None, "auto_pad": "SAME_LOWER", "kernel": (1,), "strides": (4,)},
            "the stride is longer than the kernel",
        ),
        ({"pads": None, "output_shape": (6,)}, "asks for 6 of 7: 1 element is cut at the low end and nothing is cut"),
        ({"pads": None, "output_shape": (6,), "dynamic": True}, "2*in - 4 elements are cut"),
        ({"pads": None, "output_shape": (6,), "dynamic": True}, "Pad, Slice, Add behind it cut or add the rest"),
        ({"group": 2}, "each output channel sees 2 of the 4 input channels; the weight's 3 outputs a group make 6"),
        ({"bias": "none"}, "no bias output elements that no tap reaches are 0"),
        ({"kernel": (60,), "strides": (30,)}, "no drawing"),
        ({"weight": "input", "pads": None}, "'w' is computed at run time"),
        ({"bias": "input", "pads": None}, "TC107 bias-missed-by-fill"),
        ({"output_padding": (2,)}, "TC105 output-padding-too-large"),
        ({"place": "loop"}, "repeat/body/node[1] ConvTranspose"),
        ({"place": "nested"}, "makes y"),
    ],
)
def test_text_says(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    text = layer_text(dataclasses.replace(UP, **changes), tmp_path)  # type: ignore[arg-type]
    assert said in " ".join(text.split())


@pytest.mark.usefixtures("no_runtime")
def test_dilation_goes_into_the_kernel_where_the_target_needs_it(tmp_path: Path) -> None:
    layer = dataclasses.replace(UP, dilations=(3,), pads=None)
    node = of(saved(make(layer)[0], tmp_path), target=RTX_NOT_HERE).explanation
    assert node is not None
    assert [edit.pass_name for edit in node.rewrite.edits] == ["make-deconv-explicit", "dilate-deconv-kernel"]
    assert node.rewrite.attributes["kernel_shape"] == [10]
    assert "zero-extended from 3 to 4 taps" in node.rewrite.why[0]
    assert "(3 elements here), so that the crop (0, -1) becomes (0, 2)" in node.rewrite.why[0]
    assert "zeros between its taps" in node.rewrite.why[1]


@pytest.mark.usefixtures("no_runtime")
def test_a_malformed_node_is_told_from_a_wrong_question(tmp_path: Path) -> None:
    proto, _ = make(dataclasses.replace(UP, pads=(1, 1, 1)))
    report = of(saved(proto, tmp_path))
    assert report.explanation is not None
    assert report.explanation.fault == "pads has 3 entries, a 1-D kernel needs 2"
    assert "no more can be said: pads has 3 entries" in explain_text(report)
    assert "TC108" in explain_text(report)


@pytest.mark.usefixtures("no_runtime")
def test_channels_that_do_not_fit_are_told(tmp_path: Path) -> None:
    proto, _ = make(UP)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 77
    report = of(saved(proto, tmp_path))
    assert report.explanation is not None
    assert "its input has 77 channels" in report.explanation.fault
    assert not report.explanation.axes


Q_UP = Layer(sizes=(3, 3), kernel=(2, 2), strides=(2, 2), channels=(8, 4), bias="initializer")


@pytest.mark.usefixtures("no_runtime")
@pytest.mark.parametrize(
    ("changes", "scales", "axis", "weight", "why_not"),
    [
        (
            {"weight": "dq_int8", "axis": None},
            1,
            None,
            "one scale for all channels, int8 with zero point 0",
            "input is not",
        ),
        (
            {"weight": "dq_int8", "axis": 1},
            4,
            1,
            "4 scales on axis 1, the output channels",
            "its input is not dequantised",
        ),
        (
            {"weight": "dq_int8", "axis": 0},
            8,
            0,
            "8 scales on axis 0, the input channels: TensorRT applies",
            "input is not",
        ),
        ({"weight": "qdq_int8", "channels": (8, 3), "axis": 1}, 3, 1, "3 scales", "3 output channels a group are not"),
        ({"weight": "dq_int8", "group": 2}, 1, None, "one scale", "it has 2 groups"),
        ({"weight": "dq_plain"}, 1, None, "no zero point", "input is not"),
        ({"weight": "dq_uint8", "axis": 1}, 4, 1, "uint8 with zero point 117 to 120", "in float"),
    ],
)
def test_quantization(
    tmp_path: Path, changes: dict[str, object], scales: int, axis: int | None, weight: str, why_not: str
) -> None:
    layer = dataclasses.replace(Q_UP, **changes)  # type: ignore[arg-type]
    node = explained(make(layer)[0], tmp_path)
    made = node.quantization
    assert made is not None
    assert made.layout == f"(C_in {8 * layer.group}, C_out/group {layer.channels[1]}, k 2, k 2)"
    assert (made.scales, made.axis, made.int8) == (scales, axis, False)
    assert weight in made.weight
    assert why_not in made.why_not
    assert ("TC301" in {f.code for f in made.findings}) == (changes.get("axis") == 0)


@pytest.mark.usefixtures("no_runtime")
def test_a_layer_between_quantisers_runs_in_int8(tmp_path: Path) -> None:
    proto = parse(
        """
        <ir_version: 8, opset_import: ["": 17]>
        g (float[1,4,5,5] x) => (float[1,4,p,q] y) <float s = {0.1}, int8 z = {0}, int8[4,4,1,1] w = {
          1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4}>
        { a = QuantizeLinear (x, s, z)
          b = DequantizeLinear (a, s, z)
          d = DequantizeLinear (w, s, z)
          c = ConvTranspose (b, d)
          e = QuantizeLinear (c, s, z)
          y = DequantizeLinear (e, s, z) }
        """
    )
    made = explained(proto, tmp_path).quantization
    assert made is not None
    assert made.int8
    assert made.input == "dequantised, int8 with zero point 0"
    assert made.output == "goes to a QuantizeLinear"


@pytest.mark.usefixtures("no_runtime")
@pytest.mark.parametrize("weight", ["dq_int8", "dq_uint8"])
def test_a_node_whose_quantisers_are_misread_is_not_called_right(tmp_path: Path, weight: str) -> None:
    node = explained(make(dataclasses.replace(Q_UP, weight=weight, channels=(8, 3), axis=0))[0], tmp_path)
    assert "TC301" in node.parser.expected and "not so what quantises it" in node.parser.expected
    assert node.rewrite.edits
    assert not any("nothing had to change" in why for why in node.rewrite.why)
    right = explained(make(dataclasses.replace(Q_UP, weight="initializer"))[0], tmp_path)
    assert "quantises" not in right.parser.expected


SEVERAL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1,1,4,h] x, bool c) => (float[1,1,p,q] y)
  <float[1,1,3,3] w = {1,2,3,4,5,6,7,8,9}>
{ [first] five = ConvTranspose <strides = [2,2]> (x, w)
  [relu] two = Relu (five)
  [twice] three = ConvTranspose <strides = [2,1], auto_pad = "SAME_UPPER"> (two, w)
  four = ConvTranspose <output_shape = [9,9]> (three, w)
  [twice] y = ConvTranspose <strides = [2,2]> (four, w) }
"""


@pytest.fixture
def several(tmp_path: Path, no_runtime: None) -> Path:
    return saved(parse(SEVERAL), tmp_path)


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ("first", "graph/node[0]"),
        ("0", "graph/node[0]"),
        ("node[2]", "graph/node[2]"),
        ("graph/node[3]", "graph/node[3]"),
        ('graph/node[3] ConvTranspose "anything"', "graph/node[3]"),
        ("three", "graph/node[2]"),
        ("y", "graph/node[4]"),
    ],
)
def test_nodes_are_found(several: Path, asked: str, place: str) -> None:
    node = of(several, asked).explanation
    assert node is not None
    assert node.place == place


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        ("furst", "has no node 'furst'", "Did you mean first"),
        ("threee", "has no node 'threee'", "Did you mean twice"),
        ("99", "has no node '99'", "Its ConvTranspose nodes: first, twice, graph/node[3], twice."),
        ("relu", 'graph/node[1] Relu "relu" is not a ConvTranspose', "Its ConvTranspose nodes: first"),
        ("1", 'graph/node[1] Relu "relu" is not a ConvTranspose', "Its ConvTranspose nodes: first"),
        ("twice", "'twice' is 2 ConvTranspose nodes", "Give the place of one: graph/node[2], graph/node[4]."),
    ],
)
def test_what_is_no_node_is_an_error(several: Path, asked: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        of(several, asked)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_tensor_may_be_named_like_an_index(tmp_path: Path, no_runtime: None) -> None:
    proto = parse(SEVERAL)
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = "1"
    node = of(saved(proto, tmp_path), "1").explanation
    assert node is not None
    assert node.name == "first"


def test_several_are_listed(several: Path) -> None:
    report = of(several)
    assert report.explanation is None
    assert [each.sizes for each in report.deconvolutions] == [
        "4 -> 9, in -> 2*in + 1",
        "9 -> 18, in -> in",
        "18 -> 9, in -> 9",
        "in -> 2*in + 1",
    ]
    lines = [line.split() for line in explain_text(report).splitlines()]
    assert lines[2] == ["place", "name", "kernel", "stride", "pads", "output_padding", "sizes"]
    assert lines[4] == ["graph/node[2]", "twice", "3x3", "2x1", "SAME_UPPER", "0,0", "9", "->", "18,", "in", "->", "in"]
    assert lines[5][:3] == ["graph/node[3]", "(makes", "four)"]


def test_none_are_listed(tmp_path: Path, no_runtime: None) -> None:
    proto = parse('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu (x) }')
    report = of(saved(proto, tmp_path))
    assert (report.deconvolutions, report.explanation) == ((), None)
    assert explain_text(report).endswith("no ConvTranspose")


def test_the_installed_parser_is_asked_about_the_node_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = (fakes.deconv("node", kernel=(3, 1), stride=(2, 1), pre_padding=(0, 0), post_padding=(0, 0)),)
    engine = fakes.FakeRuntime(fakes.FakeNetwork(deconvolutions=layers))
    monkeypatch.setattr("trtconv.runtimes.tensorrt.load", lambda target: engine)
    report = explain(ExplainRequest(saved(make(UP)[0], tmp_path)))
    assert report.explanation is not None
    assert report.target == engine.info.target
    raw = report.explanation.parser.layers
    assert raw is not None
    assert raw.deconvolution["kernel"] == (3, 1)
    assert any("crops [0, 0] at the low" in difference for difference in raw.differences)
    assert "WRONG: TensorRT crops" in explain_text(report)
    asked = onnx.ModelProto.FromString(engine.parsed[0][0])
    assert [node.op_type for node in asked.graph.node] == ["ConvTranspose"]
    onnx.checker.check_model(asked)


def test_a_refusal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = fakes.FakeRuntime(refuses=[fakes.issue(0, "ConvTranspose", "no negative pads")])
    monkeypatch.setattr("trtconv.runtimes.tensorrt.load", lambda target: engine)
    text = explain_text(explain(ExplainRequest(saved(make(UP)[0], tmp_path))))
    assert "which refuses it: no negative pads" in text


def test_small_words() -> None:
    assert [linear(1, 0), linear(2, 1), linear(3, -2)] == ["in", "2*in + 1", "3*in - 2"]
    assert cycle_text((1,)) == "1, 1, 1, 1, ..."
    assert cycle_text((1, 2, 2)) == "1, 2, 2, 1, 2, 2, ..."
    assert cycle_text(tuple(range(20))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ..."
