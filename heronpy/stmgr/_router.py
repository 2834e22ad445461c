"""Where a batch goes next: the outboxes of the local instances and of the peers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._outbox import Outbox
from heronpy.wire import DATA


class Gate:
    """An instance behind a peer that has no room for more, as the peer has told."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def has_room(self) -> None:
        """Wait until the peer has told that there is room, or is lost."""
        await self._opened.wait()


class Router:
    """Outbox by destination task. Knows nothing until it has a plan.

    *Invariant*: what comes from a peer is never held. Instances are held by the place that their tuples go to, whether
    it is here or behind a peer; a peer held for one of its tuples would hold all others behind it, and two Stream
    Managers that wait for each other wait for ever. Acks, fails and resets hold nobody: their number is bounded by the
    roots of the spouts, and the last bolts of a topology, which send nothing else, must always get on.
    """

    def __init__(self, container: int, make_outbox: Callable[[str], Outbox]) -> None:
        self._container = container
        self._make_outbox = make_outbox
        self._by_task: dict[int, Outbox] = {}
        self.instances: dict[str, Outbox] = {}
        """Outboxes of the container's instances, by instance id."""
        self.peers: dict[str, Outbox] = {}
        """Outboxes of the other Stream Managers, by stmgr id."""
        self.spouts: set[str] = set()
        """Ids of the container's spout instances."""
        self._far: dict[str, tuple[str, int]] = {}
        self._closed: dict[int, tuple[str, Gate]] = {}

    def replan(self, plan: PhysicalPlan) -> list[Outbox]:
        """Take a new plan. Returns the outboxes of instances and peers that are no longer in it."""
        instances: dict[str, Outbox] = {}
        peers: dict[str, Outbox] = {}
        by_task: dict[int, Outbox] = {}
        self.spouts = set()
        self._far = {}
        for container in plan.packing.containers:
            if container.id != self._container:
                peer = peers[container.stmgr_id] = self._kept(self.peers, container.stmgr_id)
                by_task.update((i.task_id, peer) for i in container.instances)
                self._far.update(
                    (i.instance_id(container.id), (container.stmgr_id, i.task_id)) for i in container.instances
                )
                continue
            for instance in container.instances:
                name = instance.instance_id(container.id)
                instances[name] = by_task[instance.task_id] = self._kept(self.instances, name)
                if plan.logical.components[instance.component].is_spout:
                    self.spouts.add(name)
        gone = [b for n, b in {**self.instances, **self.peers}.items() if n not in instances and n not in peers]
        self.instances, self.peers, self._by_task = instances, peers, by_task
        for outbox in gone:
            outbox.leave_plan()
        still = set(self._far.values())
        for task in [task for task, (teller, _) in self._closed.items() if (teller, task) not in still]:
            self._open(task)  # gone, or moved: who told that it is full will not tell that there is room
        return gone

    def far_full(self, instance: str, full: bool) -> None:
        """A peer has told that one of its instances has no room for more, or has room again."""
        if instance not in self._far:
            return
        peer, task = self._far[instance]
        if not full:
            self._open(task)
        elif task not in self._closed:
            self._closed[task] = peer, Gate()

    def peer_lost(self, peer: str) -> None:
        """What a peer has told holds no longer; what is sent to it waits in its outbox."""
        for task in [task for task, (teller, _) in self._closed.items() if teller == peer]:
            self._open(task)

    def _open(self, task: int) -> None:
        closed = self._closed.pop(task, None)
        if closed is not None:
            closed[1].open()

    def _kept(self, outboxes: dict[str, Outbox], name: str) -> Outbox:
        # Not `or`: an empty outbox is falsy, and its link would go on serving the one that was thrown away.
        outbox = outboxes.get(name)
        return self._make_outbox(name) if outbox is None else outbox

    def route(self, batches: Iterable[stmgr_pb2.Batch]) -> list[Outbox | Gate]:
        """Put each batch into the outbox of its destination. Returns what has no room for more data."""
        full: list[Outbox | Gate] = []
        by_task, closed = self._by_task, self._closed
        for batch in batches:
            outbox = by_task.get(batch.dest_task)
            if outbox is None:
                continue  # the task is no longer in the plan: scaled away, its tuples time out and are replayed
            outbox.put(batch)
            if outbox.full and batch.kind == DATA:
                full.append(outbox)
            elif closed and batch.dest_task in closed and batch.kind == DATA:
                full.append(closed[batch.dest_task][1])
        return full

    def all(self) -> list[Outbox]:
        return [*self.instances.values(), *self.peers.values()]
