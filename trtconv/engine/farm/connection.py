"""A client's connection to the scheduler of a farm, on a thread of its own: no message waits for a disk."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future

from trtconv.core.errors import EnvironmentMissing
from trtconv.core.requests.farm import FarmRequest
from trtconv.core.text import clean
from trtconv.engine.farm import wire
from trtconv.engine.farm.addresses import SECONDS, checked_address, join, rejoined, security
from trtconv.engine.farm.machines import Machine, read_machine
from trtconv.engine.farm.resuming import Beginning, beginning, whole
from trtconv.engine.farm.wire import Begun, Died, Done, Drop, Failed, Gone, Join, Machines, Peer, Submit

Answer = Begun | Done | Failed | Died
"""What becomes of a job."""


class Rejoined:
    """The line to the scheduler was lost, and is there again: what was not answered is to be sent again."""


_CLOSE_SECONDS = 3.0


class Connection:
    """A client of a farm.

    Args:
        request: Where it is.

    Attributes:
        answers: What became of jobs, each with the engine where there is one; `Rejoined` once a lost line is there
            again, and None where it does not come back in time.
        there: The machines, as the scheduler last told.
        starting: Whether there are workers that do not know yet what they offer.

    Raises:
        InputError: The address is none, or keys are missing.
        EnvironmentMissing: Nobody answers, or the keys are not those of this farm.
    """

    def __init__(self, request: FarmRequest) -> None:
        self.address = checked_address(request.on or "", request.insecure)
        context = security(self.address, request.keys, wire.CLIENT)
        self.answers: queue.SimpleQueue[tuple[Answer, bytes] | Rejoined | None] = queue.SimpleQueue()
        self._overviews: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._why_lost = ""
        self._patience = request.reconnect
        self.there: list[Machine] = []
        self.starting = False
        self._answer = threading.Event()
        self._joined: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._peer: Peer | None = None
        self._beginnings: dict[str, Beginning] = {}
        message = Join(wire.PROTOCOL, wire.CLIENT, "trtconv", "", [])
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(context, message)), daemon=True)
        self._thread.start()
        try:
            self._loop, self._leaving = self._joined.result()
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
        if not self._answer.wait(SECONDS) or self.is_lost:
            raise self.lost()
        return self.there

    def status(self) -> str:
        """Returns what the farm does, as the scheduler says it.

        Raises:
            EnvironmentMissing: It does not.
        """
        self.send(wire.Ask())
        try:
            return self._overviews.get(timeout=SECONDS)
        except queue.Empty:
            raise self.lost() from None

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is not there any more, and is not waited for."""
        return bool(self._why_lost)

    def send(self, message: Submit | Drop | wire.Ask, files: Sequence[bytes] = ()) -> None:
        """Sends something, soon; where the line is lost meanwhile, `answers` tells."""
        if self._peer is None:
            return
        if isinstance(message, Submit) and message.key in self._beginnings:
            message = self._beginnings[message.key].rest_of(message)
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

    async def _live(self, context: ssl.SSLContext | None, message: Join) -> None:
        """Is there from the joining to the leaving."""
        try:
            self._peer = await join(self.address, context, message)
        except BaseException as error:
            self._joined.set_exception(error)
            return
        leaving = asyncio.Event()
        staying = asyncio.ensure_future(self._stay(lambda: join(self.address, context, message)))
        self._joined.set_result((asyncio.get_running_loop(), leaving))
        await leaving.wait()
        staying.cancel()
        if self._peer is not None:
            with contextlib.suppress(Gone):
                await asyncio.wait_for(self._peer.send(wire.End()), _CLOSE_SECONDS)
            await self._peer.leave()

    async def _stay(self, joining: Callable[[], Awaitable[Peer]]) -> None:
        """Listens, and joins again where the line is lost."""
        while self._peer is not None:
            peer = self._peer
            pulse = asyncio.ensure_future(peer.pulse())
            try:
                await self._listen(peer)
            except (Gone, ValueError) as gone:
                why = str(gone) or "it has ended"
            finally:
                pulse.cancel()
            self._peer = None
            peer.abort()
            if peer.cut is not None:
                key = peer.cut[0].key
                with contextlib.suppress(Gone):
                    self._beginnings[key] = beginning(peer.cut, self._beginnings.get(key))
            try:
                self._peer = await rejoined(joining, self._patience)
                self.answers.put(Rejoined())
            except (OSError, EnvironmentMissing) as error:
                self._why_lost = why if self._patience <= 0 else f"{why}; {error}"
        self._answer.set()
        self.answers.put(None)

    async def _listen(self, peer: Peer) -> None:
        while True:
            message, files = await peer.receive(wire.MOST_ENGINE)
            if isinstance(message, Machines):
                machines = [read_machine(offer, name) for name, offer in message.workers]
                self.starting = any(not offer for _, offer in message.workers)
                self.there = [machine for machine in machines if machine is not None]
                self._answer.set()
            elif isinstance(message, Done):
                engine = whole(message, files[0], self._beginnings.pop(message.key, None))
                self.answers.put((message, engine))
                await peer.send(Drop(message.key))
            elif isinstance(message, Failed):
                self.answers.put((message, b""))
                await peer.send(Drop(message.key))
            elif isinstance(message, Begun | Died):
                self.answers.put((message, b""))
            elif isinstance(message, wire.Overview):
                self._overviews.put(message.status)
            elif isinstance(message, wire.End):
                raise Gone("the scheduler has ended")
            elif not isinstance(message, wire.Alive):
                raise Gone("it says what no scheduler does")
