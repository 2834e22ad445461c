"""The state manager: the few facts about a topology that must outlive every process.

A tree of small values (serialized protobufs) below a root path, Heron's tree and some more, kept in files (`file`), in
ZooKeeper (`zookeeper`), in etcd (`etcd`) or in Kubernetes' own objects (`kubernetes`):

    <root>/topologies/<topology>            Topology: the definition
    <root>/packingplans/<topology>          PackingPlan
    <root>/nextpackingplans/<topology>      PackingPlan that an update is going to need; empty: nothing is prepared
    <root>/pplans/<topology>                PhysicalPlan
    <root>/executionstate/<topology>        ExecutionState
    <root>/schedulers/<topology>            SchedulerLocation
    <root>/tmasters/<topology>              TmasterLocation, ephemeral: gone when its owner is
    <root>/epochs/<topology>                Epoch: which Topology Master may write, and the restore epoch
    <root>/locks/<topology>__<lock>         who holds the lock, ephemeral
    <root>/statefulcheckpoints/<topology>   consistent checkpoints
    <root>/loglevels/<topology>             LogLevels: those that were changed at run time
    <root>/containers/<topology>__<n>       ContainerRecord: the newest incarnation of container n, and where it runs
    <root>/launches/<topology>              launch.json, which holds nothing secret: for a CLI on another machine
    <root>/driverorders/<topology>          what a driver (of Spark, YARN) is to run: see heron_scheduler.driven
    <root>/drivers/<topology>               what that driver says, ephemeral: gone when it is
    <root>/tombstones/<topology id>         when the topology was killed, in seconds: kept for a week after that
    <root>/pipelines/<topology>             how the batch side of its program was after the last run: JSON, see
                                            heronpy.pipeline.record

Sync and thread-safe; from asyncio, call through `asyncio.to_thread`, and follow nodes with `follow`. Every call takes a
bounded time. Heartbeats and metrics never come here. ZooKeeper's is in `heronpy.statemgr.zookeeper`, which only those
import who use it: `open_statemgr` does.
"""

from heronpy.statemgr._base import (
    TOMBSTONE_S,
    Kind,
    StateManager,
    check_condition,
    check_node,
    container_node,
    container_record,
    is_container_node,
)
from heronpy.statemgr._files import FileStateManager
from heronpy.statemgr._follow import follow, on_loop, opened
from heronpy.statemgr._open import open_statemgr
from heronpy.statemgr._watch import Watch

__all__ = [
    "TOMBSTONE_S",
    "FileStateManager",
    "Kind",
    "StateManager",
    "Watch",
    "check_condition",
    "check_node",
    "container_node",
    "container_record",
    "follow",
    "is_container_node",
    "on_loop",
    "open_statemgr",
    "opened",
]
