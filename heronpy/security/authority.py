"""The certificate authority of one topology: makes, shows and renews certificates.

    tls/                    0700
      ca.pem                what everybody of the topology trusts
      <identity>.pem        key and certificate of one identity, 0600
      scrapers.pem          whom the metrics endpoints answer beside
      authority/ca-key.pem  signs; needed at submit and to renew, never where user code runs

Keys are ECDSA P-256: gRPC's BoringSSL takes no Ed25519 certificates. Imported only where certificates are made or
shown, because `cryptography` costs a start-up tens of milliseconds.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from heronpy.errors import HeronError, StateError, UsageError
from heronpy.files import make_private
from heronpy.security._files import private_directory, read_secret, write_secret
from heronpy.security._identity import CLI, METRICS_DNS_NAME, SCHEDULER, TRACKER, bootstraps, dns_name_of, uri_of
from heronpy.security._security import CA_FILE, SCRAPERS_FILE

AUTHORITY_DIR = "authority"
CA_KEY_FILE = "ca-key.pem"
CA_DAYS = 20 * 365
SCRAPER_FILE = "scraper.pem"
SCRAPER_DAYS = 20 * 365
RENEWAL_SHARE = 1 / 3
"""A certificate is due when less than this share of its time is left."""
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says."""

    name: str
    """`ca`, or the identity."""
    subject: str
    uri: str
    dns_names: tuple[str, ...]
    not_before: datetime.datetime
    not_after: datetime.datetime
    fingerprint: str
    """SHA-256, in hex."""

    def trouble(self, now: datetime.datetime) -> str:
        """Why it cannot be used now; empty if it can."""
        if now < self.not_before:
            clock = f"this host's clock says {now:%Y-%m-%d %H:%M}"
            return f"is not valid before {self.not_before:%Y-%m-%d %H:%M} UTC, and {clock}"
        return f"expired at {self.not_after:%Y-%m-%d %H:%M} UTC" if now > self.not_after else ""

    def due(self, now: datetime.datetime) -> bool:
        """Whether it should be renewed."""
        return self.not_after - now < (self.not_after - self.not_before) * RENEWAL_SHARE


def create(tls: Path, topology_id: str, containers: Iterable[int], *, days: int, scraper: bytes = b"") -> None:
    """Make the topology's authority and a certificate for each of its identities. What exists already stays.

    Args:
        tls: The directory of the certificates; its parent exists.
        topology_id: Whose.
        containers: The numbers of its containers, 0 included.
        days: How long certificates are valid.
        scraper: The certificate of the owner's scraper, PEM.

    Raises:
        StateError: the directory belongs to another user.
        OSError: it cannot be written.
    """
    private_directory(tls)
    private_directory(tls / AUTHORITY_DIR)
    if not (tls / CA_FILE).exists():
        _create_authority(tls, topology_id)
    key, ca = _load_authority(tls)
    identities = [SCHEDULER, CLI, TRACKER, *(f"container-{n}" for n in containers)]
    for identity in identities:
        if not (tls / f"{identity}.pem").exists():
            write_secret(tls / f"{identity}.pem", _issue(key, ca, topology_id, identity, days))
    if scraper:
        write_secret(tls / SCRAPERS_FILE, scraper)


def issue(tls: Path, topology_id: str, identity: str, *, days: int) -> None:
    """Make the certificate of one identity, unless it is there and has most of its time left.

    Raises:
        NotFoundError: the authority's key is not here.
        StateError: a file belongs to another user, or is damaged.
        OSError: the directory cannot be written.
    """
    path = tls / f"{identity}.pem"
    if path.exists() and not _described(identity, path).due(datetime.datetime.now(datetime.UTC)):
        return
    key, ca = _load_authority(tls)
    write_secret(path, _issue(key, ca, topology_id, identity, days))


