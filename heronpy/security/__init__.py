"""Who a process is, and how it proves that to others: identities, tokens, certificates.

Making certificates is in `heronpy.security.authority`, which only those import who make them.
"""

from heronpy.security._files import private_directory, read_secret, write_secret
from heronpy.security._identity import (
    CLI,
    METRICS_DNS_NAME,
    SCHEDULER,
    TRACKER,
    bootstrap_identity,
    bootstraps,
    container_identity,
    container_of,
    dns_name_of,
    identity_of,
    is_container,
    uri_of,
)
from heronpy.security._security import CA_FILE, ID_KEY, INCARNATION_KEY, TOKEN_KEY, Security

__all__ = [
    "CA_FILE",
    "CLI",
    "ID_KEY",
    "INCARNATION_KEY",
    "METRICS_DNS_NAME",
    "SCHEDULER",
    "TOKEN_KEY",
    "TRACKER",
    "Security",
    "bootstrap_identity",
    "bootstraps",
    "container_identity",
    "container_of",
    "dns_name_of",
    "identity_of",
    "is_container",
    "private_directory",
    "read_secret",
    "uri_of",
    "write_secret",
]
