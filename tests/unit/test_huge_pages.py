"""What a process keeps comes into huge pages, and takes no more room there."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.runtime import HugePages

PRELUDE = """
import mmap, time
from heronpy.runtime import HugePages
def kb(field):
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
pages = HugePages.available()
"""


def told_by(program: str) -> list[int]:
    if HugePages.available() is None:
        pytest.skip("this kernel has no huge pages, or is told to make none")
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=600)
    if "EINVAL" in done.stdout:
        pytest.skip("this kernel is older than 6.1, and does not collapse memory when asked")
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]


def test_a_large_dictionary_and_its_keys_come_into_huge_pages_and_take_no_more_room() -> None:
    huge_kb, grown_kb = told_by("""
known = {str(n): n for n in range(400_000)}
before = kb("Rss")
try:
    for _ in range(200):  # the kernel may have to make room first
        list(pages.round())
        if kb("AnonHugePages") >= 20_000:
            break
        time.sleep(0.2)
except OSError:
    print("EINVAL"), exit()
print(kb("AnonHugePages"), kb("Rss") - before)
""")
    assert huge_kb >= 20_000, "the table takes 20 MB, and the keys as much"
    assert grown_kb < 6_000, "a block has up to a tenth of it empty"


def test_what_a_fork_shares_is_not_copied_until_it_is_written() -> None:
    shared_kb, own_kb = told_by("""
import os
area = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.write(bytes(64 << 20))
if child := os.fork():
    os.waitpid(child, 0)
    os._exit(0)
try:
    list(pages.round())
    list(pages.round())
    shared = kb("AnonHugePages")
    area.seek(0)
    area.write(bytes(64 << 20))
    list(pages.round())
    list(pages.round())
except OSError:
    print("EINVAL"), exit()
print(shared, kb("AnonHugePages"), flush=True)
""")
    assert shared_kb < 6_000
    assert own_kb > 40_000


def test_memory_that_is_hardly_used_stays_as_it_is() -> None:
    (grown_kb,) = told_by("""
area = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for begin in range(0, 64 << 20, 1 << 20):
    area[begin] = 1
before = kb("Rss")
try:
    list(pages.round())
    list(pages.round())
except OSError:
    print("EINVAL"), exit()
print(kb("Rss") - before)
""")
    assert grown_kb < 6_000, "64 MB, of which 64 pages were used"


def test_what_stays_filled_is_copied_once_and_what_comes_and_goes_never() -> None:
    """By a stand-in for the call into the kernel: what the kernel itself does is above."""
    size, copied = 2 << 20, list[int]()

    def madvise(block: int, _length: int, _advice: int) -> int:
        copied.append(block)
        return 0

    with mmap.mmap(-1, 16 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        begin = ctypes.addressof(anchor := ctypes.c_char.from_buffer(area))
        del anchor
        kept, passing, again = (-(-begin // size) * size + number * size for number in (1, 3, 5))
        pages = HugePages(madvise, size)
        list(pages.round())
        list(pages.round())
        copied.clear()  # what else this process keeps
        for filled_now in ({kept, passing}, {kept, again}, {kept, passing}, {kept, again}, {kept, again}):
            for block in (kept, passing, again):
                if block in filled_now:
                    area[block - begin : block - begin + size] = bytes([1]) * size
                else:
                    area.madvise(mmap.MADV_DONTNEED, block - begin, size)
            list(pages.round())
    assert [block for block in copied if begin <= block < begin + 16 * size] == [kept, again]


def test_an_administrator_who_wants_none_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = tmp_path / "enabled"
    setting.write_text("always madvise [never]\n")
    monkeypatch.setattr("heronpy.runtime._huge_pages._SETTING", setting)
    assert HugePages.available() is None
    monkeypatch.setattr("heronpy.runtime._huge_pages._SETTING", tmp_path / "missing")
    assert HugePages.available() is None
