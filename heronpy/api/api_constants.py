"""Names of the configuration keys that a topology, or one of its components, may set.

Keys that do not begin with `topology.` or `heron.` are the user's own and reach `initialize()` untouched. The others
are checked when the topology is built (see `heronpy.api.validate_config`). A few are Heron's and have no effect here,
nor do those of Storm: `heron submit` names the ones that a topology sets.
"""


class TopologyReliabilityMode:
    """Values of `topology.reliability.mode`."""

    ATMOST_ONCE = "ATMOST_ONCE"
    """Nothing is tracked: a tuple that is lost is gone."""
    ATLEAST_ONCE = "ATLEAST_ONCE"
    """A tuple that is not acked in time, or failed, is reported to its spout, which may emit it again."""
    EFFECTIVELY_ONCE = "EFFECTIVELY_ONCE"
    """State and position are saved together, so that every tuple counts once in the state."""


class TopologyExceptionPolicy:
    """Values of `topology.exception.policy`."""

    RESTART = "restart"
    """The instance ends and is started again."""
    FAIL = "fail"
    """The tuple is failed, the exception reported, and the bolt goes on."""


# Identity of the topology, for people and their tools.
TOPOLOGY_NAME = "topology.name"
TOPOLOGY_TEAM_NAME = "topology.team.name"
TOPOLOGY_TEAM_EMAIL = "topology.team.email"
TOPOLOGY_TEAM_ENVIRONMENT = "topology.team.environment"
TOPOLOGY_CAP_TICKET = "topology.cap.ticket"
TOPOLOGY_PROJECT_NAME = "topology.project.name"

# Behaviour.
TOPOLOGY_DEBUG = "topology.debug"
TOPOLOGY_STMGRS = "topology.stmgrs"
TOPOLOGY_MESSAGE_TIMEOUT_SECS = "topology.message.timeout.secs"
TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS = "topology.enable.message.timeouts"
TOPOLOGY_COMPONENT_PARALLELISM = "topology.component.parallelism"
TOPOLOGY_MAX_SPOUT_PENDING = "topology.max.spout.pending"
TOPOLOGY_ACKING = "topology.acking"
TOPOLOGY_RELIABILITY_MODE = "topology.reliability.mode"
TOPOLOGY_EXCEPTION_POLICY = "topology.exception.policy"
TOPOLOGY_SERIALIZER_CLASSNAME = "topology.serializer.classname"
TOPOLOGY_AUTO_TASK_HOOKS = "topology.auto.task.hooks"
TOPOLOGY_TICK_TUPLE_FREQ_MS = "topology.tick.tuple.freq.ms"
TOPOLOGY_TICK_TUPLE_FREQ_SECS = "topology.tick.tuple.freq.secs"
TOPOLOGY_ENVIRONMENT = "topology.environment"
TOPOLOGY_TIMER_EVENTS = "topology.timer.events"
TOPOLOGY_REMOTE_DEBUGGING_ENABLE = "topology.remote.debugging.enable"
TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE = "topology.droptuples.upon.backpressure"
TOPOLOGY_COMPONENT_OUTPUT_BPS = "topology.component.output.bps"
TOPOLOGY_COMPONENT_HOLDS_TUPLES = "topology.component.holds.tuples"
"""For a bolt, not in Heron: it acks tuples long after it got them, as windows and joins do. Where there is one, and no
`topology.max.spout.pending`, spouts may have a million tuples on their way instead of what was acked lately."""
TOPOLOGY_COMPONENT_WINDOWS_HOLD_TUPLES = "topology.component.windows.hold.tuples"
"""Not in Heron, set by windowed bolts: all that they do not ack is in a window. Without checkpoints the same holds, and
tuples do not time out meanwhile. With checkpoints windows are state, and tuples acked on arrival."""
TOPOLOGY_COMPONENT_TASK_TIMEOUT_SECS = "topology.component.task.timeout.secs"
"""Not in Heron: how long one call of the component's code may take before its instance is killed and started again.
0: for ever. Without it `heron.instance.task.timeout.ms` holds."""
TOPOLOGY_COMPONENT_WATERMARK_FIELD = "topology.component.watermark.field"
"""Not in Heron: the field of the component's tuples that its watermarks speak of. Bolts with this timestamp field
follow them. A bolt without event time passes on those of its inputs; a spout calls `send_watermark()`. Empty: it sends
none. See docs/guarantees.md."""
TOPOLOGY_COMPONENT_OUTPUT_TPS = "topology.component.output.tps"

# Windowed bolts, as in Storm (see `heronpy.api.bolt.BaseWindowedBolt`). The last two are not in Storm.
TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT = "topology.bolts.window.length.count"
TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS = "topology.bolts.window.length.duration.ms"
TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT = "topology.bolts.window.sliding.interval.count"
TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS = "topology.bolts.window.sliding.interval.duration.ms"
TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME = "topology.bolts.tuple.timestamp.field.name"
TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS = "topology.bolts.tuple.timestamp.max.lag.ms"
TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS = "topology.bolts.watermark.event.interval.ms"
TOPOLOGY_BOLTS_LATE_TUPLE_STREAM = "topology.bolts.late.tuple.stream"
TOPOLOGY_BOLTS_WATERMARK_IDLE_AFTER_MS = "topology.bolts.watermark.idle.after.ms"
"""After how long without tuples a stream is not waited for; 60 s without it."""
TOPOLOGY_BOLTS_WATERMARK_MAX_ADVANCE_MS = "topology.bolts.watermark.max.advance.ms"
"""How far ahead of its stream a single tuple's time may be to be believed; one day without it."""

