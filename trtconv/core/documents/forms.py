"""The form of JSON that was written by trtconv once and may have been changed by anybody since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from trtconv.core.encode import parsed
from trtconv.core.errors import InputError

CHECKSUM = "body_sha256"
"""Key of a report under which the checksum of the others stands. No signature: who changes both is not noticed."""
SIGNATURE = "signature"
"""Key of a report under which a signature of that checksum may stand (core/signatures.py)."""
_NUMBER = (int, float)
_DIMS = [(int, str, type(None))]
_FILE = {"path": str, "sha256": str, "bytes": int}
_SOME_DIM = {
    "min": int,
    "max": int,
    "step": (int, type(None)),
    "offset": (int, type(None)),
    "valid": ([int], type(None)),
}
_LATTICE = {"dims": {str: _SOME_DIM}, "joint": [str], "imposed": [{"text": str}]}
REPORT: dict[Any, Any] = {
    "schema": int,
    "trtconv": str,
    "source": str,
    "model": _FILE,
    "plan": {"target": str, "precision": str, "options": {str: object}},
    "profiles": [{str: {str: object}}],
    "dims": [{str: str}],
    "lattice": (_LATTICE, type(None)),
    "notes": [str],
    "tuned": [{"node": str, "layer": str, "form": str, "usual": str, "us": {str: (*_NUMBER, type(None))}}],
    "edits": [{"pass": str, "node": str, "what": str}],
    "skipped": [{"pass": str, "node": str, "reason": str}],
    "findings": [{str: object}],
    "ignored": [{str: object}],
    "runtime": {"family": str, "version": str, "gpu": (str, type(None))},
    "worker": (str, type(None)),
    "engine": (_FILE, type(None)),
    "seconds": {str: _NUMBER},
    "io": [{"name": str, "kind": str, "dtype": str, "shape": _DIMS}],
    "inputs": [{"name": str, "dtype": str, "dims": _DIMS}],
    "exit_code": int,
    "signed_by": (str, type(None)),
    SIGNATURE: (str, type(None)),
}
"""What the report of a build looks like, as far as anything is read from it; keys that are left out are not missed."""
_HINT = "Build the engine again, with this version of trtconv."


def fits(value: Any, form: Any) -> bool:
    """Whether a JSON value has a form.

    Args:
        value: The value.
        form: A type; a tuple of forms, one of which it has; a list of one form, which all entries have; a dict of keys
            to forms, or of `str` to the form of every entry.
    """
    if isinstance(form, tuple):
        return any(fits(value, each) for each in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(each, form[0]) for each in value)
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return False
        return all(fits(each, form.get(key, form.get(str, object))) for key, each in value.items())
    return isinstance(value, form) and (form is object or not isinstance(value, bool))


def read_report(data: bytes) -> dict[str, Any]:
    """Reads the report of a build.

    Raises:
        InputError: It is no JSON, has another form, or was changed.
    """
    try:
        return checked_report(parsed(data))
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is no JSON: {type(error).__name__}: {str(error)[:200]}", _HINT) from error


def checked_report(document: Any) -> dict[str, Any]:
    """Returns a JSON value that is the report of a build.

    Raises:
        InputError: It has another form, or was changed.
        ValueError, RecursionError: It is no JSON value.
    """
    if not fits(document, REPORT):
        raise InputError("it is no report of a build, or was changed", _HINT)
    said = document.get(CHECKSUM)
    if said is not None and said != checksum(document):
        raise InputError("it was changed after it was written", _HINT)
    return dict(document)


def checksum(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of all of a document but its checksum and its signature."""
    rest = {key: value for key, value in document.items() if key not in (CHECKSUM, SIGNATURE)}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
