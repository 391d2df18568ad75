"""What a build was that another one took the place of: enough to say what has changed since."""

from __future__ import annotations

from collections.abc import Mapping

from trtconv.core.decode import Measured
from trtconv.core.dims import Range
from trtconv.core.encode import Document
from trtconv.core.frozen import frozen


@frozen
class PreviousBuild(Document):
    """The build before.

    Args:
        built_by: Version of trtconv that built.
        engine_sha256: SHA-256 of the engine.
        engine_bytes: Its size.
        dims: Of each profile the bounds of dimensions.
        layers: How many layers the parsed network had, without constants; None where the report does not tell.
        edits: How many changes passes made.
        findings: Their codes, each once.
        error: The largest relative error that the proof found; None where nothing was compared.
    """

    built_by: str
    engine_sha256: str
    engine_bytes: int
    dims: tuple[Mapping[str, Range], ...]
    layers: int | None
    edits: int
    findings: tuple[str, ...]
    error: Measured | None
