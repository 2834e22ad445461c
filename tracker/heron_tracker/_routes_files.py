"""Routes: log files of containers, and a look into live instances. Of this host only: 501 for others."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from heron_tracker import _log_files, _processes
from heron_tracker import _models as m
from heron_tracker._tracker import Container, FilePath, Instance, TheTopology, TheTracker

router = APIRouter()

_BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/topologies/container/filedata")
@router.get("/topologies/containerfiledata", deprecated=True)
async def file_data(
    topology: TheTopology,
    container: Container,
    path: FilePath,
    offset: Annotated[int, Query(description="In bytes; -1: only tell where the file ends.")] = 0,
    length: Annotated[int, Query(description="In bytes; -1: up to the end. At most 1 MiB are sent.")] = -1,
) -> m.FileData:
    """Part of a log file, HTML-escaped. 400 for an offset beyond its end."""

    def read() -> m.FileData:
        return _log_files.read(_log_files.folder(topology, container), path, offset, length)

    return await asyncio.to_thread(read)


@router.get("/topologies/container/filedownload", response_class=StreamingResponse, responses=_BINARY)
@router.get("/topologies/containerfiledownload", deprecated=True, response_class=StreamingResponse, responses=_BINARY)
async def file_download(topology: TheTopology, container: Container, path: FilePath) -> StreamingResponse:
    """A log file as an attachment: as much of it as there is now."""
    fd = await asyncio.to_thread(lambda: _log_files.open_log(_log_files.folder(topology, container), path))
    file = os.fdopen(fd, "rb", buffering=0)
    name = re.sub(r"[^A-Za-z0-9_.@+-]", "_", path.rpartition("/")[2]) or "file"
    return StreamingResponse(
        _log_files.download(file),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"},
    )


@router.get("/topologies/container/filestats")
@router.get("/topologies/containerfilestats", deprecated=True)
async def file_stats(topology: TheTopology, container: Container, path: FilePath = ".") -> dict[str, m.FileStats]:
    """What is in the container's log-files, or in a folder below."""
    return await asyncio.to_thread(lambda: _log_files.stats(_log_files.folder(topology, container), path))


@router.get("/topologies/pid")
async def pid(topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The pid of a live instance."""
    return await asyncio.to_thread(_processes.pid, topology, instance)


@router.get("/topologies/jstack")
async def jstack(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The stacks of a live instance: by py-spy, or by a signal that the instance answers; then `stderr` says why."""
    async with tracker.looks:
        return await asyncio.to_thread(_processes.jstack, topology, instance, _processes.find_spy())


@router.get("/topologies/jmap")
async def jmap(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The memory of a live instance, and its garbage collector's state."""
    async with tracker.looks:
        return await asyncio.to_thread(_processes.jmap, topology, instance)


@router.get("/topologies/histo")
async def histo(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The objects of a live instance by type. The instance counts them itself, for at most a second."""
    async with tracker.looks:
        return await asyncio.to_thread(_processes.histo, topology, instance)
