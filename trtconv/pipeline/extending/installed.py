"""Extensions that installed packages offer (entry points of `trtconv.extensions`): listed, and off until named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from trtconv.core.agreement import CodeFile
from trtconv.core.documents.extension import InstalledExtension
from trtconv.core.errors import InputError
from trtconv.core.process import trusted_path
from trtconv.core.reading import sha256_of

GROUP = "trtconv.extensions"


def installed() -> tuple[InstalledExtension, ...]:
    """Returns what is offered, by name; no module of any is imported, and none of the working directory is seen."""
    extensions = []
    for entry, package, file in _offers():
        sha256 = sha256_of(file) if file is not None else ""
        extensions.append(InstalledExtension(entry.name, package, entry.value, sha256))
    return tuple(sorted(extensions, key=lambda extension: (extension.name, extension.package)))


def located(files: Sequence[CodeFile]) -> tuple[CodeFile, ...]:
    """Returns files of code with the module's file in place of the name of an extension that is installed.

    Raises:
        InputError: Several packages offer one of that name, or its file is not there.
    """
    return tuple(_located(file) for file in files)


def _located(file: CodeFile) -> CodeFile:
    name = file.path.name
    # A configuration names it from its own folder.
    is_name = file.path.parent == (Path() if file.configuration is None else file.configuration.parent)
    if not is_name or file.path.suffix or file.path.exists():
        return file
    offers = [(package, path) for entry, package, path in _offers() if entry.name == name]
    if len(offers) == 1 and offers[0][1] is not None:
        return CodeFile(offers[0][1], file.configuration)
    if not offers:
        raise InputError(
            f"there is no file {file.path}, and no installed extension {name!r}", "'trtconv extension list' lists them."
        )
    packages = ", ".join(package for package, _ in offers)
    why = "several packages offer it" if len(offers) > 1 else "its package does not have the module's file"
    raise InputError(f"extension {name!r} of {packages}: {why}", "Name the file: --extend FILE.py.")


def _offers() -> Iterator[tuple[metadata.EntryPoint, str, Path | None]]:
    """Yields the entry points of all packages, each with its package and the file of its module."""
    earlier = set()
    for distribution in metadata.distributions(path=trusted_path()):
        name = distribution.metadata["Name"] or ""
        # One that is on the path twice is what is found first, as for imports.
        if name in earlier:
            continue
        earlier.add(name)
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                yield entry, f"{name} {distribution.version}", _file(distribution, entry.value)


def _file(package: metadata.Distribution, value: str) -> Path | None:
    stem = value.partition(":")[0].strip().replace(".", "/")
    names = (f"{stem}.py", f"{stem}/__init__.py")
    for entry in package.files or ():
        path = Path(str(package.locate_file(entry)))
        if entry.as_posix() in names and path.is_file():
            return path
    return None
