"""HERON_HOME, with the state manager in it, on a disk that is full."""

from __future__ import annotations

from pathlib import Path

from numbers_topology import Numbers
from small_disk import fill, small_disk

from heronpy import loader
from heronpy.errors import HeronError
from heronpy.host import DIRECTORY_ENV, find_by_environment
from heronpy.submit import kill, listed, submit
from heronpy.testing import eventually_sync


def test_a_topology_that_has_filled_the_disk_can_be_killed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mb=2) as disk:
        launch = submit(loader.Definition.of(Numbers), home=disk / "home")
        try:
            logs = launch.container_dir(1) / "log-files"
            eventually_sync(lambda: _check(logs.is_dir()))
            fill(logs / "container_1_numbers_1.out")
        finally:
            kill(launch)
        assert listed(disk / "home") == []
        assert not launch.dir.exists()
        assert _processes(launch.dir) == []


def test_a_submission_for_which_the_disk_is_too_small_leaves_nothing(tmp_path: Path) -> None:
    definition, refused = loader.Definition.of(Numbers), []
    with small_disk(tmp_path / "disk", mb=1) as disk:
        home = disk / "home"
        for free_kb in range(0, 1000, 24):
            filling = disk / "filling"
            fill(filling)
            with filling.open("r+b") as file:
                file.truncate(max(0, filling.stat().st_size - free_kb * 1024))
            try:
                launch = submit(definition, home=home)
            except HeronError as e:
                refused.append(str(e))
            else:
                filling.unlink()
                kill(launch)
                break
            assert listed(home) == []
            assert not list((home / "topologies").glob("*"))
            assert _processes(home) == []
    assert len(refused) > 1
    assert [error for error in refused if "No space left on device" not in error] == []


def _check(whether: bool) -> None:
    assert whether


def _processes(directory: Path) -> list[str]:
    found = (env.get(DIRECTORY_ENV, "") for _, env in find_by_environment({}))
    return [one for one in found if Path(one).is_relative_to(directory)]
