"""Key-value stores for live views, and what it takes to write one."""

from heronpy.hashing import decode_key, encode_key
from heronpy.stores._key_label import key_label
from heronpy.stores._redis import RedisStore
from heronpy.stores._spi import Store, StoreContext, StoreReader, StoreWriter
from heronpy.stores._sqlite import SqliteStore

__all__ = [
    "RedisStore",
    "SqliteStore",
    "Store",
    "StoreContext",
    "StoreReader",
    "StoreWriter",
    "decode_key",
    "encode_key",
    "key_label",
]
