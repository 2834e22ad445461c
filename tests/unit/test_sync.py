"""heronpy.files.sync: what cannot be made durable is an error."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from heronpy.files import sync


def _refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fsync(_fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_file_system_without_fsync_of_directories_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sync(tmp_path)
    assert len(synced) == 1
    _refusing(monkeypatch, errno.EINVAL)
    sync(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_names_that_may_not_be_on_the_disk_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    _refusing(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        sync(tmp_path)


def test_a_file_that_refuses_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"row")
    _refusing(monkeypatch, errno.EINVAL)
    with pytest.raises(OSError, match="Invalid argument"):
        sync(path)
