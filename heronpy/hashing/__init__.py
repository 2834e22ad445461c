"""What is the same in every process, release and restart: where equal keys go, and which bytes they are."""

from heronpy.hashing._encoded_key import decode_key, encode_key
from heronpy.hashing._key_groups import (
    CELL_MASK,
    KEY_GROUPS,
    SPREAD,
    groups_of,
    groups_of_cells,
    index_of_group,
    key_group,
    key_groups,
)
from heronpy.hashing._stable_hash import TEXT_SEED, mix, stable_hash, stable_hashes

__all__ = [
    "CELL_MASK",
    "KEY_GROUPS",
    "SPREAD",
    "TEXT_SEED",
    "decode_key",
    "encode_key",
    "groups_of",
    "groups_of_cells",
    "index_of_group",
    "key_group",
    "key_groups",
    "mix",
    "stable_hash",
    "stable_hashes",
]
