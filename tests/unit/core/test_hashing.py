"""A SHA-256 that is taken beside other work."""

import hashlib

from trtconv.core.hashing import Hashing


def test_the_hash_is_that_of_the_data_and_can_be_continued() -> None:
    data = bytes(range(256)) * 40_000
    hashing = Hashing(memoryview(data))
    longer = hashing.result()
    longer.update(b"more")
    assert longer.hexdigest() == hashlib.sha256(data + b"more").hexdigest()
    assert hashing.result().hexdigest() == hashlib.sha256(data).hexdigest()
