"""Where quantisers go, what their scales are, and that nothing else changes a float network."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from support.float_nets import ATTENTION, GROUPED, NARROW, PRODUCTS, RESIDUAL, UNET, VOLUME, net, sample
from support.onnx_models import RTX, parse, wrap
from support.session import run
from trtconv.core.documents.calibration import KeptRanges
from trtconv.core.errors import InputError
from trtconv.core.preprocessing import parse_preprocessing
from trtconv.graph.channels import times_inputs, times_outputs
from trtconv.graph.model import OnnxModel
from trtconv.graph.weight_file import WeightFile
from trtconv.passes import PASSES, run_passes
from trtconv.precision.quantize import cache
from trtconv.precision.quantize.biases import correct_biases
from trtconv.precision.quantize.budget import spend
from trtconv.precision.quantize.calibrate import Statistics, candidates, least_squares
from trtconv.precision.quantize.equalize import equalize, find_links, linked_tensors, sizes_by_channel
from trtconv.precision.quantize.histogram import Histogram
from trtconv.precision.quantize.images import as_input, read_image
from trtconv.precision.quantize.layers import find_layers
from trtconv.precision.quantize.measure import Distance, Reference, worst
from trtconv.precision.quantize.operators import bias_of, multiply_adds
from trtconv.precision.quantize.opset import of_opset
from trtconv.precision.quantize.placement import Placement, place
from trtconv.precision.quantize.samples import InputSamples, random_samples, read_samples
from trtconv.precision.quantize.sessions import Probe
from trtconv.precision.quantize.stored import store_weights
from trtconv.precision.quantize.weights import QuantizedWeights
from trtconv.precision.quantize.work import work_of
from trtconv.precision.quantize.write import quantized, scales

SHAPE = {"x": (1, 3, 8, 8)}


def prepared(text: str) -> OnnxModel:
    model = wrap(net(text))
    run_passes(model, [each for each in PASSES if each.name == "fold-batch-norm"], RTX)
    return model


def placed(text: str, in_float: tuple[str, ...] = ()) -> tuple[OnnxModel, Placement]:
    model = prepared(text)
    return model, place(model.main, [layer for layer in find_layers(model.main, in_float) if not layer.reason])


def names_of(model: OnnxModel, placement: Placement) -> list[str]:
    return [model.proto.graph.node[index].name for index in placement.layers]


def test_every_layer_of_a_unet_is_quantised_and_no_output() -> None:
    model, placement = placed(UNET)
    assert names_of(model, placement) == ["c1", "c2", "up", "c3", "head"]
    assert set(placement.tensors) == {"x", "r", "p", "qr", "u", "c", "s"}
    assert "y" not in placement.tensors


def test_concat_shares_a_scale_with_what_it_alone_takes() -> None:
    _, placement = placed(UNET)
    ranges = {"x": 1.0, "r": 2.0, "p": 1.5, "qr": 3.0, "u": 5.0, "c": 4.0, "s": 1.0}
    found = scales(placement, ranges)
    assert found["u"] == found["c"] == np.float32(5.0 / 127)
    assert found["qr"] == np.float32(3.0 / 127)
    # The skip goes into MaxPool too.
    assert found["r"] == found["p"] == np.float32(2.0 / 127)


@pytest.mark.parametrize(("skip", "joined"), [(4.0, 4.0), (3.99, 4.0), (4.0, 3.99), (0.0, 0.0), (1.0, 4.0)])
def test_a_skip_never_has_the_scale_of_the_concat(skip: float, joined: float) -> None:
    _, placement = placed(UNET)
    assert placement.apart == (("r", "c"),)
    found = scales(placement, dict.fromkeys(placement.tensors, 1.0) | {"r": skip, "p": skip, "u": joined, "c": joined})
    assert (max(skip, joined) == 0) == (found["r"] == found["c"])
    low, high = sorted([float(found["r"]), float(found["c"])])
    assert high <= max(skip, joined, 127) / 127 * 1.008
    assert low == high == 1 or high / low > 1.0078


def test_the_other_branch_of_a_sum_is_quantised() -> None:
    model, placement = placed(RESIDUAL)
    add = next(i for i, node in enumerate(model.proto.graph.node) if node.op_type == "Add")
    # The later of the two deconvolutions takes the sum in.
    assert placement.edges["u"] == ((add, 0),)
    assert "s" not in placement.edges


def test_a_sum_that_no_quantised_layer_takes_is_left() -> None:
    _, placement = placed(RESIDUAL, in_float=("head",))
    assert set(placement.tensors) == {"x", "r"}


def test_products_with_weights_are_quantised_and_attention_is_not() -> None:
    """Nothing in front of a normalisation or a softmax is, nor the stream that is added to."""
    model = prepared(ATTENTION)
    store_weights(model)
    layers = find_layers(model.main)
    placement = place(model.main, [layer for layer in layers if not layer.reason])
    assert names_of(model, placement) == ["q", "k", "v", "out", "up", "down", "last"]
    assert [layer.name for layer in layers if layer.reason] == ["scores", "mix"]
    assert set(placement.tensors) == {"c", "m", "d", "g", "r"}
    assert all(
        model.proto.graph.node[index].op_type == "MatMul" for edges in placement.edges.values() for index, _ in edges
    )


def test_a_transposed_weight_is_stored_as_what_it_comes_to() -> None:
    model = prepared(ATTENTION)
    weight = model.main.values("w_8_8c")
    store_weights(model)
    assert not [node for node in model.proto.graph.node if list(node.output) == ["turned"]]
    out = next(node for node in model.proto.graph.node if node.name == "out")
    np.testing.assert_array_equal(model.main.values(out.input[1]), weight.T)
    assert "w_8_8c" not in model.main.initializers


def test_scales_of_products_are_by_output_channel() -> None:
    model, placement = placed(PRODUCTS)
    assert names_of(model, placement) == ["plain", "turned", "scaled", "batched", "bare"]
    result = quantized(model, placement, dict.fromkeys(placement.tensors, 100.0))
    onnx.checker.check_model(result.proto, full_check=True)
    channels = {"plain": (1, 16), "turned": (0, 16), "scaled": (1, 5), "batched": (2, 7), "bare": (0, 2)}
    for name, (axis, count) in channels.items():
        node = next(node for node in result.proto.graph.node if node.name == name)
        maker = result.main.producer(node.input[1])
        before = next(each for each in model.proto.graph.node if each.name == name)
        weight = model.main.values(before.input[1])
        integers, scale = (result.main.values(each) for each in maker.input[:2])
        assert [a.i for a in maker.attribute if a.name == "axis"] == [axis]
        others = tuple(each for each in range(weight.ndim) if each != axis)
        np.testing.assert_allclose(scale, np.abs(weight).max(axis=others) / 127, rtol=1e-6)
        assert scale.shape == (count,)
        assert np.abs(integers).max(axis=others).min() == 127


def test_biases_of_products_restore_means() -> None:
    """That of a MatMul is in the Add behind it; one times beta, and one for a MatMul without, are left alone."""
    model, placement = placed(PRODUCTS)
    biases = {b.tensor: b for index in placement.layers if (b := bias_of(model.main, index))}
    assert set(biases) == {"b", "c"}
    attention = prepared(ATTENTION)
    found = [bias_of(attention.main, index) for index in attention.main.by_op["MatMul"]]
    assert [each.tensor for each in found if each] == ["q", "fb"]
    feeds = [{"x": np.abs(sample((1, 8, 12), seed))} for seed in range(4)]
    result = quantized(model, placement, dict.fromkeys(placement.tensors, 0.7))
    mended = correct_biases(model, result, list(biases.values()), feeds, lambda done, total: None)
    onnx.checker.check_model(mended.proto, full_check=True)

    def means(other: OnnxModel) -> np.ndarray:
        values = [Probe(other, tuple(biases)).run(each) for each in feeds]
        return np.concatenate([np.mean([v[name] for v in values], axis=(0, 1)) for name in biases])

    shifts = [float(np.abs(means(other) - means(model)).max()) for other in (result, mended)]
    assert shifts[1] < 0.1 * shifts[0]


@pytest.mark.parametrize(
    ("text", "shape", "counts"),
    [
        (UNET, (1, 3, 8, 8), {"c1": 13824, "c2": 13824, "up": 6144, "c3": 73728, "head": 1024}),
        (GROUPED, (1, 4, 8, 8), {"c1": 18432, "up": 4096, "c2": 4096}),
        (
            ATTENTION,
            (2, 6, 8),
            {
                "q": 768,
                "k": 768,
                "v": 768,
                "scores": 576,
                "mix": 576,
                "out": 768,
                "up": 1536,
                "down": 1536,
                "last": 384,
            },
        ),
        (
            PRODUCTS,
            (1, 8, 12),
            {"plain": 1536, "turned": 2048, "scaled": 640, "batched": 1792, "bare": 256, "left": 256, "vector": 128},
        ),
    ],
    ids=["unet", "grouped", "attention", "products"],
)
def test_multiply_adds_are_counted_at_the_sizes_of_a_sample(
    text: str, shape: tuple[int, ...], counts: dict[str, int]
) -> None:
    model = prepared(text)
    layers = find_layers(model.main)
    work = work_of(model, layers, [{"x": sample(shape, 0)}])
    assert {layer.name: work[layer.index] for layer in layers} == counts
    if text is ATTENTION:
        assert not work_of(model, layers, [])


def test_recurrent_layers_multiply_two_weights_at_each_step() -> None:
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5)
    shapes = {"x": (7, 2, 3), "w": (1, 20, 3), "r": (1, 20, 5)}
    assert multiply_adds(node, shapes) == 7 * 2 * (20 * 3 + 20 * 5)
    assert multiply_adds(node, {"x": (7, 2, 3)}) == multiply_adds(node, {"w": (1, 20, 3)}) == 0


def test_a_3d_deconvolution_without_a_quantiser_behind_stays_in_float() -> None:
    model, placement = placed(VOLUME)
    assert names_of(model, placement) == ["c1"]


def test_layers_that_tensorrt_has_no_int8_kernel_for_say_so() -> None:
    reasons = {layer.name: layer.reason for layer in find_layers(prepared(GROUPED).main, ["c2"])}
    assert reasons == {"c1": "", "up": "TensorRT has no int8 deconvolution with 2 groups", "c2": "asked for"}
    (last,) = (layer for layer in find_layers(prepared(NARROW).main) if layer.name == "last")
    assert last.reason == "TensorRT has no int8 deconvolution from 8 to 3 channels, which are not multiples of 4"


def test_weights_are_symmetric_int8_by_output_channel() -> None:
    model, placement = placed(UNET)
    result = quantized(model, placement, dict.fromkeys(placement.tensors, 1.0)).proto
    onnx.checker.check_model(result, full_check=True)
    made = {name: node for node in result.graph.node for name in node.output}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    for node in result.graph.node:
        if node.op_type not in ("Conv", "ConvTranspose"):
            continue
        weight = made[node.input[1]]
        axis = next(a.i for a in weight.attribute if a.name == "axis")
        assert axis == (1 if node.op_type == "ConvTranspose" else 0)
        integers, scale, zero = (constants[name] for name in weight.input)
        assert integers.dtype == zero.dtype == np.int8 and not zero.any()
        assert scale.shape == zero.shape == (integers.shape[axis],)
        assert np.abs(integers).max() == 127
        # Biases stay in float.
        assert len(node.input) < 3 or constants[node.input[2]].dtype == np.float32
    assert not [name for name in constants if name.startswith("w_") and name.count(".") == 0]


def test_a_wide_enough_int8_network_is_near_the_float_one() -> None:
    model, placement = placed(UNET)
    samples = random_samples(model, [SHAPE], 6, 0)
    statistics = Statistics(candidates("min-max", 0))
    from trtconv.precision.quantize.calibrate import calibrate

    calibrate(model, placement.tensors, samples, statistics, lambda done, total: None)
    result = quantized(model, placement, statistics.ranges("min-max"))
    distances = Reference(model, samples).distances(result)
    assert 1e-4 < distances["y"].rms < 0.05 and distances["y"].cosine > 0.998


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_an_output_that_is_no_number_is_the_worst_wherever_it_stands(names: str) -> None:
    values = {"a": 0.1, "b": math.nan}
    assert worst({name: Distance(values[name], 1.0) for name in names}) == math.inf


@pytest.mark.parametrize("count", [0, 1, 5])
def test_outputs_of_another_size_are_infinitely_far(count: int) -> None:
    """As of a NonZero, which returns as many elements as there are."""
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (int64[1,n] y) { y = NonZero (x) }'
    reference = Reference(wrap(parse(text)), [{"x": np.array([0, 1, 2, 3], np.float32)}])
    assert reference.distances_of([{"y": np.array([[1, 2, 3]])}])["y"].rms == 0
    assert reference.distances_of([{"y": np.ones((1, count), np.int64)}])["y"].rms == math.inf


@pytest.mark.parametrize(("text", "channels"), [(UNET, 3), (RESIDUAL, 4)])
def test_biases_restore_the_means_of_the_float_network(text: str, channels: int) -> None:
    """The layers of RESIDUAL have no biases: they get some."""
    model, placement = placed(text)
    feeds = [{"x": np.abs(sample((1, channels, 8, 8), seed))} for seed in range(4)]
    result = quantized(model, placement, dict.fromkeys(placement.tensors, 1.5))
    biases = [bias for index in placement.layers if (bias := bias_of(model.main, index))]
    tensors = [bias.tensor for bias in biases]
    assert len(biases) == len(placement.layers)
    mended = correct_biases(model, result, biases, feeds, lambda done, total: None)
    onnx.checker.check_model(mended.proto, full_check=True)

    def means(other: OnnxModel) -> np.ndarray:
        values = [Probe(other, tensors).run(each) for each in feeds]
        return np.concatenate([np.mean([v[name] for v in values], axis=(0, 1, 3, 4)) for name in tensors])

    shifts = [float(np.abs(means(other) - means(model)).max()) for other in (result, mended)]
    assert shifts[1] < 0.1 * shifts[0]


@pytest.mark.parametrize("text", [UNET, RESIDUAL, GROUPED])
def test_equalising_channels_keeps_every_bit(text: str) -> None:
    model = prepared(text)
    shape = tuple(int(size) if isinstance(size, int) else 8 for size in model.inputs[0].dims)
    feeds = {"x": sample((1, *shape[1:]), 3)}
    before = run(model.proto, feeds)
    links = find_links(model.main)
    sizes = sizes_by_channel(model, linked_tensors(links), [feeds], lambda done, total: None)
    uneven = {name: [value * 8.0 ** (i % 3) for i, value in enumerate(each)] for name, each in sizes.items()}
    edits = equalize(model, links, uneven)
    assert (len(edits) > 0) == (len(links) > 0)
    assert all(np.array_equal(a, b) for a, b in zip(before, run(model.proto, feeds), strict=True))


CONCAT = """<ir_version: 8, opset_import: ["": 17]> g (float[1,2,4,4] x) => (float[1,1,4,4] y)
    <float[2,2,1,1] v = {{1, 2, 3, 4}}, float[1,4,1,1] w = {{1, 1, 1, 1}}>
    {{ a = Conv (x, v)  r = Relu (a)  c = Concat <axis = 1> ({joined})  y = Conv (c, w) }}"""


@pytest.mark.parametrize(("joined", "links"), [("r, x", 1), ("x, r", 1), ("r, r", 0)])
def test_a_tensor_that_is_joined_with_itself_is_not_equalised(joined: str, links: int) -> None:
    assert len(find_links(prepared(CONCAT.format(joined=joined)).main)) == links


@pytest.mark.parametrize("far", [1e9, 1e-9])
def test_no_channel_is_scaled_beyond_64_times_the_others(far: float) -> None:
    """A channel that hardly ever holds anything would be scaled until its weights overflow."""
    model = prepared(UNET)
    (link, *_) = find_links(model.main)
    name = model.main.columns.nodes[link.maker].input[1]
    before = model.main.values(name)
    count = before.shape[0]
    assert count > 2
    equalize(model, [link], {link.tensor: [far, *[1.0] * (count - 1)]})
    ratios = np.abs(before / model.main.values(name)).reshape(count, -1).max(axis=1)
    assert max(ratios[0] / np.median(ratios), np.median(ratios) / ratios[0]) <= 128


def test_a_result_that_is_added_is_not_equalised() -> None:
    links = find_links(prepared(RESIDUAL).main)
    nodes = prepared(RESIDUAL).proto.graph.node
    assert [nodes[link.maker].name for link in links] == ["c1"]


@pytest.mark.parametrize(("op", "shape", "group"), [("Conv", (6, 2, 3), 2), ("ConvTranspose", (4, 3, 3), 2)])
def test_channels_of_groups_are_multiplied_in_their_order(op: str, shape: tuple[int, ...], group: int) -> None:
    weight = np.ones(shape, np.float32)
    factors = np.arange(1, 7, dtype=np.float32)
    found = times_outputs(weight, factors, op, group)
    expected = factors.reshape(6, 1, 1) if op == "Conv" else np.repeat(factors.reshape(2, 1, 3, 1), 2, axis=1)
    assert np.array_equal(found, np.broadcast_to(expected.reshape(-1, *expected.shape[-2:]), shape))


def test_inputs_of_a_depthwise_layer_are_its_own_channels() -> None:
    weight = np.ones((3, 1, 2), np.float32)
    assert times_inputs(weight, np.array([1, 2, 4], np.float32), "Conv", 3)[:, 0, 0].tolist() == [1, 2, 4]


def test_ranges_by_each_method() -> None:
    values = np.concatenate([np.linspace(-1, 1, 100_000), [50.0]]).astype(np.float32)
    statistics = Statistics(candidates("auto", 0))
    for part in np.array_split(values, 3):
        statistics.add({"t": part, "zero": np.zeros(5, np.float32)})
    found = {method: statistics.ranges(method)["t"] for method in candidates("auto", 0)}
    assert found["min-max"] == 50
    assert 0.9 < found["percentile 99.99"] <= found["percentile 99.999"] < 50
    assert statistics.ranges("mse")["zero"] == 0
    assert 0 < found["entropy"] <= 50


@pytest.mark.parametrize("far", [1e4, 1e6, 1e30])
def test_one_wild_value_costs_no_memory_and_hides_no_other(far: float) -> None:
    values = np.random.default_rng(1).normal(size=200_000).astype(np.float32)
    histogram, calm = Histogram(), Histogram()
    for part in np.array_split(values, 4):
        calm.add(part)
        histogram.add(part)
        histogram.add(np.array([far], np.float32))
    assert len(histogram.counts) <= 32 * 1024
    assert len(histogram.edges) == len(histogram.counts) + 1
    assert histogram.counts.sum() == 200_004
    if far < 1e9:
        assert histogram.percentile(99.9) == pytest.approx(np.quantile(np.abs(values), 0.999), rel=2e-3)
        assert calm.percentile(99.99) == pytest.approx(np.quantile(np.abs(values), 0.9999), rel=1e-2)


@given(
    st.lists(st.floats(-(2.0**90), 2.0**90, width=32, allow_subnormal=False), min_size=1, max_size=60),
    st.integers(0, 60),
)
def test_a_histogram_counts_the_same_in_any_order(numbers: list[float], cut: int) -> None:
    values = np.array(numbers, np.float32)
    parts = Histogram(), Histogram()
    for part in (values[:cut], values[cut:]):
        parts[0].add(part)
    for part in (values[cut:], values[:cut]):
        parts[1].add(part)
    np.testing.assert_array_equal(parts[0].counts, parts[1].counts)
    np.testing.assert_array_equal(parts[0].edges, parts[1].edges)
    largest = float(np.abs(values).max())
    counts, edges = parts[0].counts, parts[0].edges
    assert edges[-2] <= largest <= edges[-1]
    expected = np.histogram(np.abs(values).astype(np.float64), edges)[0]
    # NumPy closes the last bin on both sides; below the first lies what is as good as 0.
    np.testing.assert_array_equal(counts[1:], expected[1:])
    assert counts.sum() == len(values)


def test_the_weights_of_all_models_made_of_one_are_in_one_file(tmp_path: Path) -> None:
    model = prepared(UNET)
    feeds = {"x": sample((1, 3, 8, 8), 0)}
    expected = Probe(model, model.outputs).run(feeds)
    file = WeightFile("unet.onnx")
    file.move(model)
    large = [t for t in model.proto.graph.initializer if math.prod(t.dims) * 4 > 1024]
    assert len(large) == 3
    assert all(file.holds(tensor) for tensor in large)
    assert len(model.proto.SerializeToString()) < 6000
    np.testing.assert_array_equal(Probe(model, model.outputs).run(feeds)["y"], expected["y"])
    placement = place(model.main, [layer for layer in find_layers(model.main) if not layer.reason])
    weights, ranges = QuantizedWeights(file), dict.fromkeys(placement.tensors, 3.0)
    first, second = (quantized(model, placement, ranges, weights) for _ in range(2))
    assert first.proto == second.proto
    inline = quantized(prepared(UNET), placement, ranges)
    got = (Probe(each, each.outputs).run(feeds)["y"] for each in (first, inline))
    np.testing.assert_array_equal(*got)
    first.save(tmp_path / "int8.onnx")
    alone = OnnxModel.load(tmp_path / "int8.onnx")
    assert not alone.external_files
    assert not any(tensor.data_type == 1 and math.prod(tensor.dims) > 100 for tensor in alone.proto.graph.initializer)


def test_the_least_squares_range_clips_an_outlier_only_where_that_pays() -> None:
    edges = np.linspace(0, 10, 1001)
    many = np.where(edges[:-1] < 1, 1000.0, 0.0)
    many[-1] = 1
    few = np.zeros(1000)
    few[::10] = 1
    assert least_squares(many, edges) < 8
    assert least_squares(few, edges) > 9


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(InputError, match="'t' is not finite"):
        Statistics(("min-max",)).add({"t": np.array([1.0, np.inf], np.float32)})


def test_the_budget_leaves_out_what_costs_most_and_no_more() -> None:
    layers = find_layers(prepared(UNET).main)
    costs = {"c1": 0.01, "c2": 0.5, "up": 0.0, "c3": 0.2, "head": 0.02}
    spending = spend(layers, 0.1, lambda kept: sum(costs[each.name] for each in kept), lambda done, total: None)
    assert [step.node for step in spending.steps] == ["c2", "c3"]
    assert spending.met and spending.error == pytest.approx(0.73)
    assert {each.name for each in spending.layers} == {"c1", "up", "head"}


def test_a_budget_that_is_met_leaves_nothing_out() -> None:
    layers = find_layers(prepared(UNET).main)
    spending = spend(layers, 1.0, lambda kept: 0.5, lambda done, total: None)
    assert spending.met and not spending.steps and not spending.alone


def test_a_budget_that_cannot_be_met_says_so() -> None:
    layers = find_layers(prepared(UNET).main)
    spending = spend(layers, 0.1, lambda kept: 0.5, lambda done, total: None)
    assert not spending.met and spending.layers == layers


def archive(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(("shape", "count"), [((6, 3, 8, 8), 6), ((6, 2, 3, 8, 8), 6), ((1, 3, 8, 8), 1)])
def test_samples_of_one_file_are_cut_apart(shape: tuple[int, ...], count: int, tmp_path: Path) -> None:
    model = prepared(UNET)
    values = sample(shape, 0)
    samples = read_samples(model, str(archive(tmp_path, x=values)), (), 0, 0, None)
    assert len(samples) == count
    assert np.array_equal(samples[0]["x"].reshape(-1), values[0].reshape(-1))


def test_a_folder_has_samples_of_several_sizes(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", sample((1, 3, 8, 12), 0))
    np.savez(tmp_path / "a.npz", x=sample((2, 3, 8, 8), 0))
    samples = read_samples(prepared(UNET), str(tmp_path), (), 0, 0, None)
    assert [each["x"].shape for each in samples] == [(1, 3, 8, 8), (1, 3, 8, 8), (1, 3, 8, 12)]
    assert samples.sizes() == [{"x": (1, 3, 8, 8)}, {"x": (1, 3, 8, 12)}]


def test_a_function_is_called_at_each_size_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text(
        "import numpy as np\ndef make(shapes, seed):\n    return {'x': np.full(shapes['x'], seed, np.float32)}\n"
    )
    shapes = [{"x": (1, 3, 8, 8)}, {"x": (1, 3, 4, 4)}]
    samples = read_samples(prepared(UNET), f"{path}:make", shapes, 3, 7, None)
    assert [(each["x"].shape[2], each["x"].max()) for each in samples] == [(8, 7), (4, 8), (8, 9)]


def test_calibration_and_measurement_see_different_samples() -> None:
    whole = InputSamples([lambda number=number: {"x": np.array(number)} for number in range(10)], "numbers")
    first, second = ({int(each["x"]) for each in part} for part in whole.parted(0.2))
    assert first | second == set(range(10)) and not first & second and len(second) == 2
    with pytest.raises(InputError, match="numbers has 1 sample"):
        whole[:1].parted(0.2)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_sizes_that_take_turns_are_on_both_sides(share: float) -> None:
    whole = InputSamples([lambda number=number: {"x": np.array(number % 2)} for number in range(20)], "turns")
    for part in whole.parted(share):
        assert {int(each["x"]) for each in part} == {0, 1}


def test_what_does_not_fit_the_network_is_refused(tmp_path: Path) -> None:
    model = prepared(UNET)
    wrong = read_samples(model, str(archive(tmp_path, x=np.zeros((2, 3, 8, 8)))), (), 0, 0, None)
    with pytest.raises(InputError, match="float32 in the model, and float64 here"):
        wrong[0]
    with pytest.raises(InputError, match="no samples"):
        read_samples(model, str(tmp_path / "data.npz").replace("data.npz", ""), (), 0, 0, None) if (
            tmp_path / "data.npz"
        ).unlink() is None else None


def test_images_need_a_stated_preprocessing(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((6, 10, 3), 128, np.uint8)).save(tmp_path / "a.png")
    model = prepared(UNET)
    with pytest.raises(InputError, match="how they become inputs is not said"):
        read_samples(model, str(tmp_path), (), 0, 0, None)
    asked = parse_preprocessing("size=8x12,scale=1/255,mean=0.5,std=0.25")
    (found,) = read_samples(model, str(tmp_path), (), 0, 0, asked)
    assert found["x"].shape == (1, 3, 8, 12)
    assert found["x"].max() == pytest.approx((128 / 255 - 0.5) / 0.25, abs=1e-6)
    assert read_image(tmp_path / "a.png", parse_preprocessing("size=4x4,crop,layout=nhwc"), 0).shape == (1, 4, 4, 3)


def test_channels_of_images_are_ordered_as_asked() -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert as_input(pixels, parse_preprocessing("color=bgr"), "a")[0, :, 0, 0].tolist() == [2, 1, 0]
    with pytest.raises(InputError, match="3 channels, and --preprocess 2 values of mean"):
        as_input(pixels, parse_preprocessing("mean=1:2"), "a")


@pytest.mark.parametrize("text", ["size=8", "std=0", "scale=1/0", "color=pink", "bogus", "crop=1"])
def test_a_preprocessing_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--preprocess"):
        parse_preprocessing(text)


def test_what_calibration_found_is_kept_by_content(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"model").hexdigest()
    keys = {cache.key_of(digest, samples, ("t",), {"asked": asked}) for samples in "ab" for asked in (1, 2)}
    assert len(keys) == 4
    key = keys.pop()
    found = KeptRanges("max", {}, {"t": 1.5})
    assert cache.load(tmp_path, key, KeptRanges, ["t"]) is None
    cache.store(tmp_path, key, found)
    assert cache.load(tmp_path, key, KeptRanges, ["t"]) == found


def test_an_old_opset_is_raised_to_one_with_scales_by_channel() -> None:
    proto = net(RESIDUAL)
    proto.opset_import[0].version = 11
    model = of_opset(wrap(proto), 13)
    assert model.opset == 13
    assert of_opset(model, 13) is model


@pytest.mark.parametrize(("size", "cropped"), [("2x2", (2, 6)), ("2x4", (1, 7)), ("4x4", (2, 6))])
def test_an_image_is_cropped_around_its_middle(size: str, cropped: tuple[int, int], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for wide in (True, False):
        # Columns, or rows, tell where they were.
        ramp = np.broadcast_to(np.arange(8, dtype=np.uint8)[None, :] * 30, (4, 8))
        asked = size if wide else "x".join(reversed(size.split("x")))
        image.fromarray(np.ascontiguousarray(ramp if wide else ramp.T)).save(tmp_path / "a.png")
        found = read_image(tmp_path / "a.png", parse_preprocessing(f"size={asked},crop,color=gray"), 0)[0, 0]
        ends = (found[0, 0], found[0, -1]) if wide else (found[0, 0], found[-1, 0])
        low, high = cropped
        assert low * 30 - 16 <= ends[0] < ends[1] <= (high - 1) * 30 + 16
        assert abs((ends[0] + ends[1]) / 2 - 105) < 8


@pytest.mark.parametrize("text", ["size=0x8", "size=8x0", "size=8xa", "size=ax8", "size=8x"])
def test_a_size_of_images_has_two_numbers_that_are_not_0(text: str) -> None:
    with pytest.raises(InputError, match="--preprocess"):
        parse_preprocessing(text)


def test_ranges_are_of_the_magnitude_on_either_side() -> None:
    values = np.concatenate([np.linspace(-8, 1, 50_000), np.linspace(-8, 1, 50_000)]).astype(np.float32)
    for sign in (1, -1):
        statistics = Statistics(("percentile 99.99", "entropy", "mse"))
        statistics.add({"t": sign * values})
        assert statistics.ranges("percentile 99.99")["t"] == pytest.approx(8, rel=0.02)
        assert statistics.ranges("mse")["t"] == pytest.approx(8, rel=0.05)
        assert 4 < statistics.ranges("entropy")["t"] <= 8.1


@pytest.mark.parametrize("factor", [1.0, 4.0, -1.0])
def test_entropy_leaves_out_what_hardly_occurs(factor: float) -> None:
    values = np.concatenate([np.random.default_rng(0).standard_normal(100_000), [40.0]]).astype(np.float32)
    statistics = Statistics(("entropy",))
    statistics.add({"t": values * np.float32(factor)})
    assert 4 < statistics.ranges("entropy")["t"] / abs(factor) < 20
    even = Statistics(("entropy",))
    even.add({"t": np.linspace(-5, 5, 100_000, dtype=np.float32) * np.float32(factor)})
    assert even.ranges("entropy")["t"] == pytest.approx(5 * abs(factor), rel=1e-3)


@pytest.mark.parametrize(
    ("nodes", "tensor"),
    [
        ("y = Gemm (x, w)", "y"),
        ("y = Gemm (x, w, b)", "y"),
        ("y = Gemm (x, w, row)", "y"),
        ("y = Gemm <transB = 1> (x, w, b)", None),
        ("y = Gemm <beta = 2.0> (x, w, b)", None),
        ("y = Gemm (x, w, one)", None),
        ("y = Gemm (x, w, given)", None),
        ("y = Gemm (x, late, b)", "y"),
        ("y = Gemm (x, unknown, b)", None),
        ("t = MatMul (x, w) y = Add (t, b)", "y"),
        ("t = MatMul (x, w) y = Add (b, t)", "y"),
        ("t = MatMul (x, w) y = Add (t, row)", "y"),
        ("t = MatMul (x, w) y = Add (t, one)", None),
        ("t = MatMul (x, w) y = Add (t, given)", None),
        ("t = MatMul (x, w) y = Sub (t, b)", None),
        ("t = MatMul (x, w) u = Add (t, b) y = Mul (u, t)", None),
        ("t = MatMul (x, unknown) y = Add (t, b)", None),
        ("t = MatMul (x, w) y = Relu (t)", None),
    ],
)
def test_where_the_bias_of_a_product_is(nodes: str, tensor: str | None) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[5,4] x, float[3] given, float[4,3] late, float[4,3] unknown) => (float[n,m] y)
        <float[4,3] w, float[3] b = {{1,2,3}}, float[1,3] row = {{1,2,3}}, float[1] one = {{1}}> {{ {nodes} }}"""
    proto = parse(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3), np.float32), "w"))
    proto.graph.input[3].type.tensor_type.ClearField("shape")
    found = bias_of(wrap(proto).main, 0)
    assert (None if found is None else found.tensor) == tensor
    if found is not None and "Add" in nodes:
        assert (found.slot, found.axis) == (0 if "(b, t)" in nodes else 1, -1)


