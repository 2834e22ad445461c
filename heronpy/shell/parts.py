"""The parts of a heron-shell, for tests."""

from heronpy.shell._log_files import folder, listing, open_log, read
from heronpy.shell._processes import find, histo, jmap, jstack, pid, pmap, processes
from heronpy.shell._profiles import profile
from heronpy.shell._search import SEARCH_BYTES_MAX, search

__all__ = [
    "SEARCH_BYTES_MAX",
    "find",
    "folder",
    "histo",
    "jmap",
    "jstack",
    "listing",
    "open_log",
    "pid",
    "pmap",
    "processes",
    "profile",
    "read",
    "search",
]
