"""Compares the deconvolutions that TensorRT parsed with what their ONNX nodes mean.

The parser reads some ConvTranspose nodes wrongly without a message (see TC102, TC103, TC107). Whatever it reads, the
network that it makes can be looked at; a difference found here is a miscompilation that did not happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trtconv.core import codes
from trtconv.core.findings import Finding, Location
from trtconv.graph import deconv
from trtconv.graph.deconv import Crop, Geometry
from trtconv.graph.model import OnnxModel
from trtconv.graph.scope import Scope
from trtconv.graph.views import Deconv, deconvs
from trtconv.runtimes.tensorrt import DeconvLayer, ParsedNetwork

_FIX = "Build without --no-rewrite; if the passes were on, please report this model."


def audit(model: OnnxModel, network: ParsedNetwork) -> tuple[Finding, ...]:
    """Compares every deconvolution of a parsed network with its ONNX node.

    Args:
        model: The model as it was given to the parser, its ConvTranspose nodes named apart.
        network: What the parser made of it.

    Returns:
        One TC402 finding a difference; empty where the network means what the model says.
    """
    layers: dict[str, list[DeconvLayer]] = {}
    for layer in network.deconvolutions:
        layers.setdefault(layer.onnx_node, []).append(layer)
    nodes = deconvs(model)
    differences = [
        (node.location, difference) for node in nodes for difference in _compare(node, layers.get(node.node.name, ()))
    ]
    names = {node.node.name for node in nodes}
    differences += [
        (Location("/".join(layer.inside), None, name, "ConvTranspose"), "it is in no graph of the model: not audited")
        for name, group in layers.items()
        if name not in names
        for layer in group
    ]
    return tuple(codes.NETWORK_DIFFERS.finding(difference, place=place, fix=_FIX) for place, difference in differences)


def _compare(node: Deconv, layers: Sequence[DeconvLayer]) -> Iterator[str]:
    if isinstance(node.geometry, str):
        yield f"the node cannot be audited: {node.geometry}"
    elif not layers and _is_in_branch(node.scope):
        return  # Of an If whose condition is constant, the parser reads one branch only.
    elif len(layers) != 1:
        yield f"TensorRT made {len(layers)} deconvolutions of this node, not one"
    else:
        yield from _differences(node, node.geometry, layers[0])


def _is_in_branch(scope: Scope | None) -> bool:
    if scope is None:
        return False
    return scope.path.endswith(("/then_branch", "/else_branch")) or _is_in_branch(scope.parent)


def _differences(node: Deconv, geometry: Geometry, layer: DeconvLayer) -> Iterator[str]:
    """Yields what differs; `lift` adds the axis that TensorRT gives a 1-D deconvolution."""
    axes = len(layer.kernel)
    lift = axes - geometry.rank
    sizes = _spatial(layer.input_shape, geometry.rank)
    ones = (1,) * lift
    for what, expected, got in (
        ("kernel", geometry.kernel + ones, layer.kernel),
        ("stride", geometry.strides + ones, layer.stride),
        ("dilation", geometry.dilations + ones, layer.dilation),
        ("group", geometry.group, layer.groups),
    ):
        if expected != got:
            yield f"{what} is {got} in TensorRT's network, {expected} in the model"
    channels = node.out_channels
    if channels is not None and channels != layer.out_channels:
        yield f"output channels are {layer.out_channels} in TensorRT's network, {channels} in the model"
    window = deconv.crops(geometry, sizes)
    if window is None:
        yield f"output_shape {list(geometry.output_shape or ())} on dynamic sizes cannot be audited"
        return
    yield from _crop_differences(node, geometry, window + (Crop(0, 0),) * lift, layer)
    if sizes is not None:
        yield from _size_differences(geometry, sizes, window, layer)


def _crop_differences(node: Deconv, geometry: Geometry, window: tuple[Crop, ...], layer: DeconvLayer) -> Iterator[str]:
    got = _crops_of(layer)
    # The parser's own way for output_padding beyond the end pad: crop nothing there, fill zeros, add the bias.
    filled = any(crop.end < 0 for crop in window)
    expected = tuple(Crop(crop.begin, max(crop.end, 0)) for crop in window)
    if got != expected:
        yield (
            f"TensorRT crops {[c.begin for c in got]} at the low and {[c.end for c in got]} at the high ends,"
            f" the model means {[c.begin for c in expected]} and {[c.end for c in expected]}"
        )
    elif filled and not _fill_is_right(node, geometry, layer):
        yield f"TensorRT ignores output_padding {list(geometry.output_padding)} or leaves its rows without bias"
    elif not filled and layer.has_bias != bool(node.bias):
        yield "TensorRT's deconvolution has " + ("a bias that the model lacks" if layer.has_bias else "lost its bias")


def _fill_is_right(node: Deconv, geometry: Geometry, layer: DeconvLayer) -> bool:
    """Whether the parser's zero fill stands behind the layer: it is then neither biased nor the node's result."""
    is_result = layer.output == node.node.output[0]
    return geometry.auto_pad == "NOTSET" and not is_result and not layer.has_bias


def _crops_of(layer: DeconvLayer) -> tuple[Crop, ...]:
    """Returns what a layer crops; its SAME modes crop to in * stride, knowing nothing of output_padding."""
    if not layer.padding_mode.startswith("SAME"):
        return tuple(Crop(b, e) for b, e in zip(layer.pre_padding, layer.post_padding, strict=True))
    result = []
    for kernel, stride, dilation in zip(layer.kernel, layer.stride, layer.dilation, strict=True):
        total = max(0, (kernel - 1) * dilation + 1 - stride)
        begin = deconv.split_begin(total, layer.padding_mode)
        result.append(Crop(begin, total - begin))
    return tuple(result)


def _size_differences(
    geometry: Geometry, sizes: Sequence[int], window: Sequence[Crop], layer: DeconvLayer
) -> Iterator[str]:
    got = _spatial(layer.output_shape, geometry.rank)
    # Rows that the parser fills in come after the layer.
    expected = tuple(
        full - crop.begin - max(crop.end, 0) for full, crop in zip(geometry.full(sizes), window, strict=True)
    )
    if got is not None and got != expected:
        yield f"TensorRT's output is {list(got)} for an input of {list(sizes)}, the model's {list(expected)}"


def _spatial(shape: Sequence[int], rank: int) -> tuple[int, ...] | None:
    sizes = tuple(shape[2 : 2 + rank])
    return None if len(sizes) < rank or min(sizes, default=0) < 0 else sizes
