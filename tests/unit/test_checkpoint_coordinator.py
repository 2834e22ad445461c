"""When checkpoints are begun, committed and aborted, and when everybody is put back: the coordinator's decisions."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.errors import StateError
from heronpy.proto import state_pb2
from heronpy.statemgr import Kind
from heronpy.tmaster import NodeChanged, NodesRead, NodeWritten, ReadNodes, StoreFailed, WriteNode
from heronpy.tmaster.checkpoints import (
    AbortCheckpoint,
    AnnounceCommit,
    BeginCheckpoint,
    CheckLeadership,
    CheckpointCoordinator,
    CheckpointDamaged,
    CheckpointSettings,
    DiscardCheckpoints,
    Effect,
    Event,
    Failure,
    FenceChanged,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    Phase,
    Poisoned,
    RaiseRestoreEpoch,
    Record,
    RestoreTasks,
    ResumeTasks,
    RollbackRequested,
    StmgrDisconnected,
    StmgrReported,
    TaskPhase,
    TasksChanged,
    TaskSnapshotFailed,
    TaskSnapshotted,
    TaskStatus,
    TimePassed,
    Undivided,
    WriteManifest,
)

TASKS = {1: "stmgr-1", 2: "stmgr-1", 3: "stmgr-2"}
COMPONENTS = {"word": 1, "count": 2}
INTERVAL_S, TIMEOUT_S = 10.0, 60.0


class World:
    """Coordinators one after the other, their state manager, and the tasks, which do at once what they are told."""

    def __init__(self, retained: int = 1, **settings: Any) -> None:
        self.settings = CheckpointSettings(interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, retained=retained, **settings)
        self.damaged: set[int] = set()
        """Checkpoints that no task can restore."""
        self.logged: dict[int, int] = {}
        """Those with logs, and the number of tasks of "count" that these are for."""
        self.storage_away = self.looks_are_held = False
        self.now_s = 0.0
        self.term = self.epoch = 0
        self.record: bytes | None = None
        self.away = self.loses_answers = False
        self.held: list[WriteNode] | None = None
        """Writes that are answered later, if it is a list."""
        self.stores_manifests = True
        self.obeys = True
        self.stmgr_epochs = dict.fromkeys(("stmgr-1", "stmgr-2"), 0)
        self.stmgr_incarnations = dict.fromkeys(("stmgr-1", "stmgr-2"), 1)
        self.taints = dict.fromkeys(("stmgr-1", "stmgr-2"), "")
        self.tasks = {task: TaskStatus(100 + task, 0, TaskPhase.STARTED) for task in TASKS}
        self.effects: list[Effect] = []
        self.become_leader()

    def become_leader(self) -> None:
        """A new Topology Master takes over."""
        self.term += 1
        self.coordinator = CheckpointCoordinator("words-1", self.settings)
        self.feed(TasksChanged(TASKS, self.now_s, COMPONENTS))
        self.feed(FenceChanged(self.fence, self.epoch, self.now_s))

    @property
    def fence(self) -> bytes:
        return f"term {self.term} epoch {self.epoch}".encode()

    @property
    def durable(self) -> Record:
        return Record.from_proto(state_pb2.Checkpoints.FromString(self.record or b""))

    def feed(self, event: Event) -> list[Effect]:
        effects = self.coordinator.step(event)
        self.coordinator.check_invariants()
        self.effects += effects
        for effect in effects:
            self.carry_out(effect)
        return effects

    def carry_out(self, effect: Any) -> None:
        match effect:
            case ReadNodes():
                if self.away:
                    self.feed(StoreFailed(effect, "it is away", self.now_s))
                else:
                    self.feed(NodesRead(effect, {Kind.STATEFULCHECKPOINTS: self.record}, self.now_s))
            case WriteNode():
                if self.held is not None:
                    self.held.append(effect)
                else:
                    self.write(effect)
            case WriteManifest(checkpoint, epoch) if self.stores_manifests:
                self.feed(ManifestWritten(checkpoint, epoch, self.now_s))
            case RaiseRestoreEpoch(above) if self.obeys:
                self.epoch = above + 1
                self.feed(FenceChanged(self.fence, self.epoch, self.now_s))
            case RestoreTasks(id, epoch, _, tasks) if self.obeys:
                if effect.checkpoint in self.damaged:
                    self.feed(CheckpointDamaged(1, epoch, effect.checkpoint, "a wrong checksum", self.now_s))
                    return
                before = dict(self.tasks), dict(self.stmgr_epochs)
                self.stmgr_epochs[id], self.taints[id] = epoch, ""
                for task, status in self.tasks_of(id):
                    if status.epoch < epoch and task in tasks:
                        self.tasks[task] = TaskStatus(status.incarnation, epoch, TaskPhase.RESTORED)
                if before != (self.tasks, self.stmgr_epochs):
                    self.report(id)
            case FindIntact() if self.looks_are_held:
                pass
            case FindIntact(epoch) if self.storage_away:
                self.feed(IntactUnknown(epoch, "no route to host", self.now_s))
            case FindIntact(epoch, committed, tasks):
                unfit = {id for id, logged in self.logged.items() if tasks.get("count") != logged} - self.damaged
                intact = max((id for id in committed if id not in self.damaged | unfit), default=0)
                whys = {id: "a wrong checksum" if id in self.damaged else "batches in flight" for id in committed}
                refused = tuple(f"{id}: {why}" for id, why in whys.items() if id > intact)
                needed = {"count": self.logged[max(unfit)]} if unfit else {}
                self.feed(IntactFound(epoch, intact, refused, self.now_s, needed))
            case ResumeTasks(id, epoch, incarnations) if self.obeys:
                for task, status in self.tasks_of(id):
                    if (incarnations.get(task), epoch) == (status.incarnation, status.epoch):
                        self.tasks[task] = TaskStatus(status.incarnation, epoch, TaskPhase.RUNNING, status.committed)
                self.report(id)

    def write(self, write: WriteNode) -> None:
        if self.away:
            self.feed(StoreFailed(write, "it is away", self.now_s))
            return
        done = write.expected == self.fence
        if done:
            self.record = write.value
        if self.loses_answers:
            self.feed(StoreFailed(write, "the answer was lost", self.now_s))
        else:
            self.feed(NodeWritten(write, done, self.now_s))

    def tasks_of(self, id: str) -> list[tuple[int, TaskStatus]]:
        return [(task, status) for task, status in self.tasks.items() if TASKS[task] == id]

    def report(self, id: str) -> list[Effect]:
        tasks, incarnation = dict(self.tasks_of(id)), self.stmgr_incarnations[id]
        return self.feed(
            StmgrReported(id, incarnation, self.stmgr_epochs[id], self.taints[id], tasks, self.now_s),
        )

    def all_report(self) -> None:
        self.report("stmgr-1")
        self.report("stmgr-2")

    def pass_time(self, seconds: float = INTERVAL_S) -> None:
        self.now_s += seconds
        self.feed(TimePassed(self.now_s))

    def snapshot(self, task: int, checkpoint: int) -> None:
        status = self.tasks[task]
        self.feed(TaskSnapshotted(task, status.incarnation, checkpoint, status.epoch, self.now_s))

    def restart(self, task: int) -> None:
        self.tasks[task] = TaskStatus(self.tasks[task].incarnation + 1000, 0, TaskPhase.STARTED)

    def restart_stmgr(self, id: str) -> None:
        self.stmgr_incarnations[id] += 1
        self.stmgr_epochs[id] = 0

    def commit(self, checkpoint: int) -> None:
        self.pass_time()
        for task in TASKS:
            self.snapshot(task, checkpoint)
        assert self.durable.newest == checkpoint

    def take(self, kind: type) -> list[Any]:
        """The effects of a kind since the last call; all others are forgotten."""
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = []
        return found


@pytest.fixture
def world() -> World:
    """Everybody runs in the first epoch, without a checkpoint."""
    world = World()
    world.all_report()
    assert world.coordinator.phase is Phase.RUNNING
    world.take(object)
    return world


def test_a_topology_begins_with_a_restore_of_nothing() -> None:
    world = World()
    world.all_report()
    restored = {(e.stmgr_id, e.epoch, e.checkpoint) for e in world.effects if type(e) is RestoreTasks}
    assert restored == {("stmgr-1", 1, 0), ("stmgr-2", 1, 0)}
    assert (world.coordinator.phase, world.epoch) == (Phase.RUNNING, 1)


def test_nobody_resumes_before_all_have_restored() -> None:
    world = World()
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.RESTORING
    assert world.take(ResumeTasks) == []
    world.report("stmgr-2")
    assert {e.stmgr_id for e in world.take(ResumeTasks)} == {"stmgr-1", "stmgr-2"}


def test_a_checkpoint_is_durable_before_it_is_begun(world: World) -> None:
    world.held = []
    world.pass_time()
    assert world.take(BeginCheckpoint) == []
    world.write(world.held.pop())
    assert world.durable.in_progress == 1
    assert world.take(BeginCheckpoint) == [BeginCheckpoint("stmgr-1", 1, 1), BeginCheckpoint("stmgr-2", 1, 1)]


def test_a_checkpoint_is_committed_when_every_task_has_reported(world: World) -> None:
    world.pass_time()
    world.snapshot(1, 1)
    world.snapshot(2, 1)
    world.snapshot(2, 1)
    assert (world.durable.committed, world.coordinator.missing) == ((), [3])
    world.snapshot(3, 1)
    assert world.durable == Record("words-1", last_id=1, committed=(1,), settled=1)
    assert world.take(AnnounceCommit) == [AnnounceCommit("stmgr-1", 1), AnnounceCommit("stmgr-2", 1)]
    assert world.coordinator.counts.committed == 1


def test_one_checkpoint_is_under_way_at_a_time(world: World) -> None:
    world.pass_time()
    world.pass_time()
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {1}
    for task in TASKS:
        world.snapshot(task, 1)
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {2}, "the next one is overdue"


def test_reports_of_another_checkpoint_epoch_or_incarnation_do_not_count(world: World) -> None:
    world.pass_time()
    world.feed(TaskSnapshotted(1, 101, 2, 1, world.now_s))
    world.feed(TaskSnapshotted(1, 101, 1, 0, world.now_s))
    world.feed(TaskSnapshotted(1, 999, 1, 1, world.now_s))
    world.feed(TaskSnapshotted(9, 101, 1, 1, world.now_s))
    assert world.coordinator.missing == [1, 2, 3]


def test_a_commit_is_repeated_until_every_task_knows_of_it(world: World) -> None:
    world.commit(1)
    world.take(object)
    assert world.report("stmgr-2") == [AnnounceCommit("stmgr-2", 1)]
    status = world.tasks[3]
    world.tasks[3] = TaskStatus(status.incarnation, status.epoch, status.phase, committed=1)
    assert world.report("stmgr-2") == []


def test_the_record_says_which_checkpoint_has_no_logs(world: World) -> None:
    world.commit(1)
    for checkpoint in (2, 3):
        world.pass_time()
        world.snapshot(1, checkpoint)
        world.feed(TaskSnapshotted(2, 102, checkpoint, 1, world.now_s, unaligned=True))
        world.snapshot(3, checkpoint)
    assert (world.durable.newest, world.durable.settled) == (3, 1)
    assert world.durable.without_newer(2).settled == 1
    assert world.durable.without_newer(0).settled == 0


def test_rollbacks_because_of_a_tuple_are_counted_through_the_deaths_of_topology_masters(world: World) -> None:
    for rollbacks in (1, 2, 3):
        assert not any(order.set_aside for order in world.take(RestoreTasks))
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
        assert {tup: each.rollbacks for tup, each in world.durable.poisoned.items()} == {b"a digest": rollbacks}
        if rollbacks < 3:
            world.become_leader()
        world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {b"a digest": "ValueError"}
    world.become_leader()
    world.restart(1)
    world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {b"a digest": "ValueError"}
    world.commit(1)
    assert world.durable.poisoned == {}
    world.restart(1)
    world.all_report()
    assert [order.set_aside for order in world.take(RestoreTasks)][-1] == {}


def test_a_rollback_that_is_asked_for_before_the_record_is_read_counts_besides(world: World) -> None:
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
        world.all_report()
    world.away = True
    world.become_leader()
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, b"a digest"))
    world.away = False
    world.pass_time()
    world.all_report()
    assert {tup: each.rollbacks for tup, each in world.durable.poisoned.items()} == {b"a digest": 3}


def test_an_epoch_that_somebody_else_has_raised_has_the_leadership_checked(world: World) -> None:
    world.stmgr_epochs["stmgr-1"] = 2
    assert world.report("stmgr-1") == [CheckLeadership()]


def test_a_failed_snapshot_aborts_the_checkpoint_and_its_id_is_not_used_again(world: World) -> None:
    world.pass_time()
    world.feed(TaskSnapshotFailed(2, 1, 1, "the disk is full", world.now_s))
    assert world.take(AbortCheckpoint) == [AbortCheckpoint("stmgr-1", 1, 1), AbortCheckpoint("stmgr-2", 1, 1)]
    assert world.coordinator.counts.failed == {Failure.TASK: 1}
    assert "task 2: the disk is full" in world.coordinator.counts.last_failure
    for task in TASKS:
        world.snapshot(task, 1)
    assert world.durable.committed == ()
    world.commit(2)


def test_a_manifest_of_all_snapshots_is_stored_before_the_commit(world: World) -> None:
    world.commit(1)
    world.stores_manifests = False
    world.pass_time()
    for task, objects in ((1, (b"a", b"b")), (2, ()), (3, (b"c",))):
        world.take(object)
        world.feed(TaskSnapshotted(task, 100 + task, 2, 1, world.now_s, objects=objects))
    assert world.take(object) == [WriteManifest(2, 1, 1, (b"a", b"b", b"c"), COMPONENTS, 0.0)]
    world.feed(ManifestWritten(1, 1, world.now_s))
    assert world.durable.newest == 1, "that is another one's"
    world.feed(ManifestWritten(2, 1, world.now_s))
    assert world.durable.newest == 2
    world.feed(ManifestWritten(2, 1, world.now_s))
    world.feed(ManifestFailed(2, 1, "late", world.now_s))
    assert world.coordinator.counts.failed == {}


def test_without_its_manifest_a_checkpoint_is_aborted(world: World) -> None:
    world.stores_manifests = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 1)
    world.feed(ManifestFailed(1, 1, "the disk is full", world.now_s))
    assert world.coordinator.counts.last_failure.endswith("its manifest could not be stored: the disk is full")
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 2)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.counts.last_failure.endswith("timed out: no manifest")
    world.feed(ManifestWritten(2, 1, world.now_s))
    assert world.durable.committed == ()


def test_a_manifest_that_is_stored_when_a_restore_has_begun_commits_nothing(world: World) -> None:
    world.stores_manifests = world.obeys = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 1)
    world.away = True
    world.epoch = 2
    world.feed(FenceChanged(world.fence, 2, world.now_s))
    world.feed(ManifestWritten(1, 1, world.now_s))
    world.away = False
    world.pass_time(1.0)
    assert world.durable.committed == ()
    assert world.coordinator.counts.failed == {Failure.LOSS: 1}


def test_a_snapshot_whose_report_may_be_lost_with_a_session_costs_the_checkpoint_and_no_time(world: World) -> None:
    world.pass_time()
    world.snapshot(3, 1)
    world.feed(StmgrDisconnected("stmgr-2", world.now_s))
    assert world.coordinator.in_progress == 1, "all of its tasks have reported"
    world.feed(StmgrDisconnected("stmgr-1", world.now_s))
    assert world.coordinator.counts.failed == {Failure.SESSION: 1}
    world.all_report()
    assert world.epoch == 1, "a session that has ended is no loss"
    world.commit(2)


def test_a_checkpoint_that_takes_too_long_is_aborted_and_names_who_is_missing(world: World) -> None:
    world.pass_time()
    world.snapshot(2, 1)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.counts.failed == {Failure.TIMEOUT: 1}
    assert world.coordinator.counts.last_failure.endswith("no snapshot of 2 tasks: 1, 3")


@pytest.mark.parametrize("found", ["gap", "stmgr", "task", "detached", "rollback", "plan"])
def test_a_loss_aborts_the_checkpoint_and_restores_the_last_committed_one(world: World, found: str) -> None:
    world.commit(1)
    world.pass_time()
    world.snapshot(1, 2)
    world.snapshot(2, 2)
    world.take(object)
    if found == "gap":
        world.taints["stmgr-1"] = "frame 7 of stmgr-2 is missing"
    elif found == "stmgr":
        world.restart_stmgr("stmgr-1")
    elif found == "task":
        world.restart(1)
    elif found == "detached":
        status = world.tasks.pop(1)
    if found == "rollback":
        world.feed(RollbackRequested(3, 1, "process() raised", world.now_s))
    elif found == "plan":
        world.feed(TasksChanged({1: "stmgr-1", 3: "stmgr-2"}, world.now_s))
    else:
        world.report("stmgr-1")
    if found == "detached":
        world.tasks[1] = status
        world.restart(1)
        world.all_report()
    assert world.coordinator.counts.failed == {Failure.LOSS: 1}
    assert world.epoch == 2
    restored = world.take(RestoreTasks)
    assert {(e.epoch, e.checkpoint) for e in restored} == {(2, 1)}
    assert world.coordinator.phase is Phase.RUNNING
    world.snapshot(3, 2)
    assert world.durable.newest == 1, "the last snapshot of the tainted epoch came too late"


def test_a_second_failure_during_a_restore_begins_a_newer_epoch(world: World) -> None:
    world.commit(1)
    world.obeys = False
    world.restart(1)
    world.report("stmgr-1")
    assert [e.above for e in world.take(RaiseRestoreEpoch)] == [1]
    world.epoch = 2
    world.feed(FenceChanged(world.fence, 2, world.now_s))
    status = world.tasks[1] = TaskStatus(world.tasks[1].incarnation, 2, TaskPhase.RESTORED)
    world.stmgr_epochs["stmgr-1"] = 2
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.RESTORING
    world.tasks[1] = TaskStatus(status.incarnation + 1, 2, TaskPhase.RESTORED)
    world.report("stmgr-1")
    assert [e.above for e in world.take(RaiseRestoreEpoch)] == [2]


def test_a_commit_whose_answer_was_lost_is_what_a_restore_finds(world: World) -> None:
    world.pass_time()
    for task in (1, 2):
        world.snapshot(task, 1)
    world.loses_answers = True
    world.snapshot(3, 1)
    assert (world.durable.newest, world.coordinator.record.newest) == (1, 0)
    world.loses_answers = False
    world.restart(3)
    world.report("stmgr-2")
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {1}
    assert world.coordinator.counts.committed == 1


def test_a_commit_that_comes_after_the_epoch_was_raised_is_refused(world: World) -> None:
    world.pass_time()
    world.held = []
    for task in TASKS:
        world.snapshot(task, 1)
    commit = world.held.pop()
    world.restart(3)
    world.report("stmgr-2")
    world.held = None
    world.write(commit)
    assert world.durable.newest == 0
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {0}


def test_a_commit_is_written_until_the_state_manager_answers(world: World) -> None:
    world.pass_time()
    world.away = True
    for task in TASKS:
        world.snapshot(task, 1)
    world.pass_time(TIMEOUT_S)
    assert world.coordinator.in_progress == 1, "it may have been committed, so it cannot time out"
    world.away = False
    world.pass_time(1.0)
    assert (world.durable.newest, world.coordinator.counts.failed) == (1, {})


def test_a_begin_that_fails_costs_its_id(world: World) -> None:
    world.away = True
    world.pass_time()
    assert world.coordinator.counts.failed == {Failure.STORE: 1}
    assert world.take(BeginCheckpoint) == []
    world.away = False
    world.commit(2)


def test_a_refused_write_has_the_leadership_checked(world: World) -> None:
    world.held = []
    world.pass_time()
    world.term += 1
    world.write(world.held.pop())
    assert world.take(CheckLeadership) == [CheckLeadership()]
    assert world.take(BeginCheckpoint) == []


def test_a_new_topology_master_goes_on_where_everybody_runs(world: World) -> None:
    world.commit(1)
    world.pass_time()
    world.take(object)
    world.become_leader()
    world.report("stmgr-1")
    assert world.coordinator.phase is Phase.ADOPTING
    world.report("stmgr-2")
    assert (world.coordinator.phase, world.epoch) == (Phase.RUNNING, 1)
    assert world.coordinator.counts.failed == {Failure.LEADER: 1}
    assert AbortCheckpoint("stmgr-1", 2, 1) in world.effects
    assert {e.checkpoint for e in world.take(AnnounceCommit)} == {1}
    for task in TASKS:
        world.snapshot(task, 2)
    assert world.durable.newest == 1
    world.commit(3)


def test_reports_that_come_before_the_leadership_count(world: World) -> None:
    standby = world.coordinator = CheckpointCoordinator("words-1", world.settings)
    world.feed(TasksChanged(TASKS, world.now_s))
    world.all_report()
    assert standby.phase is Phase.STANDBY
    world.term += 1
    world.feed(FenceChanged(world.fence, world.epoch, world.now_s))
    assert standby.phase is Phase.RUNNING
    world.commit(1)
    world.restart(3)
    world.report("stmgr-2")
    assert world.epoch == 2


@pytest.mark.parametrize("found", ["gap", "stmgr", "task", "half resumed"])
def test_what_was_lost_without_a_topology_master_is_a_rollback(world: World, found: str) -> None:
    world.commit(1)
    if found == "gap":
        world.taints["stmgr-2"] = "frame 7 of stmgr-1 is missing"
    elif found == "stmgr":
        world.restart_stmgr("stmgr-2")
    elif found == "task":
        world.restart(3)
    else:
        world.tasks[3] = TaskStatus(world.tasks[3].incarnation, 1, TaskPhase.RESTORED)
    world.take(object)
    world.become_leader()
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 1)}
    assert world.coordinator.phase is Phase.RUNNING


def test_a_loss_that_is_reported_while_the_record_is_read_counts(world: World) -> None:
    world.away = True
    world.become_leader()
    world.taints["stmgr-2"] = "frame 7 of stmgr-1 is missing"
    world.all_report()
    world.feed(RollbackRequested(3, 1, "process() raised", world.now_s))
    world.away = False
    world.pass_time(1.0)
    assert world.epoch == 2


def test_nothing_is_begun_while_somebody_is_out_of_reach(world: World) -> None:
    world.feed(StmgrDisconnected("stmgr-2", world.now_s))
    world.pass_time()
    assert world.take(BeginCheckpoint) == []
    assert world.epoch == 1, "a session that has ended is no loss"
    world.report("stmgr-2")
    world.pass_time(1.0)
    assert {e.checkpoint for e in world.take(BeginCheckpoint)} == {1}


def test_so_many_checkpoints_are_kept_as_are_to_be_retained() -> None:
    world = World(retained=2)
    world.all_report()
    for checkpoint in (1, 2, 3):
        world.commit(checkpoint)
    assert world.durable.committed == (2, 3)
    assert world.take(DiscardCheckpoints)[-1] == DiscardCheckpoints((2, 3), before=3)


def test_what_was_aborted_is_discarded_when_the_next_one_has_begun(world: World) -> None:
    world.commit(1)
    world.take(DiscardCheckpoints)
    world.pass_time()
    world.feed(TaskSnapshotFailed(3, 2, 1, "the disk is full", world.now_s))
    assert world.take(DiscardCheckpoints) == [], "the record does not say yet that it is aborted"
    world.pass_time()
    assert world.take(DiscardCheckpoints) == [DiscardCheckpoints((1,), before=3)]


def test_a_record_that_the_state_manager_has_lost_is_written_again(world: World) -> None:
    world.commit(1)
    world.record = None
    world.feed(NodeChanged(Kind.STATEFULCHECKPOINTS, None, world.now_s))
    assert world.durable.newest == 1
    world.record = None
    world.restart(3)
    world.report("stmgr-2")
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {1}
    assert world.durable.newest == 1


def test_the_record_of_an_earlier_topology_of_the_same_name_does_not_count() -> None:
    world = World()
    world.record = Record("words-0", 7, 0, (7,)).to_proto().SerializeToString()
    world.become_leader()
    world.all_report()
    assert {e.checkpoint for e in world.take(RestoreTasks)} == {0}


def test_a_record_survives_its_message() -> None:
    record = Record(
        "words-1",
        9,
        9,
        (7, 8),
        settled=7,
        poisoned={b"a digest": Poisoned(2, "ValueError")},
        undivided={"count": Undivided(2, "state")},
    )
    assert Record.from_proto(record.to_proto()) == record


def test_a_damaged_record_is_not_taken_for_a_topology_without_checkpoints(world: World) -> None:
    world.commit(1)
    intact, world.record = world.record, b"\xff damaged"
    with pytest.raises(StateError, match="what to restore is not known"):
        world.become_leader()
    world.record = intact
    world.become_leader()
    assert world.coordinator.record.newest == 1


def test_a_record_that_is_damaged_while_its_leader_lives_is_written_again(world: World) -> None:
    world.commit(1)
    world.record = b"\xff damaged"
    world.restart(1)
    world.all_report()
    world.pass_time()
    assert world.durable.newest == 1
    assert [e.checkpoint for e in world.take(RestoreTasks)] == [1, 1]


# Damage


def world_with_commits(*, damaged: set[int], **settings: Any) -> World:
    world = World(retained=3, **settings)
    world.all_report()
    for checkpoint in (1, 2, 3):
        world.commit(checkpoint)
    world.damaged = damaged
    world.take(object)
    return world


def test_the_newest_intact_checkpoint_is_restored_in_an_epoch_of_its_own() -> None:
    world = world_with_commits(damaged={2, 3})
    world.restart(1)
    world.all_report()
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 3), (3, 1)}
    assert (world.coordinator.phase, world.durable.committed) == (Phase.RUNNING, (1,))
    fallback = world.coordinator.fallback
    assert fallback.used == "checkpoint 1 is restored instead of 3: 2: a wrong checksum; 3: a wrong checksum"
    assert (fallback.problem, fallback.recent(world.now_s), fallback.recent(world.now_s + 1e4)) == (
        "",
        fallback.used,
        "",
    )
    assert world.coordinator.counts.damaged == 2
    world.commit(4)
    assert world.durable.committed == (1, 4), "ids are never used again"


def test_the_record_is_durable_before_an_older_checkpoint_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.restart(1)
    world.held = []
    world.all_report()
    assert [(e.epoch, e.committed) for e in world.take(FindIntact)] == [(2, (1, 2, 3))]
    assert (world.epoch, world.coordinator.phase) == (2, Phase.RESTORING)
    world.become_leader()
    world.held = None
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.durable.newest) == (Phase.RUNNING, 2), "a successor finds the same"


def test_without_an_intact_checkpoint_nothing_runs_until_storage_is_put_right() -> None:
    world = world_with_commits(damaged={1, 2, 3})
    world.restart(1)
    world.all_report()
    assert world.coordinator.phase is Phase.RESTORING
    assert "does not begin without state" in world.coordinator.fallback.problem
    assert world.durable.committed == (1, 2, 3), "the record stays"
    world.damaged = {3}
    world.all_report()
    assert world.take(FindIntact)[1:] == [], "not again at once"
    world.damaged = {1, 2, 3}
    world.pass_time()
    world.all_report()
    world.damaged = set()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)
    assert world.coordinator.fallback.problem == ""


def test_it_begins_without_state_only_if_that_is_allowed() -> None:
    world = world_with_commits(damaged={1, 2, 3}, allow_empty=True)
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring, world.durable.committed) == (Phase.RUNNING, 0, ())
    assert world.coordinator.fallback.used.startswith("no state is restored instead of 3: ")
    world.commit(4)


def test_storage_that_is_away_is_not_damage() -> None:
    world = world_with_commits(damaged={3}, allow_empty=True)
    world.storage_away = True
    world.restart(1)
    world.all_report()
    assert (world.coordinator.phase, world.durable.committed) == (Phase.RESTORING, (1, 2, 3))
    assert "does not answer: no route to host" in world.coordinator.fallback.problem
    world.storage_away, world.damaged = False, set()
    world.pass_time()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)


def test_a_checkpoint_that_none_can_follow_is_passed_over_while_all_run() -> None:
    world = world_with_commits(damaged={3})
    world.stores_manifests = False
    world.pass_time()
    for task in TASKS:
        world.snapshot(task, 4)
    world.feed(ManifestFailed(4, 1, "the storage does not answer", world.now_s))
    assert world.take(FindIntact) == [], "that says nothing about what is stored"
    world.pass_time()
    world.feed(ManifestFailed(5, 1, "the manifest of checkpoint 3 is damaged", world.now_s, damage=True))
    world.stores_manifests = True
    world.all_report()
    assert {(e.epoch, e.checkpoint) for e in world.take(RestoreTasks)} == {(2, 2)}
    world.commit(6)
    assert world.durable.committed == (1, 2, 6)


def test_a_look_that_knows_nothing_of_a_newer_commit_passes_nothing_over() -> None:
    world = world_with_commits(damaged=set())
    world.stores_manifests, world.looks_are_held = False, True
    world.pass_time()
    world.feed(ManifestFailed(4, 1, "an object of checkpoint 4 is missing", world.now_s, damage=True))
    (look,) = world.take(FindIntact)
    world.stores_manifests = True
    world.commit(5)
    world.feed(IntactFound(look.epoch, 3, (), world.now_s))
    assert (world.coordinator.phase, world.epoch, world.durable.committed) == (Phase.RUNNING, 1, (2, 3, 5))


def test_without_an_intact_checkpoint_what_runs_goes_on_with_its_state() -> None:
    world = world_with_commits(damaged={1, 2, 3}, allow_empty=True)
    world.stores_manifests = False
    world.pass_time()
    world.feed(ManifestFailed(4, 1, "the manifest of checkpoint 3 is damaged", world.now_s, damage=True))
    assert (world.coordinator.phase, world.epoch, world.durable.committed) == (Phase.RUNNING, 1, (1, 2, 3))
    assert world.coordinator.fallback.problem.startswith("no checkpoint can be restored, and none can be taken: ")
    world.stores_manifests, world.damaged = True, set()
    world.commit(5)
    assert world.coordinator.fallback.problem == ""


def test_a_checkpoint_that_is_intact_is_tried_again() -> None:
    world = world_with_commits(damaged=set())
    world.obeys = False
    world.restart(1)
    world.all_report()
    world.epoch = 2
    world.feed(FenceChanged(world.fence, world.epoch, world.now_s))
    assert world.feed(CheckpointDamaged(1, 2, 3, "a read was cut short", world.now_s)) == [
        FindIntact(2, (1, 2, 3), COMPONENTS)
    ]
    assert (world.coordinator.phase, world.durable.newest) == (Phase.RESTORING, 3)
    world.obeys = True
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 3)


def test_a_checkpoint_with_batches_for_another_number_of_tasks_is_passed_over() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: 7}
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 1)
    assert world.coordinator.fallback.used.endswith("2: batches in flight; 3: a wrong checksum")


def test_a_checkpoint_with_batches_for_just_these_tasks_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: COMPONENTS["count"]}
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 2)


def test_while_the_number_of_tasks_changes_no_checkpoint_with_batches_in_flight_is_restored() -> None:
    world = world_with_commits(damaged={3})
    world.logged = {2: COMPONENTS["count"]}
    world.coordinator.divisible = True
    world.restart(1)
    world.all_report()
    world.all_report()
    assert (world.coordinator.phase, world.coordinator.restoring) == (Phase.RUNNING, 1)


@pytest.mark.parametrize("allow_empty", [False, True])
def test_what_only_another_number_of_tasks_can_restore_is_not_lost_and_the_way_back_is_named(allow_empty: bool) -> None:
    world = world_with_commits(damaged={1, 3}, allow_empty=allow_empty)
    world.logged = {2: 7}
    world.restart(1)
    world.all_report()
    world.all_report()
    coordinator = world.coordinator
    assert (coordinator.phase, world.durable.committed) == (Phase.RESTORING, (1, 2, 3))
    assert coordinator.fallback.problem.startswith("no checkpoint can be restored with these numbers of tasks: ")
    assert coordinator.fallback.problem.endswith("; heron update --component-parallelism count:7")
    assert coordinator.restorable_with({"word": 1, "count": 7})
    assert not coordinator.restorable_with({"word": 1, "count": 8})


# Tuples that always fail


def fail(world: World, tup: bytes = b"a tuple") -> list[RestoreTasks]:
    """A tuple is failed, which is reported twice."""
    world.take(object)
    world.obeys = False
    for _ in range(2):
        world.feed(RollbackRequested(3, world.epoch, "ValueError", world.now_s, tup))
    world.obeys = True
    world.carry_out(world.take(RaiseRestoreEpoch)[0])
    world.all_report()
    assert world.coordinator.phase is Phase.RUNNING
    return world.take(RestoreTasks)


def test_a_tuple_is_set_aside_after_three_rollbacks_without_a_commit(world: World) -> None:
    for _ in range(2):
        assert {frozenset(e.set_aside) for e in fail(world)} == {frozenset()}
    assert {frozenset(e.set_aside.items()) for e in fail(world)} == {frozenset([(b"a tuple", "ValueError")])}
    assert {frozenset(e.set_aside) for e in fail(world, b"another")} == {frozenset([b"a tuple"])}
    world.commit(1)
    assert {frozenset(e.set_aside) for e in fail(world)} == {frozenset()}, "what is committed is over"


@pytest.mark.parametrize("tup", [b"", b"a tuple"])
def test_a_commit_in_between_and_failures_of_no_tuple_set_nothing_aside(world: World, tup: bytes) -> None:
    for checkpoint in range(1, 5):
        assert {frozenset(e.set_aside) for e in fail(world, tup)} == {frozenset()}
        if tup:
            world.commit(checkpoint)
