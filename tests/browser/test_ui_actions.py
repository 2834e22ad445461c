"""What can be done from the web UI: actions on topologies for whoever may, and a flame graph of a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from browsed_topology import Ticking
from conftest import Open, Served
from test_ui import changed, expect

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

TOKEN = "swordfish"


@pytest.fixture(scope="module")
def ticking(cluster: LocalCluster) -> TopologyHandle:
    return cluster.submit(Ticking, name="ticking").wait_running()


@pytest.fixture(scope="module")
def may_act(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Tracker that acts for whoever has its token."""
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    served = Served(cluster.home, "--actions", "--token-file", str(token))
    yield served
    served.stop()


def address(handle: TopologyHandle) -> str:
    launch = handle.launch
    return f"#/t/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"


def sign_in(page: Any) -> None:
    page.locator("#token input").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#token").wait_for(state="detached")


def press(page: Any, action: str, *, confirm: bool = True) -> None:
    """Press the button of an action, and answer the question whether that is meant."""
    page.locator(f"#actions [data-action={action}]").click()
    expect(page, "#confirm h2", f"{action.capitalize()} ticking?")
    page.locator("#confirm").get_by_role("button", name=action.capitalize() if confirm else "Cancel").click()
    page.locator("#confirm").wait_for(state="detached", timeout=180_000)


def test_who_may_not_act_has_no_buttons_and_is_refused(tracker: Served, ticking: TopologyHandle, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto(address(ticking))
    page.locator("svg .node").first.wait_for()
    page.wait_for_function("performance.getEntriesByName(location.origin + '/version?').length > 0")
    assert page.locator("#actions").is_hidden()
    assert page.get_by_role("button", name="Kill").count() == 0
    refused = tracker.http.post(
        "/topologies/local/x/default/ticking/kill".replace("/x/", f"/{ticking.launch.role}/"),
        headers={"x-heron-request": "1"},
    )
    assert (refused.status_code, "only looks" in refused.text) == (403, True)


def test_a_topology_is_deactivated_activated_restarted_and_killed_by_whoever_may(
    may_act: Served, ticking: TopologyHandle, opened: Open
) -> None:
    one = opened(may_act.url)
    one.page.route("**/topologies/info?*", lambda route: changed(route, takes_checkpoints=True))
    page = one.goto(address(ticking))
    sign_in(page)
    page.locator("#actions").wait_for()
    assert page.locator("#actions [data-action=activate]").is_hidden()

    press(page, "deactivate", confirm=False)
    assert ticking.status().state == "RUNNING", "Cancel does nothing"
    press(page, "deactivate")
    expect(page, ".title .pill", "Paused")
    assert ticking.status().state == "PAUSED"
    press(page, "activate")
    expect(page, ".title .pill", "Running")
    assert ticking.status().state == "RUNNING"

    before = ticking.processes()
    press(page, "restart")

    def restarted() -> None:
        now = ticking.processes()
        assert now.keys() == before.keys()
        assert not set(now.values()) & set(before.values())

    eventually_sync(restarted)
    ticking.wait_running()

    press(page, "kill", confirm=False)
    assert ticking.launch.dir.exists()
    page.locator("#actions [data-action=kill]").click()
    page.locator("#confirm").get_by_label("Without a last checkpoint").check()
    one.shot("kill", full=False)
    page.locator("#confirm").get_by_role("button", name="Cancel").click()
    press(page, "kill")
    expect(page, "#tmaster-lost", "This topology was killed")
    assert not ticking.launch.dir.exists()
    one.excuse("401", "404", "503", "net::ERR", "Failed to load resource")


@pytest.mark.long
@pytest.mark.parametrize("process", ["container_1_clock_3", pytest.param("stmgr-1", marks=pytest.mark.long)])
def test_a_flame_graph_is_recorded_and_shows_shares(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open, process: str
) -> None:
    if process != "stmgr-1":
        process = next(id for id in topology.processes() if "_clock_" in id)
    pid = topology.processes()[process]
    one = opened(tracker.url)
    page = one.goto(f"{at}/{'process' if process == 'stmgr-1' else 'instance'}/{process}")
    panel = page.get_by_role("region", name="Flame graph")
    panel.get_by_role("button", name="2 s", exact=True).click()
    panel.get_by_role("button", name="Record").click()
    expect(page, "[aria-label='Flame graph'] [role=status]", f"of pid {pid}")
    expect(page, "[aria-label='Flame graph'] [role=status]", "sampling took")
    panel.get_by_role("button", name="Time", exact=True).click()  # what is idle waits, and uses no CPU time
    canvas = panel.locator("canvas")
    canvas.hover(position={"x": 10, "y": 10})
    expect(page, ".tooltip", re.compile("all threads.*100 %.* of the profile", re.DOTALL))
    one.shot(f"flame-{'stmgr' if process == 'stmgr-1' else 'instance'}")
    assert topology.processes()[process] == pid
