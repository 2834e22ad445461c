"""The engine's configuration: what can be set for each process, in one typed place.

Every field names the Heron-style key that sets it (`heron.…`, from the cluster's YAML files or
`--config-property`), the unit of that key where it differs from the field's, and what it does.

Every process of a topology imports this. To define a dataclass takes 0.6 ms of CPU, because it compiles each of its
methods; a Struct of msgspec takes 0.01.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from heronpy.config._sinks import sinks_from_text
from heronpy.errors import ConfigError, nearest

KIB = 1024
MIB = 1024 * KIB
FILES_MAX = 100
"""Most rotated files that anybody looks for."""


def _key(default: Any, key: str) -> Any:
    """A field set by `key`. The unit of a key that ends in `.mb` is a megabyte, the field's a byte."""
    return field(default=default, name=key)


class InstanceConfig(Struct, frozen=True, kw_only=True):
    """One Heron Instance."""

    drain_interval_ms: float = _key(5.0, "heron.instance.emit.batch.time.ms")
    """How long an emitted tuple or an ack may wait to be sent with others. Lower favours latency, higher throughput."""
    batch_tuples: int = _key(8192, "heron.instance.set.data.tuple.capacity")
    """Everything emitted is sent when this many tuples wait, whatever the interval."""
    frame_bytes: int = _key(1 * MIB, "heron.instance.set.data.tuple.size.bytes")
    """A batch whose serialized values are larger than this is split in two."""
    tuple_bytes_max: int = _key(32 * MIB, "heron.instance.network.options.maximum.packetsize.bytes")
    """One tuple larger than this is an error of the component that emits it."""
    in_queue_bytes: int = _key(4 * MIB, "heron.instance.internal.read.queue.bytes")
    """Most that the data-in queue holds before the gateway stops reading from the Stream Manager."""
    in_queue_bytes_expected: int = _key(1 * MIB, "heron.instance.tuning.expected.read.queue.bytes")
    """While the data-in queue holds more than this, its capacity is halved step by step; below, it grows again."""
    out_queue_bytes: int = _key(4 * MIB, "heron.instance.internal.write.queue.bytes")
    """Most that the data-out queue holds before the task blocks."""
    tuning_interval_ms: int = _key(100, "heron.instance.tuning.interval.ms")
    """How often the capacity of the data-in queue is adapted."""
    reconnect_interval_ms: int = _key(200, "heron.instance.reconnect.streammgr.interval.ms")
    """Pause between two attempts to reach the Stream Manager."""
    shutdown_timeout_ms: int = _key(2000, "heron.instance.force.exit.timeout.ms")
    """How long the user's code may go on after SIGTERM before the process ends by force."""
    task_timeout_ms: int = _key(300_000, "heron.instance.task.timeout.ms")
    """How long one call of user code (initialize(), next_tuple(), process(), …) may take. After that the task is hung:
    its stacks are logged, and the instance is killed and started again. Waiting for the engine does not count.
    0: for ever. A component overrides it by `topology.component.task.timeout.secs`."""
    nice: int = _key(5, "heron.instance.nice")
    """Niceness: where user code takes all cores, the engine's own processes and the CLI still answer."""
    batch_scheduling: bool = _key(True, "heron.instance.batch.scheduling")
    """Where all cores are busy, an instance that wakes up waits its turn instead of interrupting another one: less CPU
    per tuple, for some ms of latency. Without effect where a core is free."""
    slice_ms: float = _key(10.0, "heron.instance.cpu.slice.ms")
    """How long an instance computes before another one takes its turn, where all cores are busy: with caches that are
    warm for longer it needs less CPU per tuple; longer still, and paced tuples wait. Linux 6.12 or newer, else without
    effect; 0: as the kernel likes, 1 to 3 ms."""
    idle_sleep_ms: float = _key(1.0, "heron.instance.spout.idle.sleep.ms")
    """Pause of a spout whose next_tuple() emitted nothing. It grows to a hundredth of the time for which the spout has
    had nothing, up to `idle_sleep_max_ms`."""
    idle_sleep_max_ms: float = _key(10.0, "heron.instance.spout.idle.sleep.max.ms")
    """Longest pause of a spout that has nothing to emit; not above the other: always that."""

    def __post_init__(self) -> None:
        if self.in_queue_bytes_expected > self.in_queue_bytes:
            raise ConfigError(
                "heron.instance.tuning.expected.read.queue.bytes must not be larger than "
                "heron.instance.internal.read.queue.bytes"
            )


