"""Whether files are on a disk of this host, or somewhere that may hang for as long as a network does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_LOCAL: Final = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs")
)
_MOUNTINFO = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def on_local_disk(path: Path, mountinfo: str | None = None) -> bool:
    """Whether a path is in a file system that is known to be of this host. Blocks where the path does.

    Args:
        path: Need not exist.
        mountinfo: As /proc/self/mountinfo, see proc_pid_mountinfo(5); None: read that.
    """
    if mountinfo is None:
        try:
            mountinfo = os.fsdecode(_MOUNTINFO.read_bytes())  # a mount may have any name
        except OSError:  # not Linux
            return False
    path, best, kind = path.resolve(), Path(), ""
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        mount = Path(_ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields.split()[4]))
        if path.is_relative_to(mount) and len(mount.parts) >= len(best.parts):  # of two at one place, the later is seen
            best, kind = mount, tail.split()[0]
    return kind in _LOCAL
