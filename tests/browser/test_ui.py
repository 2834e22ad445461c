"""The web UI in a browser, beside a topology that runs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from browsed_topology import ATTACK, ORDERS, SHELVES
from conftest import PHONE, WITHIN_MS, Open, Opened, Served

from heronpy.testing import TopologyHandle, eventually_sync

COMPONENTS = ("orders", "clock", "check", "payments", "totals")
PAGES = {
    "overview": ("", "svg .node"),
    "charts": ("/charts", ".u-wrap"),
    "exceptions": ("/exceptions", ".fault"),
    "logs": ("/logs", ".log .line"),
    "config": ("/config", "tbody tr"),
    "component": ("/component/totals", ".u-wrap"),
    "instance": ("/instance/container_1_clock_3", ".u-wrap"),
}
METRICS = {"emitted": "__emit-count", "executed": "__execute-count", "acked": "__ack-count", "failed": "__fail-count"}


def expect(page: Any, selector: str, text: str | re.Pattern[str]) -> None:
    """Wait until an element has this text."""
    from playwright.sync_api import expect

    expect(page.locator(selector).first).to_contain_text(text, timeout=WITHIN_MS)


@pytest.fixture
def clock_id(topology: TopologyHandle) -> str:
    return next(id for id in topology.processes() if "_clock_" in id)


def test_the_list_finds_topologies_by_words_and_state(tracker: Served, topology: TopologyHandle, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto("#/")
    expect(page, "tbody tr", "browsed")
    expect(page, "tbody tr .pill", "Running")
    expect(page, "tbody tr", "healthy")
    expect(page, ".link", "Live")
    one.shot("list")
    page.keyboard.press("/")
    page.keyboard.type("nothing like this")
    expect(page, ".none", "nothing matches")
    page.fill("input[type=search]", "BROW local")
    expect(page, ".bar", "1 of 1 topology")
    page.get_by_role("button", name="Paused").click()
    expect(page, ".bar", "0 of 1 topology")
    assert "state=Paused" in page.url
    page.get_by_role("button", name="All", exact=True).click()
    page.get_by_role("link", name="browsed").click()
    expect(page, "h1", "browsed")


def turn(one: Opened, hash: str, proof: str) -> Any:
    """Go to another page without loading everything again, and wait for its proof: one of the page before is none."""
    one.page.evaluate("for (const each of document.querySelectorAll('main *')) each.dataset.old = ''")
    page = one.goto(hash)
    page.locator(f"{proof}:not([data-old])").first.wait_for()
    return page


def test_every_page_shows_what_it_is_for(tracker: Served, at: str, clock_id: str, opened: Open) -> None:
    one = opened(tracker.url)
    for name, (path, proof) in PAGES.items():
        page = turn(one, at + path.replace("container_1_clock_3", clock_id), proof)
        assert page.title().endswith("· heron"), name
        one.shot(name, full=name != "logs")


def test_counters_are_those_of_the_rest_api_and_the_known_ones(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open
) -> None:
    page = opened(tracker.url).goto(f"{at}?interval=-1")
    page.locator("tr[data-key=orders]").wait_for()
    read = """() => {
      const values = (row) => [...row.querySelectorAll("td[data-value]")].map((cell) => Number(cell.dataset.value));
      const rows = [...document.querySelectorAll("tr[data-key]")];
      return Object.fromEntries(rows.map((row) => [row.dataset.key, values(row).slice(1, 5)]));
    }"""
    known = {
        "orders": [2 * ORDERS, 0, 2 * ORDERS - 2, 2],
        "check": [2 * ORDERS, 2 * ORDERS, 2 * ORDERS, 0],
        "payments": [0, 2 * ORDERS, 2 * ORDERS - 2, 2],
    }

    def exact() -> None:
        shown = page.evaluate(read)
        assert set(shown) == set(COMPONENTS)
        for component, counts in known.items():
            assert shown[component] == counts
            for metric, count in zip(METRICS.values(), counts, strict=True):
                assert told(tracker, component, metric) == count

    eventually_sync(exact)
    cell = page.locator("tr[data-key=payments] td").nth(3)
    assert cell.text_content() == f"{2 * ORDERS:,}"
    cell.hover()
    expect(page, ".tooltip", f"__execute-count: {2 * ORDERS:,}")


def told(tracker: Served, component: str, metric: str) -> float:
    params = {"cluster": "local", "environ": "default", "topology": "browsed", "component": component}
    answer = tracker.http.get("/topologies/metrics", params={**params, "metricname": f"{metric}/*", "interval": -1})
    metrics = answer.json()["metrics"] if answer.status_code == 200 else {}
    return sum(float(value) for by_instance in metrics.values() for value in by_instance.values())


def test_counters_of_four_times_stand_side_by_side(tracker: Served, at: str, opened: Open) -> None:
    page = opened(tracker.url).goto(at)

    def counted() -> None:
        values = {
            interval: page.locator(f"[data-counter='failed {interval}']").get_attribute("data-value")
            for interval in (600, 3600, 10800, -1)
        }
        assert values == {600: "2", 3600: None, 10800: None, -1: "2"}, "the topology is younger than an hour"
        emitted = page.locator("[data-counter='emitted -1']").get_attribute("data-value")
        assert float(emitted or 0) > 2 * ORDERS

    eventually_sync(counted)


def test_numbers_go_on_without_a_reload(tracker: Served, at: str, opened: Open) -> None:
    page = opened(tracker.url).goto(f"{at}?interval=-1")
    cell = page.locator("tr[data-key=clock] td[data-value]").nth(1)
    cell.wait_for()
    first = float(cell.get_attribute("data-value"))

    def more() -> None:
        assert float(cell.get_attribute("data-value")) > first

    eventually_sync(more)


def test_a_pressed_component_lights_up_its_instances(tracker: Served, at: str, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto(at)
    node = page.locator("[data-component=check]")
    node.wait_for()
    before = painted(page)
    node.click()
    assert node.get_attribute("aria-pressed") == "true"
    assert "focus=check" in page.url
    expect(page, "a.open", "Open check")
    lit = painted(page)
    assert lit != before  # what does not belong to it is pale
    one.shot("focus")
    colors = page.get_by_role("group", name="Colour by")
    colors.get_by_role("button", name="Memory").click()
    assert "color=memory" in page.url
    assert painted(page) not in (before, lit)
    page.keyboard.press("Escape")
    colors.get_by_role("button", name="Component").click()
    assert painted(page) == before


def painted(page: Any) -> str:
    """The picture of the physical plan."""
    picture: str = page.locator("canvas").first.evaluate("canvas => canvas.toDataURL()")
    return picture


def test_one_goes_down_to_component_instance_and_log(tracker: Served, at: str, clock_id: str, opened: Open) -> None:
    page = opened(tracker.url).goto(f"{at}?interval=-1")
    page.locator("tr[data-key=clock] a").click()
    expect(page, ".subtitle h2", "clock")
    expect(page, ".subtitle", "read by totals")
    page.locator(f"tr[data-key={clock_id}] a").click()
    expect(page, ".subtitle h2", clock_id)
    expect(page, "tr[data-key='__emit-count/default']", re.compile(r"\d"))
    page.get_by_role("button", name="Process", exact=True).click()
    expect(page, ".output", re.compile(r"\d+"))
    page.get_by_role("button", name="Stacks").click()
    expect(page, ".output", "Thread")
    page.get_by_role("link", name="Log file").click()
    expect(page, ".log", "is initialized")
    page.go_back()
    expect(page, ".subtitle h2", clock_id)


def test_instances_show_their_user_metrics(tracker: Served, at: str, topology: TopologyHandle, opened: Open) -> None:
    id = next(id for id in topology.processes() if "_payments_" in id)
    page = opened(tracker.url).goto(f"{at}/instance/{id}?interval=-1")
    expect(page, "tr[data-key=paid]", re.compile(r"\d"))


def test_what_exceptions_and_logs_say_stays_text(
    tracker: Served, at: str, topology: TopologyHandle, opened: Open
) -> None:
    one = opened(tracker.url)
    page = one.goto(f"{at}/exceptions")
    expect(page, ".fault", f"ValueError: 77 cannot be paid {ATTACK}")
    expect(page, "tr[data-key=ValueError]", "2")
    page.locator(".fault summary").first.click()
    expect(page, ".fault pre", "Traceback (most recent call last)")
    expect(page, ".fault pre", ATTACK)
    one.shot("exception")
    page.get_by_role("searchbox").fill("no such words")
    page.get_by_text("Nothing matches").wait_for()
    spout = next(id for id in topology.processes() if "_orders_" in id)
    page = one.goto(f"{at}/logs?container={spout.split('_')[1]}&file={spout}.log")
    expect(page, ".log", f"it begins: {ATTACK}")
    assert page.locator("main img, main script").count() == 0
    assert page.title() != "owned"


def test_logs_are_followed_and_searched(tracker: Served, at: str, clock_id: str, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto(f"{at}/logs?container={clock_id.split('_')[1]}&file={clock_id}.log")
    expect(page, ".log", "tick 100")
    lines = page.locator(".log .line").count()

    def more() -> None:
        assert page.locator(".log .line").count() > lines

    eventually_sync(more)
    page.get_by_role("searchbox").fill("TICK 100")
    expect(page, "mark", "tick 100")
    page.get_by_role("button", name="Only matches").click()
    assert not page.locator(".log .line", has_text="is initialized").is_visible()
    assert page.get_by_role("button", name="Follow").get_attribute("aria-pressed") == "false"
    one.shot("logs-search", full=False)
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download").click()
    assert "tick 100" in downloading.value.path().read_text()


def test_the_configuration_hides_secrets(tracker: Served, at: str, opened: Open) -> None:
    page = opened(tracker.url).goto(f"{at}/config")
    expect(page, "tr[data-key='topology app.database.password']", "********")
    page.get_by_role("searchbox").fill("greet")
    expect(page, "tbody tr", "hello")
    assert page.locator("tbody tr").count() == 1
    assert "swordfish" not in page.content()


def test_charts_come_in_groups_and_those_of_the_topology_last(tracker: Served, at: str, opened: Open) -> None:
    page = opened(tracker.url).goto(f"{at}/charts")
    page.locator(".u-wrap").first.wait_for()
    assert page.locator(".chart-group h2").all_text_contents() == [
        "Health",
        "Resources",
        "Components",
        "Stream Managers",
        "Metrics of yours",
    ]
    emitted = page.locator("figure", has=page.get_by_text("Emitted", exact=True))
    assert emitted.locator(".legend button").all_text_contents() == ["orders", "clock", "check"]
    entry = emitted.locator(".legend button").first
    entry.click()
    assert entry.get_attribute("aria-pressed") == "false"
    emitted.locator(".u-over").hover()
    expect(page, "figure:has-text('Memory') .legend", "MiB")  # the cursor is in all charts at the same time


def test_metrics_that_a_topology_registers_have_charts(tracker: Served, at: str, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto(f"{at}/component/totals")
    own = page.get_by_role("region", name="Metrics of yours")
    own.locator(".u-wrap").first.wait_for()
    # balance, seen, shelves/00 … /29 and the seven of the timer: the first six are drawn.
    total = 2 + SHELVES + 7
    expect(page, ".own .note", f"6 of {total} metrics")
    assert own.locator("figcaption").all_text_contents()[:3] == ["balance", "seen", "shelves/00"]
    own.get_by_role("button", name="Show more").click()
    expect(page, ".own .note", f"12 of {total} metrics")
    own.get_by_role("searchbox").fill("WORK")
    expect(page, ".own .note", "7 of 7 metrics")
    assert own.locator("figcaption").all_text_contents() == [
        f"work/{part}" for part in ("count", "max", "mean", "min", "p50", "p95", "p99")
    ]
    own.locator("figure", has_text="work/p50").locator(".u-over").hover()
    expect(page, "figure:has-text('work/p50') .legend b", re.compile(r"^[1-9]\d?\.\d+$"))  # milliseconds, as it is
    expect(page, "figure:has-text('work/count') .legend b", re.compile(r"/s$"))
    one.shot("component-own-metrics")
    own.get_by_role("searchbox").fill("balance")
    expect(page, ".own .note", "1 of 1 metric")
    own.locator(".u-over").hover()
    expect(page, ".own .legend b", "-7")
    own.get_by_role("searchbox").fill("nothing like this")
    expect(page, ".own .none", "nothing matches")


def test_the_charts_page_has_those_of_all_components_and_a_component_without_any_says_so(
    tracker: Served, at: str, opened: Open
) -> None:
    page = opened(tracker.url).goto(f"{at}/charts")
    paid = page.locator(".own figure", has=page.get_by_text("paid", exact=True))
    paid.locator(".u-wrap").wait_for()
    assert paid.locator(".legend button").all_text_contents() == ["payments"]
    page.goto(f"{tracker.url}/{at}/component/check")
    expect(page, ".own .none", "None were reported")


def test_checkpoints_have_a_page_in_topologies_that_take_some(tracker: Served, at: str, opened: Open) -> None:
    one = opened(tracker.url)
    page = one.goto(at)
    page.locator("svg .node").first.wait_for()
    assert page.get_by_role("link", name="Checkpoints").count() == 0, "this one takes none"
    page.route("**/topologies/info?*", lambda route: changed(route, takes_checkpoints=True))
    page.route("**/topologies/checkpoints?*", lambda route: route.fulfill(json=CHECKPOINTS))
    page.reload()
    page.get_by_role("link", name="Checkpoints").click()
    row = page.locator("tr[data-key='12']")
    row.wait_for()
    assert "timed out: no snapshot of 1 tasks: 7" in row.text_content()
    expect(page, "tr[data-key='11']", "committed")
    expect(page, "tr[data-key='11']", "1.95 KiB")
    expect(page, ".figure >> nth=0", "2 min")
    expect(page, ".figure >> nth=1", "waits for container_1_totals_7")
    expect(page, "#checkpoint-problem", ATTACK)
    expect(page, "#checkpoint-notes", "it has not answered for 9 s")
    expect(page, "tr[data-key='totals 1']", "1.46 KiB")
    expect(page, "tr[data-key='4']", "none: from the beginning")
    assert page.title() != "owned"
    one.shot("checkpoints")
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def changed(route: Any, **values: Any) -> None:
    """Let a request through, and change its answer, unless it is an error."""
    response = route.fetch()
    route.fulfill(response=response, **({"json": {**response.json(), **values}} if response.ok else {}))


CHECKPOINTS = {
    "tmaster": "ok",
    "storage": "it has not answered for 9 s",
    "location": "/data/browsed",
    "start_from": "/data/other",
    "start_checkpoint": 3,
    "phase": "running",
    "restore_epoch": 4,
    "newest": 11,
    "interval_ms": 10_000,
    "age_ms": 120_000,
    "under_way": {
        "id": 13,
        "elapsed_ms": 4000,
        "missing": [{"task": 7, "component": "totals", "instance": "container_1_totals_7"}],
    },
    "problem": ATTACK,
    "fallback": None,
    "committed": 11,
    "failed": 1,
    "restores": 1,
    "checkpoints": [
        {
            **dict.fromkeys(("aligned_ms", "size", "added", "logged", "components")),
            "id": 12,
            "state": "failed",
            "time": "2026-01-01T00:00:10Z",
            "duration_ms": 60_000,
            "reason": "timed out: no snapshot of 1 tasks: 7",
        },
        {
            "id": 11,
            "state": "committed",
            "time": "2026-01-01T00:00:00Z",
            "duration_ms": 120,
            "aligned_ms": 30,
            "size": 2000,
            "added": 20,
            "logged": 0,
            "reason": None,
            "components": {"totals": {"tasks": 2, "size": 2000, "by_task": [500, 1500]}},
        },
    ],
    "rollbacks": [{"epoch": 4, "checkpoint": 0, "time": "2026-01-01T00:00:00Z", "reason": None}],
}
"""What the Tracker may answer."""


def test_the_keyboard_is_enough(tracker: Served, at: str, opened: Open) -> None:
    page = opened(tracker.url).goto(at)
    page.locator("[data-component=orders]").wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset?.component") == "orders":
            break
    else:
        raise AssertionError("Tab never comes to the component")
    page.keyboard.press("Enter")
    assert page.locator("[data-component=orders]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Escape")
    assert page.locator("[data-component=orders]").get_attribute("aria-pressed") == "false"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    id = page.locator("canvas").get_attribute("data-instance")
    expect(page, ".tooltip", id)
    page.keyboard.press("Enter")
    expect(page, ".subtitle h2", id)
    for key, proof in (("2", ".u-wrap"), ("3", ".fault"), ("4", ".log .line"), ("5", "tbody tr"), ("1", "svg .node")):
        page.keyboard.press(key)
        page.locator(proof).first.wait_for()
    page.keyboard.press("?")
    expect(page, "dialog", "Keyboard shortcuts")
    assert "[object" not in page.locator("dialog").text_content()
    page.keyboard.press("Escape")
    page.keyboard.press("l")
    expect(page, "tbody tr", "browsed")


def test_pages_fit_a_phone(tracker: Served, at: str, clock_id: str, opened: Open) -> None:
    one = opened(tracker.url, viewport=PHONE, has_touch=True, device_scale_factor=2)
    for name, (path, proof) in {"list": ("", "tbody tr"), **PAGES}.items():
        page = turn(one, "#/" if name == "list" else at + path.replace("container_1_clock_3", clock_id), proof)
        one.shot(f"phone-{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        cut = page.locator("tbody th").evaluate_all("all => all.filter(th => th.scrollWidth > th.clientWidth).length")
        assert cut == 0, name  # there is no pointer to ask for the rest of a name
        if name != "list":
            tab = page.locator(".tabs [aria-current]").bounding_box()
            assert 0 <= tab["x"] <= tab["x"] + tab["width"] <= PHONE["width"], name


def test_dark_follows_the_system_and_the_button(tracker: Served, at: str, opened: Open) -> None:
    one = opened(tracker.url, color_scheme="dark")
    page = one.goto(at)
    page.locator("svg .node").first.wait_for()
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == "rgb(14, 19, 24)"
    one.shot("overview-dark")
    page.get_by_role("button", name="Dark or light").click()
    assert page.evaluate(background) == "rgb(244, 246, 248)"
    page.reload()
    page.locator("svg .node").first.wait_for()
    assert page.evaluate(background) == "rgb(244, 246, 248)"  # it is remembered
    page.keyboard.press("t")
    assert page.evaluate("localStorage.length") == 0  # the system's choice is followed again


@pytest.mark.parametrize("streamed", [True, False], ids=["told", "asked"])
def test_a_new_state_is_seen_without_a_reload(
    tracker: Served, topology: TopologyHandle, at: str, opened: Open, streamed: bool
) -> None:
    one = opened(tracker.url)
    if not streamed:
        one.page.route("**/events*", lambda route: route.fulfill(status=503, body=json.dumps("request failed: full")))
    page = one.goto(at)
    expect(page, ".title .pill", "Running")
    expect(page, ".link", "Live" if streamed else "Polling")
    topology.deactivate()
    try:
        expect(page, ".title .pill", "Paused")
    finally:
        topology.activate()
    expect(page, ".title .pill", "Running")
    one.excuse("503")


def test_the_page_may_load_nothing_but_its_own_files(tracker: Served, at: str, opened: Open) -> None:
    one = opened(tracker.url)
    one.goto(at).locator("svg .node").first.wait_for()
    assert all(url.startswith((tracker.url, "data:")) for url in one.requests)
    one.page.evaluate("() => { document.body.innerHTML += '<img src=x onerror=\"window.owned = 1\">'; }")
    assert one.page.evaluate("window.owned") is None
    one.excuse("Content Security Policy", "404")
