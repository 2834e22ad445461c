"""Keys that are not in memory: a file for what a task has of its state beyond its budget.

The file is a cache of what is in checkpoints, never the truth. It has no name, so it is gone with its process, however
that ends. It is LMDB's: measured beside RocksDB's (`rocksdict`) with a million entries of 90 bytes, a get takes 2.7 µs
of CPU instead of 10.6, a put 5.6 instead of 4.3, and the next entry of all 0.2 instead of 0.5.

What is read of the file is mapped, and so counts as memory of the process. Mapping it anew gives that back.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from pickle import dumps, loads
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from heronpy.errors import ConfigError, UnavailableError
from heronpy.hashing import decode_key
from heronpy.state._immutable import immutable
from heronpy.state._key_bytes import comes_back, key_bytes
from heronpy.state._owed import Written, stored_value
from heronpy.state._schema import CODECS, Schema

MAP_BYTES: Final = 1 << 40
"""Most of the file. Only addresses are taken for it."""
READ_AT_ONCE: Final = 1024
_READ_BYTES = 256 * 1024
_ENTRIES_PER_LOOK = 64  # a page fault maps 16 pages
_DATABASES_MAX = 512
_KEY_BYTES_MAX = 480  # of 511, with a time before it
_LONG = b"\xc1"  # no key is encoded so
_TIME_BYTES = 8

_Entry = tuple[int, bytes | None, Any]
"""When it was written, in ms since 1970; the pickled key where it cannot be had from its encoding; the value as in a
checkpoint."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Entry).decode