class StmgrConfig(Struct, frozen=True, kw_only=True):
    """One Stream Manager."""

    outbox_bytes_high: int = _key(100 * MIB, "heron.streammgr.network.backpressure.highwatermark.mb")
    """Backpressure starts when this much waits for one instance or one peer."""
    outbox_bytes_low: int = _key(50 * MIB, "heron.streammgr.network.backpressure.lowwatermark.mb")
    """Backpressure ends when less than this waits."""
    frame_bytes: int = _key(1 * MIB, "heron.streammgr.connection.write.batch.size.mb")
    """Waiting batches are sent together in frames of at most about this size."""
    merge_interval_ms: float = _key(1.0, "heron.streammgr.cache.drain.frequency.ms")
    """Shortest time between two small frames on one link, so that small batches with the same way to go are sent
    together. The first after a pause never waits. 0: sent as soon as the link is free."""
    merge_bytes: int = _key(32 * KIB, "heron.streammgr.cache.drain.size.bytes")
    """A frame of this size is not small: it is sent at once."""
    peer_reconnect_ms: int = _key(200, "heron.streammgr.client.reconnect.interval.ms")
    """Pause between two attempts to reach a peer."""
    feedback_spill_bytes: int = _key(4096 * MIB, "heron.streammgr.feedback.spill.limit.mb")
    """How much of what bolts send round a cycle (to themselves, or to bolts before them) may wait on disk in a
    container. Beyond, the topology stops, and its status says why."""
    heartbeat_interval_ms: int = _key(1000, "heron.streammgr.tmanager.heartbeat.interval.ms")
    """How often the Topology Master receives a heartbeat from a Stream Manager."""

    def __post_init__(self) -> None:
        if self.outbox_bytes_low >= self.outbox_bytes_high:
            raise ConfigError(
                "heron.streammgr.network.backpressure.lowwatermark.mb must be below "
                "heron.streammgr.network.backpressure.highwatermark.mb"
            )


class TmasterConfig(Struct, frozen=True, kw_only=True):
    """The Topology Master."""

    stmgr_timeout_ms: int = _key(10_000, "heron.tmanager.stmgr.state.timeout.ms")
    """A Stream Manager that is silent for this long is taken for dead."""
    exceptions_max: int = _key(256, "heron.tmanager.metrics.collector.maximum.exception")
    """How many different exceptions are kept for a topology."""
    series_max: int = _key(150_000, "heron.tmanager.metrics.collector.maximum.series")
    """Of how many series (one metric of one process) the last three hours are kept; each costs up to 1.5 KB, means
    twice that. Those beyond are counted as __metrics-history-dropped."""


class MetricsConfig(Struct, frozen=True, kw_only=True):
    """Collection and export of metrics."""

    interval_ms: int = _key(5000, "heron.metrics.export.interval.ms")
    """How often a process reports to its Metrics Manager, and this one to the Topology Master."""
    prometheus_port: int = _key(0, "heron.metricsmgr.prometheus.port")
    """Port of the Prometheus endpoint of container 0; container n uses port + n. 0: any free port."""
    prometheus_tls: bool = _key(True, "heron.metricsmgr.prometheus.tls")
    """Whether the Prometheus endpoint asks for a certificate, where `heron.security.tls` is on."""
    sinks: str = _key("", "heron.metricsmgr.sinks")
    """Where metrics go: what the cluster's metrics_sinks.yaml says, as JSON. Empty: Prometheus and the Topology Master.
    """

    def __post_init__(self) -> None:
        sinks_from_text(self.sinks)


