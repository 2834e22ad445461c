"""The state manager in files: the kit, and what only files can get wrong."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from heronpy.errors import AlreadyExistsError, ConfigError, StateError
from heronpy.runtime import StatemgrSpec
from heronpy.statemgr import FileStateManager, Kind, open_statemgr
from heronpy.testing import eventually_sync
from heronpy.testing.statemgr_kit import Owner, Seen, StatemgrKit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


class TestFileStateManager(StatemgrKit):
    @pytest.fixture
    def spec(self, root: Path) -> StatemgrSpec:
        return StatemgrSpec(type="file", root=str(root))


def test_the_tree_is_herons_and_the_values_are_plain_files(root: Path) -> None:
    with FileStateManager(root) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"definition")
        sm.create(Kind.TMASTERS, "words", b"location", ephemeral=True)
        with sm.lock("words", "updateTopology"):
            assert (root / "locks" / "words__updateTopology").exists()
        assert (root / "topologies" / "words").read_bytes() == b"definition"
        assert (root / "tmasters" / "words").read_bytes() == b"location"
        assert {p.name for p in root.iterdir() if p.is_dir()} == {k.value for k in Kind}


def test_no_temporary_file_is_left(root: Path) -> None:
    with FileStateManager(root) as sm:
        for n in range(5):
            sm.set(Kind.TOPOLOGIES, "words", b"%d" % n)
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        with pytest.raises(AlreadyExistsError):
            sm.create(Kind.TOPOLOGIES, "words", b"x")
    left = [p for p in root.rglob("*") if p.is_file() and p.name != ".mutex"]
    assert left == [root / "topologies" / "words"]


def test_what_a_killed_writer_left_is_not_listed_and_swept_when_old(root: Path) -> None:
    with FileStateManager(root) as sm:
        old, new = root / "pplans" / ".1-a.tmp", root / "pplans" / ".1-b.tmp"
        old.write_bytes(b"half")
        new.write_bytes(b"half")
        os.utime(old, (0, 0))
        assert sm.list(Kind.PPLANS) == []
    FileStateManager(root).close()
    assert not old.exists()
    assert new.exists(), "somebody may be writing it now"


def test_a_root_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    for root in (in_the_way, in_the_way / "below", Path("/proc/heron-state")):
        with pytest.raises(StateError) as caught:
            open_statemgr(StatemgrSpec(type="file", root=str(root)))
        assert str(root) in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="root path"):
        open_statemgr(StatemgrSpec(type="file", root=""))


def test_a_root_without_permissions_is_one_clear_line(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        child = os.fork()
        if child == 0:
            said = "opened"
            try:
                if os.getuid() == 0:
                    os.setuid(65534)  # root may read and write everything
                FileStateManager(tmp_path / "state")
            except StateError as e:
                said = str(e)
            finally:
                os._exit(0 if said.endswith(f"state root {tmp_path}/state: Permission denied") else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        tmp_path.chmod(0o700)


def test_watches_outlive_a_root_that_vanishes_and_comes_back(root: Path, tmp_path: Path) -> None:
    with FileStateManager(root) as sm:
        sm.set(Kind.PPLANS, "words", b"1")
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        assert seen.next() == b"1"
        root.rename(tmp_path / "away")
        assert seen.next() is None
        (tmp_path / "away").rename(root)
        assert seen.next() == b"1"
        sm.set(Kind.PPLANS, "words", b"2")
        assert seen.next() == b"2"


def test_a_watch_tells_versions_apart_whose_size_time_and_inode_number_may_be_the_same(root: Path) -> None:
    path = root / "pplans" / "words"

    def replace(value: bytes) -> None:
        fresh = root / "pplans" / ".fresh.tmp"
        fresh.write_bytes(value)
        os.utime(fresh, ns=(0, 0))
        fresh.rename(path)

    with FileStateManager(root, poll_interval_s=0.05) as sm:
        replace(b"  0")
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        seen.until(b"  0")
        for n in range(1, 10):
            # Two versions between two looks: the second may get the inode number of the one seen last.
            replace(b"gap")
            replace(b"%3d" % n)
            seen.until(b"%3d" % n)


def test_a_stopped_process_in_the_middle_of_a_change_delays_others_by_a_bounded_time(root: Path) -> None:
    with FileStateManager(root, call_timeout_s=0.3) as sm, (root / ".mutex").open("a") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        sm_began_s = time.monotonic()
        with pytest.raises(StateError, match=r"\.mutex"):
            sm.set(Kind.TOPOLOGIES, "words", b"x")
        assert time.monotonic() - sm_began_s < 120
        assert sm.get(Kind.TOPOLOGIES, "words") is None, "readers need no mutex"
        fcntl.flock(mutex, fcntl.LOCK_UN)
        sm.set(Kind.TOPOLOGIES, "words", b"x")


def test_a_reader_always_finds_a_node_that_its_owner_keeps_replacing(root: Path) -> None:
    with FileStateManager(root) as owner, FileStateManager(root) as reader:
        owner.create(Kind.TMASTERS, "words", b"0", ephemeral=True)
        done = threading.Event()

        def replace() -> None:
            n = 0
            while not done.is_set():
                n += 1
                owner.set(Kind.TMASTERS, "words", b"%d" % n)

        thread = threading.Thread(target=replace)
        thread.start()
        try:
            for _ in range(2000):
                assert reader.get(Kind.TMASTERS, "words") is not None
        finally:
            done.set()
            thread.join()


def test_many_readers_do_not_take_each_other_for_the_owner(root: Path) -> None:
    spec = StatemgrSpec(type="file", root=str(root))
    gone = Owner(spec, Kind.TMASTERS, "words", b"gone")
    assert gone.said() == "owned"
    gone.kill()
    assert (root / "tmasters" / "words").exists(), "a killed owner leaves its file"
    found: list[bytes | None] = []

    def read() -> None:
        with FileStateManager(root) as sm:
            found.extend(sm.get(Kind.TMASTERS, "words") for _ in range(500))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {None}


def test_a_forked_child_opens_its_own(root: Path) -> None:
    with FileStateManager(root) as sm:
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        child = os.fork()
        if child == 0:
            try:
                sm.close()  # not its own: must not end the parent's node
                sm.get(Kind.TMASTERS, "words")
            except StateError:
                os._exit(42)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 42
        assert sm.get(Kind.TMASTERS, "words") == b"x"


def test_descriptors_do_not_leak(root: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    with FileStateManager(root, poll_interval_s=0.01) as sm:
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        watches = [sm.watch(Kind.PPLANS, "words", seen) for seen in (Seen(), Seen())]
        seen = Seen()
        sm.watch(Kind.PPLANS, "words", seen)
        for n in range(20):
            value = b"%d" % n
            sm.set(Kind.PPLANS, "words", value)
            sm.set(Kind.TMASTERS, "words", value)
            seen.until(value)
        for watch in watches:
            watch.cancel()

        def one_for_the_node_and_one_for_the_watch() -> None:
            assert descriptors() == before + 2

        eventually_sync(one_for_the_node_and_one_for_the_watch)
    assert descriptors() == before


def test_an_idle_watch_costs_almost_nothing(root: Path) -> None:
    with FileStateManager(root) as sm:
        sm.set(Kind.PPLANS, "words", b"x")
        seen = [Seen() for _ in range(8)]
        for one in seen:
            sm.watch(Kind.PPLANS, "words", one)
            assert one.next() == b"x"
        cpu_s, began_s = time.process_time(), time.monotonic()
        threading.Event().wait(1.0)
        assert time.process_time() - cpu_s < 0.1 * (time.monotonic() - began_s)


def test_files_are_not_executable_unless_ephemeral_nor_writable_by_others(root: Path) -> None:
    with FileStateManager(root) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x")
        sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
        assert not (root / "topologies" / "words").stat().st_mode & (stat.S_IXUSR | stat.S_IWOTH | stat.S_IWGRP)
        assert not (root / "tmasters" / "words").stat().st_mode & (stat.S_IWOTH | stat.S_IWGRP)
