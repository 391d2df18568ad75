"""The one door for what is written: which file a path means, and whether a command may replace it.

What the user types goes where he says, through a link too. A path that a configuration names, or that nobody named, is
chosen by whoever made the folder: it leads neither out of it nor through a link, and replaces nothing but what trtconv
wrote. Nothing ever replaces what the command reads. Files are told apart by what they are, and not by how they are
spelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from trtconv.core.errors import InputError
from trtconv.core.file_kinds import ENGINE, kind_of
from trtconv.core.files import report_beside
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, open_plain, read_plain, sha256_of
from trtconv.core.seal import is_sealed
from trtconv.core.spots import FileId, Spot, Spots, file_id

Input: TypeAlias = tuple[str, "str | Path | None"]
"""What a file is to a command, as in "the model itself", and its path; None where there is none."""

_ENDINGS = (".engine", ".plan", ".trt")
"""What engines are called."""
_OWN_BEGINNING = b'"trtconv": "'
_PAGE_GENERATOR = b'<meta name="generator" content="trtconv '
_HEAD_BYTES = 200
_HINT = "Choose another output path with -o."


@frozen
class Output:
    """A file that a command writes.

    Args:
        path: Where it goes.
        what: What it is, as in "the engine".
        typed: Whether the user named just this path.
        within: The folder of the configuration that named it, or what it lies beside; None: none did.
        hint: How another path is chosen.
        ours: Whether a document of trtconv's tells of the file, whatever became of it since.
    """

    path: Path
    what: str
    typed: bool = True
    within: Path | None = None
    hint: str = _HINT
    ours: bool = False

    def check(self) -> None:
        """Raises InputError where nothing may be written there, whatever else the command reads or writes."""
        spots = Spots()
        self.check_name(spots)
        self.check_disk(spots)

    def check_disk(self, spots: Spots) -> None:
        """Raises InputError where no file can be made."""
        spots.of(self.path).check_writable(self.path)

    def check_name(self, spots: Spots) -> None:
        """Raises InputError where a path that the user did not type may not be written to, and for `-`."""
        if str(self.path) == "-":
            raise InputError(f"{self.what} is not written to stdout, and '-' is not the name of a file", self.hint)
        if self.typed:
            return
        spot = spots.of(self.path)
        place = spot.place
        if spot.is_link:
            raise InputError(
                f"{self.path} is a link to {place.readlink()}, and {self.what} would be written through it",
                "Remove the link, or name another path.",
            )
        if self.within is not None:
            folder = spots.real(self.within)
            if not place.is_relative_to(folder):
                raise InputError(
                    f"{self.what} {self.path} would be written outside the folder of the configuration",
                    "Keep it inside; or build the model by itself, with -o.",
                )
            if any(part.startswith(".") for part in place.relative_to(folder).parts):
                raise InputError(
                    f"{self.what} {self.path} would be written to a hidden file or folder, which other tools read",
                    "Give it another name; or build the model by itself, with -o.",
                )
        if not self._may_replace(spot):
            raise InputError(
                f"{self.path} was not written by trtconv, and {self.what} would replace it",
                f"Move it away. {self.hint}" if self.within is None else "Move it away, or name another path.",
            )

    def _may_replace(self, spot: Spot) -> bool:
        if spot.status is None or is_replaceable(spot.place):
            return True
        # A configuration may come with documents of its own.
        return self.within is None and (self.ours or _is_told_of(spot.place))


def check_all(outputs: Sequence[Output], inputs: Iterable[Input], *, and_disk: bool = True) -> None:
    """Checks, before the work, all that a command is to write.

    Args:
        outputs: What it writes.
        inputs: What it reads.
        and_disk: Whether a file is made in each folder, to see whether that is possible.

    Raises:
        InputError: An output cannot be written, or would replace an input or another output.
    """
    sources = {file_id(Path(path)): what for what, path in inputs if path is not None}
    targets: dict[FileId, str] = {}
    spots = Spots()
    for output in outputs:
        key = spots.of(output.path).id
        if key in sources:
            kind = None if output.typed else kind_of(output.path)
            if kind is not None:
                # The user named no output: that it is no model is what he has to know.
                raise InputError(f"{output.path} is {kind.name}, not an ONNX model", kind.advice)
            raise InputError(f"{output.path} is {sources[key]}, and {output.what} would replace it", output.hint)
        if key in targets:
            both = f"both {targets[key]} and {output.what}"
            role = f"{output.what} of two entries" if targets[key] == output.what else both
            raise InputError(f"{output.path} is {role}", "Choose two paths.")
        output.check_name(spots)
        if and_disk:
            output.check_disk(spots)
        targets[key] = output.what


def is_replaceable(path: Path) -> bool:
    """Whether nothing is lost where a file is replaced that nobody named: there is none, it is an engine, which can be
    built again, or trtconv wrote it. What it is called says nothing."""
    if not path.exists() or kind_of(path) is ENGINE:
        return True
    # A report may have been spoiled; what its engine is remains plain.
    beside = path.name.removesuffix(".json")
    is_beside = beside != path.name and beside.endswith(_ENDINGS) and kind_of(path.with_name(beside)) is ENGINE
    return is_beside or _is_report(path) or _is_page(path) or _is_reported(path) or is_sealed(path)


def _is_reported(path: Path) -> bool:
    """Whether a report of ours lies beside a file and names it by its SHA-256."""
    report = report_beside(path)
    try:
        return _is_report(report) and sha256_of(path).encode() in read_plain(report, DOCUMENT_BYTES)
    except OSError:
        return False


def _is_told_of(path: Path) -> bool:
    """Whether a report of ours beside a file tells of an engine, which the file was then."""
    report = report_beside(path)
    try:
        return _is_report(report) and b'"engine": {' in read_plain(report, DOCUMENT_BYTES)
    except OSError:
        return False


def _is_report(path: Path) -> bool:
    return _begins_with(path, _OWN_BEGINNING)


def _is_page(path: Path) -> bool:
    return path.suffix.lower() == ".html" and _begins_with(path, _PAGE_GENERATOR, 5 * _HEAD_BYTES)


def _begins_with(path: Path, words: bytes, within: int = _HEAD_BYTES) -> bool:
    """Whether words are among the first bytes of a file."""
    try:
        with open_plain(path) as file:
            return words in file.read(within)
    except (OSError, ValueError):
        return False
