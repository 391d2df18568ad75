"""What inputs are read as: which of them are indices, and into how many rows, sizes, lengths, boxes, masks."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.feeds import Role
from trtconv.runtimes.proof.roles import integers_of, role_of, sizing_slots

LOOP = """y = Loop (n, go, x) <body = b (int64 i, bool c, float[2,5] p) => (bool d, float[2,5] q)
    { d = Identity (c)  q = Abs (p) }>"""
INTEGERS = {
    "y = Gather (x, n)": (Role.INDEX, 2),
    "y = Gather <axis = 1> (x, n)": (Role.INDEX, 5),
    "y = Gather <axis = -1> (x, n)": (Role.INDEX, 5),
    "y = GatherElements <axis = 1> (x, n)": (Role.INDEX, 5),
    "y = GatherND (x, n)": (Role.INDEX, 2),
    "y = Scatter <axis = 1> (x, n, u)": (Role.INDEX, 5),
    "y = ScatterElements <axis = 1> (x, n, u)": (Role.INDEX, 5),
    "y = ScatterND (x, n, u)": (Role.INDEX, 2),
    "y = RoiAlign (t, b, n)": (Role.INDEX, 3),
    # The smallest of several tables, whichever comes first; one of unknown size does not count.
    "p = Gather <axis = 1> (x, n)  y = Gather (x, n)": (Role.INDEX, 2),
    "p = Gather (x, n)  y = Gather <axis = 1> (x, n)": (Role.INDEX, 2),
    "p = Gather (v, n)  y = Gather <axis = 1> (x, n)": (Role.INDEX, 5),
    "y = Gather (v, n)": (Role.INDEX, 0),
    "w = Unheard (x)  y = Gather (w, n)": (Role.INDEX, 0),
    "y = GatherND (v, n)": (Role.INDEX, 0),
    # Handed on first, as the data alone.
    "m = Cast <to = 7> (n)  y = Gather (x, m)": (Role.INDEX, 2),
    "l = Unsqueeze (n, o)  m = Squeeze (l, o)  y = Gather (x, m)": (Role.INDEX, 2),
    "r = Gather (n, k)  y = Gather <axis = 1> (x, r)": (Role.INDEX, 5),
    "a, b = Split <axis = 0> (n, k)  y = Gather (x, b)": (Role.INDEX, 2),
    "m = Concat <axis = 0> (k, n)  y = Gather (x, m)": (Role.NUMBER, 0),
    "m = Add (n, n)  y = Gather (x, m)": (Role.NUMBER, 0),
    "y = Reshape (x, n)": (Role.SIZES, 0),
    "y = ReduceSum (x, n)": (Role.SIZES, 0),
    "y = Pad (x, k, , n)": (Role.SIZES, 0),
    "p = Gather (x, n)  y = Tile (p, n)": (Role.SIZES, 0),
    LOOP: (Role.TRIPS, 0),
    "y = NonMaxSuppression (n, s)": (Role.BOXES, 0),
    "y = NonMaxSuppression (s, n)": (Role.NUMBER, 0),
    "y, h = RNN <hidden_size = 4> (t, w, r, , n)": (Role.LENGTH, 3),
    "y, h = GRU <hidden_size = 4, layout = 1> (t, w, r, , n)": (Role.LENGTH, 7),
    "y, h = LSTM <hidden_size = 4> (t, w, r, , n)": (Role.LENGTH, 3),
    "y = ReverseSequence (x, n)": (Role.LENGTH, 2),
    "y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n)": (Role.LENGTH, 5),
    "y = ReverseSequence (v, n)": (Role.LENGTH, 0),
    # A table that is looked up in is no index.
    "y = Gather (n, k)": (Role.NUMBER, 0),
    "y = Neg (n)": (Role.NUMBER, 0),
}


def model_of(body: str) -> OnnxModel:
    text = f"""<ir_version: 8, opset_import: ["": 18]>
    g (int64[2,1] n, int64[1] k, bool go, float[2,5] x, float[2,1] u, float[3,7,2,2] t, float[b,c] v,
    int32[1] last) => (float y)
    <int64[1] o = {{0}}> {{ {body} }}"""
    return OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))


@pytest.mark.parametrize(("body", "role"), INTEGERS.items())
def test_what_a_tensor_is_read_as(body: str, role: tuple[Role, int]) -> None:
    model = model_of(body)
    assert role_of(model, "n", {}) == role


def test_sizes_that_the_model_does_not_state_are_given() -> None:
    model = model_of("w = Abs (v)  y = Gather (w, n)")
    assert role_of(model, "n", {"w": (9, 3)}) == (Role.INDEX, 9)
    assert role_of(model, "n", {"x": (9, 3)}) == (Role.INDEX, 0)
    # What it states in full counts.
    model = model_of("y = Gather (x, n)")
    assert role_of(model, "n", {"x": (9, 3)}) == (Role.INDEX, 2)
    model = model_of("w = Abs (v)  y = ReverseSequence <time_axis = 1, batch_axis = 0> (w, n)")
    for shape, length in {(9, 3): 3, (9,): 0, (9, None): 0, (): 0}.items():
        assert role_of(model, "n", {"w": shape}) == (Role.LENGTH, length)


SIZING = """AffineGrid 1, CenterCropPad 1, Col2Im 1 2, Compress 1, ConstantOfShape 0, CumSum 1, DFT 1 2, Expand 1,
    MaxUnpool 2, OneHot 1, Pad 1 3, Range 0 1 2, Reshape 1, Resize 3, Slice 1 2 3 4, Split 1, Squeeze 1, Tile 1,
    TopK 1, Unsqueeze 1, ReduceSum 1, ReduceL2 1, Add, Conv, Relu, MatMul"""


def test_inputs_whose_values_decide_a_shape() -> None:
    """As ONNX defines the operators; not the scales of a Resize, which are floats."""
    for op, *slots in map(str.split, SIZING.split(",")):
        assert [str(slot) for slot in sizing_slots(op)] == slots
        for slot in slots:
            inputs = ", ".join(["x"] * int(slot) + ["n"])
            model = model_of(f"y = {op} ({inputs})")
            assert role_of(model, "n", {}) == (Role.SIZES, 0)


@pytest.mark.parametrize(
    ("body", "spans"),
    [
        ("y = Gather <axis = 1> (x, n)", {"n": range(5)}),
        ("y = Gather (v, n)", {}),
        ("y = Gather (x, last)", {"last": range(2)}),
        ("m = Cast <to = 9> (n)  y = Where (m, x, x)", {"n": range(2)}),
        ("p = Equal (n, k)  y = Gather (x, n)", {"n": range(2), "k": range(2)}),
        # Of no step at all nobody says what comes out.
        ("y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n)", {"n": range(1, 6)}),
        ("y = Add (n, k)", {}),
        ("w = Abs (v)  y = ReverseSequence <time_axis = 1, batch_axis = 0> (w, n)", {"n": range(1, 4)}),
        # Floats and booleans that say where are drawn as what they are.
        ("y = Where (go, x, v)", {}),
    ],
)
def test_which_values_of_integers_make_sense(body: str, spans: dict[str, range]) -> None:
    assert integers_of(model_of(body)) == spans


def test_lengths_are_those_of_the_shortest_run() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[b,t,2] x, int64[b] n) => (float[b,t,2] y)
    { y = ReverseSequence <time_axis = 1, batch_axis = 0> (x, n) }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    runs = [{"x": (2, 5, 2), "n": (2,)}, {"x": (1, 2, 2), "n": (1,)}]
    assert integers_of(model, runs) == {"n": range(1, 3)}
    assert integers_of(model, runs[:1]) == {"n": range(1, 6)}


def test_rows_of_a_table_whose_sizes_are_computed() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[n,4] x, int64[2,e] edges, float[e] u) => (float[n] y) <int64 one = {1}, float zero = {0}>
    {
      s = Shape <end = 1> (x)  z = Expand (zero, s)  i = Gather (edges, one)
      y = ScatterElements <reduction = "add"> (z, i, u)
    }"""
    model = OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))
    runs = [{"x": (7, 4), "edges": (2, 9), "u": (9,)}, {"x": (3, 4), "edges": (2, 9), "u": (9,)}]
    assert integers_of(model, runs) == {"edges": range(3)}
    assert integers_of(model, runs[:1]) == {"edges": range(7)}
    assert integers_of(model) == {}
