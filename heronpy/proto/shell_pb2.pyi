from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileListRequest(_message.Message):
    __slots__ = ("path",)
    PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    def __init__(self, path: _Optional[str] = ...) -> None: ...

class FileList(_message.Message):
    __slots__ = ("files", "truncated")
    FILES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileEntry]
    truncated: bool
    def __init__(self, files: _Optional[_Iterable[_Union[FileEntry, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class FileEntry(_message.Message):
    __slots__ = ("name", "path", "mode", "links", "uid", "gid", "size", "modified_s", "inode")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_S_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    mode: int
    links: int
    uid: int
    gid: int
    size: int
    modified_s: float
    inode: int
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., mode: _Optional[int] = ..., links: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., size: _Optional[int] = ..., modified_s: _Optional[float] = ..., inode: _Optional[int] = ...) -> None: ...

class FileRequest(_message.Message):
    __slots__ = ("path", "offset", "length")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset: int
    length: int
    def __init__(self, path: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("offset", "data", "size", "inode")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    INODE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    size: int
    inode: int
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., size: _Optional[int] = ..., inode: _Optional[int] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("text", "ignore_case", "process", "since_s", "matches_max", "after_path", "after_offset", "after_inode")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    MATCHES_MAX_FIELD_NUMBER: _ClassVar[int]
    AFTER_PATH_FIELD_NUMBER: _ClassVar[int]
    AFTER_OFFSET_FIELD_NUMBER: _ClassVar[int]
    AFTER_INODE_FIELD_NUMBER: _ClassVar[int]
    text: str
    ignore_case: bool
    process: str
    since_s: float
    matches_max: int
    after_path: str
    after_offset: int
    after_inode: int
    def __init__(self, text: _Optional[str] = ..., ignore_case: _Optional[bool] = ..., process: _Optional[str] = ..., since_s: _Optional[float] = ..., matches_max: _Optional[int] = ..., after_path: _Optional[str] = ..., after_offset: _Optional[int] = ..., after_inode: _Optional[int] = ...) -> None: ...

class SearchReply(_message.Message):
    __slots__ = ("matches", "complete", "next_path", "next_offset", "next_inode", "searched_bytes")
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PATH_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_INODE_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    matches: _containers.RepeatedCompositeFieldContainer[Match]
    complete: bool
    next_path: str
    next_offset: int
    next_inode: int
    searched_bytes: int
    def __init__(self, matches: _Optional[_Iterable[_Union[Match, _Mapping]]] = ..., complete: _Optional[bool] = ..., next_path: _Optional[str] = ..., next_offset: _Optional[int] = ..., next_inode: _Optional[int] = ..., searched_bytes: _Optional[int] = ...) -> None: ...

class Match(_message.Message):
    __slots__ = ("path", "offset", "line")
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    path: str
    offset: int
    line: bytes
    def __init__(self, path: _Optional[str] = ..., offset: _Optional[int] = ..., line: _Optional[bytes] = ...) -> None: ...

class ProcessListRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProcessList(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessInfo]
    def __init__(self, processes: _Optional[_Iterable[_Union[ProcessInfo, _Mapping]]] = ...) -> None: ...

class ProcessInfo(_message.Message):
    __slots__ = ("id", "pid", "alive", "started_ms", "restarts", "recent_ms", "last_end", "host", "rss_bytes", "cpu_s", "threads")
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RECENT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_END_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    id: str
    pid: int
    alive: bool
    started_ms: int
    restarts: int
    recent_ms: _containers.RepeatedScalarFieldContainer[int]
    last_end: str
    host: str
    rss_bytes: int
    cpu_s: float
    threads: int
    def __init__(self, id: _Optional[str] = ..., pid: _Optional[int] = ..., alive: _Optional[bool] = ..., started_ms: _Optional[int] = ..., restarts: _Optional[int] = ..., recent_ms: _Optional[_Iterable[int]] = ..., last_end: _Optional[str] = ..., host: _Optional[str] = ..., rss_bytes: _Optional[int] = ..., cpu_s: _Optional[float] = ..., threads: _Optional[int] = ...) -> None: ...

class LookRequest(_message.Message):
    __slots__ = ("process", "kind")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    process: str
    kind: str
    def __init__(self, process: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class LookReply(_message.Message):
    __slots__ = ("command", "stdout", "stderr")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    command: str
    stdout: str
    stderr: str
    def __init__(self, command: _Optional[str] = ..., stdout: _Optional[str] = ..., stderr: _Optional[str] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("process", "seconds")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    process: str
    seconds: float
    def __init__(self, process: _Optional[str] = ..., seconds: _Optional[float] = ...) -> None: ...

class ProcessProfile(_message.Message):
    __slots__ = ("pid", "seconds", "samples", "dropped", "cost_cpu_s", "frames", "stacks")
    PID_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    COST_CPU_S_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    pid: int
    seconds: float
    samples: int
    dropped: int
    cost_cpu_s: float
    frames: _containers.RepeatedCompositeFieldContainer[ProfileFrame]
    stacks: _containers.RepeatedCompositeFieldContainer[ProfileStack]
    def __init__(self, pid: _Optional[int] = ..., seconds: _Optional[float] = ..., samples: _Optional[int] = ..., dropped: _Optional[int] = ..., cost_cpu_s: _Optional[float] = ..., frames: _Optional[_Iterable[_Union[ProfileFrame, _Mapping]]] = ..., stacks: _Optional[_Iterable[_Union[ProfileStack, _Mapping]]] = ...) -> None: ...

class ProfileFrame(_message.Message):
    __slots__ = ("function", "file", "line")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    function: str
    file: str
    line: int
    def __init__(self, function: _Optional[str] = ..., file: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class ProfileStack(_message.Message):
    __slots__ = ("thread", "frames", "samples", "cpu_ns")
    THREAD_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    CPU_NS_FIELD_NUMBER: _ClassVar[int]
    thread: str
    frames: _containers.RepeatedScalarFieldContainer[int]
    samples: int
    cpu_ns: int
    def __init__(self, thread: _Optional[str] = ..., frames: _Optional[_Iterable[int]] = ..., samples: _Optional[int] = ..., cpu_ns: _Optional[int] = ...) -> None: ...
