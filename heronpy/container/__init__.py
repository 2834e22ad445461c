"""Containers on hosts that share nothing with the submitter.

At submit, for each container, and brought to its host privately by the scheduler:

    document = bootstrap_document(launch, container)

On the host, in the foreground, started again by the cluster whenever it ends with another exit code than 0:

    python -m heronpy.container BOOTSTRAP_FILE [--dir WORKDIR]

It makes the topology's directory, fetches the packages, takes an incarnation, asks the Topology Master for the
container's certificate and becomes the executor. SIGTERM ends it gracefully. Exit codes:

    0    ended on purpose: by SIGTERM, or because it is not needed any more
    75   try again, here or on another host: something does not answer now (`EX_TEMPFAIL`)
    else it will not work on this host as it is: the one line on stderr says why. After 2, after 126 and 127 (a shell's:
         there is no such Python), and where Python finds no heronpy, another attempt is of no use (`is_unusable`)
"""

from heronpy.container._bootstrap import BYTES_MAX as BOOTSTRAP_BYTES_MAX
from heronpy.container._bootstrap import Bootstrap, bootstrap_document
from heronpy.container._directory import default_workdir, make_directory, remove_secrets, take_sockets
from heronpy.container._ending import TRY_AGAIN, is_unusable

__all__ = [
    "BOOTSTRAP_BYTES_MAX",
    "TRY_AGAIN",
    "Bootstrap",
    "bootstrap_document",
    "default_workdir",
    "is_unusable",
    "make_directory",
    "remove_secrets",
    "take_sockets",
]
