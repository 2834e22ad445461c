"""Certificates of a server and its client for tests, made by an authority that is forgotten at once."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(days=1)


def make_certificates(directory: Path, server: str, client: str, *, server_for: datetime.timedelta = _VALID) -> None:
    """Write `ca.pem`, and `server.pem` and `client.pem`: a certificate and its private key each.

    Args:
        directory: Where to; it exists.
        server: Common name of the server, which is at 127.0.0.1.
        client: Common name of the client; empty: it has none.
        server_for: How long from now the server's certificate is valid; negative: it has expired.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    of_authority = x509.BasicConstraints(ca=True, path_length=0)
    (directory / "ca.pem").write_bytes(_signed(key, key, authority, authority, of_authority))
    at = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    for name, common_name, extension, valid in (("server", server, at, server_for), ("client", client, None, _VALID)):
        own = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])
        certificate = _signed(key, own, authority, subject, extension, valid)
        private = own.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (directory / f"{name}.pem").write_bytes(private + certificate)


def _signed(
    key: Any,
    own: Any,
    issuer: x509.Name,
    subject: x509.Name,
    extension: x509.ExtensionType | None,
    valid: datetime.timedelta = _VALID,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + valid)
    )
    if extension is not None:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
