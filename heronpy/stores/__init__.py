"""Key-value stores for live views, and what it takes to write one."""

from heronpy.hashing import decode_key, encode_key
from heronpy.stores._by_url import as_store, store_at
from heronpy.stores._key_label import key_label
from heronpy.stores._postgres import PostgresStore
from heronpy.stores._redis import RedisStore
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter
from heronpy.stores._sqlite import SqliteStore

__all__ = [
    "PostgresStore",
    "RedisStore",
    "SqliteStore",
    "Store",
    "StoreContext",
    "StoreReader",
    "StoreWriter",
    "as_store",
    "decode_key",
    "encode_key",
    "key_label",
    "store_at",
]