class ExecutorConfig(Struct, frozen=True, kw_only=True):
    """The supervisor of one container's processes."""

    restart_backoff_ms: int = _key(100, "heron.executor.restart.backoff.ms")
    """Pause before a dead process is started again; doubled for each death within the stable time."""
    restart_backoff_max_ms: int = _key(10_000, "heron.executor.restart.backoff.maximum.ms")
    """Longest such pause."""
    stable_ms: int = _key(30_000, "heron.executor.stable.ms")
    """A process that lived this long starts again with the shortest pause."""
    stop_timeout_ms: int = _key(5000, "heron.executor.stop.timeout.ms")
    """How long a process may take to end after SIGTERM before it is killed."""
    heartbeat_timeout_ms: int = _key(30_000, "heron.executor.heartbeat.timeout.ms")
    """A process whose event loop stands still for this long is hung: its stacks are logged, it is killed and started
    again. Until its first heartbeat it has four times as long, at least a minute. 0: hung processes are left alone."""
    crash_loop_restarts: int = _key(5, "heron.executor.crash.loop.restarts")
    """A process that died this often within the window is reported to be in a crash loop."""
    crash_loop_window_ms: int = _key(600_000, "heron.executor.crash.loop.window.ms")
    """The window of the crash loop."""
    fork_server: bool = _key(True, "heron.executor.fork.server")
    """Whether the processes of a container are forked by one that has imported their modules, which takes a tenth of
    the CPU and two fifths of the memory, instead of executed."""
    limits: str = _key("auto", "heron.executor.limits")
    """How instances are held to the RAM and CPU of the packing plan. `auto`: those of components with an entry in
    topology.component.rammap, by cgroups if they can be made, else as `rlimit`; CPU too, if it is in
    topology.component.cpumap. `cgroup`: all instances, RAM and CPU, or the container does not start. `rlimit`: the RAM
    of all, looked at once a second. `off`: none."""
    cgroup_parent: str = _key("", "heron.executor.cgroup.parent")
    """The cgroup below which those of instances are made, from the root of its hierarchy. Empty: the executor's own."""

    def __post_init__(self) -> None:
        if self.limits not in ("auto", "cgroup", "rlimit", "off"):
            raise ConfigError(f"heron.executor.limits must be auto, cgroup, rlimit or off, not {self.limits!r}")
        if ".." in self.cgroup_parent.split("/"):
            raise ConfigError(f"heron.executor.cgroup.parent must not contain '..': {self.cgroup_parent!r}")
        if self.heartbeat_timeout_ms and self.heartbeat_timeout_ms < 3000:
            raise ConfigError("heron.executor.heartbeat.timeout.ms must be 0 or at least 3000")
        if self.crash_loop_restarts < 1:
            raise ConfigError("heron.executor.crash.loop.restarts must be at least 1")


class LoggingConfig(Struct, frozen=True, kw_only=True):
    """What processes log and print: two files each, `<process>.log` and `<process>.out`."""

    level: str = _key("INFO", "heron.logging.level")
    """DEBUG, INFO, WARNING or ERROR."""
    file_bytes: int = _key(100 * MIB, "heron.logging.maximum.size.mb")
    """A file is rotated when it reaches this size."""
    files: int = _key(5, "heron.logging.maximum.files")
    """How many rotated files of each are kept, 1 to 100."""
    format: str = _key("text", "heron.logging.format")
    """Of the .log files: `text`, or `json` for an object a line (ts, level, logger, process, pid, topology, message,
    and exc, a traceback)."""

    upload_uri: str = _key("", "heron.logs.upload.uri")
    """Where a container's log files are stored when it ends, for the Tracker and `heron logs`: a directory that all
    hosts share, `s3://bucket/prefix` or `hdfs://host:port/path`, as for checkpoints. Empty: nowhere."""

    def __post_init__(self) -> None:
        if self.format not in ("text", "json"):
            raise ConfigError(f"heron.logging.format must be text or json, not {self.format!r}")
        if self.file_bytes < 1:
            raise ConfigError("heron.logging.maximum.size.mb must be more than 0: log files must be bounded")
        if not 1 <= self.files <= FILES_MAX:
            raise ConfigError(f"heron.logging.maximum.files must be 1 to {FILES_MAX}, not {self.files}")
        if self.level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"heron.logging.level must be DEBUG, INFO, WARNING or ERROR, not {self.level!r}")


