"""An answer whose line was lost on its way goes on where it ended: only the bytes that are missing are sent again."""

from __future__ import annotations

import dataclasses
import hashlib

from trtconv.core.frozen import frozen
from trtconv.engine.farm.wire import Done, Failed, Gone, Submit


@frozen
class Beginning:
    """What came of an engine before its line was lost.

    Args:
        digest: Of the answer that it belongs to.
        data: Its first bytes.
    """

    digest: str
    data: bytes

    def rest_of(self, submit: Submit) -> Submit:
        """Returns the same job, for somebody who has so much of the answer."""
        return dataclasses.replace(submit, digest=self.digest, got=len(self.data))


def beginning(cut: tuple[Done, bytes], earlier: Beginning | None) -> Beginning:
    """Returns what there is of the engine that a line was lost with.

    Args:
        cut: The answer, and what came of its engine.
        earlier: What had come before, over another line.

    Raises:
        Gone: The first part that was left out is not here.
    """
    answer, data = cut
    return Beginning(digest_of(answer), _joined(answer, data, earlier))


def whole(answer: Done, engine: bytes, earlier: Beginning | None) -> bytes:
    """Returns all of an engine of which the last part came.

    Raises:
        Gone: The first part that was left out is not here.
    """
    return _joined(answer, engine, earlier) if answer.skipped else engine


def rest(submit: Submit, answer: Done | Failed, files: list[bytes]) -> tuple[Done | Failed, list[bytes]]:
    """Returns of an answer what is missing at the end that asks."""
    if not isinstance(answer, Done) or not submit.got or submit.digest != digest_of(answer):
        return answer, files
    return dataclasses.replace(answer, skipped=submit.got), [file[submit.got :] for file in files]


def digest_of(answer: Done) -> str:
    """Returns what tells an answer from others to the same job: two builds may differ."""
    return hashlib.sha256(answer.result.encode(errors="surrogatepass")).hexdigest()


def _joined(answer: Done, data: bytes, earlier: Beginning | None) -> bytes:
    if not answer.skipped:
        return data
    if earlier is None or earlier.digest != digest_of(answer) or len(earlier.data) != answer.skipped:
        raise Gone("the first part of an engine is missing")
    return earlier.data + data
