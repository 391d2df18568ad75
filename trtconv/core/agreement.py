"""Agreement to code: what a call itself names is run; what a configuration names, once the call agrees by its SHA-256.

A configuration may be a stranger's, and native code or Python that it names could do whatever its user may.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.options import option
from trtconv.core.reading import read_plain, sha256_of

_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.IGNORECASE)
_LONGEST = 1 << 24
"""Bytes of a Python file."""


@frozen
class CodeFile:
    """A file of code that somebody names.

    Args:
        path: The file.
        configuration: The configuration that names it; None: the command line does, or a call from Python.
    """

    path: Path
    configuration: Path | None = None

    @classmethod
    def named(cls, files: Sequence[str | Path | CodeFile]) -> tuple[CodeFile, ...]:
        """Returns files that the command line names, or a call from Python; each once."""
        return tuple(dict.fromkeys(file if isinstance(file, CodeFile) else cls(Path(file)) for file in files))

    @classmethod
    def configured(cls, files: Sequence[str]) -> tuple[CodeFile, ...]:
        """Returns files that a configuration names; it says itself which one it is (`of`)."""
        return tuple(dict.fromkeys(cls(Path(file), Path("trtconv.toml")) for file in files))

    def of(self, configuration: Path) -> CodeFile:
        """Returns the file as a configuration means it: from its own folder."""
        return CodeFile(configuration.parent / self.path, configuration)

    def __str__(self) -> str:
        return str(self.path)


@frozen
class AgreedCode:
    """A file of code that may be loaded.

    Args:
        path: The file.
        sha256: What it was when it was agreed to.
    """

    path: Path
    sha256: str

    def require_unchanged(self) -> None:
        """Raises InputError where the file is no longer what was agreed to."""
        if agreed([CodeFile(self.path)], ()) != (self,):
            raise InputError(f"{self.path} was changed while it was in use", "Run the command again.")

    def read(self) -> str:
        """Returns the Python that was agreed to, to be run without looking at the file again.

        Raises:
            InputError: It cannot be read, or was changed since.
        """
        import hashlib

        try:
            data = read_plain(self.path, _LONGEST)
            text = data.decode("utf-8-sig")
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path} cannot be read: {error}", "Give a Python file.") from error
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise InputError(f"{self.path} was changed while it was in use", "Run the command again.")
        return text


def agreed(files: Sequence[CodeFile], agreements: Collection[str]) -> tuple[AgreedCode, ...]:
    """Returns the files that may be loaded, which is all of them; nothing is loaded here.

    Args:
        files: What the call and the configuration name.
        agreements: SHA-256 of the files that the call agrees to, in hexadecimal.

    Raises:
        InputError: A file cannot be read, or a configuration names it and the call does not agree.
    """
    entries = tuple(AgreedCode(file.path, _sha256(file)) for file in files)
    missing = [
        (file, entry.sha256)
        for file, entry in zip(files, entries, strict=True)
        if file.configuration is not None and entry.sha256 not in agreements
    ]
    if missing:
        file, _ = missing[0]
        flags = " ".join(f"--agree {sha256}" for _, sha256 in missing)
        raise InputError(
            f"{file.configuration} names code, {', '.join(str(entry) for entry, _ in missing)}, "
            "and no configuration makes trtconv run any",
            f"If you know what it does, agree to it: {flags}",
        )
    return entries


def _sha256(file: CodeFile) -> str:
    try:
        return sha256_of(file.path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        source = "the command line" if file.configuration is None else str(file.configuration)
        raise InputError(f"{file.path} cannot be read: {why}", f"{source} names it as code to load.") from error


def _agreements(texts: Sequence[str]) -> tuple[str, ...]:
    """Reads `--agree`."""
    digests = []
    for text in texts:
        match = _SHA256.fullmatch(text.strip())
        if match is None:
            raise InputError(f"--agree {text!r} is not a SHA-256", "It has 64 hexadecimal digits: sha256sum FILE.")
        digests.append(match.group(1).lower())
    return tuple(digests)


AGREE: Any = option(
    "--agree",
    "Agree to a file of code that trtconv.toml names (plugins, references, extend), by its SHA-256. Repeatable.",
    metavar="SHA256",
    many=True,
    default=(),
    read=_agreements,
    write=list,
)
"""SHA-256 of the files of code that the call agrees to; no configuration can say it."""


def code_option(names: str, help: str, *, metavar: str, key: str, about: str) -> Any:
    """Declares a repeatable option that names files of code, with its key of trtconv.toml.

    Args:
        names: The flag, as "--reference".
        help: Its text on the help page.
        metavar: What stands for a file there.
        key: Its key.
        about: The key's description.
    """
    return option(
        names,
        help,
        metavar=metavar,
        many=True,
        default=(),
        read=CodeFile.named,
        write=lambda files: [str(file) for file in files],
        key=key,
        about=about,
        schema={"type": "array", "items": {"type": "string", "minLength": 1}},
        load=CodeFile.configured,
        save=lambda files: ([str(file) for file in files],),
        reads="code that is loaded",
    )