class ColdFile:
    """The file of a task, made when it is first needed."""

    def __init__(self, directory: Path, mapped_bytes_max: int) -> None:
        """Nothing is made yet.

        Args:
            directory: On a disk.
            mapped_bytes_max: How much of it may count as memory of the process, about.

        Raises:
            ConfigError: the package that it needs is not installed.
        """
        try:
            import lmdb
        except ImportError:
            raise ConfigError(
                "topology.state.memory.mb needs the package lmdb: pip install 'heron-engine[state]'"
            ) from None
        self._lmdb: Any = lmdb
        self._directory = directory
        self._mapped_bytes_max = mapped_bytes_max
        self._used = 0
        self._databases = 0
        self._unmapped_bytes = 0
        self.environment: Any = None

    def new_database(self) -> Any:
        """A table in it; the file is made if there is none."""
        if self.environment is None:
            with self.translated(), tempfile.TemporaryFile(dir=self._directory) as file:
                self.environment = self._lmdb.open(
                    f"/proc/self/fd/{file.fileno()}",
                    subdir=False,
                    lock=False,
                    sync=False,
                    metasync=False,
                    readahead=False,
                    meminit=False,
                    map_size=MAP_BYTES,
                    max_dbs=_DATABASES_MAX,
                )
            self._unmapped_bytes = _mapped_bytes()
        with self.translated():
            self._databases += 1
            return self.environment.open_db(b"%d" % self._databases)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Raise what goes wrong with the file as UnavailableError: no tuple is to blame for it."""
        try:
            yield
        except (OSError, self._lmdb.Error) as e:
            raise UnavailableError(f"the file for state beyond memory in {self._directory}: {e}") from e

    def used(self, entries: int = 1) -> None:
        """So many entries were read or written; no transaction is open."""
        self._used += entries
        if self._used < _ENTRIES_PER_LOOK:
            return
        self._used = 0
        if _mapped_bytes() - self._unmapped_bytes > self._mapped_bytes_max:
            self.environment.set_mapsize(MAP_BYTES)
            self._unmapped_bytes = _mapped_bytes()

    def close(self) -> None:
        """Free the disk."""
        if self.environment is not None:
            self.environment.close()


class ColdEntries(Mapping[Any, Any]):
    """The entries of one state that are in the file. A mutable value is read as `Written`, and is a new object."""

    def __init__(self, file: ColdFile, schema: Schema, *, by_time: bool) -> None:
        """Empty.

        Args:
            file: Where to.
            schema: Of the state.
            by_time: Whether they are to be found by the time of writing, too.
        """
        self._file = file
        self._schema = schema
        self._decode_value = CODECS[schema.codec].decode
        self._by_time = by_time
        self._entries: Any = None
        self._times: Any = None
        self._count = 0
        self._hidden: dict[Any, None] = {}
        """Keys that are in the file and could not be removed."""
        self.oldest_ms: int | None = None
        """The least time of those that `pop_oldest` returns."""

    def get(self, key: Any, default: Any = None) -> Any:
        entry = self._entry(key)
        return default if entry is None else self._value(entry)

    def __getitem__(self, key: Any) -> Any:
        entry = self._entry(key)
        if entry is None:
            raise KeyError(key)
        return self._value(entry)

    def __contains__(self, key: Any) -> bool:
        return self._count > 0 and key not in self._hidden and self._get(_stored_key(key)) is not None

    def __iter__(self) -> Iterator[Any]:
        after = b""
        while rows := self._rows(after):
            for stored, entry in rows:
                if (key := _key(stored, _decode(entry))) not in self._hidden:
                    yield key
            after = rows[-1][0]

    def __len__(self) -> int:
        return self._count - len(self._hidden)

    def written_ms(self, key: Any) -> int | None:
        """When it was written; None: it is not here."""
        entry = self._entry(key)
        return None if entry is None else entry[0]

    def rows(self) -> Iterator[list[tuple[Any, bytes | None, Any, int]]]:
        """All entries, some at a time, as checkpoints have them. They must not change until the last one is read."""
        after = b""
        while rows := self._rows(after):
            after = rows[-1][0]
            entries = [(stored, _decode(entry)) for stored, entry in rows]
            found = [(_key(stored, entry), entry[1], entry[2], entry[0]) for stored, entry in entries]
            yield [row for row in found if row[0] not in self._hidden] if self._hidden else found

    def put(self, items: Iterable[tuple[Any, Any, int]]) -> list[Any]:
        """Write keys with their values and times. Those whose value cannot be encoded are returned, and not written.

        Raises:
            UnavailableError: it cannot be written. Nothing is.
        """
        rows, written, refused = [], [], []
        for key, value, stamp in items:
            try:
                data = stored_value(value, self._schema.codec)
            except BaseException:  # what the user's __reduce__ raises; a checkpoint says so
                refused.append(key)
                continue
            stored = _stored_key(key)
            original = None if comes_back(key) and stored[:1] != _LONG else dumps(key, 5)
            rows.append((stored, _encode((stamp, original, data)), stamp))
            written.append(key)
        rows.sort()
        if self._entries is None:
            times = self._file.new_database() if self._by_time else None
            self._entries, self._times = self._file.new_database(), times
        with self._file.translated(), self._file.environment.begin(write=True) as txn:
            for stored, entry, stamp in rows:
                if self._times is None:
                    txn.put(stored, entry, db=self._entries)
                    continue
                if (old := txn.replace(stored, entry, db=self._entries)) is not None:
                    txn.delete(_timed(_decode(old)[0], stored), db=self._times)
                if stamp:
                    txn.put(_timed(stamp, stored), b"", db=self._times)
            looked = self._looked(txn)
        self._count, self.oldest_ms = looked
        for key in written:
            self._hidden.pop(key, None)
        self._file.used(len(rows))
        return refused

    def remove(self, keys: Sequence[Any]) -> None:
        """Forget keys, if they are here.

        Raises:
            UnavailableError: it cannot be written. Nothing is.
        """
        if not self._count or not keys:
            return
        keys = [*self._hidden, *keys]
        with self._file.translated(), self._file.environment.begin(write=True) as txn:
            for stored in sorted(map(_stored_key, keys)):
                old = txn.pop(stored, db=self._entries)
                if old is not None and self._times is not None:
                    txn.delete(_timed(_decode(old)[0], stored), db=self._times)
            looked = self._looked(txn)
        self._count, self.oldest_ms = looked
        self._hidden.clear()
        self._file.used(len(keys))

    def hide(self, keys: Iterable[Any]) -> None:
        """Keys that cannot be removed are not found any more, until they are written again or removed."""
        self._hidden.update([(key, None) for key in keys if key in self])

    def pop_oldest(self, until_ms: int, at_most: int) -> list[Any]:
        """Some keys that were written until a time. The entries stay, but are not found by time any more.

        Raises:
            UnavailableError: it cannot be written. They are found again.
        """
        if self.oldest_ms is None or self.oldest_ms > until_ms:
            return []
        keys = []
        with self._file.translated(), self._file.environment.begin(write=True) as txn:
            for timed in list(islice(txn.cursor(db=self._times).iternext(values=False), at_most)):
                if int.from_bytes(timed[:_TIME_BYTES]) > until_ms:
                    break
                txn.delete(timed, db=self._times)
                stored = timed[_TIME_BYTES:]
                keys.append(_key(stored, _decode(txn.get(stored, db=self._entries))))
            looked = self._looked(txn)
        self._count, self.oldest_ms = looked
        self._file.used(len(keys))
        return keys

    def _looked(self, txn: Any) -> tuple[int, int | None]:
        """How many there are, and the least time, once the transaction is committed."""
        count: int = txn.stat(self._entries)["entries"]
        if self._times is None:
            return count, None
        first = next(txn.cursor(db=self._times).iternext(values=False), None)
        return count, None if first is None else int.from_bytes(first[:_TIME_BYTES])

    def _entry(self, key: Any) -> _Entry | None:
        if not self._count or key in self._hidden or (data := self._get(_stored_key(key))) is None:
            return None
        entry: _Entry = _decode(data)
        return entry

    def _get(self, stored: bytes) -> bytes | None:
        with self._file.translated():
            with self._file.environment.begin(self._entries) as txn:
                data: bytes | None = txn.get(stored)
            self._file.used()
        return data

    def _value(self, entry: _Entry) -> Any:
        value = entry[2]
        if type(value) is not Ext:
            return value
        value = self._decode_value(value.data)
        return value if immutable(value) else Written(None, value)

    def _rows(self, after: bytes) -> list[tuple[bytes, bytes]]:
        """The next ones in the order of their keys."""
        if not self._count:
            return []
        rows: list[tuple[bytes, bytes]] = []
        size = 0
        with self._file.translated():
            with self._file.environment.begin(self._entries) as txn:
                cursor = txn.cursor()
                if cursor.set_range(after + b"\0") if after else cursor.first():
                    for stored, entry in islice(cursor, READ_AT_ONCE):
                        rows.append((stored, entry))
                        size += len(entry)
                        if size > _READ_BYTES:
                            break
            self._file.used(len(rows))
        return rows


def _stored_key(key: Any) -> bytes:
    data = key_bytes(key)
    return data if len(data) <= _KEY_BYTES_MAX else _LONG + blake2b(data).digest()


def _key(stored: bytes, entry: _Entry) -> Any:
    return decode_key(stored) if entry[1] is None else loads(entry[1])


def _timed(stamp: int, stored: bytes) -> bytes:
    return stamp.to_bytes(_TIME_BYTES) + stored


def _mapped_bytes() -> int:
    """Memory of this process that is the contents of files."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[2]) * os.sysconf("SC_PAGE_SIZE")
