"""A Stream Manager's part in a restore epoch: whether anything of it may be lost, and how far its tasks are. Pure.

A tuple that is lost need not be tracked, so losses are found by numbers: each frame of batches carries one, by link and
epoch, from 1. They go on where a link is re-made. There a peer is told the last one at once: what was lost may be the
markers that a checkpoint waits for, and nothing else may come until that is given up. The first loss *taints* the
epoch: the Topology Master learns it before any snapshot that was taken behind it, commits none of the epoch's
checkpoints from then on, and begins a newer one.

Reports of two Stream Managers may overtake each other: the snapshot of a task behind a peer could be reported there
before the loss is reported here. So a loss travels with the data, too: one number is left out on every link, and what
the others find missing they report themselves.

Only an order to restore makes a Stream Manager a member of an epoch. A new one may move batches in it before that, and
says so by the epoch in its reports: what its predecessor held is lost.
"""

from __future__ import annotations

from heronpy.proto import checkpoint_pb2

_RESTORED = checkpoint_pb2.TaskStatus.RESTORED


class EpochMembership:
    """What one Stream Manager reports to the Topology Master of its epoch."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._epoch = 0
        """In whose restore this Stream Manager took part."""
        self._taint = ""
        self._data_epoch = 0
        """In which it moves batches."""
        self._data_taint = ""
        self._sent: dict[str, int] = {}
        """Number of the last frame to each instance and peer."""
        self._before_first = 0
        """The same where there was none."""
        self._received: dict[str, int] = {}
        self._tasks: dict[str, checkpoint_pb2.TaskStatus] = {}
        """Of the attached instances, by their ids."""

    @property
    def report(self) -> checkpoint_pb2.StmgrReport:
        """All that is to be reported."""
        tasks = [self._tasks[name] for name in sorted(self._tasks)]
        return checkpoint_pb2.StmgrReport(
            incarnation=self._incarnation, epoch=self._epoch, taint=self._taint, tasks=tasks
        )

    def move_to(self, epoch: int) -> None:
        """Begin to number the frames of an epoch."""
        self._data_epoch, self._data_taint = epoch, ""
        self._before_first = 0
        self._sent.clear()
        self._received.clear()

    def restored(self, epoch: int) -> bool:
        """Take part in the restore of the epoch in which batches are moved. Returns whether it did not before."""
        assert epoch == self._data_epoch
        if epoch <= self._epoch:
            return False
        self._epoch, self._taint = epoch, self._data_taint
        return True

    def next_number(self, to: str) -> int:
        """The number of the next frame of batches to an instance or a peer."""
        number = self._sent[to] = self.last_number(to) + 1
        return number

    def received(self, source: str, number: int) -> str:
        """A frame of batches has come from an instance or a peer. Returns what its number shows; empty: no loss."""
        gap = self._gap(source, number, self._received.get(source, 0) + 1)
        self._received[source] = number
        return gap

    def last_number(self, to: str) -> int:
        """The number of the last frame of batches to an instance or a peer."""
        return self._sent.get(to, self._before_first)

    def announced(self, source: str, number: int) -> str:
        """A peer has said which frame it has sent last. As `received`."""
        return self._gap(source, number, self._received.get(source, 0))

    def _gap(self, source: str, number: int, expected: int) -> str:
        return "" if number == expected else f"{source} has sent frame {number}, and {expected} was expected"

    def lost(self, reason: str) -> bool:
        """Something that was sent in this epoch may be lost. Returns whether this is the first loss."""
        if self._data_taint:
            return False
        self._data_taint = reason
        if self._data_epoch == self._epoch:
            self._taint = reason
        self._before_first = 1
        self._sent = {to: number + 1 for to, number in self._sent.items()}
        return True

    def reported(self, instance: str, status: checkpoint_pb2.TaskStatus) -> bool:
        """An instance says how far it is. Returns whether that is something new."""
        before, self._tasks[instance] = self._tasks.get(instance), status
        return before != status

    def detached(self, instance: str) -> bool:
        """An instance is no longer attached. Returns whether it had said how far it is."""
        return self._tasks.pop(instance, None) is not None

    def has_restored(self, instance: str) -> bool:
        """Whether an instance can be given batches of this epoch."""
        status = self._tasks.get(instance)
        return status is not None and status.epoch == self._data_epoch and status.phase >= _RESTORED
