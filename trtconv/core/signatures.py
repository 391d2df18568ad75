"""Signatures: who built an engine, said by an Ed25519 key over its report, which holds the SHA-256 of the engine."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.documents.signed import SIGNATURE, checksum
from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.core.reading import KEY_BYTES, read_plain

_MEANING = "report of an engine of trtconv: "
"""Stands before what is signed, so that no signature of another kind of document passes for one."""
_BEGIN = "ed25519:"


def sign(document: Mapping[str, Any], key: Path) -> str:
    """Returns the signature of a report, and through that of its engine.

    Args:
        document: The report as JSON.
        key: A file with a private Ed25519 key in PEM, without a password.

    Raises:
        InputError: It is no such file.
        EnvironmentMissing: The package cryptography is not installed.
    """
    return _BEGIN + base64.b64encode(_private(key).sign(_signed(document))).decode()


def require_private(key: Path) -> None:
    """Checks that a file can sign; raises as `sign` does."""
    _private(key)


def owner(key: Path) -> str:
    """Returns the fingerprint of the public half of a private key; raises as `sign` does."""
    return _fingerprint(_private(key).public_key())


def is_signed_by(document: Mapping[str, Any], key: Path) -> bool:
    """Whether the owner of a private key signed a report; raises as `sign` does."""
    return _holds(_private(key).public_key(), document)


def require_signature(document: Mapping[str, Any], key: Path, path: Path) -> str:
    """Checks that a report was signed by the private half of a key.

    Args:
        document: The report as JSON.
        key: A file with the public Ed25519 key in PEM.
        path: The report, for the message.

    Returns:
        The key's fingerprint: SHA-256 of the public key in DER, in hexadecimal.

    Raises:
        InputError: It was not, or the key cannot be read.
        EnvironmentMissing: The package cryptography is not installed.
    """
    public = _read(key, "load_pem_public_key", "Ed25519PublicKey")
    if document.get(SIGNATURE) is None:
        raise InputError(f"{path} is not signed", "Build with --sign KEY, or leave out --key.")
    if not _holds(public, document):
        raise InputError(
            f"{path} is not signed by the owner of {key}, or was changed since",
            "Take engine and report from where they were built, or the public key of who built them.",
        )
    return _fingerprint(public)


def _fingerprint(public: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _signed(document: Mapping[str, Any]) -> bytes:
    return (_MEANING + checksum(document)).encode()


def _holds(public: Any, document: Mapping[str, Any]) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        signature = str(document.get(SIGNATURE)).removeprefix(_BEGIN)
        public.verify(base64.b64decode(signature, validate=True), _signed(document))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _private(key: Path) -> Any:
    return _read(key, "load_pem_private_key", "Ed25519PrivateKey", password=None)


def _read(key: Path, load: str, kind: str, **extra: Any) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise EnvironmentMissing(
            f"signatures take the package cryptography: {error}", "Install it: pip install cryptography."
        ) from error
    what = "private" if "Private" in kind else "public"
    hint = f"Give a {what} Ed25519 key in PEM without a password, as trtconv farm signing-keys DIR makes."
    try:
        result = getattr(serialization, load)(read_plain(key, KEY_BYTES), **extra)
    except OSError as error:
        raise InputError(f"{key} cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InputError(f"{key} is not a {what} key", hint) from error
    if not isinstance(result, getattr(ed25519, kind)):
        raise InputError(f"{key} is not a {what} Ed25519 key", hint)
    return result
