from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

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
    __slots__ = ("topology", "endpoint", "pid", "job_link")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    JOB_LINK_FIELD_NUMBER: _ClassVar[int]
    topology: str
    endpoint: str
    pid: int
    job_link: str
    def __init__(self, topology: _Optional[str] = ..., endpoint: _Optional[str] = ..., pid: _Optional[int] = ..., job_link: _Optional[str] = ...) -> None: ...

class ExecutionState(_message.Message):
    __slots__ = ("topology", "topology_id", "cluster", "role", "environ", "submission_user", "submission_time_s", "release_version", "topology_dir", "removed")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ENVIRON_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_USER_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_TIME_S_FIELD_NUMBER: _ClassVar[int]
    RELEASE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_DIR_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    topology: str
    topology_id: str
    cluster: str
    role: str
    environ: str
    submission_user: str
    submission_time_s: int
    release_version: str
    topology_dir: str
    removed: bool
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., cluster: _Optional[str] = ..., role: _Optional[str] = ..., environ: _Optional[str] = ..., submission_user: _Optional[str] = ..., submission_time_s: _Optional[int] = ..., release_version: _Optional[str] = ..., topology_dir: _Optional[str] = ..., removed: _Optional[bool] = ...) -> None: ...

class ContainerRecord(_message.Message):
    __slots__ = ("topology_id", "container", "incarnation", "host", "address", "shell_endpoint", "started_s", "version", "start_id", "codes")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SHELL_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    CODES_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    container: int
    incarnation: int
    host: str
    address: str
    shell_endpoint: str
    started_s: int
    version: str
    start_id: bytes
    codes: _containers.RepeatedCompositeFieldContainer[HostedCode]
    def __init__(self, topology_id: _Optional[str] = ..., container: _Optional[int] = ..., incarnation: _Optional[int] = ..., host: _Optional[str] = ..., address: _Optional[str] = ..., shell_endpoint: _Optional[str] = ..., started_s: _Optional[int] = ..., version: _Optional[str] = ..., start_id: _Optional[bytes] = ..., codes: _Optional[_Iterable[_Union[HostedCode, _Mapping]]] = ...) -> None: ...

class HostedCode(_message.Message):
    __slots__ = ("version", "problem", "retried")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    RETRIED_FIELD_NUMBER: _ClassVar[int]
    version: str
    problem: str
    retried: bool
    def __init__(self, version: _Optional[str] = ..., problem: _Optional[str] = ..., retried: _Optional[bool] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("topology_id", "term", "leader", "restore_epoch")
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    RESTORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    term: int
    leader: bytes
    restore_epoch: int
    def __init__(self, topology_id: _Optional[str] = ..., term: _Optional[int] = ..., leader: _Optional[bytes] = ..., restore_epoch: _Optional[int] = ...) -> None: ...

class Checkpoints(_message.Message):
    __slots__ = ("topology_id", "last_id", "in_progress", "committed", "settled", "poisoned", "undivided")
    class UndividedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: UndividedState
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[UndividedState, _Mapping]] = ...) -> None: ...
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_ID_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    POISONED_FIELD_NUMBER: _ClassVar[int]
    UNDIVIDED_FIELD_NUMBER: _ClassVar[int]
    topology_id: str
    last_id: int
    in_progress: int
    committed: _containers.RepeatedScalarFieldContainer[int]
    settled: int
    poisoned: _containers.RepeatedCompositeFieldContainer[PoisonedTuple]
    undivided: _containers.MessageMap[str, UndividedState]
    def __init__(self, topology_id: _Optional[str] = ..., last_id: _Optional[int] = ..., in_progress: _Optional[int] = ..., committed: _Optional[_Iterable[int]] = ..., settled: _Optional[int] = ..., poisoned: _Optional[_Iterable[_Union[PoisonedTuple, _Mapping]]] = ..., undivided: _Optional[_Mapping[str, UndividedState]] = ...) -> None: ...

class UndividedState(_message.Message):
    __slots__ = ("tasks", "state")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    state: str
    def __init__(self, tasks: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class PoisonedTuple(_message.Message):
    __slots__ = ("tuple", "rollbacks", "reason")
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    ROLLBACKS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    tuple: bytes
    rollbacks: int
    reason: str
    def __init__(self, tuple: _Optional[bytes] = ..., rollbacks: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
