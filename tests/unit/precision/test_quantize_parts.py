"""The parts of quantize by themselves: caches, arrays cut into samples, channels, pixels."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from support.float_nets import HEAD, net
from support.onnx_models import wrap
from trtconv.core import budget
from trtconv.core.budget import Budget, BudgetExceeded
from trtconv.core.dims import InputSpec
from trtconv.core.documents.images import ImageInput
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.preprocessing import parse_preprocessing
from trtconv.graph.model import OnnxModel
from trtconv.graph.planes import of_rgb
from trtconv.precision.quantize import samples
from trtconv.precision.quantize.biases import correct_biases
from trtconv.precision.quantize.equalize import equalize, find_links, sizes_by_channel
from trtconv.precision.quantize.histogram import Histogram
from trtconv.precision.quantize.images import read_image, read_pixels, read_taken
from trtconv.precision.quantize.layers import find_layers
from trtconv.precision.quantize.operators import bias_of
from trtconv.precision.quantize.opset import of_opset
from trtconv.precision.quantize.placement import place
from trtconv.precision.quantize.scales_of_cache import read_cache
from trtconv.precision.quantize.sessions import Probe
from trtconv.precision.quantize.stored import store_weights

HEADER = "TRT-8600-EntropyCalibration2\n"


def cache(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "x.cache"
    path.write_text(header + "\n".join(lines))
    return path


def digits(scale: float) -> str:
    return struct.pack(">f", scale).hex()


def test_a_cache_has_the_scale_of_every_line(tmp_path: Path) -> None:
    lines = [f"x: {digits(0.5)}", "", f"a b:c : {digits(0.0).upper()}", f"x:{digits(0.5)}"]
    found = read_cache(cache(tmp_path, *lines))
    assert (found.calibrator, found.scales) == ("EntropyCalibration2", {"x": 0.5, "a b:c": 0.0})
    assert found.ranges == {"x": 63.5, "a b:c": 0.0}


@pytest.mark.parametrize(
    "line",
    ["x", "x 3c010a14", ": 3c010a14", "x: 3c010a1", "x: 3c010a145", "x: 3c010a1g", f"x: {digits(-1.0)}"]
    + [f"x: {digits(value)}" for value in (np.nan, np.inf, -np.inf)]
    + [f"first: {digits(0.25)}"],
)
@pytest.mark.parametrize("before", [1, 3])
def test_a_line_that_is_wrong_is_told_by_its_number(line: str, before: int, tmp_path: Path) -> None:
    good = [f"first: {digits(0.5)}", "", f"third: {digits(0.5)}"][:before]
    with pytest.raises(InputError, match=f"line {1 + before + 1}\\b"):
        read_cache(cache(tmp_path, *good, line))


def test_bytes_that_are_no_text_are_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    path.write_bytes(b"TRT-8600-EntropyCalibration2\n\xff: 3c010a14\n")
    with pytest.raises(InputError, match="not text"):
        read_cache(path)


@pytest.mark.parametrize("header", ["", "TRT-8600-EntropyCalibration2 and more\n", "TRT-x-EntropyCalibration\n", "x\n"])
def test_what_has_no_such_first_line_is_no_cache(header: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TRT-VERSION"):
        read_cache(cache(tmp_path, f"x: {digits(0.5)}", header=header))


@pytest.mark.parametrize(
    ("dims", "shape", "pieces"),
    [
        ((2, 3), (5, 2, 3), [(2, 3)] * 5),
        ((2, 3), (4, 3), [(2, 3)] * 2),
        ((2, 3), (5, 3), [(5, 3)]),
        (("n", 3), (4, 3), [(1, 3)] * 4),
        ((2, 3), (3,), [(3,)]),
        ((), (), [()]),
        ((), (3,), [()] * 3),
        ((2, 3), (0, 3), [(0, 3)]),
        ((0, 3), (0, 3), [(0, 3)]),
    ],
)
def test_an_array_holds_as_many_samples_as_fit(
    dims: tuple[int | str, ...], shape: tuple[int, ...], pieces: list[tuple[int, ...]]
) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    cut = samples._cut(InputSpec("x", "float32", dims), array, Path("x.npz"))
    assert [each.shape for each in cut] == pieces
    np.testing.assert_array_equal(np.concatenate([each.reshape(-1) for each in cut]), array.reshape(-1))


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
def test_there_are_not_too_many_samples(count: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_MOST_SAMPLES", 4)
    array = np.zeros((2 * count, 3), np.float32)
    if fits:
        assert len(samples._cut(InputSpec("x", "float32", (2, 3)), array, Path("x.npz"))) == count
    else:
        with pytest.raises(InputError, match=f"has {count} samples, more than 4"):
            samples._cut(InputSpec("x", "float32", (2, 3)), array, Path("x.npz"))


def parsed(text: str) -> OnnxModel:
    return OnnxModel(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]>{text}'), Path("m.onnx"))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3), st.integers(0, 3))
def test_sizes_of_channels_are_roots_of_mean_squares_over_all_samples(
    sizes: list[tuple[int, int]], channels: int
) -> None:
    model = parsed("g (float[n,c,h] x) => (float[n,c,h] y) { y = Neg (x) }")
    draw = np.random.default_rng(channels)
    arrays = [draw.normal(size=(count, channels, height)).astype(np.float32) for count, height in sizes]
    told: list[tuple[int, int]] = []
    found = sizes_by_channel(model, {"y": 1}, [{"x": array} for array in arrays], lambda *each: told.append(each))
    columns = np.concatenate(
        [array.transpose(1, 0, 2).reshape(channels, array.shape[0] * array.shape[2]) for array in arrays], 1
    )
    assert found["y"] == pytest.approx([float(each) for each in np.sqrt((columns.astype(np.float64) ** 2).mean(1))])
    assert told == [(number, len(arrays)) for number in range(1, len(arrays) + 1)]


def test_a_layer_that_cannot_be_scaled_hides_no_other() -> None:
    weights = "float[2,2,1,1] a = {1,2,3,4}, float[2,2,1,1] b = {1,2,3,4}, float[2,2,1,1] c = {1,2,3,4}"
    # The first one's weights are used twice.
    model = parsed(
        f"g (float[1,2,4,4] x) => (float[1,2,4,4] y) <{weights}>"
        "{ p = Conv (x, a) q = Conv (p, a) r = Conv (q, b) y = Conv (r, c) }"
    )
    assert [link.maker for link in find_links(model.main)] == [2]


def picture(folder: Path, pixels: np.ndarray) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(pixels).save(folder / "a.png")
    return folder / "a.png"


@pytest.mark.parametrize("size", [(2, 5), (5, 2), (3, 3)])
def test_pixels_have_the_size_of_the_image(size: tuple[int, int], tmp_path: Path) -> None:
    pixels = np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(*size, 3)
    path = picture(tmp_path, pixels)
    np.testing.assert_array_equal(read_pixels(path, "rgb", [(9, 9), size])[0], pixels)
    np.testing.assert_array_equal(read_pixels(path, "bgr", [])[0], pixels[..., ::-1])
    whole, turned = (read_pixels(path, order, [])[0] for order in ("rgba", "bgra"))
    np.testing.assert_array_equal(whole[..., :3], pixels)
    np.testing.assert_array_equal(turned, whole[..., [2, 1, 0, 3]])
    with pytest.raises(InputError, match=f"has {size[0]}x{size[1]} pixels .*takes 9x9, 8x7"):
        read_pixels(path, "rgb", [(9, 9), (8, 7)])


@pytest.mark.parametrize("filtered", ["linear", "nearest"])
@pytest.mark.parametrize(("height", "width", "top", "left"), [(2, 4, 1, 0), (4, 2, 0, 1), (1, 4, 1, 0), (4, 4, 0, 0)])
def test_a_letterbox_has_the_whole_image_between_its_bars(
    height: int, width: int, top: int, left: int, filtered: str, tmp_path: Path
) -> None:
    pixels = np.arange(1, 1 + height * width, dtype=np.uint8).reshape(height, width)
    how = parse_preprocessing(f"size=4x4,letterbox=99,color=gray,filter={filtered}")
    expected = np.full((4, 4), 99, np.float32)
    expected[top : top + height, left : left + width] = pixels
    np.testing.assert_allclose(read_image(picture(tmp_path, pixels), how, 0)[0, 0], expected, atol=1e-4)


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_channels_without_values_are_not_scaled(dead: int) -> None:
    """They have the factor of the others; where there is no other, there is nothing to do."""
    model = parsed(
        "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] a = {1,2,3,4}, float[2,2,1,1] b = {1,2,3,4}>"
        "{ t = Conv (x, a) y = Conv (t, b) }"
    )
    links = find_links(model.main)
    values = [0.0] * dead + [64.0] * (2 - dead)
    edits = equalize(model, links, {"t": values})
    scaled = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.proto.graph.initializer}
    assert all(np.isfinite(each).all() and each.all() for each in scaled.values())
    assert bool(edits) == (dead < 2)


@pytest.mark.parametrize(
    ("dims", "fits"), [((3,), True), ((1, 3), True), ((1, 1, 3), True), ((3, 1), False), ((), False)]
)
def test_a_bias_has_one_value_for_each_channel_of_the_last_axis(dims: tuple[int, ...], fits: bool) -> None:
    model = parsed("g (float[2,5,4] x) => (float[a,b,c] y) { m = MatMul (x, w) y = Add (m, b) }")
    for name, shape in (("w", (4, 3)), ("b", dims)):
        model.proto.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    model.touch()
    found = bias_of(model.main, 0)
    assert (found is not None) == fits
    if found is not None:
        assert (found.tensor, found.slot, found.axis) == ("y", 1, -1)


def test_a_layer_whose_weights_another_uses_takes_no_scaled_channels() -> None:
    weights = "float[2,2,1,1] a = {1,2,3,4}, float[2,2,1,1] b = {1,2,3,4}"
    text = "{ p = Conv (x, b) q = Conv (p, a) y = Conv (q, a) }"
    assert not find_links(parsed(f"g (float[1,2,4,4] x) => (float[1,2,4,4] y) <{weights}> {text}").main)


def test_only_weights_that_are_computed_are_stored() -> None:
    model = parsed(
        "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] a = {1,2,3,4}, float[2,2,1,1] b = {1,2,3,4}>"
        "{ c = Neg (b) t = Conv (x, a) y = Conv (t, c) }"
    )
    store_weights(model)
    first, second = (node for node in model.proto.graph.node if node.op_type == "Conv")
    assert first.input[1] == "a"
    values = {tensor.name: numpy_helper.to_array(tensor).ravel().tolist() for tensor in model.proto.graph.initializer}
    assert values[second.input[1]] == [-1, -2, -3, -4]
    assert [node.op_type for node in model.proto.graph.node] == ["Conv", "Conv"]


@given(st.lists(st.floats(2.0**-20, 2.0**10, width=32), min_size=1, max_size=50))
def test_a_bin_is_a_thousandth_of_its_values_wide(values: list[float]) -> None:
    histogram = Histogram()
    histogram.add(np.array(values, np.float32))
    edges = histogram.edges
    assert histogram.counts.sum() == len(values)
    assert (np.diff(edges) <= edges[:-1] / 1000).all()
    for value in values:
        at = int(np.searchsorted(edges, value, "right")) - 1
        assert histogram.counts[at] == sum(edges[at] <= other < edges[at + 1] for other in values)


JOINED = """g (float[1,8,4,4] x) => (%s) {
    a = Conv <pads = [1,1,1,1]> (x, w_8_8_3_3)
    r = Relu (x)
    m = Concat <axis = 1> (a, r)
    y = Conv <pads = [1,1,1,1]> (m, w_8_16_3_3) }"""


@pytest.mark.parametrize(
    ("outputs", "tensors"),
    [("float[1,8,4,4] y", {"x", "m", "a", "r"}), ("float[1,8,4,4] y, float[1,16,4,4] m", {"x", "m"})],
)
def test_what_an_output_is_made_of_is_not_quantised(outputs: str, tensors: set[str]) -> None:
    """What a layer reads is; on the way to a graph output it would cost the output its bits."""
    model = wrap(net(f"{HEAD} {JOINED % outputs}"))
    assert set(place(model.main, find_layers(model.main)).tensors) == tensors


SHARED = """g (float[n,2] x) => (float[n,2] y)
    <float[2,2] v = {1,2,3,4}, float[2,2] w = {1,2,-3,4}, float[2] b = {1,-1}, float[2] c = {2,3}>
    { p = Gemm (x, v, b)  q = Gemm (p, w, b)  r = Gemm (q, v, c)  y = Gemm (r, w) }"""


@pytest.mark.parametrize("tensors", ["p", "q", "p q", "r", "r y", "p q r"])
@pytest.mark.parametrize(("count", "rows"), [(3, 5), (1, 1)])
def test_a_bias_is_corrected_where_it_is_added_and_nowhere_else(tensors: str, count: int, rows: int) -> None:
    """One that other layers share stays theirs; one of the layer's own is changed in its place."""
    model, result = parsed(SHARED), parsed(SHARED)
    result.proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([[1, 2], [3, 5]], np.float32), "v"))
    result.touch()
    draw = np.random.default_rng(0)
    feeds = [{"x": draw.standard_normal((rows, 2)).astype(np.float32) + 1} for _ in range(count)]
    biases = [bias for index in range(4) if (bias := bias_of(model.main, index)) and bias.tensor in tensors.split()]
    told: list[tuple[int, int]] = []
    mended = correct_biases(model, result, biases, feeds, lambda *counts: told.append(counts))
    expected, found = ([Probe(each, "pqry").run(sample) for sample in feeds] for each in (model, mended))
    for name in tensors.split():
        means = [np.mean([sample[name] for sample in samples], (0, 1)) for samples in (expected, found)]
        np.testing.assert_allclose(*means, rtol=1e-5, atol=1e-5)

    def added(other: OnnxModel, index: int) -> list[float] | None:
        names = other.proto.graph.node[index].input[2:]
        return (
            numpy_helper.to_array(next(t for t in other.proto.graph.initializer if t.name == names[0])).tolist()
            if names
            else None
        )

    assert all(added(mended, i) == added(result, i) for i, name in enumerate("pqry") if name not in tensors.split())
    # A shared one has a copy for each but the last that reads it, a missing one appears, c is changed in place.
    assert len(mended.proto.graph.initializer) == 4 + {"p": 1, "q": 1, "p q": 1, "r": 0, "r y": 1, "p q r": 1}[tensors]
    assert told == [(turn, len(told)) for turn in range(1, len(told) + 1)]


