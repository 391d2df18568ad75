"""Messages of a farm as bytes, and what runs code where it is unpickled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trtconv.engine.farm import wire
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, End, Failed, Join, Machines, Message, Refused, Submit

MESSAGES: list[tuple[Message, list[bytes]]] = [
    (Join(2, "worker", "w", "{}", ["k"]), []),
    (wire.Welcome(), []),
    (Refused("no"), []),
    (Machines([["w", "{}"], ["é\n\0", ""]]), []),
    (Submit("r", "{}", True, ["a", "b"], "m"), [b"", b"x" * 300_000]),
    (Submit("r", "{}", False, [], "", "digest", 7), []),
    (Drop("k"), []),
    (Begun("k", "w"), []),
    (Done("k", "{}", "", 7), [b"\x80\x04engine"]),
    (Failed("k", "why", True), []),
    (Died("k", "w"), []),
    (End(), []),
    (wire.Offers("{}"), []),
    (wire.Alive(), []),
    (wire.Noted("built\nlog"), []),
    (wire.Ask(), []),
    (wire.Overview("{}"), []),
]


class Canary:
    """What runs code where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def framed(document: Any, *files: bytes) -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return len(text).to_bytes(4, "big") + text + b"".join(files)
