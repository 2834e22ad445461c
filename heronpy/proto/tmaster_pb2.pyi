from heronpy.proto import checkpoint_pb2 as _checkpoint_pb2
from heronpy.proto import plan_pb2 as _plan_pb2
from heronpy.proto import metrics_pb2 as _metrics_pb2
from heronpy.proto import loglevels_pb2 as _loglevels_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StmgrHello(_message.Message):
    __slots__ = ("location", "plan_version", "restore_epoch", "peers")
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    RESTORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    location: _plan_pb2.StmgrLocation
    plan_version: int
    restore_epoch: int
    peers: _containers.RepeatedCompositeFieldContainer[_plan_pb2.StmgrLocation]
    def __init__(self, location: _Optional[_Union[_plan_pb2.StmgrLocation, _Mapping]] = ..., plan_version: _Optional[int] = ..., restore_epoch: _Optional[int] = ..., peers: _Optional[_Iterable[_Union[_plan_pb2.StmgrLocation, _Mapping]]] = ...) -> None: ...

class StmgrHeartbeat(_message.Message):
    __slots__ = ("attached", "restore_epoch", "waiting", "stop_reason")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    RESTORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    attached: _containers.RepeatedScalarFieldContainer[str]
    restore_epoch: int
    waiting: _containers.RepeatedScalarFieldContainer[str]
    stop_reason: str
    def __init__(self, attached: _Optional[_Iterable[str]] = ..., restore_epoch: _Optional[int] = ..., waiting: _Optional[_Iterable[str]] = ..., stop_reason: _Optional[str] = ...) -> None: ...

class StmgrMessage(_message.Message):
    __slots__ = ("hello", "heartbeat", "report", "of_instance")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    OF_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    hello: StmgrHello
    heartbeat: StmgrHeartbeat
    report: _checkpoint_pb2.StmgrReport
    of_instance: _checkpoint_pb2.InstanceReport
    def __init__(self, hello: _Optional[_Union[StmgrHello, _Mapping]] = ..., heartbeat: _Optional[_Union[StmgrHeartbeat, _Mapping]] = ..., report: _Optional[_Union[_checkpoint_pb2.StmgrReport, _Mapping]] = ..., of_instance: _Optional[_Union[_checkpoint_pb2.InstanceReport, _Mapping]] = ...) -> None: ...

class TmasterMessage(_message.Message):
    __slots__ = ("plan", "orders")
    PLAN_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.PhysicalPlan
    orders: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CheckpointOrder]
    def __init__(self, plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ..., orders: _Optional[_Iterable[_Union[_checkpoint_pb2.CheckpointOrder, _Mapping]]] = ...) -> None: ...

class TopologyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StateReply(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: str
    def __init__(self, state: _Optional[str] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("base", "packing", "timeout_s")
    BASE_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    base: _plan_pb2.PackingPlan
    packing: _plan_pb2.PackingPlan
    timeout_s: float
    def __init__(self, base: _Optional[_Union[_plan_pb2.PackingPlan, _Mapping]] = ..., packing: _Optional[_Union[_plan_pb2.PackingPlan, _Mapping]] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("timeout_ms", "divisible")
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DIVISIBLE_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    divisible: bool
    def __init__(self, timeout_ms: _Optional[int] = ..., divisible: _Optional[bool] = ...) -> None: ...

class CheckpointReply(_message.Message):
    __slots__ = ("checkpoint",)
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    def __init__(self, checkpoint: _Optional[int] = ...) -> None: ...

class InstanceStatus(_message.Message):
    __slots__ = ("id", "component", "task_id", "container", "attached", "pid", "started_ms", "totals", "latest", "rates")
    class TotalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LatestEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class RatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    RATES_FIELD_NUMBER: _ClassVar[int]
    id: str
    component: str
    task_id: int
    container: int
    attached: bool
    pid: int
    started_ms: int
    totals: _containers.ScalarMap[str, float]
    latest: _containers.ScalarMap[str, float]
    rates: _containers.ScalarMap[str, float]
    def __init__(self, id: _Optional[str] = ..., component: _Optional[str] = ..., task_id: _Optional[int] = ..., container: _Optional[int] = ..., attached: _Optional[bool] = ..., pid: _Optional[int] = ..., started_ms: _Optional[int] = ..., totals: _Optional[_Mapping[str, float]] = ..., latest: _Optional[_Mapping[str, float]] = ..., rates: _Optional[_Mapping[str, float]] = ...) -> None: ...

class StmgrStatus(_message.Message):
    __slots__ = ("location", "registered", "latest", "totals")
    class LatestEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TotalsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    location: _plan_pb2.StmgrLocation
    registered: bool
    latest: _containers.ScalarMap[str, float]
    totals: _containers.ScalarMap[str, float]
    def __init__(self, location: _Optional[_Union[_plan_pb2.StmgrLocation, _Mapping]] = ..., registered: _Optional[bool] = ..., latest: _Optional[_Mapping[str, float]] = ..., totals: _Optional[_Mapping[str, float]] = ...) -> None: ...

class HealthReason(_message.Message):
    __slots__ = ("kind", "state", "text")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    state: str
    text: str
    def __init__(self, kind: _Optional[str] = ..., state: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Health(_message.Message):
    __slots__ = ("state", "reasons", "restarts")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    state: str
    reasons: _containers.RepeatedCompositeFieldContainer[HealthReason]
    restarts: int
    def __init__(self, state: _Optional[str] = ..., reasons: _Optional[_Iterable[_Union[HealthReason, _Mapping]]] = ..., restarts: _Optional[int] = ...) -> None: ...

class EndedCheckpoint(_message.Message):
    __slots__ = ("checkpoint", "ended_ms", "took_ms", "failure", "size", "added", "logged", "aligned_ms")
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    TOOK_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    LOGGED_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_MS_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    ended_ms: int
    took_ms: int
    failure: str
    size: int
    added: int
    logged: int
    aligned_ms: int
    def __init__(self, checkpoint: _Optional[int] = ..., ended_ms: _Optional[int] = ..., took_ms: _Optional[int] = ..., failure: _Optional[str] = ..., size: _Optional[int] = ..., added: _Optional[int] = ..., logged: _Optional[int] = ..., aligned_ms: _Optional[int] = ...) -> None: ...

class BegunRestore(_message.Message):
    __slots__ = ("epoch", "checkpoint", "began_ms", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    checkpoint: int
    began_ms: int
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., checkpoint: _Optional[int] = ..., began_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class CheckpointStatus(_message.Message):
    __slots__ = ("phase", "restore_epoch", "newest", "in_progress", "missing_tasks", "last_failure", "last_took_s", "problem", "fallback", "interval_ms", "age_ms", "in_progress_ms", "committed", "failed", "restores", "ended", "restored", "obstacle")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RESTORE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    MISSING_TASKS_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LAST_TOOK_S_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    IN_PROGRESS_MS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    RESTORED_FIELD_NUMBER: _ClassVar[int]
    OBSTACLE_FIELD_NUMBER: _ClassVar[int]
    phase: str
    restore_epoch: int
    newest: int
    in_progress: int
    missing_tasks: _containers.RepeatedScalarFieldContainer[int]
    last_failure: str
    last_took_s: float
    problem: str
    fallback: str
    interval_ms: int
    age_ms: int
    in_progress_ms: int
    committed: int
    failed: int
    restores: int
    ended: _containers.RepeatedCompositeFieldContainer[EndedCheckpoint]
    restored: _containers.RepeatedCompositeFieldContainer[BegunRestore]
    obstacle: str
    def __init__(self, phase: _Optional[str] = ..., restore_epoch: _Optional[int] = ..., newest: _Optional[int] = ..., in_progress: _Optional[int] = ..., missing_tasks: _Optional[_Iterable[int]] = ..., last_failure: _Optional[str] = ..., last_took_s: _Optional[float] = ..., problem: _Optional[str] = ..., fallback: _Optional[str] = ..., interval_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., in_progress_ms: _Optional[int] = ..., committed: _Optional[int] = ..., failed: _Optional[int] = ..., restores: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[EndedCheckpoint, _Mapping]]] = ..., restored: _Optional[_Iterable[_Union[BegunRestore, _Mapping]]] = ..., obstacle: _Optional[str] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("topology", "state", "ready", "plan_version", "tmaster_started_ms", "stmgrs", "instances", "exceptions", "tmaster_pid", "stop_reason", "code_failure", "health", "checkpoints", "prometheus", "restarts", "recent_restarts")
    class PrometheusEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    class RestartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RecentRestartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    TMASTER_STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    STMGRS_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    TMASTER_PID_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    CODE_FAILURE_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    PROMETHEUS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RECENT_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    topology: str
    state: str
    ready: bool
    plan_version: int
    tmaster_started_ms: int
    stmgrs: _containers.RepeatedCompositeFieldContainer[StmgrStatus]
    instances: _containers.RepeatedCompositeFieldContainer[InstanceStatus]
    exceptions: _containers.RepeatedCompositeFieldContainer[NamedException]
    tmaster_pid: int
    stop_reason: str
    code_failure: str
    health: Health
    checkpoints: CheckpointStatus
    prometheus: _containers.ScalarMap[int, str]
    restarts: _containers.ScalarMap[str, int]
    recent_restarts: _containers.ScalarMap[str, int]
    def __init__(self, topology: _Optional[str] = ..., state: _Optional[str] = ..., ready: _Optional[bool] = ..., plan_version: _Optional[int] = ..., tmaster_started_ms: _Optional[int] = ..., stmgrs: _Optional[_Iterable[_Union[StmgrStatus, _Mapping]]] = ..., instances: _Optional[_Iterable[_Union[InstanceStatus, _Mapping]]] = ..., exceptions: _Optional[_Iterable[_Union[NamedException, _Mapping]]] = ..., tmaster_pid: _Optional[int] = ..., stop_reason: _Optional[str] = ..., code_failure: _Optional[str] = ..., health: _Optional[_Union[Health, _Mapping]] = ..., checkpoints: _Optional[_Union[CheckpointStatus, _Mapping]] = ..., prometheus: _Optional[_Mapping[int, str]] = ..., restarts: _Optional[_Mapping[str, int]] = ..., recent_restarts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class NamedException(_message.Message):
    __slots__ = ("source", "component", "report", "group")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    source: str
    component: str
    report: _metrics_pb2.ExceptionReport
    group: str
    def __init__(self, source: _Optional[str] = ..., component: _Optional[str] = ..., report: _Optional[_Union[_metrics_pb2.ExceptionReport, _Mapping]] = ..., group: _Optional[str] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ("component", "instances", "metrics", "interval_s", "minutely", "start_s", "end_s", "by_component", "sketches")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    MINUTELY_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    BY_COMPONENT_FIELD_NUMBER: _ClassVar[int]
    SKETCHES_FIELD_NUMBER: _ClassVar[int]
    component: str
    instances: _containers.RepeatedScalarFieldContainer[str]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    interval_s: int
    minutely: bool
    start_s: int
    end_s: int
    by_component: bool
    sketches: bool
    def __init__(self, component: _Optional[str] = ..., instances: _Optional[_Iterable[str]] = ..., metrics: _Optional[_Iterable[str]] = ..., interval_s: _Optional[int] = ..., minutely: _Optional[bool] = ..., start_s: _Optional[int] = ..., end_s: _Optional[int] = ..., by_component: _Optional[bool] = ..., sketches: _Optional[bool] = ...) -> None: ...

class MetricSeries(_message.Message):
    __slots__ = ("component", "instance", "name", "kind", "value", "weight", "sketch", "minute_sketches", "minutes")
    class MinuteSketchesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: _metrics_pb2.Sketch
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[_metrics_pb2.Sketch, _Mapping]] = ...) -> None: ...
    class MinutesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SKETCH_FIELD_NUMBER: _ClassVar[int]
    MINUTE_SKETCHES_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    component: str
    instance: str
    name: str
    kind: _metrics_pb2.Metric.Kind
    value: float
    weight: float
    sketch: _metrics_pb2.Sketch
    minute_sketches: _containers.MessageMap[int, _metrics_pb2.Sketch]
    minutes: _containers.ScalarMap[int, float]
    def __init__(self, component: _Optional[str] = ..., instance: _Optional[str] = ..., name: _Optional[str] = ..., kind: _Optional[_Union[_metrics_pb2.Metric.Kind, str]] = ..., value: _Optional[float] = ..., weight: _Optional[float] = ..., sketch: _Optional[_Union[_metrics_pb2.Sketch, _Mapping]] = ..., minute_sketches: _Optional[_Mapping[int, _metrics_pb2.Sketch]] = ..., minutes: _Optional[_Mapping[int, float]] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("series", "start_s", "end_s", "interval_s", "unknown_instances", "unknown_metrics", "unknown_component")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_INSTANCES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_METRICS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_COMPONENT_FIELD_NUMBER: _ClassVar[int]
    series: _containers.RepeatedCompositeFieldContainer[MetricSeries]
    start_s: int
    end_s: int
    interval_s: int
    unknown_instances: _containers.RepeatedScalarFieldContainer[str]
    unknown_metrics: _containers.RepeatedScalarFieldContainer[str]
    unknown_component: bool
    def __init__(self, series: _Optional[_Iterable[_Union[MetricSeries, _Mapping]]] = ..., start_s: _Optional[int] = ..., end_s: _Optional[int] = ..., interval_s: _Optional[int] = ..., unknown_instances: _Optional[_Iterable[str]] = ..., unknown_metrics: _Optional[_Iterable[str]] = ..., unknown_component: _Optional[bool] = ...) -> None: ...

class ExceptionsRequest(_message.Message):
    __slots__ = ("component", "instances")
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    component: str
    instances: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, component: _Optional[str] = ..., instances: _Optional[_Iterable[str]] = ...) -> None: ...

class ExceptionsReply(_message.Message):
    __slots__ = ("exceptions",)
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    exceptions: _containers.RepeatedCompositeFieldContainer[NamedException]
    def __init__(self, exceptions: _Optional[_Iterable[_Union[NamedException, _Mapping]]] = ...) -> None: ...

class ExceptionClass(_message.Message):
    __slots__ = ("class_name", "first_time_ms", "last_time_ms", "count")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    first_time_ms: int
    last_time_ms: int
    count: int
    def __init__(self, class_name: _Optional[str] = ..., first_time_ms: _Optional[int] = ..., last_time_ms: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ExceptionSummaryReply(_message.Message):
    __slots__ = ("classes",)
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    classes: _containers.RepeatedCompositeFieldContainer[ExceptionClass]
    def __init__(self, classes: _Optional[_Iterable[_Union[ExceptionClass, _Mapping]]] = ...) -> None: ...

class LogLevelRequest(_message.Message):
    __slots__ = ("target", "level", "for_s", "user")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FOR_S_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    target: str
    level: str
    for_s: int
    user: str
    def __init__(self, target: _Optional[str] = ..., level: _Optional[str] = ..., for_s: _Optional[int] = ..., user: _Optional[str] = ...) -> None: ...

class EnrollRequest(_message.Message):
    __slots__ = ("container", "incarnation", "request", "now_s")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    container: int
    incarnation: int
    request: bytes
    now_s: int
    def __init__(self, container: _Optional[int] = ..., incarnation: _Optional[int] = ..., request: _Optional[bytes] = ..., now_s: _Optional[int] = ...) -> None: ...

class EnrollReply(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...
