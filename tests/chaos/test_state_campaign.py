"""A campaign of faults while files are read, keys counted, windows and timers fire, and two sinks commit.

A streamlet with a live view does so beside it. Each result comes once. It has the faults of `test_fault_campaign.py`,
and more: tasks come and go, also while something dies; user code raises; the checkpoint storage is away; the disk is
full; processes stop for a while.
`make chaos-state FAULTS=100`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import figures
import pytest
from campaign import FIGURES, Campaign
from faults import (
    FAULTS,
    ZOOKEEPER_FAULTS,
    Scene,
    deactivate,
    pause,
    rescaling,
    restart_container,
    scene_of,
    skip_if_impossible,
)
from mixed_results import Results
from mixed_topology import FAIL_FILE, mixed

from tests.integration.small_disk import fill, small_disk

CONTAINERS = 2
DISK_MB = 400
STREAMLET = "count_by_key-1"
"""A stage of the streamlet."""


class FileFaults:
    """What is done to files of the topology."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def fail_user_code(self, scene: Scene) -> str:
        (self.results.dir / FAIL_FILE).touch()
        return "user code raises"

    def take_away_storage(self, scene: Scene) -> str:
        """Have a file where the directory of the checkpoints was."""
        for_s = scene.dice.uniform(0.2, 6)
        place = Path(scene.topology.launch.checkpoints)
        away = place.with_suffix(".away")
        place.rename(away)
        place.touch()
        time.sleep(for_s)  # the fault itself
        place.unlink()
        away.rename(place)
        return f"checkpoint storage away for {for_s:.1f} s"

    def fill_disk(self, scene: Scene) -> str:
        """Leave no room for checkpoints and output."""
        for_s = scene.dice.uniform(0.5, 8)
        rest = self.results.out.parent / "rest"
        fill(rest)
        time.sleep(for_s)  # the fault itself
        rest.unlink()
        return f"disk full for {for_s:.1f} s"


def campaign_of(scene: Scene, results: Results) -> Campaign:
    files = FileFaults(results)
    rescale = rescaling(["lines", "parsed", "work", "work", "files", STREAMLET, STREAMLET])
    kinds = (
        *FAULTS,
        *[rescale] * 3,
        *[pause] * 2,
        files.fail_user_code,
        files.take_away_storage,
        files.fill_disk,
        deactivate,
        restart_container,
    )
    return Campaign(scene, results, kinds, [ZOOKEEPER_FAULTS, [files.take_away_storage], [files.fill_disk]])


@pytest.mark.skipif("HERON_STATE_FAULTS" not in os.environ, reason="only with HERON_STATE_FAULTS: make chaos-state")
@pytest.mark.timeout(0)
def test_a_campaign_of_faults_leaves_every_result_exact(tmp_path: Path) -> None:
    skip_if_impossible()
    directory = tmp_path / "mixed"
    directory.mkdir()
    faults = int(os.environ["HERON_STATE_FAULTS"])
    with small_disk(tmp_path / "disk", DISK_MB) as disk:
        results = Results(directory, disk)
        topology = mixed("mixed", directory, results.out, results.url, par=2, containers=CONTAINERS)
        storage = {"heron.statefulstorage.url": str(disk / "checkpoints")}
        with scene_of(topology, tmp_path, storage) as scene:
            campaign = campaign_of(scene, results)
            try:
                campaign.run(faults)
                results.check_files()
            finally:
                failed = campaign.made_good < faults
                figures.append(FIGURES, seed=scene.seed, numbers=results.expected.count, failed=failed)
                print(f"{campaign.made_good} faults made good, {results.expected.count} numbers", flush=True)
    assert campaign.made_good == faults
