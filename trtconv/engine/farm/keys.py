"""Makes the keys of a farm: a certificate authority of its own, and a key for each side; and pairs to sign with."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtconv.core.errors import EnvironmentMissing, InputError
from trtconv.engine.farm.addresses import CA
from trtconv.engine.farm.wire import CLIENT, SCHEDULER, WORKER, host_of

_DAYS = 825
_CLOCKS = datetime.timedelta(days=1)
"""How far clocks may be apart."""


def make_keys(folder: Path) -> list[Path]:
    """Writes the keys of a farm into a new folder, for its owner's eyes alone.

    The authority's own key is not kept: whoever had it could make further keys. A farm whose keys are lost gets new
    ones, all at once.

    Args:
        folder: One that is not there, or is empty.

    Returns:
        The files.

    Raises:
        InputError: The folder has files, or cannot be written.
        EnvironmentMissing: The package cryptography is not installed.
    """
    ec = _algorithms().ec
    authority = ec.generate_private_key(ec.SECP256R1())
    files = {CA: _pem(_certificate("trtconv farm", authority, authority))}
    for role in (CLIENT, WORKER, SCHEDULER):
        key = ec.generate_private_key(ec.SECP256R1())
        files[f"{role}.pem"] = _secret(key) + _pem(_certificate(f"trtconv farm {role}", key, authority, role))
    return _write(folder, files)


def make_signing_keys(folder: Path) -> list[Path]:
    """Writes a pair of Ed25519 keys into a new folder: the private one signs engines, the public one is for all.

    Args, Returns and Raises are those of `make_keys`.
    """
    key = _algorithms().ed25519.Ed25519PrivateKey.generate()
    return _write(folder, {"private.pem": _secret(key), "public.pem": _public(key)})


def _algorithms() -> Any:
    try:
        from cryptography.hazmat.primitives import asymmetric
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # noqa: F401
    except ImportError as error:
        raise EnvironmentMissing(
            f"keys take the package cryptography: {error}", "Install it: pip install cryptography."
        ) from error
    return asymmetric


def _write(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()):
            raise InputError(f"{folder} has files", "Give a new folder: keys that are made together belong together.")
        for name, data in files.items():
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}", "Choose another folder.") from error
    return [folder / name for name in files]


def _certificate(name: str, key: Any, authority: Any, role: str = "") -> Any:
    """Returns the certificate of a key: for a role, in its name and in what it may be used for, or the authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    is_authority = not role

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.timezone.utc)
    issuer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    usage = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named("trtconv farm"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_authority,
                key_encipherment=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                **usage,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
    )
    if role:
        use = ExtendedKeyUsageOID.SERVER_AUTH if role == SCHEDULER else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host_of(role))]), critical=False)
    return builder.sign(authority, hashes.SHA256())


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = certificate.public_bytes(Encoding.PEM)
    return data


def _secret(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return data


def _public(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data
