"""What makes something in a directory, and what removes it as empty, at the same time."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heronpy.config import EngineConfig
from heronpy.files import create_file, outrace_removal, remove_empty, replace_file
from heronpy.host import remove_directory
from heronpy.runtime import Launch, StatemgrSpec

ROUNDS = 200
PLACE = Path("topologies/local/me/default")


@pytest.fixture
def short_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """TMPDIR: a directory whose name leaves room for those of sockets."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        yield Path(directory)


def in_turns(*loops: Callable[[], object]) -> None:
    """Run each so many times, all at once; the first error is raised."""

    def run(loop: Callable[[], object]) -> None:
        for _ in range(ROUNDS):
            loop()

    with ThreadPoolExecutor(len(loops)) as pool:
        for future in [pool.submit(run, loop) for loop in loops]:
            future.result()


def test_a_topology_is_submitted_while_the_last_one_of_its_environ_is_killed(tmp_path: Path) -> None:
    def submit_and_kill(name: str) -> None:
        directory = tmp_path / PLACE / name
        outrace_removal(lambda: directory.mkdir(parents=True))
        (directory / "launch.json").write_text("{}")
        remove_directory(directory)

    in_turns(lambda: submit_and_kill("a"), lambda: submit_and_kill("b"))
    assert [*tmp_path.rglob("*")] == [tmp_path / "topologies"]


@pytest.mark.parametrize("write", [replace_file, create_file])
def test_a_file_is_written_while_its_directory_is_removed_as_empty(
    tmp_path: Path, write: Callable[[Path, bytes], object]
) -> None:
    path = tmp_path / "checkpoints" / "local" / "file"

    def write_and_remove() -> None:
        write(path, b"whole")
        path.unlink()

    in_turns(write_and_remove, lambda: remove_empty([path.parent, path.parent.parent]))


def test_a_container_starts_while_the_last_other_topology_of_its_host_is_removed(
    tmp_path: Path, short_tmp: Path
) -> None:

    def start_and_kill(name: str) -> None:
        launch = Launch(
            topology=name,
            topology_id=f"{name}-1",
            cluster="local",
            role="me",
            environ="default",
            statemgr=StatemgrSpec(),
            dir=tmp_path,
            config=EngineConfig(),
        )
        (launch.socket_dir(1) / "stmgr.sock").touch()
        launch.remove_sockets()

    in_turns(lambda: start_and_kill("a"), lambda: start_and_kill("b"))
    assert [*short_tmp.iterdir()] == []


def test_what_is_missing_for_good_is_said(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        outrace_removal(lambda: (tmp_path / "link" / "a").mkdir(parents=True))
    with pytest.raises(FileNotFoundError):
        outrace_removal(lambda: (tmp_path / "nowhere" / "a").mkdir())


@pytest.mark.parametrize("write", [replace_file, create_file])
def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path, write: Callable[[Path, bytes], object]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        write(tmp_path / "file" / "below", b"whole")


def test_only_the_place_of_a_topology_goes_with_its_directory(tmp_path: Path) -> None:
    container = tmp_path / "work" / "words-1" / "2"
    container.mkdir(parents=True)
    remove_directory(container)
    assert (tmp_path / "work" / "words-1").exists()
    for name in ("a", "b"):
        (tmp_path / PLACE / name).mkdir(parents=True)
    remove_directory(tmp_path / PLACE / "a")
    assert [path.name for path in (tmp_path / PLACE).iterdir()] == ["b"]
    remove_directory(tmp_path / PLACE / "b")
    assert [*(tmp_path / "topologies").iterdir()] == []
