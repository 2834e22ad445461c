"""The state manager in files believes nothing that somebody else could have put there, and lets nobody else in."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.errors import StateError
from heronpy.statemgr import FileStateManager, Kind

SOMEBODY_ELSE = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def sm(root: Path) -> Iterator[FileStateManager]:
    with FileStateManager(root, poll_interval_s=0.01, call_timeout_s=2.0) as sm:
        yield sm


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_open_or_lock_anything(root: Path) -> None:
    before = os.umask(0)
    try:
        with FileStateManager(root) as sm:
            sm.set(Kind.TOPOLOGIES, "words", b"x")
            sm.create(Kind.TMASTERS, "words", b"x", ephemeral=True)
            found = [root, *root.rglob("*")]
            assert {path.name for path in found} >= {"topologies", "words", ".mutex"}
            assert [path for path in found if mode(path) & 0o077] == []
    finally:
        os.umask(before)


def test_folders_that_others_can_enter_are_closed_to_them(root: Path) -> None:
    (root / "topologies").mkdir(parents=True)
    (root / "topologies").chmod(0o755)
    (root / ".mutex").touch(mode=0o644)
    with FileStateManager(root) as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x")
    assert (mode(root / "topologies"), mode(root / ".mutex")) == (0o700, 0o600)


def test_a_link_is_not_followed(sm: FileStateManager, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    (root / "topologies" / "words").symlink_to(secret)
    with pytest.raises(StateError, match="symbolic link") as refused:
        sm.get(Kind.TOPOLOGIES, "words")
    assert "mine" not in str(refused.value)
    assert sm.list(Kind.TOPOLOGIES) == []


def test_a_pipe_is_refused_and_holds_nobody_up(sm: FileStateManager, root: Path) -> None:
    os.mkfifo(root / "topologies" / "words")
    with pytest.raises(StateError, match="not a regular file"):
        sm.get(Kind.TOPOLOGIES, "words")
    assert sm.list(Kind.TOPOLOGIES) == []


def test_a_huge_file_is_refused_before_it_is_read(sm: FileStateManager, root: Path) -> None:
    path = root / "topologies" / "words"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(StateError, match="larger than"):
        sm.get(Kind.TOPOLOGIES, "words")


@needs_root
@pytest.mark.parametrize("name", ["topologies/words", ".mutex"])
def test_a_file_of_somebody_else_is_not_believed(sm: FileStateManager, root: Path, name: str) -> None:
    sm.set(Kind.TOPOLOGIES, "words", b"planted")
    os.chown(root / name, SOMEBODY_ELSE, -1)
    with pytest.raises(StateError, match=f"belongs to user {SOMEBODY_ELSE}"):
        sm.set(Kind.TOPOLOGIES, "words", b"x")
    if name != ".mutex":
        with pytest.raises(StateError, match=f"belongs to user {SOMEBODY_ELSE}"):
            sm.get(Kind.TOPOLOGIES, "words")
        assert sm.list(Kind.TOPOLOGIES) == []


@needs_root
def test_a_folder_of_somebody_else_is_not_used(root: Path) -> None:
    (root / "topologies").mkdir(parents=True)
    os.chown(root / "topologies", SOMEBODY_ELSE, -1)
    with pytest.raises(StateError, match="not a directory of this user"):
        FileStateManager(root)


@needs_root
def test_root_reads_the_tree_of_a_user_and_leaves_nothing_of_its_own_in_it(root: Path) -> None:
    (root / "topologies").mkdir(parents=True)
    (root / "topologies" / "words").write_bytes(b"theirs")
    for path in (root, *root.rglob("*")):
        os.chown(path, SOMEBODY_ELSE, -1)
    with FileStateManager(root) as sm:
        assert sm.get(Kind.TOPOLOGIES, "words") == b"theirs"
        assert sm.list(Kind.EPOCHS) == []
    assert {path.stat().st_uid for path in root.rglob("*")} == {SOMEBODY_ELSE}


def test_what_the_tree_was_in_is_not_made_again(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with FileStateManager(home / "state") as sm:
        sm.set(Kind.TOPOLOGIES, "words", b"x")
        home.rename(tmp_path / "gone")
        with pytest.raises(StateError, match="No such file"):
            sm.set(Kind.TOPOLOGIES, "words", b"y")
    assert not home.exists()
    with pytest.raises(StateError, match="No such file"):
        FileStateManager(home / "state", parents=False)
    assert not home.exists()


def test_a_tree_that_was_removed_is_made_again_by_the_next_write(sm: FileStateManager, root: Path) -> None:
    sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
    root.rename(root.with_name("gone"))
    assert sm.get(Kind.TMASTERS, "words") is None
    assert sm.list(Kind.TMASTERS) == []
    assert sm.delete(Kind.TOPOLOGIES, "words") is False
    sm.create(Kind.TMASTERS, "words", b"here", ephemeral=True)
    sm.set(Kind.TOPOLOGIES, "words", b"x")
    with FileStateManager(root) as other:
        assert other.get(Kind.TMASTERS, "words") == b"here"
        assert other.get(Kind.TOPOLOGIES, "words") == b"x"
    sm.close()
    with FileStateManager(root) as other:
        assert other.get(Kind.TMASTERS, "words") is None
