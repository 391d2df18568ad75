"""The process that parses and builds early, as the command has it: a runtime and a network as any other."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import select
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trtconv.core import budget
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed
from trtconv.core.findings import Finding
from trtconv.core.forking import Fork, can_fork
from trtconv.core.process import trusted_path
from trtconv.core.requests.build import BuildRequest
from trtconv.core.target import Target
from trtconv.runtimes import tensorrt
from trtconv.runtimes.tensorrt.base import (
    BuildMonitor,
    EngineBlob,
    ParsedNetwork,
    ParserIssue,
    PluginCreator,
    Runtime,
    RuntimeInfo,
)
from trtconv.runtimes.tensorrt.early.memory import Extent, Memories, SharedMemory
from trtconv.runtimes.tensorrt.early.messages import (
    EngineMessage,
    Greeting,
    Message,
    NetworkMessage,
    PhaseMessage,
    Snapshot,
    Words,
)
from trtconv.runtimes.tensorrt.early.worker import LENGTH_BYTES, work
from trtconv.runtimes.tensorrt.engine_base import EngineLoader
from trtconv.runtimes.tensorrt.loader import is_installed, load
from trtconv.runtimes.tensorrt.logger import follow
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

if TYPE_CHECKING:
    from trtconv.graph.model import OnnxModel

_FREE = frozenset(
    {"model", "engine", "report", "dims", "profiles", "values", "target", "fail_on", "selection", "sign", "mend"}
    | {"prove", "prove_time", "force", "within", "timing_folder", "rewrite", "rounded", "split"}
)
"""What a request may say and yet be built early; anything else changes the model or its network, or needs a GPU."""
_POLL_SECONDS = 0.05
_CHUNK = 1 << 16
_Kind = TypeVar("_Kind", Greeting, NetworkMessage, EngineMessage)
_process: EarlyProcess | None = None


@contextlib.contextmanager
def begun(request: BuildRequest) -> Iterator[None]:
    """Has a process parse and build what a request asks for while the block runs, where that may be of use.

    Begin before anything heavy is imported.
    """
    global _process
    process = _process = _start(request)
    try:
        yield
    finally:
        if process is not None:
            process.end()


def _start(request: BuildRequest) -> EarlyProcess | None:
    if not is_eligible(request) or not can_fork():
        return None
    # Both need it.
    import numpy  # noqa: F401

    # Without descriptors, memory or a process to be had, nothing is lost; some Pythons have no such memory.
    with contextlib.suppress(OSError, AttributeError):
        return EarlyProcess(request) if can_fork() else None
    return None


def is_eligible(request: BuildRequest) -> bool:
    """Whether what a request asks for can be built by TensorRT-RTX from the file as it is."""
    family = None if request.target is None else request.target.family
    usual = BuildRequest(model=request.model)
    settings = (field.name for field in dataclasses.fields(request) if field.name not in _FREE)
    return (
        (family == "rtx" or (family is None and not is_installed(Target("tensorrt"))))
        and is_installed(Target("rtx"))
        and all(getattr(request, name) == getattr(usual, name) for name in settings)
    )


def is_begun(request: BuildRequest) -> bool:
    """Whether a process was started for a request."""
    return _process is not None and _process.request is request


def runtime_of(request: BuildRequest, alone: bool) -> Runtime:
    """Returns the TensorRT that builds what is requested: what was started early for it, or this process's own.

    Args:
        alone: Whether the model lies in one file; nobody has looked at others when they were read early.

    Raises:
        EnvironmentMissing: As `load`.
    """
    early = early_runtime(request)
    if early is None:
        return tensorrt.load(request.target)
    return early if alone else early.own


def early_runtime(request: BuildRequest) -> EarlyRuntime | None:
    """Returns the runtime of the process that was started for a request; None where there is none, or it is lost."""
    global _process
    process, _process = _process, None
    if process is None or process.request is not request:
        return None
    greeting = process.hear(Greeting)
    return None if greeting is None else EarlyRuntime(process, greeting.info)


class EarlyProcess:
    """The process; once something is wrong with it, it is ended, and says nothing more.

    Args:
        request: What it is to build.
    """

    def __init__(self, request: BuildRequest) -> None:
        self.request = request
        self.memories = memories = Memories(SharedMemory(), SharedMemory(), SharedMemory())
        self._is_over = False
        self._heard = b""
        self._passed_on = 0
        # Kept until its work is taken over: what is done again says it again.
        self._stderr = os.fdopen(os.memfd_create("stderr"), "w+b", buffering=0)
        limits, parent = budget.current(), os.getpid()
        self._fork = Fork(
            lambda: work(request, limits, memories, parent), trusted_path(), self._stderr, memories.descriptors
        )

    def hear(self, kind: type[_Kind], monitor: BuildMonitor | None = None) -> _Kind | None:
        """Waits for a message; None where the process is lost.

        Args:
            kind: The message.
            monitor: Told of phases, and asked whether to go on.

        Raises:
            BuildFailed: The monitor asked to stop.
        """
        phase = PhaseMessage("", 0, 0)
        while not self._is_over:
            message = self._next()
            if isinstance(message, kind):
                return message
            if isinstance(message, PhaseMessage):
                phase = message
            elif message is not None:
                self.close()
            if monitor is not None and phase.name and not monitor(phase.name, phase.step, phase.steps):
                self.close()
                raise BuildFailed("the build was cancelled")
        return None

    def _next(self) -> Message | None:
        """Returns a message; None where there is none yet, or the process is lost."""
        length = int.from_bytes(self._heard[:LENGTH_BYTES], "big") + LENGTH_BYTES
        if len(self._heard) >= max(length, LENGTH_BYTES + 1):
            data, self._heard = self._heard[LENGTH_BYTES:length], self._heard[length:]
            message: Message = pickle.loads(data)
            return message
        pipe = self._fork.stdout.fileno()
        # In short waits, so that Ctrl-C is heard.
        if select.select([pipe], [], [], _POLL_SECONDS)[0]:
            data = os.read(pipe, _CHUNK)
            self._heard += data
            if not data:
                self.close()
        return None

    def say(self, order: BuildPlan | Extent) -> None:
        """Says what to build, or where another model is; where the process is lost, `hear` tells."""
        with contextlib.suppress(OSError):
            self._fork.stdin.write(pickle.dumps(order))
            self._fork.stdin.flush()

    def snapshot(self) -> Snapshot | None:
        """Waits for the network; None where the process is lost, or the file gone in which weights of it lie."""
        message = self.hear(NetworkMessage)
        if message is None:
            return None
        try:
            snapshot: Snapshot = self.memories.networks.load(message.snapshot, self.request.model)
        except (OSError, ValueError):
            # It tells of the network but once.
            self.close()
            return None
        return snapshot

    def has_parsed(self, model: OnnxModel) -> bool:
        """Whether a model is what was parsed, found out without all of its weights at once; they are left in its file.

        False also where that cannot be.
        """
        # Loaded only here: onnx is, by now.
        from trtconv.graph.light_file import leave_weights

        with self.memories.model.open() as file:
            return leave_weights(model, file)

    def parse(self, model: bytes) -> Snapshot | None:
        """Has another model parsed, by a process that waits for what to build; returns the network as `snapshot`."""
        self.memories.model.clear()
        # What was said of the first one is of no interest.
        self._passed_on = os.fstat(self._stderr.fileno()).st_size
        self.say(self.memories.model.append(model))
        return self.snapshot()

    def pass_on(self, words: Words) -> None:
        """Passes on what was said: to those who follow TensorRT's log, and to stderr."""
        follow(words.log)
        text = os.pread(self._stderr.fileno(), words.stderr - self._passed_on, self._passed_on)
        self._passed_on = words.stderr
        with contextlib.suppress(OSError):
            os.write(2, text)

    def close(self) -> None:
        """Ends the process."""
        if not self._is_over:
            self._is_over = True
            self._fork.kill()
            self.memories.model.clear()

    def end(self) -> None:
        """Ends the process, and waits until it has given back its memory."""
        self.close()
        self._fork.wait()


