"""How long the Tracker and the web UI take for a topology of 1,000 instances: `make bench-tracker`.

A Topology Master hears of every instance; then a Tracker is asked, and a browser opens its page. Prints medians and
worst cases. The page is interactive when a click on a component has marked its instances, its row and the rings.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from large_topology import PARALLELISM, LargeTopology, large_topology, load
from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
PLACE = {"cluster": "local", "environ": "default", "topology": "words"}
PAGE = "#/t/local/me/default/words"
REQUESTS, LOADS = 100, 7


@contextmanager
def tracker(large: LargeTopology) -> Iterator[str]:
    """`heron tracker`; its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heronpy.cli", "tracker", "--port", "0", "--json", *large.tracker_args()],
        env={**os.environ, "HERON_HOME": str(large.directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(300)


def timed(do: Callable[[], Any], times: int) -> list[float]:
    """How long each of some calls took, in ms. The first one, which warms up, does not count."""
    took: list[float] = []
    for _ in range(times + 1):
        began_s = time.perf_counter()
        do()
        took.append((time.perf_counter() - began_s) * 1e3)
    return took[1:]


def tell(what: str, took_ms: list[float]) -> None:
    print(f"{what:<58} median {statistics.median(took_ms):7.1f} ms   worst {max(took_ms):7.1f} ms", flush=True)


def ask(url: str) -> None:
    with httpx.Client(base_url=url, timeout=120) as http:

        def get(path: str, **params: str | int) -> Callable[[], Any]:
            return lambda: http.get(path, params={**PLACE, **params}).raise_for_status()

        name = "__emit-count/default"
        count = PARALLELISM["count"]
        for what, do in {
            f"/topologies/metrics, one metric, {count} instances": get(
                "/topologies/metrics", component="count", metricname=name
            ),
            f"/topologies/metrics, all metrics, {count} instances": get("/topologies/metrics", component="count"),
            "/topologies/metricsquery, SUM over a component": get(
                "/topologies/metricsquery",
                query=f"SUM(TS(count, *, {name}))",
                starttime=int(time.time()) - 3600,
                endtime=int(time.time()),
            ),
            "/topologies/physicalplan": get("/topologies/physicalplan"),
        }.items():
            tell(what, timed(do, REQUESTS))


def browse(url: str) -> None:
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])

        def interactive() -> None:
            context = browser.new_context(viewport={"width": 1366, "height": 850})
            page = context.new_page()
            page.goto(f"{url}/{PAGE}")
            page.locator("[data-component=count]").click()
            page.locator("[data-component=count][aria-pressed=true]").wait_for()
            page.locator("tr.chosen").wait_for()
            context.close()

        tell("the topology's page, until it can be worked with", timed(interactive, LOADS))
        browser.close()


def main() -> None:
    instances = sum(PARALLELISM.values())
    with tempfile.TemporaryDirectory(prefix="heron-bench-") as directory, large_topology(Path(directory)) as large:
        print(f"{instances} instances, {len(load('count', 1))} metrics each; {os.cpu_count()} cores", flush=True)
        with tracker(large) as url:
            ask(url)
            browse(url)


if __name__ == "__main__":
    main()
