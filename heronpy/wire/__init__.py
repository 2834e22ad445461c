"""The data plane's encoding: frames of batches, and batches of tuples or roots.

Ids and roots are unsigned 64-bit numbers, little-endian, packed; in memory they are numpy arrays.
"""

from heronpy.wire._batches import (
    ACK,
    DATA,
    FAIL,
    RESET_TIMEOUT,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    U32,
    U64,
    root_batch,
    tuple_batch,
)

__all__ = [
    "ACK",
    "DATA",
    "FAIL",
    "RESET_TIMEOUT",
    "SEQUENCE_BITS",
    "SEQUENCE_MASK",
    "U32",
    "U64",
    "root_batch",
    "tuple_batch",
]
