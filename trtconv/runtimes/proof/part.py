"""The layers of a piece as a network of their own, at other sizes than those that it was parsed for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.feeds import Shape
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork

_LENGTHS = ("reshape_dims", "shape")
"""Attributes that hold sizes."""


def part_of(
    network: ReadNetwork, piece: Piece, numbers: Mapping[str, int], fed: Mapping[str, Shape], own: Mapping[str, Any]
) -> ReadNetwork:
    """Returns the layers of a piece.

    Args:
        network: The network.
        piece: The piece.
        numbers: Of its seams.
        fed: The shapes that its sources are going to have.
        own: Those that they have in the whole network.

    Returns:
        A network. Where the sources have other shapes than TensorRT knows, what it inferred from those does not count;
        sizes that the parser wrote into layers are divided by what the sources' sizes are divided by.
    """
    given = {numbers[name]: fed[name] for name in piece.sources if name in numbers}
    tensors = network.tensors
    layers: Sequence[ReadLayer] = [network.layers[index] for index in piece.layers]
    if not all(_fits(tensors[number].shape, shape) for number, shape in given.items()):
        tensors = tuple(
            dataclasses.replace(each, shape=given.get(each.index, each.shape and (-1,) * len(each.shape)))
            for each in tensors
        )
        factor, large = _divisor(fed, own)
        if factor > 1:
            layers = [_divided(layer, factor, large) for layer in layers]
    return ReadNetwork(tensors, tuple(layers), tuple(given), (numbers[piece.target],))


def _fits(known: Sequence[int] | None, shape: Shape) -> bool:
    if known is None:
        return True
    return len(known) == len(shape) and all(a in (-1, b) for a, b in zip(known, shape, strict=True))


def _divisor(fed: Mapping[str, Shape], own: Mapping[str, Any]) -> tuple[int, int]:
    """Returns by how much the sizes of the sources were divided, 1 where not all by the same; and the smallest of them
    as it was."""
    changed = {
        (real, size)
        for name, shape in fed.items()
        for real, size in zip(own.get(name) or shape, shape, strict=False)
        if real is not None and real != size and size
    }
    factors = {real / size for real, size in changed}
    factor = factors.pop() if len(factors) == 1 else 1.0
    return (int(factor), min(real for real, _ in changed)) if factor > 1 and factor == int(factor) else (1, 0)


def _divided(layer: ReadLayer, factor: int, large: int) -> ReadLayer:
    values = {
        name: tuple(n // factor if n >= large and n % factor == 0 else n for n in value)
        for name in _LENGTHS
        if isinstance(value := layer.values.get(name), tuple) and all(isinstance(n, int) for n in value)
    }
    return dataclasses.replace(layer, values={**layer.values, **values}) if values else layer
