"""One call to ZooKeeper on its way, and what of it may have been done when no answer comes."""

from __future__ import annotations

import time
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)

# The connection or the session went away under the call: it may or may not have been done.
UNCERTAIN = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)


class Attempt:
    """One call on its way: which client it uses, and how long it may take."""

    def __init__(self, client: KazooClient, deadline_s: float) -> None:
        self.client = client
        self.repeated = False
        """An earlier attempt got no answer: it may have been done."""
        self._deadline_s = deadline_s

    def left_s(self) -> float:
        return self._deadline_s - time.monotonic()

    def read_newest(self, path: str) -> Any:
        """Value and stat of a node, not older than any value that anybody knew when the call began.

        Requests of a session are done in order, so the read sees what the transaction before it sees. The transaction
        may be lost with its connection while the read goes over the next one: an answer counts only if both were
        answered. What the transaction finds does not matter.
        """
        nothing = self.client.transaction()
        nothing.check(path, -1)
        agreed, result = nothing.commit_async(), self.client.get_async(path)
        self.wait(agreed)
        return self.wait(result)

    def read_names(self, path: str) -> Any:
        """The children of a node, as the leader knows them: see `read_newest` for what is lost."""
        synced, result = self.client.sync_async(path), self.client.get_children_async(path)
        self.wait(synced)
        return self.wait(result)

    def wait(self, result: Any) -> Any:
        """The answer to an asynchronous request, or KazooTimeoutError when the call's time is up."""
        return result.get(timeout=max(0.001, self.left_s()))
