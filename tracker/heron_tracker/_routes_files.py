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
from heron_tracker._tracker import Container, FilePath, Instance, TheTopology

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
        with _log_files.folder(topology, container) as logs:
            return _log_files.read(logs, path, offset, length)

    return await asyncio.to_thread(read)


@router.get("/topologies/container/filedownload", response_class=StreamingResponse, responses=_BINARY)
@router.get("/topologies/containerfiledownload", deprecated=True, response_class=StreamingResponse, responses=_BINARY)
async def file_download(topology: TheTopology, container: Container, path: FilePath) -> StreamingResponse:
    """A log file as an attachment: as much of it as there is now."""

    def opened() -> int:
        with _log_files.folder(topology, container) as logs:
            return _log_files.open_log(logs, path)

    file = os.fdopen(await asyncio.to_thread(opened), "rb", buffering=0)
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

    def stats() -> dict[str, m.FileStats]:
        with _log_files.folder(topology, container) as logs:
            return _log_files.stats(logs, path)

    return await asyncio.to_thread(stats)


@router.get("/topologies/pid")
async def pid(topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The pid of a live instance."""
    return await asyncio.to_thread(_processes.pid, topology, instance)
