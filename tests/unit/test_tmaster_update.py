"""Another packing plan for a running topology, with checkpoints and without: decided by the core alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_tmaster_checkpoints import Status, nodes
from tmaster_scaled import PACKING, Scaled, running, scaled
from tmaster_world import Store, World, hello, topology

from heronpy.plan import PackingPlan, TopologyState
from heronpy.proto import checkpoint_pb2, plan_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import HeartbeatReceived, Reply, SessionEnded, StoreEffect, StoreFailed, UpdateRequested, WriteNode
from heronpy.tmaster.checkpoints import CheckpointDamaged, FindIntact, IntactFound, instance_reported
from heronpy.tmaster.parts import RequestWithdrawn


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
    (reply,) = world.replies
    waits, _, failed = reply.partition("; ")
    assert waits == "nothing was changed: tasks 1, 2 have not stored their snapshots"
    assert failed.startswith("checkpoint 1: batches in flight cannot be divided among other tasks")
    assert (world.packing, world.plan.packing, world.plan.state) == (PACKING, PACKING, TopologyState.RUNNING)


def fails(world: Scaled, *, lasting: bool) -> None:
    """Task 1 does not store its snapshot of the checkpoint under way."""
    coordinator = world.coordinator
    failed = checkpoint_pb2.SnapshotFailed(
        task=1, checkpoint=coordinator.in_progress, epoch=coordinator.epoch, reason="it refuses", lasting=lasting
    )
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    world.settled()


def test_a_checkpoint_that_can_never_be_ends_an_update_before_its_time_is_up() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    fails(world, lasting=True)
    assert world.replies == [], "the first may be of what was under way"
    world.pass_time(1.0)
    fails(world, lasting=True)
    why = "nothing was changed: checkpoint 2: a task failed: task 1: it refuses"
    assert world.replies == [why]
    assert (world.packing, world.plan.state, world.prepared) == (PACKING, TopologyState.RUNNING, None)
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    fails(world, lasting=False)
    world.pass_time(1.0)
    world.snapshot(1, 2)
    world.settled()
    assert world.replies == [why, ""], "what an earlier one met is not held against it"


def test_an_update_whose_caller_has_gone_leaves_the_plan_as_it_is() -> None:
    world = running()
    world.update(scaled((1, 3), (2,)))
    world.settle(time=False)
    assert world.plan.state is TopologyState.PAUSED
    world.feed(UpdateRequested(10, PACKING, PACKING, 10.0, world.now_s))
    assert world.replies == ["another update is under way"], "nothing is decided yet"
    world.feed(RequestWithdrawn(9, world.now_s))
    world.settled()
    assert (world.packing, world.plan.state, world.prepared) == (PACKING, TopologyState.RUNNING, None)
    world.snapshot(1, 2)
    world.pass_time(2.0)
    world.settled()
    assert world.packing == PACKING
    world.feed(UpdateRequested(11, PACKING, PACKING, 10.0, world.now_s))
    assert world.replies[2:] == [""], "what is decided is known at once"


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


def updated(wanted: PackingPlan) -> Scaled:
    """A topology that has been updated to a packing plan."""
    world = running()
    world.update(wanted)
    world.settle(time=False)
    world.snapshot(1, 2)
    world.settled()
    assert (world.packing, world.plan.packing, world.replies) == (wanted, wanted, [""])
    return world


def test_each_update_has_a_revision_of_its_own_and_is_no_other_plan_for_it() -> None:
    wanted = scaled((1, 3), (2,))
    world = updated(wanted)
    assert (wanted.revision, world.packing.revision, world.plan.packing.revision) == (0, 1, 1)
    world.update(PACKING, base=wanted)
    world.settle(time=False)
    world.snapshot(1, 2, 3)
    world.settled()
    assert (world.packing, world.packing.revision) == (PACKING, 2)


def test_a_plan_of_an_old_backup_takes_no_update_back_while_all_run(caplog: pytest.LogCaptureFixture) -> None:
    wanted = scaled((1, 3), (2,))
    world = running()
    backup = dict(world.store.nodes)
    world = updated(wanted)
    plan, nodes_after = world.plan, dict(world.store.nodes)
    for kind in (Kind.PACKINGPLANS, Kind.PPLANS):
        world.store.set(kind, backup[kind])
        world.settled()
        world.pass_time(2.0)
        assert world.store.nodes[kind] == nodes_after[kind]
    assert (world.packing, world.plan) == (wanted, plan), "no task is restored, ended or started again"
    assert "has revision 0 of the packing plan, and 1 was there" in caplog.text


def test_a_topology_master_that_starts_beside_an_old_backup_goes_on_with_its_copy() -> None:
    wanted = scaled((1, 3), (2,))
    backup = dict(running().store.nodes)
    world = updated(wanted)
    store, held = world.store, world.plan
    store.followers.clear()
    store.nodes.clear()
    store.nodes.update({kind: value for kind, value in backup.items() if kind is not Kind.TMASTERS})
    successor = Scaled(store, location=b"second", copy=world.copy)
    successor.settle()
    assert (successor.core.state.packing, successor.packing) == (wanted, wanted)
    successor.reports = world.reports
    successor.feed(*(hello(10 + c, c, plan_version=held.version) for c in (1, 2)))
    successor.settled()
    assert successor.plan.packing == wanted


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
