"""A watch outlives whatever goes wrong in the thread that looks for it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from heronpy.statemgr import FileStateManager, Kind

IO_ERROR = OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("error", [IO_ERROR, MemoryError()], ids=["EIO", "MemoryError"])
def test_a_value_that_could_not_be_read_is_told_when_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failed, told = threading.Event(), threading.Event()
    read = os.pread

    def fails_once(fd: int, length: int, offset: int) -> bytes:
        if failed.is_set():
            return read(fd, length, offset)
        failed.set()
        raise error

    monkeypatch.setattr(os, "pread", fails_once)  # no file can be made to fail once
    with FileStateManager(tmp_path, poll_interval_s=0.01) as sm:
        sm.set(Kind.PACKINGPLANS, "words", b"plan")
        sm.watch(Kind.PACKINGPLANS, "words", lambda value: told.set() if value == b"plan" else None)
        assert failed.wait(300)
        assert told.wait(300)
