"""The smallest part of a failing model made fit to be shared: other names, other weights, smaller sizes."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import onnx

from trtconv.core.documents.reduce import Failure
from trtconv.core.documents.share import SharedConstant
from trtconv.core.errors import InputError
from trtconv.core.requests.base import Bounds
from trtconv.core.requests.build import BuildRequest
from trtconv.graph.anonymous import Aliases, anonymous
from trtconv.graph.stand_ins import Constant, Likeness, as_inputs, constants, resized, sizes_of, with_stand_ins
from trtconv.pipeline.reduce import FailingPart
from trtconv.pipeline.trials import OutOfTrials, PartTrials

_LARGE_BYTES = 24_000
"""A part that takes more gets smaller sizes, and its weights as inputs."""
_LARGE_WEIGHT_BYTES = 4_000
_SMALL_SIZES = (2, 4, 8)
_SMALLEST = 8
"""Sizes from here on are made smaller: those of channels and features."""


class Disguise:
    """A part that is changed step by step, and fails as before after every one.

    Args:
        part: The part as it was cut, weights inside.
        aliases: Other names for those of the model.
        trials: Builds it.

    Attributes:
        proto: The part as it is now.
        request: How it is built.
        failure: How it fails, in its own names.
        constants: What it holds.

    Raises:
        InputError: It does not fail so under other names.
    """

    def __init__(self, part: FailingPart, aliases: Aliases, trials: PartTrials) -> None:
        self._trials = trials
        self.proto = anonymous(part.proto, aliases)
        self.request = _renamed(part.request, aliases)
        self.constants: tuple[SharedConstant, ...] = ()
        # A name such as "a" may stand in the message as a word, too.
        op, node = aliases.operator(part.failure.op), aliases("n", part.failure.node)
        messages = (aliases.text(part.failure.message), part.failure.message)
        self._failures = [dataclasses.replace(part.failure, op=op, node=node, message=message) for message in messages]
        failure = self._try(self.proto, "other names")
        if failure is None:
            raise InputError(
                "the part fails in another way, or not at all, under other names",
                "Nothing is written: names are what it is about. trtconv reduce writes it with its own.",
            )
        self.failure = failure
        self._failures.append(failure)

    def run(self) -> bool:
        """Takes every step; returns whether the trials sufficed.

        Raises:
            InputError: It does not fail so with other weights.
        """
        is_whole = self._within_trials(self._shrink)
        original, weights = self.proto, list(constants(self.proto))
        try:
            likeness = self._replace_weights(weights)
        except OutOfTrials:
            raise InputError("the trials ended before the weights were others", "Allow more with --trials.") from None
        is_whole &= self._within_trials(lambda: self._relax(original, weights, likeness))
        self.constants = tuple(
            SharedConstant(constant.name, constant.dtype, constant.values.shape, like.value)
            for constant, like in zip(constants(self.proto), likeness, strict=True)
        )
        is_whole &= self._within_trials(self._give_weights)
        return is_whole

    def fails_alone(self) -> bool:
        """Whether it fails alike without trtconv's rewrites; where it can, it becomes what they make of it."""
        alone = dataclasses.replace(self.request, rewrite=False)
        with contextlib.suppress(OutOfTrials):
            if self._try(self.proto, "without rewrites", alone):
                self.request = alone
                return True
            rewritten = self._trials.rewritten(self.proto, self.request)
            failure = rewritten and self._try(rewritten, "as it is rewritten", alone)
            if rewritten and failure:
                self.proto, self.failure, self.request = rewritten, failure, alone
                return True
        return False

    def _within_trials(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except OutOfTrials:
            return False
        return True

    def _try(self, proto: onnx.ModelProto, title: str, request: BuildRequest | None = None) -> Failure | None:
        return self._trials.failure(proto, request or self.request, self._failures, title)

    def _accept(self, proto: onnx.ModelProto, title: str) -> bool:
        failure = self._try(proto, title)
        if failure is None:
            return False
        self.proto, self.failure = proto, failure
        return True

    def _shrink(self) -> None:
        """Makes large sizes smaller, each everywhere at once, the largest first."""
        tries: set[int] = set()
        while self.proto.ByteSize() > _LARGE_BYTES:
            size = max((size for size in sizes_of(self.proto) if size >= _SMALLEST and size not in tries), default=None)
            if size is None:
                return
            tries.add(size)
            for smaller in (*_SMALL_SIZES, size // 8, size // 2):
                if smaller < size and self._accept(resized(self.proto, {size: smaller}), f"{smaller} for {size}"):
                    break

    def _replace_weights(self, weights: Sequence[Constant]) -> list[Likeness]:
        """Replaces every weight; returns what each has of the model's own values."""
        keep, pattern = Likeness.KEPT, Likeness.PATTERN
        likeness = [constant.least for constant in weights]
        if self._accept(with_stand_ins(self.proto, likeness), "other weights"):
            return likeness
        likeness = [
            constant.least if constant.is_structure else keep if constant.may_stay else pattern for constant in weights
        ]
        if self._accept(with_stand_ins(self.proto, likeness), "other weights of the same pattern"):
            return likeness
        raise InputError(
            "the part fails in another way, or not at all, with other weights",
            "Nothing is written: the values of its weights are what it is about. trtconv reduce writes it with them.",
        )

    def _relax(self, original: onnx.ModelProto, weights: Sequence[Constant], likeness: list[Likeness]) -> None:
        """Takes what is left of the model's values from the weights whose own the failure does not need."""
        for index, constant in enumerate(weights):
            for less in _less_than(Likeness.STATISTICS if constant.is_structure else likeness[index]):
                changed = [*likeness[:index], less, *likeness[index + 1 :]]
                if self._accept(with_stand_ins(original, changed), f"constant {index + 1} of {len(weights)}"):
                    likeness[index] = less
                    break

    def _give_weights(self) -> None:
        """Makes large weights inputs, which take no bytes."""
        if self.proto.ByteSize() > _LARGE_BYTES and self._accept(
            as_inputs(self.proto, _LARGE_WEIGHT_BYTES), "weights as inputs"
        ):
            names = {constant.name for constant in constants(self.proto)}
            self.constants = tuple(constant for constant in self.constants if constant.name in names)


def _less_than(likeness: Likeness) -> Iterator[Likeness]:
    """Yields what leaves less of a constant's own values, the least first."""
    yield from itertools.takewhile(lambda level: level is not likeness, Likeness)


def _renamed(request: BuildRequest, aliases: Aliases) -> BuildRequest:
    def renamed(bounds: Bounds) -> Bounds:
        return {aliases.dim(name): bound for name, bound in bounds.items()}

    return dataclasses.replace(
        request,
        dims=renamed(request.dims),
        profiles=tuple(renamed(profile) for profile in request.profiles),
        values={aliases("t", name): value for name, value in request.values.items()},
    )
