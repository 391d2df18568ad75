"""Bounds that are proposed where none were given: every proposal is accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from support.paths import MODELS
from support.sizes import parse
from trtconv.core.bounds import make_profile
from trtconv.core.dim_flags import parse_bounds, parse_dims
from trtconv.core.dims import Range
from trtconv.core.errors import InputError
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.profiles import settle
from trtconv.shapes.proposal import advise, usual_bounds

NETS = {
    "unet3d": OnnxModel.load(MODELS / "unet3d.onnx"),
    "unet": OnnxModel.load(MODELS / "unet.onnx"),
    "square": parse("g (float[1,h,w] x) => (float[1,a,b] y) { t = Transpose <perm = [0,2,1]> (x) y = Add (x, t) }"),
}


@pytest.mark.parametrize("name", NETS)
def test_what_is_proposed_is_accepted(name: str) -> None:
    model = NETS[name]
    words = advise(model, {}, "Add")[5:].partition(" (")[0].split()
    profile = make_profile(model.inputs, parse_dims(words[3::2]))
    assert not settle(model, [profile]).findings


def test_the_rule_is_said_and_given_bounds_are_kept() -> None:
    said = advise(NETS["unet"], {"height": Range(64, 64, 64), "batch": Range(1, 1, 1)}, "Add")
    assert said == "Add, for example --dim width=64:256:512 (width takes multiples of 8 from 8 to 1024)"


def test_volumes_are_smaller_than_images_and_a_batch_is_one_wherever_it_leads() -> None:
    net = parse("g (float[n,1,d,h,w] x, float[k,n,w] z) => (float[n] y) { y = Relu (x) }")
    sides = dict.fromkeys("dhw", Range(32, 64, 128))
    assert usual_bounds(net.inputs) == {**sides, "n": Range(1, 1, 8), "k": Range(1, 1, 8)}
    assert usual_bounds(parse("g (float s, float[2,w] x, float[3] k) => (float[2,w] y) { y = Add (x, s) }").inputs) == {
        "w": Range(64, 256, 512)
    }
    assert usual_bounds(NETS["unet"].inputs)["height"] == Range(64, 256, 512)


ATTENTION = """
    g (float[n,4,h,w] x) => (float[n,t,t] y)
    <int64[3] s = {0,4,-1}> { r = Reshape (x, s) q = Transpose <perm = [0,2,1]> (r) y = MatMul (q, r) }
