"""Channels of normalisations and matrix products brought to one size in front of the products that take them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from support.float_nets import net, saved_samples
from support.onnx_models import RTX, wrap
from support.session import run
from trtconv.core.requests.quantize import QuantizeRequest
from trtconv.pipeline.quantizing import quantize
from trtconv.precision.quantize.equalize import equalize, find_links, linked_tensors, sizes_by_channel

HEAD = '<ir_version: 8, opset_import: ["": 17]> g (float[2,6,8] x) => '
NORM = f"""{HEAD} (float[2,6,8] y, float[2,6,4] z) {{
    [norm] c = LayerNormalization (x, p_8, b_8)
    [one] a = MatMul (c, w_8_16)
    ab = Add (a, b_16)
    r = Relu (ab)
    [two] y = MatMul (r, w_16_8)
    [three] z = MatMul (c, w_8_4) }}"""
SCALED = f"""{HEAD} (float[2,6,16] y) {{
    n = Tanh (x)
    [scale] s = Mul (n, p_8)
    c = Add (s, b_8)
    [one] y = MatMul (c, w_8_16) }}"""
SINGLE = f"""{HEAD} (float[2,6,16] y) {{
    [norm] c = LayerNormalization (x, p_8, b_8)
    [one] y = MatMul (c, w_8_16) }}"""
DENSE = """<ir_version: 8, opset_import: ["": 17]> g (float[5,8] x) => (float[5,3] y) {
    [first] a = Gemm <transB = 1> (x, w_16_8, b_16)
    r = LeakyRelu <alpha = 0.1> (a)
    [second] y = Gemm <transB = 1, alpha = 0.5> (r, w_3_16) }"""
ADDED = f"""{HEAD} (float[2,6,8] y) {{
    [norm] c = LayerNormalization (x, p_8, b_8)
    [one] a = MatMul (c, w_8_8)
    y = Add (a, c) }}"""
MIXED = f"""{HEAD} (float[2,6,8] y) {{
    [norm] c = LayerNormalization (x, p_8, b_8)
    t = Transpose <perm = [0,2,1]> (c)
    [one] y = MatMul (c, w_8_8)
    z = Identity (t) }}"""
FIRST_AXIS = f"""{HEAD} (float[2,6,8] y) {{
    [norm] c = LayerNormalization <axis = 1> (x, p_6_8)
    [one] y = MatMul (c, w_8_8) }}"""


@pytest.mark.parametrize(
    ("text", "makers"),
    [(NORM, ["norm", "one"]), (SCALED, ["scale"]), (DENSE, ["first"]), (ADDED, []), (MIXED, []), (FIRST_AXIS, [])],
    ids=["norm", "scaled", "dense", "added", "mixed", "first axis"],
)
def test_every_bit_is_kept_whatever_the_channels_are_scaled_by(text: str, makers: list[str]) -> None:
    model = wrap(net(text))
    feeds = {"x": np.random.default_rng(1).standard_normal((5, 8) if text is DENSE else (2, 6, 8)).astype(np.float32)}
    before = run(model.proto, feeds)
    links = find_links(model.main)
    assert [model.main.columns.nodes[link.maker].name for link in links] == makers
    sizes = sizes_by_channel(model, linked_tensors(links), [feeds], lambda done, total: None)
    assert all(
        len(sizes[link.tensor]) == {"norm": 8, "scale": 8}.get(name, 16)
        for link, name in zip(links, makers, strict=True)
    )
    uneven = {name: [value * 8.0 ** (i % 3) for i, value in enumerate(each)] for name, each in sizes.items()}
    assert len(equalize(model, links, uneven)) == len(links)
    assert all(np.array_equal(a, b) for a, b in zip(before, run(model.proto, feeds), strict=True))


def test_channels_of_one_size_are_what_comes_out() -> None:
    model = wrap(net(NORM))
    gamma = next(each for each in model.proto.graph.initializer if each.name.startswith("p_8"))
    values = onnx.numpy_helper.to_array(gamma).copy()
    values[3] *= 40
    gamma.CopyFrom(onnx.numpy_helper.from_array(values, gamma.name))
    model.touch()
    feeds = [{"x": np.random.default_rng(seed).standard_normal((2, 6, 8)).astype(np.float32)} for seed in range(4)]
    links = find_links(model.main)[:1]
    spread = []
    for _ in range(2):
        (found,) = sizes_by_channel(model, linked_tensors(links), feeds, lambda done, total: None).values()
        spread.append(max(found) / min(found))
        equalize(model, links, {links[0].tensor: found})
    assert spread[0] > 20 and spread[1] < spread[0] / 3


def test_an_outlying_channel_of_a_normalisation_costs_a_fraction_of_the_error(tmp_path: Path) -> None:
    """As in transformers: what one channel has forty times as large counts forty times less behind."""
    proto = net(SINGLE)
    for each in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(each).copy()
        if each.name.startswith(("p_8", "b_8", "w_8_16")):
            values[3] *= 1 / 40 if each.name.startswith("w") else 40
            each.CopyFrom(onnx.numpy_helper.from_array(values, each.name))
    onnx.save(proto, tmp_path / "net.onnx")
    data = str(saved_samples(tmp_path, [(2, 6, 8)]))
    asked = QuantizeRequest(
        tmp_path / "net.onnx", tmp_path / "out.onnx", data, target=RTX, tolerance=9.0, method="min-max"
    )
    report = quantize(asked)
    assert report.calibration.equalized and [edit.node for edit in report.edits] == ["norm"]
    # The same, with nothing to scale it back in.
    onnx.save(net_with_identity(proto), tmp_path / "net.onnx")
    held = quantize(asked)
    assert not held.calibration.equalized
    assert report.error["y"].rms < 0.4 * held.error["y"].rms


def net_with_identity(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the network whose normalisation is an output too, which holds its channels as they are."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    copy.graph.output.append(onnx.helper.make_tensor_value_info("c", 1, [2, 6, 8]))
    return copy


def test_a_vector_that_spreads_one_channel_to_several_is_not_scaled_with_it() -> None:
    """The product has a channel, the sum has sixteen: no factors of these fit the weight."""
    proto = net(f"""{HEAD} (float[2,6,8] y) {{
        [one] a = MatMul (x, w_8_1)
        ab = Add (a, b_16)
        [two] y = MatMul (ab, w_16_8) }}""")
    assert find_links(wrap(proto).main) == []
