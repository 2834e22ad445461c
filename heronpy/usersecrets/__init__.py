"""Secrets of user code: named in the configuration, kept where they are, and brought to its processes as files.

    topology.secrets: {db: "file:~/db-password", key: "env:API_KEY", tls: "kubernetes:my-secret/tls.key"}
    my.url: "postgresql://ada:${secret:db}@db.example.org/words"

At submit:

    references = references_of(logical.config)      # refuses what makes no sense
    values = read_secrets(references)               # on the submitter's machine
    store_secrets(launch, values)                   # <dir>/user-secrets/<name>, 0600: from there to the hosts

In a process of user code:

    secrets = load_secrets(launch)
    secrets.fill(config)                            # ${secret:db} becomes the text
    secrets.masked(text)                            # what may be logged or reported

Only references are in plans, in launch.json and in the state manager.
"""

from heronpy.usersecrets._references import KEY, check_used, kinds_of, kubernetes_reference, references_of
from heronpy.usersecrets._submitter import FILES_BYTES_MAX, read_secrets, renewed_secrets, store_secrets
from heronpy.usersecrets._values import MOUNT_ENV, NO_SECRETS, MaskedLogs, Secrets, load_secrets

__all__ = [
    "FILES_BYTES_MAX",
    "KEY",
    "MOUNT_ENV",
    "NO_SECRETS",
    "MaskedLogs",
    "Secrets",
    "check_used",
    "kinds_of",
    "kubernetes_reference",
    "load_secrets",
    "read_secrets",
    "references_of",
    "renewed_secrets",
    "store_secrets",
]
