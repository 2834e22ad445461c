"""The pipeline page in a real browser."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browsed_topology import ATTACK, SIDE
from conftest import PHONE, Open, Served
from test_ui import expect

from heronpy.pipeline.record import Archived, Done, Drifted, Letters, Reconciled, Record, Run, Viewed
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import TopologyHandle

MINUTE = 60_000
Report = Callable[[bytes], None]


def record(topology_id: str, **changes: Any) -> Record:
    """As of a run that has just ended, with batches of a minute."""
    now_ms = time.time_ns() // 1_000_000
    done = now_ms // MINUTE - 2
    fields: dict[str, Any] = {
        "topology_id": topology_id,
        "job": "browsed",
        "at_ms": now_ms,
        "batch_length_ms": MINUTE,
        "max_lateness_ms": 20 * MINUTE,  # so that the next batch is still to come, however slow this machine is
        "committed_watermark": done,
        "waiting": 2,
        "first_waiting": (done + 1, done + 2),
        "done": 60,
        "elements": 7_200,
        "duplicates": 3,
        "archives": (
            Archived(
                archive="events",
                complete_before_ms=now_ms - 1_000,
                newest_batch=done + 2,
                batches=62,
                files=64,
                bytes=5 << 20,
                waiting_batches=2,
                waiting_bytes=90_000,
            ),
        ),
        "views": (Viewed(view="counts", batch_rows=1_234, newest_live_batch=done + 2), Viewed(view=ATTACK)),
        "newest": tuple(
            Done(
                batch=done - n,
                version=f"19ac{n:02x}-0badcafe",
                elements=120,
                rows=20,
                took_s=1.5,
                finished_at_s=now_ms / 1000 - 60 * n,
            )
            for n in range(12)
        ),
        "dead_letters": (
            Letters(origin="parse", reason="ValueError", side="live", count=7),
            Letters(origin="parse", reason="ValueError", side="batch", count=5),
        ),
        "run": Run(began_at_s=now_ms / 1000, seconds=2.5, batches=1),
        "reconciled": Reconciled(at_s=now_ms / 1000, views=(Drifted(view="counts", keys=9, drifted=2, percent=2.5),)),
        **changes,
    }
    return Record(**fields)


@pytest.fixture
def reports(topology: TopologyHandle) -> Iterator[Report]:
    """Writes what a batch run would write."""
    with contextlib.closing(open_statemgr(topology.launch.statemgr)) as state:
        yield lambda value: state.set(Kind.PIPELINES, "browsed", value)
        state.delete(Kind.PIPELINES, "browsed")


def test_the_batch_side_of_a_program_has_a_page(
    topology: TopologyHandle, tracker: Served, at: str, opened: Open, reports: Report
) -> None:
    one = opened(tracker.url)
    page = one.goto(at)
    page.get_by_role("link", name="Pipeline").click()
    expect(page, ".empty", "No batch run has reported yet")
    expect(page, ".empty pre", "heron pipeline run browsed")
    expect(page, "tr[data-key='events']", "check")
    assert sorted(SIDE.views) == ["counts"]

    reports(record(topology.launch.topology_id).encode())
    expect(page, ".flow", "1,234 rows exact")
    assert page.locator(".flow li .label").all_text_contents() == ["Live", "Archive", "Batches", "Merged"]
    expect(page, ".figure >> nth=2", "complete in 1")
    expect(page, ".figure >> nth=3", "7 live, 5 batch")
    expect(page, ".figure >> nth=3", "ValueError in parse")
    assert page.locator("section[aria-label='Dead letters'] tbody tr").count() == 2
    expect(page, ".figure >> nth=5", "2 keys")
    assert page.locator("section[aria-label=Batches] tbody tr").count() == 12
    assert page.locator("section[aria-label=Batches] tbody th").first.text_content().startswith("20"), "by time"
    assert page.title() != "owned"
    one.shot("pipeline")
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    one.shot("pipeline-phone")

    reports(record(topology.launch.topology_id, run=Run(began_at_s=5.0, error=f"Spark {ATTACK}")).encode())
    expect(page, "#pipeline-problem", "The last batch run failed")
    expect(page, "#pipeline-problem", ATTACK)
    reports(b"{")
    expect(page, "#pipeline-notes", "What a batch run has reported cannot be read: it is damaged")
