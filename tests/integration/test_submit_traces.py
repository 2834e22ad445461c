"""Topologies of which only traces are left: they are listed, and they can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from numbers_topology import Numbers
from topology_on_disk import remove

from heronpy import loader
from heronpy.errors import NotFoundError, StateError, UnavailableError
from heronpy.host import EXECUTOR, PROCESS_ENV, TOPOLOGY_ENV, HostProcess, find_by_environment, service_record
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import find, find_by_name, kill, listed, running, status, submit
from heronpy.testing import eventually_sync

DIES = """
import os, signal, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from numbers_topology import Numbers
from heronpy import loader, submit
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
{arrange}
submit.submit(loader.Definition.of(Numbers), home=Path({home!r}), on_step={on_step})
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "home"
    yield path
    for one in listed(path):
        kill(one.launch)


@pytest.fixture
def launch(home: Path) -> Launch:
    launch = submit(loader.Definition.of(Numbers), home=home)
    eventually_sync(lambda: _at_least(len(processes(launch, EXECUTOR)), 3))
    return launch


def processes(launch: Launch, kind: str | None = None) -> list[HostProcess]:
    wanted = {TOPOLOGY_ENV: launch.topology_id} | ({PROCESS_ENV: kind} if kind else {})
    return [process for process, _ in find_by_environment(wanted)]


def left(launch: Launch) -> list[object]:
    found: list[object] = [*processes(launch)]
    found += [path for path in (launch.dir, launch.socket_root()) if path.exists()]
    found += [*Path(*launch.dir.parts[:-4]).glob("*")]  # of its cluster, role and environ, which no other has
    if Path(launch.statemgr.root).exists():
        with contextlib.closing(open_statemgr(launch.statemgr)) as state:
            found += [kind for kind in Kind if state.get(kind, launch.topology) is not None]
    return found


def submitter_dies(home: Path, *, arrange: str = "", on_step: str = "lambda step: None") -> None:
    here = str(Path(__file__).parent)
    script = DIES.format(here=here, home=str(home), arrange=arrange, on_step=on_step)
    assert subprocess.run([sys.executable, "-c", script], timeout=300).returncode == -signal.SIGKILL


def test_a_topology_whose_directory_was_removed_ends_is_listed_with_the_reason_and_can_be_killed(
    home: Path, launch: Launch
) -> None:
    remove(launch.dir)
    eventually_sync(lambda: _equal(processes(launch), []))
    assert [(one.launch.topology, one.trouble) for one in listed(home)] == [("Numbers", "its directory is gone")]
    assert running(home) == []
    with pytest.raises(NotFoundError, match="Numbers does not run: its directory is gone; `heron kill"):
        find_by_name(home, "Numbers")
    kill(find_by_name(home, "Numbers", troubled=True))
    assert left(launch) == []
    assert listed(home) == []


def test_a_topology_whose_heron_home_was_removed_is_killed_by_its_processes(home: Path, launch: Launch) -> None:
    executors = processes(launch, EXECUTOR)
    for executor in executors:
        executor.send(signal.SIGSTOP)  # else they would end by themselves
    remove(home)
    [one] = listed(home)
    assert (one.launch.topology, one.trouble) == ("Numbers", "only processes of it are left")
    kill(find(home, "local", None, "default", "Numbers", troubled=True))
    assert left(launch) == []
    assert not home.exists()


def test_a_submitter_that_is_killed_right_after_the_start_leaves_a_topology_that_runs(home: Path) -> None:
    submitter_dies(home, arrange="import heronpy.submit._submit as module; module.end_submission = die")
    launch = eventually_sync(lambda: _only(running(home)))
    assert service_record(launch) is not None
    kill(find_by_name(home, "Numbers"))
    assert left(launch) == []


