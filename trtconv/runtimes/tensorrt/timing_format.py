"""What a timing cache of TensorRT 8.6 is made of, as far as a build without luck needs it.

The format is TensorRT's own, and told nowhere; caches of 8.6.0 show it. Nothing is changed in what is not understood.
"""

from __future__ import annotations

import re
import struct

_MAGIC, _SIZE = b"ptrt", struct.Struct("<16xQ")
"""How the format of 8.6 begins; the number, which ends what this reads, counts the bytes behind it."""
_COUNT = re.compile(rb"\x08\x80\x01\x00(.{8})(?=\x01\x80\x06\x80\x01\x00\x04\x00{7})", re.DOTALL)
_RECORD = re.compile(
    rb"\x01\x80\x06\x80\x01\x00\x04\x00{7}.{16}\x08\x80\x01\x00\x01\x00{7}"  # the key of an operation; one entry
    rb"\x0b\x80\x01\x00.{4}\x0a\x80\x01\x00\x01\x06\x80\x01\x00.{4}"  # milliseconds; the implementation
    rb"\x0a\x80\x01\x00\x01\x08\x80\x01\x00(.{8})(?:\x09\x80\x01\x00.{8}){2}",  # the tactic
    re.DOTALL,
)
_LARGEST_NUMBER = 0xFFFF
"""Tactics of convolutions and products are hashes; those of copies, quantisers and pointwise layers small numbers."""


def without_copies(data: bytes) -> bytes:
    """Returns a timing cache of TensorRT 8.6 without what it knows of copies, quantisers and pointwise layers.

    A build with it measures these anew, in a fraction of the time that the rest takes. A cache is a count and as many
    records, each with the hash of an operation, its tactic and the time that it took.

    Returns:
        The cache; empty where it is made of anything else, or nothing is to be left out.
    """
    counted = _COUNT.search(data)
    if not data.startswith(_MAGIC) or len(data) < _SIZE.size or counted is None:
        return b""
    (number,), records, end = struct.unpack("<Q", counted[1]), [], counted.end()
    while (record := _RECORD.match(data, end)) is not None:
        records.append(record)
        end = record.end()
    others = [record for record in records if struct.unpack("<Q", record[1])[0] > _LARGEST_NUMBER]
    if not len(others) < len(records) == number or _SIZE.unpack_from(data)[0] != len(data) - _SIZE.size:
        return b""
    body = b"".join(
        (data[_SIZE.size : counted.start(1)], struct.pack("<Q", len(others)), *(r[0] for r in others), data[end:])
    )
    return data[: _SIZE.size - 8] + struct.pack("<Q", len(body)) + body
