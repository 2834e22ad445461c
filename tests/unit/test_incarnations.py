"""Which incarnation of a container is the newest, and what an older one does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.executor import GONE_S, ReplacedError, Tenure, hold_incarnation, restore_record, take_incarnation
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, StateManager, container_node, open_statemgr

NOW_S = 1_000_000.0
NODE = container_node("words", 1)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    spec = StatemgrSpec(type="file", root=str(tmp_path / "state"))
    return Launch(
        topology="words",
        topology_id="words-1",
        cluster="c",
        role="r",
        environ="e",
        statemgr=spec,
        dir=tmp_path / "words",
    )


@pytest.fixture
def state(launch: Launch) -> Iterator[StateManager]:
    with open_statemgr(launch.statemgr) as found:
        found.set(Kind.EXECUTIONSTATE, "words", execution("words-1"))
        yield found


def execution(topology_id: str) -> bytes:
    return state_pb2.ExecutionState(topology="words", topology_id=topology_id).SerializeToString()


def record(incarnation: int, topology_id: str = "words-1", host: str = "b") -> state_pb2.ContainerRecord:
    return state_pb2.ContainerRecord(topology_id=topology_id, container=1, incarnation=incarnation, host=host)


def tenure(launch: Launch, *, shares_files: bool = False) -> Tenure:
    return Tenure(launch, record(5), shares_files=shares_files)


def take(state: StateManager, launch: Launch, now_s: float = NOW_S) -> int:
    return take_incarnation(state, launch, 1, lambda: now_s).incarnation


def test_each_start_takes_a_higher_incarnation(state: StateManager, launch: Launch) -> None:
    assert take(state, launch) == NOW_S
    assert take(state, launch) == NOW_S + 1, "within the same second"
    assert take(state, launch, NOW_S - 3600) == NOW_S + 2, "on a host whose clock is behind"
    kept = state_pb2.ContainerRecord.FromString(state.get(Kind.CONTAINERS, NODE) or b"")
    assert (kept.topology_id, kept.container, kept.incarnation) == ("words-1", 1, NOW_S + 2)


def test_incarnations_grow_also_when_the_state_manager_has_lost_the_record(state: StateManager, launch: Launch) -> None:
    first = take(state, launch)
    state.delete(Kind.CONTAINERS, NODE)
    assert take(state, launch, NOW_S + 1) > first


def test_of_two_that_start_at_once_both_have_an_incarnation_of_their_own(state: StateManager, launch: Launch) -> None:
    taken: list[int] = []

    class Hasty(type(state)):  # type: ignore[misc]
        """Another container is quicker, once, between the look and the write."""

        def __init__(self) -> None:
            pass

        def get(self, kind: Kind, topology: str) -> bytes | None:
            value = state.get(kind, topology)
            if not taken:
                taken.append(take(state, launch))
            return value

        def set_if(self, *args: object, **kwargs: object) -> bool:
            return state.set_if(*args, **kwargs)  # type: ignore[arg-type]

    assert take(Hasty(), launch) == taken[0] + 1


def test_no_two_starts_write_the_same_record(state: StateManager, launch: Launch) -> None:
    # A store whose answer was lost finds its own earlier attempt by the value.
    records = []
    for _ in range(2):
        take(state, launch)
        records.append(state.get(Kind.CONTAINERS, NODE))
        state.delete(Kind.CONTAINERS, NODE)
    assert records[0] != records[1], "on the same host, in the same second"


def test_a_container_of_a_topology_that_was_submitted_anew_takes_none(state: StateManager, launch: Launch) -> None:
    state.set(Kind.EXECUTIONSTATE, "words", execution("words-2"))
    theirs = record(7, "words-2").SerializeToString()
    state.set(Kind.CONTAINERS, NODE, theirs)
    with pytest.raises(ReplacedError, match="topology words is words-2 now"):
        take(state, launch)
    assert state.get(Kind.CONTAINERS, NODE) == theirs, "the container that took its place has seen nothing of it"


def test_a_container_whose_topology_is_submitted_anew_just_then_takes_its_record_back(
    state: StateManager, launch: Launch
) -> None:
    class Submitted(type(state)):  # type: ignore[misc]
        """The topology is submitted anew between the look and the write."""

        def __init__(self) -> None:
            pass

        def get(self, kind: Kind, topology: str) -> bytes | None:
            return state.get(kind, topology)

        def set_if(self, *args: object, **kwargs: object) -> bool:
            state.set(Kind.EXECUTIONSTATE, "words", execution("words-2"))
            return state.set_if(*args, **kwargs)  # type: ignore[arg-type]

        def delete(self, kind: Kind, topology: str) -> bool:
            return state.delete(kind, topology)

    with pytest.raises(ReplacedError, match="topology words is words-2 now"):
        take(Submitted(), launch)
    assert state.get(Kind.CONTAINERS, NODE) is None, "nothing is left of it"


def test_a_container_outlives_the_record_of_one_that_comes_back_from_another_submission(launch: Launch) -> None:
    one = tenure(launch)
    one.execution_changed(execution("words-1"), 0)
    one.record_changed(record(6, "words-0").SerializeToString())
    assert one.ended(0) == ""
    assert one.lost, "it writes its own as soon as it can"


def test_the_record_of_another_submission_is_replaced_unless_that_has_the_name(
    state: StateManager, launch: Launch
) -> None:
    for theirs in (None, record(9, "words-0").SerializeToString()):
        state.delete(Kind.CONTAINERS, NODE)
        if theirs is not None:
            state.set(Kind.CONTAINERS, NODE, theirs)
        restore_record(state, launch, record(5))
        assert state.get(Kind.CONTAINERS, NODE) == record(5).SerializeToString()
    for newer in (record(6), record(6, "words-2")):
        state.set(Kind.CONTAINERS, NODE, newer.SerializeToString())
        state.set(Kind.EXECUTIONSTATE, "words", execution(newer.topology_id))
        restore_record(state, launch, record(5))
        assert state.get(Kind.CONTAINERS, NODE) == newer.SerializeToString()
    state.remove_topology("words")
    restore_record(state, launch, record(5))
    assert state.list(Kind.CONTAINERS) == [], "nothing is left of a topology that was killed"


def test_a_container_whose_incarnation_is_taken_goes_on_beside_a_record_of_another_submission(
    state: StateManager, launch: Launch
) -> None:
    state.set(Kind.CONTAINERS, NODE, record(6, "words-0").SerializeToString())
    assert hold_incarnation(state, launch, 1, 5).incarnation == 5
    state.set(Kind.CONTAINERS, NODE, record(6).SerializeToString())
    with pytest.raises(ReplacedError, match="incarnation 6 on b replaces this one, 5"):
        hold_incarnation(state, launch, 1, 5)
    state.set(Kind.EXECUTIONSTATE, "words", execution("words-2"))
    with pytest.raises(ReplacedError, match="topology words is words-2 now"):
        hold_incarnation(state, launch, 1, 5)


def test_a_container_ends_when_a_higher_incarnation_exists(launch: Launch) -> None:
    one = tenure(launch)
    one.record_changed(record(5).SerializeToString())
    one.record_changed(record(4).SerializeToString())
    assert one.ended(0) == ""
    one.record_changed(record(6).SerializeToString())
    assert one.ended(0) == "container 1 was started again on b: incarnation 6 replaces this one, 5"


def test_a_container_ends_when_its_name_belongs_to_another_submission(launch: Launch) -> None:
    one = tenure(launch)
    one.execution_changed(execution("words-1"), 0)
    assert one.ended(0) == ""
    one.execution_changed(execution("words-2"), 1)
    assert "words-2" in one.ended(1)


def test_a_container_ends_when_its_topology_stays_away(launch: Launch) -> None:
    one = tenure(launch)
    one.execution_changed(None, 10)
    one.execution_changed(None, 10 + GONE_S / 2)
    assert one.ended(10 + GONE_S - 0.1) == ""
    assert one.ended(10 + GONE_S) == "topology words is gone from the state manager"


def test_a_container_stays_when_a_state_manager_is_given_its_data_again(launch: Launch) -> None:
    one = tenure(launch)
    one.execution_changed(None, 0)
    one.record_changed(None)
    assert not one.lost, "nobody knows yet whether the topology is gone"
    one.execution_changed(execution("words-1"), GONE_S - 1)
    assert one.lost
    one.record_changed(record(5).SerializeToString())
    assert not one.lost
    assert one.ended(3 * GONE_S) == ""


def test_beside_its_submitter_a_container_goes_by_the_directory(launch: Launch) -> None:
    one = tenure(launch, shares_files=True)
    one.execution_changed(None, 0)
    assert one.ended(100 * GONE_S) == ""


def test_a_container_of_a_killed_topology_takes_no_incarnation_and_brings_no_record_back(
    state: StateManager, launch: Launch
) -> None:
    state.bury("words-1")
    for start in (lambda: take(state, launch), lambda: hold_incarnation(state, launch, 1, 5)):
        with pytest.raises(ReplacedError, match="topology words was killed"):
            start()
    restore_record(state, launch, record(5))
    assert state.list(Kind.CONTAINERS) == []
    one = tenure(launch)
    one.tombstone_changed(None)
    assert one.ended(0) == ""
    one.tombstone_changed(state.get(Kind.TOMBSTONES, "words-1"))
    assert (one.ended(0), one.lost) == ("topology words was killed", False)


DAMAGED = b"\xff\xff\xff"


def test_a_container_outlives_a_damaged_record_and_writes_it_again(state: StateManager, launch: Launch) -> None:
    state.set(Kind.CONTAINERS, NODE, DAMAGED)
    one = tenure(launch)
    one.execution_changed(execution("words-1"), 0)
    one.record_changed(DAMAGED)
    assert (one.ended(0), one.lost) == ("", True)
    assert hold_incarnation(state, launch, 1, 5).incarnation == 5
    restore_record(state, launch, one.record)
    assert state.get(Kind.CONTAINERS, NODE) == one.record.SerializeToString()


def test_a_start_beside_a_damaged_record_takes_an_incarnation(state: StateManager, launch: Launch) -> None:
    state.set(Kind.CONTAINERS, NODE, DAMAGED)
    assert take(state, launch) == NOW_S


def test_a_damaged_execution_state_ends_no_container(state: StateManager, launch: Launch) -> None:
    one = tenure(launch)
    one.execution_changed(DAMAGED, 0)
    assert one.ended(2 * GONE_S) == ""
    state.set(Kind.EXECUTIONSTATE, "words", DAMAGED)
    assert take(state, launch) == NOW_S


def test_what_others_add_to_the_record_is_kept(launch: Launch) -> None:
    one = tenure(launch)
    added = record(5)
    added.shell_endpoint = "b:1234"
    one.record_changed(added.SerializeToString())
    assert one.record == added
