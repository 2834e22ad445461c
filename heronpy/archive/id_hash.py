"""A 64-bit hash of ids that is the same in every process, release and machine: it is in the files.

Words of 8 bytes are mixed by multiplication and rotation, ending in MurmurHash3's finalizer (fmix64, A. Appleby), over
a whole Arrow array at once. It spreads; it does not withstand someone who chooses ids to collide, so equal hashes are
compared by id where it matters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from heronpy.archive._arrow import pa

_K1 = np.uint64(0x9E3779B97F4A7C15)
_K2 = np.uint64(0xC2B2AE3D27D4EB4F)
_F1 = np.uint64(0xFF51AFD7ED558CCD)
_F2 = np.uint64(0xC4CEB9FE1A85EC53)
_33, _31, _29 = np.uint64(33), np.uint64(31), np.uint64(29)
_MASKS = np.array([(1 << (8 * width)) - 1 for width in range(9)], dtype=np.uint64)


def id_hashes(ids: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Hash an Arrow string array without nulls; int64."""
    if len(ids) == 0:
        return np.zeros(0, np.int64)
    _, offsets_buffer, data = ids.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[ids.offset : ids.offset + len(ids) + 1].astype(np.int64)
    text = data.to_pybytes()[offsets[0] : offsets[-1]] if data is not None else b""
    # every byte begins a word of 8, so that a word is read wherever an id starts
    words = np.ndarray((len(text) + 1,), "<u8", buffer=text + bytes(8), strides=(1,))
    at = offsets[:-1] - offsets[0]
    lengths = np.diff(offsets)
    hashes = lengths.astype(np.uint64) * _K1
    rows = np.arange(len(ids))
    for begin in range(0, int(lengths.max()), 8):
        if begin:
            rows = rows[lengths[rows] > begin]
        left = np.minimum(lengths[rows] - begin, 8)
        word = words[at[rows] + begin] & _MASKS[np.maximum(left, 0)]
        mixed = (hashes[rows] ^ (word * _K2)) * _K1
        hashes[rows] = (mixed ^ (mixed >> _29)) + (mixed << _31)
    signed: np.ndarray[Any, np.dtype[np.int64]] = _finish(hashes).view(np.int64)
    return signed


def _finish(hashes: Any) -> Any:
    hashes ^= hashes >> _33
    hashes *= _F1
    hashes ^= hashes >> _33
    hashes *= _F2
    hashes ^= hashes >> _33
    return hashes


def hash_sum(hashes: Any) -> int:
    """The sum of hashes modulo 2^64: the same in whatever order and files they are."""
    return int(hashes.view(np.uint64).sum(dtype=np.uint64))


def hash_of(id_: str) -> int:
    """The hash of one id."""
    return int(id_hashes(pa.array([id_], pa.string()))[0])
