"""Live views in SQLite files: nothing to install, nothing to run."""

from __future__ import annotations

from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter


class SqliteStore(Store):
    """Keeps a view in SQLite files in the job's directory, one for each writing task."""

    def __init__(self, *, durable: bool = False) -> None:
        self.durable = durable

    def writer(self, context: StoreContext, writer_id: str) -> StoreWriter:
        raise NotImplementedError("being written")

    def reader(self, context: StoreContext) -> StoreReader:
        raise NotImplementedError("being written")
