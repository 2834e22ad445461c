"""Small files that are replaced as a whole: whoever reads one, also after a crash, finds all of it or the old one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from heronpy.files import replace_file


def save_json(path: Path, document: Any) -> None:
    """Write a document, durably.

    Raises:
        OSError: it cannot be written. What was there stays.
    """
    replace_file(path, msgspec.json.encode(document))
