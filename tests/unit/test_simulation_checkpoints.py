"""Checkpoints in the simulated cluster: counts are exact effectively once, and nothing is lost at least once."""

from __future__ import annotations

import pytest

from heronpy.testing.simulation import (
    Break,
    Cut,
    Damage,
    Detach,
    Expire,
    Kill,
    Pause,
    Restore,
    Save,
    Schedule,
    StateAway,
    StateEmptied,
    Stop,
    StorageAway,
    run,
)

SOURCE, RELAY, SINK = "container_1_source_1", "container_1_relay_3", "container_1_sink_5"


@pytest.mark.parametrize("seed", [1, 5, 12])
def test_counts_are_exact_with_the_faults_of_a_pinned_seed(seed: int) -> None:
    assert run(seed, check_every=4, checkpoints=True).storage.newest > 0


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [(3.0, Kill(SOURCE, 0.2)), (3.1, Kill(SINK, 0.2))],
        [(3.0, Kill("stmgr-1", 0.3)), (3.0, Kill("tmaster-0", 6.0))],
        [(3.0, Kill("container_1", 1.0)), (4.5, Kill("container_2", 1.0))],
        [(3.0, Kill(RELAY, 5.0)), (3.5, Stop("stmgr-2", 3.0))],
        [(3.0, Break("host-1", "host-2")), (3.4, Detach("stmgr-1")), (3.5, Detach(RELAY))],
        [(3.0, Cut("host-1", "host-2", 5.0)), (3.1, Stop("tmaster-0", 6.0))],
        [(3.0, StateAway(4.0)), (3.2, Kill(RELAY, 0.1)), (5.0, Kill("tmaster-0", 0.3))],
        [(3.0, StateEmptied()), (3.1, Kill("tmaster-0", 0.5)), (3.2, Kill(SINK, 0.1))],
        [(3.0, Restore()), (3.01, Restore()), (3.02, Kill("tmaster-0", 0.1))],
        [(3.0, StorageAway(4.0)), (3.2, Kill(RELAY, 0.1))],
        [(3.0, Save()), (3.2, Kill("tmaster-0", 0.3))],
        [(3.0, Pause(3.0)), (4.0, Kill("stmgr-2", 0.1)), (5.0, Expire("tmaster-0", 1.0))],
    ],
)
def test_counts_are_exact_after(faults: Schedule) -> None:
    assert run(6, faults, check_every=4, checkpoints=True).storage.newest > 0


def test_a_damaged_checkpoint_is_passed_over_and_what_is_older_is_restored() -> None:
    cluster = run(6, [(7.0, Damage("relay")), (7.0, Restore())], check_every=10, checkpoints=True)
    assert cluster.storage.newest > max(cluster.storage.damaged) > 0
    assert min(node.status.epoch for node in cluster.counting.values()) > 2


def test_the_commit_of_a_checkpoint_that_is_passed_over_meanwhile_may_be_announced_late() -> None:
    cut = Cut("host-tmaster-0", "host-1", 9.996, one_way=False)
    cluster = run(9100101, [(3.58, cut), (7.0, Damage("sink")), (8.0, Restore())], check_every=10, checkpoints=True)
    assert cluster.storage.damaged


def test_a_new_topology_master_takes_no_checkpoint_of_before_for_one_that_was_asked_for() -> None:
    cluster = run(9200043, [(5.0, Kill("tmaster-0", 7.813)), (7.0, Save())], check_every=10, checkpoints=True)
    assert cluster.storage.newest > 3


def test_checkpoints_go_on_while_nothing_happens_and_nobody_is_restored() -> None:
    cluster = run(6, [(8.0, Kill("tmaster-0", 0.1))], check_every=10, checkpoints=True)
    assert len(cluster.storage.commits) >= 5
    assert {node.status.epoch for node in cluster.counting.values()} == {1}


# At least once with state


@pytest.mark.parametrize("seed", [1, 3, 11])
def test_at_least_once_nothing_is_lost_with_the_faults_of_a_pinned_seed(seed: int) -> None:
    cluster = run(seed, check_every=4, at_least_once=True)
    assert cluster.ledger.acked
    assert not cluster.ledger.open


@pytest.mark.parametrize(
    "faults",
    [
        [(3.0, Kill(SOURCE, 0.2)), (3.1, Kill(SINK, 0.2))],
        [(3.0, Kill("stmgr-1", 0.3)), (3.0, Kill("tmaster-0", 6.0))],
        [(3.0, Kill("container_1", 1.0)), (4.5, Kill("container_2", 1.0))],
        [(3.0, Restore()), (3.01, Restore()), (3.02, Kill("tmaster-0", 0.1))],
        [(3.0, StorageAway(4.0)), (3.2, Kill(RELAY, 0.1))],
    ],
)
def test_at_least_once_what_is_acked_is_committed_after(faults: Schedule) -> None:
    cluster = run(6, faults, check_every=4, at_least_once=True)
    assert {number for _, number in cluster.ledger.acked} == set(range(max(cluster.ledger.emitted.values())))
