"""A client's connection to the scheduler of a farm, on a thread of its own: no message waits for a disk."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import SECONDS, checked_address, join, security
from trtconv.engine.farm.machines import Machine, read_machine
from trtconv.engine.farm.wire import Died, Done, Drop, Failed, Gone, Join, Machines, Peer, Submit

Answer = Done | Failed | Died
"""What becomes of a job."""
_CLOSE_SECONDS = 3.0


class Connection:
    """A client of a farm.

    Args:
        request: Where it is.

    Attributes:
        answers: What became of jobs, each with the engine where there is one; None once the connection is lost.
        there: The machines, as the scheduler last told.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers, or the keys are not those of this farm.
    """

    def __init__(self, request: FarmRequest) -> None:
        self.address = checked_address(request.on or "", request.insecure)
        context = security(self.address, request.keys, wire.CLIENT)
        self.answers: queue.SimpleQueue[tuple[Answer, bytes] | None] = queue.SimpleQueue()
        self._why_lost = ""
        self.there: list[Machine] = []
        self._told = threading.Event()
        self._joined: Future[tuple[asyncio.AbstractEventLoop, Peer, asyncio.Event]] = Future()
        said = Join(wire.PROTOCOL, wire.CLIENT, "trtconv", "")
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(context, said)), daemon=True)
        self._thread.start()
        try:
            self._loop, self._peer, self._leaving = self._joined.result()
        except OSError as error:
            raise EnvironmentMissing(
                f"there is no farm at {self.address}: {clean(str(error))}",
                "Start one: trtconv farm scheduler ADDRESS; or check the address.",
            ) from error

    def machines(self) -> list[Machine]:
        """Returns the machines that there are, once the scheduler told.

        Raises:
            EnvironmentMissing: It does not tell.
        """
        if not self._told.wait(SECONDS) or self.is_lost:
            raise self.lost()
        return self.there

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is not there any more."""
        return bool(self._why_lost)

    def send(self, message: Submit | Drop, files: Sequence[bytes] = ()) -> None:
        """Sends something, soon; where the connection is lost, `answers` tells."""
        sending = self._peer.send(message, files)
        try:
            asyncio.run_coroutine_threadsafe(sending, self._loop)
        except RuntimeError:
            # The loop has ended.
            sending.close()

    def lost(self) -> EnvironmentMissing:
        """Returns what tells of a connection that was lost."""
        why = clean(self._why_lost or "the scheduler does not answer")
        return EnvironmentMissing(
            f"the connection to the farm at {self.address} was lost: {why}",
            "What is built is kept: start the same again.",
        )

    def close(self) -> None:
        """Leaves the farm; jobs that nobody else waits for are ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leaving.set)
        self._thread.join(_CLOSE_SECONDS)

    async def _live(self, context: ssl.SSLContext | None, said: Join) -> None:
        """Is there from the joining to the leaving."""
        try:
            peer = await join(self.address, context, said)
        except BaseException as error:
            self._joined.set_exception(error)
            return
        leaving = asyncio.Event()
        listening = asyncio.ensure_future(self._listen(peer))
        self._joined.set_result((asyncio.get_running_loop(), peer, leaving))
        await leaving.wait()
        listening.cancel()
        await peer.leave()

    async def _listen(self, peer: Peer) -> None:
        try:
            while True:
                message, files = await peer.receive(wire.MOST_ENGINE)
                if isinstance(message, Machines):
                    found = [read_machine(offer, name) for name, offer in message.workers]
                    self.there = [machine for machine in found if machine is not None]
                    self._told.set()
                elif isinstance(message, Done | Failed | Died):
                    self.answers.put((message, files[0] if files else b""))
                elif isinstance(message, wire.End):
                    raise Gone("the scheduler has ended")
                else:
                    raise Gone("it says what no scheduler does")
        except (Gone, ValueError) as gone:
            self._why_lost = str(gone) or "it has ended"
            self._told.set()
            self.answers.put(None)
            peer.abort()
