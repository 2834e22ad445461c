"""The shapes of the answers. Those of Heron 0.20.5 are named as there; what Heron does not have says so."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, Field

from heronpy.proto import shell_pb2

Config = dict[str, Any]


class Link(BaseModel):
    name: str
    formatter: str
    url: str


class Metadata(BaseModel):
    cluster: str
    environ: str
    role: str
    jobname: str
    submission_time: int = Field(description="Seconds since the epoch.")
    submission_user: str
    release_username: str
    release_tag: str
    release_version: str
    instances: int = Field(description="How many instances it has.")
    extra_links: list[Link]


class ExecutionState(Metadata):
    has_physical_plan: bool
    has_packing_plan: bool
    has_tmanager_location: bool
    has_scheduler_location: bool
    status: str = Field(description="Running, Paused, Killed or Unknown.")


class OutputStream(BaseModel):
    stream_name: str


class InputStream(BaseModel):
    stream_name: str
    component_name: str
    grouping: str


class Operator(BaseModel):
    """An operator of a streamlet program. Not of Heron."""

    name: str
    operation: str = Field(description="The method that made it: map, filter, …")
    function: str = Field(description="The user's function, source or sink; empty if it has no name.")
    follows: str = Field(description="The operator of the component before it; empty for the first.")


class Operators(BaseModel):
    """What a component of a streamlet program runs. Not of Heron."""

    operators: list[Operator] = []
    chain: str = Field(default="", description="What follows what, in one line.")


class LogicalSpout(Operators):
    config: Config
    spout_type: str
    spout_source: str
    version: str
    outputs: list[OutputStream]
    extra_links: list[Link]


class LogicalBolt(Operators):
    config: Config
    outputs: list[OutputStream]
    inputs: list[InputStream]
    inputComponents: list[str]


class LogicalPlan(BaseModel):
    stages: int = Field(description="Components on the longest way from a spout.")
    spouts: dict[str, LogicalSpout]
    bolts: dict[str, LogicalBolt]


class PhysicalInstance(BaseModel):
    id: str
    name: str = Field(description="The component.")
    stmgr_id: str
    logfile: str


class PhysicalStmgr(BaseModel):
    id: str
    host: str
    port: int
    shell_port: int = Field(description="Always 0: files are read through the Tracker itself.")
    cwd: str
    pid: int
    joburl: str
    logfiles: str = Field(description="Where the Tracker lists its container's log files.")
    instance_ids: list[str]


class ComponentConfig(BaseModel):
    config: Config


class PhysicalPlan(BaseModel):
    instances: dict[str, PhysicalInstance]
    instance_groups: dict[str, list[str]]
    stmgrs: dict[str, PhysicalStmgr]
    spouts: dict[str, list[str]]
    bolts: dict[str, list[str]]
    config: Config
    components: dict[str, ComponentConfig]


class Resources(BaseModel):
    cpu: float
    ram: int = Field(description="Bytes.")
    disk: int = Field(description="Bytes.")


class PackedInstance(BaseModel):
    component_name: str
    task_id: int
    component_index: int
    instance_resources: Resources


class ContainerPlan(BaseModel):
    id: int
    instances: list[PackedInstance]
    required_resources: Resources
    scheduled_resources: Resources | None


class PackingPlan(BaseModel):
    id: str
    container_plans: list[ContainerPlan]


class Registered(BaseModel):
    is_registered: bool


class RuntimeState(BaseModel):
    has_physical_plan: bool
    has_packing_plan: bool
    has_tmanager_location: bool
    has_scheduler_location: bool
    stmgrs: dict[str, Registered]
    tmaster: str = Field(description="`ok`, or since when the Topology Master is unreachable; then the rest is older.")


class SchedulerLocation(BaseModel):
    name: str
    http_endpoint: str
    job_page_link: str


class TmanagerLocation(BaseModel):
    name: str
    id: str
    host: str
    controller_port: int
    server_port: int
    stats_port: int


class Info(BaseModel):
    id: str
    name: str
    takes_checkpoints: bool = Field(description="Not of Heron.")
    has_pipeline: bool = Field(description="Whether its program has a batch side. Not of Heron.")
    execution_state: ExecutionState
    logical_plan: LogicalPlan
    physical_plan: PhysicalPlan | None
    packing_plan: PackingPlan | None
    metadata: Metadata
    runtime_state: RuntimeState
    scheduler_location: SchedulerLocation | None
    tmanager_location: TmanagerLocation | None


class Metrics(BaseModel):
    interval: int = Field(description="Seconds; -1: all time.")
    component: str
    metrics: dict[str, dict[str, str]] = Field(description="Value by metric and instance.")


class Timeline(BaseModel):
    component: str
    starttime: int
    endtime: int
    timeline: dict[str, dict[str, dict[str, float]]] = Field(description="Value by metric, instance and minute.")


class QueryLine(BaseModel):
    instance: str | None = Field(default=None, description="Left out of a line that belongs to no instance.")
    data: dict[str, float]


class QueryResult(BaseModel):
    starttime: int
    endtime: int
    timeline: list[QueryLine]


class ExceptionEntry(BaseModel):
    hostname: str
    instance_id: str
    stacktrace: str
    lasttime: str
    firsttime: str
    count: int
    logging: str
    group: str = Field(description="Equal for exceptions that differ only in numbers and ids. Not of Heron.")


class ExceptionClass(BaseModel):
    class_name: str
    lasttime: str
    firsttime: str
    count: int


class FileData(BaseModel):
    offset: int
    length: int = Field(description="Bytes of the file that `data` stands for.")
    data: str = Field(description="HTML-escaped.")


class FileStats(BaseModel):
    formatted_stat: str
    is_dir: bool
    path: str
    size: int
    modified: float = Field(description="Seconds since the epoch.")


class FileMatch(BaseModel):
    path: str = Field(description="Of the file.")
    offset: int = Field(description="Where the line begins, in bytes.")
    line: str


class FileMatches(BaseModel):
    """Not of Heron."""

    matches: list[FileMatch]
    complete: bool = Field(description="All was searched; else the next three say where to go on.")
    after_path: str
    after_offset: int
    after_inode: int


class ProcessOutput(BaseModel):
    command: str
    stdout: str
    stderr: str

    @classmethod
    def of(cls, reply: shell_pb2.LookReply) -> Self:
        return cls(command=reply.command, stdout=reply.stdout, stderr=reply.stderr)


class StateManagerStatus(BaseModel):
    """Not of Heron."""

    name: str
    type: str
    location: str
    connected: bool
    since: str
    error: str | None
    topologies: int
    damaged: dict[str, str] = Field(description="Topologies whose state cannot be read, and why.")


class PrometheusTarget(BaseModel):
    """Prometheus' shape. Not of Heron."""

    targets: list[str]
    labels: dict[str, str]


