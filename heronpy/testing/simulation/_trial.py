"""A trial: a simulated cluster runs with faults, and what is promised about all of it is checked."""

from __future__ import annotations

from collections import Counter

from heronpy.plan import TopologyState
from heronpy.testing.simulation._cluster import START_S, Cluster
from heronpy.testing.simulation._faults import Schedule
from heronpy.testing.simulation._injector import Injector
from heronpy.testing.simulation._programs import CHECKPOINT_TIMEOUT_S, MESSAGE_TIMEOUT_S, Broken
from heronpy.testing.simulation._storage import Counts

STALL_S = 12.0
"""So long after the last fault on the path of the data, acks must come again: more than a message timeout."""
SETTLE_S = 90.0
"""So long after the last fault everything must have been acked."""
_LOOK_S = 0.5


class Trial:
    """One run of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._injector = Injector(cluster)

    def run(self, faults: Schedule) -> None:
        """Run it with faults, until everything that was emitted has been acked.

        Raises:
            Broken: a promise was not kept.
        """
        for at_s, fault in sorted(faults, key=lambda each: each[0]):
            self._cluster.loop.after(at_s, lambda fault=fault: self._injector.apply(fault))  # type: ignore[misc]  # the loop's variable
        last_s = max((at_s for at_s, _ in faults), default=0.0) + START_S
        while self._cluster.loop.now_s < max(last_s, self._injector.ends_s) + 3.0 + self._cluster.setup.burst_s:
            self._look()
        self._drain()

    def _look(self) -> None:
        self._cluster.loop.run_until(self._cluster.loop.now_s + _LOOK_S)
        self._cluster.ledger.now_s = now_s = self._cluster.loop.now_s
        if self._cluster.setup.checkpoints:
            return  # acks come with commits: they are waited for in the end
        if not self._cluster.ledger.acked or self._injector.wanted is not TopologyState.RUNNING:
            return
        for task in sorted({task for task, _ in self._cluster.ledger.open}):
            silent_s = now_s - max(self._cluster.data_path_s, self._cluster.ledger.last_ack_s.get(task, 0.0))
            if silent_s > STALL_S:
                raise Broken(f"no ack for task {task} in {silent_s:.1f} s, though numbers of it are on their way")

    def _drain(self) -> None:
        ledger = self._cluster.ledger
        ledger.closed = True
        if self._cluster.setup.checkpoints and not self._cluster.setup.at_least_once:
            self._drain_counting()
            self._check_calm()
            return
        end_s = self._cluster.loop.now_s + SETTLE_S
        while ledger.open or not ledger.acked:
            if self._cluster.loop.now_s > end_s:
                raise Broken(f"{len(ledger.open)} numbers were not acked in {SETTLE_S:g} s: {ledger.open[:5]}")
            self._look()
        if self._cluster.setup.at_least_once:
            self._cluster.loop.run_until(self._cluster.loop.now_s + CHECKPOINT_TIMEOUT_S)
            self._cluster.storage.check_at_least_once(self._counts(), "the end")
            self._check_calm()
            return
        # What is left is duplicates, and what is behind them.
        self._cluster.loop.run_until(self._cluster.loop.now_s + MESSAGE_TIMEOUT_S + 2)
        self._check_calm()

    def _drain_counting(self) -> None:
        """Run until everything is committed, and nothing is on its way."""
        cluster, storage = self._cluster, self._cluster.storage
        due = dict.fromkeys(storage.sources, cluster.ledger.due_numbers())
        end_s = cluster.loop.now_s + SETTLE_S
        while not storage.newest or storage.positions(storage.newest) != due:
            if cluster.loop.now_s > end_s:
                raise Broken(
                    f"not everything is committed after {SETTLE_S:g} s: checkpoint {storage.newest} is the last"
                )
            self._look()
        cluster.loop.run_until(cluster.loop.now_s + CHECKPOINT_TIMEOUT_S)
        storage.check(self._counts(), due, "the end")

    def _counts(self) -> Counts:
        """What all tasks have executed."""
        cluster = self._cluster
        counts: Counts = Counter()
        for container in cluster.packing.containers:
            for node in (cluster.counting[i.instance_id(container.id)] for i in container.instances):
                counts.update({(node.component, item): count for item, count in node.counts.items()})
        return counts

    def _check_calm(self) -> None:
        for name, stmgr in self._cluster.stmgrs.items():
            if stmgr.core.culprits:
                raise Broken(f"{name} throttles the spouts for {stmgr.core.culprits}, though all is done")
            waiting = {outbox: count for outbox, count in stmgr.core.waiting().items() if count}
            if waiting and not self._cluster.setup.checkpoints:  # markers go on
                raise Broken(f"batches wait in {name} though all is done: {waiting}")
        plans = {
            (stmgr.plan.version, stmgr.plan.restore_epoch) for stmgr in self._cluster.stmgrs.values() if stmgr.plan
        }
        if len(plans) != 1:
            raise Broken(f"Stream Managers have different plans: {plans}")
