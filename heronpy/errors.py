"""The errors of heronpy: one tree, drawn here.

HeronError                      what a user can act on; one line, an exit code, an HTTP status
├── UsageError                  the command or the call is wrong
│   ├── ConfigError             unknown key, wrong type, impossible pair
│   └── TopologyError           the topology is not valid
├── NotFoundError               no such topology, container, instance, file, class
├── AlreadyExistsError          the name is taken
├── UserCodeError               the user's code failed to import or to run (carries the traceback)
├── TupleError                  a value that cannot travel: unpicklable, too large, ungroupable
├── StateError                  the state manager cannot be read or written
└── UnavailableError            a process of the engine does not answer

Errors carry data: `args` are the constructor's arguments, so that they pickle.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HeronError(Exception):
    """Something a user can act on. `str()` is one line that names the thing and what to do."""

    exit_code = 1
    http_status = 500


class UsageError(HeronError):
    exit_code = 2
    http_status = 400


class ConfigError(UsageError):
    """An unknown key, a value of the wrong type, or an impossible combination."""


class TopologyError(UsageError):
    """The topology is not valid."""


class NotFoundError(HeronError):
    exit_code = 3
    http_status = 404


class AlreadyExistsError(HeronError):
    exit_code = 4
    http_status = 409


class UserCodeError(HeronError):
    """The user's code failed. `traceback` is theirs, without the engine's frames where possible."""

    exit_code = 5
    http_status = 400

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message, traceback)
        self.traceback = traceback

    def __str__(self) -> str:
        return str(self.args[0])


class TupleError(HeronError):
    """A tuple that cannot be sent. Names the component, the stream and, where known, the field."""


class StateError(HeronError):
    exit_code = 6
    http_status = 503


class UnavailableError(HeronError):
    exit_code = 7
    http_status = 503


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known name nearest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""
