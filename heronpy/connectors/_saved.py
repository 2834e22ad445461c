"""Small files that are replaced as a whole: whoever reads one, also after a crash, finds all of it or the old one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec


def save_json(path: Path, document: Any) -> None:
    """Write a document, durably.

    Raises:
        OSError: it cannot be written. What was there stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary.open("wb") as f:
        f.write(msgspec.json.encode(document))
        f.flush()
        os.fsync(f.fileno())
    temporary.replace(path)
