"""Key-value stores for live views, and what it takes to write one."""

from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter

__all__ = ["Store", "StoreContext", "StoreReader", "StoreWriter"]
