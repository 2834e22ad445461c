"""What a Topology Master knows of its topology, and how that is published and kept. Pure, beneath `_core`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import assert_never

from heronpy.errors import NotFoundError, ReadFailedError, StateError
from heronpy.plan import PhysicalPlan
from heronpy.proto import topology_pb2
from heronpy.statemgr import Kind, records
from heronpy.tmaster import _durable
from heronpy.tmaster._checkpointing import Checkpointing, KeepCopy
from heronpy.tmaster._core_events import Effect
from heronpy.tmaster._durable import DurableNodes
from heronpy.tmaster._leadership import Leadership
from heronpy.tmaster._publisher import OfferPlan, PlanPublisher, SavePlan
from heronpy.tmaster._state import (
    CloseSession,
    PackingChanged,
    PublishPlan,
    SendPlan,
    State,
    check_fits,
    step,
)
from heronpy.tmaster._state import Effect as StateEffect
from heronpy.tmaster._state import Event as TopologyEvent
from heronpy.tmaster._store_effects import (
    NodeChanged,
    WriteNode,
)

log = logging.getLogger(__name__)


class KnownTopology:
    """The topology of one Topology Master, once that is active."""

    def __init__(
        self, topology: str, topology_id: str, location: bytes, copy: Mapping[Kind, bytes | ReadFailedError]
    ) -> None:
        self.leadership = Leadership(topology, topology_id, location)
        self._topology, self._topology_id = topology, topology_id
        self._copy, self._unreadable = _durable.of_submission(copy, topology, topology_id)
        self._state: State | None = None
        self._publisher = PlanPublisher(None)
        self._nodes = DurableNodes({}, {})
        self.checkpoints: Checkpointing | None = None
        """Once it is active, and if the topology has checkpoints."""
        self._plan_write: tuple[WriteNode, PhysicalPlan] | None = None
        self._plan_saved: bytes | None = None
        """What the state manager holds of the physical plan, as far as is known."""

    @property
    def execution(self) -> bytes | None:
        """The topology's execution state as it was last seen."""
        return self._nodes.values.get(Kind.EXECUTIONSTATE)

    @property
    def state(self) -> State:
        """What is known of the topology. Only once it is active."""
        assert self._state is not None, "not active yet"
        return self._state

    def _raise_to(self, epoch: int) -> None:
        """Somebody has an epoch that was durable once; if it is newer than ours, the state manager has lost it."""
        # With checkpoints it is over then: an epoch restores one checkpoint, and which one that was is not known now.
        lost = epoch > self.leadership.restore_epoch and self.checkpoints is not None
        self.leadership.raise_restore_epoch(epoch + 1 if lost else epoch)

    # -- the topology --------------------------------------------------------------------------------------------------

    def _topology_event(self, event: TopologyEvent) -> list[Effect]:
        before = self.state
        self._state, effects = step(before, event)
        for id in self._state.stmgrs.keys() - before.stmgrs.keys():
            log.info("%s registered, %d missing", id, len(self._state.missing))
        for id in before.stmgrs.keys() - self._state.stmgrs.keys():
            log.warning("%s is lost", id)
        return self._applied(effects, event.now_s)

    def _applied(self, effects: list[StateEffect], now_s: float) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            match effect:
                case PublishPlan(plan):
                    done += self._published(self._publisher.made(plan, now_s))
                case SendPlan(_, plan):
                    # One that is not published yet is sent to everybody when it is.
                    if plan.version <= self._publisher.published_version:
                        done.append(effect)
                case CloseSession():
                    done.append(effect)
                case _:
                    assert_never(effect)
        return done

    def _published(self, effects: Iterable[SavePlan | OfferPlan]) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            match effect:
                case SavePlan(plan):
                    value = plan.to_proto().SerializeToString()
                    write = WriteNode(Kind.PPLANS, value, self.leadership.fence, Kind.EPOCHS)
                    self._plan_write = write, plan
                    done.append(write)
                case OfferPlan(plan):
                    receivers = self.state.receivers(plan)
                    log.info("plan %d goes to %d of %d Stream Managers", plan.version, len(receivers), len(plan.stmgrs))
                    done += [SendPlan(session, plan) for session in receivers]
        return done

    def _saved_plan(self, value: bytes | None) -> PhysicalPlan | None:
        """The physical plan of a node. One that is damaged is as good as lost: it is made again."""
        self._plan_saved = value
        if value is None:
            return None
        try:
            return records.physical_plan(self._topology, value)
        except StateError as e:
            log.error("%s; it is written again", e)
            return None

    def _topology_message(self) -> topology_pb2.Topology:
        value = self._nodes.values.get(Kind.TOPOLOGIES)
        if value is None:
            raise NotFoundError(f"the state manager has no topology {self._topology!r}: submit it again")
        topology = records.definition(self._topology, value)
        if topology.id != self._topology_id:
            raise StateError(f"the state manager has {topology.id!r}, another submission of {self._topology!r}")
        return topology

    def _plan_changed(self, event: NodeChanged) -> list[Effect]:
        known = (self._plan_saved, self._plan_write[0].value if self._plan_write is not None else None)
        if event.value is not None and event.value in known:
            return []
        found = self._saved_plan(event.value)
        if found is not None and found.version >= self._publisher.published_version:
            return []
        if found is not None:
            log.warning("the state manager has plan %d, which is older: the newest is written again", found.version)
        return self._published(self._publisher.vanished(event.now_s))

    def _repacked(self, defined: topology_pb2.Topology, value: bytes, now_s: float) -> PackingChanged:
        """Put a packing plan to the test.

        Raises:
            TopologyError, StateError: it is not one of this topology.
        """
        logical, packing = records.plans(self._topology, defined, value)
        check_fits(self.state.logical, packing)
        return PackingChanged(logical.with_parallelism(packing.parallelism), packing, now_s)

    def _keep(self, kind: Kind, value: bytes) -> list[Effect]:
        self._nodes.values[kind] = value
        if self._copy.get(kind) == value:
            return []
        self._copy[kind] = value
        return [KeepCopy(kind, value)]
