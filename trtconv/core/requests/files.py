"""Which files a request has a command read; none of them is written over."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trtconv.core.agreement import CodeFile
from trtconv.core.documents.pipeline import is_pipeline, load_document
from trtconv.core.errors import InputError
from trtconv.core.files import report_beside
from trtconv.core.options import options
from trtconv.core.samples import files_of

_SUBJECTS = {"model": "the model itself", "engine": "the engine", "path": "the engine", "spec": "what is exported"}
"""Field that no flag says to what it is."""
_MOST_KEYS = 100


def files_read(request: object) -> list[tuple[str, Path]]:
    """Returns what a request has a command read, so far as it names it: model, engine and its report, samples, code.

    Raises:
        InputError: What it names has more files than anybody means, or pipes and devices among its samples.
    """
    kind: type = type(request)
    files = [(what, file) for name, what in _reading(kind) for file in _files(getattr(request, name, None))]
    for _, path in [entry for entry in files if is_pipeline(entry[1])]:
        # One that cannot be read is an error for whoever reads it.
        with contextlib.suppress(InputError):
            files += [("a file of the pipeline", file) for file in load_document(path).files()]
    # Its own report may be given, and lie elsewhere.
    lacking = ("an engine",) if getattr(request, "report", None) else ("an engine", "the engine")
    return files + [("the report of an engine", report_beside(path)) for what, path in files if what in lacking]


@functools.cache
def _reading(kind: type) -> tuple[tuple[str, str], ...]:
    """Returns the fields of a class of requests that name what is read, and what that is; not every object has all."""
    declared = dict(options(kind))
    subjects = ((name, what) for name, what in _SUBJECTS.items() if name not in declared)
    return (*subjects, *((name, option.reads) for name, option in declared.items() if option.reads))


def _files(value: Any) -> Iterator[Path]:
    if isinstance(value, tuple):
        for entry in value:
            yield from _files(entry)
    elif isinstance(value, CodeFile):
        yield value.path
    elif isinstance(value, Path):
        yield value
        if value.is_dir():
            # Of keys; nobody has more than a few.
            yield from itertools.islice(value.iterdir(), _MOST_KEYS)
    elif value is not None:
        yield from files_of(value)
