"""Pieces that are alike are run once: what makes them alike, and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.structure import Alike, key_of, tells
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4] x, float[2,4] other) => (float[2,4] y, float[2,4] z)
{ a = Mul (x, x)  y = Softmax <axis = 1> (a)  b = Mul (other, other)  z = Softmax <axis = 1> (b) }"""
TENSORS = tuple(ReadTensor(number, name, "float32", (2, 4)) for number, name in enumerate(["x", "other", *"aybz"]))
X, OTHER, A, Y, B, Z = range(6)
PIECES = (
    Piece("y", ("x",), (0, 1), (0, 1), True, frozenset()),
    Piece("z", ("other",), (2, 3), (2, 3), True, frozenset()),
)


def layers(**second: Any) -> tuple[ReadLayer, ...]:
    """The layers of two equal pieces; `second` changes the last one's."""
    return (
        ReadLayer(0, "a", "ELEMENTWISE", (X, X), (A,), {"op": "PROD"}),
        ReadLayer(1, "y", "SOFTMAX", (A,), (Y,), {"axes": 2}),
        ReadLayer(2, "b", "ELEMENTWISE", (OTHER, OTHER), (B,), {"op": "PROD"}),
        dataclasses.replace(ReadLayer(3, "z", "SOFTMAX", (B,), (Z,), {"axes": 2}), **second),
    )


def keys(text: str = TEXT, network: ReadNetwork | None = None, shape: tuple[int, ...] = (2, 4)) -> list[Hashable]:
    model = OnnxModel(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)), Path("m.onnx"))
    network = network or ReadNetwork(TENSORS, layers(), (X, OTHER), (Y, Z))
    schemes = ([{"x": (2, 4)}], [{"other": shape}])
    return [key_of(network, model, piece, scheme) for piece, scheme in zip(PIECES, schemes, strict=True)]


def test_pieces_that_differ_in_names_alone_are_alike() -> None:
    first, second = keys()
    assert first == second and hash(first) == hash(second)


@pytest.mark.parametrize(
    "second",
    [
        {"values": {"axes": 1}},
        {"values": {"axes": 2.0}},
        {"values": {"axes": object()}},
        {"kind": "UNARY"},
        {"inputs": (OTHER,)},
        {"inputs": (None,)},
        {"inputs": (B, B)},
        {"values": {"axes": 2, "weights": np.ones(3)}},
    ],
    ids=lambda second: "-".join(second),
)
def test_another_layer_makes_them_unlike(second: dict[str, Any]) -> None:
    one, other = keys(network=ReadNetwork(TENSORS, layers(**second), (X, OTHER), (Y, Z)))
    assert one != other


@pytest.mark.parametrize("change", [{"dtype": "float16"}, {"shape": (2, 5)}])
def test_another_tensor_makes_them_unlike(change: dict[str, Any]) -> None:
    tensors = tuple(dataclasses.replace(each, **change) if each.name == "b" else each for each in TENSORS)
    one, other = keys(network=ReadNetwork(tensors, layers(), (X, OTHER), (Y, Z)))
    assert one != other


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("z = Softmax <axis = 1>", "z = Softmax <axis = 0>"),
        ("z = Softmax <axis = 1>", "z = LogSoftmax <axis = 1>"),
        ("Mul (other, other)", "Mul (other, x)"),
        ("float[2,4] other", "float16[2,4] other"),
    ],
)
def test_another_node_makes_them_unlike(old: str, new: str) -> None:
    one, other = keys(
        TEXT.replace(old, new).replace("float[2,4] z", "float16[2,4] z" if "16" in new else "float[2,4] z")
    )
    assert one != other


def test_other_sizes_make_them_unlike() -> None:
    one, other = keys(shape=(2, 5))
    assert one != other


@pytest.mark.parametrize(("elements", "alike"), [(64, False), (65, True)])
def test_large_constants_may_differ_and_small_ones_not(elements: int, alike: bool) -> None:
    def weights(value: float) -> dict[str, Any]:
        return {"axes": 2, "weights": np.full(elements, value, np.float32)}

    network = ReadNetwork(TENSORS, layers(values=weights(2)), (X, OTHER), (Y, Z))
    first = dataclasses.replace(network.layers[1], values=weights(1))
    network = dataclasses.replace(network, layers=(network.layers[0], first, *network.layers[2:]))
    one, other = keys(network=network)
    assert (one == other) == alike
    held = [f"{', '.join([value] * elements)}" for value in ("1", "2")]
    constants = ", ".join(f"float[{elements}] {name} = {{{v}}}" for name, v in zip("vw", held, strict=True))
    text = TEXT.replace("(float[2,4] y, float[2,4] z)", f"(float[2,4] y, float[2,4] z) <{constants}>")
    one, other = keys(text.replace("Mul (x, x)", "Mul (x, v)").replace("Mul (other, other)", "Mul (other, w)"))
    assert (one == other) == alike


