"""A model on ONNX Runtime whose inner tensors are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.graph.model import OnnxModel
from trtconv.runtimes.onnxruntime import first_line, session


class Probe:
    """A model that gives values of some of its tensors.

    Args:
        model: The model; not changed.
        tensors: Names in its main graph, inputs and outputs among them.

    Raises:
        EnvironmentMissing: ONNX Runtime does not load the model.
    """

    def __init__(self, model: OnnxModel, tensors: Sequence[str]) -> None:
        inputs = {spec.name for spec in model.inputs}
        self._feed_names = [name for name in tensors if name in inputs]
        self._result_names = [name for name in tensors if name not in inputs]
        copy = model.copy()
        outputs = {value.name for value in copy.proto.graph.output}
        names = (name for name in dict.fromkeys(self._result_names) if name not in outputs)
        copy.proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        copy.touch()
        self._session: Any = session(copy, late=True)
        if isinstance(self._session, str):
            raise EnvironmentMissing(
                f"ONNX Runtime does not load {model.path.name}: {self._session}",
                "Without it nothing can be calibrated.",
            )

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Returns the tensors for some inputs.

        Raises:
            InputError: The model does not run on them.
        """
        if self._result_names:
            try:
                values = self._session.run(self._result_names, dict(feeds))
            except Exception as error:
                shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feeds.items())
                raise InputError(
                    f"the model does not run on a sample ({shapes}): {first_line(error)}",
                    "'trtconv sizes' lists the sizes that it accepts.",
                ) from error
        else:
            values = []
        return {
            **dict(zip(self._result_names, values, strict=True)),
            **{name: feeds[name] for name in self._feed_names},
        }

    def channel_means(
        self, axes: Mapping[str, int], samples: Iterable[Mapping[str, NDArray[Any]]], *, squared: bool = False
    ) -> dict[str, NDArray[np.float64]]:
        """Returns tensor to the mean over samples of each channel, or of its squares; `axes` are those of channels."""
        sums: dict[str, NDArray[np.float64]] = {}
        counts: dict[str, int] = {}
        for feeds in samples:
            for name, values in self.run(feeds).items():
                channels = axes[name] % values.ndim
                others = tuple(axis for axis in range(values.ndim) if axis != channels)
                terms = np.square(values, dtype=np.float64) if squared else values
                sums[name] = sums.get(name, 0.0) + terms.sum(axis=others, dtype=np.float64)
                counts[name] = counts.get(name, 0) + values.size // max(1, values.shape[channels])
        return {name: total / max(1, counts[name]) for name, total in sums.items()}
