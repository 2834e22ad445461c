"""The data plane's encoding: frames of batches, and batches of tuples, roots or control.

Ids and roots are unsigned 64-bit numbers, little-endian, packed; in memory they are numpy arrays.
"""

from heronpy.wire._batches import (
    ACK,
    CONTROL,
    DATA,
    FAIL,
    RESET_TIMEOUT,
    SEQUENCE_BITS,
    SEQUENCE_MASK,
    U16,
    U32,
    U64,
    control_batch,
    root_batch,
    tuple_batch,
)
from heronpy.wire._decode import MalformedBatch, Roots, Tuples, decode_control, decode_roots, decode_tuples

__all__ = [
    "ACK",
    "CONTROL",
    "DATA",
    "FAIL",
    "RESET_TIMEOUT",
    "SEQUENCE_BITS",
    "SEQUENCE_MASK",
    "U16",
    "U32",
    "U64",
    "MalformedBatch",
    "Roots",
    "Tuples",
    "control_batch",
    "decode_control",
    "decode_roots",
    "decode_tuples",
    "root_batch",
    "tuple_batch",
]