# Heron's Java instances.
TOPOLOGY_WORKER_CHILDOPTS = "topology.worker.childopts"
TOPOLOGY_COMPONENT_JVMOPTS = "topology.component.jvmopts"
TOPOLOGY_ADDITIONAL_CLASSPATH = "topology.additional.classpath"
TOPOLOGY_KRYO_FACTORY = "topology.kryo.factory"
TOPOLOGY_KRYO_REGISTER = "topology.kryo.register"
TOPOLOGY_KRYO_DECORATORS = "topology.kryo.decorators"

# Resources of a container.
TOPOLOGY_CONTAINER_CPU_REQUESTED = "topology.container.cpu"
TOPOLOGY_CONTAINER_RAM_REQUESTED = "topology.container.ram"
TOPOLOGY_CONTAINER_DISK_REQUESTED = "topology.container.disk"
TOPOLOGY_CONTAINER_MAX_CPU_HINT = "topology.container.max.cpu.hint"
TOPOLOGY_CONTAINER_MAX_RAM_HINT = "topology.container.max.ram.hint"
TOPOLOGY_CONTAINER_MAX_DISK_HINT = "topology.container.max.disk.hint"
TOPOLOGY_CONTAINER_MAX_NUM_INSTANCES = "topology.container.max.instances"
TOPOLOGY_CONTAINER_PADDING_PERCENTAGE = "topology.container.padding.percentage"
TOPOLOGY_CONTAINER_RAM_PADDING = "topology.container.ram.padding"
TOPOLOGY_CONTAINER_CPU_PADDING = "topology.container.cpu.padding"

# Resources of a component's instances: `component:value,component:value`, or a dict.
TOPOLOGY_COMPONENT_CPUMAP = "topology.component.cpumap"
TOPOLOGY_COMPONENT_RAMMAP = "topology.component.rammap"
TOPOLOGY_COMPONENT_DISKMAP = "topology.component.diskmap"

# Resources of the engine's processes.
TOPOLOGY_STMGR_RAM = "topology.stmgr.ram"
TOPOLOGY_METRICSMGR_RAM = "topology.metricsmgr.ram"
TOPOLOGY_TMANAGER_CPU = "topology.tmanager.cpu"
"""Not in Heron, like the next two: what container 0 asks for, which has the Topology Master."""
TOPOLOGY_TMANAGER_RAM = "topology.tmanager.ram"
TOPOLOGY_TMANAGER_DISK = "topology.tmanager.disk"
TOPOLOGY_PACKING_FFD_SORTING_STRATEGY = "topology.packing.ffd.sorting.strategy"

# State.
TOPOLOGY_STATE_KEY_GROUPS = "topology.state.key.groups"
"""Not in Heron: number of groups that fields groupings divide keys into, a power of two; a component can have at most
so many tasks. Fixed for the life of a topology's state."""
TOPOLOGY_STATE_MEMORY_MB = "topology.state.memory.mb"
"""Not in Heron: memory that state by key may take in each task, in MiB, with checkpoints; what is committed and does
not fit goes to a file in the task's working directory. Without it all state is in memory. Needs the extra `state`."""
TOPOLOGY_STATE_ALLOW_EMPTY = "topology.state.allow.empty"
"""Not in Heron: begin without state if no checkpoint can be restored; else the topology waits until one can."""
TOPOLOGY_STATE_ALLOW_DROPPED = "topology.state.allow.dropped"
"""Not in Heron: a topology that begins with the checkpoint of another may drop state that it does not declare."""
TOPOLOGY_STATE_ALLOW_LOSSY_SPOUTS = "topology.state.allow.lossy.spouts"
"""Not in Heron: effectively once, spouts may keep no position; what they have in flight is lost at a rollback."""
TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECONDS = "topology.stateful.checkpoint.interval.seconds"
"""Effectively once 10, unless it is set. At least once, checkpoints are taken only if it is."""
TOPOLOGY_STATEFUL_CHECKPOINT_TIMEOUT_SECONDS = "topology.stateful.checkpoint.timeout.seconds"
TOPOLOGY_STATEFUL_START_CLEAN = "topology.stateful.start.clean"
TOPOLOGY_STATEFUL_CKPTMGR_RAM = "topology.stateful.ckptmgr.ram"
TOPOLOGY_STATEFUL_SPILL_STATE = "topology.stateful.spill.state"
TOPOLOGY_STATEFUL_SPILL_STATE_LOCATION = "topology.stateful.spill.state.location"

# Scaling.
TOPOLOGY_UPDATE_DEACTIVATE_WAIT_SECS = "topology.update.deactivate.wait.secs"
TOPOLOGY_UPDATE_REACTIVATE_WAIT_SECS = "topology.update.reactivate.wait.secs"

TOPOLOGY_KEYS: frozenset[str] = frozenset(
    value for name, value in list(globals().items()) if name.startswith("TOPOLOGY_") and isinstance(value, str)
)
"""Every `topology.…` key there is."""
