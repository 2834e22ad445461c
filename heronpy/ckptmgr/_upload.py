"""A snapshot on its way to the Checkpoint Manager: in pieces of one size, which are kept as long as they are few."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final

from heronpy.config import KIB, MIB
from heronpy.proto import checkpoint_pb2
from heronpy.rpc import write_message

PIECE_BYTES: Final = 256 * KIB
"""Most of a message to the Checkpoint Manager. Larger pieces are divided, smaller ones sent together: measured, a MB
costs this process 0.4 ms of CPU so, 2 ms in pieces of 1 MiB, and 4 ms in pieces of 10 KB."""
KEPT_BYTES: Final = 4 * MIB
"""Of a snapshot that is being stored, so that a small one is sent again when the Checkpoint Manager was restarted."""


class Upload:
    """Pieces that are sent, and sent again as long as they are few."""

    def __init__(self, pieces: AsyncIterable[bytes]) -> None:
        self._rest = _of_one_size(pieces)
        self.kept: list[bytes] | None = []
        """What was sent; None if that is too much to be kept."""

    async def send(self, name: str, call: Any) -> None:
        """Send everything.

        Raises:
            StreamLost: the stream was lost, or ended by the other side.
        """
        await write_message(call, checkpoint_pb2.SavePiece(name=name))
        for piece in self.kept or ():
            await write_message(call, checkpoint_pb2.SavePiece(data=piece))
        async for piece in self._rest:
            if self.kept is not None:
                self.kept.append(piece)
                if len(self.kept) * PIECE_BYTES > KEPT_BYTES:
                    self.kept = None
            await write_message(call, checkpoint_pb2.SavePiece(data=piece))
        await write_message(call, checkpoint_pb2.SavePiece(last=True))


async def _of_one_size(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    some: list[bytes] = []
    size = 0
    async for piece in pieces:
        some.append(piece)
        size += len(piece)
        if size < PIECE_BYTES:
            continue
        data = some[0] if len(some) == 1 else b"".join(some)
        for at in range(0, size - PIECE_BYTES + 1, PIECE_BYTES):
            yield data[at : at + PIECE_BYTES]
        some = [data[size - size % PIECE_BYTES :]]
        size %= PIECE_BYTES
    if size:
        yield b"".join(some)
