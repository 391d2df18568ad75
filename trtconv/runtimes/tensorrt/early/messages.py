"""What the process that builds early tells the command."""

from __future__ import annotations

from trtconv.core.documents.build import BuildPlan
from trtconv.core.documents.tensors import TensorInfo
from trtconv.core.findings import Finding
from trtconv.core.frozen import frozen
from trtconv.runtimes.tensorrt.base import DeconvLayer, RuntimeInfo
from trtconv.runtimes.tensorrt.early.memory import Extent
from trtconv.runtimes.tensorrt.readback.records import ReadNetwork


@frozen
class Words:
    """What was said since the last message.

    Args:
        log: What TensorRT logged: severities and texts.
        stderr: How many bytes of stderr there are by now; behind these is what is said when something goes wrong.
    """

    log: tuple[tuple[str, str], ...]
    stderr: int


@frozen
class Greeting:
    """TensorRT is loaded, and can build here."""

    info: RuntimeInfo


@frozen
class NetworkMessage:
    """The network is parsed.

    Args:
        snapshot: Where in the shared memory the `Snapshot` of it is; a pipe would not take all of it at once.
    """

    snapshot: Extent


@frozen
class Snapshot:
    """A parsed network, as far as a build looks at it.

    Args:
        model: Where in the shared memory the bytes are that the parser was given.
        plan: What it is built with; None: what the command says.
        network: All layers; None where nothing is to be proven.
    """

    model: Extent
    plan: BuildPlan | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    shape_inputs: tuple[str, ...]
    layer_count: int
    deconvolutions: tuple[DeconvLayer, ...]
    network: ReadNetwork | None
    words: Words


@frozen
class PhaseMessage:
    """A phase of the builder; see `BuildMonitor`."""

    name: str
    step: int
    steps: int


@frozen
class EngineMessage:
    """The engine is built.

    Args:
        engine: Where in the shared memory it is.
        warnings: As in `EngineBlob`.
        findings: Likewise.
        seconds: What that took.
    """

    engine: Extent
    warnings: tuple[str, ...]
    findings: tuple[Finding, ...]
    seconds: float
    words: Words


Message = Greeting | NetworkMessage | PhaseMessage | EngineMessage
