"""The state manager: the few facts about a topology that must outlive every process.

A tree of small values (serialized protobufs) below a root path, the same tree as Heron's, kept in files (`file`) or in
ZooKeeper (`zookeeper`):

    <root>/topologies/<topology>            Topology: the definition
    <root>/packingplans/<topology>          PackingPlan
    <root>/pplans/<topology>                PhysicalPlan
    <root>/executionstate/<topology>        ExecutionState
    <root>/schedulers/<topology>            SchedulerLocation
    <root>/tmasters/<topology>              TmasterLocation, ephemeral: gone when its owner is
    <root>/locks/<topology>__<lock>         who holds the lock, ephemeral
    <root>/statefulcheckpoints/<topology>   consistent checkpoints
    <root>/loglevels/<topology>             LogLevels: those that were changed at run time

Sync and thread-safe; from asyncio, call through `asyncio.to_thread`. Every call takes a bounded time. Heartbeats and
metrics never come here.
"""

from heronpy.statemgr._base import Kind, StateManager
from heronpy.statemgr._files import FileStateManager
from heronpy.statemgr._open import open_statemgr
from heronpy.statemgr._watch import Watch
from heronpy.statemgr._zookeeper import ZookeeperStateManager

__all__ = [
    "FileStateManager",
    "Kind",
    "StateManager",
    "Watch",
    "ZookeeperStateManager",
    "open_statemgr",
]
