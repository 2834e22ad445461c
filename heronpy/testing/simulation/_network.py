"""Connections between simulated processes: bounded, delayed, in order; they break, and links are cut and heal.

A message is on its way for a while, and never overtakes another one of the same connection. A cut link delivers nothing
until it heals, in one direction or both, as TCP does; the keepalive of each side closes it after some time. Messages
that are on their way when a connection breaks are lost, though their writer was notified that they were written.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from heronpy.testing.simulation._loop import Call, Loop, Process

BUFFER_BYTES = 64 * 1024
KEEPALIVE_S = 25.0
"""A side that has received nothing for so long closes its connections."""
_CHECK_S = 2.5
_CONNECT_S = 1.0
_WRITE_S = 0.001
"""A writer is notified that long after a message has left that it has; now and then much later."""
_WRITE_SLOW = 50


class Network:
    """All links, by the hosts at their ends. Processes of one container share a host."""

    def __init__(self, loop: Loop, *, delay_s: float, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Make a network with messages that take up to `delay_s` (half of them a hundredth of that).

        A connection holds `buffer_bytes` in each direction, and one message however large.
        """
        self.loop, self.delay_s, self.buffer_bytes = loop, delay_s, buffer_bytes
        self._cut: set[tuple[str, str]] = set()
        self._listeners: dict[str, tuple[str, Process, Callable[[End, str], None]]] = {}
        self._numbers = itertools.count(1)
        self._ends: list[End] = []

    def listen(self, address: str, host: str, process: Process, accept: Callable[[End, str], None]) -> None:
        """Have `accept` called with the near end of each connection, and the name of the caller."""
        self._listeners[address] = host, process, accept

    def dial(
        self, process: Process, host: str, address: str, opened: Callable[[End], None], failed: Call, name: str
    ) -> None:
        """Connect to an address; one of `opened` and `failed` is called later, as a step of the process."""

        def connect() -> None:
            if not process.alive:
                return
            found = self._listeners.get(address)
            if found is None or not found[1].alive:
                process.after(0.001, failed)
                return
            far_host, far, accept = found
            if self.is_cut(host, far_host) or self.is_cut(far_host, host) or far.stopped:
                process.after(_CONNECT_S, failed)
                return
            near_end, far_end = End(self, process, host), End(self, far, far_host)
            near_end.other, far_end.other = far_end, near_end
            self._ends += [near_end, far_end]
            far.after(0, lambda: accept(far_end, name))
            process.after(0.0005, lambda: opened(near_end))

        self.loop.after(0.0005, connect)

    def is_cut(self, source: str, destination: str) -> bool:
        return (source, destination) in self._cut

    def cut(self, source: str, destination: str) -> None:
        """Deliver nothing in this direction until `heal`."""
        self._cut.add((source, destination))

    def heal(self, source: str, destination: str) -> None:
        self._cut.discard((source, destination))
        for end in self.ends():
            end.deliver_soon()

    def break_between(self, a: str, b: str) -> None:
        """Reset every connection between two hosts."""
        for end in self.ends():
            if {end.host, end.other.host} == {a, b} and a != b:
                end.lost()

    def break_of(self, process: Process) -> None:
        """Reset every connection of a process."""
        for end in self.ends():
            if end.process is process:
                end.lost()

    def ends(self) -> list[End]:
        """Open ends."""
        self._ends = [end for end in self._ends if not end.closed]
        return list(self._ends)

    def number(self) -> int:
        return next(self._numbers)


