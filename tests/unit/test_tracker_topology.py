"""What the Tracker makes of the nodes of a topology."""

from __future__ import annotations

from heron_tracker.parts import assemble
from tmaster_world import packing_plan, topology

from heronpy.proto import state_pb2
from heronpy.statemgr import Kind


def test_components_have_as_many_tasks_as_are_packed_now() -> None:
    values: dict[Kind, bytes | None] = {
        Kind.EXECUTIONSTATE: state_pb2.ExecutionState(topology="words", topology_id="words-1").SerializeToString(),
        Kind.TOPOLOGIES: topology(),
        Kind.PACKINGPLANS: packing_plan(1, 2, 3).to_proto().SerializeToString(),
    }
    shown = assemble("local", values, None, 0.0)
    assert shown is not None
    assert shown.logical.components["word"].parallelism == 3
    assert len(shown.instances("word")) == 3
