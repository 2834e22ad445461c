"""A file that is replaced is whole at every moment."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from heronpy.files import replacing
from heronpy.runtime import replace_file


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    contents = [bytes([n]) * 200_000 for n in range(4)]
    replace_file(path, contents[0])
    done = threading.Event()

    def write() -> None:
        for n in range(200):
            replace_file(path, contents[n % 4], durable=False)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen = set()
    while not done.is_set():
        seen.add(path.read_bytes())
    thread.join()
    assert seen <= set(contents)
    assert os.listdir(tmp_path) == ["plan"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    replace_file(path, "old")

    def fill_the_disk() -> None:
        with replacing(path) as f:
            f.write(b"half of the n")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fill_the_disk()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan"]


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "below" / "token"
    before = os.umask(0)
    try:
        with replacing(path, mode=0o600) as f:
            assert stat.S_IMODE(os.fstat(f.fileno()).st_mode) == 0o600
            f.write(b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"secret"


def test_a_link_is_replaced_and_its_target_untouched(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("theirs")
    link.symlink_to(target)
    replace_file(link, "ours")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("theirs", "ours", False)
