"""Directories that no other user can change, whatever the umask."""

from __future__ import annotations

from pathlib import Path


def make_private(path: Path, *, exist_ok: bool = False) -> None:
    """Make a directory for its owner alone; directories above it that are missing are the owner's to write to, too.

    A umask that lets a group or others write would let them move away what is in these.

    Raises:
        FileExistsError: it exists, and may not.
        OSError: it cannot be made.
    """
    for above in reversed(path.parents):
        if not above.exists():
            above.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=exist_ok)
