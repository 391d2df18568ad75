"""Where a farm is and how it is talked to: TLS, or without it on this machine alone."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trtconv.core.errors import EnvironmentMissing, InputError

CA, CLIENT, WORKER = "ca.pem", "client.pem", "worker.pem"
"""Files of a folder of keys; scheduler and workers have the same."""
_TLS, _TCP = "tls", "tcp"
_QUIET = {
    "logging": {"distributed": "error"},
    "distributed.admin.large-graph-warning-threshold": "1GB",
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.comm.timeouts.connect": "5s",
    "distributed.admin.low-level-log-length": 10,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
}
"""What of Dask's configuration is ours to say: a worker that dies is not followed by a second one, and no web server
tells strangers what is built. Its logs keep messages whole, and each of ours holds a model. Its profiles, which nobody
looks at, wake a worker that is to measure kernels a hundred times a second."""


def dask() -> Any:
    """Returns the module `distributed`, configured.

    Raises:
        EnvironmentMissing: It is not installed.
    """
    try:
        import dask

        dask.config.set(_QUIET)
        import distributed
    except ImportError as error:
        raise EnvironmentMissing(f"a farm takes Dask: {error}", "Install it: pip install 'trtconv[farm]'.") from error
    return distributed


def checked_address(text: str, insecure: bool) -> str:
    """Returns the address of a scheduler as Dask takes it.

    Args:
        text: "tls://farm:8786", "farm:8786" (which means the same) or "tcp://127.0.0.1:8786".
        insecure: Whether TLS may be missing beyond this machine.

    Raises:
        InputError: It is none, or would be talked to without TLS.
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
            f"{text} would be talked to without TLS: whoever reaches it runs code on every machine of the farm",
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


def security(address: str, keys: Path | None, role: str) -> Any:
    """Returns what Dask is to prove itself with.

    Args:
        address: As `checked_address` returns it.
        keys: Folder of keys; None: Dask's own configuration says them.
        role: "client", "worker" or "scheduler".

    Raises:
        InputError: Keys are missing.
    """
    distributed = dask()
    if not has_tls(address):
        return distributed.Security(require_encryption=False)
    if keys is None:
        known = distributed.Security(require_encryption=True)
        if not known.get_tls_config_for_role(role)["ca_file"]:
            raise InputError(f"there are no keys to talk to {address} with", "Add --keys DIR: trtconv farm keys DIR.")
        return known
    own = keys / (CLIENT if role == "client" else WORKER)
    for file in (keys / CA, own):
        if not file.is_file():
            raise InputError(f"{file} is missing", "Make the keys: trtconv farm keys DIR (docs/farm.md).")
    pair = {f"tls_{role}_cert": str(own), f"tls_{role}_key": str(own)}
    return distributed.Security(require_encryption=True, tls_ca_file=str(keys / CA), **pair)
