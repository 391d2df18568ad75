"""A TensorRT that does as it is told, for tests of what is built on the `Runtime` protocol.

    runtime = FakeRuntime()                                            accepts every model, builds a tiny engine
    runtime = FakeRuntime(refuses=[issue(2, "NonZero", "no plugin")])  refuses it
    runtime = FakeRuntime(FakeNetwork(deconvolutions=(deconv("up"),))) has these layers
    runtime = FakeRuntime(FakeNetwork(warnings=("Half is slow",)))     builds with warnings
    runtime = FakeRuntime(FakeNetwork(failure=BuildFailed("no")))      fails to build

What it was asked is in `runtime.parsed` and `network.built`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.errors import BuildFailed, EngineFailed
from trtconv.core.findings import Finding
from trtconv.runtimes.tensorrt.base import (
    BuildMonitor,
    Capabilities,
    DeconvLayer,
    EngineBlob,
    ParserIssue,
    PluginCreator,
    RuntimeInfo,
)
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork

RTX = Capabilities(
    builder_precision_flags=False,
    explicit_batch_flag=False,
    progress_monitor=True,
    parser_node_names=True,
    builds_without_gpu=True,
)
TENSORRT_8 = Capabilities(
    builder_precision_flags=True,
    explicit_batch_flag=True,
    progress_monitor=False,
    parser_node_names=False,
    builds_without_gpu=False,
)


def issue(index: int, op: str, message: str, node: str = "") -> ParserIssue:
    """Makes a refusal."""
    return ParserIssue(index, node, op, message)


def deconv(onnx_node: str, **changes: Any) -> DeconvLayer:
    """Makes a deconvolution: 3x3, stride 2, 8x8 to 17x17, unless told otherwise."""
    layer = DeconvLayer(
        name=onnx_node,
        onnx_node=onnx_node,
        kernel=(3, 3),
        stride=(2, 2),
        dilation=(1, 1),
        pre_padding=(0, 0),
        post_padding=(0, 0),
        padding_mode="EXPLICIT_ROUND_DOWN",
        groups=1,
        out_channels=4,
        has_bias=True,
        input_shape=(1, 3, 8, 8),
        output_shape=(1, 4, 17, 17),
        output=f"{onnx_node}_output",
    )
    return dataclasses.replace(layer, **changes)


@dataclasses.dataclass
class FakeNetwork:
    """A parsed network that builds as scripted; implements `ParsedNetwork`.

    Args:
        refused: What `faults` says.
        failure: Raised by `build`.
        phases: What a monitor is told; the build counts as cancelled where it returns False.
        built: Every plan that was built.
    """

    layer_types: Sequence[str] = ()
    deconvolutions: Sequence[DeconvLayer] = ()
    inputs: Sequence[TensorInfo] = (TensorInfo("x", "input", "float32", (1, 3, 8, 8)),)
    outputs: Sequence[TensorInfo] = (TensorInfo("y", "output", "float32", (-1, -1, -1, -1)),)
    shape_inputs: Sequence[str] = ()
    engine: bytes = b"ptrt\0engine"
    warnings: tuple[str, ...] = ()
    failure: BaseException | None = None
    phases: Sequence[tuple[str, int, int]] = (("Building engine", 0, 1), ("Building engine", 1, 1))
    refused: tuple[Finding, ...] = ()
    read: ReadNetwork = dataclasses.field(default_factory=lambda: ReadNetwork((), (), (), ()))
    built: list[BuildPlan] = dataclasses.field(default_factory=list)

    @property
    def layer_count(self) -> int:
        return len(self.layer_types)

    def read_back(self) -> ReadNetwork:
        return self.read

    def faults(self, plan: BuildPlan) -> tuple[Finding, ...]:
        return self.refused

    def build(self, plan: BuildPlan, monitor: BuildMonitor | None = None) -> EngineBlob:
        self.built.append(plan)
        if monitor is not None and not all(monitor(*phase) for phase in self.phases):
            raise BuildFailed("the build was cancelled")
        if self.failure is not None:
            raise self.failure
        return EngineBlob(memoryview(self.engine), self.warnings)


class FakeRuntime:
    """A runtime that answers as scripted; implements `Runtime`.

    Args:
        network: What `parse` returns where it refuses nothing.
        refuses: The nodes that it refuses, or a function that is given the model and says.
        family: As in `RuntimeInfo`, as are the others.
    """

    def __init__(
        self,
        network: FakeNetwork | None = None,
        *,
        refuses: Sequence[ParserIssue] | Callable[[bytes], Sequence[ParserIssue]] = (),
        family: str = "rtx",
        version: str = "1.7.1.116",
        gpu: str | None = None,
        capabilities: Capabilities = RTX,
    ) -> None:
        self.network = network or FakeNetwork()
        self.info = RuntimeInfo(family, version, gpu, capabilities)
        self.parsed: list[tuple[bytes, Path]] = []
        self._refuses = refuses

    def creators(self) -> tuple[PluginCreator, ...]:
        return ()

    def parse(self, model: bytes, path: Path) -> FakeNetwork | tuple[ParserIssue, ...]:
        self.parsed.append((model, path))
        refused = self._refuses(model) if callable(self._refuses) else self._refuses
        return tuple(refused) or self.network

    def engines(self) -> Any:
        raise EngineFailed("no engine runs here")
