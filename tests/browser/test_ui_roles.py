"""Topologies of one name in two roles, environments and clusters: the UI keeps them apart, told or asked."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Open, Served
from test_ui import expect

from heronpy.proto import state_pb2, topology_pb2
from heronpy.statemgr import Kind, open_statemgr
from heronpy.testing import eventually_sync

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from topology_on_disk import launch_in, submit

PLACES = {
    "local/ada/default": topology_pb2.RUNNING,
    "local/bob/default": topology_pb2.PAUSED,
    "local/ada/test": topology_pb2.PAUSED,
    "farm/ada/default": topology_pb2.RUNNING,
}
STATES = {topology_pb2.RUNNING: "Running", topology_pb2.PAUSED: "Paused"}


def record(folder: Path, place: str, submitted_s: int) -> str:
    """What a submission writes, into a state manager of its own; returns its root."""
    cluster, role, environ = place.split("/")
    launch = launch_in(folder)
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1)
        raw = state.get(Kind.TOPOLOGIES, "words")
        assert raw is not None
        definition = topology_pb2.Topology.FromString(raw)
        definition.state, definition.id = PLACES[place], place.replace("/", "-")
        state.set(Kind.TOPOLOGIES, "words", definition.SerializeToString())
        execution = state_pb2.ExecutionState(
            topology="words",
            topology_id=definition.id,
            cluster=cluster,
            role=role,
            environ=environ,
            submission_user=f"user of {place}",
            submission_time_s=submitted_s,
            topology_dir=str(launch.dir),
        )
        state.set(Kind.EXECUTIONSTATE, "words", execution.SerializeToString())
    return launch.statemgr.root


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("crowded")
    managers = []
    for n, place in enumerate(PLACES):
        (folder / str(n)).mkdir()
        root = record(folder / str(n), place, int(time.time()) - 60 * n)
        managers.append({"type": "file", "name": f"state-{n}", "rootpath": root})
    config = folder / "tracker.yaml"
    config.write_text(json.dumps({"statemgrs": managers}))
    served = Served(folder, "--config-file", str(config))
    yield served
    served.stop()


def test_the_list_of_all_has_each_of_them(crowded: Served) -> None:
    def all_of_them() -> Any:
        found = crowded.http.get("/topologies/all").json()
        assert {f"{one['cluster']}/{one['role']}/{one['environ']}": one["status"] for one in found} == {
            place: STATES[state] for place, state in PLACES.items()
        }
        return found

    found = eventually_sync(all_of_them)
    assert all(one["name"] == "words" and one["tmaster"].startswith("unreachable since ") for one in found)
    (bobs,) = crowded.http.get("/topologies/all", params={"role": "bob"}).json()
    assert (bobs["submission_user"], bobs["instances"]) == ("user of local/bob/default", 1)


@pytest.mark.parametrize("mode", ["Live", "Polling"])
def test_each_topology_of_one_name_has_its_own_state(crowded: Served, opened: Open, mode: str) -> None:
    one = opened(crowded.url)
    if mode == "Polling":
        one.page.route("**/events*", lambda route: route.fulfill(status=503, body=json.dumps("request failed: full")))
    page = one.goto("#/")
    expect(page, ".link", mode)
    for place, state in PLACES.items():
        row: Any = page.locator(f"tr[data-key='{place}/words']")
        row.get_by_text(f"user of {place}").wait_for()
        assert row.locator(".pill").first.text_content() == STATES[state]  # the second is its health
    page.locator("tr[data-key='local/bob/default/words'] a").click()
    expect(page, ".title .pill", "Paused")
    expect(page, ".title .facts", "by user of local/bob/default")
    page.goto(f"{crowded.url}/#/t/local/ada/default/words")
    expect(page, ".title .pill", "Running")
    expect(page, ".title .facts", "by user of local/ada/default")
    one.excuse("503")


def test_of_a_topology_master_that_was_never_heard_of_the_plan_is_shown_and_no_zeros(
    crowded: Served, opened: Open
) -> None:
    one = opened(crowded.url)
    page = one.goto("#/t/local/bob/default/words")
    expect(page, "#tmaster-lost", "No numbers of it are known")
    expect(page, "tr[data-key=word]", "–")
    assert page.locator("tr[data-key=word] td").nth(2).text_content() == "–"
    assert page.locator("svg .node").count() == 1
    assert page.locator("#as-of").is_hidden()
    page.keyboard.press("3")
    expect(page, ".panel .none >> nth=-1", "cannot be asked from here")
    page.close()
    one.excuse("503")
