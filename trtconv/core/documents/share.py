"""What `share` made."""

from __future__ import annotations

from trtconv.core.documents.parts import FileIdentity, RuntimeIdentity
from trtconv.core.documents.reduce import Failure
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class SharedConstant(Document):
    """A constant of what is shared.

    Args:
        name: What it is called there.
        dtype: Name of its type, as numpy has it.
        shape: Its sizes.
        values: What it has of the model's own: "random, ...", "as it was", or "given as an input".
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: str


@frozen
class ShareChecks(Document):
    """What was looked for in the files, and is not there.

    Args:
        names: Number of names and texts of the model.
        weight_bytes: Bytes of its weights.
    """

    names: int
    weight_bytes: int


@frozen
class ShareCommands(Document, keys="trtconv=own tool? polygraphy?"):
    """What shows the failure of the part.

    Args:
        own: With trtconv.
        tool: With NVIDIA's own tool; empty where only trtconv shows it.
        polygraphy: With Polygraphy; likewise.
    """

    own: str
    tool: str = ""
    polygraphy: str = ""


@frozen
class ShareReport(
    Document,
    keys="schema model output page failure runtime nodes=counts trials minimal constants checks commands exit_code",
):
    """What `trtconv share` made.

    Args:
        model: Path and SHA-256 of the whole; the files that are shared have neither.
        output: Path, SHA-256 and bytes of the part.
        page: Path of the page about it.
        failure: How the part fails, in its own names.
        runtime: The TensorRT that it fails on.
        nodes_before: Nodes of the whole.
        nodes: Nodes of the part.
        trials: Number of parts that were tried.
        minimal: Whether the trials sufficed to make it as small as it goes.
        constants: Its constants.
        checks: What was looked for in it.
        commands: What shows the failure.
    """

    model: FileIdentity
    output: FileIdentity
    page: str
    failure: Failure
    runtime: RuntimeIdentity
    nodes_before: int
    nodes: int
    trials: int
    minimal: bool
    constants: tuple[SharedConstant, ...]
    checks: ShareChecks
    commands: ShareCommands
    exit_code: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Nodes of the whole and of the part."""
        return {"before": self.nodes_before, "after": self.nodes}
