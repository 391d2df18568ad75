"""What travels between the members of a farm: JSON of a few forms, and bytes. Nothing in it can be code.

A message is the length of its JSON in four bytes, big-endian; the JSON, which has the message's kind, its fields and
the sizes of the files that follow; and these, one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, get_args

from trtconv.core.decode import Fault, decoded, json_of

PROTOCOL = 3
CLIENT, WORKER, SCHEDULER = "client", "worker", "scheduler"
"""What a member can be."""

MOST_JSON = 64 << 20
MOST_FIRST = 1 << 20
"""Length of what somebody says who was not let in yet."""
MOST_MODEL, MOST_ENGINE = 128 << 20, 4 << 30
"""Bytes of the files with a job, and with its result."""
_LENGTH = 4
_LEAVE_SECONDS = 2.0
_PIECE = 1 << 20
AHEAD = 2
"""Jobs that a worker has: one that it is at, and the next."""
PULSE_SECONDS = 5.0
"""How often a member says that it is there, where it says nothing else."""
MOST_SILENT = 6
"""How many times nothing may be heard before a line counts as lost."""


@dataclasses.dataclass(frozen=True)
class Join:
    """The first that a client or worker says.

    Args:
        offer: A machine's, as JSON; empty where it is no worker, or one that does not know yet.
        has: Keys of the jobs that a worker is at, or has the results of, from before its line was lost.
    """

    protocol: int
    role: str
    name: str
    offer: str
    has: list[str]


@dataclasses.dataclass(frozen=True)
class Offers:
    """A worker that joined without an offer has looked at its machine."""

    offer: str


@dataclasses.dataclass(frozen=True)
class Alive:
    """A member is there, though it has nothing to say."""


@dataclasses.dataclass(frozen=True)
class Welcome:
    """The scheduler lets a member in."""


@dataclasses.dataclass(frozen=True)
class Refused:
    """The scheduler does not."""

    why: str


@dataclasses.dataclass(frozen=True)
class Machines:
    """The scheduler tells clients who is there: each worker's name and offer, empty while it starts."""

    workers: list[list[str]]


@dataclasses.dataclass(frozen=True)
class Submit:
    """A client wants a job done, as JSON, by whoever offers a resource.

    Args:
        resource: What it asks for.
        job: The job.
        stored: Whether the engine stays in the store, where the worker has one.
        files: SHA-256 of the files that come with it.
        label: What people call it; no part of what it is.
        digest: Of the answer whose first part is there already, from a line that was lost; else empty.
        got: Bytes of the engine that are there.
    """

    resource: str
    job: str
    stored: bool
    files: list[str]
    label: str
    digest: str = ""
    got: int = 0

    @property
    def key(self) -> str:
        """What it is called by all who have it: equal ones are one job."""
        text = json.dumps([self.resource, self.job, self.stored])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Drop:
    """A job is not wanted any more, or its answer has arrived."""

    key: str


@dataclasses.dataclass(frozen=True)
class Begun:
    """A worker is at a job now; the scheduler says to clients, which one."""

    key: str
    worker: str


@dataclasses.dataclass(frozen=True)
class Done:
    """A job is done; its result as JSON, and the engine as the one file, empty where there is none.

    Args:
        own: Why it came to nothing, where the reason is the worker's own, so that another one may do it; else empty.
        skipped: Bytes at the beginning of the engine that are left out, because the other end has them.
    """

    key: str
    result: str
    own: str
    skipped: int = 0


@dataclasses.dataclass(frozen=True)
class Failed:
    """A worker could not do a job; `own`: for a reason of its own."""

    key: str
    why: str
    own: bool


@dataclasses.dataclass(frozen=True)
class Noted:
    """A worker says what it writes into its log: one line, or several about a build that broke down."""

    text: str


@dataclasses.dataclass(frozen=True)
class Died:
    """The worker is gone that was at a job."""

    key: str
    worker: str