@given(st.integers(2, 40), st.floats(0.01, 1.0))
def test_samples_that_measure_are_one_of_each_stretch(count: int, share: float) -> None:
    whole = samples.InputSamples([lambda number=number: {"x": np.array(number)} for number in range(count)], "numbers")
    first, second = ([int(each["x"]) for each in part] for part in whole.parted(share))
    held = min(count - 1, max(1, round(count * share)))
    assert sorted(first + second) == list(range(count)) and first == sorted(first) and len(second) == held
    for number, which in enumerate(second):
        assert round(number * count / held) <= which < round((number + 1) * count / held)


PAIR = "g (float[2,3] x, float[2,3] z) => (float[2,3] y) { y = Add (x, z) }"


def test_an_archive_has_as_many_samples_of_each_input(tmp_path: Path) -> None:
    model = parsed(PAIR)

    def read(**shapes: tuple[int, ...]) -> samples.InputSamples:
        np.savez(tmp_path / "a.npz", **{name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
        return samples.read_samples(model, str(tmp_path / "a.npz"), (), 0, 0, None)

    assert len(read(x=(3, 2, 3), z=(6, 3))) == 3
    for more in (2, 4):
        with pytest.raises(InputError, match=f"3.*{more}"):
            read(x=(3, 2, 3), z=(more, 2, 3))
    # Names that are no inputs are one sample, which then says so.
    (other,) = range(len(read(other=(2, 3))))
    with pytest.raises(InputError, match="other"):
        read(other=(2, 3))[other]


def test_a_file_of_one_array_is_whole_and_within_the_budget(tmp_path: Path) -> None:
    model = parsed("g (float[2,3] x) => (float[2,3] y) { y = Neg (x) }")
    np.save(tmp_path / "a.npy", np.zeros((50, 2, 3), np.float32))
    with budget.allowed(Budget(megabytes=50 * 2 * 3 * 4 / 1e6)):
        assert len(samples.read_samples(model, str(tmp_path), (), 0, 0, None)) == 50
    with budget.allowed(Budget(megabytes=50 * 2 * 3 * 3.9 / 1e6)), pytest.raises(BudgetExceeded):
        samples.read_samples(model, str(tmp_path), (), 0, 0, None)
    data = (tmp_path / "a.npy").read_bytes()
    for part in (data[:-4], data[:100], b"", b"no array"):
        (tmp_path / "a.npy").write_bytes(part)
        with pytest.raises(InputError, match=r"a\.npy is not an \.npy file"):
            samples.read_samples(model, str(tmp_path), (), 0, 0, None)


def test_sizes_take_turns(tmp_path: Path) -> None:
    how = parse_preprocessing("size=4x6+8x2+6x6")
    path = picture(tmp_path, np.zeros((3, 3, 3), np.uint8))
    sizes = [read_image(path, how, number).shape[2:] for number in range(7)]
    assert sizes == [(4, 6), (8, 2), (6, 6)] * 2 + [(4, 6)]
    model = parsed("g (float[n,m] x) => (float[n,m] y) { y = Neg (x) }")
    random = samples.random_samples(model, [{"x": (2, 3)}, {"x": (4, 1)}], 3, 5)
    assert [each["x"].shape for each in random] == [(2, 3), (4, 1), (2, 3)]
    # Another sample is of another seed, and the next seed's first is this one's second.
    again = samples.random_samples(model, [{"x": (4, 1)}], 1, 6)
    np.testing.assert_array_equal(random[1]["x"], again[0]["x"])
    assert not np.array_equal(random[0]["x"], random[2]["x"])


@pytest.mark.parametrize("chroma", [None, "uv"])
@pytest.mark.parametrize("resized", [False, True])
def test_an_engine_is_given_what_it_takes_of_an_image(chroma: str | None, resized: bool, tmp_path: Path) -> None:
    colors = np.array([[[200, 30, 90], [10, 220, 40]], [[0, 0, 0], [255, 255, 255]]], np.uint8)
    pixels = colors.repeat(2, 0).repeat(4, 1)
    kind = "bgr" if chroma is None else "nv12"
    taken = ImageInput("im", kind, ((4, 8),), None, "x", chroma=chroma)
    how = parse_preprocessing("size=4x8,filter=nearest" if resized else "")
    arrays = read_taken(picture(tmp_path, colors if resized else pixels), taken, how)
    luma = of_rgb(pixels, kind)[0] if chroma else pixels[..., ::-1]
    np.testing.assert_array_equal(arrays.pop("im"), luma[np.newaxis])
    if chroma:
        np.testing.assert_array_equal(arrays.pop("uv"), of_rgb(pixels, kind)[1][np.newaxis])
    assert not arrays
    with pytest.raises(InputError, match="would do so twice"):
        read_pixels(tmp_path / "a.png", "rgb", [], parse_preprocessing("scale=1/255"))


def test_without_pillow_images_are_refused_by_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(EnvironmentMissing, match="Pillow"):
        read_image(tmp_path / "a.png", parse_preprocessing("size=4x4"), 0)


def test_an_opset_that_onnx_cannot_convert_is_told() -> None:
    proto = parsed("g (float[4] x) => (float[4] y) { y = Unheard (x) }").proto
    proto.opset_import[0].version = 8
    with pytest.raises(InputError, match="has opset 8, and cannot be converted to 13"):
        of_opset(OnnxModel(proto, Path("m.onnx")), 13)


def test_a_cache_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_cache(tmp_path / "none.cache")


def test_links_behind_one_that_stays_are_scaled() -> None:
    weights = ", ".join(f"float[2,2,1,1] {name} = {{1,1,1,1}}" for name in "abc")
    text = "{ p = Conv (x, a)  q = Conv (p, b)  y = Conv (q, c) }"
    model = parsed(f"g (float[1,2,4,4] x) => (float[1,2,4,4] y) <{weights}> {text}")
    model.proto.graph.node[1].name = "second"
    edits = equalize(model, find_links(model.main), {"p": [1.0, 1.0], "q": [1.0, 16.0]})
    assert [edit.node for edit in edits] == ["second"]
