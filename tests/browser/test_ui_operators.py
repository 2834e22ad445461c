"""Operators of streamlet programs in the web UI, on the command line and in logs: by the names that users gave them."""

from __future__ import annotations

import browsed_topology
from conftest import Open, Served
from heron_command import heron_command
from test_ui import expect

from heronpy.testing import LocalCluster, eventually_sync

CHAIN = "sentences (sentence) → flatmap-1 (words_of) → loud (upper) → map-1"


def test_fused_operators_keep_their_names(cluster: LocalCluster, tracker: Served, opened: Open) -> None:
    handle = cluster.submit(browsed_topology.program(), files=[browsed_topology.__file__]).wait_running()
    launch = handle.launch

    def heron(*args: str) -> str:
        done = heron_command(*args, home=cluster.home)
        assert done.returncode == 0, done.stderr
        return done.stdout

    one = opened(tracker.url)
    page = one.goto(f"#/t/{launch.cluster}/{launch.role}/{launch.environ}/program")
    expect(page, "[data-component=sentences]", "→ flatmap-1 → loud")
    page.locator("[data-component=sentences]").hover()
    expect(page, ".tooltip", f"runs {CHAIN}")
    one.shot("operators")
    page.get_by_role("link", name="sentences", exact=True).click()
    expect(page, ".subtitle", f"runs {CHAIN}")
    assert CHAIN in heron("components", "program")

    def counted() -> None:
        assert "__emit-count/" in heron("metrics", "program", "loud", "-m", "__emit-count", "-w", "all")

    eventually_sync(counted)
    instance = next(id for id in handle.processes() if "_sentences_" in id)
    assert f"runs {CHAIN}" in heron("logs", "program", instance)
    handle.kill()
    page.close()
    one.excuse("404", "503", "Failed to load resource")
