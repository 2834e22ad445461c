"""heron-shell: the logs, files and processes of a container, for those who are on other hosts.

`LocalShell` answers for a container of this host. The process `heron-shell-<n>` (`python -m heronpy.shell`) serves that
over gRPC to the CLI and the Tracker of the topology's owner, and to no other; `heronpy.shell.client.RemoteShell`
asks it. Both are a `Shell`, so what shows logs does not care where the container is.
"""

from heronpy.shell._container import Container
from heronpy.shell._file_threads import FileThreads
from heronpy.shell._log_files import LISTED_MAX, LOG_FOLDER, READ_BYTES_MAX, NotHereError
from heronpy.shell._profiles import SECONDS_MAX as PROFILE_SECONDS_MAX
from heronpy.shell._profiles import SECONDS_MIN as PROFILE_SECONDS_MIN
from heronpy.shell._search import MATCHES_MAX, log_order, process_of
from heronpy.shell._shell import LOOKS, LocalShell, Shell

__all__ = [
    "LISTED_MAX",
    "LOG_FOLDER",
    "LOOKS",
    "MATCHES_MAX",
    "PROFILE_SECONDS_MAX",
    "PROFILE_SECONDS_MIN",
    "READ_BYTES_MAX",
    "Container",
    "FileThreads",
    "LocalShell",
    "NotHereError",
    "Shell",
    "log_order",
    "process_of",
]
