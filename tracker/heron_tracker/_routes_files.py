"""Routes: log files of containers, and a look into live instances."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from heron_tracker import _file_data
from heron_tracker import _models as m
from heron_tracker._tracker import Container, FilePath, Instance, TheTopology, TheTracker
from heronpy.errors import UsageError
from heronpy.proto import shell_pb2

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
    offset: Annotated[int, Query(description="In bytes; -1: only report where the file ends.")] = 0,
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


@router.get("/topologies/container/filesearch")
async def file_search(
    tracker: TheTracker,
    topology: TheTopology,
    container: Container,
    text: Annotated[str, Query(description="What a line must contain; not a pattern.")],
    process: Annotated[str, Query(description="Only the files of this process.")] = "",
    ignore_case: Annotated[bool, Query(description="Of ASCII letters.")] = False,
    after_path: Annotated[str, Query(description="Where an earlier answer has ended.")] = "",
    after_offset: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    after_inode: Annotated[int, Query(ge=0, lt=1 << 64)] = 0,
) -> m.FileMatches:
    """Lines of the container's log files, rotated ones too, that contain a text: up to 1000 an answer. Not of Heron."""
    try:
        request = shell_pb2.SearchRequest(
            text=text,
            process=process,
            ignore_case=ignore_case,
            after_path=after_path,
            after_offset=after_offset,
            after_inode=after_inode,
        )
    except ValueError as e:  # half a surrogate pair
        raise UsageError(f"this cannot be searched for: {e}") from e
    async with tracker.looks:
        return _file_data.file_matches(await tracker.shells.of(topology, container).search(request))


@router.get("/topologies/pid")
async def pid(tracker: TheTracker, topology: TheTopology, instance: Instance) -> m.ProcessOutput:
    """The pid of a live instance."""
    return m.ProcessOutput.of(await tracker.shells.of_process(topology, instance).look("pid", instance))
