"""Where a farm is and how it is talked to: TLS, or without it on this machine alone."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.text import clean
from trtconv.engine.farm.wire import MOST_FIRST, SCHEDULER, Gone, Join, Peer, Refused, Welcome, host_of

CA = "ca.pem"
"""The file of a folder of keys that all members have; each has that of its role, too."""
SECONDS = 10.0
"""How long the other end may take to prove who it is."""
BUFFER = 1 << 20
"""Bytes that are read ahead; large files then come in few pieces."""
_RETRY_SECONDS = 0.5
_TLS, _TCP = "tls", "tcp"


def checked_address(text: str, insecure: bool) -> str:
    """Returns the address of a scheduler, with its scheme.

    Args:
        text: "tls://farm:8786", "farm:8786" (which means the same) or "tcp://127.0.0.1:8786".
        insecure: Whether TLS may be missing beyond this machine.

    Raises:
        InputError: It is not an address, or would be talked to without TLS.
    """
    address = text if "://" in text else f"{_TLS}://{text}"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{text!r} is no address: {error}", "Write it as in tls://farm.example:8786.") from error
    if parts.scheme not in (_TLS, _TCP) or not parts.hostname or port is None or "@" in parts.netloc:
        raise InputError(f"{text!r} is no address of a farm", "Write it as in tls://farm.example:8786.")
    if parts.scheme == _TCP and not insecure and not is_loopback(address):
        raise InputError(
            f"{text} would be talked to without TLS: whoever reaches it gives engines to everybody in the farm",
            "Use tls:// with keys of trtconv farm keys DIR; or --insecure, where nobody else is on the network.",
        )
    return address


def has_tls(address: str) -> bool:
    """Whether an address, as `checked_address` returns it, is talked to with TLS."""
    return urlsplit(address).scheme == _TLS


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_and_port(address: str) -> tuple[str, int]:
    """Returns the two parts of an address as `checked_address` returns it."""
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 0


def security(address: str, keys: Path | None, role: str) -> ssl.SSLContext | None:
    """Returns what a member proves itself with, and holds the others to; None without TLS.

    Args:
        address: As `checked_address` returns it.
        keys: Folder of keys.
        role: CLIENT, WORKER or SCHEDULER.

    Raises:
        InputError: Keys are missing, or cannot be read.
    """
    if not has_tls(address):
        return None
    if keys is None:
        raise InputError(f"there are no keys to talk to {address} with", "Add --keys DIR: trtconv farm keys DIR.")
    own = keys / f"{role}.pem"
    for file in (keys / CA, own):
        if not file.is_file():
            raise InputError(f"{file} is missing", "Make the keys: trtconv farm keys DIR (docs/farm.md).")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role == SCHEDULER else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        # Never asks for a password: a terminal is not always there.
        context.load_cert_chain(own, password=lambda: "")
        context.load_verify_locations(keys / CA)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{keys} has no keys that can be read: {error}", "Make them anew: trtconv farm keys DIR."
        ) from error
    return context


async def join(address: str, context: ssl.SSLContext | None, message: Join) -> Peer:
    """Joins a farm; returns its scheduler.

    Args:
        address: As `checked_address` returns it.
        context: From `security`.
        message: Who joins.

    Raises:
        EnvironmentMissing: The scheduler is not that of these keys, or does not let this member in.
        OSError: Nobody answers.
    """
    peer = await _line(address, context)
    with contextlib.ExitStack() as undo:
        undo.callback(peer.abort)
        try:
            await peer.send(message)
            answer, _ = await asyncio.wait_for(peer.receive(most_json=MOST_FIRST), SECONDS)
        except asyncio.TimeoutError as error:
            raise OSError(f"it is no scheduler: no answer within {SECONDS:.0f} s") from error
        except Gone as gone:
            if context is not None:
                # Only now TLS 1.3 tells that the scheduler does not take the certificate; or its end comes first.
                why = gone.__cause__.reason if isinstance(gone.__cause__, ssl.SSLError) else gone
                raise _refused(f"the scheduler at {address} refused the certificate: {why}") from gone
            raise OSError(f"it does not let us in: {gone}; it may be one of tls://, with keys") from gone
        if isinstance(answer, Refused):
            raise _refused(f"the scheduler at {address} refused us: {clean(answer.why)}")
        if not isinstance(answer, Welcome):
            raise OSError("it is no scheduler of a farm")
        undo.pop_all()
    return peer


async def _line(address: str, context: ssl.SSLContext | None) -> Peer:
    """Opens a connection to a scheduler; raises as `join`."""
    host, port = host_and_port(address)
    server = None if context is None else host_of(SCHEDULER)
    opening = asyncio.open_connection(host, port, ssl=context, server_hostname=server, limit=BUFFER)
    try:
        return Peer(*await asyncio.wait_for(opening, SECONDS))
    except ssl.SSLCertVerificationError as error:
        raise _refused(f"the certificate of the scheduler at {address} is not good: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise _refused(f"no TLS with {address}: {error.reason or error}") from error
    except asyncio.TimeoutError as error:
        raise OSError(f"no answer within {SECONDS:.0f} s") from error
    except OSError as error:
        # asyncio tells of a number and a call; a name that nobody knows has none of the system's numbers.
        number = error.errno or 0
        if number <= 0:
            raise
        raise OSError(os.strerror(number)) from error


async def rejoined(joining: Callable[[], Awaitable[Peer]], seconds: float) -> Peer:
    """Joins a farm whose scheduler may not be there yet, or not again.

    Args:
        joining: Tries to.
        seconds: How long it is tried; at least once.

    Raises:
        EnvironmentMissing: As of `join`, which no waiting helps against.
        OSError: Nobody answers.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return await joining()
        except OSError:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(_RETRY_SECONDS)


def _refused(message: str) -> EnvironmentMissing:
    return EnvironmentMissing(
        message, "Give the keys that were made together with the scheduler's, by trtconv farm keys."
    )
