"""The log page of a container of another host: as of this host, and what it says while nobody answers there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Open, Served
from heron_tracker import local_state
from test_ui import expect

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
from remote_container import enter, on_another_host
from test_tracker_state_managers import record
from topology_on_disk import EngineProcess, launch_in

from heronpy.runtime import Launch
from heronpy.statemgr import open_statemgr
from heronpy.testing import eventually_sync

BROWSERS_OWN = ("Failed to load resource",)


@pytest.fixture
def submitted(tmp_path: Path) -> Launch:
    return launch_in(tmp_path, statemgr=local_state(tmp_path / "home").spec)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "home")
    yield served
    served.stop()


@pytest.mark.long
def test_logs_of_another_host_are_shown_searched_and_missed(
    submitted: Launch, served: Served, tmp_path: Path, opened: Open
) -> None:
    remote = on_another_host(submitted, tmp_path / "elsewhere")
    logs = remote.log_dir(1)
    (logs / "stmgr-1.log.1").write_text("2026-01-31 11:00:00,000 WARNING <b>rotated</b> stork\n")
    (logs / "stmgr-1.log").write_text("2026-01-31 12:00:00,000 INFO <b>newest</b> stork\n")

    def address() -> str:
        path = logs / "heron-shell-1.log"
        text = path.read_text() if path.exists() else ""  # a small file
        assert "serves at" in text
        return text.rpartition("serves at ")[2].split()[0]

    with EngineProcess("shell", remote, 1) as shell, open_statemgr(submitted.statemgr) as state:
        record(state, submitted, cluster="local")
        enter(state, remote, endpoint=eventually_sync(address))
        eventually_sync(lambda: _known(served))
        one = opened(served.url)
        page = one.goto("#/t/local/me/default/words/logs?container=1&file=stmgr-1.log")
        expect(page, ".log .line", "<b>newest</b> stork")
        with (logs / "stmgr-1.log").open("a") as f:
            f.write("2026-01-31 12:00:01,000 ERROR written meanwhile\n")
        expect(page, ".log .line.error", "written meanwhile")
        page.fill("input[type=search]", "STORK")
        page.get_by_role("button", name="Search all files").click()
        expect(page, ".note >> text=in the files of", "2 lines in the files of container 1")
        expect(page, ".log .line.match", "stmgr-1.log.1: 2026-01-31 11:00:00,000 WARNING <b>rotated</b> stork")
        one.shot("logs-of-another-host")
        os.kill(shell.pid, signal.SIGSTOP)
        try:
            expect(page, "p.none", "does not answer since 2")
            expect(page, "select option:checked", "container 1 ?")
            one.shot("logs-silent")
        finally:
            os.kill(shell.pid, signal.SIGCONT)
        page.locator("p.none").first.wait_for(state="hidden")
        expect(page, "select option:checked", "container 1")
        one.excuse(*BROWSERS_OWN)


def _known(served: Served) -> None:
    assert served.http.get("/topologies").json().get("local")
