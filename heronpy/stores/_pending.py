"""What a writer holds until it is committed."""

from __future__ import annotations

from typing import Any

from heronpy.hashing import decode_key, encode_key
from heronpy.stores._spi import StoreContext, StoreWriter


class PendingWriter(StoreWriter):
    """A writer that merges with what is stored by itself, row by row."""

    def __init__(self, context: StoreContext) -> None:
        self._monoid = context.monoid
        self._merge = context.monoid.merge
        self._failed = context.failed
        self._pending: dict[int, dict[bytes, Any]] = {}
        """Accumulators by batch and key."""
        self._later: dict[int, dict[bytes, Any]] = {}
        """What came after a commit of which it is unknown whether it is there: that one has it not."""
        self._unsure = False

    def merge(self, key: Any, delta: Any, batch: int = 0) -> None:
        waiting = self._later if self._unsure else self._pending
        rows = waiting.get(batch)
        if rows is None:
            rows = waiting[batch] = {}
        data = encode_key(key)
        rows[data] = self._merge(rows[data], delta) if data in rows else delta

    def commit(self) -> None:
        while self._pending:
            self._commit(None)

    def commit_once(self, name: str, number: int) -> None:
        if self._unsure:
            self._commit(None)
        self._commit((name, number))

    def _commit(self, once: tuple[str, int] | None) -> None:
        """Store what is pending, unless it is there; call `_committed` then."""
        raise NotImplementedError

    def _committed(self) -> None:
        self._pending, self._later = self._later, {}
        self._unsure = False

    def _with_stored(self, key: bytes, stored: bytes, delta: Any) -> bytes:
        """What is to be stored instead of `stored`."""
        try:
            return self._monoid.encode(self._merge(self._monoid.decode(stored), delta))
        except Exception as error:  # of the user's monoid, about the user's values
            if self._failed is None:
                raise
            self._failed(decode_key(key), delta, error)
            return stored