def test_entropy_of_a_range_that_grows_is_that_of_the_whole() -> None:
    random = np.random.default_rng(0)
    parts = [(random.normal(size=20_000) * factor).astype(np.float32) for factor in (0.02, 1.0)]
    grown, whole = Statistics(("entropy",)), Statistics(("entropy",))
    for part in parts:
        grown.add({"t": part})
    whole.add({"t": np.concatenate(parts)})
    assert grown.ranges("entropy")["t"] == pytest.approx(whole.ranges("entropy")["t"], rel=0.3)


def test_distances_of_integers_are_shares_and_of_floats_are_roots() -> None:
    from trtconv.precision.quantize.measure import _Squares

    floats, integers = _Squares(), _Squares()
    floats.add(np.array([3.0, 4.0], np.float32), np.array([3.0, 5.0], np.float32))
    integers.add(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    assert floats.distance().rms == pytest.approx(0.2)
    assert integers.distance().rms == pytest.approx(0.25)


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (1, 1), (6, 6)])
def test_an_array_is_cut_by_its_batch(rows: int, count: int) -> None:
    from trtconv.core.dims import InputSpec
    from trtconv.precision.quantize.samples import _cut

    assert len(_cut(InputSpec("x", "float32", ("n", 1)), np.zeros((rows, 1), np.float32), Path("x.npz"))) == count
    assert len(_cut(InputSpec("x", "float32", (2, 0)), np.zeros((4, 0), np.float32), Path("x.npz"))) == 1


@pytest.mark.parametrize("kept", [1, 1 << 26])
def test_errors_by_layer_are_over_all_samples_however_few_are_kept(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, placement = placed(UNET)
    feeds = [{"x": sample((1, 3, 8, 8), seed)} for seed in range(3)]
    result = quantized(model, placement, dict.fromkeys(placement.tensors, 2.0))
    monkeypatch.setattr("trtconv.precision.quantize.measure._KEPT_BYTES", kept)
    found = Reference(model, feeds).inside(result, ["u"])["u"].rms
    values = [[Probe(each, ("u",)).run(sample)["u"] for sample in feeds] for each in (model, result)]
    ours, theirs = map(np.concatenate, values)
    assert found == pytest.approx(math.sqrt(np.square(theirs - ours).sum() / np.square(ours).sum()), rel=1e-4)
