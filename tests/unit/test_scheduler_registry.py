"""Schedulers are found by name: the built-in one, and those of other distributions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from heron_scheduler import LocalScheduler, Scheduler, scheduler_of

from heronpy.errors import ConfigError, NotFoundError

THEIRS = """
from heron_scheduler import Scheduler

class Farm(Scheduler):
    def on_schedule(self, plan): ...
    def on_kill(self): ...
    def on_restart(self, container): ...
    def on_update(self, old, new): ...
    def job_links(self): return []
    def containers(self): return []

something_else = 3
"""


@pytest.fixture
def their_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "farm_scheduler.py").write_text(THEIRS)
    info = tmp_path / "farm-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: farm\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[heron.schedulers]\n"
        "farm = farm_scheduler:Farm\n"
        "wrong = farm_scheduler:something_else\n"
        "lost = farm_scheduler:Nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "farm_scheduler", raising=False)


@pytest.mark.parametrize(
    ("name", "expected"), [("local", True), ("slurm", True), ("kubernetes", False), ("spark", False), ("yarn", False)]
)
def test_where_containers_have_the_unix_user_that_submits(name: str, expected: bool) -> None:
    assert scheduler_of(name).runs_as_submitter is expected


def test_local_is_built_in() -> None:
    assert scheduler_of("local") is LocalScheduler


@pytest.mark.usefixtures("their_distribution")
def test_a_scheduler_of_another_distribution_is_found_by_its_entry_point() -> None:
    found = scheduler_of("farm")
    assert issubclass(found, Scheduler)
    assert found.__name__ == "Farm"


def test_an_unknown_scheduler_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'local'"):
        scheduler_of("locale")


@pytest.mark.usefixtures("their_distribution")
@pytest.mark.parametrize(("name", "why"), [("wrong", "not a subclass"), ("lost", "cannot be loaded")])
def test_an_entry_point_that_is_no_scheduler_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        scheduler_of(name)