def test_attributes_are_alike_that_are_equal() -> None:
    """And not one object."""
    first, second, third, last = layers()
    first, third = (
        dataclasses.replace(layer, values={"op": "PROD", "alpha": float("0.25"), "dims": tuple(map(int, "79"))})
        for layer in (first, third)
    )
    one, other = keys(network=ReadNetwork(TENSORS, (first, second, third, last), (X, OTHER), (Y, Z)))
    assert one == other


def test_numbers_of_loops_count_from_the_piece_on() -> None:
    first, *middle, last = layers(values={"axes": 2, "loop": 7})
    network = ReadNetwork(
        TENSORS,
        (first, dataclasses.replace(middle[0], values={"axes": 2, "loop": 3}), middle[1], last),
        (X, OTHER),
        (Y, Z),
    )
    one, other = keys(network=network)
    assert one == other


RANDOM = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
ZEROS, TWINS = np.zeros_like(RANDOM), np.concatenate([RANDOM[:, :16]] * 2, 1)


@pytest.mark.parametrize(
    ("weights", "firsts"),
    [
        ([RANDOM, RANDOM + 1], [0]),
        # What runs on zeros shows nothing of what others do with theirs.
        ([ZEROS, RANDOM], [0, 1]),
        ([RANDOM, ZEROS], [0, 1]),
        ([TWINS, RANDOM], [0, 1]),
        ([ZEROS, ZEROS], [0]),
        ([ZEROS, TWINS], [0, 1]),
        ([ZEROS, RANDOM, ZEROS, RANDOM + 1, TWINS], [0, 1, 4]),
    ],
    ids=str,
)
def test_a_piece_stands_for_others_where_its_weights_tell(weights: list[np.ndarray], firsts: list[int]) -> None:
    count = len(weights)
    ends = ", ".join(f"float[2,4] x{n}" for n in range(count)), ", ".join(f"float[2,32] y{n}" for n in range(count))
    body = " ".join(f"y{n} = MatMul (x{n}, w{n})" for n in range(count))
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({ends[0]}) => ({ends[1]}) {{ {body} }}'
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(numpy_helper.from_array(values, f"w{n}") for n, values in enumerate(weights))
    model = OnnxModel(proto, Path("m.onnx"))
    tensors = [ReadTensor(n, f"x{n}", "float32", (2, 4)) for n in range(count)]
    tensors += [ReadTensor(count + n, f"y{n}", "float32", (2, 32)) for n in range(count)]
    read = tuple(ReadLayer(n, f"y{n}", "MATRIX_MULTIPLY", (n,), (count + n,), {}) for n in range(count))
    alike = Alike[int](ReadNetwork(tuple(tensors), read, (), ()), model)
    pieces = [Piece(f"y{n}", (f"x{n}",), (n,), (n,), True, frozenset()) for n in range(count)]
    found = [alike.first(piece, [{f"x{n}": (2, 4)}], n) for n, piece in enumerate(pieces)]
    assert alike.firsts == firsts
    assert all(first in firsts and first <= n for n, first in enumerate(found))


KERNEL = np.random.default_rng(1).standard_normal((6, 5, 3, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (KERNEL, True),
        (KERNEL.astype(np.float16), True),
        ((KERNEL * 40).astype(np.int8), True),
        (KERNEL * 0, False),
        (np.abs(KERNEL) * 0 + 1, False),
        (KERNEL + KERNEL[..., ::-1], False),
        (KERNEL + KERNEL[..., ::-1, :], False),
        (KERNEL + KERNEL.swapaxes(2, 3), False),
        (KERNEL * (np.arange(6) != 2).reshape(6, 1, 1, 1), False),
        (KERNEL[:, [0, 1, 2, 3, 3]], False),
        (np.where(KERNEL > 3, np.nan, KERNEL) + np.float32(np.inf), False),
        # Sums beyond float32 show nothing, and nobody is warned of them.
        (KERNEL * np.float32(1e38), False),
        (KERNEL > 0, False),
        (KERNEL[..., :1, :1], True),
        # Slices whose sums are near each other, beside far larger ones, are not equal.
        (np.float32([[1, 2, 3], [1, 2, 4], [1e6, 2e6, 5e6]]), True),
        # Slices that add up to nothing are not zero.
        (np.float32([[1, -1, 3], [2, -5, 3]]), True),
        (np.float32([[1, 2], [-1, 5], [3, 7]]), True),
        (np.float32(2), True),
    ],
)
def test_what_shows_how_its_elements_are_used(values: np.ndarray, answer: bool) -> None:
    assert tells(np.asarray(values)) is answer


SQUARE = np.random.default_rng(1).standard_normal((5, 3, 5)).astype(np.float32)


@pytest.mark.parametrize("cell", [(0, 0, 1), (4, 2, 3)], ids=["first", "last"])
def test_an_array_that_is_its_own_mirror_but_for_one_element_tells(cell: tuple[int, ...]) -> None:
    mirrored = SQUARE + SQUARE.swapaxes(0, 2)
    assert not tells(mirrored) and tells(SQUARE)
    mirrored[cell] += 1
    assert tells(mirrored)
