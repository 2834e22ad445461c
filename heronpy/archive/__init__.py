"""The master data set: elements as Parquet, partitioned by batch id, each with an event id.

batch=<id>/<time>-<task>-<random>.parquet    columns id, id_hash, time_ms, and `value` (or `pickled`)
_schema.json                                 codec, batch length, and the elements' type, agreed upon by all writers
_progress/<run>@<task>.json                  how far each task's writer is complete
_new/<batch>@<file>                          files that no batch run has taken note of yet
_tmp/                                        files until they are whole

With the codec "columns" the column `value` is what was archived: a struct for dicts (`SELECT value.user FROM …`), or
text, a number, bytes. What is read equals what was written, but for the order of keys. Rows that Parquet cannot tell
from others say so in `absent` (a missing field, not None) and `ints` (an int in a field that also has floats). A field
has the type of its first value; values of other types are in `other`, and null in `value`.

Names of things that need pyarrow are imported when they are used: `pip install 'heron-engine[spark]'`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.archive._deadletter import FOLDER as DEAD_LETTERS
from heronpy.archive._deadletter import DeadLetters, dead_letter_counts, publish_letters
from heronpy.archive._required import require_arrow

if TYPE_CHECKING:
    from heronpy.archive._announcements import Announcement
    from heronpy.archive._archive import Archive, ArchiveFile
    from heronpy.archive._split import ArchiveSplit, id_hash_groups
    from heronpy.archive._writer import ArchiveWriter
    from heronpy.archive.footer import UnreadableError

__all__ = [
    "DEAD_LETTERS",
    "Announcement",
    "Archive",
    "ArchiveFile",
    "ArchiveSplit",
    "ArchiveWriter",
    "DeadLetters",
    "UnreadableError",
    "dead_letter_counts",
    "id_hash_groups",
    "publish_letters",
    "require_arrow",
]

_IN = {
    "Announcement": "_announcements",
    "Archive": "_archive",
    "ArchiveFile": "_archive",
    "ArchiveSplit": "_split",
    "ArchiveWriter": "_writer",
    "UnreadableError": "footer",
    "id_hash_groups": "_split",
}


def __getattr__(name: str) -> Any:
    if name not in _IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_IN[name]}"), name)
