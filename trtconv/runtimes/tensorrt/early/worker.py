"""What the process does that parses and builds early. Whatever goes wrong, it ends, and nobody is told why."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trtconv.core import budget
from trtconv.core.documents.build import BuildPlan
from trtconv.core.errors import BuildFailed
from trtconv.core.forking import die_with
from trtconv.core.options import shared
from trtconv.core.requests.build import BuildRequest, BuildSettings
from trtconv.core.target import Target
from trtconv.runtimes.tensorrt.base import EngineBlob, ParsedNetwork, RuntimeInfo
from trtconv.runtimes.tensorrt.early.memory import Extent, FilePart, Memories
from trtconv.runtimes.tensorrt.early.messages import (
    EngineMessage,
    Greeting,
    Message,
    NetworkMessage,
    PhaseMessage,
    Snapshot,
    Words,
)
from trtconv.runtimes.tensorrt.early.places import Places
from trtconv.runtimes.tensorrt.loader import load
from trtconv.runtimes.tensorrt.logger import follow_log

if TYPE_CHECKING:
    from trtconv.runtimes.tensorrt.adapter import Installed

_EXTERNAL = b"\n\x08location"
"""In ONNX, the key of an entry that says in which file a tensor lies."""
_LIGHT_BYTES = 1 << 24
_UNNAMED = "node_of_"
"""What the parser calls a node without a name; see `DeconvLayer`."""
LENGTH_BYTES = 8
"""Of the length that goes before each message."""
_PHASE_SECONDS = 0.1
"""From one phase that is told to the next: there are thousands, and who is told may have no time to listen."""


def work(request: BuildRequest, limits: budget.Budget, memories: Memories, parent: int) -> None:
    """Parses and builds what a request asks for, as the fork of a process.

    Args:
        request: What is asked for.
        limits: The budget of the process.
        memories: Take what the processes share.
        parent: The process.
    """
    die_with(parent, signal.SIGKILL)
    # It ends too soon for that.
    gc.disable()
    worker = _Worker(request, memories)
    with budget.allowed(limits):
        worker.run()


class _Worker:
    def __init__(self, request: BuildRequest, memories: Memories) -> None:
        self._request = request
        self._model, self._networks, self._engine = memories.model, memories.networks, memories.engine
        self._log: list[tuple[str, str]] = []
        self._phase_time = 0.0
        # What libraries print goes to stderr, not between the messages.
        self._pipe = os.dup(1)
        os.dup2(2, 1)
        self._orders = sys.stdin.buffer

    def run(self) -> None:
        """Does all, as far as it goes."""
        request = self._request
        follow_log(lambda severity, text: self._log.append((severity, text)))
        engine = load(request.target)
        # The adapter needs TensorRT's own attributes in place, so it is imported only now.
        from trtconv.runtimes.tensorrt.adapter import Installed

        if not isinstance(engine, Installed) or not engine.info.capabilities.builds_without_gpu:
            return
        self._tell(Greeting(engine.info))
        model = self._model.append_file(request.model)
        if self._has_other_files(model):
            return
        with _rationed(model.length):
            find, plan = self._finder(), None
        while plan is None:
            with _rationed(model.length):
                network = self._parsed(engine, model)
                plan = _plan_of(request, engine.info) if _is_sure(network) else None
                self._tell(NetworkMessage(self._networks.dump(self._snapshot(network, model, plan), find)))
            order = plan or self._hear()
            if isinstance(order, Extent):
                # Which lies in no file.
                model, find = order, _nowhere
                # There may be no room for two.
                del network
            else:
                plan = order
        blob, seconds = self._engine_of(network, plan)
        # Beside the engine and a copy of that its weights would be the most that there ever is.
        del network
        self._hand_over(blob, seconds)

    def _has_other_files(self, model: Extent) -> bool:
        """Whether weights seem to lie beside the model, for whoever has some is small; the command looks closely."""
        if model.length > _LIGHT_BYTES:
            return False
        with self._model.view(model) as data:
            return _EXTERNAL in bytes(data)

    def _finder(self) -> Callable[[memoryview], FilePart | None]:
        """Returns what finds weights in the model's file."""
        return _nowhere if self._request.prove == "none" else Places(self._model).find

    def _parsed(self, engine: Installed, model: Extent) -> ParsedNetwork:
        # The parser has a copy.
        with self._model.view(model) as data:
            network = engine.accept(data, self._request.model)
        if network is None:
            raise BuildFailed("TensorRT's parser refuses the model")
        return network

    def _snapshot(self, network: ParsedNetwork, model: Extent, plan: BuildPlan | None) -> Snapshot:
        layers = None if self._request.prove == "none" else network.read_back()
        return Snapshot(
            model=model,
            plan=plan,
            inputs=tuple(network.inputs),
            outputs=tuple(network.outputs),
            shape_inputs=tuple(network.shape_inputs),
            layer_count=network.layer_count,
            deconvolutions=tuple(network.deconvolutions),
            network=None if layers is None else dataclasses.replace(layers, keep_alive=None),
            words=self._new_words(),
        )

    def _engine_of(self, network: ParsedNetwork, plan: BuildPlan) -> tuple[EngineBlob, float]:
        """Returns the engine, and how many seconds it took."""
        self._networks.close()
        start = time.perf_counter()
        blob = network.build(plan, self._phase)
        return blob, time.perf_counter() - start

    def _hand_over(self, blob: EngineBlob, seconds: float) -> None:
        engine = self._engine.append(blob.data)
        self._tell(EngineMessage(engine, blob.warnings, blob.findings, seconds, self._new_words()))

    def _phase(self, name: str, step: int, steps: int) -> bool:
        now = time.monotonic()
        if now > self._phase_time + _PHASE_SECONDS:
            self._phase_time = now
            self._tell(PhaseMessage(name, step, steps))
        return True

    def _new_words(self) -> Words:
        log = tuple(self._log)
        self._log.clear()
        return Words(log, os.fstat(2).st_size)

    def _tell(self, message: Message) -> None:
        data = pickle.dumps(message)
        data = len(data).to_bytes(LENGTH_BYTES, "big") + data
        while data:
            data = data[os.write(self._pipe, data) :]

    def _hear(self) -> BuildPlan | Extent:
        """Returns what the command says: what to build, or where another model is; its end ends this process too."""
        order: BuildPlan | Extent = pickle.load(self._orders)
        return order


