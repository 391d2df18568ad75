"""Calibration caches of TensorRT up to 10: the calibrator in the first line, then a tensor and its scale a line."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path

from trtconv.core import budget
from trtconv.core.errors import InputError
from trtconv.core.frozen import frozen
from trtconv.core.reading import CACHE_BYTES, read_plain

_HEADER = re.compile(r"TRT-(\d+)-(\w*Calibration\w*)", re.ASCII)
_SCALE = re.compile(r"[0-9a-fA-F]{8}", re.ASCII)
_HINT = "Give the file that trtexec --calib, Polygraphy or an IInt8Calibrator wrote."
LARGEST = 127
"""What TensorRT divides the largest magnitude of a tensor by."""


@frozen
class CalibrationCache:
    """What a calibrator of TensorRT found.

    Args:
        calibrator: Its kind, such as "EntropyCalibration2".
        scales: Tensor to its scale, as the float32 that the file has.
    """

    calibrator: str
    scales: Mapping[str, float]

    @property
    def ranges(self) -> dict[str, float]:
        """Tensor to the largest magnitude that its scale represents; exactly, so that the scale comes out again."""
        return {name: scale * LARGEST for name, scale in self.scales.items()}


def read_cache(path: Path) -> CalibrationCache:
    """Reads a cache.

    Args:
        path: The file. A line is "NAME: 3c010a14", the scale as the bytes of a float32, the highest first.

    Raises:
        InputError: It cannot be read, or is none; the message has the line.
    """
    try:
        data = read_plain(path, CACHE_BYTES)
        budget.spend("tensors", data.count(b"\n"), f"{path}: its lines")
        lines = data.decode("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", _HINT) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a calibration cache: it is not text", _HINT) from error
    header = _HEADER.fullmatch(lines[0].strip()) if lines else None
    if header is None:
        raise InputError(f"{path} is not a calibration cache: it does not begin with TRT-VERSION-CALIBRATOR", _HINT)
    scales: dict[str, float] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        name, colon, digits = line.rpartition(":")
        name, digits = name.strip(), digits.strip()
        if not colon or not name or not _SCALE.fullmatch(digits):
            raise InputError(f"{path}: line {number} is not 'NAME: eight hexadecimal digits'", _HINT)
        (scale,) = struct.unpack(">f", bytes.fromhex(digits))
        if not math.isfinite(scale) or scale < 0:
            raise InputError(f"{path}: line {number}: {scale} is not a scale (of {name!r})", _HINT)
        if scales.setdefault(name, scale) != scale:
            raise InputError(f"{path}: line {number}: {name!r} has another scale above", _HINT)
    return CalibrationCache(header[2], scales)