class Version(BaseModel):
    """Not of Heron."""

    version: str
    actions: bool = Field(description="Whether topologies can be activated, deactivated, restarted and killed here.")


class ActionDone(BaseModel):
    """Not of Heron."""

    topology: str
    action: str
    status: str = Field(description="Running, Paused or Killed.")


class Load(BaseModel):
    """What a component or an instance does, over the interval. Not of Heron."""

    emitted: float
    executed: float
    acked: float
    failed: float
    emit_rate: float | None = Field(description="Per second; none over all time.")
    execute_rate: float | None
    complete_latency_ms: float | None
    execute_latency_ms: float | None
    process_latency_ms: float | None
    capacity: float | None = Field(description="Share of the time in `process` (of the busiest instance).")
    cpu_cores: float | None
    memory_bytes: float | None
    backpressure_ms: float = Field(description="How long it has throttled the spouts.")


class HealthReason(BaseModel):
    kind: str = Field(
        description="tmaster, stopped, state, checkpoints, ready, restarts, failures, silence, backpressure."
    )
    state: str = Field(description="How bad this alone is.")
    text: str


class Health(BaseModel):
    """How a topology is, as its Topology Master assesses it. Not of Heron."""

    state: str = Field(description="healthy, starting, degraded, unhealthy.")
    restarts: int = Field(description="Of all its processes, in the last 10 minutes.")
    reasons: list[HealthReason] = Field(description="The worst first; none of a healthy topology.")


