"""The Stream Manager's core: where a batch goes next, in which order, and what becomes of it when somebody dies."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs
from stmgr_kit import CONFIG, PEER, SINK, SOURCE, Shell, changed, data, plan, replaced, tracked, without

from heronpy.plan import PhysicalPlan
from heronpy.proto import stmgr_pb2
from heronpy.wire import ACK, CONTROL, DATA, FAIL, RESET_TIMEOUT

ROOT_KINDS = (ACK, FAIL, RESET_TIMEOUT)


# routing


def test_batches_go_to_local_instances_and_to_the_peer_in_front_of_the_others() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, SINK, PEER)
    shell.send(SOURCE, data(3), data(2), data(4), data(1), data(4))
    assert [len(shell.batches(name)) for name in (SOURCE, SINK, PEER)] == [1, 1, 3]


def test_what_is_for_an_unknown_task_is_dropped() -> None:
    shell = Shell(plan())
    shell.open(SOURCE)
    shell.send(SOURCE, data(77))
    assert set(shell.core.waiting().values()) == {0}


def test_what_waits_for_somebody_who_is_not_there_yet_is_delivered_in_order() -> None:
    shell = Shell(plan())
    shell.open(SOURCE)
    for number in range(9):
        shell.send(SOURCE, data(3, b"%d" % number), data(4, b"%d" % number))
    shell.replan(plan(2))
    shell.open(SINK, PEER)
    assert shell.bodies(SINK) == shell.bodies(PEER) == [b"%d" % number for number in range(9)]


def test_who_is_no_longer_in_the_plan_is_disconnected() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, SINK, PEER)
    shell.replan(without(plan(), 3))
    assert set(shell.closed) == {SINK}
    shell.send(SOURCE, data(3))
    assert set(shell.core.waiting()) == {SOURCE, PEER}
    shell.replan(without(without(without(plan(), 3), 2), 4))
    shell.replan(dataclasses.replace(without(without(without(plan(), 3), 2), 4), version=9))
    assert set(shell.closed) == {SINK, PEER}


def test_a_task_that_moves_is_found_at_its_new_place() -> None:
    before = plan()
    shell = Shell(before)
    shell.open(SOURCE)
    one, two = before.packing.containers
    moved = next(i for i in two.instances if i.task_id == 4)
    stays = dataclasses.replace(two, instances=tuple(i for i in two.instances if i is not moved))
    shell.replan(changed(before, (dataclasses.replace(one, instances=(*one.instances, moved)), stays)))
    shell.send(SOURCE, data(4))
    assert shell.core.waiting() == {SOURCE: 0, SINK: 0, "container_1_sink_4": 1, PEER: 0}


def test_an_older_plan_changes_nothing() -> None:
    shell = Shell(plan(5, epoch=1))
    shell.replan(without(plan(3, epoch=1), 3))
    shell.replan(without(plan(7), 3))
    assert SINK in shell.core.waiting()
    shell.replan(without(plan(1, epoch=2), 3))
    assert SINK not in shell.core.waiting()


def test_a_newer_connection_takes_the_place_of_the_older() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, SINK)
    shell.open(SINK)
    assert shell.closed == {SINK: "a newer connection has taken its place"}
    shell.send(SOURCE, data(3))
    assert len(shell.batches(SINK)) == 1
    assert shell.core.attached == [SINK, SOURCE]


# order


def test_plans_and_backpressure_overtake_batches_that_wait() -> None:
    shell = Shell(plan())
    shell.open(SOURCE)
    shell.open(SINK, stalled=True)
    shell.send(SOURCE, data(3, b"first"))
    shell.replan(plan(2))
    shell.resume(SINK)
    assert [frame.plan.version for frame in shell.written[SINK]] == [1, 2, 0]
    assert shell.bodies(SINK) == [b"first"]


@pytest.mark.parametrize("kind", [DATA, CONTROL, *ROOT_KINDS])
def test_batches_of_every_kind_stay_in_order(kind: int) -> None:
    shell = Shell(plan())
    shell.open(SOURCE)
    shell.open(SINK, PEER, stalled=True)
    kinds = [DATA, kind, DATA, kind, kind, DATA]
    for task in (3, 4):
        for number, each in enumerate(kinds):
            shell.send(SOURCE, stmgr_pb2.Batch(dest_task=task, kind=each, body=b"%d" % number))  # type: ignore[arg-type]
    for name in (SINK, PEER):
        shell.resume(name)
        assert shell.bodies(name) == [b"%d" % number for number in range(len(kinds))]


# backpressure


def test_a_slow_instance_throttles_the_spouts_here_and_at_the_peers() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, PEER)
    shell.open(SINK, stalled=True)
    shell.send(SOURCE, data(3, b"x" * 1000))
    assert shell.held == {SOURCE}
    (start,) = [s for frame in shell.written[PEER] for s in frame.start_backpressure]
    assert (start.stmgr, start.culprit, start.full) == ("stmgr-1", SINK, False)
    shell.resume(SINK)
    assert shell.held == set()
    (stop,) = [s for frame in shell.written[PEER] for s in frame.stop_backpressure]
    assert stop.culprit == SINK


def test_a_full_outbox_holds_bolts_that_send_tuples_and_nothing_else() -> None:
    shell = Shell(plan())
    shell.open(PEER, SOURCE)
    shell.open(SINK)
    shell.receive(PEER, _announced("container_2_sink_4", full=True))
    for kind in (CONTROL, *ROOT_KINDS):
        shell.send(SINK, stmgr_pb2.Batch(dest_task=4, kind=kind))
    assert shell.held == set()
    shell.send(PEER, data(4))
    assert shell.held == set()
    shell.send(SINK, data(4))
    assert shell.held == {SINK}
    shell.lose(PEER)
    assert shell.held == set()


def _announced(culprit: str, *, full: bool) -> stmgr_pb2.Frame:
    start = stmgr_pb2.StartBackpressure(stmgr=PEER, culprit=culprit, full=full)
    return stmgr_pb2.Frame(start_backpressure=[start])


# deaths


def test_what_waits_for_an_instance_and_what_it_has_just_received_fails_once_at_its_death() -> None:
    shell = Shell(plan(tracked=True))
    shell.open(SOURCE, SINK)
    shell.send(SOURCE, tracked(3, 1, 2))
    shell.stalled[SINK] = None
    shell.send(SOURCE, tracked(3, 3))
    shell.send(SOURCE, tracked(3, 4, 5))
    shell.lose(SINK)
    assert shell.roots(SOURCE, FAIL) == [1, 2, 3, 4, 5]
    shell.open(SINK)
    assert shell.batches(SINK) == []
    shell.lose(SINK)
    assert shell.roots(SOURCE, FAIL) == [1, 2, 3, 4, 5], "once"


def test_replays_wait_for_the_next_incarnation_while_the_spouts_are_throttled() -> None:
    shell = Shell(plan(tracked=True))
    shell.open(SOURCE, SINK)
    shell.lose(SINK)
    assert shell.held == set()
    shell.send(SOURCE, tracked(3, 1))
    assert shell.held == {SOURCE}
    assert shell.roots(SOURCE, FAIL) == []
    shell.open(SINK)
    assert shell.held == set()
    assert len(shell.batches(SINK)) == 1


def test_tuples_without_a_root_and_bytes_that_are_no_tuples_wait_for_the_next_incarnation() -> None:
    shell = Shell(plan(tracked=True))
    shell.open(SOURCE)
    shell.open(SINK, stalled=True)
    shell.send(SOURCE, tracked(3), tracked(3, 1), data(3, b"\xff\xff\xff"))
    shell.lose(SINK)
    shell.open(SINK)
    assert shell.bodies(SINK) == [tracked(3).body, b"\xff\xff\xff"]
    assert shell.roots(SOURCE, FAIL) == [1]


def test_without_tracking_a_death_fails_nothing_and_throttles_nobody() -> None:
    shell = Shell(plan())
    shell.open(SOURCE, SINK)
    shell.send(SOURCE, tracked(3, 1))
    shell.lose(SINK)
    shell.send(SOURCE, tracked(3, 2))
    assert shell.batches(SOURCE) == []
    assert shell.held == set()


def test_acks_for_a_dead_spout_are_dropped() -> None:
    shell = Shell(plan(tracked=True))
    shell.open(SINK)
    shell.open(SOURCE, stalled=True)
    ack = stmgr_pb2.Batch(dest_task=1, kind=ACK, body=b"ack")
    shell.send(SINK, ack)
    shell.send(SINK, ack)
    shell.lose(SOURCE)
    shell.send(SINK, ack)
    shell.open(SOURCE)
    assert shell.batches(SOURCE) == []
    shell.send(SINK, ack)
    assert shell.bodies(SOURCE) == [b"ack"]


def test_a_frame_that_was_lost_with_the_connection_to_a_peer_fails() -> None:
    shell = Shell(plan(tracked=True))
    shell.open(SOURCE)
    shell.open(PEER, stalled=True)
    shell.send(SOURCE, tracked(4, 7))
    shell.lose(PEER)
    assert shell.roots(SOURCE, FAIL) == [7]


# restore epochs


def test_frames_of_an_older_epoch_are_dropped() -> None:
    shell = Shell(plan(epoch=2))
    shell.open(SOURCE, SINK, PEER)
    shell.send(SOURCE, data(3, b"old"), epoch=1)
    shell.send(PEER, data(3, b"old"), epoch=1)
    shell.send(SOURCE, data(3, b"new"), epoch=2)
    assert shell.bodies(SINK) == [b"new"]
    assert [frame.epoch for frame in shell.written[SINK] if frame.batches] == [2]


def test_frames_of_a_newer_epoch_are_kept_until_the_plan_comes() -> None:
    shell = Shell(plan(1))
    shell.open(SOURCE, SINK, PEER)
    shell.send(PEER, data(3, b"one"), epoch=1)
    shell.send(PEER, data(3, b"two"), epoch=2)
    assert shell.bodies(SINK) == []
    shell.replan(plan(2, epoch=1))
    assert shell.bodies(SINK) == [b"one"]
    shell.replan(plan(3, epoch=2))
    assert shell.bodies(SINK) == [b"one", b"two"]


def test_what_is_kept_of_a_newer_epoch_is_bounded() -> None:
    shell = Shell(plan(1))
    shell.open(SOURCE, SINK, PEER)
    for _ in range(9):
        shell.send(PEER, data(3, b"x" * 100), epoch=1)
        assert shell.held == set()
    shell.send(PEER, data(3, b"x" * 100), epoch=1)
    assert shell.held == {PEER}
    shell.replan(plan(2, epoch=1))
    assert shell.held == set()
    assert len(shell.batches(SINK)) == 10


def test_a_new_epoch_purges_the_outboxes_and_the_plan_comes_before_what_follows() -> None:
    shell = Shell(plan(1))
    shell.open(SOURCE)
    shell.open(SINK, stalled=True)
    shell.send(SOURCE, data(3, b"being written"))
    for _ in range(3):
        shell.send(SOURCE, data(3, b"x" * 500))
        shell.send(SOURCE, data(4, b"x" * 500))
    assert shell.held == {SOURCE}
    shell.replan(plan(2, epoch=1))
    shell.send(SOURCE, data(3, b"new"), data(4, b"new"), epoch=1)
    shell.resume(SINK)
    assert shell.held == set()
    assert [(frame.plan.restore_epoch, frame.epoch) for frame in shell.written[SINK]] == [(0, 0), (1, 0), (0, 1)]
    assert shell.bodies(SINK) == [b"new"]
    shell.open(PEER)
    assert shell.bodies(PEER) == [b"new"]


# cycles


def test_feedback_from_a_peer_never_counts_as_full_and_comes_back_from_disk_in_order() -> None:
    shell = Shell(_cyclic())
    shell.open(SOURCE, PEER)
    shell.open(SINK, stalled=True)
    for number in range(100):
        shell.send(PEER, data(3, b"%3d" % number * 50, feedback=True))
    assert shell.disk
    assert shell.held == {SOURCE}
    assert not any(start.full for frame in shell.written[PEER] for start in frame.start_backpressure)
    shell.resume(SINK)
    assert [int(body[:3]) for body in shell.bodies(SINK)] == list(range(100))
    assert not shell.disk
    assert shell.held == set()


def test_an_instance_that_feeds_itself_is_never_held_for_want_of_room() -> None:
    shell = Shell(_cyclic())
    shell.open(SOURCE, PEER)
    shell.open(SINK, stalled=True)
    for number in range(100):
        shell.send(SINK, data(3, b"%3d" % number * 50), data(4, b"there"))
        assert SINK not in shell.held
    assert all(batch.feedback for batch in shell.batches(PEER))
    shell.resume(SINK)
    assert [int(body[:3]) for body in shell.bodies(SINK)] == list(range(100))


def test_feedback_beyond_the_limit_of_the_disk_stops_the_topology_and_nothing_is_lost() -> None:
    shell = Shell(_cyclic(), structs.replace(CONFIG, feedback_spill_bytes=4000))
    shell.open(SOURCE, PEER)
    shell.open(SINK, stalled=True)
    sent = 0
    while SINK not in shell.held:
        shell.send(SINK, data(3, b"%3d" % sent * 50))
        sent += 1
        assert sent < 100
    assert SINK in shell.stop_reason
    assert any(s.culprit == "*feedback" for frame in shell.written[PEER] for s in frame.start_backpressure)
    shell.resume(SINK)
    assert shell.held == set()
    assert shell.stop_reason == ""
    assert [int(body[:3]) for body in shell.bodies(SINK)] == list(range(sent))


def test_a_new_epoch_removes_what_was_spilled() -> None:
    shell = Shell(_cyclic())
    shell.open(SOURCE, PEER)
    shell.open(SINK, stalled=True)
    for _ in range(100):
        shell.send(SINK, data(3, b"x" * 150))
    assert shell.disk
    shell.replan(dataclasses.replace(_cyclic(), version=2, restore_epoch=1))
    assert not shell.disk
    shell.resume(SINK)
    assert shell.bodies(SINK) == []
    assert shell.held == set()


def _cyclic() -> PhysicalPlan:
    """The plan, with a sink that reads itself, too."""
    made = plan()
    logical = made.logical
    sink = logical.components["sink"]
    loop = dataclasses.replace(sink.inputs[0], component="sink")
    components = {**logical.components, "sink": dataclasses.replace(sink, inputs=(*sink.inputs, loop))}
    return dataclasses.replace(made, logical=dataclasses.replace(logical, components=components))


# incarnations


def test_a_peer_in_an_older_incarnation_than_the_plans_is_refused() -> None:
    shell = Shell(replaced(plan(), incarnation=7))
    shell.open(PEER, incarnation=6)
    assert shell.core.connected == []
    assert shell.closed[PEER] == "its container has a newer incarnation"
    shell.open(PEER, incarnation=7)
    assert shell.core.connected == [PEER]


def test_a_peer_that_was_replaced_cannot_take_the_place_of_its_replacement() -> None:
    shell = Shell(replaced(plan(), incarnation=6))
    shell.open(PEER, incarnation=7)
    new = shell.links[PEER]
    shell.open(PEER, incarnation=6)
    shell.send(PEER, data(3))
    assert shell.core.waiting()[SINK] == 0, "what it sends is nothing of the topology any more"
    shell.links[PEER] = new
    shell.send(PEER, data(3))
    assert shell.core.waiting()[SINK] == 1


def test_a_plan_with_a_newer_incarnation_ends_the_link_with_the_older() -> None:
    shell = Shell(replaced(plan(), incarnation=6))
    shell.open(PEER, incarnation=6)
    shell.replan(replaced(plan(2), incarnation=7))
    assert shell.core.connected == []
    shell.send(PEER, data(3))
    assert shell.core.waiting()[SINK] == 0
    shell.open(PEER, incarnation=7)
    shell.replan(replaced(plan(3), incarnation=7))
    assert shell.core.connected == [PEER], "a plan that says nothing new leaves it alone"
