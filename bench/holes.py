"""Changes made on purpose, each of which a proof that only compares a random run of the whole network overlooks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from mutant_networks import ROOT, Network, all_networks
from mutating import typed
from onnx import numpy_helper

from trtconv.core.frozen import frozen
from trtconv.passes import run_passes
from trtconv.runtimes.tensorrt.readback.read import weights_of

DATA = ROOT / "tests" / "data" / "proof"

Edit = Callable[[Any, Any, list[Any]], None]
"""Changes a network of a TensorRT module; arrays that must live as long are put into the list."""


@frozen
class Hole:
    """A change on purpose.

    Args:
        name: Its name.
        what: What is changed, in words.
        network: The network.
        edit: Changes what was parsed.
        rogue: Factor by which a weight of the model is multiplied between passes and parser, instead.
        dims: Bounds, as `NAME=MIN:OPT:MAX`, where it takes any.
    """

    name: str
    what: str
    network: Network
    edit: Edit = lambda trt, network, kept: None
    rogue: float = 1.0
    dims: Mapping[str, tuple[int, int, int]] = dataclasses.field(default_factory=dict)


def _layer(trt: Any, network: Any, kind: str, name: str) -> Any:
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    return next(each for each in layers if each.name == name and typed(trt, each) == kind)


def _weights(kind: str, name: str, attribute: str, change: Callable[[Any], Any]) -> Edit:
    def edit(trt: Any, network: Any, kept: list[Any]) -> None:
        layer = _layer(trt, network, kind, name)
        old = weights_of(getattr(layer, attribute))
        kept.append(np.ascontiguousarray(change(old.copy()), old.dtype))
        setattr(layer, attribute, kept[-1])

    return edit


def _times(kind: str, name: str, factor: float) -> Edit:
    return _weights(kind, name, "weights" if kind == "CONSTANT" else "kernel", lambda values: values * factor)


def _rows(name: str, columns: int, rows: slice | list[int], factor: float) -> Edit:
    def change(values: Any) -> Any:
        table = values.reshape(-1, columns)
        table[rows] *= factor
        return table.reshape(values.shape)

    return _weights("CONSTANT", name, "weights", change)


def _set(kind: str, name: str, attribute: str, value: Callable[[Any], Any]) -> Edit:
    return lambda trt, network, kept: setattr(_layer(trt, network, kind, name), attribute, value(trt))


def _exchanged(kind: str, name: str, first: int, second: int) -> Edit:
    def edit(trt: Any, network: Any, kept: list[Any]) -> None:
        layer = _layer(trt, network, kind, name)
        tensors = layer.get_input(first), layer.get_input(second)
        layer.set_input(first, tensors[1])
        layer.set_input(second, tensors[0])

    return edit


def _seven_channels(values: Any) -> Any:
    rows = values.reshape(8, -1)
    large = int(np.abs(rows).max(1).argmax())
    rows[[each for each in range(8) if each != large]] *= np.float32(1.3)
    return rows.reshape(values.shape)


def _branches(operator: str) -> Edit:
    """Changes the operator of the elementwise layer that has this one into another."""

    def edit(trt: Any, network: Any, kept: list[Any]) -> None:
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            if typed(trt, layer) == "ELEMENTWISE" and layer.op == getattr(trt.ElementWiseOperation, operator):
                layer.op = trt.ElementWiseOperation.MAX
                return

    return edit


def _false_assertion(trt: Any, network: Any, kept: list[Any]) -> None:
    kept.append(np.zeros(1, np.bool_))
    condition = network.add_constant((1,), trt.Weights(kept[-1]))
    network.add_assertion(condition.get_output(0), "it never holds")


def _read(path: Path) -> onnx.ModelProto:
    """Reads a model; the partial that calls it is what a network is made by."""
    return onnx.load_model(path)


def holes() -> tuple[Hole, ...]:
    """Returns all of them."""
    data = {
        path.stem.partition("_")[0] if path.stem != "h6_half_weight" else "h6_half": Network(
            path.stem, functools.partial(_read, path), ({},)
        )
        for path in sorted(DATA.glob("*.onnx"))
    }
    data["h6_qdq"] = Network("h6_qdq", functools.partial(_read, DATA / "h6_qdq.onnx"), ({},))
    given = {each.name: each for each in all_networks()}
    conv, constant = (functools.partial(_times, kind) for kind in ("CONVOLUTION", "CONSTANT"))
    epsilon = functools.partial(_set, "NORMALIZATION", "LayerNormalization_2", "epsilon")
    mean = _set("REDUCE", "ReduceMean_2", "axes", lambda trt: 13)
    turned = _set("MATRIX_MULTIPLY", "MatMul_16", "op0", lambda trt: trt.MatrixOperation.TRANSPOSE)
    negated = _set("UNARY", "Abs_6", "op", lambda trt: trt.UnaryOperation.NEG)
    several = {"n": (1, 4, 8)}
    seven = _weights("CONVOLUTION", "Conv_1", "kernel", _seven_channels)
    rows: list[tuple[str, str, Network, Edit]] = [
        ("H1", "the kernel of the scores x 1.1, beside boxes in pixels", data["h1"], conv("Conv_8", 1.1)),
        ("H2", "seven channels beside a large one x 1.3", data["h2"], seven),
        ("H3", "a branch: Mul to Max", given["branches"], _branches("PROD")),
        ("H3b", "the other branch: Add to Max", given["branches"], _branches("SUM")),
        ("H4", "rows 4 to 99 of a table x -5", data["h5d"], _rows("c5", 16, slice(4, 100), -5)),
        ("H5", "a mask's -10000 to 0", data["h5"], constant("c9", 0)),
        ("H5b", "softmax over queries", data["h5"], _set("SOFTMAX", "Softmax_15", "axes", lambda trt: 2)),
        ("H5c", "attention transposed", data["h5"], turned),
        ("H5d", "a mask's -10000 to 0, with places", data["h5d"], constant("c14", 0)),
        ("H5e", "all rows but one of a table x -3", data["h5d"], _rows("c5", 16, [0, *range(2, 100)], -3)),
        ("H5f", "a row of the types x -3", data["h5d"], _rows("c6", 16, [0], -3)),
        ("H6", "a kernel x 1.03 beside a quantiser", data["h6_qdq"], conv("Conv_3", 1.03)),
        ("H6d", "a kernel x 1.01 beside a float16 number", data["h6_half"], conv("Conv_3", 1.01)),
        ("H7", "Abs to Neg, under a mask of -inf", data["h7"], negated),
        ("H7b", "a mask's branches exchanged", data["h7"], _exchanged("SELECT", "Where_3", 1, 2)),
        ("H8", "epsilon 1e-12 to 1e-6", data["h8"], epsilon(lambda trt: 1e-6)),
        ("H8b", "epsilon 1e-12 to 1e-4", data["h8"], epsilon(lambda trt: 1e-4)),
        ("H9b", "a mean over the batch too, without bounds", data["h9"], mean),
        ("H10", "a type", data["h10"], _set("CAST", "Cast_2", "to_type", lambda trt: trt.float32)),
        ("H13", "Relu6 without its limit", data["h13"], _set("ACTIVATION", "Clip_2", "beta", lambda trt: 3.4e38)),
        ("H14", "a kernel before a saturated softmax x 1.2", data["h14"], conv("Conv_1", 1.2)),
        ("H15", "a kernel behind NaN x 1.2", data["h15"], conv("Conv_5", 1.2)),
        ("H16", "a kernel where all is NaN x -7", data["h16"], conv("Conv_3", -7)),
        ("H17", "a kernel before an offset of 1000 x 1.9", data["h17"], conv("Conv_1", 1.9)),
        ("H18", "a kernel whose result is rarely seen x 1.2", data["h18"], conv("Conv_3", 1.2)),
    ]
    int8 = given["quantized_autoencoder"]
    rows += [(f"int8 float kernel {n}", "its float kernel x 1.2", int8, _float_kernel(n)) for n in range(3)]
    found = [Hole(*row) for row in rows]
    found.append(Hole("H9", "a mean over the batch too", data["h9"], mean, dims=several))
    found.append(Hole("H11", "an assertion that never holds", data["h9"], _false_assertion, dims=several))
    for name in ("super_resolution", "unet", "vocoder", "gan_generator", "yolo", "bert"):
        found.append(Hole(f"S {name}", "a weight x 1.5 between passes and parser", given[name], rogue=1.5))
        found.append(Hole(f"S2 {name}", "a weight x 1.015 between passes and parser", given[name], rogue=1.015))
    return tuple(found)


def _float_kernel(number: int) -> Edit:
    """Multiplies the kernel of the convolution or deconvolution of that number, or what is quantised to be one."""

    def edit(trt: Any, network: Any, kept: list[Any]) -> None:
        seen = -1
        for index in range(network.num_layers):
            layer = network.get_layer(index)
            kind = typed(trt, layer)
            name = {"CONVOLUTION": "kernel", "DECONVOLUTION": "kernel", "CONSTANT": "weights"}.get(kind)
            values = None if name is None else weights_of(getattr(layer, name))
            if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or values.size < 500:
                continue
            seen += 1
            if seen == number:
                kept.append(values * np.float32(1.2))
                setattr(layer, str(name), kept[-1])
                return
        raise LookupError("there is no such kernel")

    return edit


@contextlib.contextmanager
def rogue(factor: float) -> Iterator[None]:
    """Has the passes multiply a weight, and not say so."""

    def passes(model: Any, *arguments: Any) -> Any:
        done = run_passes(model, *arguments)
        floats = [each for each in model.proto.graph.initializer if each.data_type == onnx.TensorProto.FLOAT]
        largest = max(floats, key=lambda tensor: int(np.prod(tensor.dims)))
        largest.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(largest) * np.float32(factor), largest.name))
        return done

    with contextlib.ExitStack() as stack:
        for module in list(sys.modules.values()):
            if factor != 1 and getattr(module, "run_passes", None) is run_passes and module.__name__ != __name__:
                stack.enter_context(mock.patch.object(module, "run_passes", passes))
        yield
