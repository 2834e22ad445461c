"""Manifests and retention of checkpoints: what the Topology Master has the Checkpoint Manager beside it do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from heronpy.errors import CheckpointError, HeronError
from heronpy.runtime import Launch
from heronpy.tmaster.checkpoints import (
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

Answer = ManifestWritten | ManifestFailed | IntactFound | IntactUnknown

log = logging.getLogger(__name__)


class Manifests:
    """Calls to the Checkpoint Manager of one container. All have a deadline, and none ends the Topology Master."""

    def __init__(self, launch: Launch, container: int, answered: Callable[[Answer], None]) -> None:
        """Prepare to call the Checkpoint Manager of `container`; `answered` is called with what became of manifests."""
        self._launch, self._container, self._answered = launch, container, answered

    async def carry_out(self, effect: WriteManifest | DiscardCheckpoints | FindIntact) -> None:
        """Do what an effect asks for. What cannot be deleted now is named again with the next commit."""
        # Here, because only topologies with checkpoints need it, and everybody waits for a Topology Master to start.
        from heronpy.ckptmgr.client import CheckpointClient

        async with CheckpointClient(self._launch, container=self._container, process="tmaster") as client:
            if isinstance(effect, WriteManifest):
                self._answered(await _written(client, effect))
                return
            if isinstance(effect, FindIntact):
                self._answered(await _intact(client, effect))
                return
            try:
                deleted = await client.discard(keep=effect.keep, before=effect.before)
            except HeronError as e:
                log.warning("checkpoints before %d are not deleted yet: %s", effect.before, e)
            else:
                log.debug("%d names of checkpoints before %d are deleted", deleted, effect.before)


async def _written(client: CheckpointClient, effect: WriteManifest) -> Answer:
    try:
        size = await client.write_manifest(
            checkpoint=effect.checkpoint,
            epoch=effect.epoch,
            previous=effect.previous,
            objects=effect.objects,
            tasks=effect.tasks,
            duration_s=effect.duration_s,
        )
    except HeronError as e:
        damage = isinstance(e, CheckpointError)
        return ManifestFailed(effect.checkpoint, effect.epoch, str(e), time.monotonic(), damage)
    log.info("checkpoint %d has %d bytes, %d of them new", effect.checkpoint, size.total, size.added)
    stored = CheckpointSize(size.total, size.added, size.logged)
    return ManifestWritten(effect.checkpoint, effect.epoch, time.monotonic(), stored)


async def _intact(client: CheckpointClient, effect: FindIntact) -> Answer:
    try:
        found = await client.find_intact(effect.committed, effect.tasks)
    except HeronError as e:
        return IntactUnknown(effect.epoch, str(e), time.monotonic())
    return IntactFound(effect.epoch, found.checkpoint, found.refused, time.monotonic(), found.logged_tasks)
