"""What a submission will do, decided before anything is done."""

from __future__ import annotations

import getpass
import importlib
import inspect
import logging
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heron_scheduler import scheduler_of
from msgspec import structs

import heronpy
from heronpy import packing as packings
from heronpy.address import is_loopback
from heronpy.api import validate_config, without_effect
from heronpy.api.api_constants import TOPOLOGY_KEYS
from heronpy.api.topology import TopologyType
from heronpy.config import (
    ALLOW_LOSSY_SPOUTS,
    INEXACT_KEY,
    MIB,
    EngineConfig,
    LoggingConfig,
    ReliabilityMode,
    ShellConfig,
    check_name,
    is_set,
    scheduler_keys,
    state_memory_bytes,
    takes_checkpoints,
)
from heronpy.config.cluster import CLUSTER_KEYS, ClusterConfig, load_cluster
from heronpy.errors import ConfigError, TopologyError, nearest
from heronpy.files import user_path
from heronpy.plan import WATERMARK_FIELD_KEY, LogicalPlan, PackingPlan, Pickled, key_value, watermark_fields
from heronpy.proto import topology_pb2
from heronpy.runtime import Launch, StatemgrSpec
from heronpy.submit._effective import origins_of, set_by_user
from heronpy.usersecrets import KEY as SECRETS_KEY
from heronpy.usersecrets import check_used, kinds_of, references_of

if TYPE_CHECKING:
    from heronpy.loader import Definition

log = logging.getLogger(__name__)

SHELL_ENABLED = "heron.shell.enabled"
DEFINITION_BYTES_MAX = 16 * MIB
"""Of a topology. Its plans contain it, and each must fit into one message to a process."""


@dataclass(frozen=True)
class Submission:
    """A topology that is ready to be submitted."""

    definition: Definition
    launch: Launch
    logical: LogicalPlan
    packing: PackingPlan


