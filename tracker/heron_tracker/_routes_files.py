"""Routes: log files of containers, and a look into live instances."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from heron_tracker import _file_data
from heron_tracker import _models as m
from heron_tracker._tracker import Container, FilePath, Instance, TheTopology, TheTracker

router = APIRouter()

_BINARY: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


@router.get("/topologies/container/filedata")
@router.get("/topologies/containerfiledata", deprecated=True)
async def file_data(
    tracker: TheTracker,
    topology: TheTopology,
    container: Container,
    path: FilePath,
    offset: Annotated[int, Query(description="In bytes; -1: only tell where the file ends.")] = 0,
    length: Annotated[int, Query(description="In bytes; -1: up to the end. At most 1 MiB are sent.")] = -1,
) -> m.FileData:
    """Part of a log file, HTML-escaped. 400 for an offset beyond its end."""
    return _file_data.file_data(await tracker.shells.of(topology, container).read(path, offset, length))


@router.get("/topologies/container/filedownload", response_class=StreamingResponse, responses=_BINARY)
@router.get("/topologies/containerfiledownload", deprecated=True, response_class=StreamingResponse, responses=_BINARY)
async def file_download(
    tracker: TheTracker, topology: TheTopology, container: Container, path: FilePath
) -> StreamingResponse:
    """A log file as an attachment: as much of it as there is now."""
    shell = tracker.shells.of(topology, container)
    first = await shell.read(path, 0, -1)
    name = re.sub(r"[^A-Za-z0-9_.@+-]", "_", path.rpartition("/")[2]) or "file"
    return StreamingResponse(
        _file_data.download(shell, path, first),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"', "x-content-type-options": "nosniff"},
    )


@router.get("/topologies/container/filestats")
@router.get("/topologies/containerfilestats", deprecated=True)
async def file_stats(
    tracker: TheTracker, topology: TheTopology, container: Container, path: FilePath = "."
) -> dict[str, m.FileStats]:
    """What is in the container's log-files, or in a folder below."""
    return _file_data.file_stats(await tracker.shells.of(topology, container).files(path))


@router.get("/topologies/pid")
async def pid(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The pid of a live instance."""
    return m.ProcessOutput.of(await tracker.shells.of_process(topology, instance).look("pid", instance))
