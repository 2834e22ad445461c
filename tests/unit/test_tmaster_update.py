"""Another packing plan for a running topology, with checkpoints and without: decided by the core alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_tmaster_checkpoints import INTERVAL_S, Status, Stmgrs, nodes
from tmaster_world import Store, World, hello, packing_plan, topology

from heronpy.plan import CodeVersion, ContainerPacking, InstancePacking, PackingPlan, Resources, TopologyState
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import HeartbeatReceived, Reply, SessionEnded, StoreEffect, StoreFailed, UpdateRequested, WriteNode
from heronpy.tmaster.checkpoints import CheckpointDamaged, FindIntact, IntactFound, instance_reported
from heronpy.tmaster.parts import READ_WAIT_S, CheckpointAsked

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


def test_without_checkpoints_a_new_packing_is_in_force_at_once() -> None:
    world = World(Store({Kind.TOPOLOGIES: topology(), Kind.PACKINGPLANS: PACKING.to_proto().SerializeToString()}))
    world.settle()
    world.feed(hello(1, 1), hello(2, 2))
    world.settle(time=False)
    wanted = scaled((1, 3), (2,))
    world.feed(UpdateRequested(9, PACKING, wanted, 60.0, world.now_s))
    world.settle(time=False)
    assert world.replies == [""]
    plan = world.core.state.plan
    assert plan is not None
    assert (plan.packing, plan.state, plan.restore_epoch) == (wanted, TopologyState.RUNNING, 0)
    assert plan.logical.components["word"].parallelism == 3


def test_spouts_rest_until_a_checkpoint_is_committed_and_the_plan_comes_with_a_new_epoch() -> None:
    world = running()
    epoch = world.coordinator.epoch
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    assert (world.replies, world.packing) == ([], PACKING)
    world.snapshot(1, 2)
    world.settled()
    assert world.replies == [""]
    assert world.packing == scaled((1, 3), (2,))
    assert (world.plan.packing, world.plan.state) == (world.packing, TopologyState.RUNNING)
    assert world.plan.restore_epoch == epoch + 1
    assert (world.coordinator.phase.value, world.coordinator.restoring) == ("running", 1)
    routed = {(plan.packing == PACKING, plan.restore_epoch) for plan in world.saved_plans}
    assert (True, epoch + 1) not in routed
    assert (False, epoch) not in routed


def test_tasks_are_restored_only_by_a_plan_that_was_sent() -> None:
    world = running()
    epoch = world.coordinator.epoch
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.snapshot(1, 2)
    before = len(world.effects)
    world.settled()
    kinds = [type(effect).__name__ for effect in world.effects[before:]]
    restores = [at for at, effect in enumerate(world.effects) if _restores(effect, epoch + 1)]
    plans = [at for at, effect in enumerate(world.effects) if _has_plan(effect, epoch + 1)]
    assert "SendOrder" in kinds
    assert min(plans) < min(restores)


def _restores(effect: Any, epoch: int) -> bool:
    return type(effect).__name__ == "SendOrder" and effect.order.restore.epoch == epoch


def _has_plan(effect: Any, epoch: int) -> bool:
    return type(effect).__name__ == "SendPlan" and effect.plan.restore_epoch == epoch


def test_a_checkpoint_with_a_log_is_not_what_another_number_of_tasks_begins_with() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.snapshot(1, unaligned=True)
    world.settled()
    assert "cannot be divided" in world.coordinator.counts.last_failure
    assert world.packing == PACKING
    world.pass_time(2.0)
    assert world.coordinator.in_progress == 2, "another one is begun soon"
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.coordinator.restoring) == ([""], 2)


def test_nothing_is_changed_and_the_spouts_go_on_if_there_is_no_such_checkpoint_in_time() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)), timeout_s=5.0)
    world.settle(time=False)
    world.snapshot(1, unaligned=True)
    world.pass_time(6.0)
    assert world.replies == ["nothing was changed: tasks 1, 2 have not stored their snapshots"]
    assert (world.packing, world.plan.packing, world.plan.state) == (PACKING, PACKING, TopologyState.RUNNING)


class Forgetful(Store):
    """Writes the packing plan, and does not say so."""

    def do(self, effect: StoreEffect, now_s: float) -> Any:
        answer = super().do(effect, now_s)
        if isinstance(effect, WriteNode) and effect.kind is Kind.PACKINGPLANS:
            return StoreFailed(effect, "its answer was lost", now_s)
        return answer


def test_a_lost_answer_of_the_state_manager_does_not_hide_that_the_plan_is_durable() -> None:
    world = running(Forgetful(nodes()))
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    assert world.replies == [""]
    assert world.plan.packing == scaled((1, 3), (2,))


@pytest.mark.parametrize("epochs_raised", [0, 1])
def test_a_new_topology_master_takes_no_task_for_restored_that_ran_by_the_packing_before(epochs_raised: int) -> None:
    """Its predecessor has written the packing plan and no more; with one task less, all that run are in the plan."""
    world = running()
    store, epoch = world.store, world.coordinator.epoch
    store.set(Kind.PACKINGPLANS, scaled((1,), (2,)).to_proto().SerializeToString())  # what is in force
    wanted = replace(scaled((1,)), highest_task_id=2)
    store.set(Kind.PACKINGPLANS, wanted.to_proto().SerializeToString())
    store.followers.clear()
    store.delete(Kind.TMASTERS)
    successor = Scaled(store, location=b"second", copy=world.copy)
    successor.reports = world.reports
    successor.settle()
    for _ in range(epochs_raised):
        successor.restore()
    successor.feed(hello(11, 1, plan_version=world.core.state.version))
    successor.last_sent = {"stmgr-1": (world.plan, world.sessions[1])}
    successor.settled()
    assert successor.plan.packing == wanted
    assert successor.plan.restore_epoch > epoch
    assert {status.epoch for status in successor.reports["stmgr-1"].tasks} == {successor.plan.restore_epoch}


def test_while_a_container_is_being_started_the_old_plan_goes_on_and_only_divisible_checkpoints_are_committed() -> None:
    world = running()
    wanted = scaled((1,), (2,), (3,))
    world.update(wanted)
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.packing, world.plan.packing) == ([""], wanted, PACKING)
    assert world.plan.state is TopologyState.PAUSED
    world.pass_time(61.0)
    assert (world.plan.packing, world.plan.state) == (PACKING, TopologyState.RUNNING)
    world.pass_time(100.0)
    world.snapshot(1, unaligned=True)
    assert "cannot be divided" in world.coordinator.counts.last_failure
    world.feed(hello(3, 3))
    world.settled()
    assert (world.plan.packing, world.coordinator.restoring) == (wanted, 1)
    assert world.coordinator.phase.value == "running"


def test_what_cannot_be_restored_by_the_new_plan_is_updated_back_without_a_checkpoint() -> None:
    """Say a value per task that cannot be divided: the tasks fail to restore, and none can take a snapshot."""
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.snapshot(1, 2)
    world.restores = False
    world.settled()
    assert (world.plan.packing, world.coordinator.phase.value) == (scaled((1, 3), (2,)), "restoring")
    world.restores = True
    back = replace(PACKING, highest_task_id=3)
    world.update(back, base=scaled((1, 3), (2,)))
    world.settled()
    assert world.replies == ["", ""]
    assert (world.plan.packing, world.coordinator.restoring) == (back, 1)
    assert world.coordinator.phase.value == "running"


def test_what_only_the_tasks_of_before_can_restore_is_updated_back_without_a_checkpoint() -> None:
    """The checkpoint of the update is damaged, and the one before it has batches for one task of "word" less."""
    world = running()
    world.pass_time(100.0)
    world.snapshot(1, 2, unaligned=True)
    world.settled()
    assert world.coordinator.record.newest == 1
    wanted = scaled((1, 3), (2,))
    world.update(wanted)
    world.settle(time=False)
    world.pass_time(2.0)
    world.snapshot(1, 2)
    world.restores = False
    world.settled()
    assert (world.plan.packing, world.coordinator.restoring) == (wanted, 2)
    epoch = world.coordinator.epoch
    world.feed(CheckpointDamaged(1, epoch, 2, "a wrong checksum", world.now_s))
    (look,) = [effect for effect in world.effects if isinstance(effect, FindIntact)]
    assert (look.committed, look.tasks) == ((1, 2), {"word": 3})
    world.feed(IntactFound(epoch, 0, ("1: batches in flight", "2: a wrong checksum"), world.now_s, {"word": 2}))
    assert world.coordinator.fallback.problem.endswith("; heron update --component-parallelism word:2")
    world.update(replace(scaled((1, 3), (2, 4)), highest_task_id=4), base=wanted, timeout_s=1.0)
    world.pass_time(2.0)
    world.settled()
    assert world.replies[1:] == [f"nothing was changed: {world.coordinator.fallback.problem}"], "two others do not help"
    world.update(replace(PACKING, highest_task_id=3), base=wanted)
    world.settled()
    assert world.replies[2:] == [""]
    assert world.coordinator.epoch == epoch + 1
    world.feed(CheckpointDamaged(1, epoch + 1, 2, "a wrong checksum", world.now_s))
    look = [effect for effect in world.effects if isinstance(effect, FindIntact)][-1]
    assert look.tasks == {"word": 2}
    world.restores = True
    world.feed(IntactFound(epoch + 1, 1, ("2: a wrong checksum",), world.now_s))
    world.settled()
    assert (world.coordinator.phase.value, world.coordinator.restoring) == ("running", 1)


def test_two_updates_at_once_and_one_of_an_older_plan_are_refused() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)), base=scaled((1,), (2, 4)))
    assert world.replies == ["the packing plan has changed meanwhile: ask again"]
    world.update(scaled((1, 3), (2,)))
    world.update(scaled((1, 3), (2,)))
    assert world.replies[1:] == ["another update is under way"]


def test_a_stream_manager_that_is_lost_meanwhile_delays_the_update() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.feed(SessionEnded(2, world.now_s))
    world.settle(time=False)
    assert world.packing == PACKING
    world.reports["stmgr-2"] = checkpoint_pb2.StmgrReport(incarnation=2)
    world.feed(hello(12, 2, incarnation=2))
    world.settled()
    world.pass_time(2.0)
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.plan.packing) == ([""], scaled((1, 3), (2,)))


def test_an_update_that_a_state_would_not_survive_is_refused_while_all_run_on() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settled()
    world.snapshot(1)
    world.snapshot(2, undivided="state 'total', which has no split and merge")
    world.settled()
    (reply,) = [effect for effect in world.effects if isinstance(effect, Reply)]
    assert reply.error == (
        "nothing was changed: component 'word' cannot have another number of tasks than 2: it has state 'total', which "
        "has no split and merge"
    )
    assert world.packing == PACKING
    assert world.plan.state is TopologyState.RUNNING
    assert world.coordinator.epoch == 1


UNDIVIDED = "state 'total', which has no split and merge"


@pytest.mark.parametrize("new_tmaster", [False, True])
def test_an_update_during_a_rollback_is_refused_if_state_would_not_survive_it(new_tmaster: bool) -> None:
    world = running()
    world.pass_time(100.0)
    world.snapshot(1, 2, undivided=UNDIVIDED)
    world.settled()
    world.restores = False
    for task in (1, 2):  # both processes were started again, and cannot be restored now
        world.reports[f"stmgr-{task}"].tasks[0].incarnation += 100
        world.reports[f"stmgr-{task}"].tasks[0].epoch = 0
        world.reports[f"stmgr-{task}"].tasks[0].phase = Status.STARTED
    if new_tmaster:
        before, world = world, Scaled(world.store)
        world.reports, world.restores = before.reports, False
        world.settle()
        world.attach()
    world.settled()
    world.report("stmgr-1")
    world.settled()
    assert (world.coordinator.phase.value, world.coordinator.restoring) == ("restoring", 1)
    wanted = scaled((1, 3), (2,))
    world.update(wanted)
    world.settled()
    assert world.replies == [
        f"nothing was changed: component 'word' cannot have another number of tasks than 2: it has {UNDIVIDED}"
    ]
    assert world.packing == PACKING


def test_state_that_cannot_be_divided_is_not_committed_while_the_plan_waits_for_a_container() -> None:
    world = running()
    wanted = scaled((1,), (2,), (3,))
    world.update(wanted)
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    world.pass_time(161.0)
    world.snapshot(1, 2, undivided=UNDIVIDED)
    assert "decided upon: component 'word' has state 'total'" in world.coordinator.counts.last_failure
    world.feed(hello(3, 3))
    world.settled()
    assert (world.plan.packing, world.coordinator.restoring, world.coordinator.phase.value) == (wanted, 1, "running")


def test_a_state_that_cannot_be_divided_keeps_nobody_from_other_containers() -> None:
    world = running()
    wanted = scaled((2,), (1,))
    world.update(wanted)
    world.settled()
    world.snapshot(1, undivided="state 'total'")
    world.snapshot(2)
    world.settled()
    assert world.packing == wanted


def test_what_is_new_is_started_while_all_go_on_and_then_the_spouts_rest() -> None:
    world = running()
    wanted = scaled((1, 3), (2,))
    world.update(wanted, start=False)
    world.settled()
    assert (world.prepared, world.packing) == (wanted, PACKING)
    assert world.plan.state is TopologyState.RUNNING
    assert not world.coordinator.in_progress
    world.start(wanted)
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.packing, world.plan.packing) == ([""], wanted, wanted)
    assert world.prepared == wanted, "executors may not have heard of the plan yet"
    world.update(PACKING, base=wanted)
    world.settle(time=False)
    assert world.prepared is None, "what is to end must not be named"


@pytest.mark.parametrize("commits", [True, False])
def test_a_checkpoint_under_way_is_not_waited_for_with_spouts_that_rest(commits: bool) -> None:
    world = running()
    world.feed(CheckpointAsked(8, divisible=False, timeout_s=60.0, now_s=world.now_s))
    world.settle(time=False)
    assert world.coordinator.in_progress == 1
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.plan.state is TopologyState.RUNNING
    if commits:
        world.snapshot(1, 2)
        world.settle(time=False)
        assert world.coordinator.record.newest == 1
    else:
        world.pass_time(15.0)
    assert world.plan.state is TopologyState.PAUSED
    assert world.packing == PACKING, "the new plan begins with a checkpoint that has all"


def test_no_other_checkpoint_begins_while_an_update_waits_for_the_one_under_way() -> None:
    world = running()
    world.feed(CheckpointAsked(8, divisible=False, timeout_s=60.0, now_s=world.now_s))
    world.settle(time=False)
    world.pass_time(INTERVAL_S)
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.coordinator.in_progress == 1
    world.snapshot(1, 2)
    world.settle(time=False)
    assert world.coordinator.record.newest == 1
    assert world.plan.state is TopologyState.PAUSED, "the next one was due: it took longer than the interval"


def committed(world: Scaled) -> None:
    world.pass_time(INTERVAL_S)
    world.snapshot(1, 2)
    world.settled()


def read_orders(world: Scaled) -> list[tuple[str, int, dict[int, tuple[int, int]]]]:
    """What tasks were to read ahead: by whom they are told, of which checkpoint, and their shares."""
    found = []
    for id, order in world.orders:
        if order.HasField("read_ahead"):
            shares = {task: (share.index, share.tasks) for task, share in order.read_ahead.shares.items()}
            found.append((id, order.read_ahead.checkpoint, shares))
    return found


def test_tasks_read_what_is_committed_before_the_spouts_rest() -> None:
    world = running()
    committed(world)
    world.pass_time(INTERVAL_S - 5.0)
    world.reads_ahead = False
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert read_orders(world) == [("stmgr-1", 1, {1: (0, 3), 3: (2, 3)}), ("stmgr-2", 1, {2: (1, 3)})]
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.RUNNING, 0)
    world.pass_time(10.0)
    assert world.coordinator.in_progress == 0, "it would be newer than what they read"
    world.reads_ahead = True
    world.report("stmgr-1")
    assert read_orders(world)[-1] == ("stmgr-1", 1, {1: (0, 3), 3: (2, 3)}), "it is repeated"
    assert world.plan.state is TopologyState.RUNNING
    world.report("stmgr-2")
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 2)
    world.snapshot(1, 2)
    world.settled()
    assert (world.replies, world.coordinator.restoring) == ([""], 2)


def test_tasks_that_take_long_to_read_are_not_waited_for() -> None:
    world = running()
    committed(world)
    world.reads_ahead = False
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.pass_time(READ_WAIT_S)
    world.settled()
    assert (world.plan.state, world.coordinator.in_progress) == (TopologyState.PAUSED, 2)


def test_a_restore_meanwhile_is_not_waited_for() -> None:
    world = running()
    committed(world)
    world.reads_ahead = world.restores = False
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    world.restore()
    world.settle(time=False)
    assert world.coordinator.phase.value == "restoring"
    world.restores = True
    world.settled()
    assert (world.replies, world.plan.packing) == ([""], scaled((1, 3), (2,)))


def test_nothing_is_read_ahead_before_all_run_in_the_epoch() -> None:
    """It may begin with an older checkpoint than the newest known one, and what follows that is not what was read."""
    world = running()
    committed(world)
    world.restores = False
    world.restore()
    world.settle(time=False)
    assert world.coordinator.phase.value == "restoring"
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert read_orders(world) == []
    world.restores = True
    world.settled()
    assert (world.replies, world.plan.packing) == ([""], scaled((1, 3), (2,)))


def test_nothing_is_read_ahead_where_all_processes_are_replaced() -> None:
    code = CodeVersion("1" * 12, ("package",), topology())
    world = running()
    committed(world)
    wanted = replace(
        PACKING, containers=tuple(replace(c, code=code.version) for c in PACKING.containers), codes=(code,)
    )
    world.update(wanted)
    world.settle(time=False)
    assert (read_orders(world), world.plan.state) == ([], TopologyState.PAUSED)


def test_what_does_not_start_is_not_waited_for_for_ever() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)), start=False)
    world.pass_time(14.0)
    assert world.plan.state is TopologyState.RUNNING
    world.pass_time(2.0)
    assert world.plan.state is TopologyState.PAUSED


def test_where_nothing_is_new_nothing_is_waited_for() -> None:
    world = running()
    world.update(replace(scaled((1,)), highest_task_id=2), start=False)
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    assert world.prepared is None


def test_what_was_started_for_an_update_that_comes_to_nothing_ends() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.prepared is not None
    world.snapshot(1)
    world.snapshot(2, undivided="state 'total', which has no split and merge")
    world.settled()
    assert world.replies != [""]
    assert (world.prepared, world.packing) == (None, PACKING)


def test_a_new_topology_master_ends_what_was_started_for_the_update_of_one_that_died() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.prepared is not None
    world.store.delete(Kind.TMASTERS)
    successor = Scaled(world.store, location=b"second")
    successor.settle()
    assert (successor.prepared, successor.packing) == (None, PACKING)


def test_no_event_encodes_a_packing_plan_again_before_during_and_after_an_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are thousands of events a second, and a plan of 1000 tasks takes 4 ms."""
    encoded: list[PackingPlan] = []
    to_proto = PackingPlan.to_proto

    def counted(plan: PackingPlan) -> plan_pb2.PackingPlan:
        encoded.append(plan)
        return to_proto(plan)

    monkeypatch.setattr(PackingPlan, "to_proto", counted)
    world = running()

    def heartbeats() -> int:
        encoded.clear()
        for _ in range(10):
            for stmgr in [*world.core.state.stmgrs.values()]:
                world.feed(HeartbeatReceived(stmgr.session, stmgr.attached, world.now_s))
        return len(encoded)

    assert heartbeats() == 0
    wanted = scaled((1, 3), (2,))
    world.update(wanted, start=False)
    world.settle(time=False)
    assert heartbeats() == 0
    world.start(wanted)
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    assert world.plan.packing == wanted
    heartbeats()
    assert heartbeats() == 0


def test_a_plan_that_is_joined_with_another_has_the_instances_of_both() -> None:
    joined = scaled((1,), (2,)).joined(scaled((1, 3), (), (4,)))
    assert [[i.task_id for i in container.instances] for container in joined.containers] == [[1, 3], [2], [4]]
    assert joined.instance_ids == scaled((1, 3), (2,), (4,)).instance_ids
