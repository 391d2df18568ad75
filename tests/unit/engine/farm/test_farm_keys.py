"""Addresses and keys of a farm."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509

from trtconv.core.errors import InputError
from trtconv.engine.farm.addresses import checked_address, security
from trtconv.engine.farm.keys import make_keys


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tls://farm:8786", "tls://farm:8786"),
        ("farm:8786", "tls://farm:8786"),
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("tcp://[::1]:8786", "tcp://[::1]:8786"),
        ("tcp://localhost:0", "tcp://localhost:0"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert checked_address(text, insecure=False) == address


@pytest.mark.parametrize(
    "text", ["tcp://10.0.0.1:8786", "tcp://farm:8786", "tcp://0.0.0.0:8786", "tcp://127.evil.example:1"]
)
def test_plain_tcp_beyond_this_machine_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="without TLS"):
        checked_address(text, insecure=False)
    assert checked_address(text, insecure=True) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "farm",
        "http://farm:1",
        "ws://127.0.0.1:1",
        "tls://farm",
        "tls://farm:port",
        "tls://:1",
        "tls://user@farm:1",
        "tcp://user:word@127.0.0.1:1",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError, match="no address"):
        checked_address(text, insecure=True)


def test_keys(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    authority, *members = make_keys(folder)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (authority, *members)} == {0o600}
    assert [path.name for path in members] == ["client.pem", "worker.pem", "scheduler.pem"]
    root = x509.load_pem_x509_certificate(authority.read_bytes())
    for path in members:
        x509.load_pem_x509_certificate(path.read_bytes()).verify_directly_issued_by(root)
        assert b"PRIVATE KEY" in path.read_bytes()
    assert b"PRIVATE KEY" not in authority.read_bytes()
    with pytest.raises(InputError, match="has files"):
        make_keys(folder)


def test_keys_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ca\.pem is missing"):
        security("tls://farm:1", tmp_path, "client")
    with pytest.raises(InputError, match="no keys"):
        security("tls://farm:1", None, "client")
    assert security("tcp://127.0.0.1:1", None, "client") is None
    for name in ("ca.pem", "client.pem"):
        (tmp_path / name).write_text("no key")
    with pytest.raises(InputError, match="no keys that can be read"):
        security("tls://farm:1", tmp_path, "client")
