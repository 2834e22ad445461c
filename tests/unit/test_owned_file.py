"""What is read from directories that others may have prepared: the caller's own plain files, and nothing else."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from heronpy.config import EngineConfig
from heronpy.errors import HeronError, NotFoundError, StateError, UntrustedError
from heronpy.files import read_owned_file
from heronpy.runtime import Launch, StatemgrSpec

SECRET = "hunter2-of-the-operator"
NOBODY = 65534


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a path belong to another user: really, if this is root; else by being another user than its owner."""

    def give_away(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, NOBODY, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    return give_away


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    made = Launch(
        topology="word",
        topology_id="word-1",
        cluster="local",
        role="me",
        environ="default",
        statemgr=StatemgrSpec(root=str(tmp_path / "state")),
        dir=tmp_path / "word",
    )
    made.save()
    return made


def refused(path: Path, reason: str, *, private: bool = False) -> None:
    with pytest.raises(StateError, match=reason) as error:
        read_owned_file(path, max_bytes=1000, private=private)
    assert SECRET not in str(error.value)


def test_an_own_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)
    assert read_owned_file(tmp_path / "f", max_bytes=1000) == b"x" * 1000


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "private").write_text(SECRET)
    (tmp_path / "f").symlink_to(tmp_path / "private")
    refused(tmp_path / "f", "symbolic link")


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    reader = threading.Thread(target=refused, args=(tmp_path / "f", "not a regular file"), daemon=True)
    reader.start()
    reader.join(300)
    assert not reader.is_alive()


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/tty"])
def test_a_device_is_not_opened(device: str) -> None:
    refused(Path(device), "not a regular file|belongs|writable")


def test_a_file_larger_than_its_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(SECRET * 100)
    refused(tmp_path / "f", "larger than 1000 bytes")


def test_a_file_of_another_user_is_refused(tmp_path: Path, foreign: Callable[[Path], None]) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text(SECRET)
    foreign(tmp_path / "d/f")
    refused(tmp_path / "d/f", "belongs to another user")


def test_a_file_in_a_directory_of_another_user_is_refused(tmp_path: Path, foreign: Callable[[Path], None]) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text(SECRET)
    foreign(tmp_path / "d")
    refused(tmp_path / "d/f", "belongs to another user")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "f").write_text(SECRET)
    (tmp_path / "f").chmod(mode)
    refused(tmp_path / "f", "writable by others")


def test_a_directory_that_others_can_write_is_refused_unless_it_is_sticky(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text(SECRET)
    (tmp_path / "d").chmod(0o777)
    refused(tmp_path / "d/f", "writable by others")
    (tmp_path / "d").chmod(0o1777)
    assert read_owned_file(tmp_path / "d/f", max_bytes=1000) == SECRET.encode()


def test_a_private_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(SECRET)
    (tmp_path / "f").chmod(0o640)
    refused(tmp_path / "f", "readable by others", private=True)


@pytest.mark.parametrize("name", ["missing", "missing/f", "file/f"])
def test_what_does_not_exist_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFoundError):
        read_owned_file(tmp_path / name, max_bytes=10)


def test_a_launch_is_the_same_after_it_was_saved(launch: Launch) -> None:
    assert Launch.load(launch.dir) == launch
    assert len(launch.token()) == 64


def test_what_a_launch_writes_is_for_its_owner_alone(launch: Launch) -> None:
    paths = (launch.dir, launch.dir / "launch.json", launch.dir / "token")
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o700, 0o600, 0o600]


@pytest.mark.parametrize("name", ["launch.json", "token"])
def test_a_launch_with_a_link_in_it_is_refused(launch: Launch, tmp_path: Path, name: str) -> None:
    (launch.dir / name).rename(tmp_path / "elsewhere")
    (launch.dir / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedError):
        Launch.load(launch.dir).token()


def test_a_directory_of_another_user_is_no_launch(launch: Launch, foreign: Callable[[Path], None]) -> None:
    foreign(launch.dir)
    with pytest.raises(UntrustedError):
        Launch.load(launch.dir)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        SECRET,
        f'"{SECRET}',
        '{"topology": 1}',
        f'{{"statemgr": "{SECRET}"}}',
        f'{{"config": {{"{SECRET}": 1}}}}',
        '{"topology": ' * 20_000,
        "[" * 200_000,
        "9" * 9000,
        "\ud800",
    ],
)
def test_a_damaged_launch_is_a_state_error_without_its_content(launch: Launch, text: str) -> None:
    (launch.dir / "launch.json").write_text(text, errors="surrogatepass")
    with pytest.raises(StateError, match="damaged") as error:
        Launch.load(launch.dir)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("key", ["topology", "statemgr", "package_paths", "config", "main_file"])
@pytest.mark.parametrize("value", [None, 17, [[1]], {"a": {"b": 1}}])
def test_a_launch_with_a_value_of_another_type_is_a_state_error(launch: Launch, key: str, value: object) -> None:
    path = launch.dir / "launch.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(HeronError, match="damaged"):
        Launch.load(launch.dir)


def test_the_configuration_of_a_launch_survives(launch: Launch) -> None:
    assert Launch.load(launch.dir).config == EngineConfig()
