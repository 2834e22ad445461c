"""A campaign of faults of every kind on a topology that counts effectively once: all counts stay exact.

As `test_fault_campaign.py`, whose faults these are; a Checkpoint Manager is among the processes that are killed and
stopped. `make chaos-state FAULTS=100`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import figures
import pytest
from counted import Counted
from counting_topology import counting
from faults import CONTAINERS, WITHIN_S, Scene, chosen, scene_of, skip_if_impossible

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")


def strike(scene: Scene, counted: Counted, number: int) -> None:
    """Inject one fault, or a pair, and wait until all counts are committed and exact."""
    faults = chosen(scene)
    kinds = sorted(fault.__name__ for fault in faults)
    scene.look()
    counted.raise_goal(3000)
    counted.wait_midway()
    began_s = time.monotonic()
    for fault in faults:
        print(f"{time.strftime('%H:%M:%S')} {fault(scene)}", flush=True)
    scene.topology.wait_running(WITHIN_S)
    whole_s = time.monotonic() - began_s
    counted.wait_exact()
    settled_s = time.monotonic() - began_s
    print(f"fault {number} ({' and '.join(kinds)}): whole {whole_s:.1f} s, exact {settled_s:.1f} s", flush=True)
    figures.append(FIGURES, seed=scene.seed, kinds=kinds, whole_s=whole_s, settled_s=settled_s)


@pytest.mark.skipif("HERON_STATE_FAULTS" not in os.environ, reason="only with HERON_STATE_FAULTS: make chaos-state")
@pytest.mark.timeout(0)
def test_a_campaign_of_faults_leaves_every_count_exact(tmp_path: Path) -> None:
    skip_if_impossible()
    directory = tmp_path / "counted"
    directory.mkdir()
    counted = Counted(directory)
    faults, made_good = int(os.environ["HERON_STATE_FAULTS"]), 0
    with scene_of(counting("counting", directory, par=3, containers=CONTAINERS), tmp_path) as scene:
        try:
            for number in range(1, faults + 1):
                strike(scene, counted, number)
                made_good += 1
        finally:
            exact = sum(counted.counts().values()) == counted.goal
            figures.append(
                FIGURES, seed=scene.seed, numbers=counted.goal, lost=0, repeated=0, failed=made_good < faults
            )
            print(f"{made_good} faults made good, {counted.goal} numbers, counts exact: {exact}", flush=True)
    assert exact
