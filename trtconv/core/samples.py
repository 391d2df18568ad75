"""The files that samples come from: what --data names, and what of a folder is a sample."""

from __future__ import annotations

import os
from pathlib import Path

from trtconv.core.errors import InputError
from trtconv.core.files import files_below

ARRAYS = frozenset({".npy", ".npz"})
"""What the names of arrays end in."""
IMAGES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""What the names of images end in."""


def function_of(text: str) -> tuple[Path, str] | None:
    """Returns the file and the function of FILE.py:FUNCTION; None where the text is none."""
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon and path.endswith(".py") else None


def files_of(text: str) -> list[Path]:
    """Returns the files that are read for a folder of samples, a file, or FILE.py:FUNCTION.

    Raises:
        InputError: The folder has too many, or one that is not a plain file.
    """
    path = Path(text)
    if path.is_dir():
        return [path, *sample_files(path)]
    function = function_of(text)
    return [path if function is None else function[0]]


def sample_files(folder: Path) -> list[Path]:
    """Returns the arrays and images in a folder and below, by their names; hidden ones are left out.

    Raises:
        InputError: There are too many files, or a pipe, a device, a socket or a link to nothing has such a name.
    """
    paths = [path for path in files_below(folder, plain=False) if path.suffix.lower() in ARRAYS | IMAGES]
    samples = [path for path in paths if not path.name.startswith(".")]
    for path in samples:
        # Who counts on a sample that is left out calibrates with others than he thinks.
        if not os.path.isfile(path):  # noqa: PTH113
            raise InputError(f"{path} is not a plain file", "Remove it, or put the sample itself there.")
    return samples
