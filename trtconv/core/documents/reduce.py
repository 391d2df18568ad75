"""What `reduce` found."""

from __future__ import annotations

from trtconv.core.documents.parts import FileIdentity
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class Failure:
    """One way in which a model fails on a target.

    Args:
        code: Rule code of the finding, "crash", "timeout", "memory", "verify" (the rewritten model computes something
            else), or the name of another exception.
        name: Name of the rule or kind.
        message: What was said.
        op: Operator of the node that it is about, possibly empty.
        node: Name of that node, possibly empty.
    """

    code: str
    name: str
    message: str
    op: str = ""
    node: str = ""


@frozen
class PartReport(Document):
    """A part of a model that fails as the whole does.

    Args:
        model: Path and SHA-256 of the whole.
        output: Path, SHA-256 and bytes of the part.
        failure: How both fail.
        nodes_before: Nodes of the whole.
        nodes: Nodes of the part.
        trials: Number of parts that were tried.
        minimal: Whether the trials sufficed: without any one of its nodes the part no longer fails so.
    """

    model: FileIdentity
    output: FileIdentity
    failure: Failure
    nodes_before: int
    nodes: int
    trials: int
    minimal: bool

    @property
    def counts(self) -> dict[str, int]:
        """Nodes of the whole and of the part."""
        return {"before": self.nodes_before, "after": self.nodes}


@frozen
class ReduceReport(PartReport, keys="schema model output failure nodes=counts trials minimal command exit_code"):
    """What `trtconv reduce` found; `command` shows the failure of the part."""

    command: str
    exit_code: int = 0
