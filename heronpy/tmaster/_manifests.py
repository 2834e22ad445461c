"""Manifests and retention of checkpoints: what the Topology Master has the Checkpoint Manager beside it do."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from heronpy.errors import CheckpointError, HeronError, is_lasting
from heronpy.plan import StateOwner
from heronpy.proto import checkpoint_pb2
from heronpy.runtime import Launch
from heronpy.tmaster.checkpoints import (
    CheckpointLost,
    CheckpointSize,
    DiscardCheckpoints,
    FindIntact,
    IntactFound,
    IntactUnknown,
    ManifestFailed,
    ManifestWritten,
    WriteManifest,
)

if TYPE_CHECKING:
    from heronpy.ckptmgr.client import CheckpointClient

Answer = ManifestWritten | ManifestFailed | CheckpointLost | IntactFound | IntactUnknown

log = logging.getLogger(__name__)

HOLD_S: Final = 15.0
"""So long merges wait for a restore, unless it is said again."""
HOLD_EVERY_S: Final = 5.0


class RestoreHold:
    """When to say that merges are to wait, because tasks restore, or are about to. Pure."""

    def __init__(self) -> None:
        self._held_s: float | None = None
        """When it was said; None: they go on."""

    def ordered(self, order: checkpoint_pb2.CheckpointOrder, now_s: float) -> float | None:
        """An order is sent. For how many seconds they are to wait, 0: no more; None: nothing is to be said."""
        if order.HasField("resume"):
            held, self._held_s = self._held_s is not None, None
            return 0.0 if held else None
        due = self._held_s is None or now_s - self._held_s >= HOLD_EVERY_S
        reads = order.HasField("read_ahead") or (order.HasField("restore") and order.restore.checkpoint)
        if not (reads and due):
            return None
        self._held_s = now_s
        return HOLD_S


class Manifests:
    """Calls to the Checkpoint Manager of one container. All have a deadline, and none ends the Topology Master."""

    def __init__(self, launch: Launch, container: int, answered: Callable[[Answer], None]) -> None:
        """Prepare to call the Checkpoint Manager of `container`; `answered` is called with what became of manifests."""
        self._launch, self._container, self._answered = launch, container, answered

    async def hold_merges(self, for_s: float) -> None:
        """Have merges wait while tasks restore, or go on. If that fails, they compete."""
        from heronpy.ckptmgr.client import CheckpointClient

        with contextlib.suppress(HeronError):
            async with CheckpointClient(self._launch, container=self._container, process="tmaster") as client:
                await client.hold_merges(for_s)

    async def carry_out(
        self, effect: WriteManifest | DiscardCheckpoints | FindIntact, owners: Sequence[StateOwner] = ()
    ) -> None:
        """Do what an effect asks for. What cannot be deleted now is named again with the next commit.

        Args:
            effect: It.
            owners: For a manifest: which operators have the state.
        """
        # Here, because only topologies with checkpoints need it, and everybody waits for a Topology Master to start.
        from heronpy.ckptmgr.client import CheckpointClient

        async with CheckpointClient(self._launch, container=self._container, process="tmaster") as client:
            if isinstance(effect, WriteManifest):
                self._answered(await _written(client, effect, owners))
                return
            if isinstance(effect, FindIntact):
                self._answered(await _intact(client, effect))
                return
            try:
                deleted, lost = await client.discard(keep=effect.keep, before=effect.before)
            except HeronError as e:
                log.warning("checkpoints before %d are not deleted yet: %s", effect.before, e)
                return
            log.debug("%d names of checkpoints before %d are deleted", deleted, effect.before)
            if lost:
                self._answered(CheckpointLost(max(effect.keep), lost, time.monotonic()))


async def _written(client: CheckpointClient, effect: WriteManifest, owners: Sequence[StateOwner]) -> Answer:
    try:
        size = await client.write_manifest(
            checkpoint=effect.checkpoint,
            epoch=effect.epoch,
            previous=effect.previous,
            objects=effect.objects,
            tasks=effect.tasks,
            duration_s=effect.duration_s,
            owners=owners,
        )
    except HeronError as e:
        damage = isinstance(e, CheckpointError)
        return ManifestFailed(effect.checkpoint, effect.epoch, str(e), time.monotonic(), damage, is_lasting(e))
    log.info("checkpoint %d has %d bytes, %d of them new", effect.checkpoint, size.total, size.added)
    stored = CheckpointSize(size.total, size.added, size.logged)
    return ManifestWritten(effect.checkpoint, effect.epoch, time.monotonic(), stored)


async def _intact(client: CheckpointClient, effect: FindIntact) -> Answer:
    try:
        found = await client.find_intact(effect.committed, effect.tasks)
    except HeronError as e:
        return IntactUnknown(effect.epoch, str(e), time.monotonic())
    return IntactFound(effect.epoch, found.checkpoint, found.refused, time.monotonic(), found.logged_tasks)