class ShellConfig(Struct, frozen=True, kw_only=True):
    """heron-shell: the server of a container's logs, stacks and processes."""

    enabled: bool = _key(False, "heron.shell.enabled")
    """Whether each container has one. Left open, containers have one unless they share the submitter's files, as those
    of the local scheduler do."""


class SubmitConfig(Struct, frozen=True, kw_only=True):
    """`heron submit` on a cluster that starts containers by itself."""

    wait_s: float = _key(20.0, "heron.submit.wait.secs")
    """How long it waits for the containers, to see that their hosts can run them: one that cannot ends the submission.
    What takes longer, for lack of resources say, is no error. 0: it does not wait."""


class NetworkConfig(Struct, frozen=True, kw_only=True):
    """Where processes listen, and where others reach them."""

    bind: str = _key("127.0.0.1", "heron.network.bind.address")
    """The address that servers bind: one of this host, or `0.0.0.0` for all of them."""
    advertise: str = _key("", "heron.network.advertise.address")
    """The address that others dial, unless HERON_ADVERTISE_ADDRESS in the environment names one: schedulers of clusters
    set it. Empty: `bind`, or the address of the route to the state manager where `bind` is a wildcard."""


class SecurityConfig(Struct, frozen=True, kw_only=True):
    """How processes prove to each other who they are."""

    tls: bool = _key(True, "heron.security.tls")
    """Mutual TLS on every TCP link, loopback included. False: a process that takes over the port of a dead one
    is sent the topology's token."""
    certificate_days: int = _key(365, "heron.security.certificate.days")
    """How long certificates are valid. They are renewed when a third of that is left."""

    def __post_init__(self) -> None:
        if not 1 <= self.certificate_days <= 3650:
            raise ConfigError(f"heron.security.certificate.days must be 1 to 3650, not {self.certificate_days}")


class CheckpointsConfig(Struct, frozen=True, kw_only=True):
    """Where checkpoints are stored."""

    url: str = _key("", "heron.statefulstorage.url")
    """A directory (`/path`; one that all hosts share, if there are several), `s3://bucket/prefix`,
    `hdfs://host:port/path` (through PyArrow and Hadoop's client, whose CLASSPATH, JAVA_HOME and ARROW_LIBHDFS_DIR must
    be in the environment), or `redis://host:port/db?prefix=…`. Each topology has a place of its own below it. Empty:
    `checkpoints` in HERON_HOME.
    """
    retained: int = _key(5, "heron.statefulstorage.max.checkpoints")
    """How many committed checkpoints of a topology are kept."""

    def __post_init__(self) -> None:
        if self.retained < 1:
            raise ConfigError("heron.statefulstorage.max.checkpoints must be at least 1")


