"""`heron checkpoints`, and what `heron kill` does with checkpoints: those that a Checkpoint Manager has stored."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_tasks import COMPONENT, Counting
from heron_command import heron_command
from topology_on_disk import EngineProcess, execution_of, launch_in, submit

from heronpy.checkpoints import LoggedBatch, manifest_name
from heronpy.ckptmgr.client import CheckpointClient
from heronpy.proto import state_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.statemgr import Kind, open_statemgr
from heronpy.submit import stored_state

TOPOLOGY_ID = "words-2"  # not that of tests beside these, which are not to be killed
PLACE = ("local/tests", "words")


def heron(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return heron_command(*words, home=home, COLUMNS="200")


def listed(home: Path) -> list[dict[str, Any]]:
    done = heron(home, "checkpoints", *PLACE, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def on_disk(home: Path, checkpoints: str) -> Launch:
    """A topology that was submitted and of which no process runs."""
    launch = launch_in(
        home / "topologies" / "local" / "tests" / "default",
        statemgr=StatemgrSpec(type="file", root=str(home / "state" / "local")),
        checkpoints=checkpoints,
        topology_id=TOPOLOGY_ID,
    )
    with open_statemgr(launch.statemgr) as state:
        submit(state, 1, topology_id=TOPOLOGY_ID)
        state.set(Kind.EXECUTIONSTATE, launch.topology, execution_of(launch))
    return launch


async def take(launch: Launch, *ids: int) -> None:
    """Take checkpoints of a counting component; the last one is not committed."""
    with EngineProcess("ckptmgr", launch, 0):
        async with CheckpointClient(launch, container=0, process="tmaster") as client:
            counting = Counting(client, topology_id=TOPOLOGY_ID)
            await counting.restore(0)
            for id in ids:
                counting.count(["a", "b", str(id)])
                await counting.checkpoint(id, [LoggedBatch(1, b"x" * 5000)] if id == ids[-1] else [])
    with open_statemgr(launch.statemgr) as state:
        record = state_pb2.Checkpoints(topology_id=launch.topology_id, last_id=ids[-1], committed=ids[:-1])
        state.set(Kind.STATEFULCHECKPOINTS, launch.topology, record.SerializeToString())


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = on_disk(tmp_path, str(tmp_path / "checkpoints/local/me/default/words" / TOPOLOGY_ID))
    yield launch
    shutil.rmtree(launch.socket_root(), ignore_errors=True)


def test_checkpoints_are_listed_with_what_can_be_restored(tmp_path: Path, launch: Launch) -> None:
    assert listed(tmp_path) == []
    assert "has no checkpoint yet" in heron(tmp_path, "checkpoints", *PLACE).stdout
    asyncio.run(take(launch, 3, 5, 8))
    first, second, last = listed(tmp_path)
    assert [(one["id"], one["committed"]) for one in (first, second, last)] == [(3, True), (5, True), (8, False)]
    assert first["size"] == first["added"] == first["components"][COMPONENT]["size"] > 0
    assert second["size"] > second["added"] > 0
    assert first["components"][COMPONENT]["tasks"] == 2
    assert last["logged"] > 5000 > second["logged"] == 0
    assert (first["duration_ms"], first["error"]) == (500, None)
    lines = heron(tmp_path, "checkpoints", *PLACE).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line.split()[:1] and line.split()[0].isdecimal()}
    assert list(rows) == ["3", "5", "8"]
    assert "count ×2" in rows["3"]
    assert ("not committed" in rows["8"], "not committed" in rows["5"]) == (True, False)
    assert first["time"][:10] in rows["3"]


def test_state_is_shown_by_name_and_by_key(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5, 8))
    names = heron(tmp_path, "state", "show", *PLACE, "--json")
    assert names.returncode == 0, names.stderr
    about = {"component": COMPONENT, "name": "counts", "kind": "keyed", "codec": "pickle", "version": 1, "tasks": 2}
    assert json.loads(names.stdout) == {"checkpoint": 5, "states": [about]}
    shown = json.loads(heron(tmp_path, "state", "show", *PLACE, COMPONENT, "counts", "--json").stdout)
    counts = {one["key"]: one["value"] for one in shown["entries"]}
    assert counts == {"a": 2, "b": 2, "3": 1, "5": 1}, "those of the newest that is committed"
    one = heron(tmp_path, "state", "show", *PLACE, COMPONENT, "counts", "a")
    assert "counts of count in checkpoint 5: 1 entries" in one.stdout
    assert one.stdout.split()[-2:] == ["'a'", "2"]
    assert heron(tmp_path, "state", "show", *PLACE, COMPONENT, "counts", "'a'").stdout == one.stdout
    beside = {entry.key for entry in stored_state(launch, COMPONENT, "counts", keys=["a"]).entries}
    assert {"a"} <= beside < counts.keys(), "only its key group is read"
    assert {entry.key for entry in stored_state(launch, COMPONENT, "counts", keys=[*counts]).entries} == counts.keys()


@pytest.mark.long
def test_what_there_is_not_is_said_and_what_others_can_write_is_not_unpickled(tmp_path: Path, launch: Launch) -> None:
    none = heron(tmp_path, "state", "show", *PLACE)
    assert (none.returncode, none.stderr) == (3, "heron: words has no checkpoint yet\n")
    asyncio.run(take(launch, 3, 5))
    for words, message in (
        (["cuont"], "checkpoint 3 has no component 'cuont'; it has: count"),
        ([COMPONENT, "sums"], "component 'count' has no state 'sums' in checkpoint 3; it has: counts"),
        ([COMPONENT, "counts", "z"], "state 'counts' of 'count' has no key z in checkpoint 3"),
    ):
        done = heron(tmp_path, "state", "show", *PLACE, *words)
        assert (done.returncode, done.stdout) == (3, "")
        assert message in done.stderr
    (Path(launch.checkpoints) / "objects").chmod(0o777)
    refused = heron(tmp_path, "state", "show", *PLACE, COMPONENT, "counts")
    assert refused.returncode != 0
    assert "others can write to it: nothing of it is unpickled" in refused.stderr


def test_a_damaged_checkpoint_is_shown_as_one(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5))
    manifest = Path(launch.checkpoints) / manifest_name(3)
    manifest.write_bytes(manifest.read_bytes()[:-5])
    assert "torn" in listed(tmp_path)[0]["error"]
    done = heron(tmp_path, "checkpoints", *PLACE)
    assert done.returncode == 0
    assert "damaged" in done.stdout
    assert manifest_name(3) in done.stdout


def test_committed_checkpoints_that_were_deleted_are_said_to_be_gone(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5, 8))
    shutil.rmtree(launch.checkpoints)
    assert [(one["id"], one["committed"]) for one in listed(tmp_path)] == [(3, True), (5, True)]
    done = heron(tmp_path, "checkpoints", *PLACE, "--verify")
    assert done.returncode == 6
    for id in (3, 5):
        assert f"checkpoint {id} was committed and is gone: there is no {manifest_name(id)}" in done.stdout
    state = heron(tmp_path, "state", "show", *PLACE)
    assert (state.returncode, state.stdout) == (6, "")
    assert "checkpoint 5 was committed and is gone" in state.stderr


def test_what_is_damaged_of_a_checkpoint_is_found_if_all_is_read(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5, 8))
    intact = heron(tmp_path, "checkpoints", *PLACE, "--verify")
    assert (intact.returncode, "damaged" in intact.stdout) == (0, False), intact.stderr
    manifests = {id: (Path(launch.checkpoints) / manifest_name(id)).read_bytes() for id in (3, 5)}
    objects = [path for path in (Path(launch.checkpoints) / "objects").rglob("*") if path.is_file()]
    damaged = next(
        path for path in objects if path.name.encode() in manifests[5] and path.name.encode() not in manifests[3]
    )
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    assert [one["error"] for one in listed(tmp_path)] == [None] * 3, "only the manifests were read"
    done = heron(tmp_path, "checkpoints", *PLACE, "--verify")
    assert done.returncode == 6
    assert "1 of 3 checkpoints cannot be restored: [5]" in done.stderr
    assert damaged.name in done.stdout
    damaged.unlink()
    shown = heron(tmp_path, "checkpoints", *PLACE, "--verify", "--json")
    assert shown.returncode == 6
    assert [one["id"] for one in json.loads(shown.stdout) if one["error"] and "missing" in one["error"]] == [5]


def test_a_topology_without_checkpoints_says_how_to_have_some(tmp_path: Path) -> None:
    on_disk(tmp_path, "")
    done = heron(tmp_path, "checkpoints", *PLACE)
    assert done.returncode == 2
    assert "takes no checkpoints: topology.reliability.mode EFFECTIVELY_ONCE would" in done.stderr
    assert heron(tmp_path, "kill", *PLACE).returncode == 0


def test_a_kill_removes_the_checkpoints_with_the_topology(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5))
    (Path(launch.checkpoints) / "objects" / ".torn.tmp").touch()
    beside = tmp_path / "checkpoints" / "other" / "other-1"
    beside.mkdir(parents=True)
    done = heron(tmp_path, "kill", *PLACE)
    assert (done.returncode, done.stdout) == (0, "killed words\n"), done.stderr
    assert not launch.dir.exists()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["other"]


def test_a_kill_leaves_them_if_it_is_told_to(tmp_path: Path, launch: Launch) -> None:
    asyncio.run(take(launch, 3, 5))
    done = heron(tmp_path, "kill", *PLACE, "--keep-state")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"killed words\nits checkpoints are left in {launch.checkpoints}\n"
    assert not launch.dir.exists()
    assert (Path(launch.checkpoints) / manifest_name(3)).exists()


def test_a_kill_that_cannot_remove_them_says_where_they_are(tmp_path: Path) -> None:
    launch = on_disk(tmp_path, "redis://:secret@127.0.0.1:1/0?prefix=words")
    pytest.importorskip("redis", reason="redis is not installed")
    done = heron(tmp_path, "kill", *PLACE)
    assert done.returncode == 6
    assert "words has ended, but its checkpoints in Redis at 127.0.0.1:1, keys {words}:… are not removed" in done.stderr
    assert "secret" not in done.stderr
    assert not launch.dir.exists()
