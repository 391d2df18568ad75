"""Images in the network: the numbers of Pillow and NumPy in front of it, and errors by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from trtconv.core.errors import Bug, InputError
from trtconv.core.interface import Interface
from trtconv.core.preprocessing import FILTERS, PIXELS, PLANES, parse_images, parse_preprocessing, placement
from trtconv.graph.fitting import fit, reloaded
from trtconv.graph.model import OnnxModel
from trtconv.graph.planes import of_rgb
from trtconv.pipeline.outputs import sides
from trtconv.precision.image_check import compared_images
from trtconv.precision.quantize.images import as_input, of_pixels, of_planes

Fitted = Callable[..., OnnxModel]
NET = "float[n,3,24,32] x"


@pytest.fixture
def fitted(tmp_path: Path) -> Fitted:
    """Makes a network that returns its input, and lets it take images."""

    def make(text: str, taken: str = NET, opset: int = 13) -> OnnxModel:
        kind, path = taken.partition("[")[0], tmp_path / "m.onnx"
        proto = f'<ir_version: 7, opset_import: ["": {opset}]> g ({taken}) => ({kind}[a,b,c,d] y) {{ y = Relu (x) }}'
        onnx.save(onnx.parser.parse_model(proto), path)
        model = OnnxModel.load(path)
        fit(model, Interface(parse_images(text)))
        onnx.checker.check_model(model.proto, full_check=True)
        return model

    return make


def ran(model: OnnxModel, pixels: NDArray[Any]) -> NDArray[Any]:
    made: NDArray[Any] = onnxruntime.InferenceSession(model.serialize()).run(None, {"x": pixels})[0]
    return made


def image(height: int, width: int, pixels: str = "rgb") -> NDArray[np.uint8]:
    return np.random.default_rng(height).integers(0, 256, (height, width, PIXELS[pixels]), np.uint8)


@pytest.mark.parametrize("fit_words", ["stretch", "crop", "letterbox=114", "letterbox"])
@pytest.mark.parametrize("filtered", FILTERS)
def test_what_is_resized_has_the_numbers_of_pillow(fitted: Fitted, fit_words: str, filtered: str) -> None:
    pytest.importorskip("PIL")
    text = f"image=48x50+13x90+24x32+100x7,{fit_words},filter={filtered},pixels=bgra,color=bgr"
    model, how = fitted(text), parse_images(text)
    for height, width in how.images:
        taken = image(height, width, "bgra")
        wanted = np.maximum(of_pixels(taken, how, (24, 32)), 0)
        # A batch of two images, the other upside down.
        made = ran(model, np.stack([taken[::-1], taken]))
        np.testing.assert_allclose(made[1:], wanted, atol=1e-3)
        assert made.shape == (2, 3, 24, 32)


@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
@pytest.mark.parametrize("pixels", [each for each in PIXELS if each not in PLANES])
def test_channels_come_into_the_order_of_the_network(fitted: Fitted, color: str, pixels: str) -> None:
    pytest.importorskip("PIL")
    how = parse_images(f"color={color},pixels={pixels}")
    model = fitted(str(how), f"float[1,{1 if color == 'gray' else 3},24,32] x")
    taken = image(24, 32, pixels)
    # Pillow rounds what it makes gray.
    np.testing.assert_allclose(ran(model, taken[None]), of_pixels(taken, how, None), atol=0.51)


def planes(height: int, width: int, color: tuple[int, int, int]) -> dict[str, NDArray[np.uint8]]:
    """One color in two planes."""
    luma, *chroma = color
    return {
        "x": np.full((1, height, width, 1), luma, np.uint8),
        "x_uv": np.tile(np.array(chroma, np.uint8), (1, height // 2, width // 2, 1)),
    }


# Bars of a test picture, 75 %, by the standards: luma, blue difference, red difference; and what they show.
BARS = {
    "nv12": {(180, 128, 128): (191, 191, 191), (65, 100, 212): (191, 0, 0), (35, 212, 114): (0, 0, 191)},
    "nv12-bt709": {(180, 128, 128): (191, 191, 191), (51, 109, 212): (191, 0, 0), (28, 212, 120): (0, 0, 191)},
}


@pytest.mark.parametrize("kind", list(PLANES))
def test_planes_have_the_colors_of_the_standards(fitted: Fitted, kind: str) -> None:
    model = fitted(f"pixels={kind}")
    session = onnxruntime.InferenceSession(model.serialize())
    for taken, shown in BARS[kind].items():
        (made,) = session.run(None, planes(24, 32, taken))
        np.testing.assert_allclose(made, np.broadcast_to(np.reshape(shown, (1, 3, 1, 1)), made.shape), atol=1.5)
    # And back, as `run` makes planes of a picture: four pixels share their chroma.
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:2, :2], picture[2:, 2:] = (200, 30, 90), (10, 220, 40)
    luma, chroma = of_rgb(picture, kind)
    how = parse_images(f"pixels={kind},layout=nhwc")
    np.testing.assert_allclose(of_planes(luma, chroma, how, None)[0], picture, atol=2)


@pytest.mark.parametrize("words", ["", "color=bgr,letterbox=114,image=48x50+14x90", "color=gray,image=48x64,crop"])
def test_planes_become_inputs_as_pillow_makes_them(fitted: Fitted, words: str) -> None:
    pytest.importorskip("PIL")
    how = parse_images(f"pixels=nv12,{words}")
    model = fitted(str(how), f"float[n,{1 if how.color == 'gray' else 3},24,32] x")
    taken = compared_images(model, model.images)
    assert taken.chroma == "x_uv"
    assert taken.difference is not None
    assert taken.difference < 0.01
    random = np.random.default_rng(0)
    for height, width in taken.sizes:
        luma, chroma = (
            random.integers(0, 256, (height // part, width // part, count), np.uint8)
            for part, count in ((1, 1), (2, 2))
        )
        feeds = {"x": np.stack([luma[::-1], luma]), "x_uv": np.stack([chroma[::-1], chroma])}
        (made,) = onnxruntime.InferenceSession(model.serialize()).run(None, feeds)
        wanted = np.maximum(of_planes(luma, chroma, how, taken.resized_to), 0)
        np.testing.assert_allclose(made[1:], wanted, atol=2e-3)
    sized = [{name: bound.opt for name, bound in each.items()} for each in sides(taken)]
    if len(taken.sizes) > 1:
        halves = {"image_height_half": 24, "image_width_half": 25}
        assert sized[0] == {"image_height": 48, "image_width": 50, **halves}


def test_planes_that_cannot_be(fitted: Fitted) -> None:
    for words, net, opset, what in (
        ("pixels=nv12,image=13x50", NET, 13, "sizes that are even"),
        ("pixels=nv12", "float[n,3,h,w] x", 13, "Say image=|sizes that are even"),
        ("pixels=nv12", NET, 12, "need opset 13"),
    ):
        with pytest.raises(InputError, match=what):
            fitted(words, net, opset)


def test_normalisation_is_that_of_samples_to_the_bit(fitted: Fitted) -> None:
    text = "scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"
    taken = image(24, 32)
    for layout, network in (("nchw", NET), ("nhwc", "float[n,24,32,3] x")):
        how = parse_preprocessing(f"{text},layout={layout}")
        made = ran(fitted(f"{text},layout={layout}", network), taken[None])
        np.testing.assert_array_equal(made, np.maximum(as_input(taken, how, "x"), 0))


def test_networks_of_other_types_and_layouts(fitted: Fitted) -> None:
    taken = image(48, 64)
    wanted = ran(fitted("image=48x64,scale=1/255"), taken[None])
    halved = ran(fitted("image=48x64,scale=1/255", "float16[n,3,24,32] x"), taken[None])
    assert halved.dtype == np.float16
    np.testing.assert_array_equal(halved, wanted.astype(np.float16))
    turned = ran(fitted("image=48x64,scale=1/255,layout=nhwc", "float[n,24,32,3] x"), taken[None])
    np.testing.assert_allclose(turned.transpose(0, 3, 1, 2), wanted, atol=1e-6)
    # A network of any size keeps the image's, or has the one that is said.
    assert ran(fitted("", "float[n,3,h,w] x"), taken[None]).shape == (1, 3, 48, 64)
    assert ran(fitted("size=8x6,image=48x64", "float[n,3,h,w] x", 11), taken[None]).shape == (1, 3, 8, 6)


def test_inputs_say_what_they_take(fitted: Fitted) -> None:
    model = fitted("image=48x50+13x50")
    (spec,) = model.inputs
    assert (spec.dtype, spec.dims) == ("uint8", ("n", "image_height", 50, 3))
    taken = model.images
    assert taken is not None
    assert [{name: bound.opt for name, bound in each.items()} for each in sides(taken)] == [
        {"image_height": 48},
        {"image_height": 13},
    ]
    assert "48x50, 13x50, resized to 24x32" in str(taken)
    third = fitted("image=48x50+13x50+30x50").images
    assert [each["image_height"].opt for each in sides(third)] == [48, 13, 30]
    assert reloaded(model.copy()).proto == model.proto
    assert fitted("", "float[2,3,h,w] x").inputs[0].dims == (2, "h", "w", 3)
    assert fitted("image=8x6", "float[2,3,h,w] x").inputs[0].dims == (2, 8, 6, 3)


@pytest.mark.parametrize(
    ("text", "network", "said"),
    [
        ("", "float[n,4,8,8] x", "4 channels, and an image 3"),
        ("color=gray", NET, "3 channels, and an image 1"),
        ("layout=nhwc", NET, "layout=nhwc: x has 32 channels"),
        ("", "float[n,3,8] x", "has 3 axes"),
        ("", "int64[n,3,8,8] x", "is int64"),
        ("mean=1:2", NET, "3 channels, and mean 2 values"),
        ("std=1:2:3:4", NET, "3 channels, and std 4 values"),
        ("size=8x8", NET, "x is 24x32, and size= says 8x8"),
        ("", "float[n,3,h,32] x", "one is fixed"),
        ("input=z", NET, "no input 'z'"),
        ("", "float[n,3,8,8] x, float[n,3,8,8] z", "x, z of .* can all be images"),
        ("image=16384x16384+16383x16384", "float[n,3,4096,4096] x", "gigabytes"),
        ("image=16384x8", "float[n,3,4096,4] x", "gigabytes"),
        ("image=8x16384", "float[n,3,4,4096] x", "gigabytes"),
    ],
)
def test_what_can_be_no_image_is_refused(fitted: Fitted, text: str, network: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fitted(text, network)


def test_old_opsets_and_returned_inputs_are_refused(fitted: Fitted, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="opset 10"):
        fitted("", NET, 9)
    text = f'<ir_version: 7, opset_import: ["": 13]> g ({NET}) => (float[a,b,c,d] y, {NET}) {{ y = Relu (x) }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "r.onnx")
    with pytest.raises(InputError, match="returned as it is"):
        fit(OnnxModel.load(tmp_path / "r.onnx"), Interface(parse_images("")))


def test_a_wrong_number_of_means_is_told_as_that(fitted: Fitted) -> None:
    with pytest.raises(InputError) as refused:
        fitted("mean=1:2", NET)
    assert refused.value.hint == "Write mean= with one value, or with 3: one for each channel."


@pytest.mark.parametrize(
    "text",
    [
        "image=8", "image=8x8+8x8", "image=0x8", "image=20000x8", "pixels=yuv", "filter=box", "letterbox=256",
        "letterbox=nan", "scale=inf", "mean=nan", "crop,letterbox", "size=8x8,size=9x9", "size=8x8+9x9", "input=",
        "crop=1", "std=0", "scale=0", "scale=0/3", "image=" + "+".join(f"{n}x8" for n in range(1, 40)),
    ],
)  # fmt: skip
def test_what_is_no_preprocessing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--images"):
        parse_images(text)


@pytest.mark.parametrize("text", ["image=8x8", "pixels=bgr", "size=8x8,input=x"])
def test_samples_have_nothing_that_is_about_engines(text: str) -> None:
    with pytest.raises(InputError, match="takes images"):
        parse_preprocessing(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "letterbox=114", "letterbox", "crop,filter=linear", "scale=1/3,mean=0.1:0.2:0.3,std=0.5",
        "size=8x9,image=4x5+6x7,pixels=bgra,color=gray,layout=nhwc,input=x",
    ],
)  # fmt: skip
def test_what_is_written_is_read_again(text: str) -> None:
    assert parse_images(str(parse_images(text))) == parse_images(text)


def test_images_are_placed_in_the_middle() -> None:
    assert dataclasses.astuple(placement("stretch", (5, 9), (8, 8))) == ((8, 8), 0, 0)
    assert dataclasses.astuple(placement("letterbox", (10, 20), (8, 8))) == ((4, 8), 2, 0)
    assert dataclasses.astuple(placement("letterbox", (20, 10), (9, 8))) == ((9, 4), 0, 2)
    assert dataclasses.astuple(placement("crop", (10, 20), (8, 8))) == ((8, 16), 0, -4)
    assert dataclasses.astuple(placement("crop", (21, 10), (8, 8))) == ((17, 8), -4, 0)


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        *(("", []), ("scale=1/255", ["Mul"]), ("mean=3", ["Sub"]), ("std=2", ["Div"]), ("scale=1,mean=0,std=1", [])),
        ("scale=0.5,mean=0:0:1,std=1:2:1", ["Mul", "Sub", "Div"]),
    ],
)
def test_arithmetic_that_changes_nothing_is_not_written(fitted: Fitted, text: str, ops: list[str]) -> None:
    written = [node.op_type for node in fitted(text).proto.graph.node]
    assert [op for op in written if op in ("Mul", "Sub", "Div")] == ops


@pytest.mark.parametrize("size", ["48x50", "13x90", "24x32"])
def test_an_image_of_one_size_has_its_letterbox(fitted: Fitted, size: str) -> None:
    pytest.importorskip("PIL")
    text = f"image={size},letterbox=114"
    model, how = fitted(text), parse_images(text)
    (taken,) = (image(*each) for each in how.images)
    np.testing.assert_allclose(ran(model, taken[None]), np.maximum(of_pixels(taken, how, (24, 32)), 0), atol=1e-3)


@pytest.mark.parametrize("text", ["image=40x50,scale=1/255,mean=0.4", "scale=2,mean=124:116:104,color=bgr"])
def test_other_numbers_in_the_network_are_a_bug(fitted: Fitted, text: str) -> None:
    pytest.importorskip("PIL")
    model = fitted(text)
    assert model.images is not None
    same = compared_images(model, model.images)
    assert same.difference is not None
    assert same.difference < 1e-3
    constant = next(each for each in model.proto.graph.initializer if "sub" in each.name)
    other = onnx.numpy_helper.to_array(constant) + np.float32(0.1)
    constant.CopyFrom(onnx.numpy_helper.from_array(other, constant.name))
    model.touch()
    with pytest.raises(Bug):
        compared_images(model, model.images)
