"""Random inputs at which the two texts of a rule of rewriting are compared."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from onnx import numpy_helper

from trtconv.core.rewrite_rules import InputCondition
from trtconv.passes.patterns.match import Instance
from trtconv.passes.patterns.text import TYPE, Texts
from trtconv.runtimes.onnxruntime import dtype_of

_SIZES = (1, 2, 3, 4, 6)
_ONES = 0.25
"""Share of axes that are broadcast."""
_WRITTEN, _MOST_WRITTEN = 0.3, 256
"""Share of the elements that are numbers of the texts, and how many of these are looked at."""
_LARGE = {"float16": 1e3}
_USUAL_LARGE = 1e4

Values = Callable[[Generator, tuple[int, ...], float], NDArray[Any]]


def _wide(random: Generator, shape: tuple[int, ...], large: float) -> NDArray[Any]:
    values: NDArray[Any] = np.exp(random.uniform(-np.log(large), np.log(large), shape)) * random.choice((-1, 1), shape)
    return values


KINDS: tuple[Values, ...] = (
    lambda random, shape, large: random.standard_normal(shape),
    lambda random, shape, large: random.integers(-3, 4, shape),
    lambda random, shape, large: np.zeros(shape),
    lambda random, shape, large: -random.uniform(0.1, 5, shape),
    lambda random, shape, large: random.uniform(-large, large, shape),
    lambda random, shape, large: random.standard_normal(shape) * 1e-3,
    _wide,
    lambda random, shape, large: random.uniform(0.1, 5, shape),
    lambda random, shape, large: random.integers(0, 2, shape),
)
"""Usual values, small whole ones, zeros, negative ones, large ones, small ones, all of these, positive ones, bits."""


def draw_attributes(texts: Texts, random: Generator, number: int) -> dict[str, float]:
    """Returns values of the attributes that may be any number in a range; its ends and zero come first."""
    choices = {name for choice in texts.choices() for name in choice}
    attributes = {}
    for name in texts.kinds:
        if name == TYPE or name in choices:
            continue
        least, most = texts.range(name)
        ends = [value for value in (0.5, 0.0, least, most, 1.0, -1.0, 2.0) if least <= value <= most]
        value = ends[number] if number < len(ends) else random.uniform(least, most)
        attributes[name] = float(np.float32(value))
    return attributes


def draw_shapes(texts: Texts, instance: Instance, random: Generator, number: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each input: sizes of one name are the same, free ones broadcast to each other."""
    base = [int(random.choice(_SIZES)) for _ in range(max(instance.ranks, default=0))]
    if number == 1:
        base = [3] * len(base)
    names: dict[str, int] = {}
    shapes = {}
    for name, rank in zip(texts.inputs, instance.ranks, strict=True):
        condition = texts.rule.inputs.get(name)
        if condition is not None and condition.shape:
            shapes[name] = tuple(_size(dim, names, random) for dim in condition.shape)
        else:
            sizes = base[len(base) - rank :]
            shapes[name] = tuple(1 if number > 1 and random.random() < _ONES else size for size in sizes)
    return shapes


def _size(size: str | int, names: dict[str, int], random: Generator) -> int:
    return size if isinstance(size, int) else names.setdefault(size, int(random.choice(_SIZES)))


def draw_values(
    texts: Texts,
    instance: Instance,
    attributes: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    random: Generator,
    number: int,
) -> dict[str, NDArray[Any]]:
    """Returns the inputs: of one kind of values at first, then of several, with numbers of texts and attributes."""
    inputs = {}
    for name, kind in zip(texts.inputs, instance.types, strict=True):
        values, large = KINDS[number if number < len(KINDS) else int(random.integers(len(KINDS)))], _large(kind)
        array = np.asarray(values(random, shapes[name], large), np.float64)
        if number >= len(KINDS) and (numbers := _numbers(texts, attributes, large)):
            # At first these alone: a text may do something else where all of them are met.
            share = 1.0 if number == len(KINDS) else _WRITTEN
            array = np.where(random.random(array.shape) < share, random.choice(numbers, array.shape), array)
        inputs[name] = _of_type(_within(array, texts.rule.inputs.get(name)), kind)
    return inputs


def _large(kind: str) -> float:
    return _LARGE.get(kind, _USUAL_LARGE)


def _numbers(texts: Texts, attributes: Mapping[str, Any], large: float) -> list[float]:
    """Returns the numbers of texts and attributes, with both signs: what they compare with, or take away."""
    bound = np.hstack([0.0, *(value for value in attributes.values() if not isinstance(value, (str, bytes)))])
    values = {float(sign * value) for value in bound for sign in (1, -1) if abs(value) <= large}
    nodes = [*texts.pattern.node, *texts.replacement.node]
    for attribute in (attribute for node in nodes for attribute in node.attribute):
        numbers = [attribute.f, attribute.i, *attribute.floats, *attribute.ints]
        # A stranger's tensor may have other values than its sizes say; the text does not run then.
        with contextlib.suppress(ValueError, TypeError, NotImplementedError):
            numbers += numpy_helper.to_array(attribute.t).ravel()[:_MOST_WRITTEN].astype(np.float64).tolist()
        values |= {float(sign * number) for number in numbers for sign in (1, -1) if abs(number) <= large}
    return sorted(values)[:_MOST_WRITTEN]


def _within(values: NDArray[Any], condition: InputCondition | None) -> NDArray[Any]:
    if condition is None or (condition.least is None and condition.most is None):
        return values
    within: NDArray[Any] = np.clip(values, condition.least, condition.most)
    return within


def _of_type(values: NDArray[Any], kind: str) -> NDArray[Any]:
    dtype = dtype_of(kind)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.clip(np.rint(values), info.min, info.max)
    typed: NDArray[Any] = np.asarray(values > 0 if kind == "bool" else values).astype(dtype)
    return typed
