"""The metrics of a Stream Manager, by Heron's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from heronpy.proto import metrics_pb2, stmgr_pb2
from heronpy.stmgr._culprits import Culprits
from heronpy.stmgr._outbox import Outbox

COUNTER = metrics_pb2.Metric.COUNTER
GAUGE = metrics_pb2.Metric.GAUGE
_KINDS = {
    stmgr_pb2.Batch.DATA: "__tuples",
    stmgr_pb2.Batch.ACK: "__ack_tuples",
    stmgr_pb2.Batch.FAIL: "__fail_tuples",
    stmgr_pb2.Batch.RESET_TIMEOUT: "__reset_tuples",
}
_OTHER = "__control_tuples"


class _Names(dict[int, str]):
    """Names of counters by kind of batch; those in band that are not tuples of the user's share one."""

    def __init__(self, direction: str, part: str) -> None:
        super().__init__({kind: f"{part}/{name}{direction}" for kind, name in _KINDS.items()})
        self._other = f"{part}/{_OTHER}{direction}"

    def __missing__(self, kind: int) -> str:
        return self._other


class Direction:
    """One of the directions in which frames pass a Stream Manager, with the names of what is counted there."""

    def __init__(self, part: str, direction: str) -> None:
        """Name it by Heron's part of a Stream Manager, e.g. `__server`, and direction, e.g. `_from_workers`."""
        self.bytes = f"{part}/__bytes{direction}"
        self.tuples = _Names(direction, part)


FROM_WORKERS = Direction("__server", "_from_workers")
TO_WORKERS = Direction("__server", "_to_workers")
FROM_STMGRS = Direction("__server", "_from_stmgrs")


def to_stmgr(peer: str) -> Direction:
    """To another Stream Manager."""
    return Direction(f"__client_{peer}", "_to_stmgrs")


class StmgrMetrics:
    """Counts what passes, by batch."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._spent_ns: dict[str, int] = {}
        self._held_ns = 0

    def passed(self, batches: Iterable[stmgr_pb2.Batch], direction: Direction) -> None:
        """Note batches that passed."""
        counts, names = self._counts, direction.tuples
        for batch in batches:
            counts[names[batch.kind]] += batch.count

    def moved(self, size: int, direction: Direction) -> None:
        """Note the bytes of a frame."""
        self._counts[direction.bytes] += size

    def lost(self, batches: Iterable[stmgr_pb2.Batch], direction: Direction) -> None:
        """Note batches that were lost with a connection."""
        for batch in batches:
            self._counts[direction.tuples[batch.kind] + "_lost"] += batch.count

    def connected(self) -> None:
        """Note a new connection with another Stream Manager."""
        self._counts["__clientmgr/__stmgr_new_connections"] += 1

    def greeted(self, peer: str) -> None:
        """Note that this Stream Manager has dialled another one."""
        self._counts[f"__client_{peer}/__hello_messages_to_stmgrs"] += 1

    def collect(self, culprits: Culprits, outboxes: Iterable[Outbox], now_ns: int) -> Iterator[metrics_pb2.Metric]:
        """What happened since the last call. Times in backpressure are in milliseconds, as in Heron."""
        counts, self._counts = self._counts, Counter()
        for name, count in counts.items():
            yield metrics_pb2.Metric(name=name, value=count, kind=COUNTER)
        spent = culprits.spent_ns(now_ns)
        for culprit, ns in spent.items():
            new = ns - self._spent_ns.get(culprit, 0)
            yield metrics_pb2.Metric(
                name=f"__time_spent_back_pressure_by_compid/{culprit}", value=new / 1e6, kind=COUNTER
            )
        initiated = (sum(spent.values()) - sum(self._spent_ns.values())) / 1e6
        yield metrics_pb2.Metric(name="__server/__time_spent_back_pressure_initiated", value=initiated, kind=COUNTER)
        self._spent_ns = spent
        held = culprits.held_ns(now_ns)
        yield metrics_pb2.Metric(
            name="__server/__time_spent_back_pressure_aggr", value=(held - self._held_ns) / 1e6, kind=COUNTER
        )
        self._held_ns = held
        for outbox in outboxes:
            base = "by_instanceid"
            yield metrics_pb2.Metric(
                name=f"__connection_buffer_{base}/{outbox.name}/bytes", value=outbox.bytes, kind=GAUGE
            )
            if outbox.feedback.was_spilled:
                name = f"__feedback_spilled_{base}/{outbox.name}/bytes"
                yield metrics_pb2.Metric(name=name, value=outbox.feedback.spilled_bytes, kind=GAUGE)
            yield metrics_pb2.Metric(
                name=f"__connection_buffer_length_{base}/{outbox.name}/packets", value=len(outbox), kind=GAUGE
            )