class EarlyRuntime:
    """The TensorRT of the process, and this process's own for all else; implements `Runtime`.

    Args:
        process: The process.
        info: What it has.
    """

    def __init__(self, process: EarlyProcess, info: RuntimeInfo) -> None:
        self._process = process
        self._started: tuple[bytes, EarlyNetwork] | None = None
        self.info = info

    @functools.cached_property
    def own(self) -> Runtime:
        """The TensorRT of this process, loaded when it is first asked for; then the other one is not."""
        self._process.close()
        return load(self._process.request.target)

    def creators(self) -> tuple[PluginCreator, ...]:
        """Returns the plugins that there are; see `Runtime.creators`."""
        return self.own.creators()

    def engines(self) -> EngineLoader:
        """Returns what runs engines; see `Runtime.engines`."""
        return self.own.engines()

    def parse(self, model: bytes, path: Path) -> ParsedNetwork | tuple[ParserIssue, ...]:
        """Parses a model in this process; see `Runtime.parse`."""
        return self.own.parse(model, path)

    def start(self, model: OnnxModel, plan: BuildPlan) -> None:
        """Has a model parsed and built that may still turn out to be refused, or to be built with another plan.

        Args:
            model: As in `network`, which later returns the network where the model is still the same.
            plan: What the builder is most likely told.
        """
        network = self._network(model)
        if network is not None:
            network.start(plan)
            self._started = model.without_weights(), network

    def network(self, model: OnnxModel) -> EarlyNetwork | None:
        """Returns the network that was parsed early; None where that was of something else, or is lost.

        Args:
            model: What is to be parsed; its weights are left in its file where that is what was parsed.
        """
        if self._started is None:
            return self._network(model)
        started, network = self._started
        return network if started == model.without_weights() else None

    def _network(self, model: OnnxModel) -> EarlyNetwork | None:
        process = self._process
        # There may be no memory left to look at it.
        with contextlib.suppress(OSError, MemoryError):
            snapshot = process.snapshot() if model.path == process.request.model else None
            if snapshot is not None and not process.has_parsed(model):
                data = model.serialize()
                if not process.memories.model.holds(data, snapshot.model):
                    snapshot = process.parse(data) if snapshot.plan is None else None
            if snapshot is not None:
                process.memories.model.clear()
                process.memories.networks.close()
                process.pass_on(snapshot.words)
                return EarlyNetwork(process, snapshot, lambda: self.parse_here(model))
        return None

    def parse_here(self, model: OnnxModel) -> ParsedNetwork | tuple[ParserIssue, ...]:
        """Parses a model in this process, with weights that were left in its file; see `Runtime.parse`.

        Raises:
            InputError: The file is another one by now, or gone.
        """
        # The parser reads what is there, and of a file that is gone it has no words.
        model.require_unchanged_data()
        return self.own.parse(model.serialize(), model.path)


