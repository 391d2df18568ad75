"""A timing cache that TensorRT 8.6.0 wrote, without what it knows of copies."""

from __future__ import annotations

import struct

import pytest

from support.paths import DATA
from trtconv.runtimes.tensorrt.timing_format import without_copies

TIMINGS = (DATA / "timings-8.6.bin").read_bytes()
CONVOLUTIONS = (0x150A157F08EC1C0F, 0x5E4F6D7C83746FD6)
"""Tactics of the deconvolution and of the convolution behind it, as the engine's inspector names them."""


def test_kernels_of_convolutions_are_left() -> None:
    thinned = without_copies(TIMINGS)
    # 19 of 23 records of 104 bytes are of copies, quantisers and pointwise layers.
    assert len(TIMINGS) - len(thinned) == 19 * 104
    assert struct.unpack_from("<Q", thinned, 16)[0] == len(thinned) - 24
    assert all(struct.pack("<Q", tactic) in thinned for tactic in CONVOLUTIONS)
    assert thinned.endswith(TIMINGS[-59:])
    assert thinned[24:100] == TIMINGS[24:100]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ptrt",
        TIMINGS[:-1],
        TIMINGS + b"\0",
        TIMINGS.replace(b"ptrt", b"trtp"),
        TIMINGS.replace(struct.pack("<Q", 23), struct.pack("<Q", 24)),
        TIMINGS.replace(struct.pack("<Q", 23), struct.pack("<Q", 22)),
        TIMINGS.replace(b"\x0b\x80\x01\x00", b"\x0c\x80\x01\x00", 1),
        without_copies(TIMINGS),
    ],
)
def test_nothing_is_made_of_what_is_not_understood(data: bytes) -> None:
    assert without_copies(data) == b""
