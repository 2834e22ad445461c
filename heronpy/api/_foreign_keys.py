"""Configuration keys that mean something to Storm or to Heron's Java instances, and nothing to this engine.

A topology that is moved here may carry them: they are accepted, and the submitter is warned once that they do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heronpy.api import api_constants as keys

INSTEAD: Mapping[str, str] = {
    "topology.workers": keys.TOPOLOGY_STMGRS,
    "topology.acker.executors": keys.TOPOLOGY_RELIABILITY_MODE,
    "topology.ackers": keys.TOPOLOGY_RELIABILITY_MODE,
    keys.TOPOLOGY_ACKING: keys.TOPOLOGY_RELIABILITY_MODE,
    "topology.classpath": "",
    "topology.component.resources.onheap.memory.mb": keys.TOPOLOGY_COMPONENT_RAMMAP,
    "topology.component.cpu.pcore.percent": keys.TOPOLOGY_COMPONENT_CPUMAP,
    "topology.tuple.serializer": keys.TOPOLOGY_SERIALIZER_CLASSNAME,
    "topology.tasks": keys.TOPOLOGY_COMPONENT_PARALLELISM,
    "topology.stateful.checkpointmanager.ram": keys.TOPOLOGY_STATEFUL_CKPTMGR_RAM,
}
"""What does here what such a key does there; `` for nothing."""

_HERON = frozenset(
    (
        keys.TOPOLOGY_ENVIRONMENT,
        keys.TOPOLOGY_TIMER_EVENTS,
        keys.TOPOLOGY_REMOTE_DEBUGGING_ENABLE,
        keys.TOPOLOGY_DROPTUPLES_UPON_BACKPRESSURE,
        keys.TOPOLOGY_COMPONENT_OUTPUT_BPS,
        keys.TOPOLOGY_COMPONENT_OUTPUT_TPS,
        keys.TOPOLOGY_WORKER_CHILDOPTS,
        keys.TOPOLOGY_COMPONENT_JVMOPTS,
        keys.TOPOLOGY_ADDITIONAL_CLASSPATH,
        keys.TOPOLOGY_KRYO_FACTORY,
        keys.TOPOLOGY_KRYO_REGISTER,
        keys.TOPOLOGY_KRYO_DECORATORS,
        keys.TOPOLOGY_STATEFUL_CKPTMGR_RAM,
        keys.TOPOLOGY_STATEFUL_SPILL_STATE,
        keys.TOPOLOGY_STATEFUL_SPILL_STATE_LOCATION,
        keys.TOPOLOGY_UPDATE_DEACTIVATE_WAIT_SECS,
        keys.TOPOLOGY_UPDATE_REACTIVATE_WAIT_SECS,
    )
)
_STORM_NAMES = """
    auto-credentials blobstore.map builtin.metrics.bucket.size.secs classpath.beginning component.resources.map
    component.resources.offheap.memory.mb disable.loadaware.messaging enable.send.iconnection.metrics
    enable.v2.metrics.tick error.throttle.interval.secs event.logger.register executor.overflow.limit
    executor.receive.buffer.size executor.send.buffer.size fall.back.on.java.serialization groups isolate.machines
    logging.config logging.sensitivity max.error.report.per.interval max.replication.wait.time.sec max.task.parallelism
    min.replication.count oci.image optimize priority readonly.groups readonly.users receiver.buffer.size
    serialized.message.size.metrics shellbolt.max.pending skip.missing.kryo.registrations spread.components
    subprocess.timeout.secs testing.always.try.serialize transactional.id tuple.serializer.blowfish.key users
    v2.metrics.tick.interval.seconds version
"""
_STORM_PREFIXES = """
    acker backpressure batch bolt bolts disruptor eventlogger localityaware metrics multilang producer ras scheduler
    sleep.spout spout state stats submitter transfer trident tuple.compression upstream.feedback worker
"""
_STORM = frozenset(f"topology.{name}" for name in _STORM_NAMES.split())
_STORM_FAMILIES = tuple(f"topology.{name}." for name in _STORM_PREFIXES.split())


def has_no_effect(key: str) -> bool:
    """Whether a key is one of Storm's or Heron's that this engine does not read."""
    if key in INSTEAD or key in _HERON or key in _STORM:
        return True
    return key.startswith(_STORM_FAMILIES) and key not in keys.TOPOLOGY_KEYS


def without_effect(*configs: Mapping[str, Any]) -> str:
    """One line that names the keys which do nothing here, each with what to set instead; `` if there are none."""
    named = []
    for key in sorted({key for config in configs for key in config if has_no_effect(key)}):
        instead = INSTEAD.get(key)
        named.append(f"{key} (use {instead})" if instead else key)
    return f"has no effect here: {', '.join(named)}" if named else ""
