"""A campaign of faults while files are read, keys counted, windows and timers fire, and two sinks commit.

A streamlet with a live view does so beside it. Each result comes once. It has the faults of `test_fault_campaign.py`,
and more: tasks come and go, also while something dies; user code raises; the checkpoint storage is away; the disk is
full; processes stop for a while.
`make chaos-state FAULTS=100`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import figures
import pytest
from faults import (
    FAULTS,
    PAIRED,
    PATIENCE,
    WITHIN_S,
    Scene,
    empty_zookeeper,
    restart_zookeeper,
    scene_of,
    skip_if_impossible,
)
from mixed_results import Results, paced
from mixed_topology import FAIL_FILE, mixed

from heronpy import submit
from heronpy.errors import HeronError
from tests.integration.small_disk import fill, small_disk

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")
CONTAINERS = 2
DISK_MB = 400
STREAMLET = "count_by_key-1"
"""A stage of the streamlet."""
ZOOKEEPER_FAULTS = (restart_zookeeper, empty_zookeeper)
EXACT_WITHIN_S = 240.0 * PATIENCE


class Campaign:
    """Faults on a topology, one after the other."""

    def __init__(self, scene: Scene, results: Results) -> None:
        self.scene, self.results = scene, results
        # Not a thread for each fault: the ZooKeeper that one of them starts ends with the thread that started it.
        self.pool = ThreadPoolExecutor(2)
        self.kinds: Sequence[Callable[[Scene], str]] = (
            *FAULTS,
            self.rescale,
            self.rescale,
            self.rescale,
            self.pause,
            self.pause,
            self.fail_user_code,
            self.take_away_storage,
            self.fill_disk,
            self.deactivate,
            self.restart_container,
        )

    def strike(self, number: int) -> None:
        """Inject one fault, or two at the same time, and wait until all results are committed and exact."""
        dice = self.scene.dice
        faults = [dice.choice(self.kinds) for _ in range(2 if dice.random() < PAIRED else 1)]
        kinds = sorted(fault.__name__ for fault in faults)
        self.scene.look()
        thread, done = paced(self.results)
        try:
            self.results.wait_more(200)
            time.sleep(dice.uniform(0, 0.6))  # anywhere between two checkpoints
            began_s = time.monotonic()
            injected: list[Future[str]] = []
            for n, fault in enumerate(faults):
                again = fault in (self.take_away_storage, self.fill_disk) and fault in faults[:n]
                if again or fault in ZOOKEEPER_FAULTS:
                    wait(injected)  # there is one ZooKeeper, and one disk
                injected.append(self.pool.submit(fault, self.scene))
                time.sleep(dice.uniform(0, 1.5))  # both at once, or one while the other is made good
            for each in injected:
                print(f"{time.strftime('%H:%M:%S')} {each.result()}", flush=True)
            self.scene.topology.wait_running(WITHIN_S)
            whole_s = time.monotonic() - began_s
        finally:
            done.set()
            thread.join()
        self.results.wait_exact(EXACT_WITHIN_S)
        settled_s = time.monotonic() - began_s
        print(f"fault {number} ({' and '.join(kinds)}): whole {whole_s:.1f} s, exact {settled_s:.1f} s", flush=True)
        figures.append(FIGURES, seed=self.scene.seed, kinds=kinds, whole_s=whole_s, settled_s=settled_s)

    def rescale(self, scene: Scene) -> str:
        component, tasks = (
            scene.dice.choice(["lines", "parsed", "work", "work", "files", STREAMLET, STREAMLET]),
            scene.dice.randint(1, 4),
        )
        containers = scene.dice.randint(1, 3)
        try:
            scene.topology.update(containers=containers, **{component: tasks})
        except HeronError as e:
            return f"update {component}:{tasks} on {containers} containers: {e}"
        return f"update {component}:{tasks} on {containers} containers: done"

    def pause(self, scene: Scene) -> str:
        """SIGSTOP, and SIGCONT before or after somebody has given the process up."""
        found = scene.any_process()
        for_s = scene.dice.uniform(0.5, 8)
        if found is not None:
            found[1].send(signal.SIGSTOP)
            time.sleep(for_s)  # the fault itself
            found[1].send(signal.SIGCONT)
        return f"SIGSTOP {found[0] if found else '(nothing runs)'} for {for_s:.1f} s"

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

    def deactivate(self, scene: Scene) -> str:
        try:
            submit.deactivate(scene.topology.launch)
            said = "deactivated"
        except HeronError as e:
            said = f"deactivate: {e}"
        time.sleep(scene.dice.uniform(0, 2))  # the pause itself
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            try:
                submit.activate(scene.topology.launch)
                return f"{said}, activated"
            except HeronError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(0.5)

    def restart_container(self, scene: Scene) -> str:
        container = scene.dice.randint(0, 1)
        try:
            scene.topology.restart(container)
        except HeronError as e:
            return f"restart container {container}: {e}"
        return f"restart container {container}"


@pytest.mark.skipif("HERON_STATE_FAULTS" not in os.environ, reason="only with HERON_STATE_FAULTS: make chaos-state")
@pytest.mark.timeout(0)
def test_a_campaign_of_faults_leaves_every_result_exact(tmp_path: Path) -> None:
    skip_if_impossible()
    directory = tmp_path / "mixed"
    directory.mkdir()
    faults, made_good = int(os.environ["HERON_STATE_FAULTS"]), 0
    with small_disk(tmp_path / "disk", DISK_MB) as disk:
        results = Results(directory, disk)
        topology = mixed("mixed", directory, results.out, results.url, par=2, containers=CONTAINERS)
        storage = {"heron.statefulstorage.url": str(disk / "checkpoints")}
        with scene_of(topology, tmp_path, storage) as scene:
            campaign = Campaign(scene, results)
            try:
                for number in range(1, faults + 1):
                    campaign.strike(number)
                    made_good += 1
                results.check_files()
            finally:
                figures.append(FIGURES, seed=scene.seed, numbers=results.expected.count, failed=made_good < faults)
                print(f"{made_good} faults made good, {results.expected.count} numbers", flush=True)
    assert made_good == faults
