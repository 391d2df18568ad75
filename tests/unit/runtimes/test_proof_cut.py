"""Where a network and its model are cut: at tensors that both make from the values of the inputs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest

from trtconv.graph.model import OnnxModel
from trtconv.runtimes.proof.cut import Piece, Seams
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor


def model_of(body: str) -> OnnxModel:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[n,4] x, float[n,4] z) => (float[n,m] y) {{ {body} }}'
    return OnnxModel(onnx.parser.parse_model(text), Path("m.onnx"))


def seams(body: str, *layers: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> Seams:
    """Of a model, and a network of layers: what each reads, what it makes, and its values."""
    names = list(
        dict.fromkeys(["x", "z", *(n for layer in layers for part in layer[:2] for n in part.split() if n != "-")])
    )
    number = {name: index for index, name in enumerate(names)}
    read = tuple(
        ReadLayer(
            index,
            layer[1],
            values.get("kind", "ANY"),
            tuple(None if name == "-" else number[name] for name in layer[0].split()),
            tuple(number[name] for name in layer[1].split()),
            values,
        )
        for index, (*layer, values) in enumerate((*layer, {})[:3] for layer in layers)
    )
    # Of names that end with a sign of equality the network has two.
    tensors = tuple(ReadTensor(index, name.rstrip("="), "float32", None) for name, index in number.items())
    return Seams(ReadNetwork(tensors, read, (0, 1), (number["y"],)), model_of(body))


CHAIN = "a = Neg (x)  b = Abs (a)  y = Add (b, z)"
CASES: dict[str, tuple[Seams, list[tuple[str, str, tuple[int, ...], tuple[int, ...], bool]]]] = {
    "node by node": (
        seams(CHAIN, ("x", "a"), ("a", "b"), ("b z", "y")),
        [("a", "x", (0,), (0,), True), ("b", "a", (1,), (1,), True), ("y", "b z", (2,), (2,), True)],
    ),
    "what neither of both reads": (
        seams("a = Neg (x)  b = Abs (x)  y = Add (a, z)", ("x", "a"), ("x", "b"), ("a z", "y")),
        [("a", "x", (0,), (0,), True), ("y", "a z", (2,), (2,), True)],
    ),
    "what one of both reads": (
        seams("a = Neg (x)  b = Abs (x)  y = Add (b, z)", ("x", "a"), ("x", "b"), ("a z", "y")),
        [("a", "x", (0,), (0,), True), ("b", "x", (1,), (1,), True), ("y", "a x z", (2,), (1, 2), False)],
    ),
    "nodes before what they read": (
        seams("y = Add (b, z)  b = Abs (a)  a = Neg (x)", ("x", "a"), ("a", "b"), ("b z", "y")),
        [("a", "x", (0,), (2,), True), ("b", "a", (1,), (1,), True), ("y", "b z", (2,), (0,), True)],
    ),
    "what the network has not is no seam": (
        seams(CHAIN, ("x", "p"), ("p", "b"), ("b - z", "y")),
        [("b", "x", (0, 1), (0, 1), True), ("y", "b z", (2,), (2,), True)],
    ),
    "branches that part and meet": (
        seams(
            "a = Neg (x)  b = Abs (a)  c = Exp (a)  d = Relu (a)  y = Sum (b, c, d)",
            *(("x", "p"), ("p", "q"), ("p", "r"), ("p", "s"), ("q r s", "y")),
        ),
        [("y", "x", (0, 1, 2, 3, 4), (0, 1, 2, 3, 4), True)],
    ),
    "nor what it has twice": (
        seams(CHAIN, ("x", "a"), ("a", "a="), ("a=", "b"), ("b z", "y")),
        [("b", "x", (0, 1, 2), (0, 1), True), ("y", "b z", (3,), (2,), True)],
    ),
    "nor what is in a loop": (
        seams(
            CHAIN,
            ("x p", "a", {"kind": "RECURRENCE", "loop": 1}),
            ("a", "p"),
            ("a -", "b", {"kind": "LOOP_OUTPUT", "loop": 1}),
            ("b z", "y"),
        ),
        [("b", "x", (0, 1, 2), (0, 1), True), ("y", "b z", (3,), (2,), True)],
    ),
    "layers may stand in any order": (
        seams(CHAIN, ("b z", "y"), ("a", "b"), ("x", "a")),
        [("y", "b z", (0,), (2,), True), ("b", "a", (1,), (1,), True), ("a", "x", (2,), (0,), True)],
    ),
    "a network that reads something else": (
        seams(CHAIN, ("x", "a"), ("x", "b"), ("b z", "y")),
        [("a", "x", (0,), (0,), True), ("b", "x", (1,), (0, 1), True), ("y", "b z", (2,), (2,), True)],
    ),
    "a model that reads something else": (
        seams("a = Neg (x)  y = Add (a, z)", ("x", "a"), ("a", "y")),
        [("a", "x", (0,), (0,), True), ("y", "a z", (1,), (1,), False)],
    ),
    "what follows from sizes is computed where it is needed": (
        seams("s = Shape (x)  y = Reshape (z, s)", ("x", "s"), ("z s", "y")),
        [("y", "x z", (0, 1), (0, 1), True)],
    ),
    "both branches are part of a conditional": (
        seams(
            "c = Neg (z)  y = Add (c, x)",
            ("z", "c"),
            ("x", "p", {"conditional": 3}),
            ("x", "q", {"conditional": 4}),
            ("p c", "y", {"conditional": 3}),
            ("x", "o", {"conditional": 3}),
        ),
        [("c", "z", (0,), (0,), True), ("y", "c x", (1, 3, 4), (1,), True)],
    ),
}


@pytest.mark.parametrize(("cut", "expected"), CASES.values(), ids=CASES)
def test_pieces(cut: Seams, expected: list[tuple[str, str, tuple[int, ...], tuple[int, ...], bool]]) -> None:
    assert list(cut.pieces()) == [
        Piece(target, tuple(sources.split()), layers, nodes, even) for target, sources, layers, nodes, even in expected
    ]


def test_a_piece_is_widened_by_those_before_it_as_far_as_the_inputs() -> None:
    cut = CASES["node by node"][0]
    piece = cut.cut("y")
    wide = cut.wider(piece)
    assert wide == Piece("y", ("a", "z"), (1, 2), (1, 2), True, frozenset({"b"}))
    wider = cut.wider(wide)
    assert wider == Piece("y", ("x", "z"), (0, 1, 2), (0, 1, 2), True, frozenset({"a", "b"}))
    assert cut.wider(wider) is None


@pytest.mark.parametrize(
    ("maker", "restricted"), [("Neg (x)", True), ("Relu (x)", True), ("Add (x, z)", False), ("MatMul (x, z)", False)]
)
def test_what_starts_from_results_that_have_not_all_values_is_restricted(maker: str, restricted: bool) -> None:
    cut = seams(f"a = {maker}  y = Abs (a)", ("x z", "a"), ("a", "y"))
    assert cut.is_restricted(cut.cut("y")) is restricted
    assert not cut.is_restricted(cut.cut("a"))
    assert not cut.is_restricted(dataclasses.replace(cut.cut("y"), sources=("x",)))
