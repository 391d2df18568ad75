"""TOML files, which a stranger may have written."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.errors import InputError
from trtconv.core.reading import read_plain

_LONGEST = 1 << 20
_MOST_PARTS = 1000
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


def read_toml(path: Path) -> Mapping[str, Any]:
    """Reads a TOML file.

    Raises:
        InputError: It cannot be read, or is no TOML.
    """
    # Loaded only here: most calls read no such file.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        # Editors on Windows begin a file with a byte order mark.
        text = read_plain(path, _LONGEST).decode("utf-8-sig")
        # Some of what TOML allows takes its reader a time that is quadratic in its length.
        if any(_TEXT.sub("", line).count(".") > _MOST_PARTS for line in text.splitlines()):
            raise InputError(f"{path} has a key of too many parts", "Write it by hand.")
        document: Mapping[str, Any] = tomllib.loads(text)
        return document
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "Check the path of the configuration.") from error
    except (ValueError, RecursionError) as error:
        hint = "Write [[models]], in double brackets." if "('models',)" in str(error) else "Correct the file."
        raise InputError(f"{path} is not TOML: {str(error)[:300]}", hint) from error
