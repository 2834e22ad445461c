from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class TmasterLocation(_message.Message):
    __slots__ = ("topology", "topology_id", "host", "port", "pid")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    topology: str
    topology_id: str
    host: str
    port: int
    pid: int
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class SchedulerLocation(_message.Message):
    __slots__ = ("topology", "http_endpoint", "pid", "job_link")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    HTTP_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_LINK_FIELD_NUMBER: _ClassVar[int]
    topology: str
    http_endpoint: str
    pid: int
    job_link: str
    def __init__(self, topology: _Optional[str] = ..., http_endpoint: _Optional[str] = ..., pid: _Optional[int] = ..., job_link: _Optional[str] = ...) -> None: ...

class ExecutionState(_message.Message):
    __slots__ = ("topology", "topology_id", "cluster", "role", "environ", "submission_user", "submission_time_s", "release_version", "topology_dir")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENVIRON_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_USER_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_TIME_S_FIELD_NUMBER: _ClassVar[int]
    RELEASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_DIR_FIELD_NUMBER: _ClassVar[int]
    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    submission_user: str
    submission_time_s: int
    release_version: str
    topology_dir: str
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., cluster: _Optional[str] = ..., role: _Optional[str] = ..., environ: _Optional[str] = ..., submission_user: _Optional[str] = ..., submission_time_s: _Optional[int] = ..., release_version: _Optional[str] = ..., topology_dir: _Optional[str] = ...) -> None: ...
