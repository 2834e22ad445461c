"""A browser, a topology, a Tracker: what the tests of the web UI share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from heronpy.testing import LocalCluster, TopologyHandle, eventually_sync

CHROMIUM = "/usr/bin/chromium"
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = Path(__file__).parents[2] / "artifacts" / "screenshots"
DESKTOP = {"width": 1366, "height": 850}
PHONE = {"width": 390, "height": 800}
WITHIN_MS = 120_000


TRACKER = [sys.executable, "-m", "heronpy.cli", "tracker", "--port", "0", "--json"]


class Served:
    """`heron tracker` as a process."""

    def __init__(self, home: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [*TRACKER, *([] if "--token-file" in args else ["--no-token"]), *args],
            env={**os.environ, "HERON_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.http = httpx.Client(base_url=self.url, timeout=120)

    def stop(self) -> None:
        """Stop it, if it still runs."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.process.wait(300) == 0


# Not for the whole session: while it runs, this thread has an event loop, and no asynchronous test could have its own.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium fonts-dejavu-core")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        yield browser
        browser.close()


class Opened:
    """A page of the UI, and what it complained of."""

    def __init__(self, context: Any, url: str, page: Any = None) -> None:
        self.url = url
        self.context = context
        self.page = page or context.new_page()
        self.page.set_default_timeout(WITHIN_MS)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._listeners: dict[str, Callable[[Any], None]] = {
            "console": self.complain,
            "pageerror": lambda e: self.complaints.append(f"{e}\n{e.stack}"),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, listener in self._listeners.items():
            self.page.on(event, listener)

    def forget(self) -> None:
        """Listen to the page no more: the next test may have it."""
        for event, listener in self._listeners.items():
            self.page.remove_listener(event, listener)

    def complain(self, message: Any) -> None:
        """Keep what the console says is wrong."""
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} ({message.location.get('url')})")

    def goto(self, hash: str) -> Any:
        self.page.goto(f"{self.url}/{hash}")
        return self.page

    def shot(self, name: str, *, full: bool = True) -> Path:
        """Keep a picture, in a run of all tests: to paint a whole page costs as much as to load it."""
        path = SCREENSHOTS / f"{name}.png"
        if os.environ.get("HERON_LONG"):
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=path, full_page=full)
        return path

    def excuse(self, *words: str) -> None:
        """Complaints of the browser itself about answers that a test provokes."""
        self.complaints = [c for c in self.complaints if not any(word in c for word in words)]


Open = Callable[..., Opened]


class Desktop:
    """The page that tests share unless they need options of their own.

    A new page starts a process and fills its caches: it takes more than twice the CPU of one that goes somewhere else.
    """

    def __init__(self, context: Any) -> None:
        self.context = context
        self._page: Any = None

    def page(self) -> Any:
        """The page, as if it were new."""
        if self._page is None or self._page.is_closed():
            self._page = self.context.new_page()
        return self._page

    def leave(self) -> None:
        """Forget what a test has done to the page, and close others that it has opened."""
        for page in [*self.context.pages]:
            if page is not self._page:
                page.close()
        if self._page is not None and not self._page.is_closed():
            self._page.goto("about:blank")
            self._page.unroute_all(behavior="ignoreErrors")
            self._page.set_viewport_size(DESKTOP)


@pytest.fixture(scope="package")
def desktop(chromium: Any) -> Iterator[Desktop]:
    context = chromium.new_context(viewport=DESKTOP, color_scheme="light")
    yield Desktop(context)
    context.close()


@pytest.fixture
def opened(chromium: Any, desktop: Desktop) -> Iterator[Open]:
    """Opens pages. In the end none of them may have complained on the console, and none is left open."""
    pages: list[Opened] = []

    def opens(url: str, **options: Any) -> Opened:
        context, page = desktop.context, None
        if options:
            context = chromium.new_context(**{"viewport": DESKTOP, "color_scheme": "light", **options})
        elif not pages:
            page = desktop.page()
        pages.append(Opened(context, url, page))
        return pages[-1]

    yield opens
    complaints = [complaint for one in pages for complaint in one.complaints]
    for one in pages:
        one.forget()
        if one.context is not desktop.context:
            one.context.close()
    desktop.leave()
    assert not complaints


@pytest.fixture(scope="package")
def cluster(chromium: Any) -> Iterator[LocalCluster]:
    # It runs as long as these tests do, and every report costs all of its processes.
    with LocalCluster({"heron.metrics.export.interval.ms": 2000}) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def tracker(cluster: LocalCluster) -> Iterator[Served]:
    served = Served(cluster.home)
    yield served
    served.stop()


@pytest.fixture(scope="package")
def topology(cluster: LocalCluster, tracker: Served) -> TopologyHandle:
    """`Browsed`, of which the Tracker knows, and of which everything that is bounded is done."""
    from browsed_topology import BAD, ORDERS, Browsed

    handle = cluster.submit(Browsed, name="browsed").wait_running()
    place = {"cluster": "local", "environ": "default", "topology": "browsed"}

    def answered(path: str, **params: str) -> Any:
        answer = tracker.http.get(path, params={**place, **params})
        assert answer.is_success, answer.text  # not before the Tracker has reached the Topology Master
        return answer.json()

    def done() -> None:
        found = answered("/topologies/exceptions", component="payments")
        assert sum(one["count"] for one in found) == 2, BAD
        for component, metric, count in (
            ("payments", "__execute-count/check/default", 2 * ORDERS),
            ("totals", "__ack-count/check/default", 2 * ORDERS),
        ):
            metrics = answered("/topologies/metrics", component=component, metricname=metric)["metrics"]
            assert sum(map(float, metrics.get(metric, {}).values())) == count

    eventually_sync(done)
    return handle


@pytest.fixture
def at(topology: TopologyHandle) -> str:
    """The address of the topology's pages."""
    launch = topology.launch
    return f"#/t/{launch.cluster}/{launch.role}/{launch.environ}/{launch.topology}"
