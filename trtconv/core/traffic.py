"""Tables of requests in CSV: when each came or how often, and its sizes. What is wrong is told with its line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trtconv.core.bounds import make_profile
from trtconv.core.dims import InputRange, InputSpec, Range, ShapeProfile
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import DOCUMENT_BYTES, read_plain

_MOST_ROWS = 1_000_000
_MOST_COLUMNS = 64
_LARGEST = (1 << 31) - 1
"""TensorRT takes no larger size."""
_MOST_REQUESTS = 1e15
TIME, COUNT = "time", "count"
"""The column that says when a request came, in seconds; and the one that says how often its sizes occur."""


@frozen
class TrafficRow:
    """One line of a table.

    Args:
        line: Its number in the file, from 1.
        number: Of the first column: seconds, or how many.
        sizes: Dimension name, or INPUT:AXIS, to its size.
    """

    line: int
    number: float
    sizes: Mapping[str, int]


@frozen
class Traffic:
    """A table of requests.

    Args:
        path: Where it was read.
        dims: The dimensions that are columns of it.
        rows: Its lines, in the order of the file.
    """

    path: Path
    dims: tuple[str, ...]
    rows: tuple[TrafficRow, ...]

    def distinct(self) -> dict[tuple[int, ...], TrafficRow]:
        """Returns the first row of every combination of sizes, by the sizes in the order of `dims`."""
        rows: dict[tuple[int, ...], TrafficRow] = {}
        for row in self.rows:
            rows.setdefault(tuple(row.sizes.values()), row)
        return rows

    def fixed(self, dims: Mapping[str, Range]) -> dict[str, Range]:
        """Returns the sizes that all requests have, of dimensions that are no columns.

        Raises:
            InputError: One ranges, or is a column.
        """
        for name, bound in dims.items():
            if bound.min != bound.max:
                raise InputError(f"--dim {name}={bound}: requests have one size", f"Write --dim {name}={bound.opt}.")
            if name in self.dims:
                raise InputError(f"--dim {name}, and {self.path} has a column {name!r}", "Leave out one of them.")
        return dict(dims)

    def profile_of(
        self,
        row: TrafficRow,
        fixed: Mapping[str, Range],
        inputs: Sequence[InputSpec],
        values: Mapping[str, InputRange] | None = None,
    ) -> ShapeProfile:
        """Returns the profile of one size that a request is.

        Args:
            row: The request.
            fixed: Sizes of dimensions that are no columns.
            inputs: The inputs of the model.
            values: Elements of inputs that hold shapes.

        Raises:
            InputError: There is no such dimension, or one is lacking; the message names the line.
        """
        bounds = {**fixed, **{name: Range(size, size, size) for name, size in row.sizes.items()}}
        try:
            return make_profile(inputs, bounds, values)
        except InputError as error:
            hint = (
                "The columns are dimensions, by the names that --dim takes; --dim NAME=N gives one that is no column."
            )
            raise InputError(f"{self.path}:{row.line}: {error.message}", hint) from error


def read_traffic(path: Path, column: str) -> Traffic:
    """Reads a CSV file: a line of names, then a line a request.

    Args:
        path: The file, in UTF-8. Lines that are empty or begin with "#" are left out.
        column: `TIME` or `COUNT`: the column that every line must have beside its sizes. Counts are above 0, times
            are 0 or later.

    Raises:
        InputError: It cannot be read, or is no such table; the message names the line and the column.
    """
    try:
        text = read_plain(path, DOCUMENT_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}", _form(column)) from error
    lines = _lines(path, text, column)
    number, names = next(lines, (0, []))
    _check_names(path, number, names, column)
    rows = tuple(_row(f"{path}:{line}", line, names, cells, column) for line, cells in lines)
    if not rows:
        raise InputError(f"{path} has no requests", _form(column))
    return Traffic(path, tuple(name for name in names if name != column), rows)


def _form(column: str) -> str:
    return f"Write a line of names and a line for each: {column},batch,height - then 0.5,1,256 and so on."


def _lines(path: Path, text: str, column: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cells) and not cells[0].lstrip().startswith("#"):
                if reader.line_num > _MOST_ROWS:
                    raise InputError(f"{path} has more than {_MOST_ROWS} lines", "Give a part of it.")
                yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}", _form(column)) from error


def _check_names(path: Path, line: int, names: Sequence[str], column: str) -> None:
    if not names:
        raise InputError(f"{path} is empty", _form(column))
    if column not in names:
        raise InputError(f"{path}:{line} has no column {column!r}; it has {', '.join(map(repr, names))}", _form(column))
    if len(names) > _MOST_COLUMNS:
        hint = f"Give one for each dimension, {_MOST_COLUMNS} at most."
        raise InputError(f"{path}:{line} has {len(names)} columns", hint)
    for name in names:
        if not name or names.count(name) > 1:
            what = f"the column {name!r} twice" if name else "a column without a name"
            raise InputError(f"{path}:{line} has {what}", "Name every dimension once, as --dim does.")


def _row(where: str, line: int, names: Sequence[str], cells: Sequence[str], column: str) -> TrafficRow:
    if len(cells) != len(names):
        raise InputError(f"{where} has {len(cells)} cells, and the first line {len(names)}", _form(column))
    values = dict(zip(names, cells, strict=True))
    number = _number(where, column, values.pop(column))
    return TrafficRow(line, number, {name: _size(where, name, text) for name, text in values.items()})


def _number(where: str, column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if column == COUNT and not 0 < number <= _MOST_REQUESTS:
        raise InputError(f"{where}: {column} {text!r} is not a number above 0", "Say how often these sizes occur.")
    if not 0 <= number < math.inf:
        raise InputError(f"{where}: {column} {text!r} is not a number of seconds", "Count seconds from the start.")
    return number


def _size(where: str, name: str, text: str) -> int:
    size = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
    if not 1 <= size <= _LARGEST:
        raise InputError(f"{where}: {name} {text!r} is not a size", "Give positive integers.")
    return size
