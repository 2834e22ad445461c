"""What is said between a process that wants another one, the fork server, and the fork.

The server says `READY` when it has imported everything. The asker sends a `Request` with two descriptors: the file for
what is printed, and one end of a socket pair of its own. On that one who has forked sends the pid, and the fork, a
child of the asker, `READY` and its pid; it goes on when it gets `GO`. If the pair is closed instead, the asker has
given up, and the fork ends: a slow fork server never leaves a process that nobody knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

READY: Final = b"ready "
GO: Final = b"go"
REQUEST_BYTES_MAX: Final = 128 << 10
"""Of a message in the socket; Linux lets about 200 KB through by default."""


class Request(NamedTuple):
    """A process to be forked."""

    parent: int
    """Pid of the asker, which reaps it."""
    argv: Sequence[str]
    """The whole command that would have executed it."""
    module: str
    args: Sequence[str]
    directory: str
    environment: Mapping[str, str]

    def encode(self) -> bytes:
        # Not by msgspec: what is no UTF-8 in an environment has half surrogate pairs here, which this escapes.
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, message: bytes) -> Request:
        return cls(*json.loads(message))
