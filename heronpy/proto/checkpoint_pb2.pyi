from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskStatus(_message.Message):
    __slots__ = ("task", "incarnation", "epoch", "phase", "committed", "read_ahead", "read_share")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STARTED: _ClassVar[TaskStatus.Phase]
        RESTORED: _ClassVar[TaskStatus.Phase]
        RUNNING: _ClassVar[TaskStatus.Phase]
    STARTED: TaskStatus.Phase
    RESTORED: TaskStatus.Phase
    RUNNING: TaskStatus.Phase
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    READ_AHEAD_FIELD_NUMBER: _ClassVar[int]
    READ_SHARE_FIELD_NUMBER: _ClassVar[int]
    task: int
    incarnation: int
    epoch: int
    phase: TaskStatus.Phase
    committed: int
    read_ahead: int
    read_share: TaskShare
    def __init__(self, task: _Optional[int] = ..., incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., phase: _Optional[_Union[TaskStatus.Phase, str]] = ..., committed: _Optional[int] = ..., read_ahead: _Optional[int] = ..., read_share: _Optional[_Union[TaskShare, _Mapping]] = ...) -> None: ...

class SnapshotStored(_message.Message):
    __slots__ = ("task", "incarnation", "checkpoint", "epoch", "unaligned", "objects", "state_bytes", "aligned_us", "undivided", "whole")
    TASK_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_US_FIELD_NUMBER: _ClassVar[int]
    UNDIVIDED_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    task: int
    incarnation: int
    checkpoint: int
    epoch: int
    unaligned: bool
    objects: _containers.RepeatedScalarFieldContainer[bytes]
    state_bytes: int
    aligned_us: int
    undivided: str
    whole: bool
    def __init__(self, task: _Optional[int] = ..., incarnation: _Optional[int] = ..., checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ..., unaligned: _Optional[bool] = ..., objects: _Optional[_Iterable[bytes]] = ..., state_bytes: _Optional[int] = ..., aligned_us: _Optional[int] = ..., undivided: _Optional[str] = ..., whole: _Optional[bool] = ...) -> None: ...

