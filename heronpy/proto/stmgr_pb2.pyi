from heronpy.proto import checkpoint_pb2 as _checkpoint_pb2
from heronpy.proto import plan_pb2 as _plan_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Batch(_message.Message):
    __slots__ = ("dest_task", "kind", "count", "body", "src_task", "serializer", "feedback")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DATA: _ClassVar[Batch.Kind]
        ACK: _ClassVar[Batch.Kind]
        FAIL: _ClassVar[Batch.Kind]
        RESET_TIMEOUT: _ClassVar[Batch.Kind]
        CONTROL: _ClassVar[Batch.Kind]
    DATA: Batch.Kind
    ACK: Batch.Kind
    FAIL: Batch.Kind
    RESET_TIMEOUT: Batch.Kind
    CONTROL: Batch.Kind
    DEST_TASK_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SRC_TASK_FIELD_NUMBER: _ClassVar[int]
    SERIALIZER_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    dest_task: int
    kind: Batch.Kind
    count: int
    body: bytes
    src_task: int
    serializer: str
    feedback: bool
    def __init__(self, dest_task: _Optional[int] = ..., kind: _Optional[_Union[Batch.Kind, str]] = ..., count: _Optional[int] = ..., body: _Optional[bytes] = ..., src_task: _Optional[int] = ..., serializer: _Optional[str] = ..., feedback: _Optional[bool] = ...) -> None: ...

class TupleBatch(_message.Message):
    __slots__ = ("src_task", "stream", "count", "values", "ids", "roots", "root_counts", "streams", "stream_indexes", "part_sizes")
    SRC_TASK_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    STREAM_INDEXES_FIELD_NUMBER: _ClassVar[int]
    PART_SIZES_FIELD_NUMBER: _ClassVar[int]
    src_task: int
    stream: str
    count: int
    values: bytes
    ids: bytes
    roots: bytes
    root_counts: bytes
    streams: _containers.RepeatedScalarFieldContainer[str]
    stream_indexes: bytes
    part_sizes: bytes
    def __init__(self, src_task: _Optional[int] = ..., stream: _Optional[str] = ..., count: _Optional[int] = ..., values: _Optional[bytes] = ..., ids: _Optional[bytes] = ..., roots: _Optional[bytes] = ..., root_counts: _Optional[bytes] = ..., streams: _Optional[_Iterable[str]] = ..., stream_indexes: _Optional[bytes] = ..., part_sizes: _Optional[bytes] = ...) -> None: ...

class RootBatch(_message.Message):
    __slots__ = ("roots", "values")
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    roots: bytes
    values: bytes
    def __init__(self, roots: _Optional[bytes] = ..., values: _Optional[bytes] = ...) -> None: ...

class ControlBatch(_message.Message):
    __slots__ = ("src_task", "watermark", "held", "marker", "ended")
    SRC_TASK_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MARKER_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    src_task: int
    watermark: int
    held: int
    marker: int
    ended: bool
    def __init__(self, src_task: _Optional[int] = ..., watermark: _Optional[int] = ..., held: _Optional[int] = ..., marker: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class StartBackpressure(_message.Message):
    __slots__ = ("stmgr", "culprit", "full")
    STMGR_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    stmgr: str
    culprit: str
    full: bool
    def __init__(self, stmgr: _Optional[str] = ..., culprit: _Optional[str] = ..., full: _Optional[bool] = ...) -> None: ...

class StopBackpressure(_message.Message):
    __slots__ = ("stmgr", "culprit", "full")
    STMGR_FIELD_NUMBER: _ClassVar[int]
    CULPRIT_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    stmgr: str
    culprit: str
    full: bool
    def __init__(self, stmgr: _Optional[str] = ..., culprit: _Optional[str] = ..., full: _Optional[bool] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("batches", "plan", "start_backpressure", "stop_backpressure", "epoch", "number", "orders", "reports", "hold")
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    START_BACKPRESSURE_FIELD_NUMBER: _ClassVar[int]
    STOP_BACKPRESSURE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[Batch]
    plan: _plan_pb2.PhysicalPlan
    start_backpressure: _containers.RepeatedCompositeFieldContainer[StartBackpressure]
    stop_backpressure: _containers.RepeatedCompositeFieldContainer[StopBackpressure]
    epoch: int
    number: int
    orders: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CheckpointOrder]
    reports: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.InstanceReport]
    hold: bool
    def __init__(self, batches: _Optional[_Iterable[_Union[Batch, _Mapping]]] = ..., plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ..., start_backpressure: _Optional[_Iterable[_Union[StartBackpressure, _Mapping]]] = ..., stop_backpressure: _Optional[_Iterable[_Union[StopBackpressure, _Mapping]]] = ..., epoch: _Optional[int] = ..., number: _Optional[int] = ..., orders: _Optional[_Iterable[_Union[_checkpoint_pb2.CheckpointOrder, _Mapping]]] = ..., reports: _Optional[_Iterable[_Union[_checkpoint_pb2.InstanceReport, _Mapping]]] = ..., hold: _Optional[bool] = ...) -> None: ...
