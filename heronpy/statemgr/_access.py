"""What a client proves itself to a state manager's servers with, and how it knows them: passwords and certificates."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from heronpy.errors import ConfigError, HeronError
from heronpy.files import read_owned_file
from heronpy.runtime import StatemgrSpec

CREDENTIALS_KEY = "heron.statemgr.credentials.file"
CA_KEY = "heron.statemgr.tls.ca.file"
CERTIFICATE_KEY = "heron.statemgr.tls.certificate.file"
_CREDENTIALS_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and its password. Its `repr` has no password in it."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"


def read_credentials(spec: StatemgrSpec) -> Credentials | None:
    """The user and password of a specification, or None if it names no file.

    Raises:
        ConfigError: the file cannot be read, others can read it, or it is not one line `user:password`.
    """
    if not spec.credentials_file:
        return None
    try:
        text = read_owned_file(spec.credentials_file, max_bytes=_CREDENTIALS_BYTES_MAX, private=True).decode()
    except (HeronError, UnicodeDecodeError) as e:
        why = e if isinstance(e, HeronError) else "it is not UTF-8"
        raise ConfigError(f"{CREDENTIALS_KEY} {spec.credentials_file} cannot be read: {why}") from e
    user, colon, password = text.strip("\r\n").partition(":")
    if not (user and colon and password) or "\n" in password:
        raise ConfigError(f"{CREDENTIALS_KEY} {spec.credentials_file} must be one line: user:password")
    return Credentials(user, password)


def tls_context(spec: StatemgrSpec) -> ssl.SSLContext:
    """How to speak TLS with the servers: whom to trust (by default the system's CAs), and our own certificate.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    try:
        context = ssl.create_default_context(cafile=spec.ca_file or None)
    except (OSError, ssl.SSLError) as e:
        raise ConfigError(f"{CA_KEY} {spec.ca_file} is not a file of CA certificates: {_reason(e)}") from e
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if spec.certificate_file:
        try:
            context.load_cert_chain(spec.certificate_file)
        except (OSError, ssl.SSLError) as e:
            raise ConfigError(
                f"{CERTIFICATE_KEY} {spec.certificate_file} is not a certificate with its private key: {_reason(e)}"
            ) from e
    return context


def tls_refusal(error: BaseException) -> str | None:
    """Why a TLS handshake cannot succeed as things are, in words; None if the error is of another kind."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message} (see {CA_KEY})"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").lower().replace("_", " ")
        if "alert" in reason and any(word in reason for word in ("certificate", "unknown ca", "handshake", "access")):
            return f"it refuses our certificate: {reason} (see {CERTIFICATE_KEY})"
        if "wrong version number" in reason or "http request" in reason or "record layer" in reason:
            return "it does not speak TLS at this port"
    return None


def _reason(error: OSError) -> str:
    return str(error.strerror or error)