@dataclasses.dataclass(frozen=True)
class End:
    """Whoever says it leaves on purpose."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """A client asks what the farm does."""


@dataclasses.dataclass(frozen=True)
class Overview:
    """The scheduler tells it, as JSON."""

    status: str


Message = (
    Join
    | Offers
    | Alive
    | Welcome
    | Refused
    | Machines
    | Submit
    | Drop
    | Begun
    | Done
    | Failed
    | Noted
    | Died
    | End
    | Ask
    | Overview
)
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Message)}


@dataclasses.dataclass(frozen=True)
class _Head:
    """What every message has: the name of its class, and how many bytes each file with it has."""

    kind: str
    sizes: tuple[int, ...]


class Gone(Exception):
    """The other end is not there any more, or says what it may not."""


class Peer:
    """The other end of a connection.

    Args:
        reader: Where what it says comes from.
        writer: Where what is said to it goes.

    Attributes:
        cut: The answer whose engine was on its way when the line was lost, and the bytes that had come.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._one_at_a_time = asyncio.Lock()
        self._heard = 0
        self.cut: tuple[Done, bytes] | None = None

    async def send(self, message: Message, files: Sequence[bytes | memoryview] = ()) -> None:
        """Says something.

        Raises:
            Gone: Nobody is there.
        """
        header = {"kind": type(message).__name__, **vars(message), "sizes": [len(file) for file in files]}
        text = json.dumps(header).encode()
        try:
            async with self._one_at_a_time:
                self._writer.write(len(text).to_bytes(_LENGTH, "big") + text)
                for file in files:
                    self._writer.write(file)
                    await self._writer.drain()
                await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise Gone(str(error) or type(error).__name__) from error

    async def receive(self, most_bytes: int = 0, most_json: int = MOST_JSON) -> tuple[Message, list[bytes]]:
        """Returns what the other end says next, and the files with it.

        Args:
            most_bytes: How long the files may be together.
            most_json: How long the JSON may be.

        Raises:
            Gone: It has ended, or what it says is no message.
        """
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            self._heard += 1
            if length > most_json:
                raise Gone(f"a message of {length} bytes is too long")
            message, sizes = decode(await self._reader.readexactly(length))
            if sum(sizes) > most_bytes:
                raise Gone(f"files of {sum(sizes)} bytes are too long")
            return message, [await self._file(message, size) for size in sizes]
        except asyncio.IncompleteReadError as error:
            raise Gone("the connection was closed") from error
        except OSError as error:
            raise Gone(str(error) or type(error).__name__) from error

    async def _file(self, message: Message, size: int) -> bytes:
        """Reads a file piece by piece: a slow line is not a silent one."""
        data = bytearray()
        try:
            while len(data) < size:
                piece = await self._reader.read(min(_PIECE, size - len(data)))
                if not piece:
                    raise Gone("the connection was closed")
                self._heard += 1
                data += piece
        except (OSError, Gone):
            self.cut = (message, bytes(data)) if isinstance(message, Done) else None
            raise
        return bytes(data)

    async def pulse(self, silent: Callable[[int], None] = lambda _: None, most: int = MOST_SILENT) -> None:
        """Says now and then that this end is there, and ends the connection where the other one is not.

        Beats are counted, not seconds: whoever was stopped for an hour has not listened for as long.

        Args:
            silent: Called with each beat, and how many there were since something was heard.
            most: How many may be.
        """
        beats, heard = 0, self._heard
        with contextlib.suppress(Gone):
            while beats < most:
                # What is being sent says as much; where it does not go off, waiting for it would stop this.
                if not self._one_at_a_time.locked():
                    await self.send(Alive())
                await asyncio.sleep(PULSE_SECONDS)
                beats = 0 if heard != self._heard else beats + 1
                heard = self._heard
                silent(beats)
        self.abort()

    async def leave(self) -> None:
        """Ends the connection once what was said is on its way, or after a moment."""
        self._writer.close()
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), _LEAVE_SECONDS)
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once."""
        # Before Python 3.11.5, a transport with TLS that was told twice to close fails here: it is as good as gone.
        with contextlib.suppress(AttributeError):
            self._writer.transport.abort()

    def role(self, claimed: str) -> str:
        """Returns what the other end is by its certificate; without TLS, what it says that it is."""
        tls = self._writer.get_extra_info("ssl_object")
        return claimed if tls is None else role_in(tls.getpeercert())


def role_in(certificate: Any) -> str:
    """Returns the role that a certificate is for, as `ssl` tells of it; empty where it is for none."""
    names = [name for kind, name in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]
    return next((role for role in (CLIENT, WORKER, SCHEDULER) if names == [host_of(role)]), "")


def host_of(role: str) -> str:
    """Returns the name in the certificate of a role."""
    return f"{role}.farm.trtconv"


def decode(data: bytes) -> tuple[Message, list[int]]:
    """Reads the JSON of a message.

    Returns:
        The message, and the sizes of its files.

    Raises:
        Gone: It is none.
    """
    try:
        document = json_of(data)
    except Fault as fault:
        raise Gone(f"what came is no JSON: {fault}") from fault
    try:
        head = decoded(_Head, document)
        kind = _KINDS[head.kind]
        message: Message = decoded(kind, document)
    except (Fault, KeyError) as error:
        raise Gone("what came is no message of a farm") from error
    # Both ends have the same trtconv: whatever else is there was not said by it.
    if document.keys() != {"kind", "sizes", *vars(message)} or min(head.sizes, default=0) < 0:
        raise Gone("what came is no message of a farm")
    if len(head.sizes) != (len(message.files) if isinstance(message, Submit) else isinstance(message, Done)):
        raise Gone("what came has not the files that it should have")
    return message, list(head.sizes)
