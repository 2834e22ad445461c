"""A campaign of faults of every kind on three containers with a real ZooKeeper: nothing is lost, nothing is stuck.

Each fault comes when the topology has recovered from the one before; one in five is a pair of faults at once. A seed
gives the same faults in the same order: `make chaos FAULTS=300`, and HERON_CHAOS_SEED=n repeats one. Figures of
several runs are added up by `figures.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import figures
import pytest
from chain_topology import chain as chain_of
from faults import CONTAINERS, WITHIN_S, Scene, chosen, scene_of, skip_if_impossible
from ledger import Ledger

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[Scene, Ledger]]:
    skip_if_impossible()
    records = tmp_path / "records"
    records.mkdir()
    ledger = Ledger(records)
    with scene_of(chain_of("campaign", records, par=3, containers=CONTAINERS), tmp_path) as scene:
        yield scene, ledger


def strike(scene: Scene, ledger: Ledger, number: int) -> None:
    """Inject one fault, or a pair, and wait until everything was acked."""
    faults = chosen(scene)
    kinds = sorted(fault.__name__ for fault in faults)
    what = f"fault {number} ({' and '.join(kinds)})"
    scene.look()
    with ledger.disturbed(what, scene.topology, numbers=200, within_s=WITHIN_S) as recovery:
        for fault in faults:
            print(f"{time.strftime('%H:%M:%S')} {fault(scene)}", flush=True)
            ledger.raise_goal(100)  # so that something is on its way afterwards, too
        recovery.over()
    figures.append(FIGURES, seed=scene.seed, kinds=kinds, whole_s=recovery.whole_s, settled_s=recovery.settled_s)


@pytest.mark.skipif("HERON_CHAOS_FAULTS" not in os.environ, reason="only with HERON_CHAOS_FAULTS: make chaos")
@pytest.mark.timeout(0)
def test_a_campaign_of_faults_of_every_kind_loses_nothing_and_ends(scene: tuple[Scene, Ledger]) -> None:
    where, ledger = scene
    faults, made_good = int(os.environ["HERON_CHAOS_FAULTS"]), 0
    try:
        for number in range(1, faults + 1):
            strike(where, ledger, number)
            made_good += 1
    finally:
        executed = [number for _, number in ledger.executed()]
        repeated, lost = len(executed) - len(set(executed)), len(ledger.acked() - set(executed))
        failed = made_good < faults
        figures.append(FIGURES, seed=where.seed, numbers=ledger.goal, lost=lost, repeated=repeated, failed=failed)
        print(f"{made_good} faults made good, {ledger.goal} numbers, {lost} lost, {repeated} executions repeated")
    assert lost == 0