@pytest.mark.parametrize("step", ["writing the plan", "starting the scheduler"])
def test_what_a_submitter_left_that_was_killed_before_the_start_is_listed_and_can_be_killed(
    home: Path, step: str
) -> None:
    submitter_dies(home, on_step=f"lambda step: step == {step!r} and die()")
    [one] = listed(home)
    assert one.trouble == "its submission was interrupted"
    with pytest.raises(NotFoundError, match="its submission was interrupted"):
        find(home, "local", None, "default", "Numbers")
    kill(find(home, "local", None, "default", "Numbers", troubled=True))
    assert left(one.launch) == []


@pytest.mark.long
def test_all_processes_that_died_at_once_come_back_with_the_next_command(home: Path, launch: Launch) -> None:
    for process in processes(launch):
        process.send(signal.SIGKILL)
    eventually_sync(lambda: _equal(processes(launch), []))
    done = subprocess.run(
        [sys.executable, "-m", "heronpy.cli", "topologies"],
        env={**os.environ, "HERON_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.startswith("Numbers ")
    assert done.stderr == "heron: the scheduler service of Numbers was dead: started again\n"
    eventually_sync(lambda: _ready(launch))
    kill(launch)
    assert left(launch) == []


def test_a_directory_without_a_launch_file_can_be_killed(home: Path) -> None:
    directory = home / "topologies/local/ada/default/words"
    directory.mkdir(parents=True)
    [one] = listed(home)
    assert one.trouble == "its launch file is missing"
    kill(one.launch)
    assert not directory.exists()


def test_a_kill_ends_the_processes_also_when_the_state_cannot_be_removed(home: Path, launch: Launch) -> None:
    root = Path(launch.statemgr.root)
    moved = root.rename(root.with_name("moved"))
    root.write_text("not a directory")
    with pytest.raises(StateError, match="all processes of Numbers were ended, but not all of its state is removed"):
        kill(launch)
    assert processes(launch) == []
    root.unlink()
    moved.rename(root)
    assert [one.trouble for one in listed(home)] == ["it is being killed"]
    kill(find_by_name(home, "Numbers", troubled=True))
    assert left(launch) == []


def test_a_directory_of_somebody_else_is_neither_used_nor_killed(
    home: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually_sync(lambda: _ready(launch))  # what starts later starts nothing that is somebody else's
    if os.geteuid() == 0:
        os.chown(launch.dir, 65534, -1)
    else:
        somebody_else = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: somebody_else)
    with pytest.raises(StateError, match="belongs to another user"):
        find(home, "local", None, "default", "Numbers")
    with pytest.raises(NotFoundError, match="belongs to another user"):
        find_by_name(home, "Numbers")
    assert running(home) == []
    with pytest.raises(StateError, match="belongs to another user"):
        kill(launch)
    monkeypatch.undo()
    os.chown(launch.dir, os.geteuid(), -1)
    assert running(home) == [launch]
    # A child of an executor that is about to become something else looks like another one for a moment.
    eventually_sync(lambda: _equal(len(processes(launch, EXECUTOR)), 3))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_where_another_user_has_taken_the_place_of_sockets_the_submission_says_so(
    home: Path, tmp: Path, kind: str
) -> None:
    taken = taken_by_another(tmp, kind)
    with pytest.raises(StateError, match=f"{taken}.*: set TMPDIR to a directory of yours"):
        submit(loader.Definition.of(Numbers), home=home)
    assert [*home.glob("topologies/*")] == []
    assert [*(tmp / "secret").glob("*/*")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
@pytest.mark.parametrize("kind", ["directory", "file", "link"])
def test_what_another_user_puts_in_the_place_of_sockets_keeps_no_topology_from_being_killed(
    home: Path, tmp: Path, kind: str
) -> None:
    """As after a reboot, or a cleaning of /tmp."""
    launch = submit(loader.Definition.of(Numbers), home=home)
    sockets = launch.socket_root()
    assert sockets.parent.parent == tmp
    sockets.parent.rename(tmp / "gone")
    taken = taken_by_another(tmp, kind, precious=sockets.name)
    kill(launch)
    assert (processes(launch), launch.dir.exists()) == ([], False)
    assert taken.lstat().st_uid == ANOTHER
    if kind == "link":
        assert (tmp / "secret" / launch.socket_root().name).exists(), "a link of another user leads nowhere"


def test_no_directory_of_a_topology_is_for_others_to_write_to_whatever_the_umask(home: Path) -> None:
    """Who may write to one above it may move the topology away, which ends it."""
    before = os.umask(0)
    try:
        launch = submit(loader.Definition.of(Numbers), home=home)
    finally:
        os.umask(before)
    open_to_others = {path for path in [home, *home.rglob("*")] if path.is_dir() and path.stat().st_mode & 0o022}
    closed = {path for path in [home, *home.rglob("*")] if not path.stat().st_mode & 0o077}
    assert {path for path in open_to_others if closed.isdisjoint(path.parents)} == set()
    assert launch.dir in closed


ANOTHER = 65534


@pytest.fixture
def tmp(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where processes have their sockets: a path that is short enough for that."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def taken_by_another(tmp: Path, kind: str, precious: str = "precious") -> Path:
    """What another user has made in the place of this user's sockets."""
    taken = tmp / f"heron-{os.getuid()}"
    if kind == "directory":
        taken.mkdir(mode=0o777)
    elif kind == "file":
        taken.touch()
    else:
        (tmp / "secret" / precious).mkdir(parents=True)
        taken.symlink_to(tmp / "secret")
    os.chown(taken, ANOTHER, -1, follow_symlinks=False)
    return taken


@pytest.mark.parametrize("named", ["{elsewhere}", "{home}/../elsewhere", "../elsewhere"])
def test_a_directory_that_only_the_state_manager_calls_a_topologys_is_left_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    precious = tmp_path / "elsewhere" / "letter"
    precious.parent.mkdir()
    precious.write_text("dear")
    home.mkdir()
    monkeypatch.chdir(home)
    planted(home, topology_dir=named.format(elsewhere=precious.parent, home=home))
    [one] = listed(home, "local")
    assert "as its directory, which is not a topology's" in one.trouble
    kill(find(home, "local", "ada", "default", "Planted", troubled=True))
    assert precious.read_text() == "dear"
    assert listed(home, "local") == []


@pytest.mark.parametrize("where", [{"cluster": "../.."}, {"role": ".."}, {"environ": ""}, {"topology": "Other"}])
def test_a_state_that_names_no_place_is_none_of_a_topology(home: Path, where: dict[str, str]) -> None:
    planted(home, **where)
    assert listed(home, "local") == []


def planted(home: Path, **fields: str) -> None:
    """Write what somebody else may write to a state manager that is shared."""
    place = {"topology": "Planted", "cluster": "local", "role": "ada", "environ": "default", **fields}
    execution = state_pb2.ExecutionState(topology_id="Planted-1", **place)
    with contextlib.closing(open_statemgr(StatemgrSpec(root=str(home / "state" / "local")))) as state:
        state.set(Kind.EXECUTIONSTATE, "Planted", execution.SerializeToString())


def test_a_symbolic_link_in_the_place_of_a_directory_is_refused(home: Path, launch: Launch) -> None:
    link = launch.dir.with_name("Planted")
    link.symlink_to(launch.dir)
    with pytest.raises(StateError, match="is a symbolic link"):
        find(home, "local", None, "default", "Planted")
    link.unlink()


def _ready(launch: Launch) -> None:
    with contextlib.suppress(UnavailableError):
        assert status(launch).ready
        return
    raise AssertionError("the Topology Master does not answer")


def _only(found: list[Launch]) -> Launch:
    assert len(found) == 1
    return found[0]


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _at_least(found: int, expected: int) -> None:
    assert found >= expected