class EarlyNetwork:
    """A network that the process parsed; implements `ParsedNetwork`.

    Args:
        process: The process, which has it.
        snapshot: What it told of it.
        parse: Parses the same model in this process.
    """

    def __init__(
        self, process: EarlyProcess, snapshot: Snapshot, parse: Callable[[], ParsedNetwork | tuple[ParserIssue, ...]]
    ) -> None:
        self._process = process
        self._snapshot = snapshot
        self._goal = snapshot.plan
        self._parse = parse
        self.layer_count, self.deconvolutions = snapshot.layer_count, snapshot.deconvolutions
        self.inputs, self.outputs, self.shape_inputs = snapshot.inputs, snapshot.outputs, snapshot.shape_inputs

    @functools.cached_property
    def _own(self) -> ParsedNetwork:
        network = self._parse()
        if isinstance(network, tuple):
            raise BuildFailed(f"TensorRT's parser refuses what it has accepted: {network[0].message}")
        return network

    @property
    def layer_types(self) -> Sequence[str]:
        """Type of every layer."""
        return self._own.layer_types

    def read_back(self) -> ReadNetwork:
        """Returns every layer; see `ParsedNetwork.read_back`."""
        return self._snapshot.network or self._own.read_back()

    def faults(self, plan: BuildPlan) -> tuple[Finding, ...]:
        """Says what the builder refuses before it starts; see `ParsedNetwork.faults`."""
        return self._own.faults(plan)

    def start(self, plan: BuildPlan) -> None:
        """Begins to build; `build` takes the engine over where it is given the same plan."""
        if self._goal is None:
            self._goal = plan
            self._process.say(plan)

    def build(self, plan: BuildPlan, monitor: BuildMonitor | None = None) -> EngineBlob:
        """Returns the engine of the process, if it was built by this very plan; else builds here."""
        return self._engine(plan, monitor) or self._own.build(plan, monitor)

    def _engine(self, plan: BuildPlan, monitor: BuildMonitor | None) -> EngineBlob | None:
        self.start(plan)
        # A network whose sizes are all known has no use for profiles.
        is_sure = self._snapshot.plan is not None
        if self._goal != (dataclasses.replace(plan, profiles=(), asked=None) if is_sure else plan):
            return None
        message = self._process.hear(EngineMessage, monitor)
        if message is None:
            return None
        # As above.
        with contextlib.suppress(OSError, MemoryError):
            data = self._process.memories.engine.view(message.engine)
            self._process.pass_on(message.words)
            self._process.close()
            return EngineBlob(data, message.warnings, message.findings, seconds=message.seconds)
        return None