class End:
    """One end of a connection."""

    other: End

    def __init__(self, network: Network, process: Process, host: str) -> None:
        self.process, self.host = process, host
        self.closed = False
        self.received: Callable[[bytes], None] | None = None
        self.ended: Call = lambda: None
        """Called once when the connection is lost or the other side has closed it; not after `close`."""
        self._network, self._loop = network, network.loop
        self._rng = self._loop.rng(f"connection {network.number()}")
        self._may_read = True
        self._arriving: deque[tuple[int, bytes | None]] = deque()
        self._arriving_bytes = 0
        self._scheduled = False
        self._pending: tuple[bytes, Call] | None = None
        self._received_ns = self._loop.now_ns
        process.on_death.append(self._died)
        self._keepalive()

    def start(self, received: Callable[[bytes], None], ended: Call) -> None:
        """Begin to read. What has come until now is read first."""
        self.received, self.ended = received, ended
        self.deliver_soon()

    def write(self, data: bytes, written: Call) -> None:
        """Send a message; `written` is called when there is room for it on the way. One at a time."""
        assert self._pending is None, "a message before the last one was written"
        self._pending = data, written
        self._push()

    def hold_reads(self) -> None:
        """Read no more. A reader that waits for a message gets one more."""
        self._may_read = False

    def resume_reads(self) -> None:
        self._may_read = True
        self.deliver_soon()

    def close(self) -> None:
        """Close this end; what was written before may arrive or not."""
        self._close(graceful=True)

    def lost(self) -> None:
        """The connection breaks, as seen from here."""
        if self.closed:
            return
        self._close(graceful=False)
        self.process.after(self._rng.random() * 0.002, lambda: self.ended())

    def _died(self) -> None:
        self._close(graceful=self._rng.random() < 0.5)

    def _close(self, *, graceful: bool) -> None:
        if self.closed:
            return
        self.closed = True
        self._pending = None
        other = self.other
        if not graceful:
            # What the network has taken may still arrive, also a message whose writer does not know that it has left.
            kept = list(other._arriving)[: self._rng.randint(0, len(other._arriving))]
            other._arriving = deque(kept)
            other._arriving_bytes = sum(len(data) for _, data in kept if data is not None)
        other._arriving.append((self._loop.now_ns + int(self._delay_s() * 1e9), None))
        other.deliver_soon()

    def _delay_s(self) -> float:
        return self._network.delay_s * (0.01 if self._rng.random() < 0.5 else self._rng.random())

    def _push(self) -> None:
        other = self.other
        if self._pending is None or self.closed:
            return
        data, written = self._pending
        if other._arriving_bytes and other._arriving_bytes + len(data) > self._network.buffer_bytes:
            return
        self._pending = None
        if not other.closed:
            other._arriving.append((self._loop.now_ns + int(self._delay_s() * 1e9), data))
            other._arriving_bytes += len(data)
            other.deliver_soon()
        slow = _WRITE_SLOW if self._rng.random() < 0.05 else 1
        self.process.after(_WRITE_S * slow * self._rng.random(), lambda: None if self.closed else written())

    def deliver_soon(self) -> None:
        """Have the next message delivered when its time has come."""
        if self._scheduled or self.closed or not self._arriving:
            return
        self._scheduled = True
        delay_s = max(0, self._arriving[0][0] - self._loop.now_ns) / 1e9
        self.process.after(delay_s, self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self.closed or not self._arriving or self._network.is_cut(self.other.host, self.host):
            return
        data = self._arriving[0][1]
        if data is None:
            self._arriving.clear()
            self.closed = True
            self.ended()
            return
        if self.received is None or not self._may_read:
            return
        self._arriving.popleft()
        self._arriving_bytes -= len(data)
        self._received_ns = self._loop.now_ns
        self.other._push()
        self.received(data)
        self.deliver_soon()

    def _keepalive(self) -> None:
        """A ping goes there and back: it needs both directions, and a process that runs."""
        if self.closed or not self.process.alive:
            return
        source, destination = self.host, getattr(self, "other", self).host
        cut = self._network.is_cut(source, destination) or self._network.is_cut(destination, source)
        if not cut and not (hasattr(self, "other") and self.other.process.stopped):
            self._received_ns = self._loop.now_ns
        if self._loop.now_ns - self._received_ns > KEEPALIVE_S * 1e9:
            self.lost()
            return
        self.process.after(_CHECK_S * (0.9 + 0.2 * self._rng.random()), self._keepalive)
