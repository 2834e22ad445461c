"""State and output stay exact while hosts vanish, are cut off and replaced, and links fail.

A host that is cut off does not know that its tasks were replaced: nothing that it does then may be in a checkpoint or
in the output. `make chaos-hosts FAULTS=100`, and HERON_CHAOS_SEED=n repeats one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from exact_topology import Keys, exact_count
from hosts_scene import (
    CONTAINERS,
    FAULTS,
    QUICK,
    START_S,
    WITHIN_S,
    Scene,
    keep_logs,
    replace_cut_off,
    running,
    vanish,
)

from heronpy import submit
from heronpy.errors import HeronError
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing

SEED = int(os.environ.get("HERON_CHAOS_SEED", "1"))
KEYS_AT_ONCE = 2000
MISSING = hosts_missing() or zookeeper_missing()

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(0)]


@dataclass(kw_only=True)
class ExactScene(Scene):
    keys: Keys
    home: Path


def rescale(scene: ExactScene) -> tuple[str, float]:
    """Another number of tasks, in half of the cases while a host is cut off for a few seconds."""
    component, tasks = scene.dice.choice(["keys", "count", "count", "sink"]), scene.dice.randint(1, 4)
    host = scene.any_host() if scene.dice.random() < 0.5 else None
    said: list[str] = []

    def update() -> None:
        try:
            submit.update(submit.plan_update(scene.launch, {component: tasks}, home=scene.home))
            said.append("done")
        except HeronError as e:
            said.append(str(e))

    since_s = time.monotonic()
    thread = threading.Thread(target=update, name="update")
    thread.start()
    if host is not None:
        time.sleep(scene.dice.uniform(0, 3))  # at any step of it
        host.cut()
        time.sleep(scene.dice.choice([2.0, 8.0]))
        host.heal()
    thread.join()
    return f"update {component}:{tasks}{f' while {host.name} is cut off' if host else ''}: {said[0]}", since_s


def kill_process(scene: Scene) -> tuple[str, float]:
    """One process of a container, any but its first."""
    container = scene.dice.randrange(CONTAINERS + 1)
    first = scene.cluster.process_of(scene.launch.topology_id, container)
    since_s = time.monotonic()
    try:
        processes = first.children(recursive=True) if first is not None else []
        commands = {each.pid: each.cmdline() for each in processes}
        victim = scene.dice.choice([each for each in processes if _is_restarted(commands[each.pid])])
        victim.kill()
    except (psutil.NoSuchProcess, IndexError):
        return f"container {container} has nothing to kill", since_s
    return f"kill -9 {' '.join(commands[victim.pid][4:5])} of container {container}", since_s


ExactFault = Callable[[ExactScene], tuple[str, float]]


def _is_restarted(command: Sequence[str]) -> bool:
    """Whether it is of a process that its container starts again: any but the executor and the fork server."""
    return "--dir" in command and not {"heronpy.container.executor", "heronpy.forkserver"} & {*command}


KINDS: Sequence[ExactFault] = (*FAULTS, kill_process, kill_process, rescale, rescale)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[ExactScene]:
    print(f"\nHERON_CHAOS_SEED={SEED}", flush=True)
    with Hosts("one", "two", "three") as hosts:
        place = hosts.shared / "exact"
        place.mkdir()
        keys = Keys(place)
        topology = exact_count("exact", place, par=2, containers=CONTAINERS)
        config = {**QUICK, "heron.statefulstorage.url": str(place / "checkpoints")}
        with running(topology, hosts, tmp_path, workers=3, config=config) as (launch, cluster, zookeepers):
            scene = ExactScene(
                launch, hosts, cluster, zookeepers, random.Random(SEED), keys=keys, home=tmp_path / "home"
            )
            scene.wait_running(START_S)
            yield scene


def strike(scene: ExactScene, fault: ExactFault, number: int) -> None:
    """Inject one fault while keys are counted, and wait until every one is, exactly."""
    keys = scene.keys
    before = keys.given.total()
    keys.give(KEYS_AT_ONCE)
    keys.wait_counted(before + 1, within_s=WITHIN_S)
    keys.give(KEYS_AT_ONCE)
    what, since_s = fault(scene)
    print(f"{time.strftime('%H:%M:%S')} fault {number}: {what}", flush=True)
    keys.give(KEYS_AT_ONCE)
    keys.wait_exact(within_s=WITHIN_S)
    scene.wait_running()
    print(f"{time.strftime('%H:%M:%S')} exact after {time.monotonic() - since_s:.1f} s", flush=True)
    scene.repair()


def campaign(scene: ExactScene, faults: Sequence[ExactFault]) -> None:
    try:
        for number, fault in enumerate(faults, start=1):
            strike(scene, fault, number)
        scene.keys.give(KEYS_AT_ONCE)
        scene.keys.wait_exact(within_s=WITHIN_S)
    except BaseException:
        keep_logs(scene.hosts)  # a fixture is not told of it
        raise
    print(f"{len(faults)} faults, {scene.keys.given.total()} keys, each counted once", flush=True)


def test_counts_are_exact_while_hosts_vanish_and_are_cut_off(scene: ExactScene) -> None:
    rest = [fault for fault in FAULTS if fault not in (vanish, replace_cut_off)]
    campaign(scene, [replace_cut_off, vanish, kill_process, rescale, scene.dice.choice(rest)])


@pytest.mark.skipif("HERON_HOSTS_FAULTS" not in os.environ, reason="only with HERON_HOSTS_FAULTS: make chaos-hosts")
def test_a_campaign_of_faults_of_hosts_and_links_leaves_counts_exact(scene: ExactScene) -> None:
    campaign(scene, [scene.dice.choice(KINDS) for _ in range(int(os.environ["HERON_HOSTS_FAULTS"]))])
