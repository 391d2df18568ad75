"""What `share` made."""

from __future__ import annotations

from trtconv.core.documents.parts import RuntimeIdentity
from trtconv.core.documents.reduce import PartReport
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
    PartReport,
    keys="schema model output page failure runtime nodes=counts trials minimal constants checks commands exit_code",
):
    """What `trtconv share` made: a part in names of its own. The files that are shared do not have `model`.

    Args:
        page: Path of the page about it.
        runtime: The TensorRT that it fails on.
        constants: Its constants.
        checks: What was looked for in it.
        commands: What shows the failure.
    """

    page: str
    runtime: RuntimeIdentity
    constants: tuple[SharedConstant, ...]
    checks: ShareChecks
    commands: ShareCommands
    exit_code: int = 0
