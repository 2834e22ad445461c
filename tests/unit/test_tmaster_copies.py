"""The Topology Master's copies of nodes, for the case that the state manager loses them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from shortages import no_descriptors

from heronpy.errors import ReadFailedError
from heronpy.statemgr import Kind
from heronpy.tmaster import NodeCopies


def test_what_is_kept_is_found_again_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    copies = NodeCopies(tmp_path / "state")
    assert copies.load() == {}
    copies.keep(Kind.TOPOLOGIES, b"old")
    copies.keep(Kind.TOPOLOGIES, b"new")
    copies.keep(Kind.PACKINGPLANS, b"plan")
    assert NodeCopies(tmp_path / "state").load() == {Kind.TOPOLOGIES: b"new", Kind.PACKINGPLANS: b"plan"}
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state").iterdir()}
    assert (modes, stat.S_IMODE((tmp_path / "state").stat().st_mode)) == ({0o600}, 0o700)


def test_a_link_is_not_a_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copies = NodeCopies(tmp_path / "state")
    copies.keep(Kind.PACKINGPLANS, b"plan")
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "state" / Kind.TOPOLOGIES.value).symlink_to(tmp_path / "secret")
    assert copies.load() == {Kind.PACKINGPLANS: b"plan"}
    assert "mine" not in caplog.text
    assert "topologies" in caplog.text


def test_a_copy_that_cannot_be_read_now_is_not_missing(tmp_path: Path) -> None:
    copies = NodeCopies(tmp_path / "state")
    copies.keep(Kind.TOPOLOGIES, b"topology")
    with no_descriptors():
        loaded = copies.load()
    assert isinstance(loaded[Kind.TOPOLOGIES], ReadFailedError)
    assert "Too many open files" in str(loaded[Kind.TOPOLOGIES])
    assert copies.load() == {Kind.TOPOLOGIES: b"topology"}


def test_a_copy_that_cannot_be_written_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "state").write_text("not a directory")
    NodeCopies(tmp_path / "state").keep(Kind.TOPOLOGIES, b"value")
    assert "no copy of topologies is kept" in caplog.text
