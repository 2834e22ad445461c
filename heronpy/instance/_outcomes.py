"""What a spout's user code receives about its tuples: acks and fails, at once or with the commit that covers them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from heronpy.api.spout import Spout
from heronpy.api.task_hook import SpoutAckInfo, SpoutFailInfo
from heronpy.instance._commit_ledger import CommitLedger
from heronpy.instance._core import TaskCore
from heronpy.instance._roots import Finished
from heronpy.instance._spout_counts import SpoutCounts

Call = Callable[..., None]
"""Calls user code: where, function, arguments. What it raises is an error of the task."""


class Outcomes:
    """Reports acks and fails to one spout, and counts them."""

    def __init__(self, core: TaskCore, call: Call) -> None:
        """Nothing has happened yet; the spout comes with `report_to`.

        Args:
            core: the task's.
            call: how user code is called.
        """
        self.ledger: CommitLedger[Any] | None = None if core.states is None else CommitLedger()
        """With checkpoints: what is acked with the commit that covers it, each a `Finished` or a list of `instant`."""
        self.instant: deque[tuple[str, Any]] = deque()
        """Stream and id of tuples that count as acked as soon as they are emitted."""
        self.wants_ack = self.wants_fail = False
        """Whether the spout, or a task hook, has something to do then."""
        self._core = core
        self._call = call
        self._counts = SpoutCounts(core.metrics, list(core.component.outputs) or ["default"])
        self._user_object: Any = None

    def report_to(self, user_object: Any) -> None:
        """The spout whose ack() and fail() are called, if it has any."""
        self._user_object, kind = user_object, type(user_object)
        self.wants_ack |= getattr(kind, "ack", None) is not Spout.ack
        self.wants_fail |= getattr(kind, "fail", None) is not Spout.fail

    @property
    def wanted(self) -> bool:
        """Whether message ids are to be kept."""
        return self.wants_ack or self.wants_fail

    def called(self, calls: int, took_ns: int) -> None:
        """next_tuple() was called."""
        self._counts.called(calls, took_ns)

    def acked(self, done: Finished) -> None:
        """Trees are complete."""
        if not done.count:
            return
        if self.ledger is None:
            self._report_acked(done)
        else:
            self.ledger.completed(done, done.count)

    def timed_out(self, expired: Finished) -> None:
        """Trees were not complete in time."""
        if expired.count:
            self._counts.timed_out(expired)
            self.failed(expired)

    def failed(self, gone: Finished) -> None:
        """Trees have failed."""
        if not gone.count:
            return
        self._counts.failed(gone)
        if self.wants_fail:
            for message_id, latency_ns in zip(gone.message_ids, gone.latencies_ns.tolist(), strict=True):
                self._call("fail()", self._user_object.fail, message_id)
                for hook in self._core.hooks:
                    info = SpoutFailInfo(message_id, self._core.task_id, latency_ns / 1e6)
                    self._call("spout_fail()", hook.spout_fail, info)

    def ack_instantly(self) -> None:
        """At most once: a tuple with an id counts as acked as soon as it is emitted, as in Heron.

        With checkpoints it is acked when one is committed that covers it.
        """
        noted = [self.instant.popleft() for _ in range(len(self.instant))]
        if not noted:
            return
        if self.ledger is not None and self.wants_ack:
            self.ledger.completed(noted, len(noted))
        else:
            self._ack(noted)

    def ack_groups(self, groups: Sequence[Any]) -> None:
        """A commit covers these of the ledger."""
        for group in groups:
            if self._core.tracking:
                self._report_acked(group)
            else:
                self._ack(group)

    def _report_acked(self, done: Finished) -> None:
        self._counts.acked(done)
        if self.wants_ack:
            for message_id, latency_ns in zip(done.message_ids, done.latencies_ns.tolist(), strict=True):
                self._call("ack()", self._user_object.ack, message_id)
                for hook in self._core.hooks:
                    info = SpoutAckInfo(message_id, self._core.task_id, latency_ns / 1e6)
                    self._call("spout_ack()", hook.spout_ack, info)

    def _ack(self, noted: Sequence[tuple[str, Any]]) -> None:
        self._counts.acked_at_once([stream for stream, _ in noted])
        if self.wants_ack:
            for _, message_id in noted:
                self._call("ack()", self._user_object.ack, message_id)
                for hook in self._core.hooks:
                    self._call("spout_ack()", hook.spout_ack, SpoutAckInfo(message_id, self._core.task_id, 0.0))
