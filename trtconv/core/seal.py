"""How an ONNX file that trtconv wrote is told from others: its last entry of metadata has the SHA-256 of all before it.

What somebody changed since, with whatever tool, is his.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from trtconv.core.reading import MOST_BYTES, open_plain

KEY = "trtconv.sha256"
_DIGITS = 64
# Field 14 of a ModelProto is an entry of its metadata, with the key in field 1 and the value in field 2. Protobuf takes
# fields in any order, so that an entry may follow a model that is serialized.
_BEGIN = bytes([0x72, len(KEY) + _DIGITS + 4, 0x0A, len(KEY)]) + KEY.encode() + bytes([0x12, _DIGITS])


def seal(data: bytes | memoryview) -> bytes:
    """Returns what is to follow a serialized model that has no such entry."""
    return _BEGIN + hashlib.sha256(data).hexdigest().encode()


def is_sealed(path: Path) -> bool:
    """Whether a file is a model as trtconv wrote it."""
    sha, length = hashlib.sha256(), len(_BEGIN) + _DIGITS
    try:
        with open_plain(path, MOST_BYTES) as file:
            rest = file.seek(0, 2) - length
            if rest < 0:
                return False
            file.seek(rest)
            end = file.read(length)
            if not end.startswith(_BEGIN):
                return False
            file.seek(0)
            while rest > 0 and (chunk := file.read(min(rest, 1 << 20))):
                sha.update(chunk)
                rest -= len(chunk)
            return end == _BEGIN + sha.hexdigest().encode()
    except OSError:
        return False
