"""The coordinator in the core of the Topology Master: fence, plan, sessions, copies and what it asks others for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tmaster_world import Store, World, hello, location, packing_plan, topology

from heronpy.errors import ReadFailedError
from heronpy.proto import checkpoint_pb2, metrics_pb2, plan_pb2, state_pb2, topology_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import Activated, KeepCopy, SendOrder, SessionEnded, StmgrRegistered
from heronpy.tmaster.checkpoints import (
    CheckpointSettings,
    CheckpointSize,
    DiscardCheckpoints,
    Failure,
    ManifestFailed,
    ManifestWritten,
    Phase,
    WriteManifest,
    instance_reported,
    stmgr_reported,
)
from heronpy.tmaster.parts import CheckpointMetrics, Session, checkpoint_progress, checkpoint_status

INTERVAL_S = 100.0
TASK_OF = {"stmgr-1": 1, "stmgr-2": 2}
Status = checkpoint_pb2.TaskStatus


def submitted(mode: str = "EFFECTIVELY_ONCE", *, interval: bool = True) -> bytes:
    proto = topology_pb2.Topology.FromString(topology())
    proto.topology_config.kvs.add(key="topology.reliability.mode", value=mode)
    if interval:
        proto.topology_config.kvs.add(key="topology.stateful.checkpoint.interval.seconds", value=f"{INTERVAL_S:g}")
    return proto.SerializeToString()


def nodes(mode: str = "EFFECTIVELY_ONCE", *, interval: bool = True) -> dict[Kind, bytes]:
    return {
        Kind.TOPOLOGIES: submitted(mode, interval=interval),
        Kind.PACKINGPLANS: packing_plan(1, 2).to_proto().SerializeToString(),
    }


class Stmgrs(World):
    """A Topology Master, and two Stream Managers that do at once what they are ordered, with a task each."""

    def __init__(self, store: Store, *, location: bytes = b"first", copy: Mapping[Kind, Any] | None = None) -> None:
        self.reports = {id: checkpoint_pb2.StmgrReport(incarnation=1) for id in TASK_OF}
        for id, task in TASK_OF.items():
            self.reports[id].tasks.add(task=task, incarnation=10 + task)
        self.orders: list[tuple[str, checkpoint_pb2.CheckpointOrder]] = []
        self.manifests: list[WriteManifest] = []
        self.stores_manifests = True
        super().__init__(store, location=location, copy=copy)

    def attach(self, first_session: int = 1) -> None:
        """Both register, and report."""
        self.feed(hello(first_session, 1), hello(first_session + 1, 2))
        self.settle()
        for id in TASK_OF:
            self.report(id)
        self.settle(time=False)

    def report(self, id: str) -> None:
        self.feed(stmgr_reported(id, self.reports[id], self.now_s))

    def stored(self, task: int, checkpoint: int, *objects: bytes) -> None:
        epoch = self.reports[f"stmgr-{task}"].epoch
        stored = checkpoint_pb2.SnapshotStored(
            task=task, incarnation=10 + task, checkpoint=checkpoint, epoch=epoch, objects=objects
        )
        self.feed(instance_reported(checkpoint_pb2.InstanceReport(stored=stored), self.now_s))

    def checkpoint(self, id: int) -> None:
        """Let one be taken."""
        self.pass_time(INTERVAL_S)
        for task in (1, 2):
            self.stored(task, id, b"object of task %d" % task)
        self.settle(time=False)

    def _apply(self, effects: list[Any]) -> None:
        super()._apply(effects)
        for effect in effects:
            if isinstance(effect, SendOrder):
                id = self.sessions[effect.session].id
                self.orders.append((id, effect.order))
                self._obey(id, effect.order)
            elif isinstance(effect, WriteManifest):
                self.manifests.append(effect)
                if self.stores_manifests:
                    self.feed(ManifestWritten(effect.checkpoint, effect.epoch, self.now_s))

    def _obey(self, id: str, order: checkpoint_pb2.CheckpointOrder) -> None:
        report = self.reports[id]
        (status,) = report.tasks
        before = report.SerializeToString()
        if order.HasField("restore") and order.restore.epoch > report.epoch:
            report.epoch, report.taint = order.restore.epoch, ""
            status.epoch, status.phase = order.restore.epoch, Status.RESTORED
        elif order.HasField("resume") and order.resume.incarnations.get(status.task) == status.incarnation:
            status.phase = Status.RUNNING
        elif order.HasField("commit"):
            status.committed = order.commit.checkpoint
        if report.SerializeToString() != before:
            self.report(id)

    @property
    def record(self) -> state_pb2.Checkpoints:
        return state_pb2.Checkpoints.FromString(self.store.nodes.get(Kind.STATEFULCHECKPOINTS, b""))

    @property
    def coordinator(self) -> Any:
        assert self.core.checkpoints is not None
        return self.core.checkpoints.coordinator

    def kinds(self, id: str) -> list[str | None]:
        return [order.WhichOneof("order") for to, order in self.orders if to == id]


@pytest.fixture
def store() -> Store:
    return Store(nodes())


@pytest.fixture
def world(store: Store) -> Stmgrs:
    world = Stmgrs(store)
    world.settle()
    world.attach()
    assert world.coordinator.phase is Phase.RUNNING
    return world


def test_a_topology_begins_with_the_restore_of_nothing_in_an_epoch_that_is_durable(world: Stmgrs) -> None:
    assert world.store.epoch.restore_epoch == 1
    assert world.kinds("stmgr-1")[:2] == ["restore", "resume"]
    order = world.orders[0][1].restore
    assert (order.epoch, order.checkpoint, list(order.tasks)) == (1, 0, [1])
    assert world.saved_plans[-1].restore_epoch == 1


def test_without_the_mode_there_are_no_checkpoints_and_reports_change_nothing() -> None:
    for mode in ("ATMOST_ONCE", "ATLEAST_ONCE"):
        world = Stmgrs(Store(nodes(mode, interval=False)))
        world.settle()
        world.attach()
        world.pass_time(2 * INTERVAL_S)
        assert (world.core.checkpoints, world.orders, world.store.epoch.restore_epoch) == (None, [], 0)
        (activated,) = [effect for effect in world.effects if isinstance(effect, Activated)]
        assert Kind.STATEFULCHECKPOINTS not in activated.follow


def test_a_checkpoint_is_committed_once_its_manifest_is_stored(world: Stmgrs) -> None:
    world.stores_manifests = False
    world.checkpoint(1)
    (manifest,) = world.manifests
    assert (manifest.checkpoint, manifest.epoch, manifest.previous) == (1, 1, 0)
    assert (manifest.objects, manifest.tasks) == ((b"object of task 1", b"object of task 2"), {"word": 2})
    assert list(world.record.committed) == []
    world.feed(ManifestWritten(1, 1, world.now_s))
    world.settle(time=False)
    assert list(world.record.committed) == [1]
    assert world.kinds("stmgr-2")[-2:] == ["begin", "commit"]
    assert world.effects[-1] == DiscardCheckpoints((1,), 1)


def test_a_manifest_that_cannot_be_stored_costs_the_checkpoint(world: Stmgrs) -> None:
    world.stores_manifests = False
    world.checkpoint(1)
    world.feed(ManifestFailed(1, 1, "the disk is full", world.now_s))
    assert world.kinds("stmgr-1")[-1] == "abort"
    assert world.coordinator.counts.failed == {Failure.STORAGE: 1}


def test_what_is_committed_is_copied_before_anybody_is_told(world: Stmgrs) -> None:
    world.checkpoint(1)
    effects = [e for e in world.effects if isinstance(e, KeepCopy | SendOrder)]
    commit = next(n for n, e in enumerate(effects) if isinstance(e, SendOrder) and e.order.HasField("commit"))
    copies = [e for e in effects[:commit] if isinstance(e, KeepCopy) and e.kind is Kind.STATEFULCHECKPOINTS]
    assert list(state_pb2.Checkpoints.FromString(copies[-1].value).committed) == [1]


@pytest.mark.parametrize("found", ["taint", "rollback", "stmgr"])
def test_a_loss_raises_the_epoch_durably_and_restores_the_last_commit(world: Stmgrs, found: str) -> None:
    world.checkpoint(1)
    world.orders.clear()
    if found == "taint":
        world.reports["stmgr-2"].taint = "frame 7 is missing"
        world.report("stmgr-2")
    elif found == "stmgr":
        world.reports["stmgr-2"] = checkpoint_pb2.StmgrReport(incarnation=2)
        world.reports["stmgr-2"].tasks.add(task=2, incarnation=99)
        world.feed(SessionEnded(2, world.now_s), hello(3, 2, incarnation=2))
        world.report("stmgr-2")
    else:
        rollback = checkpoint_pb2.RollbackRequest(task=2, epoch=1, reason="ValueError")
        world.feed(instance_reported(checkpoint_pb2.InstanceReport(rollback=rollback), world.now_s))
    assert world.orders == [], "the epoch is not durable yet"
    world.settle(time=False)
    world.settle()
    restores = [order.restore for _, order in world.orders if order.HasField("restore")]
    assert {(r.epoch, r.checkpoint) for r in restores} == {(2, 1)}
    assert world.coordinator.phase is Phase.RUNNING
    assert world.saved_plans[-1].restore_epoch == 2


def test_a_failed_snapshot_aborts(world: Stmgrs) -> None:
    world.pass_time(INTERVAL_S)
    failed = checkpoint_pb2.SnapshotFailed(task=2, checkpoint=1, epoch=1, reason="no storage")
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    assert world.kinds("stmgr-1")[-1] == "abort"
    status = checkpoint_status(world.coordinator, world.now_s, now_ms=0)
    assert status.last_failure == "checkpoint 1: a task failed: task 2: no storage"
    assert status.ended[0].failure == "a task failed: task 2: no storage"


def test_the_next_topology_master_restores_nobody_who_runs_and_repeats_the_commit(world: Stmgrs) -> None:
    world.checkpoint(1)
    world.store.delete(Kind.TMASTERS)
    second = Stmgrs(world.store, location=b"second")
    second.reports = world.reports
    for report in second.reports.values():
        report.tasks[0].committed = 0
    second.settle()
    second.attach()
    assert second.coordinator.phase is Phase.RUNNING
    assert {"abort", "commit"} <= set(second.kinds("stmgr-1"))
    assert not {"restore", "resume"} & set(second.kinds("stmgr-1"))
    second.checkpoint(2)
    assert list(second.record.committed) == [1, 2]


def test_a_topology_master_that_was_replaced_commits_nothing(world: Stmgrs) -> None:
    world.pass_time(INTERVAL_S)
    world.asleep = True
    world.store.delete(Kind.TMASTERS)
    second = Stmgrs(world.store, location=b"second")
    second.settle()
    world.asleep = False
    for task in (1, 2):
        world.stored(task, 1)
    world.settle()
    assert list(world.record.committed) == []
    assert world.finished is not None


def test_a_record_that_the_state_manager_has_lost_is_written_again(world: Stmgrs) -> None:
    world.checkpoint(1)
    world.store.empty()
    world.settle()
    assert list(world.record.committed) == [1]
    assert world.store.epoch.restore_epoch == 1


def test_a_topology_master_beside_an_empty_state_manager_goes_on_from_its_copy(world: Stmgrs) -> None:
    world.checkpoint(1)
    world.store.followers.clear()
    world.store.empty()
    second = Stmgrs(world.store, location=b"second", copy=world.copy)
    second.reports = world.reports
    second.settle()
    held = world.core.state.plan
    assert held is not None
    second.feed(*(StmgrRegistered(c, location(c), held.version, 0.0, 1, held.stmgrs) for c in (1, 2)))
    second.settle()
    for id in TASK_OF:
        second.report(id)
    second.settle()
    assert list(second.record.committed) == [1]
    restores = [order.restore for _, order in second.orders if order.HasField("restore")]
    assert {(r.epoch, r.checkpoint) for r in restores} == {(2, 1)}, "what epoch 1 restored is not known any more"
    assert second.coordinator.phase is Phase.RUNNING


@pytest.mark.parametrize("damaged", [False, True])
def test_a_state_manager_that_was_restored_from_an_old_backup_takes_nothing_committed_back(
    world: Stmgrs, damaged: bool
) -> None:
    world.checkpoint(1)
    backup = dict(world.store.nodes)
    world.checkpoint(2)
    world.checkpoint(3)
    world.store.followers.clear()
    world.store.nodes.clear()
    world.store.nodes.update({kind: value for kind, value in backup.items() if kind is not Kind.TMASTERS})
    if damaged:
        world.store.nodes[Kind.STATEFULCHECKPOINTS] = b"\xff damaged"
    second = Stmgrs(world.store, location=b"second", copy=world.copy)
    second.reports = world.reports
    second.settle()
    second.attach()
    second.settle()
    assert list(second.record.committed)[-1] == 3
    assert second.coordinator.newest_begun >= 3, "no id is used twice"


def test_a_topology_master_that_cannot_read_its_copy_does_not_begin_without_state(world: Stmgrs) -> None:
    world.checkpoint(1)
    world.store.followers.clear()
    world.store.empty()
    unreadable = {Kind.STATEFULCHECKPOINTS: ReadFailedError("too many open files")}
    second = Stmgrs(world.store, location=b"second", copy={**world.copy, **unreadable})
    second.settle()
    assert "no record of checkpoints" in str(second.finished)


def test_a_stream_manager_without_a_session_gets_no_orders_and_is_not_heard(world: Stmgrs) -> None:
    world.feed(SessionEnded(2, world.now_s))
    world.reports["stmgr-2"].taint = "late"
    world.report("stmgr-2")
    world.settle(time=False)
    assert world.store.epoch.restore_epoch == 1
    world.orders.clear()
    world.pass_time(INTERVAL_S)
    assert world.orders == [], "nothing is begun while a task is out of reach"


def test_settings_come_from_the_topology() -> None:
    settings = CheckpointSettings.of({"topology.reliability.mode": "EFFECTIVELY_ONCE"}, 5)
    assert settings is not None
    assert (settings.interval_s, settings.retained) == (10.0, 5)
    assert CheckpointSettings.of({"topology.reliability.mode": "ATLEAST_ONCE"}, 5) is None


def test_what_is_shown_of_checkpoints(world: Stmgrs) -> None:
    world.checkpoint(1)
    world.pass_time(INTERVAL_S)
    world.stored(1, 2)
    status = checkpoint_status(world.coordinator, world.now_s + 7, now_ms=1_000_000)
    assert (status.phase, status.newest, status.in_progress, list(status.missing_tasks)) == ("running", 1, 2, [2])
    assert (status.in_progress_ms, status.age_ms, status.interval_ms) == (7000, 107_000, 100_000)
    assert (status.committed, status.failed, status.restores) == (1, 0, 0), "a start is no restore"
    (ended,) = status.ended
    assert (ended.checkpoint, ended.ended_ms, ended.failure, ended.size) == (1, 893_000, "", 0)


def test_sizes_are_those_that_the_checkpoint_manager_has_found(world: Stmgrs) -> None:
    world.stores_manifests = False
    world.checkpoint(1)
    world.feed(ManifestWritten(1, 1, world.now_s, CheckpointSize(1000, 100, 10)))
    world.settle(time=False)
    (ended,) = checkpoint_status(world.coordinator, world.now_s, now_ms=0).ended
    assert (ended.size, ended.added, ended.logged) == (1000, 100, 10)
    gauges = {metric.name: metric.value for metric in CheckpointMetrics().collect(world.coordinator, world.now_s)}
    assert (gauges["__checkpoint-size-bytes"], gauges["__checkpoint-added-bytes"]) == (1000, 100)


def test_a_rollback_is_shown_with_what_was_lost_and_counts_for_the_verdict(world: Stmgrs) -> None:
    world.checkpoint(1)
    for _ in range(3):
        world.reports["stmgr-2"].taint = "frame 7 did not come"
        world.report("stmgr-2")
        world.settle(time=False)
    status = checkpoint_status(world.coordinator, world.now_s, now_ms=5000)
    assert [(one.epoch, one.checkpoint, one.began_ms) for one in status.restored] == [(n, 1, 5000) for n in (2, 3, 4)]
    progress = checkpoint_progress(world.coordinator, world.now_s)
    assert (progress.rollbacks, progress.age_s, status.restores) == (3, 0.0, 3)
    assert "frame 7 did not come" in progress.last_rollback
    assert checkpoint_progress(world.coordinator, world.now_s + 601).rollbacks == 0


def test_the_verdict_is_told_what_a_checkpoint_waits_for(world: Stmgrs) -> None:
    world.pass_time(INTERVAL_S)
    world.stored(1, 1)
    progress = checkpoint_progress(world.coordinator, world.now_s)
    component = world.coordinator.component_of(2)
    assert component
    assert progress.obstacle == f"checkpoint 1 waits for the snapshots of tasks 2 ({component})"
    assert checkpoint_status(world.coordinator, world.now_s, now_ms=5000).obstacle == progress.obstacle


def test_the_verdict_is_told_why_checkpoints_fail_also_when_the_next_has_begun(world: Stmgrs) -> None:
    world.pass_time(INTERVAL_S)
    failed = checkpoint_pb2.SnapshotFailed(task=2, checkpoint=1, epoch=1, reason="no storage")
    world.feed(instance_reported(checkpoint_pb2.InstanceReport(failed=failed), world.now_s))
    why = "checkpoint 1: a task failed: task 2: no storage"
    assert checkpoint_progress(world.coordinator, world.now_s).obstacle == why
    world.pass_time(INTERVAL_S)
    assert checkpoint_progress(world.coordinator, world.now_s + 1).obstacle == why
    slow = checkpoint_progress(world.coordinator, world.now_s + INTERVAL_S + 1).obstacle
    first, second = (f"{task} ({world.coordinator.component_of(task)})" for task in (1, 2))
    assert slow == f"checkpoint 2 waits for the snapshots of tasks {first}, {second}; {why}"
    for task in (1, 2):
        world.stored(task, 2)
    world.settle(time=False)
    assert checkpoint_progress(world.coordinator, world.now_s).obstacle == ""


def test_counts_are_reported_as_what_was_added_since_the_last_report(world: Stmgrs) -> None:
    metrics = CheckpointMetrics()

    def counted() -> float:
        found = {m.name: m for m in metrics.collect(world.coordinator, world.now_s)}
        assert found["__checkpoint-count"].kind == metrics_pb2.Metric.COUNTER
        return found["__checkpoint-count"].value

    assert counted() == 0
    world.checkpoint(1)
    world.checkpoint(2)
    assert [counted(), counted()] == [2, 0]


# sessions


async def test_a_session_sends_orders_and_plans_in_order_and_keeps_little() -> None:
    session = Session(1)
    begin = checkpoint_pb2.CheckpointOrder(begin=checkpoint_pb2.BeginCheckpoint(checkpoint=1))
    abort = checkpoint_pb2.CheckpointOrder(abort=checkpoint_pb2.AbortCheckpoint(checkpoint=1))
    session.offer(1, plan_pb2.PhysicalPlan(version=1))
    for order in (begin, begin, abort, begin):
        session.order(order)
    session.offer(2, plan_pb2.PhysicalPlan(version=2))
    session.offer(1, plan_pb2.PhysicalPlan(version=1))
    sent = [await asyncio.wait_for(session.next_message(), 120) for _ in range(3)]
    assert [(list(m.orders), m.plan.version) for m in sent if m is not None] == [([begin], 0), ([abort], 0), ([], 2)]
    session.order(begin)
    assert (again := await session.next_message()) is not None
    assert list(again.orders) == [begin]
    session.close("done")
    assert await session.next_message() is None
