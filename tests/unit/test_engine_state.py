"""Removing a topology's directories: only what is really in use may stay."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from heron_scheduler import remove_engine_state

from heronpy.errors import StateError
from heronpy.runtime import Launch, StatemgrSpec


def _launch(root: Path) -> Launch:
    """A topology whose processes have ended; its sockets were in `sockets/wc`."""
    (root / "sockets" / "wc").mkdir(parents=True)
    (root / "wc").mkdir()
    stand_in = SimpleNamespace(
        statemgr=StatemgrSpec(type="file", root=str(root / "state")),
        topology="wc",
        topology_id="wc-1",
        scheduler="local",
        dir=root / "wc",
        own_sockets=lambda: [root / "sockets" / "wc"],
    )
    stand_in.remove_sockets = lambda: Launch.remove_sockets(cast("Launch", stand_in))
    return cast("Launch", stand_in)


def test_a_directory_with_the_sockets_of_another_topology_stays(tmp_path: Path) -> None:
    launch = _launch(tmp_path)
    (tmp_path / "sockets" / "other").mkdir()
    remove_engine_state(launch)
    assert [path.name for path in (tmp_path / "sockets").iterdir()] == ["other"]
    assert not (tmp_path / "wc").exists()


def test_the_last_topology_takes_the_directory_with_it(tmp_path: Path) -> None:
    remove_engine_state(_launch(tmp_path))
    assert not (tmp_path / "sockets").exists()


def test_a_directory_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = _launch(tmp_path)

    def rmdir(path: Any, **_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "rmdir", rmdir)
    with pytest.raises(StateError, match="sockets/wc cannot be removed: Input/output error"):
        remove_engine_state(launch)
