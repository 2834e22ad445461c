"""Memory in huge pages.

What a task keeps, such as a dictionary of keys, is read at random: with pages of 4 KB almost every read also misses
the TLB, which on a virtual machine costs more than the read. A page of 2 MB has room for tens of thousands of keys.

The kernel makes huge pages by itself only where it is set to `always`; many distributions set `madvise`. Python
allocates pieces smaller than a huge page, so advice at that time would not help: memory is collapsed once it is filled.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import io
import mmap
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Final

_MADV_COLLAPSE: Final = 25
"""Linux 6.1; not in `mmap` of Python 3.11."""
_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SIZE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")

_PAGEMAP: Final = Path("/proc/self/pagemap")
"""A number for each page, see proc(5)."""
_ENTRY_BYTES: Final = 8
_HIGH_BYTES: Final = slice(7 if sys.byteorder == "little" else 0, None, _ENTRY_BYTES)
_PRESENT_HERE_ONLY: Final = 0x81
"""In the high byte, bits 63 and 56: the page is in memory, and of this process alone."""
_RESIDENT_MIN: Final = 0.9
"""Memory that is used less than that stays as it is: filled up, it would take more memory."""
_SHARE: Final = 0.05
"""Of the time at most so much is spent on it."""
_PAUSE_MIN_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0
_PAUSE_GROWTH: Final = 1.5


class HugePages:
    """What collapses the memory of this process, block by block."""

    def __init__(self, madvise: Callable[[int, int, int], int], size: int):
        self._madvise, self._size = madvise, size
        self._filled_before: set[int] = set()
        """The addresses of the blocks that were filled in the round before."""
        self._collapsed: set[int] = set()
        """Those that are in huge pages, or were: what has been filled again since then is no longer what is kept."""

    @classmethod
    def available(cls) -> HugePages | None:
        """None where the kernel has none, or its administrator wants none."""
        try:
            if "[never]" in _SETTING.read_text():
                return None
            size = int(_SIZE.read_text())
        except OSError:  # not Linux, or a kernel without them
            return None
        libc = ctypes.CDLL(None, use_errno=True)
        libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        return cls(libc.madvise, size)

    def round(self) -> Iterator[None]:
        """Collapse what is filled, and was in the round before; a step for each block.

        Memory that comes and goes with batches of tuples would be copied needlessly: it is rarely filled twice,
        and a block that stays filled is copied once. Nor is memory copied that a fork still shares with others. A step
        takes a millisecond or two, without the interpreter's lock. What the kernel refuses is left for the next round.

        Raises:
            OSError: the kernel cannot do that (EINVAL: it is older than 6.1), or does not show which pages are shared.
        """
        before, self._filled_before = self._filled_before, set()
        with _PAGEMAP.open("rb", buffering=0) as pagemap:
            for begin, end in _anonymous():
                first = -(-begin // self._size) * self._size
                blocks = range(first, end - self._size + 1, self._size)
                self._filled_before.update(block for block in blocks if self._filled(block, pagemap))
        self._collapsed &= self._filled_before
        for block in sorted((self._filled_before & before) - self._collapsed):
            if self._madvise(block, self._size, _MADV_COLLAPSE) == 0:
                self._collapsed.add(block)
                yield
            elif (number := ctypes.get_errno()) == errno.EINVAL:
                raise OSError(number, "madvise(MADV_COLLAPSE)")

    def _filled(self, block: int, pagemap: io.FileIO) -> bool:
        pages = self._size // mmap.PAGESIZE
        pagemap.seek(block // mmap.PAGESIZE * _ENTRY_BYTES)
        own = pagemap.read(pages * _ENTRY_BYTES)[_HIGH_BYTES].count(_PRESENT_HERE_ONLY)
        return own >= _RESIDENT_MIN * pages


def _anonymous() -> Iterator[tuple[int, int]]:
    """Begin and end of each part of this process's memory that is its own and of no file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, access, _offset, _device, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and (not name or name[0] == "[heap]" or name[0].startswith("[anon")):
            begin, _, end = area.partition("-")
            yield int(begin, 16), int(end, 16)


async def use_huge_pages() -> None:
    """Keep the memory of this process in huge pages, as far as it is filled; until cancelled."""
    pages = HugePages.available()
    if pages is None:
        return
    pause_s = _PAUSE_MIN_S
    while True:
        await asyncio.sleep(pause_s)
        began_s = thread_time()
        try:
            for _ in pages.round():
                await asyncio.sleep((thread_time() - began_s) / _SHARE)
                began_s = thread_time()
        except OSError:
            return  # not with this kernel
        pause_s = min(_PAUSE_GROWTH * pause_s, _PAUSE_MAX_S)
