"""Topologies on a cluster that looks after containers by itself: commands do without a scheduler service."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import heron_scheduler
import pytest
import yaml
from numbers_topology import Numbers

import heronpy
from heronpy import checkpoints, loader, uploader
from heronpy.checkpoints import manifest_name, open_storage
from heronpy.cli.parts import collect_status, revive, scheduler_lines
from heronpy.errors import AlreadyExistsError, ConfigError, NotFoundError, StateError, UnavailableError
from heronpy.plan import PackingPlan
from heronpy.proto import state_pb2, tmaster_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, container_node, open_statemgr
from heronpy.submit import find, find_by_name, kill, listed, plan_update, restart, running, submit, update
from heronpy.testing import eventually_sync

HERE = Path(__file__).parent


@dataclass
class Farm:
    """A cluster `farm`, and machines with a HERON_HOME each."""

    root: Path

    @property
    def conf(self) -> Path:
        return self.root / "conf"

    @property
    def shelf(self) -> Path:
        return self.root / "shelf"

    def machine(self, name: str) -> Path:
        return self.root / name

    def submit(self, home: Path, **properties: Any) -> Launch:
        definition = loader.Definition.of(Numbers)
        return submit(definition, cluster="farm", role="me", home=home, config_path=self.conf, properties=properties)

    def find(self, home: Path, *, troubled: bool = False) -> Launch:
        return find(home, "farm", "me", "default", "Numbers", config_path=self.conf, troubled=troubled)

    def listed(self, home: Path) -> list[tuple[str, str]]:
        return [(one.launch.topology, one.trouble) for one in listed(home, "farm", config_path=self.conf)]

    def containers(self, launch: Launch) -> list[int]:
        return [one.container for one in heron_scheduler.containers(launch)]

    def left(self) -> list[str]:
        """All that is left of any topology, but for locks and tombstones, on the cluster and in the state manager."""
        found = [path.name for path in self.shelf.glob("Numbers*")]
        nodes = [path for path in (self.root / "state").rglob("Numbers*") if path.is_file()]
        return found + [str(path) for path in nodes if path.parent.name != Kind.TOMBSTONES.value]

    def log(self) -> list[str]:
        path = self.shelf / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def packing(self, launch: Launch, plan: PackingPlan | None = None) -> None:
        with open_statemgr(launch.statemgr) as state:
            assert plan is not None
            state.set(Kind.PACKINGPLANS, launch.topology, plan.to_proto().SerializeToString())


@pytest.fixture
def farm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Farm:
    info = tmp_path / "installed/shelf-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[heron.schedulers]\nshelf = shelf_scheduler:ShelfScheduler\n")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.delitem(sys.modules, "shelf_scheduler", raising=False)
    farm = Farm(tmp_path)
    farm.shelf.mkdir()
    (farm.conf / "farm").mkdir(parents=True)
    values = {
        "heron.class.scheduler": "shelf",
        "heron.scheduler.shelf.directory": str(farm.shelf),
        "heron.statemgr.root.path": str(tmp_path / "state"),
        "topology.stmgrs": 2,
        "heron.submit.wait.secs": 0,  # the files of the shelf never begin
    }
    (farm.conf / "farm/cluster.yaml").write_text(yaml.safe_dump(values))
    return farm


def test_a_state_manager_from_a_backup_with_an_earlier_submission_hides_nothing_that_the_cluster_runs(
    farm: Farm,
) -> None:
    home, state = farm.machine("a"), farm.root / "state"
    earlier = farm.submit(home)
    shutil.copytree(state, farm.root / "backup", ignore=shutil.ignore_patterns(".*"))
    kill(earlier)
    launch = farm.submit(home)
    shutil.rmtree(state)
    (farm.root / "backup").rename(state)
    why = "the state manager has another submission of it, and the cluster runs this one"
    assert farm.listed(home) == [("Numbers", why)]
    assert launch.dir.exists(), "a copy has the secrets, without which nothing can be commanded"
    with pytest.raises(NotFoundError, match=why):
        farm.find(home)
    while farm.listed(home):
        kill(farm.find(home, troubled=True))
    assert farm.left() == []


def test_a_submitted_topology_is_the_clusters_and_no_service_runs(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    assert farm.containers(launch) == [0, 1, 2]
    with open_statemgr(launch.statemgr) as state:
        assert Launch.decode(state.get(Kind.LAUNCHES, "Numbers") or b"", launch.dir) == launch
    assert farm.listed(farm.machine("a")) == [("Numbers", "")]
    assert heron_scheduler.job_links(launch)[0].startswith("file://")


def test_the_status_shows_what_the_cluster_says(farm: Farm, capsys: pytest.CaptureFixture[str]) -> None:
    launch = farm.submit(farm.machine("a"))
    (farm.shelf / launch.topology_id / "container-2").unlink()
    found, silent = collect_status(launch, now_s=0.0)
    assert silent is not None
    told = found["scheduler"]
    assert [one["phase"] for one in told["containers"]] == ["running", "running", "lost"]
    assert scheduler_lines(told) == ["scheduler shelf: 2 of 3 containers run", "container 2 is lost"]


def test_a_container_that_is_started_again_and_again_says_why_until_it_is_up(
    farm: Farm, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in (0, 1, 2):
        (farm.shelf / f"retries-{n}").write_text("this host has no clock")
    launch = farm.submit(farm.machine("a"), **{"heron.submit.wait.secs": 0.1})
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"Numbers keeps its state in {farm.root}/state: all hosts must share that directory" in warned[0]
    assert warned[1] == "container 0 of Numbers has not come up yet: this host has no clock"
    said = [f"container {n} on shelf is not up yet; it last ended with: this host has no clock" for n in (0, 1, 2)]
    found, _ = collect_status(launch, now_s=0.0)
    assert scheduler_lines(found["scheduler"]) == ["scheduler shelf: 0 of 3 containers run", *said]
    up = tmaster_pb2.StmgrStatus(location={"id": "stmgr-1"}, registered=True)
    lost = tmaster_pb2.StmgrStatus(location={"id": "stmgr-2"})
    reply = tmaster_pb2.StatusReply(stmgrs=[up, lost])
    monkeypatch.setattr(
        "heronpy.submit.status_and_metrics",
        lambda _, *requests: (reply, [tmaster_pb2.MetricsReply() for _ in requests]),
    )
    found, _ = collect_status(launch, now_s=0.0)
    assert scheduler_lines(found["scheduler"]) == ["scheduler shelf: 2 of 3 containers run", said[2]]


def test_a_command_that_starts_a_container_again_says_why_it_had_ended(
    farm: Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = farm.submit(farm.machine("a"))
    (farm.shelf / "fails-1").write_text("n1: the package cannot be fetched")
    (farm.shelf / launch.topology_id / "container-2").unlink()
    revive(launch)
    assert capsys.readouterr().err.splitlines() == [
        "heron: container 1 of Numbers was dead (n1: the package cannot be fetched): started again",
        "heron: container 2 of Numbers was dead: started again",
    ]


def test_a_refusal_of_the_cluster_leaves_nothing(farm: Farm) -> None:
    (farm.shelf / "refuses-2").touch()
    with pytest.raises(ConfigError, match="no room for container 2"):
        farm.submit(farm.machine("a"))
    assert farm.left() == []
    assert farm.listed(farm.machine("a")) == []
    assert not [*(farm.machine("a") / "topologies").rglob("launch.json")]


def test_a_container_that_its_host_cannot_run_ends_the_submission(farm: Farm) -> None:
    (farm.shelf / "fails-1").write_text("shelf: this host has Python 3.2")
    began_s = time.monotonic()
    why = r"container 1 cannot run: shelf: this host has Python 3.2 \(heron.package.python: image\)"
    with pytest.raises(ConfigError, match=why):
        farm.submit(farm.machine("a"), **{"heron.submit.wait.secs": 600})
    assert time.monotonic() - began_s < 300
    assert farm.left() == []
    assert not [*(farm.machine("a") / "topologies").rglob("launch.json")]


def test_containers_that_wait_for_room_are_waited_for_as_long_as_configured(farm: Farm) -> None:
    began_s = time.monotonic()
    launch = farm.submit(farm.machine("a"), **{"heron.submit.wait.secs": 1})
    assert time.monotonic() - began_s >= 1
    assert farm.containers(launch) == [0, 1, 2]


def test_a_state_manager_that_is_away_while_containers_begin_is_no_failure(farm: Farm) -> None:
    away = []

    def be_away() -> None:
        eventually_sync(lambda: _true([*farm.shelf.glob("Numbers*")]))
        (plans,) = (farm.root / "state").rglob(Kind.PACKINGPLANS.value)
        path = plans.with_name(Kind.PPLANS.value)
        path.mkdir(exist_ok=True)
        path.rename(aside := path.with_name("aside"))
        path.write_text("")  # no directory: it cannot be read
        with pytest.raises(StateError), open_statemgr(StatemgrSpec(type="file", root=str(plans.parent))) as state:
            state.get(Kind.PPLANS, "Numbers")
        away.append(time.monotonic())
        time.sleep(1.5)
        path.unlink()
        aside.rename(path)

    thread = threading.Thread(target=be_away)
    thread.start()
    launch = farm.submit(farm.machine("a"), **{"heron.submit.wait.secs": 4})
    thread.join()
    assert away
    assert farm.containers(launch) == [0, 1, 2]


def test_a_state_manager_that_cannot_be_opened_when_containers_begin_is_no_failure(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_ = open_statemgr
    away = [StateError("it is away")]

    def open_soon(*args: Any, **how: Any) -> Any:
        if away and [*farm.shelf.glob("Numbers*")]:
            raise away.pop()
        return open_(*args, **how)

    monkeypatch.setattr("heron_scheduler._direct.open_statemgr", open_soon)
    launch = farm.submit(farm.machine("a"), **{"heron.submit.wait.secs": 2})
    assert not away
    assert farm.containers(launch) == [0, 1, 2]


def _true(value: object) -> None:
    assert value


class Died(BaseException):
    """The command is killed here."""


@pytest.mark.parametrize("from_elsewhere", [False, True])
def test_a_kill_that_dies_before_packages_and_checkpoints_are_removed_is_finished_by_the_next(
    farm: Farm, monkeypatch: pytest.MonkeyPatch, from_elsewhere: bool
) -> None:
    urls = {"heron.uploader.url": str(farm.root / "packages"), "heron.statefulstorage.url": str(farm.root / "stored")}
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": True}
    launch = farm.submit(farm.machine("a"), **urls, **mode)
    with open_storage(launch.checkpoints) as storage:
        storage.create(manifest_name(1), b"x")
    assert [*(farm.root / "packages").rglob("*.tar.gz")]

    def die(url: str) -> Any:
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(uploader, "open_uploader", die)
        with pytest.raises(Died):
            kill(launch)
    assert farm.containers(launch) == []
    home = farm.machine("b" if from_elsewhere else "a")
    assert [name for name, trouble in farm.listed(home) if "interrupted" in trouble] == ["Numbers"]
    kill(farm.find(home, troubled=True))
    assert farm.left() == []
    assert [*(farm.root / "packages").rglob("*.tar.gz")] == []
    assert [path for path in (farm.root / "stored").rglob("*") if path.is_file()] == []


def test_a_refused_submission_that_dies_before_its_package_is_removed_is_cleared_by_the_next(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    (farm.shelf / "refuses-2").touch()
    open_uploader = uploader.open_uploader

    def die(url: str) -> Any:
        if [*(farm.root / "packages").rglob("*.tar.gz")]:
            raise Died
        return open_uploader(url)

    with monkeypatch.context() as patched:
        patched.setattr(uploader, "open_uploader", die)
        with pytest.raises(Died):
            farm.submit(farm.machine("a"), **{"heron.uploader.url": str(farm.root / "packages")})
    (farm.shelf / "refuses-2").unlink()
    kill(farm.submit(farm.machine("a")))
    assert farm.left() == []
    assert [*(farm.root / "packages").rglob("*.tar.gz")] == []


def test_a_refused_submission_that_dies_before_its_checkpoints_are_removed_is_cleared_by_the_next(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shelf_scheduler

    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": True}
    given = {"heron.statefulstorage.url": str(farm.root / "stored"), **mode}
    refuse = shelf_scheduler.ShelfScheduler.on_schedule

    def stored() -> list[Path]:
        return [path for path in (farm.root / "stored").rglob("*") if path.is_file()]

    def take_a_checkpoint(scheduler: Any, plan: PackingPlan) -> None:
        with open_storage(scheduler.launch.checkpoints) as storage:
            storage.create(manifest_name(1), b"x")
        refuse(scheduler, plan)

    def die(url: str) -> Any:
        if stored():
            raise Died
        return open_storage(url)

    (farm.shelf / "refuses-2").touch()
    with monkeypatch.context() as patched:
        patched.setattr(shelf_scheduler.ShelfScheduler, "on_schedule", take_a_checkpoint)
        patched.setattr(checkpoints, "open_storage", die)
        with pytest.raises(Died):
            farm.submit(farm.machine("a"), **given)
    assert stored()
    (farm.shelf / "refuses-2").unlink()
    kill(farm.submit(farm.machine("a"), **given))
    assert (farm.left(), stored()) == ([], [])


def test_a_topology_of_another_release_is_killed_from_elsewhere_and_nothing_else(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = {"topology.reliability.mode": "EFFECTIVELY_ONCE", "topology.state.allow.lossy.spouts": True}
    launch = farm.submit(farm.machine("a"), **{"heron.statefulstorage.url": str(farm.root / "stored"), **mode})
    mine = heronpy.__version__
    monkeypatch.setattr(heronpy, "__version__", "99.1")
    both = rf"submitted with heronpy {mine}, and this is heronpy 99\.1"
    with pytest.raises(ConfigError, match=both):
        farm.find(farm.machine("b"))
    with pytest.raises(ConfigError, match=both):
        restart(farm.find(farm.machine("a")))
    assert farm.containers(launch) == [0, 1, 2]
    found = farm.find(farm.machine("b"), troubled=True)
    with pytest.raises(StateError, match=rf"is not killed: .*{both}.*; --force ends it"):
        kill(found, final_s=1.0)
    assert farm.containers(launch) == [0, 1, 2]
    kill(found)
    assert farm.left() == []


def test_a_store_of_packages_without_credentials_is_named_as_it_was_given_and_what_to_set(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(farm.root / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(UnavailableError) as refused:
        farm.submit(farm.machine("a"), **{"heron.uploader.url": "s3://nobucket/x"})
    said = str(refused.value)
    assert said.startswith("the package cannot be stored where heron.uploader.url says: s3://nobucket/x, uses/")
    assert said.endswith("Unable to locate credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
    assert farm.left() == []


def test_a_kill_says_what_it_could_not_remove_and_removes_the_rest(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"), **{"heron.uploader.url": str(farm.root / "packages")})

    def refuse(url: str) -> Any:
        raise UnavailableError("it is away")

    monkeypatch.setattr(uploader, "open_uploader", refuse)
    with pytest.raises(StateError, match=r"its package .*packages.* is not removed: it is away"):
        kill(launch)
    assert farm.left() == []


def test_a_killed_topology_leaves_a_mark(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    kill(launch)
    with open_statemgr(launch.statemgr) as state:
        assert state.list(Kind.TOMBSTONES) == [launch.topology_id]


def test_a_misspelt_key_of_the_scheduler_is_refused(farm: Farm) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'heron\.scheduler\.shelf\.directory'"):
        farm.submit(farm.machine("a"), **{"heron.scheduler.shelf.directroy": "/"})


def test_a_topology_is_found_and_killed_from_a_machine_that_has_nothing_of_it(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    other = farm.machine("b")
    assert farm.listed(other) == [("Numbers", "")]
    assert not (other / "topologies").exists()  # to list it takes no secrets
    found = farm.find(other)
    assert found.dir.is_relative_to(other)
    assert found.topology_id == launch.topology_id
    assert found.token() == launch.token()
    assert found.security("heron").tls == found.tls_dir
    assert find_by_name(other, "Numbers") == found  # there is a copy now
    kill(found)
    assert farm.left() == []
    assert not found.dir.exists()


def test_what_was_killed_elsewhere_is_gone_here_too(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    kill(farm.find(farm.machine("b")))
    assert launch.dir.exists()
    with pytest.raises(NotFoundError):
        farm.find(farm.machine("a"))
    assert not launch.dir.exists()
    assert running(farm.machine("a")) == []


def test_what_was_killed_elsewhere_is_in_no_ones_way(farm: Farm) -> None:
    first = farm.submit(farm.machine("a"))
    kill(farm.find(farm.machine("b")))
    second = farm.submit(farm.machine("a"))
    assert first.topology_id != second.topology_id
    kill(farm.find(farm.machine("b")))
    third = farm.submit(farm.machine("b"))
    assert farm.find(farm.machine("a")).topology_id == third.topology_id


def test_a_state_manager_that_does_not_answer_is_waited_for_once(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))
    with socket.create_server(("127.0.0.1", 0)) as hung:
        kubeconfig = farm.root / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(kubeconfig_of(f"http://127.0.0.1:{hung.getsockname()[1]}")))
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        spec = StatemgrSpec(type="kubernetes", connection="heron", root="/heron")
        replace(launch, statemgr=spec).save()
        cluster = farm.conf / "farm/cluster.yaml"
        where = {
            "heron.class.state.manager": spec.type,
            "heron.statemgr.connection.string": spec.connection,
            "heron.statemgr.root.path": spec.root,
        }
        configured = cluster.read_text()
        cluster.write_text(yaml.safe_dump({**yaml.safe_load(configured), **where}))
        with pytest.raises(StateError, match="does not answer"):
            farm.find(farm.machine("a"))
        assert connections(hung) == 1
    cluster.write_text(configured)
    launch.save()
    kill(farm.find(farm.machine("a")))
    assert farm.left() == []


def kubeconfig_of(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": server}}],
        "users": [{"name": "one", "user": {"token": "none"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    }


def connections(server: socket.socket) -> int:
    """How many have been made that nobody has answered."""
    server.setblocking(False)
    made = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            made += 1
    return made


def test_a_topology_whose_secrets_are_gone_can_be_killed_and_nothing_else(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    shutil.rmtree(farm.shelf / launch.topology_id / "secrets")
    with pytest.raises(NotFoundError, match="no secrets"):
        farm.find(farm.machine("b"))
    assert not [*farm.machine("b").rglob("launch.json")]
    kill(farm.find(farm.machine("b"), troubled=True))
    assert farm.left() == []


def test_a_container_that_the_cluster_has_lost_is_started_by_the_next_command(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    assert not heron_scheduler.revive(launch)
    (farm.shelf / launch.topology_id / "container-1").unlink()
    assert heron_scheduler.revive(farm.find(farm.machine("b")))
    assert farm.containers(launch) == [0, 1, 2]


def test_an_interrupted_kill_is_not_undone_but_finished(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))

    def dies(launch: Launch) -> None:
        raise StateError("the state manager is away")

    with monkeypatch.context() as patched:
        patched.setattr("heron_scheduler._direct.remove_engine_state", dies)
        with pytest.raises(StateError):
            kill(launch)
    assert farm.containers(launch) == []
    assert not heron_scheduler.revive(launch)
    for machine in ("a", "b"):
        assert farm.listed(farm.machine(machine)) == [("Numbers", "its submission or its kill was interrupted")]
    with pytest.raises(NotFoundError, match="interrupted"):
        farm.find(farm.machine("b"))
    kill(farm.find(farm.machine("b"), troubled=True))
    assert farm.left() == []


def test_what_a_dead_submitter_left_takes_nothing_from_a_later_submission_elsewhere(farm: Farm) -> None:
    first = farm.submit(farm.machine("a"))
    kill(farm.find(farm.machine("b")))
    second = farm.submit(farm.machine("b"))
    (first.dir / "submitting").write_text("1 1")  # as if the submitter of the first had been killed at its end
    with pytest.raises(AlreadyExistsError, match="is already running"):
        farm.submit(farm.machine("a"))
    assert not first.dir.exists()
    assert farm.find(farm.machine("b")).topology_id == second.topology_id
    assert farm.listed(farm.machine("a")) == [("Numbers", "")]


def test_a_submitter_that_is_killed_right_after_the_start_leaves_a_topology_that_runs(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heronpy.submit._submit.end_submission", lambda directory: None)  # it does not come to that
    launch = farm.submit(farm.machine("a"))
    for machine in ("a", "b"):
        assert farm.listed(farm.machine(machine)) == [("Numbers", "")]
    with pytest.raises(AlreadyExistsError):
        farm.submit(farm.machine("a"))
    assert farm.containers(launch) == [0, 1, 2]


def test_what_an_undone_submission_could_not_end_is_listed_and_can_be_killed(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(scheduler: Any, *args: Any) -> None:
        raise UnavailableError("the cluster does not answer")

    import shelf_scheduler

    with monkeypatch.context() as patched:
        (farm.shelf / "refuses-2").touch()
        patched.setattr(shelf_scheduler.ShelfScheduler, "on_kill", silent)
        with pytest.raises(ConfigError, match="no room for container 2"):
            farm.submit(farm.machine("a"))
    assert [path.name for path in farm.shelf.glob("Numbers*/container-*")], "containers that nobody has ended"
    assert [name for name, trouble in farm.listed(farm.machine("b")) if trouble] == ["Numbers"]
    kill(farm.find(farm.machine("b"), troubled=True))
    assert farm.left() == []


def test_a_command_that_was_killed_while_it_fetched_the_secrets_is_in_no_ones_way(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shelf_scheduler

    launch = farm.submit(farm.machine("a"))

    def dies(scheduler: Any, directory: Path) -> None:
        shutil.copy2(launch.dir / "token", directory)
        raise _KilledError

    with monkeypatch.context() as patched:
        patched.setattr(shelf_scheduler.ShelfScheduler, "adopt", dies)
        patched.setattr("heron_scheduler._direct.shutil.rmtree", lambda *args, **kwargs: None)  # nobody tidies up
        with pytest.raises(_KilledError):
            farm.find(farm.machine("b"))
    assert farm.listed(farm.machine("b")) == [("Numbers", "")]
    assert farm.find(farm.machine("b")).token() == launch.token()
    assert farm.find(farm.machine("b")).security("heron").tls is not None


class _KilledError(BaseException):
    """In place of SIGKILL."""


def test_while_a_command_changes_what_runs_no_other_does(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))
    monkeypatch.setattr("heronpy.submit._control.LOCK_TIMEOUT_S", 0.2)
    with open_statemgr(launch.statemgr) as state, state.lock("Numbers", heron_scheduler.LOCK, 1):
        (farm.shelf / launch.topology_id / "container-1").unlink()
        assert not heron_scheduler.revive(launch)
        with pytest.raises(UnavailableError, match="is held by"):
            restart(launch, 1)
        with pytest.raises(UnavailableError, match="is held by"):
            kill(launch)
    restart(launch, 1)
    assert farm.log() == ["restart 1"]


def started(launch: Launch, container: int, incarnation: int) -> None:
    """What a container writes when it starts."""
    record = state_pb2.ContainerRecord(topology_id=launch.topology_id, container=container, incarnation=incarnation)
    with open_statemgr(launch.statemgr) as state:
        state.set(Kind.CONTAINERS, container_node("Numbers", container), record.SerializeToString())


def test_a_restart_returns_when_the_new_container_runs(farm: Farm) -> None:
    launch = farm.submit(farm.machine("a"))
    started(launch, 1, 5)
    command = threading.Thread(target=restart, args=(launch, 1))
    command.start()

    def told() -> None:
        assert farm.log() == ["restart 1"]

    try:
        eventually_sync(told, within_s=120)
        command.join(0.5)
        assert command.is_alive(), "the old container was all that ran"
    finally:
        started(launch, 1, 6)
        command.join(120)
    assert not command.is_alive()


def test_a_restart_names_the_containers_that_do_not_start_again(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))
    for container in (0, 1, 2):
        started(launch, container, 5)
    (farm.shelf / launch.topology_id / "container-2").unlink()  # the cluster does not run it: it is not waited for
    monkeypatch.setattr("heron_scheduler._client.stop_limit_s", lambda launch: 0.1)
    monkeypatch.setattr("heron_scheduler._client._CONTAINERS_TIMEOUT_S", 0.1)
    with pytest.raises(UnavailableError, match="but 0, 1 did not start again within"):
        restart(launch)
    assert farm.log() == ["restart None"]


def asked(farm: Farm, monkeypatch: pytest.MonkeyPatch, answer: Callable[[PackingPlan], None]) -> None:
    """Put `answer(packing)` in place of the Topology Master."""

    def change_plan(launch: Launch, base: PackingPlan, packing: PackingPlan, *, timeout_s: float) -> None:
        answer(packing)

    ready = tmaster_pb2.StatusReply(ready=True, plan_version=7)
    monkeypatch.setattr("heronpy.submit._update.change_plan", change_plan)
    monkeypatch.setattr("heronpy.submit._update.status", lambda launch: ready)


def test_an_update_starts_containers_before_the_plan_changes_and_ends_others_after(
    farm: Farm, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = farm.submit(farm.machine("a"))
    seen: list[list[int]] = []

    def accepts(packing: PackingPlan) -> None:
        seen.append(farm.containers(launch))
        farm.packing(launch, packing)

    asked(farm, monkeypatch, accepts)
    elsewhere = farm.find(farm.machine("b"))
    for wanted in (3, 1):
        planned = plan_update(elsewhere, {}, wanted, home=farm.machine("b"), config_path=farm.conf)
        assert update(planned) == 7
    assert seen == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert len(farm.containers(launch)) == 2


def test_an_update_that_is_refused_ends_what_it_has_started(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))

    def refuses(packing: PackingPlan) -> None:
        assert farm.containers(launch) == [0, 1, 2, 3]
        raise StateError("somebody else has changed it meanwhile")

    asked(farm, monkeypatch, refuses)
    planned = plan_update(launch, {}, 3, home=farm.machine("a"), config_path=farm.conf)
    with pytest.raises(StateError, match="somebody else"):
        update(planned)
    assert farm.containers(launch) == [0, 1, 2]


def test_the_next_update_goes_on_where_one_died(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))
    for left_over in (3, 4):
        (farm.shelf / launch.topology_id / f"container-{left_over}").touch()
    asked(farm, monkeypatch, lambda packing: farm.packing(launch, packing))
    update(plan_update(launch, {}, 3, home=farm.machine("a"), config_path=farm.conf))
    assert farm.containers(launch) == [0, 1, 2, 3]


def test_an_update_without_room_changes_nothing(farm: Farm, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = farm.submit(farm.machine("a"))
    asked(farm, monkeypatch, lambda packing: pytest.fail("asked though there is no room"))
    (farm.shelf / "refuses-3").touch()
    planned = plan_update(launch, {}, 3, home=farm.machine("a"), config_path=farm.conf)
    with pytest.raises(ConfigError, match="no room for container 3"):
        update(planned)
    assert farm.containers(launch) == [0, 1, 2]
