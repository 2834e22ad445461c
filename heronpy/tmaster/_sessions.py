"""The open streams of Stream Managers: what is still to be sent on each, in order."""

from __future__ import annotations

import asyncio
from collections import deque

from heronpy.plan import PhysicalPlan
from heronpy.proto import checkpoint_pb2, plan_pb2, tmaster_pb2


class Outgoing:
    """What waits for one Stream Manager, bounded: a newer plan replaces an older one, and no order waits twice."""

    def __init__(self) -> None:
        self._waiting: deque[plan_pb2.PhysicalPlan | checkpoint_pb2.CheckpointOrder] = deque()
        self._version = 0

    def offer(self, version: int, plan: plan_pb2.PhysicalPlan) -> None:
        """Add a plan, unless this or a newer one was offered before."""
        if version > self._version:
            self._version = version
            self._waiting = deque(each for each in self._waiting if not isinstance(each, plan_pb2.PhysicalPlan))
            self._waiting.append(plan)

    def order(self, order: checkpoint_pb2.CheckpointOrder) -> None:
        """Add an order."""
        if order not in self._waiting:
            self._waiting.append(order)

    def take(self) -> tmaster_pb2.TmasterMessage | None:
        """The next message; None if nothing waits."""
        if not self._waiting:
            return None
        first = self._waiting.popleft()
        if isinstance(first, plan_pb2.PhysicalPlan):
            return tmaster_pb2.TmasterMessage(plan=first)
        return tmaster_pb2.TmasterMessage(orders=[first])


class Session:
    """One stream."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.closed_because = ""
        self._outgoing = Outgoing()
        self._changed = asyncio.Event()

    def offer(self, version: int, plan: plan_pb2.PhysicalPlan) -> None:
        """Send a plan, unless this or a newer one was offered before."""
        self._outgoing.offer(version, plan)
        self._changed.set()

    def order(self, order: checkpoint_pb2.CheckpointOrder) -> None:
        """Send an order."""
        self._outgoing.order(order)
        self._changed.set()

    def close(self, reason: str) -> None:
        self.closed_because = self.closed_because or reason
        self._changed.set()

    async def next_message(self) -> tmaster_pb2.TmasterMessage | None:
        """The next message to send; None once the session is closed."""
        while True:
            if self.closed_because:
                return None
            if (message := self._outgoing.take()) is not None:
                return message
            self._changed.clear()
            await self._changed.wait()


class Sessions:
    """All open streams, by number."""

    def __init__(self) -> None:
        self._open: dict[int, Session] = {}
        self._number = 0
        self._plan: PhysicalPlan | None = None
        self._proto = plan_pb2.PhysicalPlan()

    def open(self) -> Session:
        self._number += 1
        session = self._open[self._number] = Session(self._number)
        return session

    def ended(self, session: Session) -> None:
        self._open.pop(session.number, None)

    def close(self, number: int, reason: str) -> None:
        """Close a session; one that has ended by itself stays ended."""
        session = self._open.get(number)
        if session is not None:
            session.close(reason)

    def send(self, number: int, plan: PhysicalPlan) -> None:
        """Send a plan to a session, if it has not ended."""
        session = self._open.get(number)
        if session is None:
            return
        if self._plan is not plan:  # one message for all the sessions that it is sent to
            self._plan, self._proto = plan, plan.to_proto()
        session.offer(plan.version, self._proto)

    def order(self, number: int, order: checkpoint_pb2.CheckpointOrder) -> None:
        """Send an order to a session, if it has not ended."""
        if (session := self._open.get(number)) is not None:
            session.order(order)