def default_role() -> str:
    """The role of commands that name none: the unix user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid-{os.getuid()}"


def prepare(
    definition: Definition,
    *,
    cluster: str = "local",
    role: str | None = None,
    environ: str | None = "default",
    home: Path,
    properties: Mapping[str, Any] | None = None,
    config_path: str | Path | None = None,
    start_from: str = "",
) -> Submission:
    """Validate a topology and plan where it runs. Touches nothing.

    Role and environment may be None: the unix user and `default`, unless the cluster requires them.

    Args:
        definition: The topology.
        cluster: Where it runs.
        role: Whose it is.
        environ: Which of the role's.
        home: HERON_HOME.
        properties: Configuration keys that override the cluster's files.
        config_path: The directory of the clusters' directories, instead of the installed one.
        start_from: URL of a storage with the checkpoint that it is to begin with; empty: it begins without state.

    Raises:
        ConfigError: unknown cluster or key, a value of the wrong type, a name that cannot be a path.
        NotFoundError: unknown scheduler.
        TopologyError: the topology is not valid.
    """
    name = check_name("topology name", definition.proto.name)
    role_given, environ_given = bool(role), bool(environ)
    role = check_name("role", role or default_role())
    environ = check_name("environment", environ or "default")
    home = user_path(home).absolute()
    config = load_cluster(
        cluster,
        home=home,
        role=role,
        environ=environ,
        topology=name,
        properties=properties,
        config_path=config_path,
    )
    if (config.role_required and not role_given) or (config.environ_required and not environ_given):
        raise ConfigError(f"cluster {cluster} requires a role and an environment: {cluster}/ROLE/ENV")
    topology = _topology(definition.proto, config)
    _check_size(topology)
    logical = LogicalPlan.from_proto(topology)
    _check_config(logical.config, f"topology {name}")
    for component in logical.components.values():
        check_name("component name", component.name)
        _check_config(component.config, f"component {component.name}")
        config.engine_config(logical.config_of(component.name))
    _check_watermarks(logical)
    if ignored := without_effect(logical.config, *(c.config for c in logical.components.values())):
        log.warning("topology %s: configuration %s", name, ignored)
    scheduler_config = {**config.scheduler_config, **scheduler_keys(logical.config)}
    scheduler = scheduler_of(config.scheduler)
    scheduler.check_config(scheduler_config)
    origins = origins_of(config, definition.proto, logical.config)
    engine = config.engine_config(logical.config)
    if SHELL_ENABLED not in origins:
        # Without a service the cluster looks after containers, on hosts that know nothing of this one's files.
        engine = structs.replace(engine, shell=ShellConfig(enabled=not scheduler.has_service))
    if engine.logging.upload_uri:
        engine = structs.replace(engine, logging=_storing(engine.logging, cluster, role, environ))
    secrets = references_of(logical.config)
    for config_of, where in ((logical.config, f"topology {name}"), *_components(logical)):
        check_used(config_of, secrets, where)
    for secret, kind in kinds_of(secrets).items():
        if kind not in scheduler.secret_kinds:
            raise ConfigError(f"{SECRETS_KEY}: scheduler {config.scheduler} has no secrets of {kind}, as {secret!r} is")
    launch = Launch(
        topology=name,
        topology_id=logical.id,
        cluster=cluster,
        role=role,
        environ=environ,
        statemgr=StatemgrSpec.of(config),
        dir=home / "topologies" / cluster / role / environ / name,
        scheduler=config.scheduler,
        scheduler_config=scheduler_config,
        config=engine,
        checkpoints=_checkpoints(logical, engine, config.scheduler, home / "checkpoints" / cluster / role / environ),
        secrets=secrets,
        start_from=start_from,
        start_checkpoint=_starting_checkpoint(logical, start_from),
        origins=origins,
        release=heronpy.__version__,
    )
    if not scheduler.has_service:
        _check_reachable(launch)
    return Submission(definition, launch, logical, packing_of(logical, config.packing).pack())


def _check_reachable(launch: Launch) -> None:
    """Refuse servers that containers of other hosts cannot reach.

    Raises:
        ConfigError: they would bind loopback, and the state manager says that there are other hosts.
    """
    bind, server = launch.config.network.bind, launch.statemgr.first_server()
    if is_loopback(bind) and server is not None and not is_loopback(server[0]):
        raise ConfigError(
            f"heron.network.bind.address is {bind}, which containers on other hosts do not reach: set it to 0.0.0.0 or "
            "::, or to a name that each host takes for its own"
        )


def _components(logical: LogicalPlan) -> Iterator[tuple[Mapping[str, Any], str]]:
    for component in logical.components.values():
        yield component.config, f"component {component.name}"


def _storing(logging: LoggingConfig, cluster: str, role: str, environ: str) -> LoggingConfig:
    """With a place in the log store for the topologies of one role. Raises ConfigError: there is no such storage."""
    from heronpy.checkpoints import open_storage  # here, because few topologies store their logs
    from heronpy.shell.stored import log_store_of

    uri = log_store_of(logging.upload_uri, cluster, role, environ)
    open_storage(uri).close()
    return structs.replace(logging, upload_uri=uri)


def _check_watermarks(logical: LogicalPlan) -> None:
    """Say which components declare watermarks and send none, because an input of theirs sends none.

    Raises:
        ConfigError: one declares watermarks of a field that it does not have.
    """
    sending = watermark_fields(logical)
    for name, component in logical.components.items():
        field = component.config.get(WATERMARK_FIELD_KEY)
        if not field:
            continue
        if not any(field in stream.fields for stream in component.outputs.values()):
            raise ConfigError(f"component {name!r}: {WATERMARK_FIELD_KEY} is {field!r}, and no stream has such a field")
        if name not in sending:
            silent = sorted({each.component for each in component.inputs} - sending.keys())
            log.warning(
                "component %r sends no watermarks of %r, because it reads of some that send none: %s",
                name,
                field,
                ", ".join(silent),
            )


def check_divisible(logical: LogicalPlan) -> None:
    """Refuse more tasks than state can be divided among.

    Raises:
        TopologyError: a component has more than there are key groups.
    """
    for component in logical.components.values():
        if component.parallelism > logical.key_groups:
            raise TopologyError(
                f"{component.name!r} cannot have {component.parallelism} tasks: its state is divided into "
                f"{logical.key_groups} key groups (topology.state.key.groups)"
            )


def _checkpoints(logical: LogicalPlan, engine: EngineConfig, scheduler: str, default: Path) -> str:
    """Where the topology's checkpoints will be stored; empty if it takes none.

    Raises:
        ConfigError: nowhere that it could be, or the topology cannot take any, or a package for that is not installed.
    """
    if not takes_checkpoints(logical.config):
        return ""
    check_divisible(logical)
    tracks = ReliabilityMode.of(logical.config).tracks_trees
    for component in logical.components.values():
        allowed = tracks or (component.is_spout and is_set(logical.config, ALLOW_LOSSY_SPOUTS))
        if not allowed and (why := component.config.get(INEXACT_KEY)):
            raise ConfigError(f"{logical.name}: component {component.name!r} cannot be effectively once: {why}")
    # Here, because it is needed with checkpoints only.
    from heronpy.checkpoints import open_storage, storage_below
    from heronpy.submit._positions import check_positions

    if not tracks:  # else a spout emits again what is failed
        check_positions(logical)

    for name in logical.components:
        if (budget_bytes := state_memory_bytes(logical.config_of(name))) is not None:
            from heronpy.state import Memory

            Memory(budget_bytes, default)  # makes nothing yet, and fails here as it would in each task
    if not engine.checkpoints.url and not scheduler_of(scheduler).has_service:
        raise ConfigError(
            f"scheduler {scheduler}: set heron.statefulstorage.url to what all hosts can reach: s3://…, redis://… or "
            "a directory that they share"
        )
    url = storage_below(engine.checkpoints.url or str(default), logical.name, logical.id)
    open_storage(url).close()
    return url


def _starting_checkpoint(logical: LogicalPlan, url: str) -> int:
    if not url:
        return 0
    from heronpy.submit._savepoints import starting_checkpoint

    return starting_checkpoint(logical, url)


def _check_size(topology: topology_pb2.Topology) -> None:
    size = topology.ByteSize()
    if size <= DEFINITION_BYTES_MAX:
        return
    parts = {f"component {c.comp.name!r}": c.ByteSize() for cs in (topology.spouts, topology.bolts) for c in cs}
    parts["the topology's configuration"] = topology.topology_config.ByteSize()
    largest = max(parts, key=lambda part: parts[part])
    raise TopologyError(
        f"{topology.name} takes {size:,} bytes to define, and {DEFINITION_BYTES_MAX:,} are the most; "
        f"{parts[largest]:,} are of {largest}: keep what is large in files"
    )


def _topology(definition: topology_pb2.Topology, config: ClusterConfig) -> topology_pb2.Topology:
    """The definition with an id of its own and the cluster's defaults for what it leaves open.

    A definition always carries the built-in defaults, so a value that equals its default counts as left open: else no
    `--config-property topology.…` could ever change one of them.
    """
    _check_config(config.topology, f"cluster {config.cluster}")
    topology = topology_pb2.Topology()
    topology.CopyFrom(definition)
    topology.id = f"{definition.name}-{uuid.uuid4()}"
    default = TopologyType.DEFAULT_TOPOLOGY_CONFIG
    own = set_by_user(definition)
    present = {kv.key for kv in own}
    del topology.topology_config.kvs[:]
    for key, value in {**default, **config.topology}.items():
        if key not in present:
            topology.topology_config.kvs.append(_key_value(key, value))
    topology.topology_config.kvs.extend(kv for kv in own if kv.key != SECRETS_KEY)
    if SECRETS_KEY in present:
        # Name by name, and the other way round: a topology says what it needs, and the place where it runs from where.
        declared = LogicalPlan.from_proto(definition).config[SECRETS_KEY]
        given = config.topology.get(SECRETS_KEY) or {}
        merged = {**declared, **given} if isinstance(declared, dict) and isinstance(given, dict) else declared
        topology.topology_config.kvs.append(_key_value(SECRETS_KEY, merged))
    return topology


def _key_value(key: str, value: Any) -> topology_pb2.Config.KeyValue:
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, (int, float)):
        value = str(value)
    return key_value(key, value, pickle.dumps)  # lists and maps, as YAML has them: plain, unless there are dates in it


def _check_config(config: Mapping[str, Any], where: str) -> None:
    """Refuse misspelt keys and wrong values below `topology.` and `heron.`; all other keys are the user's own."""
    for key, value in config.items():
        if isinstance(value, Pickled) and (key in TOPOLOGY_KEYS or key.startswith("heron.")):
            raise ConfigError(f"{where}: {key} must be plain data (text, numbers, lists, dicts), not an object")
        if key in CLUSTER_KEYS:
            raise ConfigError(f"{where}: {key} belongs into the cluster's files, not into a topology")
    try:
        validate_config(config)
    except ConfigError as e:
        raise ConfigError(f"{where}: {e}") from e


def packing_of(logical: LogicalPlan, algorithm: str) -> packings.Packing:
    """The packing algorithm of this name (of a class here or of Heron's, or a path), for a topology.

    Raises:
        ConfigError: there is none.
        TopologyError: the configuration makes no sense.
    """
    known = {n: c for n in packings.__all__ if _is_packing(c := getattr(packings, n))}
    module, _, name = algorithm.rpartition(".")
    found: Any = None
    why = nearest(name, known)
    if not module or module.startswith(("org.apache.heron.", "com.twitter.heron.")):
        found = known.get(name)
    else:
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError as e:
            why = f": {e}"
    if not _is_packing(found):
        raise ConfigError(f"heron.class.packing.algorithm: {algorithm!r} is not a packing algorithm{why}")
    made: packings.Packing = found(logical)
    return made


def _is_packing(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, packings.Packing) and not inspect.isabstract(found)