class TopologyHealth(Health):
    cluster: str
    role: str
    environ: str
    name: str


class InstanceLoad(Load):
    id: str
    container: int
    restarts: int = Field(description="Since it was started on purpose.")
    recent_restarts: int = Field(description="In the last 10 minutes.")
    attached: bool
    pid: int
    uptime_s: float | None


class Percentiles(BaseModel):
    """Of a latency, within 1.6 %. Not of Heron."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class ComponentLoad(Load):
    name: str
    complete_percentiles: Percentiles | None
    execute_percentiles: Percentiles | None = Field(description="Of batches, weighed by their tuples.")
    process_percentiles: Percentiles | None = Field(description="Of batches, weighed by their tuples.")
    restarts: int
    recent_restarts: int
    kind: str
    parallelism: int
    instances: list[InstanceLoad]


class Culprit(BaseModel):
    instance: str
    held_ms: float


class Summary(BaseModel):
    """Not of Heron."""

    cluster: str
    role: str
    environ: str
    name: str
    id: str
    status: str
    ready: bool
    tracked: bool = Field(description="Tuples are acked: at least once or better.")
    health: Health
    tmaster: str
    interval: int = Field(description="Seconds; -1: all time.")
    as_of: str | None = Field(
        description="When the numbers were measured, if they are not live; null if they are, or none are known."
    )
    components: list[ComponentLoad]
    culprits: list[Culprit] = Field(description="Who throttled the spouts, the worst first.")


class MissingTask(BaseModel):
    task: int
    component: str
    instance: str


class CheckpointUnderWay(BaseModel):
    id: int
    elapsed_ms: int
    missing: list[MissingTask] = Field(description="Tasks that have not stored their snapshots.")


class StoredState(BaseModel):
    """The state of a component in a checkpoint."""

    tasks: int
    size: int = Field(description="Bytes.")
    by_task: list[int] = Field(description="Bytes that each task has written, by index.")


class Checkpoint(BaseModel):
    id: int
    state: str = Field(
        description="`committed`: can be restored; `replaced`: was committed, and is not kept; `failed`; `damaged`; "
        "`not committed`: stored, and never decided upon."
    )
    time: str | None = Field(description="When it was committed or failed, or when its manifest was made.")
    duration_ms: int | None
    aligned_ms: int | None = Field(description="The longest that a task waited from its first marker to its last.")
    size: int | None = Field(description="Bytes, with all that it shares with others.")
    added: int | None = Field(description="Bytes that the one before did not have.")
    logged: int | None = Field(description="Bytes that tasks had yet to execute.")
    reason: str | None = Field(description="Why it failed, or cannot be read.")
    components: dict[str, StoredState] | None = Field(description="Of those that are stored.")


class Restore(BaseModel):
    epoch: int
    checkpoint: int = Field(description="0: none was committed yet.")
    time: str
    reason: str | None = Field(description="What was lost; null: another Topology Master knew.")


class Checkpoints(BaseModel):
    """How the checkpoints of a topology go. Not of Heron."""

    tmaster: str = Field(description="`ok`, or since when the Topology Master is unreachable; then the rest is older.")
    storage: str = Field(description="`ok`, or why the stored checkpoints cannot be read from here.")
    location: str | None = Field(description="The storage.")
    start_from: str | None = Field(description="The storage whose checkpoint the topology began with, if it did.")
    start_checkpoint: int | None
    phase: str | None = Field(description="running, restoring, …; null: the Topology Master has never said.")
    restore_epoch: int | None
    newest: int | None = Field(description="The one that a restore takes; 0: none.")
    interval_ms: int | None = Field(description="From one to the next, as it is wanted.")
    age_ms: int | None = Field(description="Since the last commit, or since all tasks run; null: they never did.")
    under_way: CheckpointUnderWay | None
    problem: str | None = Field(description="Why nothing can be restored, and so nothing runs.")
    fallback: str | None = Field(description="Which checkpoint was restored instead of which, and why.")
    committed: int | None = Field(description="How many, since this Topology Master began.")
    failed: int | None = Field(description="How many, since this Topology Master began.")
    restores: int | None = Field(description="How many, since this Topology Master began.")
    checkpoints: list[Checkpoint] = Field(description="The last ones, the newest first.")
    rollbacks: list[Restore] = Field(description="The last ones, the newest first.")


class ListedTopology(BaseModel):
    """What a list of topologies shows of one. Not of Heron."""

    cluster: str
    role: str
    environ: str
    name: str
    statemgr: str = Field(description="The state manager that knows of it.")
    id: str
    status: str
    plan_version: int
    has_physical_plan: bool
    tmaster: str = Field(description="`ok`, or since when there is no Topology Master.")
    instances: int
    submission_time: int = Field(description="Seconds since the epoch.")
    submission_user: str
    release_version: str


class HistoryLine(BaseModel):
    metric: str
    kind: str
    data: dict[str, float]


class Setting(BaseModel):
    of: str = Field(description="Whose: `engine`, `topology`, or the name of a component.")
    key: str
    value: Any
    origin: str = Field(
        description="`default`, `cluster file NAME/FILE`, `command line`, `topology`, `component`, or `unknown`."
    )


class EffectiveConfig(BaseModel):
    """The whole configuration that is in force. Not of Heron."""

    settings: list[Setting]
    incomplete: str | None = Field(description="Why the engine's values and some origins are not known here.")


class ProfileFrame(BaseModel):
    function: str
    file: str
    line: int


class ProfileStack(BaseModel):
    thread: str
    frames: list[int] = Field(description="Numbers of frames, from the outermost caller inwards.")
    samples: int = Field(description="How often it was seen.")
    cpu_ns: int = Field(description="CPU time that the thread used before it was seen.")


class Profile(BaseModel):
    """Stacks of a process, sampled from inside. Not of Heron."""

    instance: str
    pid: int
    seconds: float
    samples: int = Field(description="How often all threads were looked at.")
    dropped: int = Field(description="Stacks that are not told: there were too many different ones.")
    cost_cpu_s: float = Field(description="CPU time that the sampling took.")
    frames: list[ProfileFrame]
    stacks: list[ProfileStack]

    @classmethod
    def of(cls, instance: str, found: shell_pb2.ProcessProfile) -> Self:
        return cls(
            instance=instance,
            pid=found.pid,
            seconds=found.seconds,
            samples=found.samples,
            dropped=found.dropped,
            cost_cpu_s=found.cost_cpu_s,
            frames=[ProfileFrame(function=f.function, file=f.file, line=f.line) for f in found.frames],
            stacks=[
                ProfileStack(thread=s.thread, frames=list(s.frames), samples=s.samples, cpu_ns=s.cpu_ns)
                for s in found.stacks
            ],
        )


class History(BaseModel):
    """Not of Heron."""

    percentiles: dict[str, dict[str, dict[str, float]]] = Field(
        default={},
        description="By latency (without its stream), p50, p95 or p99, and time: in ns.",
    )

    component: str
    starttime: int
    endtime: int
    step: int = Field(description="Seconds from point to point.")
    lines: list[HistoryLine]


class UserMetric(BaseModel):
    """A metric that the topology registered itself. Not of Heron."""

    metric: str
    kind: str
    components: list[str] = Field(description="Those that reported it.")


class UserMetrics(BaseModel):
    """Not of Heron."""

    total: int = Field(description="How many there are, also those that are left out.")
    metrics: list[UserMetric]
