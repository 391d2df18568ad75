"""A plain TensorRT script: parse ONNX, build, run, time. Of trtconv it has the calls of CUDA and the memory for outputs
whose sizes an engine tells while it runs, and nothing else.

Written for TensorRT 8.6; builds (without running) on TensorRT-RTX too, so that it can be tried without a GPU.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trtconv.core.errors import EngineFailed
from trtconv.runtimes.tensorrt.callbacks import Allocator, make_allocator
from trtconv.runtimes.tensorrt.device import Buffer, Gpu, Graph, Stream

Array = NDArray[Any]
Bounds = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Smallest, best and largest shape of an input."""

_WORKSPACE_BYTES = 4 << 30
_DTYPES = {
    "FLOAT": np.float32,
    "HALF": np.float16,
    "INT32": np.int32,
    "INT8": np.int8,
    "UINT8": np.uint8,
    "BOOL": np.bool_,
}


@functools.cache
def gpu() -> Gpu:
    """Returns the GPU, opened where something is to run: the rest does without."""
    return Gpu()


class Refused(Exception):
    """TensorRT refused something.

    Args:
        stage: "parse", "build" or "run".
        message: What it said.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


@dataclasses.dataclass(frozen=True)
class Options:
    """How to build.

    Args:
        flags: Names of builder flags to set. TF32 is off unless named.
        half_io: Whether float inputs and outputs are float16, as in the middle of a float16 network.
        profile: Shapes of every dynamic input.
        level: The builder's optimisation level; None for its default.
    """

    flags: tuple[str, ...] = ()
    half_io: bool = False
    profile: Mapping[str, Bounds] = dataclasses.field(default_factory=dict)
    level: int | None = None


def make_logger(trt: Any) -> Any:
    """Makes an ILogger that keeps errors and warnings in its list `records`."""

    class Logger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.records: list[tuple[str, str]] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity.name in ("INTERNAL_ERROR", "ERROR", "WARNING"):
                self.records.append((severity.name, msg))

    return Logger()


class TensorRT:
    """TensorRT in this process.

    Args:
        trt: The module: tensorrt, or tensorrt_rtx for building alone.
    """

    def __init__(self, trt: Any) -> None:
        self.trt = trt
        self.log = make_logger(trt)
        self._builder = trt.Builder(self.log)
        self.timings = b""

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.trt.__version__)

    def build(self, model: bytes, options: Options, *, keep_timings: bool = True) -> Any:
        """Builds an engine.

        Args:
            model: Serialized ModelProto.
            options: How.
            keep_timings: Whether tactics that were timed in earlier builds are taken over and kept for later ones,
                so that layers that two networks share run the same way in both.

        Returns:
            The serialized engine.

        Raises:
            Refused: The parser or the builder refused.
        """
        self.log.records.clear()
        network, parser = self.parse(model)
        config = self._builder.create_builder_config()
        self._configure(config, network, options)
        cached = keep_timings and hasattr(self.trt.BuilderFlag, "FP16")
        if cached:
            config.set_timing_cache(config.create_timing_cache(self.timings), False)
        plan = self._builder.build_serialized_network(network, config)
        if plan is None:
            raise Refused("build", self._said())
        if cached:
            self.timings = bytes(memoryview(config.get_timing_cache().serialize()))
        del parser
        return plan

    def parse(self, model: bytes) -> tuple[Any, Any]:
        """Returns the network and the parser, whose weights it uses.

        Raises:
            Refused: The parser refused.
        """
        trt = self.trt
        explicit = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
        network = self._builder.create_network(0 if explicit is None else 1 << int(explicit))
        parser = trt.OnnxParser(network, self.log)
        if not parser.parse(model):
            errors = [parser.get_error(i) for i in range(parser.num_errors)]
            raise Refused("parse", "\n".join(e.desc() for e in errors) or self._said())
        return network, parser

    def engine(self, plan: Any) -> Engine:
        """Makes an engine ready to run."""
        return Engine(self, plan)

    def _configure(self, config: Any, network: Any, options: Options) -> None:
        trt = self.trt
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
        if options.level is not None:
            config.builder_optimization_level = options.level
        if hasattr(trt.BuilderFlag, "TF32"):
            config.clear_flag(trt.BuilderFlag.TF32)
        for name in options.flags:
            if hasattr(trt.BuilderFlag, name):
                config.set_flag(getattr(trt.BuilderFlag, name))
        inputs = [network.get_input(i) for i in range(network.num_inputs)]
        if options.half_io and hasattr(trt.BuilderFlag, "FP16"):
            for tensor in (*inputs, *(network.get_output(i) for i in range(network.num_outputs))):
                tensor.dtype = trt.DataType.HALF
        if any(-1 in tuple(tensor.shape) for tensor in inputs):
            profile = self._builder.create_optimization_profile()
            for name, bounds in options.profile.items():
                profile.set_shape(name, *bounds)
            config.add_optimization_profile(profile)

    def _said(self) -> str:
        errors = [text for severity, text in self.log.records if severity != "WARNING"]
        return "\n".join(dict.fromkeys(errors)) or "no reason given"


class Engine:
    """An engine and its execution context.

    Raises:
        Refused: It cannot be loaded.
    """

    def __init__(self, owner: TensorRT, plan: Any) -> None:
        trt = owner.trt
        owner.log.records.clear()
        self._owner = owner
        self._runtime = trt.Runtime(owner.log)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        self._context: Any = self._engine.create_execution_context() if self._engine is not None else None
        if self._context is None:
            raise Refused("run", owner._said())
        self.stream = Stream(gpu())
        self._buffers: dict[str, Buffer] = {}
        self._allocators: dict[str, Allocator] = {}
        self._graph: Graph | None = None
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        inputs = {name for name in names if self._engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT}
        self.inputs = [name for name in names if name in inputs]
        self.outputs = [name for name in names if name not in inputs]

    @property
    def layers(self) -> int:
        """Number of layers after fusion."""
        return int(self._engine.num_layers)

    def _dtype(self, name: str) -> Any:
        return _DTYPES[self._engine.get_tensor_dtype(name).name]

    def load(self, feeds: Mapping[str, Array]) -> None:
        """Gives the engine its inputs, and memory for its outputs."""
        while self._allocators:
            self._allocators.popitem()[1].close()
        for name in self.inputs:
            values = feeds[name].astype(self._dtype(name))
            if not self._context.set_input_shape(name, tuple(values.shape)):
                raise Refused("run", f"shape {values.shape} of {name} is refused: {self._owner._said()}")
            self._bind(name, values.nbytes).write(values)
        for name in self.outputs:
            shape = self._shape(name)
            if min(shape, default=0) >= 0:
                self._bind(name, int(np.prod(shape)) * np.dtype(self._dtype(name)).itemsize)
            else:
                self._allocators[name] = make_allocator(self._owner.trt, self.stream)
                self._context.set_output_allocator(name, self._allocators[name])

    def _bind(self, name: str, nbytes: int) -> Buffer:
        buffer = Buffer(self.stream, nbytes)
        self._buffers[name] = buffer
        self._context.set_tensor_address(name, buffer.address)
        return buffer

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._context.get_tensor_shape(name))

    def enqueue(self) -> None:
        """Puts one inference on the stream."""
        if not self._context.execute_async_v3(int(self.stream.handle)):
            raise Refused("run", self._owner._said())

    def run(self) -> list[Array]:
        """Runs once and returns the outputs."""
        self.enqueue()
        self.stream.wait()
        return [self._read(name) for name in self.outputs]

    def _read(self, name: str) -> Array:
        allocator, dtype = self._allocators.get(name), np.dtype(self._dtype(name))
        if allocator is None:
            return self._buffers[name].read(self._shape(name), dtype)
        if allocator.buffer is None:
            raise Refused("run", f"memory for output {name} was not asked for: {self._owner._said()}")
        return allocator.buffer.read(allocator.shape, dtype)

    def record(self, repeats: int) -> bool:
        """Makes a CUDA graph of some inferences, so that launching does not count; False where that is refused."""

        def work() -> None:
            for _ in range(repeats):
                self.enqueue()

        try:
            self._graph = self.stream.capture(work)
        except (EngineFailed, Refused):
            self._graph = None
        return self._graph is not None

    def microseconds(self, repeats: int) -> float:
        """Returns the time of one inference, from `repeats` in a row (as many as were recorded)."""

        def work() -> None:
            for _ in range(repeats):
                self.enqueue()

        return self.stream.microseconds(self._graph.launch if self._graph else work) / repeats

    def free(self) -> None:
        """Gives back graph and buffers."""
        if self._graph is not None:
            self._graph.close()
        for held in (*self._buffers.values(), *self._allocators.values()):
            held.close()
        self._buffers.clear()
        self._allocators.clear()


@dataclasses.dataclass(frozen=True)
class Latency:
    """How long one inference takes, in microseconds.

    Args:
        us: Median.
        low: 10th percentile.
        high: 90th percentile.
    """

    us: float
    low: float
    high: float


def race(
    engines: Sequence[Engine], *, rounds: int = 60, budget_us: float = 2e6, warm_up_us: float = 1e5
) -> tuple[list[Latency], dict[str, Any]]:
    """Times engines in turns, so that the GPU's clock and heat hit all of them alike.

    Args:
        engines: Loaded engines.
        rounds: Samples of each; fewer where they would take longer than `budget_us`.
        budget_us: Rough limit of the whole, in microseconds.
        warm_up_us: How long each runs before, in microseconds.

    Returns:
        The latencies, and how they were measured.
    """
    once = max(_warm_up(engine, warm_up_us) for engine in engines)
    repeats = int(min(20, max(1, 2000 / once)))
    graphs = [engine.record(repeats) for engine in engines]
    rounds = int(min(rounds, max(9, budget_us / (once * repeats * len(engines)))))
    samples: list[list[float]] = [[] for _ in engines]
    for turn in range(rounds + 2):
        order = range(len(engines)) if turn % 2 else reversed(range(len(engines)))
        for index in order:
            sample = engines[index].microseconds(repeats)
            if turn >= 2:
                samples[index].append(sample)
    how = {"rounds": rounds, "inferences_per_sample": repeats, "cuda_graph": all(graphs)}
    return [_latency(each) for each in samples], how


def _warm_up(engine: Engine, least_us: float) -> float:
    """Runs until the clock has risen; returns the last time in microseconds."""
    spent, last = 0.0, 1.0
    for _ in range(2000):
        last = engine.microseconds(1)
        spent += last
        if spent > least_us:
            break
    return last


def _latency(samples: Sequence[float]) -> Latency:
    deciles = statistics.quantiles(samples, n=10)
    return Latency(round(statistics.median(samples), 2), round(deciles[0], 2), round(deciles[-1], 2))
