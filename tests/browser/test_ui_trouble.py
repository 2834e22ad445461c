"""The web UI while things are away: the Topology Master, the Tracker, the topology, the token."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from browsed_topology import ORDERS, Ticking
from conftest import Open, Served
from test_ui import expect

from heronpy.config.cluster import load_cluster
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync
from heronpy.testing.servers import free_port

BROWSERS_OWN = ("Failed to load resource", "net::ERR")
"""What the browser itself writes to the console about an answer that is no success."""


@pytest.mark.long
def test_a_silent_topology_master_is_told_with_the_last_known_state(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open
) -> None:
    one = opened(tracker.url)
    page = one.goto(f"{at}?interval=-1")
    page.locator("tr[data-key=orders]").wait_for()
    pid = topology.processes()["tmaster"]
    os.kill(pid, signal.SIGSTOP)
    try:
        page.locator("#tmaster-lost").wait_for()
        expect(page, "#tmaster-lost", re.compile(r"does not answer since \d\d:\d\d:\d\d .* ago\)"))
        expect(page, "#tmaster-lost", "The topology was running")
        expect(page, "#tmaster-lost", re.compile(r"The numbers are the last known, as of \d\d:\d\d:\d\d"))
        assert_the_last_numbers_are_shown(page)
        one.shot("tmaster-lost")
        page.reload()  # the page has forgotten them, the Tracker has not
        assert_the_last_numbers_are_shown(page)
        expect(page, "#as-of", re.compile(r"last known, as of \d\d:\d\d:\d\d"))
        one.shot("tmaster-lost-reloaded")
        page.keyboard.press("3")
        expect(page, ".panel .none >> nth=-1", "unreachable since")
        page.keyboard.press("1")
    finally:
        os.kill(pid, signal.SIGCONT)
    page.locator("#tmaster-lost").wait_for(state="hidden")
    page.locator("#as-of").wait_for(state="hidden")
    one.excuse(*BROWSERS_OWN)


def assert_the_last_numbers_are_shown(page: Any) -> None:
    emitted = page.locator("tr[data-key=orders] td[data-value]").nth(1)
    emitted.wait_for()
    assert emitted.get_attribute("data-value") == str(2 * ORDERS)


def test_a_tracker_that_is_gone_is_asked_again_until_it_is_back(
    cluster: LocalCluster, topology: TopologyHandle, at: str, opened: Open
) -> None:
    port = str(free_port())
    first = Served(cluster.home, "--port", port)
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
    page.get_by_role("button", name="Retry now").wait_for()
    second = Served(cluster.home, "--port", port)
    try:
        page.evaluate("document.querySelector('#gone button')?.click()")  # else it has asked by itself meanwhile
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


def test_the_page_asks_for_the_token_once_and_says_when_it_is_wrong(guarded: Served, opened: Open) -> None:
    one = opened(guarded.url)
    page = one.goto("#/")
    expect(page, "#token", "Authentication required")
    one.shot("token", full=False)
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page, "#token [role=alert]", "The Tracker refused this token")
    one.shot("token-wrong", full=False)
    assert page.get_by_label("Token", exact=True).evaluate("input => input === document.activeElement")
    page.keyboard.press("Escape")  # there is nothing behind it to go back to
    page.keyboard.type("swordfish")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page, "tbody tr", "browsed")
    expect(page, ".link", "Live")
    page.reload()
    expect(page, "tbody tr", "browsed")  # kept for this tab
    assert page.evaluate("Object.values(sessionStorage)") == ["swordfish"]
    assert page.evaluate("JSON.stringify(localStorage) + document.cookie") == "{}"
    assert not [url for url in one.requests if "swordfish" in url]
    other = one.context.new_page()  # another tab asks again
    other.goto(guarded.url)
    expect(other, "#token", "It is kept until you close this tab")
    for each in (other, page):
        each.close()
    one.excuse("401")


class Proxy(http.server.BaseHTTPRequestHandler):
    """What stands before a Tracker in many places: it wants a password for everything, also for the page."""

    upstream: httpx.Client
    credentials = base64.b64encode(b"me:sesame").decode()

    def do_GET(self) -> None:
        if self.headers.get("authorization") != f"Basic {self.credentials}":
            self.send_response(401)
            self.send_header("www-authenticate", 'Basic realm="the proxy"')
            self.end_headers()
            return
        answer = self.upstream.get(self.path)
        self.send_response(answer.status_code)
        self.send_header("content-type", answer.headers["content-type"])
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_behind_a_proxy_that_wants_a_password_the_browser_goes_on_giving_it(
    tracker: Served, topology: TopologyHandle, opened: Open
) -> None:
    handler = type("ProxyOfTheTracker", (Proxy,), {"upstream": tracker.http})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,))
        thread.start()
        one = opened(f"http://127.0.0.1:{proxy.server_port}", http_credentials={"username": "me", "password": "sesame"})
        try:
            one.page.route("**/events*", lambda route: route.fulfill(status=503, body='"request failed: full"'))
            page = one.goto("#/")
            expect(page, "tbody tr", "browsed")
            expect(page, ".link", "Polling")
            assert page.locator("#token").count() == 0
        finally:
            one.page.close()
            proxy.shutdown()
            thread.join(300)
    one.excuse("401", "503", "net::ERR")


@pytest.mark.long
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


def test_a_topology_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path, opened: Open) -> None:
    cluster = load_cluster("local", home=tmp_path)
    with open_statemgr(StatemgrSpec(type="file", root=cluster.statemgr_root)) as state:
        state.set(Kind.EXECUTIONSTATE, "broken", b"\xff\xff")
        state.set(Kind.TOPOLOGIES, "broken", b"\xff\xff")
    served = Served(tmp_path)
    try:
        one = opened(served.url)
        page = one.goto("#/")
        expect(page, "tbody tr", "broken")
        expect(page, "tbody tr", "Unreadable")
        expect(page, "tbody tr", "its state cannot be read: DecodeError")
        assert page.locator("tbody tr a[href]").count() == 0, "there is no page of it"
        page.get_by_role("button", name="In trouble").click()
        expect(page, ".bar", "1 of 1 topology")
        one.shot("unreadable", full=False)
        page.close()
    finally:
        served.stop()


UNREACHABLE = "request failed: the Topology Master is unreachable"


REFUSED = {
    "/component/orders": [
        ("**/topologies/metrics?*", "[aria-label=Streams] .none"),
        ("**/topologies/exceptions?*", "[aria-label=Exceptions] .none"),
        ("**/history?*", ".chart .none"),
    ],
    "/exceptions": [
        ("**/topologies/exceptionsummary?*", "[aria-label='By class'] .none"),
        ("**/topologies/exceptions?*", "[aria-label='Where, and how'] .none"),
    ],
    "/config": [("**/effectiveconfig?*", ".config .none")],
}
"""Of each page: what the Tracker refuses, and where the page says so."""


@pytest.mark.parametrize("path", REFUSED)
def test_what_could_not_be_loaded_is_not_said_to_be_nothing(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open, path: str
) -> None:
    one = opened(tracker.url)
    for asked, _ in REFUSED[path]:
        one.page.route(asked, lambda route: route.fulfill(status=503, body=json.dumps(UNREACHABLE)))
    page = one.goto(f"{at}{path}")
    for _, where in REFUSED[path]:
        expect(page, where, re.compile("Could not be loaded"))
        said = page.locator(where).all_inner_texts()
        assert all("Could not be loaded" in each for each in said), said
    page.close()
    one.excuse("503")


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


@pytest.mark.long
def test_a_topology_that_is_killed_leaves_what_was_known_of_it(
    tracker: Served, cluster: LocalCluster, opened: Open
) -> None:
    short = cluster.submit(Ticking, name="short").wait_running()
    launch = short.launch
    one = opened(tracker.url)
    page = one.goto(f"#/t/{launch.cluster}/{launch.role}/{launch.environ}/short")
    page.locator("tr[data-key=clock]").wait_for()
    expect(page, ".figure >> nth=1", "n/a")  # at most once: acks are not known
    expect(page, ".figure >> nth=1", "not tracked")
    short.kill()
    expect(page, "#tmaster-lost", "This topology was killed")
    assert page.locator("svg .node").count() == 2
    page.keyboard.press("l")
    page.locator("tbody tr, .empty").first.wait_for()
    gone = page.locator("tbody tr", has_text="short")
    eventually_sync(lambda: _equal(gone.count(), 0))
    one.excuse(*BROWSERS_OWN)


def _equal(found: object, expected: object) -> None:
    assert found == expected
