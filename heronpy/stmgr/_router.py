"""Where a batch goes next: the outboxes of the local instances and of the peers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.stmgr._outbox import Outbox


class Router:
    """Outbox by destination task. Knows nothing until it has a plan."""

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

    def replan(self, plan: PhysicalPlan) -> list[Outbox]:
        """Take a new plan. Returns the outboxes of instances and peers that are no longer in it."""
        instances: dict[str, Outbox] = {}
        peers: dict[str, Outbox] = {}
        by_task: dict[int, Outbox] = {}
        self.spouts = set()
        for container in plan.packing.containers:
            if container.id != self._container:
                peer = peers[container.stmgr_id] = self._kept(self.peers, container.stmgr_id)
                by_task.update((i.task_id, peer) for i in container.instances)
                continue
            for instance in container.instances:
                name = instance.instance_id(container.id)
                instances[name] = by_task[instance.task_id] = self._kept(self.instances, name)
                if plan.logical.components[instance.component].is_spout:
                    self.spouts.add(name)
        gone = [b for n, b in {**self.instances, **self.peers}.items() if n not in instances and n not in peers]
        self.instances, self.peers, self._by_task = instances, peers, by_task
        return gone

    def _kept(self, outboxes: dict[str, Outbox], name: str) -> Outbox:
        # Not `or`: an empty outbox is falsy, and its link would go on serving the one that was thrown away.
        outbox = outboxes.get(name)
        return self._make_outbox(name) if outbox is None else outbox

    def route(self, batches: Iterable[stmgr_pb2.Batch]) -> list[Outbox]:
        """Put each batch into the outbox of its destination. Returns the outboxes that are at their hard limit."""
        full: list[Outbox] = []
        by_task = self._by_task
        for batch in batches:
            outbox = by_task.get(batch.dest_task)
            if outbox is None:
                continue  # the task is no longer in the plan: scaled away, its tuples time out and are replayed
            outbox.put(batch)
            if outbox.full:
                full.append(outbox)
        return full

    def all(self) -> list[Outbox]:
        return [*self.instances.values(), *self.peers.values()]
