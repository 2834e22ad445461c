"""The physical plan as a message."""

from __future__ import annotations

from heronpy.plan import LogicalPlan, PackingPlan, PhysicalPlan, StmgrLocation, TopologyState
from heronpy.proto import plan_pb2, topology_pb2


def topology() -> topology_pb2.Topology:
    proto = topology_pb2.Topology(id="words-1", name="words", state=topology_pb2.PAUSED)
    spout = proto.spouts.add()
    spout.comp.name = "word"
    spout.comp.class_name = "words.Word"
    spout.comp.config.SetInParent()
    return proto


def test_a_physical_plan_survives_the_round_trip_with_its_restore_epoch() -> None:
    plan = PhysicalPlan(
        version=7,
        logical=LogicalPlan.from_proto(topology()),
        packing=PackingPlan("packing", ()),
        stmgrs=(StmgrLocation("stmgr-1", 1, "127.0.0.1", 1234, 5, 6),),
        state=TopologyState.PAUSED,
        restore_epoch=2**32 - 1,
    )
    data = plan.to_proto().SerializeToString()
    again = PhysicalPlan.from_proto(plan_pb2.PhysicalPlan.FromString(data))
    assert again.restore_epoch == 2**32 - 1
    assert again.to_proto().SerializeToString() == data
    assert (again.version, again.packing, again.stmgrs, again.state) == (7, plan.packing, plan.stmgrs, plan.state)


def test_a_plan_that_was_saved_without_an_epoch_is_of_epoch_zero() -> None:
    assert PhysicalPlan.from_proto(plan_pb2.PhysicalPlan(version=1, topology=topology())).restore_epoch == 0
