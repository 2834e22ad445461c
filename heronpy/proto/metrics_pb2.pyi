from heronpy.proto import loglevels_pb2 as _loglevels_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sketch(_message.Message):
    __slots__ = ("first", "counts")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    first: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value", "kind", "sum", "count", "sketch")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        COUNTER: _ClassVar[Metric.Kind]
        GAUGE: _ClassVar[Metric.Kind]
        MEAN: _ClassVar[Metric.Kind]
    COUNTER: Metric.Kind
    GAUGE: Metric.Kind
    MEAN: Metric.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    kind: Metric.Kind
    sum: float
    count: int
    sketch: Sketch
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., kind: _Optional[_Union[Metric.Kind, str]] = ..., sum: _Optional[float] = ..., count: _Optional[int] = ..., sketch: _Optional[_Union[Sketch, _Mapping]] = ...) -> None: ...

class ExceptionReport(_message.Message):
    __slots__ = ("stacktrace", "first_time_ms", "last_time_ms", "count", "logging")
    STACKTRACE_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LOGGING_FIELD_NUMBER: _ClassVar[int]
    stacktrace: str
    first_time_ms: int
    last_time_ms: int
    count: int
    logging: str
    def __init__(self, stacktrace: _Optional[str] = ..., first_time_ms: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., count: _Optional[int] = ..., logging: _Optional[str] = ...) -> None: ...

class MetricsReport(_message.Message):
    __slots__ = ("source", "component", "container", "time_ms", "metrics", "exceptions", "pid", "started_ms", "sequence")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    source: str
    component: str
    container: int
    time_ms: int
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    exceptions: _containers.RepeatedCompositeFieldContainer[ExceptionReport]
    pid: int
    started_ms: int
    sequence: int
    def __init__(self, source: _Optional[str] = ..., component: _Optional[str] = ..., container: _Optional[int] = ..., time_ms: _Optional[int] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., exceptions: _Optional[_Iterable[_Union[ExceptionReport, _Mapping]]] = ..., pid: _Optional[int] = ..., started_ms: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class MetricsReports(_message.Message):
    __slots__ = ("reports", "prometheus")
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    PROMETHEUS_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[MetricsReport]
    prometheus: str
    def __init__(self, reports: _Optional[_Iterable[_Union[MetricsReport, _Mapping]]] = ..., prometheus: _Optional[str] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("log_levels",)
    LOG_LEVELS_FIELD_NUMBER: _ClassVar[int]
    log_levels: _loglevels_pb2.LogLevels
    def __init__(self, log_levels: _Optional[_Union[_loglevels_pb2.LogLevels, _Mapping]] = ...) -> None: ...