class PackageConfig(Struct, frozen=True, kw_only=True):
    """How the user's code, and Python with it, come to the hosts that run it."""

    url: str = _key("", "heron.uploader.url")
    """Where packages are stored: a directory (`/path`; one that all hosts share, if there are several),
    `s3://bucket/prefix` or `hdfs://host:port/path`, with the options of `heron.statefulstorage.url`. Empty: nothing is
    stored; containers need the submitter's own files."""
    python: str = _key("image", "heron.package.python")
    """Which Python runs a container: `image`, the one that its host or image has, with heronpy in it; `venv:/path`, a
    virtual environment at that path of every host; `ship`, the submitter's own environment, which is stored beside the
    package and made again on each host out of its Python of the same version."""
    requirements: str = _key("", "heron.package.requirements")
    """A requirements file of pip. What it names is stored in the package as wheels, and installed for each container
    from these alone."""

    def __post_init__(self) -> None:
        kind, _, path = self.python.partition(":")
        if self.python not in ("image", "ship") and (kind != "venv" or not path.startswith("/")):
            raise ConfigError(f"heron.package.python must be image, venv:/path or ship, not {self.python!r}")
        if self.python == "ship" and (not self.url or urlsplit(self.url).scheme not in ("", "file", "s3")):
            raise ConfigError(
                "heron.package.python: what ships is fetched without heronpy, so heron.uploader.url must be a "
                "directory that all hosts share, or s3://bucket/prefix"
            )


class EngineConfig(Struct, frozen=True, kw_only=True):
    """All sections."""

    instance: InstanceConfig = InstanceConfig()
    stmgr: StmgrConfig = StmgrConfig()
    tmaster: TmasterConfig = TmasterConfig()
    metrics: MetricsConfig = MetricsConfig()
    executor: ExecutorConfig = ExecutorConfig()
    logging: LoggingConfig = LoggingConfig()
    network: NetworkConfig = NetworkConfig()
    submit: SubmitConfig = SubmitConfig()
    shell: ShellConfig = ShellConfig()
    security: SecurityConfig = SecurityConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    package: PackageConfig = PackageConfig()

    @classmethod
    def from_keys(cls, values: Mapping[str, Any]) -> Self:
        """Build from a flat map of Heron-style keys.

        Raises:
            ConfigError: an unknown key (the nearest known one is named) or a value of the wrong type.
        """
        sections: dict[str, dict[str, Any]] = {}
        for key, raw in values.items():
            if key not in KEYS:
                raise ConfigError(f"unknown configuration key {key!r}{nearest(key, KEYS)}")
            section, name, default, scale = KEYS[key]
            sections.setdefault(section, {})[name] = _convert(key, raw, default, scale)
        default = cls()
        return replace(
            default,
            **{name: replace(getattr(default, name), **fields) for name, fields in sections.items()},
        )

    def to_keys(self) -> dict[str, Any]:
        """The flat map that `from_keys` reads; only what differs from the defaults."""
        keys: dict[str, Any] = {}
        for key, (section, name, default, scale) in KEYS.items():
            value = getattr(getattr(self, section), name)
            if value != default:
                keys[key] = value / scale if scale != 1 else value
        return keys


def _keys() -> dict[str, tuple[str, str, Any, int]]:
    return {
        key: (section, name, default, MIB if key.endswith(".mb") else 1)
        for section, made in zip(EngineConfig.__struct_fields__, EngineConfig.__struct_defaults__, strict=True)
        for name, key, default in zip(
            made.__struct_fields__, made.__struct_encode_fields__, made.__struct_defaults__, strict=True
        )
    }


KEYS: Mapping[str, tuple[str, str, Any, int]] = _keys()
"""Every engine key: section, field, default (in the field's unit), and the key's unit in the field's."""


def _convert_bool(key: str, raw: Any) -> bool:
    text = str(raw).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} must be true or false, not {raw!r}")
    return text == "true"


def _convert(key: str, raw: Any, default: Any, scale: int) -> Any:
    if isinstance(default, str):
        return str(raw)
    if isinstance(default, bool):
        return _convert_bool(key, raw)
    try:
        number = float(raw) * scale
    except (TypeError, ValueError):
        raise ConfigError(f"{key} must be a number, not {raw!r}") from None
    if number < 0:
        raise ConfigError(f"{key} must not be negative, not {raw!r}")
    return number if isinstance(default, float) else int(number)
