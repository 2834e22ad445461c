"""The web UI while things are away: the Topology Master, the Tracker, the topology, the token."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsed_topology import ORDERS, Ticking
from conftest import Open, Served
from test_ui import expect

from heronpy.testing import LocalCluster, TopologyHandle

UI = Path(__file__).parents[2] / "tracker" / "heron_tracker" / "ui"
BROWSERS_OWN = ("Failed to load resource", "net::ERR")
"""What the browser itself writes to the console about an answer that is no success."""


def test_a_silent_topology_master_is_told_with_the_last_known_state(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open
) -> None:
    one = opened(tracker.url)
    page = one.goto(f"{at}?interval=-1")
    page.locator("tr[data-key=orders]").wait_for()
    pid = topology.processes()["tmaster"]
    os.kill(pid, signal.SIGSTOP)
    try:
        page.locator("#tmaster-lost").wait_for(timeout=40_000)
        expect(page, "#tmaster-lost", re.compile(r"does not answer since \d\d:\d\d:\d\d .* ago\)"))
        expect(page, "#tmaster-lost", "The topology was running")
        expect(page, "#tmaster-lost", re.compile(r"The numbers are those of \d\d:\d\d:\d\d"))
        emitted = page.locator("tr[data-key=orders] td[data-value]").nth(1)
        assert emitted.get_attribute("data-value") == str(2 * ORDERS)
        one.shot("tmaster-lost")
        # A page that is opened now has no older numbers: it shows the plan, and no zeros.
        other = opened(tracker.url)
        blank = other.goto(at)
        expect(blank, "#tmaster-lost", "No numbers of it are known")
        expect(blank, "tr[data-key=orders]", "–")
        assert blank.locator("tr[data-key=orders] td").nth(2).text_content() == "–"
        assert blank.locator("svg .node").count() == 5
        blank.keyboard.press("3")
        expect(blank, ".panel .none >> nth=-1", "unreachable since")
        other.excuse(*BROWSERS_OWN)
    finally:
        os.kill(pid, signal.SIGCONT)
    page.locator("#tmaster-lost").wait_for(state="hidden", timeout=40_000)
    one.excuse(*BROWSERS_OWN)


def test_a_tracker_that_is_gone_is_asked_again_until_it_is_back(
    cluster: LocalCluster, topology: TopologyHandle, at: str, opened: Open
) -> None:
    first = Served(cluster.home)
    try:
        one = opened(first.url)
        page = one.goto(f"{at}?interval=-1")
        page.locator("tr[data-key=orders]").wait_for()
    finally:
        first.stop()
    expect(page, "#gone", "The Tracker does not answer")
    expect(page, ".link", "Offline")
    assert page.locator("tr[data-key=orders] td[data-value]").nth(1).get_attribute("data-value") == str(2 * ORDERS)
    one.shot("tracker-gone")
    second = Served(cluster.home, "--port", first.port)
    try:
        page.get_by_role("button", name="Retry now").click()
        page.locator("#gone").wait_for(state="hidden")
        expect(page, ".link", "Live")
    finally:
        one.page.close()
        second.stop()
    one.excuse(*BROWSERS_OWN)


@pytest.fixture
def guarded(cluster: LocalCluster, topology: TopologyHandle, tmp_path: Path) -> Iterator[Served]:
    """A Tracker that wants a token."""
    (tmp_path / "token").write_text("swordfish\n")
    (tmp_path / "token").chmod(0o600)
    served = Served(cluster.home, "--token-file", str(tmp_path / "token"))
    yield served
    served.stop()


def test_who_gave_the_browser_the_token_is_not_asked_again(guarded: Served, opened: Open) -> None:
    one = opened(guarded.url, http_credentials={"username": "me", "password": "swordfish"})
    page = one.goto("#/")
    expect(page, "tbody tr", "browsed")
    expect(page, ".link", "Live")
    assert page.locator("#token").count() == 0
    page.close()
    one.excuse("401")


def test_a_page_that_is_open_to_all_asks_for_the_token_once(guarded: Served, opened: Open) -> None:
    one = opened(guarded.url)

    def file_of_the_ui(route: Any) -> None:
        """What a proxy does that serves the UI's files itself, and asks the Tracker for the rest."""
        path = UI / (urlsplit(route.request.url).path.lstrip("/") or "index.html")
        if path.is_file():
            route.fulfill(path=path)
        else:
            route.continue_()

    one.page.route("**/*", file_of_the_ui)
    page = one.goto("#/")
    expect(page, "#token", "This Tracker wants its token")
    one.shot("token", full=False)
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page, "#token", "refused the one that you gave")
    page.get_by_label("Token", exact=True).fill("swordfish")
    page.keyboard.press("Enter")
    expect(page, "tbody tr", "browsed")
    expect(page, ".link", "Live")
    page.reload()
    expect(page, "tbody tr", "browsed")  # kept for this tab
    assert page.evaluate("Object.values(sessionStorage)") == ["swordfish"]
    assert page.evaluate("JSON.stringify(localStorage)") == "{}"
    page.unroute_all(behavior="wait")
    page.close()
    one.excuse("401")


def test_without_topologies_it_says_how_to_submit_one(tmp_path: Path, opened: Open) -> None:
    served = Served(tmp_path)
    try:
        one = opened(served.url)
        page = one.goto("#/")
        expect(page, ".empty", "No topology runs")
        expect(page, ".empty pre", "heron submit")
        one.shot("empty", full=False)
        page.close()
    finally:
        served.stop()


def test_what_does_not_exist_is_said_to_be_missing(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open
) -> None:
    one = opened(tracker.url)
    page = one.goto("#/nowhere/at/all")
    expect(page, ".empty", "There is no such page")
    page.get_by_role("link", name="All topologies", exact=True).click()
    expect(page, "tbody tr", "browsed")
    expect(one.goto(f"{at}x"), ".empty", "There is no such topology")
    expect(one.goto(f"{at}/component/x"), ".empty", "There is no component x")
    expect(one.goto(f"{at}/instance/x"), ".empty", "There is no instance x")
    expect(one.goto(f"{at}/logs?container=77"), ".none", "no container 77")
    expect(one.goto(f"{at}/logs?container=1&file=x.log"), ".none", "no log file 'x.log'")
    one.excuse("404")


def test_a_topology_that_is_killed_leaves_what_was_known_of_it(
    tracker: Served, cluster: LocalCluster, opened: Open
) -> None:
    short = cluster.submit(Ticking, name="short").wait_running(60)
    launch = short.launch
    one = opened(tracker.url)
    page = one.goto(f"#/t/{launch.cluster}/{launch.role}/{launch.environ}/short")
    page.locator("tr[data-key=clock]").wait_for()
    short.kill()
    expect(page, "#tmaster-lost", "This topology was killed")
    assert page.locator("svg .node").count() == 2
    page.keyboard.press("l")
    page.locator("tbody tr, .empty").first.wait_for()
    assert page.locator("tbody tr", has_text="short").count() == 0
    one.excuse(*BROWSERS_OWN)
