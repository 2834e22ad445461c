"""The errors of heronpy: one tree, drawn here.

HeronError                      what a user can act on; one line, an exit code, an HTTP status
├── UsageError                  the command or the call is wrong
│   ├── ConfigError             unknown key, wrong type, impossible pair
│   └── TopologyError           the topology is not valid
│       └── NoTopologyError     the user's code defined none
├── ForbiddenError              a server does not let this user do it, or anybody
├── NotFoundError               no such topology, container, instance, file, class
├── AlreadyExistsError          the name is taken
├── UserCodeError               the user's code failed to import or to run (carries the traceback)
├── TupleError                  a value that cannot travel: unpicklable, too large, ungroupable
├── StateError                  the state manager, or a topology's directory, cannot be read or written
│   ├── CheckpointError         a checkpoint that cannot be taken, or is damaged, incomplete or another topology's
│   ├── DamagedStateError       what the state manager holds of a topology is damaged
│   ├── DamagedInputError       a batch has input that cannot be read, so it is not done
│   ├── FencedError             a newer incarnation has taken over, so this one may not write any more
│   ├── ReadFailedError         a file that may be whole, and cannot be read now
│   └── UntrustedError          a file or directory that another user owns, or could have written
└── UnavailableError            a process of the engine does not answer

Errors carry data: `args` are the constructor's arguments, so that they pickle.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable
from typing import Any

from heronpy.shown import message

_SHORTAGES = frozenset(
    (errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EIO, errno.ESTALE)
)
_NO_THREAD = "can't start new thread"
"""Python's own words, and no error of its own, for lack of memory or of processes."""
_NEAREST_CHARACTERS_MAX = 200
_NEAREST_NAMES_MAX = 2_000


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


class NoTopologyError(TopologyError):
    """The user's code ran, and defined no topology."""


class ForbiddenError(HeronError):
    exit_code = 8
    http_status = 403


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


class CheckpointError(StateError):
    """A checkpoint that cannot be taken, or one that must not be restored: damaged, incomplete, another topology's."""


class DamagedStateError(StateError):
    """A node of the state manager, which the message names, has a value that makes no sense."""


class DamagedInputError(StateError):
    """Batches are not done, because a part of their input is damaged. `report` says what was done beside them."""

    report: Any = None


class FencedError(StateError):
    """A newer incarnation of a task has taken over: what this one would write, that one writes."""


class ReadFailedError(StateError):
    """A file that may be whole, and cannot be read now: a failing disk, no file descriptors. It proves nothing."""


class UntrustedError(StateError):
    """A file or directory that another user owns, or could have written: it is neither read nor run."""


class UnavailableError(HeronError):
    exit_code = 7
    http_status = 503


def is_shortage(error: BaseException) -> bool:
    """Whether the machine is short of memory, disk or descriptors, or its disk fails.

    It proves nothing about the element that was being worked on: setting that aside for it loses a healthy one.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _SHORTAGES):
            return True
        if isinstance(cause, RuntimeError) and message(cause) == _NO_THREAD:
            return True
        seen.add(id(cause))
        cause = cause.__cause__  # a library has made its own error of it
    return False


def is_lasting(error: HeronError) -> bool:
    """Whether who tries again is bound to fail, too: it is refused, and not out of reach."""
    return isinstance(error, StateError) and not isinstance(error, ReadFailedError | FencedError)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the known name nearest to `name`, or nothing."""
    if len(name) > _NEAREST_CHARACTERS_MAX:
        return ""
    # Comparing is quadratic in the length of names, which others may have chosen.
    candidates = [k for k in itertools.islice(known, _NEAREST_NAMES_MAX) if len(k) <= 2 * len(name) + 2]
    import difflib  # here, because nearly every process imports this module and has no such error

    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
