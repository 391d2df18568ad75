"""What takes the inputs of a model and returns its outputs: ONNX Runtime, a parsed network, an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trtconv.core.documents.parts import UnprovenLayer
from trtconv.core.errors import BuildFailed, EnvironmentMissing
from trtconv.core.target import Target
from trtconv.graph.model import OnnxModel
from trtconv.pipeline.preparation import handed_over
from trtconv.runtimes.inputs import Feeds
from trtconv.runtimes.onnxruntime import first_line, session
from trtconv.runtimes.plugin_layers import with_meanings
from trtconv.runtimes.tensorrt import Engine, Execution, load
from trtconv.runtimes.tensorrt.readback.execute import Run
from trtconv.runtimes.tensorrt.readback.records import ReadTensor

WAYS_TO_LOAD = (
    "An operator of your own needs --reference FILE.py, or the --extend of the build, which say what it computes; "
    "one of ONNX's may need a newer onnxruntime."
)
"""What to do where ONNX Runtime does not load a model."""


class CannotRun(Exception):
    """A model does not run with some inputs; the message says why."""


class Runs(Protocol):
    """Something that takes the model's inputs and returns its outputs."""

    def run(self, profile: int, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Runs it once.

        Raises:
            CannotRun: It does not take these inputs.
            EngineFailed: The engine broke down.
        """


class OnnxRuns:
    """A model on ONNX Runtime.

    Raises:
        CannotRun: ONNX Runtime does not load it.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._outputs = list(model.outputs)
        loaded = session(model)
        if isinstance(loaded, str):
            raise CannotRun(f"ONNX Runtime does not load the model: {loaded}")
        self._session: Any = loaded

    def run(self, profile: int, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Runs it once; see `Runs`."""
        try:
            return dict(zip(self._outputs, self._session.run(self._outputs, feeds), strict=True))
        except Exception as error:  # ONNX Runtime raises its own types, one for each status.
            raise CannotRun(f"ONNX Runtime does not run it: {first_line(error)}") from error


class NetworkRuns:
    """What TensorRT's parser makes of a model, run layer by layer without a GPU.

    Args:
        model: The model as `trtconv build` hands it to the parser.
        target: The TensorRT whose parser it is.
        keeps: Which inner tensors are returned too.

    Raises:
        CannotRun: That TensorRT is not here, or not in that version, or its parser refuses the model.
    """

    def __init__(self, model: OnnxModel, target: Target, keeps: Callable[[str], bool] = lambda name: False) -> None:
        self._keeps = keeps
        self._inner: dict[str, NDArray[Any]] = {}
        self.unproven: dict[int, UnprovenLayer] = {}
        self.layers = 0
        self.lacking = ""
        """Why an output is not among those of the last run."""
        self._model = model
        try:
            parsed = load(target).parse(handed_over(model), model.path)
        except (EnvironmentMissing, BuildFailed) as error:
            raise CannotRun(error.message) from error
        if isinstance(parsed, tuple):
            raise CannotRun(f"TensorRT's parser refuses the model: {parsed[0].message}")
        self._network = with_meanings(parsed.read_back(), model)
        self._boxes = {number for layer in self._network.layers if layer.kind == "NMS" for number in layer.outputs}

    def run(self, profile: int, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Runs it once, and returns those outputs that are proven, and the inner tensors that are kept; see `Runs`."""
        self._inner = {}
        run = Run(self._network, feeds, see=self._see)
        results = run.outputs()
        self.layers = max(self.layers, len(run.ran))
        for index, reason in run.unproven.items():
            if index >= 0:
                layer = self._network.layers[index]
                self.unproven[index] = UnprovenLayer(layer.name, layer.kind, reason)
        lacking = [name for name in self._model.outputs if name not in results]
        reasons = ", ".join(sorted({entry.reason for entry in self.unproven.values()}))
        self.lacking = f"output {lacking[0]!r} of the parsed network is not proven: {reasons}" if lacking else ""
        return {**self._inner, **results}

    def _see(self, tensor: ReadTensor, value: NDArray[Any], computed: bool) -> NDArray[Any]:
        value = self._by_class(tensor, value, computed)
        if self._keeps(tensor.name):
            self._inner[tensor.name] = value
        return value

    def _by_class(self, tensor: ReadTensor, value: NDArray[Any], computed: bool) -> NDArray[Any]:
        """Returns selected boxes by class, as ONNX orders them: that TensorRT orders them by score is no fault."""
        if tensor.index not in self._boxes or not computed or value.ndim != 2:
            return value
        return value[np.lexsort((value[:, 1], value[:, 0]))]


class EngineRuns:
    """An engine; one execution context is kept, that of the profile that ran last.

    Args:
        engine: The engine.
        keeps: Which of its debug tensors are returned too; None: none.
    """

    def __init__(self, engine: Engine, keeps: Callable[[str], bool] | None = None) -> None:
        self._engine = engine
        self._keeps = keeps
        self._inner: Mapping[str, NDArray[Any]] = {}
        self._opened: tuple[int, Execution] | None = None

    def close(self) -> None:
        """Gives the memory of the context back."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def run(self, profile: int, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Runs it once; see `Runs`."""
        if self._opened is None or self._opened[0] != profile:
            self.close()
            self._opened = (profile, self._engine.open(profile))
            if self._keeps is not None:
                self._inner = self._opened[1].watch(self._keeps)
        execution = self._opened[1]
        execution.feed(feeds)
        return {**execution.run(), **self._inner}
