"""What a process proves itself with, and what it demands of others."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heronpy.errors import HeronError, NotFoundError, UnavailableError
from heronpy.security._files import read_secret
from heronpy.security._identity import identity_of

if TYPE_CHECKING:
    import ssl

    import grpc

log = logging.getLogger(__name__)

TOKEN_KEY = "heron-token"
ID_KEY = "heron-id"
INCARNATION_KEY = "heron-incarnation"

CA_FILE = "ca.pem"
SCRAPERS_FILE = "scrapers.pem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """One process of one topology, as its peers see it."""

    process: str
    """Its id: `tmaster`, `stmgr-1`, `container_1_word_3`; `heron` for the CLI, `tracker`."""
    topology_id: str
    token: str = field(repr=False)
    """The topology's secret. Sent only to those who have proved that they are of the topology."""
    tls: Path | None = None
    """The directory of the certificates; None: TCP links are plain."""
    incarnation: int = 0
    """Of the container that the process is in; 0: it is in none."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        about = ((TOKEN_KEY, self.token), (ID_KEY, self.process))
        return (*about, (INCARNATION_KEY, str(self.incarnation))) if self.incarnation else about

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """What a client shows and trusts: read anew for each channel, so that renewed certificates are used.

        Raises:
            UnavailableError: there are no certificates.
            StateError: they cannot be read, or others can read them too.
        """
        import grpc  # in functions, because executors have no gRPC

        ca, own = self._read()
        return grpc.ssl_channel_credentials(ca, private_key=own, certificate_chain=own)

    def server_credentials(self) -> grpc.ServerCredentials:
        """What a server shows and trusts: read anew for a handshake after they have changed.

        Raises:
            UnavailableError: there are no certificates.
            StateError: they cannot be read, or others can read them too.
        """
        import grpc

        last = self._read()

        def configuration(ca: bytes, own: bytes) -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([(own, own)], root_certificates=ca)

        def changed() -> grpc.ServerCertificateConfiguration | None:  # in a thread of gRPC
            nonlocal last
            try:
                found = self._read()
            except HeronError as e:
                log.error("certificates are not renewed: %s", e)
                return None
            if found == last:
                return None
            last = found
            return configuration(*found)

        return grpc.dynamic_ssl_server_credentials(
            configuration(*last),
            changed,  # type: ignore[arg-type]  # None is documented to mean that nothing has changed
            require_client_authentication=True,
        )

    def scraper_context(self) -> ssl.SSLContext:
        """For the metrics endpoint: TLS 1.3 with a certificate of the topology, or of its owner's scraper.

        Raises:
            UnavailableError: there are no certificates.
            StateError: they cannot be read, or others can read them too.
        """
        import ssl

        ca, _ = self._read()
        own = self._own_file()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        # The scraper's certificate is signed by itself, and trusted for what it is.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.num_tickets = 0
        context.load_cert_chain(own)
        trusted = ca
        assert self.tls is not None
        if (scrapers := self.tls / SCRAPERS_FILE).exists():
            trusted += read_secret(scrapers)
        context.load_verify_locations(cadata=trusted.decode("ascii"))
        return context

    def _read(self) -> tuple[bytes, bytes]:
        """The CA's certificate, and this process's key and certificate."""
        assert self.tls is not None, "TLS is off"
        own = self._own_file()
        try:
            return read_secret(self.tls / CA_FILE), read_secret(own)
        except NotFoundError as e:
            raise UnavailableError(
                f"topology {self.topology_id} has no certificate for {self.process} ({e}): kill it and submit it again"
            ) from None

    def _own_file(self) -> Path:
        assert self.tls is not None, "TLS is off"
        identity = identity_of(self.process)
        assert identity, f"{self.process} has no identity"
        return self.tls / f"{identity}.pem"
