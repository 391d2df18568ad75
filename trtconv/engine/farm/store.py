"""A folder of jobs, results and the files that these are about, each file under its SHA-256."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from trtconv.core.decode import Fault, checked_schema, decoded, json_of
from trtconv.core.documents.farm import JobResult
from trtconv.core.errors import InputError
from trtconv.core.files import atomic_stream, atomic_write, real_path
from trtconv.core.reading import open_plain, sha256_of

Bytes = TypeVar("Bytes", bound="bytes | memoryview")
_SHA256 = re.compile(r"[0-9a-f]{64}")
RESULT = ".result.json"
_MOST_RESULT = 64 << 20
"""Bytes of a result, without the engine."""


class Store:
    """A folder that several machines may see; nothing in it is ever changed.

    Args:
        root: The folder; made when something is put in.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, data: bytes | memoryview) -> str:
        """Keeps a file's content; returns its SHA-256."""
        sha = hashlib.sha256(data).hexdigest()
        if not self.has(sha):
            atomic_write(self._inside(self._path(sha)), data)
        return sha

    def put_file(self, sha: str, path: Path) -> None:
        """Keeps a copy of a file.

        Args:
            sha: Its SHA-256.
            path: Where it lies.

        Raises:
            InputError: It has another one meanwhile, or cannot be read.
        """
        if self.has(sha):
            return
        try:
            with open_plain(path) as source, atomic_stream(self._inside(self._path(sha))) as copy:
                digest = hashlib.sha256()
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    copy.write(chunk)
                if digest.hexdigest() != sha:
                    raise InputError(f"{path} was changed while it was read", "Leave it as it is until it is built.")
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", "Check the file.") from error

    def get(self, sha: str, size: int) -> bytes:
        """Returns the content of the file with a SHA-256.

        Args:
            sha: The SHA-256.
            size: Its bytes; a file of another size is not even read.

        Raises:
            InputError: There is none, or it was changed.
        """
        path = self._path(sha)
        try:
            with open_plain(path) as file:
                data = b"" if os.fstat(file.fileno()).st_size != size else file.read(size)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}", "Copy the whole folder.") from error
        return intact(data, sha, str(self.root))

    def has(self, sha: str) -> bool:
        """Whether there is a file with a SHA-256; one that was changed meanwhile is not."""
        try:
            return sha256_of(self._path(sha)) == sha
        except OSError:
            return False

    def put_job(self, name: str, document: dict[str, object]) -> Path:
        """Keeps a job under its name; returns its file."""
        return self._write(self.root / f"{_checked(name)}.json", document)

    def put_result(self, result: JobResult) -> None:
        """Keeps the result of a job, in the place of an earlier one."""
        self._write(self.root / f"{_checked(result.job)}{RESULT}", result.to_json())

    def result(self, name: str) -> Any:
        """Returns the result of a job as JSON; None where there is none that can be read."""
        try:
            with open_plain(self.root / f"{_checked(name)}{RESULT}") as file:
                if os.fstat(file.fileno()).st_size > _MOST_RESULT:
                    return None
                return json_of(file.read(_MOST_RESULT))
        except (OSError, ValueError, RecursionError):
            return None

    def finished(self, name: str, then: Iterable[str]) -> JobResult | None:
        """Returns the result of a job that ended well, and did all that was to follow; None where there is none."""
        try:
            result = decoded(JobResult, checked_schema(self.result(name)))
        except Fault:
            return None
        return result if result.error is None and result.then.keys() >= set(then) else None

    def answer(self, name: str, then: Iterable[str]) -> JobResult | None:
        """Returns what `finished` does, where its engine is there too, and is not another one."""
        result = self.finished(name, then)
        try:
            engine = None if result is None else result.engine
            return result if engine is None or self.has(engine.sha256 or "") else None
        except (Fault, InputError):
            return None

    def touch(self, result: JobResult) -> None:
        """Remembers that a result was used: what nobody uses is removed first."""
        with contextlib.suppress(OSError, Fault, InputError, NotImplementedError):
            os.utime(self.root / f"{_checked(result.job)}{RESULT}", follow_symlinks=False)
            if result.engine is not None:
                os.utime(self._path(result.engine.sha256 or ""), follow_symlinks=False)

    def _path(self, sha: str) -> Path:
        return self.root / "sha256" / _checked(sha)[:2] / sha

    def _write(self, path: Path, document: dict[str, object]) -> Path:
        atomic_write(self._inside(path), (json.dumps(document, indent=2) + "\n").encode())
        return path

    def _inside(self, path: Path) -> Path:
        """Returns where something is written; raises InputError where a link leads out of the store."""
        if not real_path(path.parent).is_relative_to(real_path(self.root)):
            raise InputError(f"{path.parent} is a link that leads out of {self.root}", "Remove it.")
        return path


def intact(data: Bytes, sha: str, origin: str) -> Bytes:
    """Returns data that came from elsewhere.

    Raises:
        InputError: Its SHA-256 is another one.
    """
    if hashlib.sha256(data).hexdigest() != sha:
        raise InputError(
            f"{origin}: a file has not the SHA-256 {sha} that it should have",
            "Copy the folder again, or make it again.",
        )
    return data


def _checked(name: str) -> str:
    if not _SHA256.fullmatch(name):
        raise InputError(f"{name!r} is no SHA-256", "Take names as trtconv plan --write made them.")
    return name