"""


def test_bounds_at_whose_max_a_tensor_has_more_elements_than_are_counted_are_halved() -> None:
    # At 512 by 512 every pixel has a product with every pixel, of eight images.
    said = advise(parse(ATTENTION), {}, "Add")
    assert said == "Add, for example --dim n=1:1:2 --dim h=16:64:128 --dim w=16:64:128"
    # What was given stays, and the rest is halved further: 8 * (128 * 64)^2 elements.
    kept = advise(parse(ATTENTION), {"n": Range(8, 8, 8), "h": Range(128, 128, 128)}, "Add")
    assert kept == "Add, for example --dim w=8:32:64"
    above = advise(parse(ATTENTION), {"n": Range(1, 1, 40), "h": Range(8192, 8192, 8192)}, "Add")
    assert above == "Add, for example --dim w=64:256:512"


@pytest.mark.parametrize(
    ("most", "said"), [(512, "n=1:1:8 --dim h=64:256:512"), (130, "n=1:1:2 --dim h=16:64:128"), (7, "")]
)
def test_where_not_all_is_known_what_runs_is_proposed(most: int, said: str) -> None:
    net = parse("""g (float[n,h] x) => (int64[c] y) <int64 zero = {0}, int64 one = {1}> {
        p = NonZero (x)  m = ReduceMax <keepdims = 0> (p)  y = Range (zero, m, one)
    }""")
    asked: list[list[dict[str, int]]] = []

    def runs(points: Sequence[Mapping[str, int]]) -> bool:
        asked.append([dict(point) for point in points])
        return all(point["h"] <= most for point in points)

    words = advise(net, {}, "Add", runs)
    assert words == ("Add" if not said else f"Add, for example --dim {said} (at which ONNX Runtime ran the network)")
    assert asked[0] == [{"n": 1, "h": 64}, {"n": 1, "h": 256}, {"n": 8, "h": 512}]
    assert advise(net, {}, "Add") == "Add"


def test_a_network_that_is_known_is_not_run() -> None:
    def runs(points: Sequence[Mapping[str, int]]) -> bool:
        raise AssertionError(points)

    assert "for example" in advise(NETS["unet"], {}, "Add", runs)


def test_where_no_size_is_accepted_no_bounds_are_asked_for() -> None:
    net = parse("g (float[h,8] x, float[8,2000] b) => (float[c,d] y) { t = Transpose (b) y = MatMul (x, t) }")
    assert advise(net, {}, "Add") == (
        "No bounds will do, for the network takes no h from 1 to 65536: MatMul 1 multiplies matrices with 8 columns and"
        " 2000 rows with h 1. What exported it is wrong here: export it again, from its Python, which tries PyTorch's"
        " exporters in turn: trtconv export FILE.py:NETWORK -o model.onnx --input x=h,8 --input b=8,2000"
    )


def test_sizes_are_looked_for_beyond_the_usual_ones() -> None:
    net = parse("""g (float[1,n,8] x) => (float[1,c] y) <int64[2] s = {-1,24000}> { y = Reshape (x, s) }""")
    said = advise(net, {}, "Add")
    assert said == "Add, for example --dim n=3000:3000:3000 (n takes multiples of 3000 from 3000 to 63000)"
    assert not settle(net, [make_profile(net.inputs, parse_dims(["n=3000:3000:3000"]))]).findings


def test_bounds_that_are_given_are_not_blamed() -> None:
    net = parse("g (float[h,w] x, float[8] b) => (float[h,w] y) { y = Add (x, b) }")
    assert advise(net, {"w": Range(9, 9, 9)}, "Add") == "Add"


def test_bounds_are_moved_inwards_to_what_is_accepted() -> None:
    net = parse("""g (float[1,1,h,w] x) => (float[1,1,h,w] y) <float[1,1,1,1] k = {1}> {
        a = SpaceToDepth <blocksize = 7> (x)  t = DepthToSpace <blocksize = 7> (a)
        y = Add (t, x) }""")
    assert advise(net, {"h": Range(7, 7, 7)}, "Add").startswith("Add, for example --dim w=70:259:511 (")


def test_what_is_accepted_is_said_from_the_smallest_size_on() -> None:
    net = parse("""g (float[1,1,w] x) => (float[1,1,w] y) <float[1,1,1] k = {1}> {
        a = Conv <strides = [2]> (x, k)  t = ConvTranspose <strides = [2]> (a, k)  y = Add (t, x) }""")
    # A size of 1 is spread over the other.
    assert (
        advise(net, {}, "Add")
        == "Add, for example --dim w=65:257:511 (w takes 1 to 2 or, from 3 on, a multiple of 2 plus 1, to 1023)"
    )


def test_nothing_is_proposed_where_shapes_are_not_known() -> None:
    net = parse(
        "g (float[h,8] x) => (float[c,d] y) { y = my.U (x) }", '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
    )
    assert advise(net, {}, "Add") == "Add"


def test_nothing_is_proposed_for_bounds_that_are_wrong() -> None:
    assert advise(NETS["unet"], {"nothing": Range(1, 1, 1)}, "Add") == "Add"


def test_an_input_as_a_whole() -> None:
    bounds = parse_bounds(["batch=1"], ["x=1:1:4,3,64:256:512,_"])
    assert bounds == {"batch": Range(1, 1, 1), "x:0": Range(1, 1, 4), "x:1": Range(3, 3, 3), "x:2": Range(64, 256, 512)}
    assert list(make_profile(NETS["unet"].inputs, parse_bounds([], ["x=2,3,64,64"])).inputs["x"].opt) == [2, 3, 64, 64]


@pytest.mark.parametrize("text", ["x", "x=", "=1", "x=1,,3", "x=1,a", "x=4:1"])
def test_an_input_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError):
        parse_bounds([], [text])
