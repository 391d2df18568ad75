"""Which tactic each layer gets: told after a build, and said before one.

TensorRT 8.6 asks an IAlgorithmSelector, layer by layer, and reports to it what it took. From 10 on most layers are not
asked about; there the timing cache, made editable, has for each operation that was measured the tactic that it got,
and a build that finds an operation in it takes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trtconv.core.documents.tactics import MOST_NAME, MOST_TACTICS, Tactic, TensorLayout, hexadecimal
from trtconv.runtimes.tensorrt.layers import dtype_name, sizes_of

_MILLISECONDS = 1.0
"""What a tactic is said to take: an operation has one entry, and nothing is compared with it."""


def has_selector(trt: Any) -> bool:
    """Whether a TensorRT module asks an algorithm selector for the tactics of all layers."""
    return hasattr(trt, "IAlgorithmSelector") and not has_editable_cache(trt)


def has_editable_cache(trt: Any) -> bool:
    """Whether its timing cache can be edited; that of TensorRT-RTX, which compiles kernels as it runs, is idle."""
    is_rtx = hasattr(trt.IBuilderConfig, "set_compute_capability")
    return hasattr(trt.BuilderFlag, "EDITABLE_TIMING_CACHE") and not is_rtx


class Choices:
    """The tactics of one build.

    Args:
        tactics: Those that its layers are to get; TensorRT chooses those of all others.
    """

    def __init__(self, tactics: Sequence[Tactic] = ()) -> None:
        self._tactics = {(tactic.profile, tactic.layer): tactic for tactic in tactics}
        self._record: dict[tuple[int, str], Tactic] = {}
        self.profile = 0
        """Position of the optimization profile that the builder is at."""
        self.trouble = ""
        """Why nothing is known of what was taken, in words; empty where it is."""

    def tactic_for(self, layer: str) -> Tactic | None:
        """Returns what a layer is to get in the current profile; None where TensorRT may choose."""
        return self._tactics.get((self.profile, layer))

    def take(self, tactics: Iterable[Tactic]) -> None:
        """Notes what layers got; what a report cannot hold is left out."""
        for tactic in tactics:
            if len(self._record) < MOST_TACTICS and 0 < len(tactic.layer) <= MOST_NAME:
                self._record.setdefault((tactic.profile, tactic.layer), tactic)

    @property
    def record(self) -> tuple[Tactic, ...]:
        """What the layers got."""
        return () if self.trouble else tuple(self._record.values())

    @property
    def unmet(self) -> tuple[str, ...]:
        """Names of layers that got another tactic than they were to get, or were to get one and are not there."""
        if not self._tactics:
            return ()
        other = [key for key, tactic in self._record.items() if self._tactics.get(key) != tactic]
        absent = [key for key in self._tactics if key not in self._record]
        return tuple(dict.fromkeys(layer for _, layer in (*other, *absent)))


def tactic_of(context: Any, algorithm: Any, profile: int) -> Tactic:
    """Reads an IAlgorithm.

    Args:
        context: The IAlgorithmContext of its layer.
        algorithm: One of the layer's choices.
        profile: Position of the optimization profile.
    """
    variant = algorithm.algorithm_variant
    tensors = (algorithm.get_algorithm_io_info(index) for index in range(context.num_inputs + context.num_outputs))
    return Tactic(
        str(context.name),
        hexadecimal(variant.tactic),
        hexadecimal(variant.implementation),
        tuple(_layout(info) for info in tensors),
        profile,
    )


def _layout(info: Any) -> TensorLayout:
    return TensorLayout(
        dtype_name(info.dtype), sizes_of(info.strides), info.vectorized_dim, info.components_per_element
    )


def make_selector(trt: Any, choices: Choices) -> Any:
    """Makes the IAlgorithmSelector; it must be kept alive until the build is over.

    A class made here, since its base exists only where TensorRT is installed. TensorRT asks for all layers of one
    profile, reports them, and goes on with the next.
    """

    class Selector(trt.IAlgorithmSelector):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IAlgorithmSelector.__init__(self)

        def select_algorithms(self, context: Any, offered: Sequence[Any]) -> list[int]:
            every = list(range(len(offered)))
            # Nothing may be raised through C++, and the engine is none the worse where no tactic is known.
            try:
                tactic = choices.tactic_for(context.name)
                if tactic is None:
                    return every
                return [i for i in every if tactic_of(context, offered[i], choices.profile) == tactic][:1] or every
            except Exception as error:
                choices.trouble = f"{type(error).__name__}: {error}"
                return every

        def report_algorithms(self, contexts: Sequence[Any], choice: Sequence[Any]) -> None:
            try:
                choices.take(tactic_of(*pair, choices.profile) for pair in zip(contexts, choice, strict=True))
            except Exception as error:
                choices.trouble = f"{type(error).__name__}: {error}"
            choices.profile += 1

    return Selector()


class TacticFollower:
    """Tells the builder which tactics to take, and notes which it took.

    Args:
        trt: The TensorRT module.
        config: The IBuilderConfig, which is prepared at once; it must live until the build is over.
        tactics: The tactics that layers are to get.
    """

    def __init__(self, trt: Any, config: Any, tactics: Sequence[Tactic]) -> None:
        self.choices = Choices(tactics)
        self.has_cache = has_editable_cache(trt)
        self._config = config
        if not self.has_cache:
            self._selector = make_selector(trt, self.choices)
            config.algorithm_selector = self._selector
            return
        cache = config.create_timing_cache(b"")
        for tactic in tactics:
            key = _key(trt, tactic.layer)
            if key is not None:
                cache.update(key, trt.TimingCacheValue(int(tactic.tactic, 16), _MILLISECONDS))
        config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
        config.set_timing_cache(cache, False)

    def finish(self) -> Choices:
        """Returns what was taken, once an engine is built."""
        cache = self._config.get_timing_cache() if self.has_cache else None
        if cache is not None:
            tactics = [Tactic(str(key), hexadecimal(cache.query(key).tacticHash)) for key in cache.queryKeys()]
            self.choices.take(sorted(tactics, key=lambda tactic: tactic.layer))
        return self.choices


def _key(trt: Any, text: str) -> Any:
    """Reads a key of a timing cache; None where it is none, as the name of a layer."""
    try:
        return trt.TimingCacheKey.parse(text)
    except (RuntimeError, TypeError, ValueError):
        return None