class SnapshotFailed(_message.Message):
    __slots__ = ("task", "checkpoint", "epoch", "reason", "lasting")
    TASK_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LASTING_FIELD_NUMBER: _ClassVar[int]
    task: int
    checkpoint: int
    epoch: int
    reason: str
    lasting: bool
    def __init__(self, task: _Optional[int] = ..., checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., lasting: _Optional[bool] = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("task", "epoch", "reason", "tuple", "lasting")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    LASTING_FIELD_NUMBER: _ClassVar[int]
    task: int
    epoch: int
    reason: str
    tuple: bytes
    lasting: bool
    def __init__(self, task: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., tuple: _Optional[bytes] = ..., lasting: _Optional[bool] = ...) -> None: ...

class CheckpointDamaged(_message.Message):
    __slots__ = ("task", "epoch", "checkpoint", "reason", "unreadable")
    TASK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    task: int
    epoch: int
    checkpoint: int
    reason: str
    unreadable: bool
    def __init__(self, task: _Optional[int] = ..., epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., reason: _Optional[str] = ..., unreadable: _Optional[bool] = ...) -> None: ...

class FramesMissing(_message.Message):
    __slots__ = ("epoch", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class InstanceReport(_message.Message):
    __slots__ = ("status", "stored", "failed", "rollback", "missing", "damaged")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    status: TaskStatus
    stored: SnapshotStored
    failed: SnapshotFailed
    rollback: RollbackRequest
    missing: FramesMissing
    damaged: CheckpointDamaged
    def __init__(self, status: _Optional[_Union[TaskStatus, _Mapping]] = ..., stored: _Optional[_Union[SnapshotStored, _Mapping]] = ..., failed: _Optional[_Union[SnapshotFailed, _Mapping]] = ..., rollback: _Optional[_Union[RollbackRequest, _Mapping]] = ..., missing: _Optional[_Union[FramesMissing, _Mapping]] = ..., damaged: _Optional[_Union[CheckpointDamaged, _Mapping]] = ...) -> None: ...

class StmgrReport(_message.Message):
    __slots__ = ("incarnation", "epoch", "taint", "tasks")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TAINT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    epoch: int
    taint: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    def __init__(self, incarnation: _Optional[int] = ..., epoch: _Optional[int] = ..., taint: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ...) -> None: ...

class BeginCheckpoint(_message.Message):
    __slots__ = ("checkpoint", "epoch")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    epoch: int
    def __init__(self, checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class AbortCheckpoint(_message.Message):
    __slots__ = ("checkpoint", "epoch", "whole")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    epoch: int
    whole: bool
    def __init__(self, checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ..., whole: _Optional[bool] = ...) -> None: ...

class CommitCheckpoint(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    def __init__(self, checkpoint: _Optional[int] = ...) -> None: ...

class SetAside(_message.Message):
    __slots__ = ("tuple", "reason")
    TUPLE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    tuple: bytes
    reason: str
    def __init__(self, tuple: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class RestoreTasks(_message.Message):
    __slots__ = ("epoch", "checkpoint", "tasks", "set_aside")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    checkpoint: int
    tasks: _containers.RepeatedScalarFieldContainer[int]
    set_aside: _containers.RepeatedCompositeFieldContainer[SetAside]
    def __init__(self, epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., tasks: _Optional[_Iterable[int]] = ..., set_aside: _Optional[_Iterable[_Union[SetAside, _Mapping]]] = ...) -> None: ...

class ResumeTasks(_message.Message):
    __slots__ = ("epoch", "incarnations")
    class IncarnationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    incarnations: _containers.ScalarMap[int, int]
    def __init__(self, epoch: _Optional[int] = ..., incarnations: _Optional[_Mapping[int, int]] = ...) -> None: ...

class TaskShare(_message.Message):
    __slots__ = ("index", "tasks")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    index: int
    tasks: int
    def __init__(self, index: _Optional[int] = ..., tasks: _Optional[int] = ...) -> None: ...

class ReadAhead(_message.Message):
    __slots__ = ("epoch", "checkpoint", "shares")
    class SharesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: TaskShare
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[TaskShare, _Mapping]] = ...) -> None: ...
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    checkpoint: int
    shares: _containers.MessageMap[int, TaskShare]
    def __init__(self, epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., shares: _Optional[_Mapping[int, TaskShare]] = ...) -> None: ...

class CheckpointOrder(_message.Message):
    __slots__ = ("begin", "abort", "commit", "restore", "resume", "read_ahead")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    READ_AHEAD_FIELD_NUMBER: _ClassVar[int]
    begin: BeginCheckpoint
    abort: AbortCheckpoint
    commit: CommitCheckpoint
    restore: RestoreTasks
    resume: ResumeTasks
    read_ahead: ReadAhead
    def __init__(self, begin: _Optional[_Union[BeginCheckpoint, _Mapping]] = ..., abort: _Optional[_Union[AbortCheckpoint, _Mapping]] = ..., commit: _Optional[_Union[CommitCheckpoint, _Mapping]] = ..., restore: _Optional[_Union[RestoreTasks, _Mapping]] = ..., resume: _Optional[_Union[ResumeTasks, _Mapping]] = ..., read_ahead: _Optional[_Union[ReadAhead, _Mapping]] = ...) -> None: ...

class SavePiece(_message.Message):
    __slots__ = ("name", "data", "last")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    last: bool
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ..., last: _Optional[bool] = ...) -> None: ...

class SaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("name", "offset", "length", "start")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset: int
    length: int
    start: bool
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., start: _Optional[bool] = ...) -> None: ...

class ReadReply(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class SizeRequest(_message.Message):
    __slots__ = ("name", "start")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: bool
    def __init__(self, name: _Optional[str] = ..., start: _Optional[bool] = ...) -> None: ...

class SizeReply(_message.Message):
    __slots__ = ("size", "directory")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    size: int
    directory: str
    def __init__(self, size: _Optional[int] = ..., directory: _Optional[str] = ...) -> None: ...

class StateOwner(_message.Message):
    __slots__ = ("component", "name", "kind", "place")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    component: str
    name: str
    kind: str
    place: str
    def __init__(self, component: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ..., place: _Optional[str] = ...) -> None: ...

class ManifestRequest(_message.Message):
    __slots__ = ("checkpoint", "epoch", "previous", "objects", "tasks", "duration_ms", "owners")
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    epoch: int
    previous: int
    objects: _containers.RepeatedScalarFieldContainer[bytes]
    tasks: _containers.ScalarMap[str, int]
    duration_ms: int
    owners: _containers.RepeatedCompositeFieldContainer[StateOwner]
    def __init__(self, checkpoint: _Optional[int] = ..., epoch: _Optional[int] = ..., previous: _Optional[int] = ..., objects: _Optional[_Iterable[bytes]] = ..., tasks: _Optional[_Mapping[str, int]] = ..., duration_ms: _Optional[int] = ..., owners: _Optional[_Iterable[_Union[StateOwner, _Mapping]]] = ...) -> None: ...

class ManifestReply(_message.Message):
    __slots__ = ("size", "added", "logged")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    LOGGED_FIELD_NUMBER: _ClassVar[int]
    size: int
    added: int
    logged: int
    def __init__(self, size: _Optional[int] = ..., added: _Optional[int] = ..., logged: _Optional[int] = ...) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("keep", "before")
    KEEP_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    keep: _containers.RepeatedScalarFieldContainer[int]
    before: int
    def __init__(self, keep: _Optional[_Iterable[int]] = ..., before: _Optional[int] = ...) -> None: ...

class DiscardReply(_message.Message):
    __slots__ = ("deleted", "lost")
    DELETED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    deleted: int
    lost: str
    def __init__(self, deleted: _Optional[int] = ..., lost: _Optional[str] = ...) -> None: ...

class IntactRequest(_message.Message):
    __slots__ = ("committed", "tasks")
    class TasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    committed: _containers.RepeatedScalarFieldContainer[int]
    tasks: _containers.ScalarMap[str, int]
    def __init__(self, committed: _Optional[_Iterable[int]] = ..., tasks: _Optional[_Mapping[str, int]] = ...) -> None: ...

class IntactReply(_message.Message):
    __slots__ = ("checkpoint", "refused", "logged_tasks")
    class LoggedTasksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOGGED_TASKS_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    refused: _containers.RepeatedScalarFieldContainer[str]
    logged_tasks: _containers.ScalarMap[str, int]
    def __init__(self, checkpoint: _Optional[int] = ..., refused: _Optional[_Iterable[str]] = ..., logged_tasks: _Optional[_Mapping[str, int]] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ("for_ms",)
    FOR_MS_FIELD_NUMBER: _ClassVar[int]
    for_ms: int
    def __init__(self, for_ms: _Optional[int] = ...) -> None: ...

class HoldReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
