"""Faults of hosts and links while words are counted on three hosts: nothing is lost, and the counts are exact.

Each fault comes when the topology has recovered from the one before. A seed gives the same faults in the same order:
`make chaos-hosts FAULTS=100`, and HERON_CHAOS_SEED=n repeats one. HERON_CHAOS_FIGURES=file keeps figures of several
runs, for `tests/chaos/figures.py`. The short one, part of `make test-clusters`, has five.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hosts_scene import (
    CONTAINERS,
    FAULTS,
    WITHIN_S,
    Fault,
    WordScene,
    keep_logs,
    kill_container,
    replace_cut_off,
    scene_on,
    vanish,
)

from heronpy import submit
from heronpy.testing import eventually_sync, scrape
from heronpy.testing.hosts import Hosts, hosts_missing
from heronpy.testing.servers import zookeeper_missing
from heronpy.viz import targets

FIGURES = os.environ.get("HERON_CHAOS_FIGURES", "")
SEED = int(os.environ.get("HERON_CHAOS_SEED", "1"))
LINES = 300
MISSING = hosts_missing() or zookeeper_missing()

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(0)]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[WordScene]:
    print(f"\nHERON_CHAOS_SEED={SEED}", flush=True)
    with Hosts("one", "two", "three") as hosts, scene_on(hosts, tmp_path, seed=SEED) as scene:
        yield scene


def strike(scene: WordScene, fault: Fault, number: int) -> float:
    """Inject one fault, and wait until every line was acked; how long that took since it could."""
    words = scene.words
    before = len(words.acked())
    words.raise_goal(LINES)
    words.wait_for(before + LINES // 10, within_s=WITHIN_S)
    what, since_s = fault(scene)
    print(f"{time.strftime('%H:%M:%S')} fault {number}: {what}", flush=True)
    words.raise_goal(LINES // 3)  # so that something is on its way afterwards, too
    words.wait_settled(within_s=WITHIN_S)
    scene.wait_running()
    settled_s = time.monotonic() - since_s
    print(f"{time.strftime('%H:%M:%S')} settled after {settled_s:.1f} s", flush=True)
    scene.repair()
    return settled_s


def campaign(scene: WordScene, faults: Sequence[Fault]) -> None:
    took: dict[str, list[float]] = defaultdict(list)
    try:
        for number, fault in enumerate(faults, start=1):
            settled_s = strike(scene, fault, number)
            took[fault.__name__].append(settled_s)
            if FIGURES:
                with open(FIGURES, "a") as file:
                    file.write(json.dumps({"seed": SEED, "kinds": [fault.__name__], "settled_s": settled_s}) + "\n")
    except BaseException:
        keep_logs(scene.hosts)  # a fixture is not told of it
        raise
    finally:
        print("\n".join(table(took)), flush=True)
    repeated = scene.words.verify()
    print(f"{scene.words.goal} lines, no word lost, {repeated} counts repeated", flush=True)


def table(took: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Recovery by kind of fault, in Markdown."""
    yield "| fault | number | p50 s | longest s |"
    yield "|---|---|---|---|"
    for kind, seconds in sorted(took.items()):
        median = sorted(seconds)[len(seconds) // 2]
        yield f"| {kind.replace('_', ' ')} | {len(seconds)} | {median:.1f} | {max(seconds):.1f} |"


def test_words_are_counted_exactly_while_hosts_vanish_and_links_fail(scene: WordScene) -> None:
    rest = [fault for fault in FAULTS if fault not in (vanish, replace_cut_off, kill_container)]
    campaign(scene, [vanish, replace_cut_off, kill_container, *scene.dice.sample(rest, 2)])


def test_containers_on_several_hosts_talk_over_ipv6(tmp_path: Path) -> None:
    with Hosts("one", "two", "three") as hosts, scene_on(hosts, tmp_path, ipv6=True) as scene:
        assert all(":" in stmgr.location.host for stmgr in scene.status().stmgrs)
        eventually_sync(lambda: _equal(sorted(scene.status().prometheus), list(range(CONTAINERS + 1))))
        found = targets([scene.launch], lambda launch: submit.status(launch).prometheus)
        assert [target["labels"]["container"] for target in found] == ["0", "1", "2", "3"]
        for target in found:
            (address,) = target["targets"]
            assert address.startswith("[fd")
            assert "heron_uptime_seconds" in scrape(scene.launch, address)
        campaign(scene, [kill_container])


@pytest.mark.skipif("HERON_HOSTS_FAULTS" not in os.environ, reason="only with HERON_HOSTS_FAULTS: make chaos-hosts")
def test_a_campaign_of_faults_of_hosts_and_links_loses_nothing(scene: WordScene) -> None:
    campaign(scene, [scene.dice.choice(FAULTS) for _ in range(int(os.environ["HERON_HOSTS_FAULTS"]))])


def _equal(found: object, expected: object) -> None:
    assert found == expected
