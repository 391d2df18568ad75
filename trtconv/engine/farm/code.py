"""Code that jobs name by its SHA-256, and machines have: none of it travels, so no call runs what is not there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from trtconv.core.agreement import AgreedCode, CodeFile, agreed
from trtconv.core.documents.parts import CodeIdentity
from trtconv.core.encode import Document
from trtconv.core.errors import EnvironmentMissing
from trtconv.core.frozen import frozen
from trtconv.core.requests.build import BuildRequest
from trtconv.pipeline.extending.added import admit, code_of
from trtconv.pipeline.extending.installed import located

FLAGS = {"extensions": "--extend", "plugins": "--plugin", "references": "--reference"}
"""Kinds of code to the flags that give them to a worker."""


@frozen
class HeldCode:
    """Code of a machine that jobs may be built with: whoever started the worker named it.

    Args:
        extensions: Files of passes, rules and operators.
        plugins: Libraries of plugins.
        references: Files that say what operators compute.
    """

    extensions: tuple[AgreedCode, ...] = ()
    plugins: tuple[AgreedCode, ...] = ()
    references: tuple[AgreedCode, ...] = ()

    @classmethod
    def named(cls, extensions: Sequence[str], plugins: Sequence[str], references: Sequence[str]) -> HeldCode:
        """Returns what the command line names.

        Raises:
            InputError: A file is not there.
        """
        files = located(CodeFile.named(extensions)), CodeFile.named(plugins), CodeFile.named(references)
        # Jobs are done in folders of their own.
        return cls(*(tuple(_absolute(file) for file in agreed(kind, ())) for kind in files))


NO_CODE = HeldCode()
"""A machine that was given none."""


@frozen
class CodeHere:
    """Files of code on this machine, by the fields of a request that name them.

    Args:
        extend: Extensions.
        plugins: Libraries beside the engine.
        serialized_plugins: Libraries that go into it.
        references: Files of references.
    """

    extend: tuple[CodeFile, ...]
    plugins: tuple[CodeFile, ...]
    serialized_plugins: tuple[CodeFile, ...]
    references: tuple[CodeFile, ...]

    def on(self, request: BuildRequest) -> BuildRequest:
        """Returns a request that names them."""
        fields = ("extend", "plugins", "serialized_plugins", "references")
        return dataclasses.replace(request, **{name: getattr(self, name) for name in fields})


@frozen
class JobCode(Document, keys="extensions plugins references"):
    """Code that a job is built with.

    Args:
        extensions: As in `HeldCode`; so are the others.
        plugins: Those that are `serialized` go into the engine.
        references: See `HeldCode`.
    """

    extensions: tuple[CodeIdentity, ...] = ()
    plugins: tuple[CodeIdentity, ...] = ()
    references: tuple[CodeIdentity, ...] = ()

    @classmethod
    def of(cls, request: BuildRequest) -> JobCode:
        """Returns what a request names.

        Raises:
            InputError: A file is not there, or a configuration names it and the call does not agree.
        """
        code = code_of(request)
        return cls(admit(request.extend, request.agree), code.plugin_identities, code.reference_identities)

    def here(self, own_code: HeldCode) -> CodeHere:
        """Returns the same files on this machine.

        Args:
            own_code: What this machine may load.

        Raises:
            EnvironmentMissing: One is not among them.
        """
        extend, plugins, references = (tuple(self._files(kind, own_code)) for kind in FLAGS)
        inside = tuple(file for file, record in zip(plugins, self.plugins, strict=True) if record.serialized)
        outside = tuple(file for file in plugins if file not in inside)
        return CodeHere(extend, outside, inside, references)

    def _files(self, kind: str, own_code: HeldCode) -> Iterator[CodeFile]:
        files = {code.sha256: CodeFile(code.path) for code in getattr(own_code, kind)}
        for entry in getattr(self, kind):
            if entry.sha256 not in files:
                raise EnvironmentMissing(
                    f"the job goes with {kind[:-1]} {entry.file} (SHA-256 {entry.sha256}), which is not here",
                    "Start the worker, or run-job, with the same file: "
                    f"{FLAGS[kind]} {PurePosixPath(entry.file).name}.",
                )
            yield files[entry.sha256]


def _absolute(code: AgreedCode) -> AgreedCode:
    return dataclasses.replace(code, path=code.path.absolute())


def without_code(request: BuildRequest) -> BuildRequest:
    """Returns a request that names no files of code."""
    if not (request.extend or request.plugins or request.serialized_plugins or request.references):
        return request
    return dataclasses.replace(request, extend=(), plugins=(), serialized_plugins=(), references=())


def arguments(requests: Sequence[BuildRequest]) -> Iterator[str]:
    """Yields the arguments that give a worker the code of requests, for machines that see the same files."""
    options: dict[tuple[str, Path], None] = {}
    for request in requests:
        plugins = (*request.plugins, *request.serialized_plugins)
        for flag, files in zip(FLAGS.values(), (located(request.extend), plugins, request.references), strict=True):
            options.update(dict.fromkeys((flag, file.path.absolute()) for file in files))
    for flag, path in options:
        yield from (flag, str(path))
