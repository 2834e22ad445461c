"""What the Tracker says of checkpoints: what the Topology Master knows and what is stored, waiting for neither."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
from heron_tracker.parts import Stored, StoredCheckpoints, Topology, checkpoints_model

from heronpy.errors import StateError
from heronpy.plan import ContainerPacking, InstancePacking, LogicalPlan, PackingPlan, Resources, TopologyState
from heronpy.proto import state_pb2, tmaster_pb2, topology_pb2
from heronpy.submit import StoredCheckpoint
from heronpy.testing import eventually

SHARE = Resources(1, 1 << 30, 0)
PACKING = PackingPlan("p", (ContainerPacking(1, (InstancePacking("count", 7, 0, SHARE),), SHARE),))


def topology(id: str = "words-1", **config: str) -> Topology:
    execution = state_pb2.ExecutionState(topology="words", topology_id=id, topology_dir="/nowhere")
    logical = LogicalPlan(id, "words", {}, config, topology_pb2.Topology())
    return Topology(statemgr="s", execution=execution, logical=logical, state=TopologyState.RUNNING, packing=PACKING)


def stored(id: int, *, committed: bool = True, error: str = "") -> StoredCheckpoint:
    return StoredCheckpoint(
        id=id,
        committed=committed,
        created_ms=1000 * id,
        size=100 * id,
        added=10,
        components={"count": 90},
        tasks={"count": 2},
        by_task={"count": (40, 50)},
        error=error,
    )


def ended(id: int, failure: str = "", size: int = 0) -> tmaster_pb2.EndedCheckpoint:
    return tmaster_pb2.EndedCheckpoint(checkpoint=id, ended_ms=1000 * id, took_ms=5, failure=failure, size=size)


def test_each_checkpoint_is_what_both_say_of_it() -> None:
    told = tmaster_pb2.CheckpointStatus(
        phase="running",
        newest=7,
        in_progress=8,
        in_progress_ms=1500,
        missing_tasks=[7, 9],
        ended=[ended(3, size=300), ended(4, "timed out: no snapshot"), ended(6), ended(7, size=700)],
    )
    on_disk = (
        stored(2, committed=False),
        replace(stored(5), error="it is torn", size=0),
        stored(6),
        stored(8, committed=False),
    )
    found = checkpoints_model(topology(), told, "ok", Stored(on_disk, "/data"))
    rows = {one.id: (one.state, one.size, one.reason) for one in found.checkpoints}
    assert rows == {
        7: ("replaced", 700, None),
        6: ("committed", 600, None),
        5: ("damaged", None, "it is torn"),
        4: ("failed", None, "timed out: no snapshot"),
        3: ("replaced", 300, None),
        2: ("not committed", 200, None),
    }
    assert list(rows) == sorted(rows, reverse=True)
    assert found.checkpoints[1].components is not None
    assert found.checkpoints[1].components["count"].by_task == [40, 50]
    assert found.under_way is not None
    assert [(one.task, one.instance) for one in found.under_way.missing] == [(7, "container_1_count_7"), (9, "")]


def test_what_was_committed_after_the_storage_was_read_is_kept_as_far_as_is_known() -> None:
    told = tmaster_pb2.CheckpointStatus(ended=[ended(1), ended(2), ended(3)])
    newer = checkpoints_model(topology(), told, "ok", Stored((stored(2),)))
    assert [one.state for one in newer.checkpoints] == ["committed", "committed", "replaced"]
    silent = checkpoints_model(topology(), told, "ok", Stored((), problem="it has not answered for 9 s"))
    assert [one.state for one in silent.checkpoints] == ["committed"] * 3
    assert silent.storage == "it has not answered for 9 s"


def test_what_was_under_way_when_the_topology_master_fell_silent_may_be_committed_by_now() -> None:
    told = tmaster_pb2.CheckpointStatus(in_progress=3, ended=[ended(2)])
    stored_now = Stored((stored(2), stored(3), stored(4)))
    found = checkpoints_model(topology(), told, "unreachable since 2026", stored_now)
    assert [(one.id, one.state) for one in found.checkpoints] == [(4, "committed"), (3, "committed"), (2, "committed")]
    assert found.under_way is None


def test_a_topology_master_that_never_answered_leaves_what_is_stored() -> None:
    found = checkpoints_model(topology(), None, "unreachable since 2026", Stored((stored(2),)))
    assert (found.tmaster, found.phase, found.committed, found.age_ms) == ("unreachable since 2026", None, None, None)
    assert [(one.id, one.state, one.time) for one in found.checkpoints] == [
        (2, "committed", "1970-01-01T00:00:02.000Z")
    ]


@pytest.mark.parametrize(
    ("mode", "takes"), [("EFFECTIVELY_ONCE", True), ("ATMOST_ONCE", False), ("<script>", False), ("", False)]
)
def test_a_topology_takes_checkpoints_if_its_mode_says_so(mode: str, takes: bool) -> None:
    assert topology(**{"topology.reliability.mode": mode}).takes_checkpoints is takes


class Storage:
    """A storage that answers when it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.reads: list[Sequence[StoredCheckpoint]] = []

    def read(self, topology: Topology, known: Sequence[StoredCheckpoint]) -> Stored:
        self.reads.append(known)
        self.answers.wait(300)
        return Stored((stored(len(self.reads)),), "/data")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._stored_checkpoints.TIMEOUT_S", 0.05)


@pytest.mark.usefixtures("impatient")
async def test_a_storage_that_hangs_holds_up_nobody_and_takes_one_thread() -> None:
    storage = Storage()
    checkpoints = StoredCheckpoints(storage.read)
    try:
        answers = await asyncio.gather(*(checkpoints.of(topology()) for _ in range(20)))
        answers.append(await checkpoints.of(topology()))
        assert {answer.checkpoints for answer in answers} == {()}
        assert all("has not answered for" in answer.problem for answer in answers)
        assert len(storage.reads) == 1
    finally:
        storage.answers.set()

    async def read() -> None:
        found = await checkpoints.of(topology())
        assert ([one.id for one in found.checkpoints], found.problem) == ([1], "")

    await eventually(read)
    await read()
    assert len(storage.reads) == 1, "it is not read again so soon"


@pytest.mark.usefixtures("impatient")
async def test_many_storages_that_hang_take_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._stored_checkpoints.READS_MAX", 2)
    storage = Storage()
    checkpoints = StoredCheckpoints(storage.read)
    try:
        answers = await asyncio.gather(*(checkpoints.of(topology(f"words-{n}")) for n in range(5)))
        assert [answer.problem for answer in answers][2:] == ["too many storages do not answer"] * 3
        assert len(storage.reads) == 2
    finally:
        storage.answers.set()


async def test_a_storage_that_fails_leaves_what_was_read_before_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heron_tracker._stored_checkpoints.AGE_S", -1.0)
    errors: list[Exception | None] = [None, StateError("cannot read redis://me:swordfish@host/0"), ValueError("torn")]

    def read(_topology: Topology, _known: Sequence[StoredCheckpoint]) -> Stored:
        if (error := errors.pop(0)) is not None:
            raise error
        return Stored((stored(1),), "/data")

    checkpoints = StoredCheckpoints(read)
    first, second, third = [await checkpoints.of(topology()) for _ in range(3)]
    assert [one.id for one in third.checkpoints] == [one.id for one in first.checkpoints] == [1]
    assert "swordfish" not in second.problem
    assert "cannot read" in second.problem
    assert third.problem == "ValueError: torn"
