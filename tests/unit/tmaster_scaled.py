"""A Topology Master whose topology is updated to other numbers of tasks."""

from __future__ import annotations

from typing import Any

from test_tmaster_checkpoints import Status, Stmgrs, nodes
from tmaster_world import Store, packing_plan

from heronpy.plan import ContainerPacking, InstancePacking, PackingPlan, Resources
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import HeartbeatReceived, UpdateRequested
from heronpy.tmaster.checkpoints import instance_reported

PACKING = packing_plan(1, 2)


def scaled(*containers: tuple[int, ...]) -> PackingPlan:
    """Containers 1 … n with these tasks of the one component."""
    resources = Resources(1.0, 1 << 20, 0)
    return PackingPlan(
        id="packing",
        containers=tuple(
            ContainerPacking(id, tuple(InstancePacking("word", task, task - 1, resources) for task in tasks), resources)
            for id, tasks in enumerate(containers, 1)
        ),
    )


class Scaled(Stmgrs):
    """Stream Managers whose tasks are those of the last plan that they were sent."""

    restores = True
    """Whether tasks can be restored."""

    obeys_commits = True

    reads_ahead = True
    """Whether tasks read what they are to read ahead."""

    def update(
        self, packing: PackingPlan, *, base: PackingPlan = PACKING, timeout_s: float = 60.0, start: bool = True
    ) -> None:
        self.feed(UpdateRequested(9, base, packing, timeout_s, self.now_s))
        if start:
            self.start(packing)

    def start(self, packing: PackingPlan) -> None:
        """Have the instances of a packing plan wait for a plan that has them."""
        stmgr = next(iter(self.core.state.stmgrs.values()))
        waiting = packing.instance_ids - stmgr.attached
        self.feed(HeartbeatReceived(stmgr.session, stmgr.attached, self.now_s, waiting=waiting))

    @property
    def prepared(self) -> PackingPlan | None:
        """What executors are to start beside the packing plan."""
        value = self.store.nodes.get(Kind.NEXTPACKINGPLANS)
        return PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(value)) if value else None

    def settled(self) -> None:
        """Answer the state manager, and let the instances that a plan has report for the first time."""
        for _ in range(6):
            self.settle(time=False)
            for id, (plan, _) in self.last_sent.items():
                wanted = [task for task, (container, _) in plan.tasks.items() if container.stmgr_id == id]
                report = self.reports.setdefault(id, checkpoint_pb2.StmgrReport(incarnation=1))
                known = {status.task: status for status in report.tasks}
                tasks = [known.get(task, Status(task=task, incarnation=10 + task)) for task in wanted]
                del report.tasks[:]
                report.tasks.extend(tasks)
                self.report(id)

    def _obey(self, id: str, order: checkpoint_pb2.CheckpointOrder) -> None:
        report = self.reports.setdefault(id, checkpoint_pb2.StmgrReport(incarnation=1))
        before = report.SerializeToString()
        if order.HasField("restore") and order.restore.epoch >= report.epoch:
            report.epoch = order.restore.epoch
        for status in report.tasks:
            if order.HasField("restore") and order.restore.epoch > status.epoch and self.restores:
                status.epoch, status.phase = order.restore.epoch, Status.RESTORED
            elif order.HasField("resume") and order.resume.incarnations.get(status.task) == status.incarnation:
                status.phase = Status.RUNNING
            elif order.HasField("commit") and self.obeys_commits:
                status.committed = order.commit.checkpoint
            elif order.HasField("read_ahead") and self.reads_ahead and status.task in order.read_ahead.shares:
                status.read_ahead = order.read_ahead.checkpoint
                status.read_share.CopyFrom(order.read_ahead.shares[status.task])
        if report.SerializeToString() != before:
            self.report(id)

    def snapshot(self, *tasks: int, unaligned: bool = False, undivided: str = "") -> None:
        """Report the snapshots of the checkpoint under way."""
        for task in tasks:
            stored = checkpoint_pb2.SnapshotStored(
                task=task,
                incarnation=10 + task,
                checkpoint=self.coordinator.in_progress,
                epoch=self.coordinator.epoch,
                unaligned=unaligned,
                undivided=undivided,
            )
            self.feed(instance_reported(checkpoint_pb2.InstanceReport(stored=stored), self.now_s))

    @property
    def packing(self) -> PackingPlan:
        """The durable one."""
        return PackingPlan.from_proto(plan_pb2.PackingPlan.FromString(self.store.nodes[Kind.PACKINGPLANS]))

    @property
    def plan(self) -> Any:
        assert self.core.state.plan is not None
        return self.core.state.plan


def running(store: Store | None = None) -> Scaled:
    world = Scaled(store or Store(nodes()))
    world.settle()
    world.attach()
    world.settled()
    assert world.coordinator.phase.value == "running"
    return world
