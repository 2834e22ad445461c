"""What an instance has received lately, and may have lost with its death: see `_losses`."""

from __future__ import annotations

from collections import deque

from heronpy.proto import stmgr_pb2


class Delivered:
    """The latest frames that were written to an instance, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        """Keep at most `bytes_max`, and at least one frame."""
        self._frames: deque[bytes] = deque()
        self._bytes, self._bytes_max = 0, bytes_max

    def add(self, frame: bytes) -> None:
        """Keep a frame, and let go of the oldest."""
        self._frames.append(frame)
        self._bytes += len(frame)
        while self._bytes > self._bytes_max and len(self._frames) > 1:
            self._bytes -= len(self._frames.popleft())

    def drain(self) -> list[stmgr_pb2.Batch]:
        """The batches of all frames; nothing is kept afterwards."""
        frames, self._frames, self._bytes = self._frames, deque(), 0
        return [batch for frame in frames for batch in stmgr_pb2.Frame.FromString(frame).batches]
