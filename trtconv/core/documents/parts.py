"""What several documents tell of: files, the TensorRT that was there, layers that no proof reached."""

from __future__ import annotations

from pathlib import Path

from trtconv.core.documents.tactics import Tactic, require_bounded
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen
from trtconv.core.reading import sha256_of


@frozen
class FileIdentity(Document, keys="path sha256- bytes- signed_by-"):
    """A file.

    Args:
        path: Its path.
        sha256: Of its content; of a model, its external data included.
        bytes: How many it has; None where that is not told.
        signed_by: Fingerprint of the key whose signature was checked; None where none was asked for.
    """

    path: str
    sha256: str | None = None
    bytes: int | None = None
    signed_by: str | None = None

    @classmethod
    def of(cls, path: Path, signed_by: str | None = None) -> FileIdentity:
        """Tells of a file that is there."""
        return FileIdentity(str(path), sha256_of(path), path.stat().st_size, signed_by)


@frozen
class EngineIdentity(FileIdentity, keys="path sha256- bytes- signed_by- tactics-"):
    """An engine that was built.

    Args:
        tactics: Which tactic each layer got; None where that was not kept.
    """

    tactics: tuple[Tactic, ...] | None = None

    def __post_init__(self) -> None:
        require_bounded(self.tactics or ())


@frozen
class RuntimeIdentity(Document):
    """The TensorRT that was there.

    Args:
        family: "tensorrt" or "rtx".
        version: Its full version.
        gpu: Name of the GPU; None without one.
    """

    family: str
    version: str
    gpu: str | None = None

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


@frozen
class UnprovenLayer(Document):
    """A layer that could not be run without a GPU, and why."""

    layer: str
    kind: str
    reason: str


@frozen
class CodeIdentity(Document, keys="file sha256 serialized-"):
    """A file of code that was loaded: a library of plugins, or Python.

    Args:
        file: Its name, without its folder.
        sha256: Of its content.
        serialized: Whether a copy of it is in the engine; None where it is not.
    """

    file: str
    sha256: str
    serialized: bool | None = None
