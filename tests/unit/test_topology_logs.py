"""What a test sees of the logs of its topology."""

from __future__ import annotations

from pathlib import Path

from heronpy.runtime import Launch, StatemgrSpec
from heronpy.testing import TopologyHandle


def test_logs_are_read_from_all_rotated_files_in_their_order(tmp_path: Path) -> None:
    launch = Launch(
        topology="words",
        topology_id="words-1",
        cluster="local",
        role="ada",
        environ="test",
        statemgr=StatemgrSpec(),
        dir=tmp_path,
    )
    directory = tmp_path / "container_1" / "log-files"
    directory.mkdir(parents=True)
    for name in ("log.10", *(f"log.{n}" for n in range(8, 0, -1)), "log", "out.1", "out"):
        (directory / f"container_1_word_2.{name}").write_text(f"{name}\n")
    (directory / "container_1_word_20.log").write_text("another\n")
    assert TopologyHandle(launch).logs("container_1_word_2").split() == [
        "log.10",
        *(f"log.{n}" for n in range(8, 0, -1)),
        *("log", "out.1", "out"),
    ]
