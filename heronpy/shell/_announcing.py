"""Where a heron-shell can be reached: its address in the container's record in the state manager."""

from __future__ import annotations

import asyncio
import logging

from heronpy.errors import StateError
from heronpy.runtime import Launch
from heronpy.statemgr import Kind, StateManager, container_node, container_record, follow, opened

log = logging.getLogger(__name__)

RETRY_S = 1.0


async def announce(launch: Launch, container: int, incarnation: int, address: str) -> None:
    """Keep the address in the record of this incarnation until cancelled; that of another one is left alone."""
    node = container_node(launch.topology, container)
    async with opened(launch.statemgr) as state:
        async for value in follow(state, Kind.CONTAINERS, node):
            while (new := _announced(value, launch.topology_id, incarnation, address)) is not None:
                value = await _replaced(state, node, value, new)


def _announced(value: bytes | None, topology_id: str, incarnation: int, address: str) -> bytes | None:
    """The record with the address; None: there is nothing to be written."""
    record = container_record(value)
    if value and not record.topology_id:
        log.warning("the record of the container is damaged: its address is announced in the next one")
    if (record.topology_id, record.incarnation) != (topology_id, incarnation) or record.shell_endpoint == address:
        return None
    record.shell_endpoint = address
    return record.SerializeToString()


async def _replaced(state: StateManager, node: str, value: bytes | None, new: bytes) -> bytes | None:
    """Replace a record, or read the one that has come in between. Returns what is there."""
    while True:
        try:
            if await asyncio.to_thread(state.set_if, Kind.CONTAINERS, node, new, expected=value):
                return new
            return await asyncio.to_thread(state.get, Kind.CONTAINERS, node)
        except StateError as e:
            log.warning("the address of the heron-shell is not announced yet: %s", e)
            await asyncio.sleep(RETRY_S)
