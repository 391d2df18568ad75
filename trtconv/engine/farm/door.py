"""The door of a farm's scheduler: how many may stand there who have not said yet who they are, and for how long.

Anybody can open connections and say nothing. Who comes while too many stand there takes the place of the one that has
stood longest: a member says who it is within a moment.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence

from trtconv.engine.farm.addresses import BUFFER, SECONDS

MOST_STRANGERS = 64
_WAITING = 100
_PAUSE_SECONDS = 0.1

Meet = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Callable[[], None]], Awaitable[None]]
"""Talks with whoever came, and calls its last argument once it is known who that is."""


class Door:
    """Lets in whoever comes.

    Args:
        meet: Talks with each.
        context: TLS; None: without.
    """

    def __init__(self, meet: Meet, context: ssl.SSLContext | None) -> None:
        self._meet = meet
        self._context = context
        # The one that has stood longest first.
        self._strangers: dict[asyncio.Task[None], None] = {}

    async def open(self, listening: Sequence[socket.socket]) -> None:
        """Lets in whoever comes, until it is cancelled."""
        try:
            await asyncio.gather(*map(self._listen, listening))
        finally:
            for listener in listening:
                listener.close()
            while self._strangers:
                self._turn_away()

    async def _listen(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                line, _ = await loop.sock_accept(listening)
            except OSError:
                # No more descriptors; or whoever knocked has gone.
                self._turn_away()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                self._turn_away()
            task = asyncio.ensure_future(self._let_in(line))
            self._strangers[task] = None
            task.add_done_callback(functools.partial(self._gone, line))

    def _gone(self, line: socket.socket, task: asyncio.Task[None]) -> None:
        self._strangers.pop(task, None)
        # Whoever was turned away before anything listened to him.
        if task.cancelled():
            line.close()

    def _turn_away(self) -> None:
        """Ends the connection of the stranger that has stood longest."""
        longest = next(iter(self._strangers), None)
        if longest is not None:
            del self._strangers[longest]
            longest.cancel()

    async def _let_in(self, line: socket.socket) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        reader = asyncio.StreamReader(limit=BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        seconds = None if self._context is None else SECONDS
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, line, ssl=self._context, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.TimeoutError):
            # No TLS, not these keys, or nothing at all.
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        await self._meet(reader, writer, lambda: self._strangers.pop(task, None) if task is not None else None)


def listen(host: str, port: int) -> list[socket.socket]:
    """Returns sockets that listen at all addresses of a host.

    Raises:
        OSError: It has none here, or another program listens there.
    """
    listeners: list[socket.socket] = []
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            listeners.append(socket.socket(family, kind, protocol))
            if os.name == "posix":
                listeners[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listeners[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listeners[-1].bind(address)
            listeners[-1].listen(_WAITING)
            listeners[-1].setblocking(False)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners
