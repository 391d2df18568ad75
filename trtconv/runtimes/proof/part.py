"""The layers of a piece as a network of their own, at other sizes than those that it was parsed for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trtconv.runtimes.proof.cut import Piece
from trtconv.runtimes.proof.feeds import Shape
from trtconv.runtimes.tensorrt.readback.records import ReadLayer, ReadNetwork, ReadTensor

_LENGTHS = ("reshape_dims",)
"""Attributes that hold sizes as they follow from those of the inputs. How much a slice takes is no such: that of the
model ends where its input does, and one that takes more than it should would be made smaller with it."""


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
        sizes that the parser wrote into layers become smaller as those of the sources do.
    """
    shapes = {numbers[name]: fed[name] for name in piece.sources if name in numbers}
    tensors = network.tensors
    layers: Sequence[ReadLayer] = [network.layers[index] for index in piece.layers]
    if not all(_fits(tensors[number].shape, shape) for number, shape in shapes.items()):
        tensors = _open_shapes(tensors, layers, shapes)
        smaller = _smaller(fed, own)
        layers = layers if smaller is None else list(_all_smaller(layers, set(shapes), smaller))
    return ReadNetwork(tensors, tuple(layers), tuple(shapes), (numbers[piece.target],))


def _open_shapes(
    tensors: Sequence[ReadTensor], layers: Sequence[ReadLayer], shapes: Mapping[int, Shape]
) -> tuple[ReadTensor, ...]:
    """Returns tensors of which those of a piece have the shapes that they are given, or none but a rank."""
    opened = list(tensors)
    # Not of all others: there are as many pieces as tensors.
    for number in {n for layer in layers for n in (*layer.inputs, *layer.outputs) if n is not None} | shapes.keys():
        shape = tensors[number].shape
        opened[number] = dataclasses.replace(tensors[number], shape=shapes.get(number, shape and (-1,) * len(shape)))
    return tuple(opened)


def _fits(partial_shape: Sequence[int] | None, shape: Shape) -> bool:
    if partial_shape is None:
        return True
    return len(partial_shape) == len(shape) and all(a in (-1, b) for a, b in zip(partial_shape, shape, strict=True))


def _smaller(fed: Mapping[str, Shape], own: Mapping[str, Any]) -> Callable[[int], int] | None:
    """Returns what becomes of sizes in layers: they are divided as all sizes of the sources are, or become what they
    became there; None where that is not one and the same everywhere."""
    pairs = {
        (real, size)
        for name, shape in fed.items()
        for real, size in zip(own.get(name) or shape, shape, strict=False)
        if real is not None and size
    }
    changed = {pair for pair in pairs if pair[0] != pair[1]}
    factors = {real / size for real, size in changed}
    if len(factors) == 1 and (factor := factors.pop()) > 1 and factor == int(factor):
        large = min(real for real, _ in changed)
        return lambda n: n // int(factor) if n >= large and n % factor == 0 else n
    sizes = {real: size for real, size in pairs if real > 1}
    distinct = len(sizes) == sum(real > 1 for real, _ in pairs) == len(set(sizes.values()))
    return (lambda n: sizes.get(n, n)) if changed and distinct else None


def _all_smaller(layers: Sequence[ReadLayer], fed: set[int], smaller: Callable[[int], int]) -> Iterator[ReadLayer]:
    """Yields the layers of a piece, with smaller sizes in those that read what is fed: constants keep theirs."""
    dependents = set(fed)
    for layer in layers:
        reads = dependents.intersection(layer.inputs)
        dependents.update(layer.outputs if reads else ())
        yield _with_sizes(layer, smaller) if reads else layer


def _with_sizes(layer: ReadLayer, smaller: Callable[[int], int]) -> ReadLayer:
    values = {
        name: tuple(map(smaller, value))
        for name in _LENGTHS
        if isinstance(value := layer.values.get(name), tuple) and all(isinstance(n, int) for n in value)
    }
    return dataclasses.replace(layer, values={**layer.values, **values}) if values else layer