def issued(ca_key: bytes, ca: bytes, topology_id: str, identity: str, *, days: int) -> bytes:
    """Key and certificate of one identity, PEM, by an authority whose key is in no file here.

    Args:
        ca_key: Of the authority, PEM.
        ca: Its certificate, PEM.
        topology_id: Whose authority it is.
        identity: Whom the certificate is for.
        days: How long it is valid.

    Raises:
        StateError: the key or the certificate is damaged, or the key is of another kind.
    """
    try:
        key = serialization.load_pem_private_key(ca_key, password=None)
        certificate = x509.load_pem_x509_certificate(ca)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise StateError(f"the authority of {topology_id} is damaged ({type(e).__name__})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"the key of the authority of {topology_id} is not an ECDSA key")
    return _issue(key, certificate, topology_id, identity, days)


def request(identity: str) -> tuple[bytes, bytes]:
    """A new key, and a request for a certificate for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(_name(identity)).sign(key, hashes.SHA256())
    return _pem(key), made.public_bytes(serialization.Encoding.PEM)


def sign(tls: Path, topology_id: str, identity: str, request: bytes, *, days: int) -> bytes:
    """The certificate that a request asks for, PEM. All that it takes from the request is the public key.

    Raises:
        UsageError: it is not a request, or not for an ECDSA P-256 key.
        NotFoundError: the authority's key is not here.
        StateError: a file belongs to another user, or is damaged.
    """
    try:
        asked = x509.load_pem_x509_csr(request)
        public_key = asked.public_key()
        valid = asked.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as e:
        raise UsageError("this is not a certificate request") from e
    if not valid or not isinstance(public_key, ec.EllipticCurvePublicKey) or public_key.curve.name != "secp256r1":
        raise UsageError("a certificate request must be signed with the ECDSA P-256 key that it is for")
    key, ca = _load_authority(tls)
    return _pem_of(_certify(key, ca, topology_id, identity, public_key, days))


def described(path: Path) -> Certificate:
    """What the certificate in a file says.

    Raises:
        NotFoundError: there is none.
        StateError: it belongs to another user, or is damaged.
    """
    return _described(path.stem, path)


def advice(tls: Path | None, topology: str) -> str:
    """What is wrong with the certificate of commands, and what to do; empty if nothing is, as far as is known.

    Args:
        tls: The directory of the topology's certificates; None: it has none.
        topology: Its name.
    """
    if tls is None:
        return ""
    now, path = datetime.datetime.now(datetime.UTC), tls / "cli.pem"
    try:
        certificate = described(path)
    except HeronError:
        return ""
    if not (trouble := certificate.trouble(now)):
        return ""
    early = now < certificate.not_before
    do = "set the clock of this machine, by NTP say" if early else f"`heron tls {topology} --renew` renews it"
    return f"; its certificate {path.name} {trouble}: {do}"


def renew(tls: Path, topology_id: str, *, days: int, only_due: bool = False) -> list[str]:
    """Replace certificates by new ones with new keys. Running processes take them up with their next connections.

    Args:
        tls: The directory of the certificates.
        topology_id: Whose.
        days: How long the new ones are valid.
        only_due: Leave those alone that have most of their time left.

    Returns:
        The identities that have a new certificate.

    Raises:
        NotFoundError: the authority's key is not here.
        StateError: a file belongs to another user, or is damaged.
        OSError: the directory cannot be written.
    """
    now = datetime.datetime.now(datetime.UTC)
    names = [c.name for c in inspect(tls) if c.name != "ca" and (c.due(now) or not only_due)]
    if names:
        key, ca = _load_authority(tls)
        for name in names:
            write_secret(tls / f"{name}.pem", _issue(key, ca, topology_id, name, days))
    return names


def inspect(tls: Path) -> list[Certificate]:
    """The certificates of a topology: the authority's first, then by identity.

    Raises:
        NotFoundError: there are none.
        StateError: a file belongs to another user, or is damaged.
    """
    identities = sorted(
        (p.stem for p in tls.glob("*.pem") if p.name not in (CA_FILE, SCRAPERS_FILE)),
        key=lambda name: (not name.startswith("container-"), len(name), name),
    )
    return [_described(name, tls / f"{name}.pem") for name in ("ca", *identities)]


def scraper_certificate(directory: Path) -> bytes:
    """The certificate that a user's Prometheus shows to all topologies of this user, PEM. Made if there is none.

    Its key is beside it in `scraper.pem`.

    Raises:
        StateError: the directory belongs to another user.
        OSError: it cannot be written.
    """
    make_private(directory, exist_ok=True)
    private_directory(directory)
    path = directory / SCRAPER_FILE
    if not path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("heron metrics scraper")
        builder = _builder(name, name, key.public_key(), SCRAPER_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        # Another submit may be here at the same time, and what it has handed out must stay valid.
        write_secret(path, _pem(key) + _pem_of(builder.sign(key, hashes.SHA256())), replace=False)
    return _pem_of(_certificate_in(path))


def _create_authority(tls: Path, topology_id: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"heron {topology_id}")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    write_secret(tls / AUTHORITY_DIR / CA_KEY_FILE, _pem(key))
    write_secret(tls / CA_FILE, _pem_of(builder.sign(key, hashes.SHA256())))


def _load_authority(tls: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    path = tls / AUTHORITY_DIR / CA_KEY_FILE
    try:
        key = serialization.load_pem_private_key(read_secret(path), password=None)
    except ValueError as e:
        raise StateError(f"{path} is damaged") from e
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"{path} is not an ECDSA key")
    return key, _certificate_in(tls / CA_FILE)


def _issue(
    ca_key: ec.EllipticCurvePrivateKey, ca: x509.Certificate, topology_id: str, identity: str, days: int
) -> bytes:
    """Key and certificate of an identity, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _pem(key) + _pem_of(_certify(ca_key, ca, topology_id, identity, key.public_key(), days))


def _certify(
    ca_key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    topology_id: str,
    identity: str,
    public_key: ec.EllipticCurvePublicKey,
    days: int,
) -> x509.Certificate:
    serves = identity not in (CLI, TRACKER) and bootstraps(identity) is None
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri_of(topology_id, identity))]
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if serves:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names += [x509.DNSName(dns_name_of(topology_id, identity)), x509.DNSName(METRICS_DNS_NAME)]
    builder = _builder(_name(identity), ca.subject, public_key, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    builder = builder.add_extension(authority, critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCK_SKEW,
        not_valid_after=now + datetime.timedelta(days=days),
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _described(name: str, path: Path) -> Certificate:
    certificate = _certificate_in(path)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        dns_names = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        uris, dns_names = [], []
    return Certificate(
        name=name,
        subject=certificate.subject.rfc4514_string(),
        uri=next(iter(uris), ""),
        dns_names=tuple(dns_names),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
    )


def _certificate_in(path: Path) -> x509.Certificate:
    value = read_secret(path)
    try:
        return x509.load_pem_x509_certificate(value[max(0, value.find(b"-----BEGIN CERTIFICATE")) :])
    except ValueError as e:
        raise StateError(f"{path} is damaged") from e


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem_of(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