def _nowhere(_: memoryview) -> None:
    """Finds no weight in a file."""


def _is_sure(network: ParsedNetwork) -> bool:
    """Whether a network has no sizes to be chosen, and no deconvolution that passes would write anew, or name."""
    is_static = not network.shape_inputs and all(-1 not in tensor.shape for tensor in network.inputs)
    return is_static and all(
        layer.padding_mode.startswith("EXPLICIT")
        and layer.pre_padding == layer.post_padding
        and not layer.onnx_node.startswith(_UNNAMED)
        for layer in network.deconvolutions
    )


def _plan_of(request: BuildRequest, info: RuntimeInfo) -> BuildPlan:
    """Returns what a builder is told where nothing has a size of its own; the command compares it with its plan."""
    version = None if request.target is None else request.target.version
    return BuildPlan(Target(info.family, version) if version else info.target, **shared(request, BuildSettings))


@contextlib.contextmanager
def _rationed(size: int) -> Iterator[None]:
    """Holds this process to what it may take of time and memory to look at a model; beyond that it ends."""
    import resource

    seconds, megabytes = budget.allowance(size)
    times = os.times()
    usage = budget.held_megabytes(os.getpid())
    limits = {
        resource.RLIMIT_CPU: int(times.user + times.system + seconds + 1),
        resource.RLIMIT_DATA: int((usage + megabytes) * 1e6),
    }
    usual = {kind: resource.getrlimit(kind) for kind in limits}
    for kind, most in limits.items():
        soft, hard = usual[kind]
        ceilings = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(ceilings), hard))
    try:
        yield
    finally:
        for kind, before in usual.items():
            resource.setrlimit(kind, before)
